//! What the store knows of an event for one subscription, for [`policy::story`](crate::policy::story): where the event is,
//! the lines of the ledger that speak of it, what endpoints said, and what the versions of the filter say of it.
//!
//! Where the event is is read first: a request that lands meanwhile is told by its line, and never by neither. A
//! subscription that was deleted has its lines still, and the versions of its filter.

use std::collections::BTreeMap;

use crate::{
    event::{Event, Obligor, Seq, Timestamp},
    journal::{self, Reads},
    policy::{
        explain::{Explanation, State},
        filter,
        record::{Excerpt, ExcerptKey, Line, What},
        story::{self, Known, Story},
    },
    subscription::{
        explain::{self, Answer, Wanted},
        slot::Slot,
        version::{Versions, in_force},
    },
};

/// More lines than any event has that is not tried for ever: a story is cut there.
const LINES_MAX: usize = 1_000;

/// What is told of an event for one subscription.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Whose.
    pub obligor: Obligor,
    /// The subscription's name, where it is known.
    pub name: Option<String>,
    /// The domain's topic that it is of.
    pub domain_topic: Option<String>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// What happened, and what it comes to.
    pub story: Story,
    /// What the versions of the filter say that the story speaks of.
    pub filters: BTreeMap<u32, filter::Verdict>,
    /// What the endpoint said.
    pub excerpts: BTreeMap<ExcerptKey, Excerpt>,
    /// Where it is, and what would become of it; [`None`] where the subscription was deleted.
    pub explanation: Option<Explanation>,
    /// Whether there are more lines than are told.
    pub cut: bool,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// For whom.
    pub obligor: Obligor,
    /// Its slot; [`None`] where it was deleted.
    pub slot: Option<&'a Slot>,
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
pub async fn trace(reads: &Reads, question: Question<'_>) -> Result<Traced, journal::Error> {
    let Question { obligor, slot, versions, seq, event, end, now } = question;
    let account = match slot {
        Some(slot) => match explain::explain(slot, reads, Wanted::Seq(seq), end, now).await {
            Ok(Answer::Found(account)) => Some(account),
            // It was deleted meanwhile.
            Ok(Answer::NotFound(_)) | Err(journal::Error::Unknown) => None,
            Err(error) => return Err(error),
        },
        None => None,
    };
    let (mut lines, cut) = lines_of(reads, obligor, seq).await?;
    let sifted = account.iter().flat_map(|account| &account.cursor.sifted);
    // When exactly is not written down: when it was read, and mostly that is when it was published.
    let at = event.map_or(now, |event| event.appended);
    lines.extend(sifted.filter(|sifted| sifted.first <= seq && seq < sifted.end).map(|sifted| Line {
        lane: sifted.lane,
        attempt: 0,
        entry: sifted.line(at),
    }));
    let filters = asked(&lines, slot, versions, event);
    let present = account.as_ref().map(|account| (&account.explanation.state, &account.cursor));
    let oldest = reads.oldest_line(obligor).await?;
    let story = story::tell(Known { seq, lines: &lines, filters: &filters, present, oldest });
    let wanted = story.steps.iter().filter_map(Line::excerpt_key).collect();
    let plan = slot.map(Slot::plan);
    let last = versions.values().rev().flatten().next();
    let name = plan.as_ref().map(|plan| plan.record.name.to_string());
    let domain_topic = plan.as_ref().map(|plan| plan.record.filter.domain_topic.clone());
    Ok(Traced {
        obligor,
        name: name.or_else(|| last.map(|version| version.name.to_string())),
        domain_topic: domain_topic.unwrap_or_else(|| last.and_then(|version| version.filter.domain_topic.clone())),
        deleted: account.is_none(),
        story,
        filters,
        excerpts: reads.excerpts(obligor, wanted).await?,
        explanation: account.map(|account| account.explanation),
        cut,
    })
}

/// The lines that speak of an event, and whether there are more.
async fn lines_of(reads: &Reads, obligor: Obligor, seq: Seq) -> Result<(Vec<Line>, bool), journal::Error> {
    let (mut lines, mut from) = (Vec::new(), None);
    loop {
        let page = reads.lines_of(obligor, seq, from).await?;
        lines.extend(page.lines);
        from = page.next;
        if from.is_none() || lines.len() >= LINES_MAX {
            return Ok((lines, from.is_some()));
        }
    }
}

/// What the versions of the filter say of an event that its lines speak of.
fn asked(
    lines: &[Line],
    slot: Option<&Slot>,
    versions: &Versions,
    event: Option<&Event>,
) -> BTreeMap<u32, filter::Verdict> {
    let plan = slot.map(Slot::plan);
    let mut found = BTreeMap::new();
    let Some(event) = event else { return found };
    for line in lines {
        let What::Filtered { version } = line.entry.what else { continue };
        let current = plan.as_ref().filter(|plan| plan.record.version == version).map(|plan| plan.filter());
        if let Some(filter) = current.or_else(|| in_force(versions, version).map(|version| &version.filter)) {
            found.entry(version).or_insert_with(|| filter.explain(event));
        }
    }
    found
}

/// Whether nothing of an event is to be told: it is of another topic of the domain, or the subscription was deleted before.
pub fn is_nothing(traced: &Traced) -> bool {
    let state = traced.explanation.as_ref().map(|explanation| &explanation.state);
    traced.deleted && traced.story.steps.is_empty() && !matches!(state, Some(State::Unpublished))
}
