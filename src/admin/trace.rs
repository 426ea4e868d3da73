//! `GET …/trace`: the whole story of an event, for everybody who subscribes to its topic or did. By `sequence` it is found
//! exactly, by `id` it is searched for, and an id that was published again has several stories.
//!
//! An answer is bounded. Where there is more, `continue` says with what to ask for it.

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AdminError, Control,
    arm::{path::TopicPath, topic},
    explain::{StateView, event_selector},
    ledger_line::{LineContext, LineView},
    model::InvalidRequest,
};
use crate::{
    control::registry::{self, EventOccurrence, SubscriptionTrace, TraceResult, TraceToken},
    policy::{
        delivery_history::{DeadLetterFate, HistoryEnd},
        explain::{EventState, Explanation},
        filter::FilterResult as Says,
    },
};

/// So many subscriptions are told of in one answer …
const TOP: usize = 100;

/// … unless it is asked for fewer or more, up to this.
pub(super) const TOP_MAX: usize = 1_000;

/// The stories of an event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trace)]
pub(super) struct TraceView {
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
    subscriptions: Vec<DeliveryHistoryView>,
}

/// The history of an event in one event subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryHistory)]
struct DeliveryHistoryView {
    /// Name of the event subscription, or its number if the name is unknown
    subscription: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_topic: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// `delivered`, `filtered`, `deadLettered`, `deadLetterWaiting`, `deadLetterLost`, `dropped`, `canceled`, `pending`,
    /// `unread`, `beforeSubscription`, `notPublished` or `unknown`.
    result: &'static str,
    /// The result as a sentence.
    text: String,
    lines: Vec<LineView>,
    /// Whether there are more lines than are told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Where it is now, where it is anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<StateView>,
    /// When the next attempt is, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<String>,
}

impl EventView {
    fn new(EventOccurrence { seq, event, subscriptions }: &EventOccurrence) -> Self {
        Self {
            sequence: seq.0,
            id: event.as_ref().map(|event| event.id().into_owned()),
            event_type: event.as_ref().map(|event| event.event_type().into_owned()),
            subject: event.as_ref().map(|event| event.subject().into_owned()),
            published: event.as_ref().map(|event| event.appended.to_string()),
            subscriptions: subscriptions.iter().map(DeliveryHistoryView::new).collect(),
        }
    }
}

impl DeliveryHistoryView {
    fn new(traced: &SubscriptionTrace) -> Self {
        let SubscriptionTrace {
            subscription_key,
            name,
            domain_topic,
            deleted,
            history: story,
            filters,
            excerpts,
            explanation,
            cut,
        } = traced;
        let beside = LineContext { filters: Some(filters), excerpts: Some(excerpts) };
        let forecast = explanation.as_ref().and_then(|explanation| explanation.forecast.as_ref());
        let next_attempt = forecast.and_then(|forecast| forecast.attempts.first()).map(|next| next.at.to_string());
        Self {
            subscription: name.clone().unwrap_or_else(|| subscription_key.subscription.0.to_string()),
            domain_topic: domain_topic.clone(),
            deleted: *deleted,
            result: history_end_name(&story.verdict),
            text: sentence(traced, next_attempt.as_deref()),
            lines: story.steps.iter().map(|line| LineView::new(line, beside)).collect(),
            truncated: *cut,
            now: explanation
                .as_ref()
                .map(|Explanation { state, .. }| state)
                .filter(|state| is_anywhere(state))
                .map(StateView::new),
            next_attempt,
        }
    }
}

fn is_anywhere(state: &EventState) -> bool {
    !matches!(state, EventState::Filtered | EventState::Passed | EventState::Unpublished)
}

fn history_end_name(verdict: &HistoryEnd) -> &'static str {
    match verdict {
        HistoryEnd::Delivered { .. } => "delivered",
        HistoryEnd::Filtered { .. } => "filtered",
        HistoryEnd::GivenUp { then: DeadLetterFate::Dropped, .. } => "dropped",
        HistoryEnd::GivenUp { then: DeadLetterFate::Waits, .. } => "deadLetterWaiting",
        HistoryEnd::GivenUp { then: DeadLetterFate::Filed(_), .. } => "deadLettered",
        HistoryEnd::GivenUp { then: DeadLetterFate::Lost(_), .. } => "deadLetterLost",
        HistoryEnd::Canceled => "canceled",
        HistoryEnd::Pending => "pending",
        HistoryEnd::Unread => "unread",
        HistoryEnd::Before => "beforeSubscription",
        HistoryEnd::Unpublished => "notPublished",
        HistoryEnd::Unknown { .. } => "unknown",
    }
}

fn sentence(traced: &SubscriptionTrace, next_attempt: Option<&str>) -> String {
    match &traced.history.verdict {
        HistoryEnd::Delivered { at, attempt, late: false } => format!("delivered at attempt {attempt}, {at}"),
        HistoryEnd::Delivered { at, attempt, late: true } => {
            format!("delivered at attempt {attempt}, by an answer that came late, {at}")
        }
        HistoryEnd::Filtered { version } => match traced.filters.get(version) {
            Some(Says::Stopped { clause, .. }) => format!("filtered by {clause} of version {version}"),
            Some(Says::Match) | None => format!("filtered by version {version}"),
        },
        HistoryEnd::GivenUp { reason, then } => match then {
            DeadLetterFate::Dropped => format!("dropped: {reason}; there is no dead-letter destination"),
            DeadLetterFate::Waits => format!("given up: {reason}; waits to be written as a dead letter"),
            DeadLetterFate::Filed(file) => format!("given up: {reason}; dead letter in {file}"),
            DeadLetterFate::Lost(why) => format!("given up: {reason}; its dead letter is lost: {why}"),
        },
        HistoryEnd::Canceled => "canceled with its subscription".to_owned(),
        HistoryEnd::Pending => {
            match (next_attempt, traced.explanation.as_ref().map(|explanation| &explanation.state)) {
                (Some(at), _) => format!("pending, the next attempt not before {at}"),
                (None, Some(EventState::Locked { until, .. })) => format!("pending, with a client until {until}"),
                (None, Some(EventState::Released { until, .. })) => format!("pending, given back until {until}"),
                (None, Some(EventState::Available { .. })) => "pending, until a client receives it again".to_owned(),
                (None, _) => "pending".to_owned(),
            }
        }
        HistoryEnd::Unread => "not read yet: it waits its turn in the log".to_owned(),
        HistoryEnd::Before => "published before the subscription was there".to_owned(),
        HistoryEnd::Unpublished => "not published yet".to_owned(),
        HistoryEnd::Unknown { ledger_from: Some(from) } => {
            format!("no longer known: what the ledger keeps of this subscription begins at {from}")
        }
        HistoryEnd::Unknown { ledger_from: None } => {
            "no longer known: the ledger keeps nothing of this subscription".to_owned()
        }
    }
}

/// `GET …/trace?id=…` or `?sequence=…`.
pub(super) async fn trace(control: &Control, path: &TopicPath, query: &str) -> Result<HttpResponse, AdminError> {
    let Paging { from, top, rest } = Paging::<TraceToken>::read(query, TOP)?;
    let wanted = event_selector(&rest)?;
    let topic = topic(control, path)?;
    let now = control.clock.now();
    let TraceResult { occurrences, log, next } =
        topic.trace(&wanted, from, top, now).await.map_err(registry::Error::from)?;
    Ok(HttpResponse::Ok().json(TraceView {
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
    pub(super) fn read(query: &str, usual: usize) -> Result<Self, AdminError> {
        let (mut from, mut top) = (None, usual);
        let mut rest = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "continue" => {
                    let refused =
                        |_| InvalidRequest::new("continue", "is none; allowed is what the answer before this one had");
                    from = Some(value.parse().map_err(refused)?);
                }
                "top" => {
                    let refused =
                        || InvalidRequest::new("top", format!("is '{value}'; allowed is a number from 1 to {TOP_MAX}"));
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
