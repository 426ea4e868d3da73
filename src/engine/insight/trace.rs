//! Collects the delivery history of an event for one subscription, for
//! [`policy::delivery_history`](gridhook_policy::delivery_history): the state of the event, its
//! ledger lines, the responses of endpoints, and the results of the filter versions.
//!
//! The state is read first: a request that ends meanwhile then appears in its ledger line instead
//! of nowhere. A deleted subscription still has its ledger lines and filter versions.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::{
    control::filter_version::{Versions, in_force},
    insight::event_finder::{self, EventSelector, ExplainResult},
};
use gridhook_event::{Event, Seq, SubscriptionKey, Timestamp, Transformed};
use gridhook_journal as journal;
use gridhook_journal::ReaderPool;
use gridhook_policy::{
    delivery_history::{self, DeliveryHistory, HistoryEnd, HistoryInput},
    explain::{EventState, Explanation},
    filter,
    record::{Excerpt, ExcerptKey, LedgerEvent, LedgerLine},
};
use gridhook_subscription::shared_state::SharedState;

/// Maximum ledger lines of a history. Only an event with unlimited retries has more.
const LINES_MAX: usize = 1_000;

/// Characters of a transformed body in a history.
const EXCERPT_CHARS: usize = 256;

/// The delivery history of an event for one subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionTrace {
    pub subscription_key: SubscriptionKey,
    /// The subscription's name, if known.
    pub name: Option<String>,
    pub domain_topic: Option<String>,
    pub deleted: bool,
    /// The steps of the delivery and their result.
    pub history: DeliveryHistory,
    /// The results of the filter versions that the history refers to.
    pub filters: BTreeMap<u32, filter::FilterResult>,
    /// Excerpts of the endpoint's responses.
    pub excerpts: BTreeMap<ExcerptKey, Excerpt>,
    /// The state of the event, and what will happen to it; [`None`] if the subscription was
    /// deleted.
    pub explanation: Option<Explanation>,
    /// The result of the present transformation, if it makes a body of the event.
    pub transformed: Option<TransformedSummary>,
    /// Whether lines of the history are left out.
    pub cut: bool,
}

/// The body that a transformation makes. The bodies of many subscriptions would take too much
/// memory.
#[derive(Clone, Debug)]
pub struct TransformedSummary {
    pub bytes: usize,
    /// The SHA-256 digest of the body in hexadecimal digits.
    pub sha256: String,
    pub excerpt: String,
    /// The part that is appended to the path of the endpoint.
    pub path_suffix: Option<String>,
}

impl TransformedSummary {
    /// [`None`] if the transformation leaves the body as it is.
    fn new(transformed: Transformed) -> Option<Self> {
        let body = transformed.body?;
        let sha256 = format!("{:x}", Sha256::digest(&body));
        let excerpt = String::from_utf8_lossy(&body)
            .chars()
            .take(EXCERPT_CHARS)
            .collect();
        Some(Self {
            bytes: body.len(),
            sha256,
            excerpt,
            path_suffix: transformed.path_suffix,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TraceQuery<'a> {
    pub subscription_key: SubscriptionKey,
    /// The subscription's shared state; [`None`] if the subscription was deleted.
    pub shared: Option<&'a SharedState>,
    /// The versions of the subscription's filter.
    pub versions: &'a Versions,
    /// The sequence of the event.
    pub seq: Seq,
    /// The event, if the store has it.
    pub event: Option<&'a Event>,
    /// The end of the log.
    pub end: Seq,
    pub now: Timestamp,
}

/// Collects the delivery history of an event for one subscription.
///
/// # Errors
/// If the store cannot be read.
pub async fn trace_subscription(
    reads: &ReaderPool,
    query: TraceQuery<'_>,
) -> Result<SubscriptionTrace, journal::Error> {
    let TraceQuery {
        subscription_key,
        shared,
        versions,
        seq,
        event,
        end,
        now,
    } = query;
    let account = match shared {
        Some(shared) => {
            match event_finder::explain_event(shared, reads, EventSelector::Seq(seq), end, now)
                .await
            {
                Ok(ExplainResult::Found(report)) => Some(report),
                // It was deleted meanwhile.
                Ok(ExplainResult::NotFound(_)) | Err(journal::Error::Unknown) => None,
                Err(error) => return Err(error),
            }
        }
        None => None,
    };
    let (mut lines, cut) = lines_of(reads, subscription_key, seq).await?;
    let filtered_out = account
        .iter()
        .flat_map(|account| &account.cursor.filtered_out);
    // The exact time is not recorded. Most events are filtered right after they are published.
    let at = event.map_or(now, |event| event.appended);
    lines.extend(
        filtered_out
            .filter(|filtered_out| filtered_out.first <= seq && seq < filtered_out.end)
            .map(|filtered_out| LedgerLine {
                lane: filtered_out.lane,
                attempt: 0,
                entry: filtered_out.to_ledger_entry(at),
            }),
    );
    let filters = filter_results(&lines, shared, versions, event);
    let account_view = account
        .as_ref()
        .map(|account| (&account.explanation.state, &account.cursor));
    let oldest = reads.oldest_line(subscription_key).await?;
    let history = delivery_history::delivery_history(HistoryInput {
        seq,
        lines: &lines,
        filters: &filters,
        present: account_view,
        oldest,
    });
    let excerpt_keys = history
        .steps
        .iter()
        .filter_map(LedgerLine::excerpt_key)
        .collect();
    let plan = shared.map(SharedState::plan);
    let last = versions.values().rev().flatten().next();
    let name = plan.as_ref().map(|plan| plan.record.name.to_string());
    let domain_topic = plan
        .as_ref()
        .map(|plan| plan.record.filter.domain_topic.clone());
    let settings = plan
        .as_ref()
        .map(|plan| &plan.settings)
        .filter(|_| !history.steps.is_empty());
    let program =
        settings.and_then(|settings| Some((settings.transform.as_ref()?, settings.batch.schema)));
    let is_sent = !matches!(history.verdict, HistoryEnd::Filtered { .. });
    let transformation = program.zip(event).filter(|_| is_sent);
    let transformation =
        transformation.and_then(|((program, schema), event)| program.apply(event, schema).ok());
    Ok(SubscriptionTrace {
        subscription_key,
        name: name.or_else(|| last.map(|version| version.name.to_string())),
        domain_topic: domain_topic
            .unwrap_or_else(|| last.and_then(|version| version.filter.domain_topic.clone())),
        deleted: account.is_none(),
        history,
        filters,
        excerpts: reads.read_excerpts(subscription_key, excerpt_keys).await?,
        explanation: account.map(|account| account.explanation),
        transformed: transformation.and_then(TransformedSummary::new),
        cut,
    })
}

/// The ledger lines of an event, and whether there are more.
async fn lines_of(
    reads: &ReaderPool,
    subscription_key: SubscriptionKey,
    seq: Seq,
) -> Result<(Vec<LedgerLine>, bool), journal::Error> {
    let mut lines = Vec::new();
    let mut from = None;
    loop {
        let page = reads.lines_of(subscription_key, seq, from).await?;
        lines.extend(page.lines);
        from = page.next;
        if from.is_none() || lines.len() >= LINES_MAX {
            return Ok((lines, from.is_some()));
        }
    }
}

/// The results of the filter versions that the lines refer to.
fn filter_results(
    lines: &[LedgerLine],
    shared: Option<&SharedState>,
    versions: &Versions,
    event: Option<&Event>,
) -> BTreeMap<u32, filter::FilterResult> {
    let plan = shared.map(SharedState::plan);
    let mut results = BTreeMap::new();
    let Some(event) = event else { return results };
    for line in lines {
        let LedgerEvent::Filtered { version } = line.entry.what else {
            continue;
        };
        let current = plan
            .as_ref()
            .filter(|plan| plan.record.version == version)
            .map(|plan| plan.filter());
        if let Some(filter) =
            current.or_else(|| in_force(versions, version).map(|version| &version.filter))
        {
            results
                .entry(version)
                .or_insert_with(|| filter.explain_mismatch(event));
        }
    }
    results
}

/// Whether the trace has nothing to show: the event belongs to another domain topic, or the
/// subscription was deleted before it.
pub fn is_nothing(traced: &SubscriptionTrace) -> bool {
    let state = traced
        .explanation
        .as_ref()
        .map(|explanation| &explanation.state);
    traced.deleted
        && traced.history.steps.is_empty()
        && !matches!(state, Some(EventState::Unpublished))
}
