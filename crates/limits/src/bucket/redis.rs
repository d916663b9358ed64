//! Buckets in Redis, for a fleet: one script checks the level, takes the tokens and renews the expiry, by Redis' clock.

use bongsu_kernel::Outage;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};

use super::{Buckets, Rate, RateLimitError, SHORTFALL_TOLERANCE};
use crate::BoxFuture;

static TAKE: Script = Script::new("bucket_take", include_str!("../../lua/take.lua"));

pub struct RedisBuckets(pub Redis);

impl Buckets for RedisBuckets {
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> BoxFuture<'a, Result<(), RateLimitError>> {
        Box::pin(async move {
            if f64::from(cost) > rate.burst {
                return Err(RateLimitError::ExceedsBurst);
            }
            let key = self.0.key(format_args!("bucket:{key}"));
            let arguments =
                [rate.per_second, rate.burst, cost.into(), SHORTFALL_TOLERANCE].map(|n: f64| n.to_string());
            let arguments = arguments.each_ref().map(String::as_bytes);
            // Not repeated: a repeated call would take the tokens twice.
            let answer = self.0.run(&TAKE, Repeat::Never, &[&key], &arguments).await.map_err(Outage::from)?;
            let missing: Option<f64> = from_redis_value(answer)
                .map_err(|_| Outage("a bucket in Redis has an unknown format".to_owned()))?;
            missing.map_or(Ok(()), |missing| Err(RateLimitError::RetryAfter(rate.wait(missing))))
        })
    }
}
