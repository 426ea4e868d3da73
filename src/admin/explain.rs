//! `GET …/explain`: why an event waits, and when its next attempts are. `sequence` names one event; `id` is searched for,
//! and a 404 reports the searched range.

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AdminError, Control,
    arm::{no_subscription, path::TopicPath, topic},
    model::{InvalidRequest, subscription::namespace::mode},
};
use crate::{
    control::registry::{self, EventAccount, EventSelector, ExplainAnswer, SearchedRange},
    event::Seq,
    policy::explain::{EventState, Explanation, Forecast, ForecastAttempt, ForecastEnd, Obstacle},
};

/// An event that matches the request.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Explanation)]
pub(super) struct ExplainView {
    topic: String,
    subscription: String,
    /// `Push`, or `Queue` for clients that pull.
    delivery_mode: &'static str,
    now: String,
    sequence: u64,
    id: Option<String>,
    published: Option<String>,
    #[serde(flatten)]
    state: StateView,
    obstacles: Vec<ObstacleView>,
    forecast: Option<ForecastView>,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
#[schema(as = ExplainedState)]
pub(super) enum StateView {
    InFlight {
        attempt: u32,
        since: String,
        deadline: String,
    },
    #[serde(rename_all = "camelCase")]
    Pending {
        next_due: String,
        attempts: u32,
        last_outcome: String,
        last_status: Option<u16>,
        last_attempt: String,
    },
    /// Locked by a pulling client
    #[serde(rename_all = "camelCase")]
    Locked {
        delivery_count: u32,
        received: String,
        locked_until: String,
        renewable_until: String,
    },
    /// Released by a client, and not available before `until`
    #[serde(rename_all = "camelCase")]
    Released {
        until: String,
        delivery_count: u32,
        last_outcome: String,
        last_received: String,
    },
    /// Available to clients again after a release or an expired lock
    #[serde(rename_all = "camelCase")]
    Available {
        since: String,
        delivery_count: u32,
        last_outcome: String,
        last_received: String,
    },
    SentByAnEarlierProcess,
    Backlog {
        behind: u64,
    },
    Filtered,
    #[serde(rename_all = "camelCase")]
    DeadLetterWaiting {
        reason: Option<String>,
        file_due: Option<String>,
    },
    /// Delivered or given up; the ledger has its history
    Completed,
    NotPublished,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[schema(as = Obstacle)]
enum ObstacleView {
    Held {
        by: String,
    },
    #[serde(rename_all = "camelCase")]
    Suspended {
        cause: String,
        since: String,
        next_probe: String,
        consecutive_suspensions: u32,
    },
    #[serde(rename_all = "camelCase")]
    Probing {
        cause: String,
        since: String,
        consecutive_suspensions: u32,
    },
    /// Time until which `Retry-After` of the endpoint holds back requests
    RetryAfter {
        until: String,
    },
    /// The endpoint's rate limit is reached
    Paced {
        rate: f64,
    },
    /// The limit of locked, released and expired events is reached
    Full {
        pending: u64,
        limit: u32,
    },
    /// No client waits for events
    NoReceiver,
}

/// The next attempts if each of them fails.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Forecast)]
struct ForecastView {
    if_each_fails_with: String,
    status: Option<u16>,
    attempts: Vec<AttemptView>,
    end: Option<EndView>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForecastAttempt)]
struct AttemptView {
    number: u32,
    not_before: String,
    jitter_seconds: f64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForecastEnd)]
struct EndView {
    reason: String,
    at: String,
}

/// An event that was not found.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EventNotFound)]
pub(super) struct NotFoundView {
    state: &'static str,
    searched: SearchedView,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SearchedRange)]
struct SearchedView {
    events_in_flight: usize,
    events_pending: usize,
    log_from_sequence: u64,
    log_before_sequence: u64,
}

impl StateView {
    pub(super) fn new(state: &EventState) -> Self {
        match state {
            EventState::InFlight { attempt, since, deadline } => {
                Self::InFlight { attempt: *attempt, since: since.to_string(), deadline: deadline.to_string() }
            }
            EventState::Pending { due, attempts, last } => Self::Pending {
                next_due: due.to_string(),
                attempts: *attempts,
                last_outcome: last.outcome.to_string(),
                last_status: last.status,
                last_attempt: last.tried.to_string(),
            },
            EventState::Locked { attempt, received, until, renewable } => Self::Locked {
                delivery_count: *attempt,
                received: received.to_string(),
                locked_until: until.to_string(),
                renewable_until: renewable.to_string(),
            },
            EventState::Released { until, attempts, last } => Self::Released {
                until: until.to_string(),
                delivery_count: *attempts,
                last_outcome: last.outcome.to_string(),
                last_received: last.tried.to_string(),
            },
            EventState::Available { since, attempts, last } => Self::Available {
                since: since.to_string(),
                delivery_count: *attempts,
                last_outcome: last.outcome.to_string(),
                last_received: last.tried.to_string(),
            },
            EventState::Open => Self::SentByAnEarlierProcess,
            EventState::Unread { behind } => Self::Backlog { behind: *behind },
            EventState::Filtered => Self::Filtered,
            EventState::DeadLetter { given_up } => Self::DeadLetterWaiting {
                reason: given_up.map(|(reason, _)| reason.to_string()),
                file_due: given_up.map(|(_, due)| due.to_string()),
            },
            EventState::Passed => Self::Completed,
            EventState::Unpublished => Self::NotPublished,
        }
    }
}

impl ObstacleView {
    fn new(obstacle: &Obstacle) -> Self {
        match *obstacle {
            Obstacle::Held { by } => Self::Held { by: by.to_string() },
            Obstacle::Suspended { cause, since, until, consecutive_suspensions } => Self::Suspended {
                cause: cause.to_string(),
                since: since.to_string(),
                next_probe: until.to_string(),
                consecutive_suspensions,
            },
            Obstacle::Probing { cause, since, consecutive_suspensions } => {
                Self::Probing { cause: cause.to_string(), since: since.to_string(), consecutive_suspensions }
            }
            Obstacle::RetryAfter { until } => Self::RetryAfter { until: until.to_string() },
            Obstacle::Paced { rate } => Self::Paced { rate: rate.per_second() },
            Obstacle::Full { pending, most } => Self::Full { pending, limit: most },
            Obstacle::NobodyWaits => Self::NoReceiver,
        }
    }
}

impl ForecastView {
    fn new(forecast: &Forecast) -> Self {
        let Forecast { failure, status, attempts, end } = forecast;
        let attempt = |ForecastAttempt { number, at, later_max }: &ForecastAttempt| AttemptView {
            number: *number,
            not_before: at.to_string(),
            jitter_seconds: later_max.as_secs_f64(),
        };
        Self {
            if_each_fails_with: failure.to_string(),
            status: *status,
            attempts: attempts.iter().map(attempt).collect(),
            end: end.map(|ForecastEnd { reason, at }| EndView { reason: reason.to_string(), at: at.to_string() }),
        }
    }
}

/// `GET …/explain?id=…` or `?sequence=…`.
pub(super) async fn explain(
    control: &Control,
    path: &TopicPath,
    name: &str,
    query: &str,
) -> Result<HttpResponse, AdminError> {
    let wanted = event_selector(query)?;
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let now = control.clock.now();
    let answer = topic.explain(name, wanted, now).await.map_err(registry::Error::from)?;
    match answer.ok_or_else(|| no_subscription(path, name))? {
        ExplainAnswer::Found(account) => {
            let EventAccount { seq, id, appended, explanation, cursor: _ } = *account;
            let Explanation { state, obstacles, forecast } = explanation;
            Ok(HttpResponse::Ok().json(ExplainView {
                topic: topic.record().name.to_string(),
                subscription: subscription.name.to_string(),
                delivery_mode: mode(&subscription),
                now: now.to_string(),
                sequence: seq.0,
                id,
                published: appended.map(|appended| appended.to_string()),
                state: StateView::new(&state),
                obstacles: obstacles.iter().map(ObstacleView::new).collect(),
                forecast: forecast.as_ref().map(ForecastView::new),
            }))
        }
        ExplainAnswer::NotFound(SearchedRange { in_flight, pending, from, upto }) => {
            let searched = SearchedView {
                events_in_flight: in_flight,
                events_pending: pending,
                log_from_sequence: from.0,
                log_before_sequence: upto.0,
            };
            Ok(HttpResponse::NotFound().json(NotFoundView { state: "notFound", searched }))
        }
    }
}

/// The event that the query names, by `id` or by `sequence`.
pub(super) fn event_selector(query: &str) -> Result<EventSelector, AdminError> {
    let mut selectors = Vec::new();
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            "id" if value.is_empty() => {
                return Err(InvalidRequest::new("id", "is empty; allowed is the id of an event").into());
            }
            "id" => selectors.push(EventSelector::Id(value.into_owned())),
            "sequence" => {
                let allowed =
                    || InvalidRequest::new("sequence", format!("is '{value}'; allowed is a number of 1 or more"));
                let seq = value.parse().ok().filter(|seq| *seq >= Seq::FIRST.0).ok_or_else(allowed)?;
                selectors.push(EventSelector::Seq(Seq(seq)));
            }
            // Azure's clients send it with every request.
            "api-version" => {}
            other => {
                let problem = format!("has '{other}'; allowed are id and sequence");
                return Err(InvalidRequest::new("the query", problem).into());
            }
        }
    }
    match <[EventSelector; 1]>::try_from(selectors) {
        Ok([wanted]) => Ok(wanted),
        Err(_) => {
            Err(InvalidRequest::new("the query", "must name one event; allowed is id=EVENT_ID or sequence=N").into())
        }
    }
}
