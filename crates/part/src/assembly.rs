//! The hub while it is put together: parts add what they serve and run, and share handles with the parts after them.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_live::Operation;
use utoipa_axum::router::OpenApiRouter;

use crate::{Boxed, DeadLetters, Engines, Failure};

/// Says what does not work right now, if anything.
pub type Check = Box<dyn Fn() -> Option<Cow<'static, str>> + Send + Sync>;

/// What parts have added so far.
pub struct Assembly {
    pub engines: Engines,
    routes: OpenApiRouter,
    checks: Vec<Check>,
    dead_letters: Vec<Arc<dyn DeadLetters>>,
    last_writes: Vec<Boxed<'static, ()>>,
    shared: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// A hub that was put together.
pub struct Assembled {
    pub engines: Engines,
    pub routes: OpenApiRouter,
    pub checks: Vec<Check>,
    pub dead_letters: Vec<Arc<dyn DeadLetters>>,
    /// What is written when the hub stops, while it still serves.
    pub last_writes: Vec<Boxed<'static, ()>>,
}

impl Assembly {
    pub fn new(engines: Engines) -> Self {
        Self {
            engines,
            routes: OpenApiRouter::new(),
            checks: Vec::new(),
            dead_letters: Vec::new(),
            last_writes: Vec::new(),
            shared: HashMap::new(),
        }
    }

    /// Serves routes, where this process serves any.
    pub fn routes(&mut self, routes: OpenApiRouter) {
        if self.engines.roles.api {
            self.routes = std::mem::take(&mut self.routes).merge(routes);
        }
    }

    /// Adds an operation to WebSockets: `{"op":"<name>",...}`. Only processes that serve routes have WebSockets.
    pub fn operation(&self, name: &'static str, operation: impl Operation + 'static) {
        self.engines.hub.add_operation(name, Arc::new(operation));
    }

    /// What runs the loops that only some processes of a fleet have to run; None where others do.
    pub fn worker(&self) -> Option<&Supervisor> {
        self.engines.roles.worker.then_some(&self.engines.supervisor)
    }

    pub fn health(&mut self, check: impl Fn() -> Option<Cow<'static, str>> + Send + Sync + 'static) {
        self.checks.push(Box::new(check));
    }

    pub fn dead_letters(&mut self, queue: impl DeadLetters + 'static) {
        self.dead_letters.push(Arc::new(queue));
    }

    /// Writes something when the hub stops, while it still serves.
    pub fn at_stop(&mut self, last_write: impl Future<Output = ()> + Send + 'static) {
        self.last_writes.push(Box::pin(last_write));
    }

    /// Gives a handle to the parts that start later.
    pub fn share<T: Clone + Send + Sync + 'static>(&mut self, handle: T) {
        self.shared.insert(TypeId::of::<T>(), Box::new(handle));
    }

    /// The handle of a part that started before; None where that part does not run.
    pub fn shared<T: Clone + 'static>(&self) -> Option<T> {
        self.shared.get(&TypeId::of::<T>())?.downcast_ref().cloned()
    }

    /// The same for a handle that every hub has.
    pub fn expect_shared<T: Clone + 'static>(&self) -> Result<T, Failure> {
        let missing = || Failure::Other(format!("no part has started that shares {}", type_name::<T>()));
        self.shared().ok_or_else(missing)
    }

    pub fn finish(self) -> Assembled {
        let Self { engines, routes, checks, dead_letters, last_writes, shared: _ } = self;
        Assembled { engines, routes, checks, dead_letters, last_writes }
    }
}
