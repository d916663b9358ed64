//! Buckets in Redis, for the fleet: one script looks, takes and lets the bucket expire, by the server's clock.

use bongsu_kernel::Outage;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};

use super::{Buckets, ROUNDING, Rate, Refused};
use crate::Boxed;

static TAKE: Script = Script::new("bucket_take", include_str!("../../lua/take.lua"));

/// See the module.
pub struct RedisBuckets(pub Redis);

impl Buckets for RedisBuckets {
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> Boxed<'a, Result<(), Refused>> {
        Box::pin(async move {
            if f64::from(cost) > rate.burst {
                return Err(Refused::Never);
            }
            let key = self.0.key(format_args!("bucket:{key}"));
            let arguments = [rate.per_second, rate.burst, cost.into(), ROUNDING].map(|n: f64| n.to_string());
            let arguments = arguments.each_ref().map(String::as_bytes);
            // A second time it would be taken twice.
            let answer = self.0.run(&TAKE, Repeat::Never, &[&key], &arguments).await.map_err(Outage::from)?;
            let missing: Option<f64> = from_redis_value(answer)
                .map_err(|_| Outage("a bucket in Redis is not readable".to_owned()))?;
            missing.map_or(Ok(()), |missing| Err(Refused::RetryAfter(rate.wait(missing))))
        })
    }
}
