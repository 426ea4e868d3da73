//! Why an event waits; and the forecast is what happens.

mod pulled;

use std::{sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use gridhook::{
    event::{Lane, RequestId, Seq, Timestamp},
    policy::{
        OutgoingBatch, SendItem, SubscriptionSettings,
        batch::{BatchLimits, LastAttempt},
        explain::{
            EventState, ExplainInput, Explanation, Forecast, Obstacle, StoredEvent,
            WaitingDeadLetter, explain_event,
        },
        outcome::{Failure, RequestResult},
        record::{Command, Cursor, DueKey, EndpointView, Health, LaneCursor},
    },
};

use super::{
    driver::{Driver, START, answers, status},
    editions::edition,
    plain,
};

fn at(at: Timestamp) -> String {
    humantime::format_duration(at.since(START)).to_string()
}

fn seconds(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

/// An explanation in one line: state, obstacles, next attempts, end.
fn line(
    Explanation {
        state,
        obstacles,
        forecast,
    }: &Explanation,
) -> String {
    let state = state_text(state);
    let obstacles = obstacles.iter().map(obstacle_text);
    let mut parts: Vec<String> = [state].into_iter().chain(obstacles).collect();
    if let Some(forecast) = forecast {
        parts.extend(forecast_texts(forecast));
    }
    parts.join(" · ")
}

fn state_text(state: &EventState) -> String {
    match state {
        EventState::InFlight {
            attempt,
            since,
            deadline,
        } => {
            format!(
                "attempt {attempt} in flight since {} until {} at most",
                at(*since),
                at(*deadline)
            )
        }
        EventState::Pending {
            due,
            attempts,
            last:
                LastAttempt {
                    outcome,
                    status,
                    tried,
                },
        } => {
            let status = status.map_or(String::new(), |status| format!(" {status}"));
            format!(
                "pending until {} after {attempts}, {outcome}{status} at {}",
                at(*due),
                at(*tried)
            )
        }
        EventState::HeldBack { attempts } => format!("held back after {attempts}"),
        EventState::Blocking { attempts, .. } => format!("blocking after {attempts}"),
        EventState::Locked {
            attempt,
            received,
            until,
            renewable,
        } => {
            format!(
                "{attempt} received at {} until {}, renewed until {}",
                at(*received),
                at(*until),
                at(*renewable)
            )
        }
        EventState::Released {
            until,
            attempts,
            last: LastAttempt { outcome, tried, .. },
        } => {
            format!(
                "released until {} after {attempts}, {outcome} at {}",
                at(*until),
                at(*tried)
            )
        }
        EventState::Available {
            since,
            attempts,
            last: LastAttempt { outcome, tried, .. },
        } => {
            format!(
                "available since {} after {attempts}, {outcome} at {}",
                at(*since),
                at(*tried)
            )
        }
        EventState::Open => "open".to_owned(),
        EventState::Unread { behind } => format!("behind {behind}"),
        EventState::Filtered => "filtered".to_owned(),
        EventState::DeadLetter {
            given_up: Some((reason, due)),
        } => {
            format!("dead letter, {reason}, file at {}", at(*due))
        }
        EventState::DeadLetter { given_up: None } => "dead letter".to_owned(),
        EventState::Passed => "passed".to_owned(),
        EventState::Unpublished => "unpublished".to_owned(),
    }
}

fn obstacle_text(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Held { by } => format!("held by {by}"),
        Obstacle::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => {
            format!(
                "suspended for {cause} from {} to {}, suspension {consecutive_suspensions}",
                at(*since),
                at(*until)
            )
        }
        Obstacle::RetryAfter { until } => format!("asked for nothing before {}", at(*until)),
        Obstacle::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => {
            format!(
                "probing, suspended for {cause} at {}, suspension {consecutive_suspensions}",
                at(*since)
            )
        }
        Obstacle::Paced { rate } => {
            format!("{:.1} requests in a second at most", rate.per_second())
        }
        Obstacle::Full { pending, most } => format!("{pending} of {most} received"),
        Obstacle::NoReceiver => "nobody waits".to_owned(),
    }
}

fn forecast_texts(forecast: &Forecast) -> Vec<String> {
    let status = forecast
        .status
        .map_or(String::new(), |status| format!(" {status}"));
    let mut texts = vec![format!("{}{status}", forecast.failure)];
    for attempt in &forecast.attempts {
        let mut text = format!("#{} {}", attempt.number, at(attempt.at));
        if !attempt.later_max.is_zero() {
            text += &format!("+{}", humantime::format_duration(attempt.later_max));
        }
        texts.push(text);
    }
    texts.push(match &forecast.end {
        Some(end) => format!("{} {}", at(end.at), end.reason),
        None => "and so on".to_owned(),
    });
    texts
}

/// Explains an event from the driver's disk, with these requests in flight.
fn ask(
    driver: &Driver,
    settings: &SubscriptionSettings,
    requests: &[Arc<OutgoingBatch>],
    seq: u64,
) -> Explanation {
    let key = (Lane::LIVE, Seq(seq));
    let dead = driver.disk.dead.get(&key).map(|dead| WaitingDeadLetter {
        record: Some((dead, dead.given_up.after(Duration::from_secs(300)))),
    });
    explain_event(ExplainInput {
        settings,
        cursor: &driver.disk.cursor,
        endpoint: &driver.core.view_endpoint(driver.now),
        requests,
        end: driver.end(),
        seq: Seq(seq),
        event: driver
            .matches(Seq(seq))
            .map(|(appended, matches)| StoredEvent { appended, matches }),
        pending: driver
            .disk
            .pending
            .get(&key)
            .map(|pending| (Lane::LIVE, pending)),
        dead,
        clients: 0,
        now: driver.now,
    })
}

/// One event that is published at the beginning and receives these responses: what `explain` shows
/// at second `when`.
fn check(settings: &SubscriptionSettings, script: Vec<RequestResult>, when: u64, expected: Expect) {
    let mut driver = Driver::new(settings.clone(), answers(script));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(when));
    expected.assert_eq(&line(&ask(&driver, settings, &[], 1)));
}

/// No chance is named where there is none.
fn certain(settings: SubscriptionSettings) -> SubscriptionSettings {
    let mut edition = (*settings.edition).clone();
    edition.retry.jitter_share = 0.0;
    SubscriptionSettings {
        edition: Arc::new(edition),
        ..settings
    }
}

#[test]
fn a_pending_event_is_explained_with_its_schedule_and_the_limit_that_ends_it() {
    let few = SubscriptionSettings {
        attempts_max: 4,
        ..plain()
    };
    check(
        &few,
        vec![status(500)],
        1,
        expect![
            "pending until 10s after 1, GenericError 500 at 0s · GenericError 500 · #2 10s · #3 \
             40s+3s · #4 1m 40s+9s · 1m 40s MaxDeliveryAttemptsExceeded"
        ],
    );
    check(
        &few,
        vec![status(503)],
        1,
        expect![
            "pending until 30s after 1, Busy 503 at 0s · Busy 503 · #2 30s · #3 1m+3s · #4 2m+9s · \
             2m MaxDeliveryAttemptsExceeded"
        ],
    );
    let short = SubscriptionSettings {
        time_to_live: Duration::from_secs(90),
        ..plain()
    };
    check(
        &short,
        vec![status(404)],
        1,
        expect![
            "pending until 5m after 1, NotFound 404 at 0s · NotFound 404 · 5m TimeToLiveExceeded"
        ],
    );
}

#[test]
fn the_forecast_is_what_happens() {
    for (code, attempts_max) in [(500, 5), (503, 7), (404, 1000), (500, 1000)] {
        let settings = certain(SubscriptionSettings {
            attempts_max,
            ..plain()
        });
        let mut driver = Driver::new(settings.clone(), answers(vec![status(code)]));
        driver.publish(&[("yes", 10)]);
        driver.run_until(seconds(1));
        let foretold = ask(&driver, &settings, &[], 1)
            .forecast
            .expect("it is pending");
        let mut lines: Vec<String> = foretold
            .attempts
            .iter()
            .map(|attempt| format!("{} x", at(attempt.at)))
            .collect();
        assert!(
            foretold
                .attempts
                .iter()
                .all(|attempt| attempt.later_max.is_zero()),
            "there is no chance in it"
        );
        lines.extend(
            foretold
                .end
                .map(|end| format!("{} {}", at(end.at), end.reason)),
        );
        driver.run();
        assert_eq!(driver.lines[1..], lines, "{code}");
    }
}

/// The same for every edition, on subscriptions that start in the past, that are slow, and that
/// have little time.
#[test]
fn the_forecast_is_what_happens_in_every_edition() {
    let day = Duration::from_secs(24 * 60 * 60);
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        for code in [500, 503, 408] {
            for (since, time_to_live) in [
                (0, day),
                (0, day / 12),
                (86_400, day),
                (86_400, day / 12),
                (300, day / 288),
            ] {
                for latency in [0, 1500, 29_000] {
                    let settings = SubscriptionSettings {
                        edition: edition(name),
                        since: seconds(since),
                        time_to_live,
                        attempts_max: 9,
                        ..plain()
                    };
                    let settings = certain(settings);
                    let mut driver = Driver::new(settings.clone(), answers(vec![status(code)]));
                    driver.command(Command::Hold);
                    driver.publish(&[("yes", 10)]);
                    // The subscription is made when the event has been there for long.
                    driver.now = seconds(since + 7);
                    driver.restart(settings.clone());
                    driver.slow_down(Duration::from_millis(latency));
                    driver.command(Command::Resume);
                    driver.run_for(Duration::from_millis(latency + 500));
                    let foretold = ask(&driver, &settings, &[], 1)
                        .forecast
                        .expect("it is pending");
                    let made = driver.lines.len();
                    assert_eq!(made, 1, "{name}: it is sent once: {:?}", driver.lines);
                    driver.slow_down(Duration::ZERO);
                    driver.run();
                    let mut lines: Vec<String> = foretold
                        .attempts
                        .iter()
                        .map(|attempt| format!("{} x", at(attempt.at)))
                        .collect();
                    lines.extend(
                        foretold
                            .end
                            .map(|end| format!("{} {}", at(end.at), end.reason)),
                    );
                    assert_eq!(
                        driver.lines[made..],
                        lines,
                        "{name} {code} since {since}, {time_to_live:?}, {latency} ms"
                    );
                }
            }
        }
    }
}

#[test]
fn a_requested_wait_is_explained_with_its_end() {
    let mut turn = 0;
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        let retry_after = (turn == 1).then(|| Duration::from_secs(120));
        Some((
            Duration::ZERO,
            RequestResult {
                retry_after,
                ..status(429)
            },
        ))
    });
    let settings = SubscriptionSettings {
        attempts_max: 2,
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), endpoint);
    driver.publish(&[("yes", 10), ("yes", 10)]);
    driver.run_until(seconds(1));
    expect![
        "behind 0 · asked for nothing before 2m · TimedOut · #1 2m · #2 2m 10s+1s · 2m 10s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 2)));
    driver.run_until(seconds(121));
    assert!(!line(&ask(&driver, &settings, &[], 1)).contains("asked"));
}

#[test]
fn an_event_of_a_suspended_endpoint_waits_for_the_probe() {
    let settings = SubscriptionSettings {
        suspend_after: 1,
        attempts_max: 3,
        ..plain()
    };
    check(
        &settings,
        vec![status(404)],
        1,
        expect![
            "pending until 5m after 1, NotFound 404 at 0s · suspended for NotFound from 0s to 5m, \
             suspension 1 · NotFound 404 · #2 5m · #3 10m+30s · 10m MaxDeliveryAttemptsExceeded"
        ],
    );
    let mut driver = Driver::new(settings.clone(), answers(vec![status(503)]));
    driver.publish(&[("yes", 10), ("no", 10), ("yes", 10)]);
    driver.run_until(seconds(1));
    expect![
        "behind 0 · suspended for Busy from 0s to 10s, suspension 1 · Busy · #1 10s · #2 \
         20s+1s · #3 50s+4s · 50s MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 3)));
    expect!["filtered"].assert_eq(&line(&ask(&driver, &settings, &[], 2)));
    expect!["unpublished"].assert_eq(&line(&ask(&driver, &settings, &[], 4)));
}

#[test]
fn a_held_subscription_is_explained_as_if_it_were_resumed_now() {
    let settings = SubscriptionSettings {
        attempts_max: 2,
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), answers(vec![status(500)]));
    driver.command(Command::Hold);
    driver.publish(&[("yes", 10), ("yes", 10)]);
    driver.run_until(seconds(7));
    expect![
        "behind 1 · held by operator · TimedOut · #1 7s · #2 17s+1s · 17s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 2)));
}

#[test]
fn a_subscription_that_is_held_by_410_says_so() {
    let settings = SubscriptionSettings {
        attempts_max: 2,
        hold_when_gone: true,
        ..plain()
    };
    check(
        &settings,
        vec![status(410)],
        7,
        expect![
            "pending until 5m after 1, NotFound 410 at 0s · held by 410 · NotFound 410 · #2 5m · \
             5m MaxDeliveryAttemptsExceeded"
        ],
    );
}

#[test]
fn an_event_dead_lettered_in_probation_is_explained_to_end_there() {
    let settings = SubscriptionSettings {
        suspend_after: 1,
        dead_letter_in_probation: true,
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), answers(vec![status(404)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(1));
    // At the end of the probation it is the probe.
    expect![
        "pending until 5m after 1, NotFound 404 at 0s · suspended for NotFound from 0s to 5m, \
         suspension 1 · NotFound 404 · #2 5m · 5m MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(
        &driver,
        &SubscriptionSettings {
            attempts_max: 2,
            ..settings.clone()
        },
        &[],
        1,
    )));
    driver.command(Command::Hold);
    driver.publish(&[("yes", 10)]);
    expect![
        "behind 0 · held by operator · suspended for NotFound from 0s to 5m, suspension 1 · \
         NotFound · 1s UndeliverableDueToProbationCausedByClientError"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 2)));
    let expired = SubscriptionSettings {
        time_to_live: Duration::ZERO,
        ..settings.clone()
    };
    assert!(line(&ask(&driver, &expired, &[], 2)).ends_with("1s TimeToLiveExceeded"));
    driver.command(Command::Resume);
    driver.run_until(seconds(301));
    expect![
        "pending until 10m after 2, NotFound 404 at 5m · suspended for NotFound from 0s to \
         15m, suspension 2 · NotFound 404 · 10m UndeliverableDueToProbationCausedByClientError"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 1)));
    expect![
        "0s x · 1s UndeliverableDueToProbationCausedByClientError · 5m x · 10m \
         UndeliverableDueToProbationCausedByClientError"
    ]
    .assert_eq(&driver.run());
}

#[test]
fn a_probe_that_was_asked_for_is_waited_for_and_after_a_release_there_is_a_pace() {
    let settings = SubscriptionSettings {
        suspend_after: 1,
        attempts_max: 3,
        ..plain()
    };
    let mut turn = 0;
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        // The tenth fails, and the probe has no response.
        (turn <= 10).then(|| (Duration::ZERO, status(if turn < 10 { 200 } else { 404 })))
    });
    let mut driver = Driver::new(settings.clone(), endpoint);
    driver.publish(&[("yes", 10); 11]);
    driver.run_until(seconds(1));
    expect![
        "pending until 5m after 1, NotFound 404 at 0s · suspended for NotFound from 0s to 5m, \
         suspension 1 · NotFound 404 · #2 5m · #3 10m+30s · 10m MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 10)));
    driver.command(Command::Probe);
    let probe = [Arc::clone(&driver.sent[&RequestId(11)])];
    expect![
        "pending until 5m after 1, NotFound 404 at 0s · probing, suspended for NotFound at 0s, \
         suspension 1 · NotFound 404 · #2 5m · #3 10m+30s · 10m MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &probe, 10)));
    driver.command(Command::Release);
    expect![
        "pending until 5m after 1, NotFound 404 at 0s · 1.0 requests in a second at most · \
         NotFound 404 · #2 5m · #3 10m+30s · 10m MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &[], 10)));
}

#[test]
fn a_request_in_flight_takes_precedence_over_the_disk() {
    let settings = SubscriptionSettings {
        attempts_max: 3,
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), answers(vec![status(500)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(12));
    let due = driver.disk.due.first().map(|DueKey { due, .. }| *due);
    let item = SendItem {
        lane: Lane::LIVE,
        seq: Seq(1),
        appended: START,
        attempts: 1,
        due,
        since: None,
    };
    let request = OutgoingBatch {
        id: RequestId(9),
        endpoint: settings.endpoint,
        items: vec![item],
        detached_keys: Vec::new(),
        events: 1,
        sent: seconds(11),
        deadline: seconds(71),
    };
    let requests = [Arc::new(request)];
    expect![
        "attempt 2 in flight since 11s until 1m 11s at most · GenericError 500 · #3 42s+3s · \
         42s MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &settings, &requests, 1)));
    let last = SubscriptionSettings {
        attempts_max: 2,
        ..settings
    };
    expect![
        "attempt 2 in flight since 11s until 1m 11s at most · GenericError 500 · 12s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&line(&ask(&driver, &last, &requests, 1)));
}

#[test]
fn an_event_that_ended_has_no_next_attempt() {
    check(&plain(), vec![status(200)], 1, expect!["passed"]);
    check(
        &plain(),
        vec![status(400)],
        1,
        expect!["dead letter, UndeliverableDueToHttpBadRequest, file at 5m"],
    );
    check(
        &SubscriptionSettings {
            dead_letter: false,
            ..plain()
        },
        vec![status(400)],
        1,
        expect!["passed"],
    );
}

#[test]
fn an_event_that_an_earlier_process_sent_is_sent_again() {
    let settings = SubscriptionSettings {
        attempts_max: 1,
        ..plain()
    };
    let lane = |open: &[u64], done: &[u64]| {
        let seqs = |places: &[u64]| places.iter().map(|place| Seq(*place)).collect();
        LaneCursor {
            lane: Lane::LIVE,
            read: Seq(5),
            end: None,
            open: seqs(open),
            done: seqs(done),
        }
    };
    let cursor = Cursor {
        lanes: vec![lane(&[3], &[6])],
        health: Health::Probing {
            cause: Failure::Busy,
            since: START,
            consecutive_suspensions: 2,
        },
        ..Cursor::default()
    };
    let shown = |seq| {
        let event = Some(StoredEvent {
            appended: START,
            matches: true,
        });
        let explanation = explain_event(ExplainInput {
            settings: &settings,
            cursor: &cursor,
            endpoint: &EndpointView::default(),
            requests: &[],
            end: Seq(9),
            seq: Seq(seq),
            event,
            pending: None,
            dead: None,
            clients: 0,
            now: START,
        });
        line(&explanation)
    };
    expect![
        "open · probing, suspended for Busy at 0s, suspension 2 · Busy · #1 0s · 0s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&shown(3));
    expect!["passed"].assert_eq(&shown(4));
    expect![
        "behind 0 · probing, suspended for Busy at 0s, suspension 2 · Busy · #1 0s · 0s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&shown(5));
    expect!["passed"].assert_eq(&shown(6));
}

#[test]
fn a_schedule_without_an_end_in_sight_is_cut() {
    let settings = SubscriptionSettings {
        time_to_live: Duration::MAX,
        attempts_max: u32::MAX,
        batch: BatchLimits {
            events_max: 1,
            bytes_preferred: 1,
            ..plain().batch
        },
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), answers(vec![status(500)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(1));
    let forecast = ask(&driver, &settings, &[], 1)
        .forecast
        .expect("it is pending");
    assert_eq!((forecast.attempts.len(), forecast.end), (100, None));
}
