//! Stream tickets of a fleet: kept in Redis, so that a ticket is good at whichever hub the client comes to.
//!
//! A key is named by the ticket's hash, so that who can list keys cannot use a ticket.

use bongsu_http::Person;
use bongsu_http::identity::tickets::{Boxed, LIFETIME, MOST_PER_PERSON, new_ticket};
use bongsu_http::identity::{Ticket, TicketError, Tickets};
use bongsu_kernel::{Clock, Outage};
use bongsu_redis::redis::{self, FromRedisValue};
use bongsu_redis::{Redis, Repeat, Script};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

static COUNT: Script = Script::new("ticket_count", include_str!("../lua/ticket_count.lua"));

pub(crate) struct RedisTickets {
    pub(crate) redis: Redis,
    pub(crate) clock: Clock,
}

/// What a ticket keeps. Version 1.
#[derive(Serialize, Deserialize)]
struct Kept {
    v: u32,
    #[serde(flatten)]
    person: Person,
}

impl RedisTickets {
    fn key(&self, ticket: &str) -> String {
        let hash: String = Sha256::digest(ticket).iter().map(|byte| format!("{byte:02x}")).collect();
        self.redis.key(format_args!("ticket:{hash}"))
    }
}

impl Tickets for RedisTickets {
    fn issue(&self, person: Person) -> Boxed<'_, Ticket> {
        Box::pin(async move {
            let own = self.redis.key(format_args!("tickets-of:{}", person.id));
            let life = LIFETIME.to_string();
            let count = self.redis.run(&COUNT, Repeat::Safe, &[&own], &[life.as_bytes()]).await;
            let count = count.map_err(Outage::from)?;
            if u32::from_redis_value(count).unwrap_or(u32::MAX) > MOST_PER_PERSON {
                return Err(TicketError::TooMany);
            }
            let now = self.clock.now();
            let life = person.expires_at.min(now + LIFETIME).saturating_sub(now).max(1);
            let ticket = new_ticket();
            let kept = serde_json::to_string(&Kept { v: 1, person }).unwrap_or_default();
            let key = self.key(&ticket);
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(kept).arg("PX").arg(life);
            self.redis.ask("set", &key, &set, Repeat::Safe).await.map_err(Outage::from)?;
            Ok(Ticket { ticket, expires_in: life.div_ceil(1_000) })
        })
    }

    fn redeem<'a>(&'a self, ticket: &'a str) -> Boxed<'a, Option<Person>> {
        Box::pin(async move {
            let key = self.key(ticket);
            let mut take = redis::cmd("GETDEL");
            take.arg(&key);
            // Not repeated: an answer that was lost took the ticket with it.
            let kept = self.redis.ask("getdel", &key, &take, Repeat::Never).await.map_err(Outage::from)?;
            let kept: Option<String> = redis::from_redis_value(kept).unwrap_or_default();
            let kept = kept.and_then(|kept| {
                let read = serde_json::from_str::<Kept>(&kept).ok().filter(|kept| kept.v == 1);
                if read.is_none() {
                    tracing::warn!("a ticket was written by another version and cannot be read");
                }
                read
            });
            let person = kept.map(|kept| kept.person);
            Ok(person.filter(|person| self.clock.now() < person.expires_at))
        })
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::Id;

    use super::*;

    #[test]
    fn a_person_is_kept_as_version_1_has_it() {
        let id = Id::new("42").unwrap();
        let kept = Kept { v: 1, person: Person { id, issued_at: 5, expires_at: 9, is_admin: true } };
        let text = r#"{"v":1,"id":42,"issuedAt":5,"expiresAt":9,"isAdmin":true}"#;
        assert_eq!(serde_json::to_string(&kept).unwrap(), text);
        assert_eq!(serde_json::from_str::<Kept>(text).unwrap().person, kept.person);
    }
}
