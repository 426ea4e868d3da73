//! Metrics: `GET /metrics` for the server, `GET …/eventSubscriptions/{name}/metrics` for one event
//! subscription.
//!
//! A request collects the figures (`scrape`, `figures`) and writes them by tables of metric
//! families (`families`, `server`) as Prometheus text or OpenMetrics. `series` bounds how many
//! topics and event subscriptions have series of their own in `/metrics`.
//!
//! Counters come from the stored records, so they are exact and survive a restart. Where they do
//! not, the help text says "since the process started". A scrape sends no message to an actor,
//! takes no lock that an actor holds for long, and runs on a blocking thread.

mod cluster;
mod families;
mod figures;
pub(super) mod process;
mod scrape;
mod series;
mod server;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{Accept, Header},
    web,
};
use parking_lot::{Mutex, RwLock};

pub(super) use self::figures::CombineCounts;
pub(crate) use self::series::LEAD;
pub use self::series::SeriesLimits;
use self::{figures::SubscriptionFigures, scrape::NamedSubscription, series::SeriesSelection};
use super::{Control, admin_token::AdminToken, arm::Call, cluster::ClusterContext};
use crate::{AdminResult, Source};
use gridhook_clock::Clock;
use gridhook_dead_letter::totals::DeadLetterTotals;
use gridhook_engine::control::{registry, system_events::SystemEvents};
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_journal::Journal;
use gridhook_metrics::{
    ListenerCounters,
    text::{MetricsText, TextFormat},
};
use gridhook_publish::http::Publisher;
use gridhook_repair::backup::BackupCounts;
use gridhook_store::keys::MetaKind;

/// Counts of spans by result.
pub type Spans = Source<[(&'static str, u64); 3]>;

/// Reads the figures of backups; [`None`] if there is no destination.
pub type BackupSource = Source<Option<(BackupCounts, Option<Duration>)>>;

/// Reads the ends of the certificates that the server shows, by file. Blocks.
pub type CertificateEnds = Arc<dyn Fn() -> BTreeMap<String, Timestamp> + Send + Sync>;

/// Sources of figures other than the registry.
#[derive(Default)]
pub struct MetricSources {
    pub journal: Option<Journal>,
    pub publisher: Option<web::Data<Publisher>>,
    /// The listeners of the server.
    pub listeners: Vec<Arc<ListenerCounters>>,
    pub ready: Option<Source<bool>>,
    /// The clock of the server.
    pub clock: Option<Clock>,
    /// Further requests to endpoints that the file descriptors allow, and the number of
    /// subscriptions that wait for one.
    pub sockets: Option<Source<(u64, u64)>>,
    /// Counts of spans; [`None`] if tracing is off.
    pub spans: Option<Spans>,
    /// Figures of the backups at the destination of the settings, and the interval of their
    /// schedule.
    pub backups: Option<BackupSource>,
    /// Events about the server; [`None`] if there is no system topic.
    pub system_events: Option<Arc<SystemEvents>>,
    /// The ends of the certificates that the server shows.
    pub certificates: Option<CertificateEnds>,
    /// The cluster that the server is a node of.
    pub cluster: Option<web::Data<ClusterContext>>,
}

#[derive(Clone, Debug)]
pub enum MetricsAccess {
    All,
    /// The admin token, or this token, which allows nothing else.
    Token(Option<AdminToken>),
}

impl MetricsAccess {
    /// Whether a request with this token, or without one, may read.
    pub(super) fn permits_reader(&self, token: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Token(reader_token) => reader_token
                .as_ref()
                .zip(token)
                .is_some_and(|(reader_token, token)| reader_token.matches(token)),
        }
    }
}

/// The state of the exposition between scrapes: sources, limits, access, and the selected series.
pub struct Exposition {
    sources: MetricSources,
    bounds: SeriesLimits,
    readers: RwLock<MetricsAccess>,
    started: Timestamp,
    selection: Mutex<SeriesSelection>,
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition")
            .field("bounds", &self.bounds)
            .field("readers", &self.readers)
            .finish()
    }
}

impl Exposition {
    /// `started` is the start of the process.
    pub fn new(
        sources: MetricSources,
        bounds: SeriesLimits,
        readers: MetricsAccess,
        started: Timestamp,
    ) -> Self {
        Self {
            sources,
            bounds,
            readers: RwLock::new(readers),
            started,
            selection: Mutex::default(),
        }
    }

    /// Whether a request with this token, or without one, may read.
    pub(super) fn may_read(&self, token: Option<&str>) -> bool {
        self.readers.read().permits_reader(token)
    }

    pub(super) fn publisher(&self) -> Option<&Publisher> {
        self.sources
            .publisher
            .as_deref()
            .map(|publisher| &**publisher)
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.sources.journal.as_ref()
    }

    /// The listeners of the server.
    pub(super) fn listeners(&self) -> &[Arc<ListenerCounters>] {
        &self.sources.listeners
    }

    /// The start of the process.
    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    pub(super) fn set_readers(&self, readers: MetricsAccess) {
        *self.readers.write() = readers;
    }

    async fn dead_letter_totals(
        &self,
        key: SubscriptionKey,
    ) -> Result<DeadLetterTotals, registry::Error> {
        let Some(journal) = &self.sources.journal else {
            return Ok(DeadLetterTotals::default());
        };
        let record = journal
            .reader_pool()
            .read_meta(MetaKind::DeadLetters, DeadLetterTotals::name(key))
            .await?;
        let damage_error = |error: gridhook_dead_letter::totals::DamagedTotals| {
            gridhook_journal::Error::Damaged(error.to_string())
        };
        Ok(record
            .map(|record| DeadLetterTotals::decode(&record).map_err(damage_error))
            .transpose()?
            .unwrap_or_default())
    }
}

/// The format that `Accept` prefers, by default that of Prometheus.
fn text_format(request: &HttpRequest) -> TextFormat {
    let Ok(accept) = Accept::parse(request) else {
        return TextFormat::Prometheus;
    };
    let preferred = accept.ranked().into_iter().find_map(|range| {
        match (range.type_().as_str(), range.subtype().as_str()) {
            ("application", "openmetrics-text") => Some(TextFormat::OpenMetrics),
            ("text", "plain") => Some(TextFormat::Prometheus),
            _ => None,
        }
    });
    preferred.unwrap_or(TextFormat::Prometheus)
}

fn respond_text(format: TextFormat, text: String) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(format.content_type())
        .body(text)
}

/// The metrics of a standby, which has neither topics nor a journal.
pub(super) fn standby_exposition(
    request: &HttpRequest,
    cluster_context: &ClusterContext,
    ready: bool,
    listeners: &[Arc<ListenerCounters>],
    certificates: &BTreeMap<String, Timestamp>,
) -> HttpResponse {
    let format = text_format(request);
    let mut text = MetricsText::new(format);
    server::write_server(&mut text, ready);
    server::push_listeners(&mut text, listeners);
    server::push_certificates(&mut text, certificates);
    cluster::write_cluster(&mut text, cluster_context);
    respond_text(format, text.finish())
}

/// `GET /metrics`.
pub(super) async fn get_metrics(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let format = text_format(&request);
    let scraped_control = control.clone();
    let pending_scrape = web::block(move || {
        let Control {
            exposition,
            registry,
            clock,
            ..
        } = &**scraped_control;
        exposition.collect_figures(registry, clock.now())
    })
    .await;
    let scrape = pending_scrape?.look_up_ages().await;
    let text = web::block(move || {
        let mut text = MetricsText::new(format);
        server::write_server_families(&mut text, &control.exposition, &scrape);
        server::write_conditions(&mut text, &control.condition_counts(scrape.now));
        families::write_families(&mut text, &scrape.subscriptions, scrape.now);
        text.finish()
    });
    Ok(respond_text(format, text.await?))
}

/// `GET …/metrics` of an event subscription.
pub(super) async fn get_subscription_metrics(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let topic = call.find_topic()?;
    let name = call.path.subscription()?;
    let missing = || call.no_subscription();
    let subscription = topic
        .visit_subscription(&name, |census| census.number)
        .ok_or_else(missing)?;
    let key = topic.subscription_key(subscription);
    let dead_letter_totals = control.exposition.dead_letter_totals(key).await?;
    let census = topic.visit_subscription(&name, |census| {
        (
            census.record.clone(),
            census.unread,
            SubscriptionFigures::from_census(census, &dead_letter_totals),
        )
    });
    let (record, unread, mut figures) = census.ok_or_else(missing)?;
    if let Some(seq) = unread {
        figures.state.unread_since = topic.appended_at(seq).await?;
    }
    let format = text_format(call.request()?);
    let mut text = MetricsText::new(format);
    let named_subscription = NamedSubscription {
        topic: topic.record().key(),
        subscription: record.key(),
        figures,
    };
    families::write_families(&mut text, &[named_subscription], control.clock.now());
    Ok(respond_text(format, text.finish()))
}
