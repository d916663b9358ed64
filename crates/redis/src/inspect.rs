//! Inspects every server once, for an operator: whether it answers and accepts writes, whether its settings are safe,
//! and how far its clock differs from this machine's.

use bongsu_kernel::findings::{Findings, Inspection};
use bongsu_kernel::{Clock, Millis, clock};
use redis::{Value, cmd, from_redis_value};

use crate::error::{Error, Result};
use crate::{Redis, durability, write_check};

impl Redis {
    /// Fails when a server cannot be reached or refuses writes.
    pub async fn inspect(&self) -> Result<Inspection> {
        let servers = self.servers();
        let refusals = write_check::check(servers, &self.0.prefix).await?;
        if !refusals.is_empty() {
            let refusals: Vec<&str> =
                refusals.iter().map(|text| text.trim_start_matches("redis: ")).collect();
            return Err(Error::ReadOnly(refusals.join("; ")));
        }
        let findings = Findings::default();
        durability::check(&findings, servers).await;
        let (clock, mut clock_skew_ms) = (Clock::system(), 0_i64);
        let before = clock.now();
        let answers = servers.send_to_all(&cmd("TIME")).await;
        let after = clock.now();
        for answer in answers {
            let skew = clock::skew_ms(before, parse_time(answer?)?, after);
            if skew.unsigned_abs() > clock_skew_ms.unsigned_abs() {
                clock_skew_ms = skew;
            }
        }
        Ok(Inspection { warnings: findings.warnings(), clock_skew_ms })
    }
}

/// Converts the answer of `TIME`: seconds and microseconds as text.
fn parse_time(answer: Value) -> Result<Millis> {
    let (seconds, micros): (u64, u64) =
        from_redis_value(answer).map_err(|error| Error::Unexpected(error.to_string()))?;
    Ok(seconds * 1_000 + micros / 1_000)
}
