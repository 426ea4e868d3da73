//! Figures for those who watch: `GET /metrics` for all of the server, `GET …/eventSubscriptions/{name}/metrics` for one
//! event subscription.
//!
//! Both are the same figures, gathered when they are asked for (`scrape`, `figures`) and told as a table says (`families`,
//! `server`): as Prometheus' text, as OpenMetrics, and of a subscription also as JSON, under the names that Azure Monitor
//! has for them (`azure`). How many have series of their own in `/metrics` is bounded (`series`).
//!
//! Counts come from the records that a subscription writes with every step, so that they are exact and go on after a
//! restart; where that is not so, the help text says "since the process started". A scrape takes no lock that an actor
//! holds for longer than a moment, sends no message, and runs on a thread where it may wait.
//!
//! Absent on purpose: `AdvancedFilterEvaluationCount`, which nothing here costs by; and averages over minutes, which are
//! for those who collect.

mod azure;
mod families;
mod figures;
mod process;
mod scrape;
mod series;
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

pub use self::series::SeriesLimits;
pub(super) use self::view::MetricsView;
use self::{figures::SubscriptionFigures, scrape::NamedSubscription, series::SeriesSelection};
use super::{
    AdminError, Control,
    arm::{no_subscription, path::TopicPath, topic},
    auth::AdminToken,
};
use crate::{
    clock::Clock,
    control::registry,
    dead_letter::totals::DeadLetterTotals,
    event::{SubscriptionKey, Timestamp},
    journal::Journal,
    metrics::{
        ListenerCounters,
        text::{MetricsText, TextFormat},
    },
    publish::http::Publisher,
    store::keys::MetaKind,
};

/// What has become of spans, by what.
pub type Spans = Box<dyn Fn() -> [(&'static str, u64); 3] + Send + Sync>;

/// Where figures come from, beside the registry.
#[derive(Default)]
pub struct MetricSources {
    /// The journal.
    pub journal: Option<Journal>,
    /// Whoever takes what is published.
    pub publisher: Option<web::Data<Publisher>>,
    /// The addresses that the server listens on.
    pub listeners: Vec<Arc<ListenerCounters>>,
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
pub enum MetricsAccess {
    /// Everybody.
    All,
    /// Whoever has the admin token, or this one, which is good for nothing else.
    Token(Option<AdminToken>),
}

/// What is told, and to whom.
pub struct Exposition {
    sources: MetricSources,
    bounds: SeriesLimits,
    readers: RwLock<MetricsAccess>,
    started: Timestamp,
    board: Mutex<SeriesSelection>,
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").field("bounds", &self.bounds).field("readers", &self.readers).finish()
    }
}

impl Exposition {
    /// Of a process that was started then.
    pub fn new(sources: MetricSources, bounds: SeriesLimits, readers: MetricsAccess, started: Timestamp) -> Self {
        Self { sources, bounds, readers: RwLock::new(readers), started, board: Mutex::default() }
    }

    /// Whether whoever shows this token, or none, may read.
    pub(super) fn may_read(&self, given: Option<&str>) -> bool {
        match &*self.readers.read().unwrap_or_else(PoisonError::into_inner) {
            MetricsAccess::All => true,
            MetricsAccess::Token(token) => token.as_ref().zip(given).is_some_and(|(token, given)| token.is(given)),
        }
    }

    pub(super) fn set_readers(&self, readers: MetricsAccess) {
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = readers;
    }

    async fn account(&self, who: SubscriptionKey) -> Result<DeadLetterTotals, registry::Error> {
        let Some(journal) = &self.sources.journal else { return Ok(DeadLetterTotals::default()) };
        let record = journal.reads().meta(MetaKind::DeadLetters, DeadLetterTotals::name(who)).await?;
        let damaged =
            |error: crate::dead_letter::totals::DamagedTotals| crate::journal::Error::Damaged(error.to_string());
        Ok(record.map(|record| DeadLetterTotals::decode(&record).map_err(damaged)).transpose()?.unwrap_or_default())
    }
}

/// In which form somebody wants figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpositionFormat {
    Json,
    Text(TextFormat),
}

/// The first form that the request would like best; [`None`] where it has no wish that can be met.
fn negotiate_format(request: &HttpRequest) -> Option<ExpositionFormat> {
    let accept = Accept::parse(request).ok()?;
    accept.ranked().into_iter().find_map(|wish| match (wish.type_().as_str(), wish.subtype().as_str()) {
        ("application", "json") => Some(ExpositionFormat::Json),
        ("application", "openmetrics-text") => Some(ExpositionFormat::Text(TextFormat::OpenMetrics)),
        ("text", "plain") => Some(ExpositionFormat::Text(TextFormat::Prometheus)),
        _ => None,
    })
}

/// `GET /metrics`.
pub(super) async fn scrape(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let format = match negotiate_format(&request) {
        Some(ExpositionFormat::Text(format)) => format,
        Some(ExpositionFormat::Json) | None => TextFormat::Prometheus,
    };
    let gone = |_| AdminError::Broken("the threads that may wait have ended");
    let finding = control.clone();
    let found = web::block(move || finding.exposition.find(&finding.registry, finding.clock.now())).await;
    let scrape = found.map_err(gone)?.with_ages().await;
    let told = web::block(move || {
        let mut text = MetricsText::new(format);
        server::write_server_families(&mut text, &control.exposition, &scrape);
        families::write_families(&mut text, &scrape.subscriptions, scrape.now);
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
) -> Result<HttpResponse, AdminError> {
    let topic = topic(control, path)?;
    let counted = topic.count(name).ok_or_else(|| no_subscription(path, name))?;
    let who = SubscriptionKey { partition: topic.partition(), subscription: counted.number() };
    let account = control.exposition.account(who).await?;
    let mut figures = SubscriptionFigures::of(&counted, &account);
    if let Some(seq) = counted.unread {
        figures.state.unread_since = topic.appended_at(seq).await.map_err(registry::Error::from)?;
    }
    let now = control.clock.now();
    match negotiate_format(request).unwrap_or(ExpositionFormat::Json) {
        ExpositionFormat::Json => {
            let started = control.exposition.started;
            Ok(HttpResponse::Ok().json(MetricsView::new(&topic.record(), &counted.record, &figures, started, now)))
        }
        ExpositionFormat::Text(format) => {
            let mut text = MetricsText::new(format);
            let (topic, subscription) = (topic.record().key(), counted.record.key());
            families::write_families(&mut text, &[NamedSubscription { topic, subscription, figures }], now);
            Ok(HttpResponse::Ok().content_type(format.content_type()).body(text.finish()))
        }
    }
}
