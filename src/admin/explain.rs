//! `GET …/explain`: why an event waits, and when its next attempts are. `sequence` names one event;
//! `id` is searched for, and a 404 reports the searched range.

use std::sync::Arc;

use actix_web::HttpResponse;

use super::{
    arm::{Call, FoundSubscription},
    model::{InvalidRequest, subscription::namespace::delivery_mode},
};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::explain::{
    AttemptView, EndView, EventNotFound, ExplainView, ForecastView, ObstacleView, SearchedView,
    StateView,
};
use gridhook_engine::insight::event_finder::{
    EventReport, EventSelector, ExplainResult, SearchedRange,
};
use gridhook_event::Seq;
use gridhook_policy::explain::{
    AttemptForecast, EventState, Explanation, ForecastAttempt, GiveUp, Obstacle,
};

pub(crate) fn state_view(state: &EventState) -> StateView {
    match state {
        EventState::InFlight {
            attempt,
            since,
            deadline,
        } => StateView::InFlight {
            attempt: *attempt,
            since: since.to_string(),
            deadline: deadline.to_string(),
        },
        EventState::Pending {
            due,
            attempts,
            last,
        } => StateView::Pending {
            next_due: due.to_string(),
            attempts: *attempts,
            last_outcome: last.outcome.to_string(),
            last_status: last.status,
            last_attempt: last.tried.to_string(),
        },
        EventState::Blocking { attempts, last } => StateView::Blocking {
            attempts: *attempts,
            last_outcome: last.outcome.to_string(),
            last_status: last.status,
            last_attempt: last.tried.to_string(),
        },
        EventState::HeldBack { attempts } => StateView::HeldBack {
            attempts: *attempts,
        },
        EventState::Locked {
            attempt,
            received,
            until,
            renewable,
        } => StateView::Locked {
            delivery_count: *attempt,
            received: received.to_string(),
            locked_until: until.to_string(),
            renewable_until: renewable.to_string(),
        },
        EventState::Released {
            until,
            attempts,
            last,
        } => StateView::Released {
            until: until.to_string(),
            delivery_count: *attempts,
            last_outcome: last.outcome.to_string(),
            last_received: last.tried.to_string(),
        },
        EventState::Available {
            since,
            attempts,
            last,
        } => StateView::Available {
            since: since.to_string(),
            delivery_count: *attempts,
            last_outcome: last.outcome.to_string(),
            last_received: last.tried.to_string(),
        },
        EventState::Open => StateView::SentByAnEarlierProcess,
        EventState::Unread { behind } => StateView::Backlog { behind: *behind },
        EventState::Filtered => StateView::Filtered,
        EventState::DeadLetter { given_up } => StateView::DeadLetterWaiting {
            reason: given_up.map(|(reason, _)| reason.to_string()),
            file_due: given_up.map(|(_, due)| due.to_string()),
        },
        EventState::Passed => StateView::Completed,
        EventState::Unpublished => StateView::NotPublished,
    }
}

pub(crate) fn obstacle_view(obstacle: &Obstacle) -> ObstacleView {
    match *obstacle {
        Obstacle::Held { by } => ObstacleView::Held { by: by.to_string() },
        Obstacle::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => ObstacleView::Suspended {
            cause: cause.to_string(),
            since: since.to_string(),
            next_probe: until.to_string(),
            consecutive_suspensions,
        },
        Obstacle::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => ObstacleView::Probing {
            cause: cause.to_string(),
            since: since.to_string(),
            consecutive_suspensions,
        },
        Obstacle::RetryAfter { until } => ObstacleView::RetryAfter {
            until: until.to_string(),
        },
        Obstacle::Paced { rate } => ObstacleView::Paced {
            rate: rate.per_second(),
        },
        Obstacle::Full {
            pending,
            pending_max,
        } => ObstacleView::Full {
            pending,
            limit: pending_max,
        },
        Obstacle::NoReceiver => ObstacleView::NoReceiver,
    }
}

pub(crate) fn forecast_view(forecast: &AttemptForecast) -> ForecastView {
    let AttemptForecast {
        failure,
        status,
        attempts,
        give_up,
    } = forecast;
    ForecastView {
        if_each_fails_with: failure.to_string(),
        status: *status,
        attempts: attempts.iter().map(attempt_view).collect(),
        end: give_up.map(|GiveUp { reason, at }| EndView {
            reason: reason.to_string(),
            at: at.to_string(),
        }),
    }
}

fn attempt_view(attempt: &ForecastAttempt) -> AttemptView {
    AttemptView {
        number: attempt.number,
        not_before: attempt.at.to_string(),
        jitter_seconds: attempt.jitter_max.as_secs_f64(),
    }
}

/// `GET …/explain?id=…` or `?sequence=…`.
pub(super) async fn explain(call: Call<'_>) -> AdminResult {
    let selector = event_selector(call.request()?.query_string())?;
    let FoundSubscription {
        topic,
        name,
        record,
    } = call.find_subscription()?;
    let now = call.control.clock.now();
    let topic_handle = Arc::clone(&topic);
    let explain = |_| async move { topic_handle.explain_event(&name, selector, now).await };
    let answer = call.compute(explain).await??;
    match answer.ok_or_else(|| call.no_subscription())? {
        ExplainResult::Found(report) => {
            let EventReport {
                seq,
                id,
                appended,
                explanation,
                cursor: _,
            } = *report;
            let Explanation {
                state,
                obstacles,
                attempt_forecast,
            } = explanation;
            respond_json(&ExplainView {
                topic: topic.record().name.to_string(),
                subscription: record.name.to_string(),
                delivery_mode: delivery_mode(&record).to_owned(),
                now: now.to_string(),
                sequence: seq.0,
                id,
                published: appended.map(|appended| appended.to_string()),
                state: state_view(&state),
                obstacles: obstacles.iter().map(obstacle_view).collect(),
                forecast: attempt_forecast.as_ref().map(forecast_view),
            })
        }
        ExplainResult::NotFound(SearchedRange {
            in_flight,
            pending,
            from,
            upto,
        }) => {
            let search = SearchedView {
                events_in_flight: in_flight,
                events_pending: pending,
                log_from_sequence: from.0,
                log_before_sequence: upto.0,
            };
            Ok(HttpResponse::NotFound().json(EventNotFound {
                state: "notFound".to_owned(),
                searched: search,
            }))
        }
    }
}

/// The event that the query names, by `id` or by `sequence`.
pub(super) fn event_selector(query: &str) -> AdminResult<EventSelector> {
    let mut selectors = Vec::new();
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            "id" if value.is_empty() => {
                return refuse_value("id", "is empty; expected the id of an event");
            }
            "id" => selectors.push(EventSelector::Id(value.into_owned())),
            "sequence" => {
                let Some(seq) = value.parse().ok().filter(|seq| *seq >= Seq::FIRST.0) else {
                    let expected = "a number of 1 or more";
                    return Err(InvalidRequest::unexpected("sequence", &value, expected).into());
                };
                selectors.push(EventSelector::Seq(Seq(seq)));
            }
            // Azure's clients send it with every request.
            "api-version" => {}
            other => {
                let problem = format!("has '{other}'; expected id or sequence");
                return refuse_value("the query", problem);
            }
        }
    }
    match <[EventSelector; 1]>::try_from(selectors) {
        Ok([wanted]) => Ok(wanted),
        Err(_) => refuse_value(
            "the query",
            "must name one event; expected id=EVENT_ID or sequence=N",
        ),
    }
}
