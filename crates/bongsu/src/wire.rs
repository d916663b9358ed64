//! Puts the parts together: store, hub, rooms, identity, routes.
//!
//! What differs between one process and a fleet on Redis, and between the data folder and a database, is chosen here, and
//! nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::response::IntoResponse;
use axum::{Router, middleware};
use bongsu_coordination::orders::embedded::EmbeddedOrders;
use bongsu_coordination::orders::records::RevocationRecords;
use bongsu_coordination::orders::redis::RedisOrders;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{self, About};
use bongsu_coordination::{LEASE, Orders, Registry};
use bongsu_http::host::HostPolicy;
use bongsu_http::identity::{Identity, OwnTickets, Tickets};
use bongsu_http::origins;
use bongsu_http::{ApiError, InFlight, frame, host, in_flight, openapi, server};
use bongsu_inbox::Inbox;
use bongsu_kernel::Clock;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::telemetry;
use bongsu_kernel::text::Text;
use bongsu_limits::bucket::Buckets;
use bongsu_limits::bucket::embedded::EmbeddedBuckets;
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::cap::redis::RedisCap;
use bongsu_live::log::Bus;
use bongsu_live::log::embedded::{self, EmbeddedLog};
use bongsu_live::log::redis::{RedisBus, RedisLog};
use bongsu_live::{Family, Hub, Log, LogSource, log};
use bongsu_presence::Presence;
use bongsu_redis::Redis;
use bongsu_rooms::Rooms;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::{self as sql, WriterState};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::admin::{self, Admin};
use crate::changes;
use crate::failure::Failure;
use crate::fleet::{self, Doorkeeper, Ordered, StreamPlaces};
use crate::fleet_settings::{self, Comparison};
use crate::letters::{self, Letters};
use crate::operate::{self, Operations};
use crate::people::{self, Ground};
use crate::settings::{self, Checked};
use crate::storage::{Opened, Purpose, Storage};
use crate::tickets::RedisTickets;

/// A hub that is ready to be served.
pub(crate) struct Wired {
    pub(crate) app: Router,
    pub(crate) hub: Hub,
    pub(crate) redis: Option<Redis>,
    /// Nothing when nothing is recorded.
    pub(crate) inbox: Option<Inbox>,
    /// What has to be finished at the end; nothing when nothing is kept here.
    pub(crate) store: Option<Store>,
    pub(crate) ready: Arc<AtomicBool>,
}

/// The embedded store.
pub(crate) struct Store {
    pub(crate) store: sql::Store,
    pub(crate) writer: WriterState,
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Bongsu",
    description = "A real-time event hub: keeps what happens, decides who hears of it, delivers it."
))]
struct Document;

pub(crate) async fn wire(
    values: &Values,
    checked: Checked,
    address: SocketAddr,
    shards: usize,
    supervisor: &Supervisor,
) -> Result<Wired, Failure> {
    let clock = Clock::system();
    let Checked { roles, identity, origins, rooms, presence, people, outbox, redis, database, weak, .. } =
        checked;
    let metrics = telemetry::start_metrics(supervisor)?;
    let claim = if redis.is_some() { sql::Claim::Shared } else { sql::Claim::Alone };
    let storage = Storage::prepare(values, database.as_ref(), Purpose::Serve(claim)).await?;
    let redis = redis.map(|options| Redis::start(options, supervisor));
    let (mut instances, mut compared) = (None, None);
    if let Some(redis) = &redis {
        let about = About {
            records: storage.standing()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: address.to_string(),
            started_at: clock.now(),
            required_settings: fleet_settings::required(values),
            setting_hashes: Some(fleet_settings::hashes(values)),
        };
        let joined = RedisRegistry::start(redis.clone(), &about, LEASE, supervisor);
        fleet::join(&joined).await?;
        fleet::watch(&joined, supervisor);
        compared = Some(Comparison::start(values, &joined, supervisor));
        instances = Some(registry::settled(joined.fleet(), supervisor));
    }
    // Whatever may refuse the start was asked: from here on things are changed.
    let Opened { file, records } = storage.migrate(supervisor).await?;
    let mut live = bongsu_live::Options::from_settings(values);
    let (_, most_streams) = server::capacity();
    // A limit of 0 is none of ours, but the system has one, and requests need their share of it.
    live.most = if live.most == 0 { most_streams } else { live.most.min(most_streams) };
    let per_person = u32::try_from(live.per_person).unwrap_or(u32::MAX);
    let hub = Hub::new(live, shards, clock.clone());
    let most_keys = settings::most_keys(values);
    let (store, names) = match file {
        Some((file, names)) => {
            let (store, writer) = sql::Store::start(file, supervisor)?;
            (Some(Store { store, writer }), names)
        }
        None => (None, Arc::default()),
    };
    let records = match (records, &store) {
        _ if !settings::keeps_records(values) => None,
        (Some(records), _) => Some(records),
        (None, Some(Store { store, .. })) => Some(sql::Records::embedded(store.clone()).named(names)),
        (None, None) => return Err(Failure::Other("there is nowhere to keep records".to_owned())),
    };
    let (mut rooms_bus, mut own_follow_ups) = (None, None);
    let log: Arc<dyn Log> = match (&redis, &store) {
        (Some(redis), _) => {
            let bus = RedisBus::start(redis.clone(), Arc::new(hub.clone()), clock.clone(), supervisor);
            rooms_bus = Some(Arc::new(bus) as Arc<dyn Bus>);
            let options = log::redis::Options { most_keys };
            Arc::new(RedisLog::start(redis.clone(), options, clock.clone(), supervisor))
        }
        (None, Some(Store { store, .. })) => {
            let (options, sink) = (embedded::Options { most_keys }, Arc::new(hub.clone()));
            let log = EmbeddedLog::start(store.clone(), options, clock.clone(), sink, supervisor);
            own_follow_ups = Some(Arc::new(log.follow_ups()));
            Arc::new(log)
        }
        (None, None) => return Err(Failure::Other("there is nowhere to keep events".to_owned())),
    };
    let doorkeeper = Arc::new(Doorkeeper(hub.clone()));
    let orders: Arc<dyn Orders> = match (&redis, &store) {
        (Some(redis), _) => {
            let recorded = records.clone().map(|records| RevocationRecords::new(records, clock.clone()));
            Arc::new(RedisOrders::start(redis.clone(), recorded, doorkeeper, supervisor))
        }
        (None, Some(Store { store, .. })) => {
            let (writer, readers) = (store.writer().clone(), store.readers().clone());
            let opened = EmbeddedOrders::open(writer, readers, clock.clone(), doorkeeper, supervisor).await;
            Arc::new(opened.map_err(Failure::other)?)
        }
        (None, None) => return Err(Failure::Other("there is nowhere to keep orders".to_owned())),
    };
    let ordered = Arc::new(Ordered(orders.clone()));
    if let Some(redis) = &redis {
        let cap = Arc::new(RedisCap::start(redis.clone(), LEASE, supervisor));
        hub.asks(Arc::new(StreamPlaces { cap, most: per_person }), ordered.clone());
        fleet::watch_stalls(hub.clone(), supervisor);
        fleet::settle(&*orders).await;
    }
    let registered: Option<Arc<dyn bongsu_rooms::store::Store>> = match &records {
        Some(records) => Some(Arc::new(SqlStore::open(records.clone(), supervisor).await?)),
        None => None,
    };
    let source = Arc::new(LogSource(log.clone()));
    hub.serves(bongsu_rooms::FAMILY, Family { source, bus: rooms_bus });
    hub.start_upkeep(supervisor);
    let relay = outbox.relay.clone();
    let outbox = match records.clone().filter(|_| bongsu_outbox::is_on(values)) {
        Some(records) => {
            let (redis, coordination) = (redis.clone(), people.coordination);
            let ground =
                changes::Ground { hub: hub.clone(), records, redis, coordination, clock: clock.clone() };
            Some(changes::start(ground, outbox, supervisor).await?)
        }
        None => None,
    };
    let fleet = match (&redis, &instances, own_follow_ups) {
        (Some(redis), Some(instances), _) => {
            Some(people::Fleet::Shared { redis: redis.clone(), instances: instances.clone() })
        }
        (_, _, Some(follow_ups)) => Some(people::Fleet::Alone { follow_ups }),
        _ => None,
    };
    let told = match (records.clone(), registered.clone(), fleet) {
        (Some(records), Some(rooms), Some(fleet)) => {
            let ground = Ground { hub: hub.clone(), records, rooms, fleet, clock: clock.clone() };
            Some(people::start(ground, people, supervisor)?)
        }
        _ => None,
    };
    let (inbox, members) = told.unzip();
    let last = inbox.clone();
    let tickets: Arc<dyn Tickets> = match &redis {
        Some(redis) => Arc::new(RedisTickets { redis: redis.clone(), clock: clock.clone() }),
        None => Arc::new(OwnTickets::new(clock.clone())),
    };
    let identity =
        Identity::new(&identity, origins.clone(), tickets, Some(ordered), clock.clone(), supervisor)
            .map_err(|error| Failure::other(error.text.en))?;
    let applications = roles.routes(records.as_ref(), &clock, &identity);
    let ready = Arc::new(AtomicBool::new(false));
    let operations = Operations {
        hub: hub.clone(),
        log: log.clone(),
        redis: redis.clone(),
        records,
        outbox: outbox.clone(),
        orders: orders.clone(),
        compared,
        identity: identity.clone(),
        metrics,
        started: Instant::now(),
        ready: ready.clone(),
    };
    let sink = Arc::new(hub.clone());
    let presence = match redis.clone().zip(instances) {
        Some((redis, instances)) => Presence::on_redis(presence, redis, instances, sink, supervisor),
        None => Presence::embedded(presence, clock.clone(), sink, supervisor),
    };
    let buckets: Arc<dyn Buckets> = match &redis {
        Some(redis) => Arc::new(RedisBuckets::new(redis.clone())),
        None => Arc::new(EmbeddedBuckets::new(clock.clone())),
    };
    let admin = Admin { orders, identity: identity.clone(), clock };
    let rooms = Rooms::new(hub.clone(), log, registered, presence, buckets, rooms);
    if let Some(outbox) = &outbox {
        changes::relay(outbox, &rooms, relay, supervisor);
    }
    let of_outbox = outbox.iter().map(|outbox| Arc::new(outbox.clone()) as Arc<dyn Letters>);
    let of_inbox = inbox.iter().map(|inbox| Arc::new(inbox.clone()) as Arc<dyn Letters>);
    let letters: Vec<Arc<dyn Letters>> = of_outbox.chain(of_inbox).collect();
    let frame = frame::Options {
        default_language: frame::default_language(values),
        in_flight: InFlight::start(in_flight::Options::from_settings(values), supervisor),
    };
    let (routes, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(bongsu_rooms::routes::router(rooms, identity.clone()))
        .merge(bongsu_inbox::routes::router(inbox, identity.clone()))
        .merge(bongsu_members::routes::router(members, identity.clone()))
        .merge(letters::routes::router(letters, identity.clone(), supervisor))
        .merge(bongsu_outbox::routes::router(outbox, identity))
        .merge(applications)
        .merge(operate::router(operations))
        .merge(admin::router(admin))
        .split_for_parts();
    let app = routes
        .merge(openapi::routes(&openapi::complete(&document)))
        .fallback(|| async { ApiError::not_found().into_response() })
        .method_not_allowed_fallback(|| async { method_not_allowed().into_response() })
        .layer(middleware::from_fn(origins::preflight))
        .layer(middleware::from_fn_with_state(HostPolicy::new(&weak), host::check_host))
        .layer(middleware::from_fn_with_state(frame, frame::around))
        .layer(middleware::from_fn_with_state(origins, origins::cors));
    Ok(Wired { app, hub, redis, inbox: last, store, ready })
}

fn method_not_allowed() -> ApiError {
    ApiError::new(
        bongsu_kernel::Code::Common405,
        Text::new("허용되지 않은 메서드입니다.", "This method is not allowed here."),
    )
}
