//! Stream tickets of a fleet: stored in Redis, so that every instance accepts a ticket that another one has issued.
//!
//! The key contains the hash of the ticket, so that a list of keys does not reveal usable tickets.

use bongsu_http::Person;
use bongsu_http::identity::tickets::{MAX_TICKETS_PER_PERSON, TICKET_LIFETIME_MS, TicketFuture, new_ticket};
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

/// The value of a ticket's key, version 1.
#[derive(Serialize, Deserialize)]
struct StoredTicket {
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
    fn issue(&self, person: Person) -> TicketFuture<'_, Ticket> {
        Box::pin(async move {
            let counter = self.redis.key(format_args!("tickets-of:{}", person.id));
            let window_ms = TICKET_LIFETIME_MS.to_string();
            let count = self.redis.run(&COUNT, Repeat::Safe, &[&counter], &[window_ms.as_bytes()]).await;
            let count = count.map_err(Outage::from)?;
            if u32::from_redis_value(count).unwrap_or(u32::MAX) > MAX_TICKETS_PER_PERSON {
                return Err(TicketError::TooMany);
            }
            let now = self.clock.now();
            let lifetime_ms = person.expires_at.min(now + TICKET_LIFETIME_MS).saturating_sub(now).max(1);
            let ticket = new_ticket();
            let stored = serde_json::to_string(&StoredTicket { v: 1, person }).unwrap_or_default();
            let key = self.key(&ticket);
            let set = redis::cmd("SET").arg(&key).arg(stored).arg("PX").arg(lifetime_ms).take();
            self.redis.query("set", &key, &set, Repeat::Safe).await.map_err(Outage::from)?;
            Ok(Ticket { ticket, expires_in: lifetime_ms.div_ceil(1_000) })
        })
    }

    fn redeem<'a>(&'a self, ticket: &'a str) -> TicketFuture<'a, Option<Person>> {
        Box::pin(async move {
            let key = self.key(ticket);
            let take = redis::cmd("GETDEL").arg(&key).take();
            // Not retried: if the answer was lost, Redis has already deleted the ticket.
            let value = self.redis.query("getdel", &key, &take, Repeat::Never).await.map_err(Outage::from)?;
            let value: Option<String> = redis::from_redis_value(value).unwrap_or_default();
            let stored = value.and_then(|value| {
                let stored = serde_json::from_str::<StoredTicket>(&value).ok().filter(|stored| stored.v == 1);
                if stored.is_none() {
                    tracing::warn!("a stored ticket is malformed or not of version 1; refusing the ticket");
                }
                stored
            });
            let person = stored.map(|stored| stored.person);
            Ok(person.filter(|person| self.clock.now() < person.expires_at))
        })
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::Id;

    use super::*;

    #[test]
    fn a_ticket_is_stored_in_the_format_of_version_1() {
        let id = Id::new("42").unwrap();
        let stored =
            StoredTicket { v: 1, person: Person { id, issued_at: 5, expires_at: 9, is_admin: true } };
        let text = r#"{"v":1,"id":42,"issuedAt":5,"expiresAt":9,"isAdmin":true}"#;
        assert_eq!(serde_json::to_string(&stored).unwrap(), text);
        assert_eq!(serde_json::from_str::<StoredTicket>(text).unwrap().person, stored.person);
    }
}
