//! `GET …/trace`: the whole story of an event, for everybody who subscribes to its topic or did. By `sequence` it is found
//! exactly, by `id` it is searched for, and an id that was published again has several stories.
//!
//! An answer is bounded. Where there is more, `continue` says with what to ask for it.

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Control, Error,
    arm::{path::TopicPath, topic},
    explain::{StateView, wanted},
    line::{Beside, LineView},
    model::Invalid,
};
use crate::{
    policy::{
        explain::{Explanation, State},
        filter::Verdict as Says,
        story::{Aside, Verdict},
    },
    topic::registry::{self, Mark, Occurrence, Traced, Traces},
};

/// So many subscriptions are told of in one answer …
const TOP: usize = 100;

/// … unless it is asked for fewer or more, up to this.
pub(super) const TOP_MAX: usize = 1_000;

/// The stories of an event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trace)]
pub(super) struct View {
    topic: String,
    now: String,
    /// Where the log begins by now: an event before it is found by its id only where somebody still owes it.
    log_from_sequence: u64,
    /// Where the log ends.
    log_before_sequence: u64,
    events: Vec<EventView>,
    /// To be sent back as `continue`, with the same question; absent where that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#continue: Option<String>,
}

/// An event's story.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TracedEvent)]
struct EventView {
    sequence: u64,
    /// Absent, with all that the event says of itself, where the store does not have it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    subscriptions: Vec<StoryView>,
}

/// The history of an event in one event subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Story)]
struct StoryView {
    /// Name of the event subscription, or its number if the name is unknown
    subscription: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_topic: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// `delivered`, `filtered`, `deadLettered`, `deadLetterWaiting`, `deadLetterLost`, `dropped`, `canceled`, `pending`,
    /// `unread`, `beforeSubscription`, `notPublished` or `unknown`.
    verdict: &'static str,
    /// The verdict as a sentence.
    text: String,
    lines: Vec<LineView>,
    /// Whether there are more lines than are told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// Where it is now, where it is anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<StateView>,
    /// When the next attempt is, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<String>,
}

impl EventView {
    fn new(Occurrence { seq, event, subscriptions }: &Occurrence) -> Self {
        Self {
            sequence: seq.0,
            id: event.as_ref().map(|event| event.id().into_owned()),
            event_type: event.as_ref().map(|event| event.event_type().into_owned()),
            subject: event.as_ref().map(|event| event.subject().into_owned()),
            published: event.as_ref().map(|event| event.appended.to_string()),
            subscriptions: subscriptions.iter().map(StoryView::new).collect(),
        }
    }
}

impl StoryView {
    fn new(traced: &Traced) -> Self {
        let Traced { obligor, name, domain_topic, deleted, story, filters, excerpts, explanation, cut } = traced;
        let beside = Beside { filters: Some(filters), excerpts: Some(excerpts) };
        let forecast = explanation.as_ref().and_then(|explanation| explanation.forecast.as_ref());
        let next_attempt = forecast.and_then(|forecast| forecast.attempts.first()).map(|next| next.at.to_string());
        Self {
            subscription: name.clone().unwrap_or_else(|| obligor.subscription.0.to_string()),
            domain_topic: domain_topic.clone(),
            deleted: *deleted,
            verdict: word(&story.verdict),
            text: sentence(traced, next_attempt.as_deref()),
            lines: story.steps.iter().map(|line| LineView::new(line, beside)).collect(),
            cut: *cut,
            now: explanation
                .as_ref()
                .map(|Explanation { state, .. }| state)
                .filter(|state| is_anywhere(state))
                .map(StateView::new),
            next_attempt,
        }
    }
}

fn is_anywhere(state: &State) -> bool {
    !matches!(state, State::Filtered | State::Passed | State::Unpublished)
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered { .. } => "delivered",
        Verdict::Filtered { .. } => "filtered",
        Verdict::GivenUp { then: Aside::Dropped, .. } => "dropped",
        Verdict::GivenUp { then: Aside::Waits, .. } => "deadLetterWaiting",
        Verdict::GivenUp { then: Aside::Filed(_), .. } => "deadLettered",
        Verdict::GivenUp { then: Aside::Lost(_), .. } => "deadLetterLost",
        Verdict::Canceled => "canceled",
        Verdict::Pending => "pending",
        Verdict::Unread => "unread",
        Verdict::Before => "beforeSubscription",
        Verdict::Unpublished => "notPublished",
        Verdict::Unknown { .. } => "unknown",
    }
}

fn sentence(traced: &Traced, next_attempt: Option<&str>) -> String {
    match &traced.story.verdict {
        Verdict::Delivered { at, attempt, late: false } => format!("delivered at attempt {attempt}, {at}"),
        Verdict::Delivered { at, attempt, late: true } => {
            format!("delivered at attempt {attempt}, by an answer that came late, {at}")
        }
        Verdict::Filtered { version } => match traced.filters.get(version) {
            Some(Says::Stopped { clause, .. }) => format!("filtered by {clause} of version {version}"),
            Some(Says::Match) | None => format!("filtered by version {version}"),
        },
        Verdict::GivenUp { reason, then } => match then {
            Aside::Dropped => format!("dropped: {reason}; there is no dead-letter destination"),
            Aside::Waits => format!("given up: {reason}; waits to be written as a dead letter"),
            Aside::Filed(file) => format!("given up: {reason}; dead letter in {file}"),
            Aside::Lost(why) => format!("given up: {reason}; its dead letter is lost: {why}"),
        },
        Verdict::Canceled => "canceled with its subscription".to_owned(),
        Verdict::Pending => match (next_attempt, traced.explanation.as_ref().map(|explanation| &explanation.state)) {
            (Some(at), _) => format!("pending, the next attempt not before {at}"),
            (None, Some(State::Locked { until, .. })) => format!("pending, with a client until {until}"),
            (None, Some(State::Released { until, .. })) => format!("pending, given back until {until}"),
            (None, Some(State::Available { .. })) => "pending, until a client receives it again".to_owned(),
            (None, _) => "pending".to_owned(),
        },
        Verdict::Unread => "not read yet: it waits its turn in the log".to_owned(),
        Verdict::Before => "published before the subscription was there".to_owned(),
        Verdict::Unpublished => "not published yet".to_owned(),
        Verdict::Unknown { ledger_from: Some(from) } => {
            format!("no longer known: what the ledger keeps of this subscription begins at {from}")
        }
        Verdict::Unknown { ledger_from: None } => {
            "no longer known: the ledger keeps nothing of this subscription".to_owned()
        }
    }
}

/// `GET …/trace?id=…` or `?sequence=…`.
pub(super) async fn trace(control: &Control, path: &TopicPath, query: &str) -> Result<HttpResponse, Error> {
    let Paging { from, top, rest } = Paging::<Mark>::read(query, TOP)?;
    let wanted = wanted(&rest)?;
    let topic = topic(control, path)?;
    let now = control.clock.now();
    let Traces { occurrences, log, next } =
        topic.trace(&wanted, from, top, now).await.map_err(registry::Error::from)?;
    Ok(HttpResponse::Ok().json(View {
        topic: topic.record().name.to_string(),
        now: now.to_string(),
        log_from_sequence: log.0.0,
        log_before_sequence: log.1.0,
        events: occurrences.iter().map(EventView::new).collect(),
        r#continue: next.map(|next| next.to_string()),
    }))
}

/// How much is asked for, and from where on.
pub(super) struct Paging<M> {
    pub(super) from: Option<M>,
    pub(super) top: usize,
    /// What else is in the query.
    pub(super) rest: String,
}

impl<M: std::str::FromStr> Paging<M> {
    pub(super) fn read(query: &str, usual: usize) -> Result<Self, Error> {
        let (mut from, mut top) = (None, usual);
        let mut rest = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "continue" => {
                    let refused =
                        |_| Invalid::new("continue", "is none; allowed is what the answer before this one had");
                    from = Some(value.parse().map_err(refused)?);
                }
                "top" => {
                    let refused =
                        || Invalid::new("top", format!("is '{value}'; allowed is a number from 1 to {TOP_MAX}"));
                    top = value.parse().ok().filter(|top| (1..=TOP_MAX).contains(top)).ok_or_else(refused)?;
                }
                _ => {
                    rest.append_pair(&key, &value);
                }
            }
        }
        Ok(Self { from, top, rest: rest.finish() })
    }
}
