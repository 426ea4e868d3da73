//! What the store knows of an event for one subscription, for [`policy::delivery_history`](crate::policy::delivery_history): where the event is,
//! the lines of the ledger that speak of it, what endpoints said, and what the versions of the filter say of it.
//!
//! Where the event is is read first: a request that lands meanwhile is told by its line, and never by neither. A
//! subscription that was deleted has its lines still, and the versions of its filter.

use std::collections::BTreeMap;

use crate::{
    control::record::filter_version::{Versions, in_force},
    event::{Event, Seq, SubscriptionKey, Timestamp},
    insight::event_finder::{self, EventSelector, ExplainAnswer},
    journal::{self, ReaderPool},
    policy::{
        delivery_history::{self, DeliveryHistory, HistoryInput},
        explain::{EventState, Explanation},
        filter,
        record::{Excerpt, ExcerptKey, LedgerEvent, LedgerLine},
    },
    subscription::shared_state::SharedState,
};

/// More lines than any event has that is not tried for ever: a story is cut there.
const LINES_MAX: usize = 1_000;

/// What is told of an event for one subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionTrace {
    /// Whose.
    pub subscription_key: SubscriptionKey,
    /// The subscription's name, where it is known.
    pub name: Option<String>,
    /// The domain's topic that it is of.
    pub domain_topic: Option<String>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// What happened, and what it comes to.
    pub history: DeliveryHistory,
    /// What the versions of the filter say that the story speaks of.
    pub filters: BTreeMap<u32, filter::FilterResult>,
    /// What the endpoint said.
    pub excerpts: BTreeMap<ExcerptKey, Excerpt>,
    /// Where it is, and what would become of it; [`None`] where the subscription was deleted.
    pub explanation: Option<Explanation>,
    /// Whether there are more lines than are told.
    pub cut: bool,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
pub struct TraceQuery<'a> {
    /// For whom.
    pub subscription_key: SubscriptionKey,
    /// Its slot; [`None`] where it was deleted.
    pub shared: Option<&'a SharedState>,
    /// The versions of its filter.
    pub versions: &'a Versions,
    /// Which event.
    pub seq: Seq,
    /// The event, where the store has it.
    pub event: Option<&'a Event>,
    /// Where its log ends.
    pub end: Seq,
    /// What time it is.
    pub now: Timestamp,
}

/// Tells what became of an event for one subscription.
///
/// # Errors
/// Where the store cannot be read.
pub async fn trace(reads: &ReaderPool, question: TraceQuery<'_>) -> Result<SubscriptionTrace, journal::Error> {
    let TraceQuery { subscription_key, shared, versions, seq, event, end, now } = question;
    let account = match shared {
        Some(shared) => match event_finder::explain(shared, reads, EventSelector::Seq(seq), end, now).await {
            Ok(ExplainAnswer::Found(account)) => Some(account),
            // It was deleted meanwhile.
            Ok(ExplainAnswer::NotFound(_)) | Err(journal::Error::Unknown) => None,
            Err(error) => return Err(error),
        },
        None => None,
    };
    let (mut lines, cut) = lines_of(reads, subscription_key, seq).await?;
    let sifted = account.iter().flat_map(|account| &account.cursor.filtered_out);
    // When exactly is not written down: when it was read, and mostly that is when it was published.
    let at = event.map_or(now, |event| event.appended);
    lines.extend(sifted.filter(|sifted| sifted.first <= seq && seq < sifted.end).map(|sifted| LedgerLine {
        lane: sifted.lane,
        attempt: 0,
        entry: sifted.line(at),
    }));
    let filters = filter_results(&lines, shared, versions, event);
    let present = account.as_ref().map(|account| (&account.explanation.state, &account.cursor));
    let oldest = reads.oldest_line(subscription_key).await?;
    let story =
        delivery_history::delivery_history(HistoryInput { seq, lines: &lines, filters: &filters, present, oldest });
    let wanted = story.steps.iter().filter_map(LedgerLine::excerpt_key).collect();
    let plan = shared.map(SharedState::plan);
    let last = versions.values().rev().flatten().next();
    let name = plan.as_ref().map(|plan| plan.record.name.to_string());
    let domain_topic = plan.as_ref().map(|plan| plan.record.filter.domain_topic.clone());
    Ok(SubscriptionTrace {
        subscription_key,
        name: name.or_else(|| last.map(|version| version.name.to_string())),
        domain_topic: domain_topic.unwrap_or_else(|| last.and_then(|version| version.filter.domain_topic.clone())),
        deleted: account.is_none(),
        history: story,
        filters,
        excerpts: reads.excerpts(subscription_key, wanted).await?,
        explanation: account.map(|account| account.explanation),
        cut,
    })
}

/// The lines that speak of an event, and whether there are more.
async fn lines_of(
    reads: &ReaderPool,
    subscription_key: SubscriptionKey,
    seq: Seq,
) -> Result<(Vec<LedgerLine>, bool), journal::Error> {
    let (mut lines, mut from) = (Vec::new(), None);
    loop {
        let page = reads.lines_of(subscription_key, seq, from).await?;
        lines.extend(page.lines);
        from = page.next;
        if from.is_none() || lines.len() >= LINES_MAX {
            return Ok((lines, from.is_some()));
        }
    }
}

/// What the versions of the filter say of an event that its lines speak of.
fn filter_results(
    lines: &[LedgerLine],
    shared: Option<&SharedState>,
    versions: &Versions,
    event: Option<&Event>,
) -> BTreeMap<u32, filter::FilterResult> {
    let plan = shared.map(SharedState::plan);
    let mut found = BTreeMap::new();
    let Some(event) = event else { return found };
    for line in lines {
        let LedgerEvent::Filtered { version } = line.entry.what else { continue };
        let current = plan.as_ref().filter(|plan| plan.record.version == version).map(|plan| plan.filter());
        if let Some(filter) = current.or_else(|| in_force(versions, version).map(|version| &version.filter)) {
            found.entry(version).or_insert_with(|| filter.explain(event));
        }
    }
    found
}

/// Whether nothing of an event is to be told: it is of another topic of the domain, or the subscription was deleted before.
pub fn is_nothing(traced: &SubscriptionTrace) -> bool {
    let state = traced.explanation.as_ref().map(|explanation| &explanation.state);
    traced.deleted && traced.history.steps.is_empty() && !matches!(state, Some(EventState::Unpublished))
}
