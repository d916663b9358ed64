//! The hub during start-up: each part adds its routes, loops and checks to the [`Assembly`], and shares handles with
//! the parts that start after it.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::task::Supervisor;
use bongsu_live::Operation;
use bongsu_queue::{ConsumerOptions, MessageHandler};
use utoipa_axum::router::OpenApiRouter;

use crate::dead_letters::QueueDeadLetters;
use crate::{BoxFuture, DeadLetters, Engines, Failure};

/// Returns a description of a problem that exists right now, or None.
pub type HealthCheck = Box<dyn Fn() -> Option<Cow<'static, str>> + Send + Sync>;

/// The engines, and what the parts have added so far.
pub struct Assembly {
    pub engines: Engines,
    pub routes: OpenApiRouter,
    pub checks: Vec<HealthCheck>,
    pub dead_letters: Vec<Arc<dyn DeadLetters>>,
    /// Futures that run once during a shutdown: after the requests in progress, and before the hub stops accepting.
    pub final_writes: Vec<BoxFuture<'static, ()>>,
    shared: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Assembly {
    pub fn new(engines: Engines) -> Self {
        Self {
            engines,
            routes: OpenApiRouter::new(),
            checks: Vec::new(),
            dead_letters: Vec::new(),
            final_writes: Vec::new(),
            shared: HashMap::new(),
        }
    }

    /// Adds routes. They are dropped in a process without the role `api`.
    pub fn add_routes(&mut self, routes: OpenApiRouter) {
        if self.engines.roles.api {
            self.routes = std::mem::take(&mut self.routes).merge(routes);
        }
    }

    /// Adds an operation to WebSockets: `{"op":"<name>",...}`. Only processes that serve routes have WebSockets.
    pub fn add_operation(&self, name: &'static str, operation: impl Operation + 'static) {
        self.engines.hub.add_operation(name, Arc::new(operation));
    }

    /// The supervisor for loops of the role `worker`. None in a process without that role.
    pub fn worker_supervisor(&self) -> Option<&Supervisor> {
        self.engines.roles.worker.then_some(&self.engines.supervisor)
    }

    /// Adds a check that `/health` calls for each request.
    pub fn add_health_check(
        &mut self,
        check: impl Fn() -> Option<Cow<'static, str>> + Send + Sync + 'static,
    ) {
        self.checks.push(Box::new(check));
    }

    pub fn add_dead_letters(&mut self, queue: impl DeadLetters + 'static) {
        self.dead_letters.push(Arc::new(queue));
    }

    /// Handles the messages of a declared queue, on one instance with the role `worker` at a time, and adds the queue's dead
    /// letters. Does nothing if RECORDS is off.
    pub fn add_consumer(
        &mut self,
        queue: &'static str,
        handler: Arc<dyn MessageHandler>,
    ) -> Result<(), Failure> {
        let Some(queues) = self.engines.queues.clone() else { return Ok(()) };
        self.add_dead_letters(QueueDeadLetters { queues: queues.clone(), queue });
        let Some(worker) = self.worker_supervisor() else { return Ok(()) };
        let consumer = queues.consumer(queue, handler, ConsumerOptions::default()).map_err(Failure::other)?;
        let consumer = Arc::new(consumer);
        let run = move || {
            let consumer = consumer.clone();
            async move { consumer.run().await }
        };
        runner::start(self.engines.locks.clone(), queue, worker, run).map_err(Failure::other)
    }

    /// Adds a future that runs once during a shutdown: after the requests in progress, before the hub stops accepting.
    pub fn add_final_write(&mut self, final_write: impl Future<Output = ()> + Send + 'static) {
        self.final_writes.push(Box::pin(final_write));
    }

    /// Offers a handle to the parts that start later.
    pub fn share<T: Clone + Send + Sync + 'static>(&mut self, handle: T) {
        self.shared.insert(TypeId::of::<T>(), Box::new(handle));
    }

    /// A handle of this type from a part that has started. None if that part does not run.
    pub fn shared<T: Clone + 'static>(&self) -> Option<T> {
        self.shared.get(&TypeId::of::<T>())?.downcast_ref().cloned()
    }

    /// As [`Assembly::shared`], for a handle that every hub has: its absence is an error.
    pub fn expect_shared<T: Clone + 'static>(&self) -> Result<T, Failure> {
        let missing = || Failure::Other(format!("no part has started that shares {}", type_name::<T>()));
        self.shared().ok_or_else(missing)
    }
}
