//! Figures for those who watch: `GET /metrics` for all of the server, `GET …/eventSubscriptions/{name}/metrics` for one
//! event subscription.
//!
//! Both are the same figures, gathered when they are asked for (`gather`, `figures`) and told as a table says (`families`,
//! `server`): as Prometheus' text, as OpenMetrics, and of a subscription also as JSON, under the names that Azure Monitor
//! has for them (`azure`). How many have series of their own in `/metrics` is bounded (`choice`).
//!
//! Counts come from the records that a subscription writes with every step, so that they are exact and go on after a
//! restart; where that is not so, the help text says "since the process started". A scrape takes no lock that an actor
//! holds for longer than a moment, sends no message, and runs on a thread where it may wait.
//!
//! Absent on purpose: `AdvancedFilterEvaluationCount`, which nothing here costs by; and averages over minutes, which are
//! for those who collect.

mod azure;
mod choice;
mod families;
mod figures;
mod gather;
mod process;
mod server;
mod view;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{Accept, Header},
    web,
};

pub use self::choice::Bounds;
pub(super) use self::view::View;
use self::{choice::Board, figures::Figures, gather::Named};
use super::{
    Control, Error,
    arm::{no_subscription, path::TopicPath, topic},
    auth::Token,
};
use crate::{
    clock::Clock,
    dead_letter::totals::Totals,
    event::{Obligor, Timestamp},
    journal::{Journal, keys::MetaKind},
    metrics::{
        Listener,
        text::{Format, Text},
    },
    publish::http::Publisher,
    topic::registry,
};

/// What has become of spans, by what.
pub type Spans = Box<dyn Fn() -> [(&'static str, u64); 3] + Send + Sync>;

/// Where figures come from, beside the registry.
#[derive(Default)]
pub struct Sources {
    /// The journal.
    pub journal: Option<Journal>,
    /// Whoever takes what is published.
    pub publisher: Option<web::Data<Publisher>>,
    /// The addresses that the server listens on.
    pub listeners: Vec<Arc<Listener>>,
    /// Whether events are taken.
    pub ready: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// The clock of the server.
    pub clock: Option<Clock>,
    /// How many more requests to endpoints may leave as far as descriptors go, and how many subscriptions wait for that.
    pub sockets: Option<Box<dyn Fn() -> (u64, u64) + Send + Sync>>,
    /// The tracer's; [`None`] where no spans are recorded.
    pub spans: Option<Spans>,
}

/// Who may read `/metrics`.
#[derive(Clone, Debug)]
pub enum Readers {
    /// Everybody.
    All,
    /// Whoever has the admin token, or this one, which is good for nothing else.
    Token(Option<Token>),
}

/// What is told, and to whom.
pub struct Exposition {
    sources: Sources,
    bounds: Bounds,
    readers: RwLock<Readers>,
    started: Timestamp,
    board: Mutex<Board>,
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").field("bounds", &self.bounds).field("readers", &self.readers).finish()
    }
}

impl Exposition {
    /// Of a process that was started then.
    pub fn new(sources: Sources, bounds: Bounds, readers: Readers, started: Timestamp) -> Self {
        Self { sources, bounds, readers: RwLock::new(readers), started, board: Mutex::default() }
    }

    /// Whether whoever shows this token, or none, may read.
    pub(super) fn may_read(&self, given: Option<&str>) -> bool {
        match &*self.readers.read().unwrap_or_else(PoisonError::into_inner) {
            Readers::All => true,
            Readers::Token(token) => token.as_ref().zip(given).is_some_and(|(token, given)| token.is(given)),
        }
    }

    pub(super) fn set_readers(&self, readers: Readers) {
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = readers;
    }

    async fn account(&self, who: Obligor) -> Result<Totals, registry::Error> {
        let Some(journal) = &self.sources.journal else { return Ok(Totals::default()) };
        let record = journal.reads().meta(MetaKind::DeadLetters, Totals::name(who)).await?;
        let damaged = |error: crate::dead_letter::totals::Damaged| crate::journal::Error::Damaged(error.to_string());
        Ok(record.map(|record| Totals::decode(&record).map_err(damaged)).transpose()?.unwrap_or_default())
    }
}

/// In which form somebody wants figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Text(Format),
}

/// The first form that the request would like best; [`None`] where it has no wish that can be met.
fn wanted(request: &HttpRequest) -> Option<Form> {
    let accept = Accept::parse(request).ok()?;
    accept.ranked().into_iter().find_map(|wish| match (wish.type_().as_str(), wish.subtype().as_str()) {
        ("application", "json") => Some(Form::Json),
        ("application", "openmetrics-text") => Some(Form::Text(Format::OpenMetrics)),
        ("text", "plain") => Some(Form::Text(Format::Prometheus)),
        _ => None,
    })
}

/// `GET /metrics`.
pub(super) async fn scrape(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let format = match wanted(&request) {
        Some(Form::Text(format)) => format,
        Some(Form::Json) | None => Format::Prometheus,
    };
    let gone = |_| Error::Broken("the threads that may wait have ended");
    let finding = control.clone();
    let found = web::block(move || finding.exposition.find(&finding.registry, finding.clock.now())).await;
    let scrape = found.map_err(gone)?.with_ages().await;
    let told = web::block(move || {
        let mut text = Text::new(format);
        server::tell(&mut text, &control.exposition, &scrape);
        families::tell(&mut text, &scrape.subscriptions, scrape.now);
        text.finish()
    });
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(told.await.map_err(gone)?))
}

/// `GET …/metrics` of an event subscription.
pub(super) async fn subscription(
    control: &Control,
    request: &HttpRequest,
    path: &TopicPath,
    name: &str,
) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let counted = topic.count(name).ok_or_else(|| no_subscription(path, name))?;
    let who = Obligor { partition: topic.partition(), subscription: counted.number() };
    let account = control.exposition.account(who).await?;
    let mut figures = Figures::of(&counted, &account);
    if let Some(seq) = counted.unread {
        figures.state.unread_since = topic.appended_at(seq).await.map_err(registry::Error::from)?;
    }
    let now = control.clock.now();
    match wanted(request).unwrap_or(Form::Json) {
        Form::Json => {
            let started = control.exposition.started;
            Ok(HttpResponse::Ok().json(View::new(&topic.record(), &counted.record, &figures, started, now)))
        }
        Form::Text(format) => {
            let mut text = Text::new(format);
            let (topic, subscription) = (topic.record().key(), counted.record.key());
            families::tell(&mut text, &[Named { topic, subscription, figures }], now);
            Ok(HttpResponse::Ok().content_type(format.content_type()).body(text.finish()))
        }
    }
}
