//! The control plane: what operators and Azure's own management clients say to the server.
//!
//! - [`arm`]: topics, domains and event subscriptions under ARM's paths, with the operators' verbs ([`operate`],
//!   `test_filter`) below them;
//! - [`chaos`]: parts broken on purpose, only where it is switched on;
//! - [`health`]: alive? ready?
//! - `validate`: the manual way of the handshake, for endpoints;
//! - [`auth`]: everything but the last two wants the admin token.
//!
//! Invariants: an answer that says that something was changed is given after the change is durable; a key, a token or
//! the query of an endpoint is told only by the call that is there for it, and is never logged.

pub mod arm;
pub mod auth;
pub mod chaos;
mod error;
mod explain;
pub mod health;
pub mod model;
pub mod operate;
mod test_filter;
mod validate;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use actix_web::{HttpRequest, Resource, Route, guard, middleware::from_fn, web};
use tokio::sync::{Mutex, MutexGuard};

pub use error::Error;

use self::{auth::Token, health::Vitals, model::Editions};
use crate::{clock::Clock, topic::registry::Registry};

/// More changes than this at the same time are not asked for by people, nor by their scripts.
const TURNS: usize = 64;

/// What the control plane works with.
pub struct Control {
    registry: Arc<Registry>,
    clock: Clock,
    editions: Editions,
    public_url: String,
    turns: [Mutex<()>; TURNS],
}

impl Control {
    /// A control plane of `registry`, for topics that follow one of `editions` and are reached at `public_url`.
    pub fn new(registry: Arc<Registry>, clock: Clock, editions: Editions, public_url: String) -> Self {
        Self { registry, clock, editions, public_url, turns: std::array::from_fn(|_| Mutex::new(())) }
    }

    /// A change reads what is there and writes the whole: one at a time for each topic. A turn is shared by topics at
    /// random, so that one slow change holds up few others.
    async fn turn(&self, topic_key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        topic_key.hash(&mut hasher);
        let index = hasher.finish() % TURNS as u64;
        self.turns[index as usize].lock().await
    }
}

/// Whether parts may be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaos {
    /// They may.
    Enabled,
    /// There is no such path.
    Disabled,
}

/// Adds the control plane to an application. The three are shared by all workers.
pub fn configure(
    cfg: &mut web::ServiceConfig,
    control: web::Data<Control>,
    token: web::Data<Token>,
    vitals: web::Data<Vitals>,
    chaos: Chaos,
) {
    cfg.app_data(control).app_data(token).app_data(vitals);
    cfg.service(read_only("/healthz").route(reading().to(health::healthz)));
    cfg.service(read_only("/readyz").route(reading().to(health::readyz)));
    match chaos {
        Chaos::Enabled => {
            cfg.service(web::resource("/chaos/{act}").wrap(from_fn(auth::require)).to(chaos::act));
        }
        Chaos::Disabled => {}
    }
    cfg.service(web::resource("/eventsubscriptions/{name}/validate").to(validate::answer));
    cfg.service(
        web::resource("/{slashes:/*(?i:subscriptions|providers)}/{rest:.*}")
            .wrap(from_fn(auth::require))
            .to(arm::answer),
    );
}

/// Whoever spreads load asks with either.
fn reading() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

fn read_only(path: &str) -> Resource {
    web::resource(path).default_service(web::to(|request: HttpRequest| async move {
        Err::<&'static str, _>(Error::Method { method: request.method().to_string(), allowed: "GET, HEAD" })
    }))
}
