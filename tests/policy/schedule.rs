//! When a failed event is tried again, and when it is given up.

use std::{sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use gridhook::policy::{
    SubscriptionSettings,
    batch::BatchLimits,
    edition::Edition,
    outcome::{Failure, Reason, RequestResult},
    record::{Command, LedgerEvent},
};

use super::{
    driver::{Driver, START, answers, status},
    editions::edition,
    plain,
};

fn check(settings: SubscriptionSettings, script: Vec<RequestResult>, expected: Expect) {
    let mut driver = Driver::new(settings, answers(script));
    driver.publish(&[("yes", 10)]);
    expected.assert_eq(&driver.run());
}

fn first_lines(script: Vec<RequestResult>, jitter: f64, expected: Expect) {
    let mut driver = Driver::new(plain(), answers(script));
    driver.jitter = jitter;
    driver.publish(&[("yes", 10)]);
    expected.assert_eq(&driver.run_for(Duration::from_secs(2 * 60 * 60)));
}

#[test]
fn an_event_is_tried_on_the_schedule_until_a_scheduled_attempt_is_past_its_time_to_live() {
    check(
        plain(),
        vec![status(500)],
        expect![
            "0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 16m 40s x · 46m 40s x · 1h 46m 40s x · \
             4h 46m 40s x · 10h 46m 40s x · 22h 46m 40s x · 1day 10h 46m 40s TimeToLiveExceeded"
        ],
    );
}

#[test]
fn a_success_ends_the_schedule() {
    let _rows = crate::spec::shows(&[
        "S000-004, S002-004, S003-004: If a subscriber's endpoint does not acknowledge receipt of \
         an event, Event Grid retries the delivery on the predefined retry schedule and under the \
         retry policy.",
        "S000-005: If an error occurs during delivery, Event Grid retries the delivery on the \
         predefined retry schedule and under the retry policy.",
        "S000-200, S002-056, S003-142: When Event Grid receives a successful status code, it \
         considers the delivery complete.",
    ]);
    for name in ["2020", "2021", "2023", "current"] {
        check(
            SubscriptionSettings {
                edition: edition(name),
                ..plain()
            },
            vec![
                status(500),
                RequestResult::from_outcome(Failure::SocketError),
                status(204),
            ],
            expect!["0s x · 10s x · 40s ok"],
        );
    }
}

#[test]
fn time_to_live_is_checked_at_a_scheduled_attempt_and_not_before() {
    let settings = SubscriptionSettings {
        time_to_live: Duration::from_secs(60),
        ..plain()
    };
    check(
        settings,
        vec![status(500)],
        expect!["0s x · 10s x · 40s x · 1m 40s TimeToLiveExceeded"],
    );
}

#[test]
fn as_many_attempts_are_made_as_are_allowed_and_the_last_may_succeed() {
    let settings = SubscriptionSettings {
        attempts_max: 3,
        ..plain()
    };
    check(
        settings.clone(),
        vec![status(500)],
        expect!["0s x · 10s x · 40s x · 40s MaxDeliveryAttemptsExceeded"],
    );
    check(
        settings,
        vec![status(500), status(500), status(200)],
        expect!["0s x · 10s x · 40s ok"],
    );
    check(
        SubscriptionSettings {
            attempts_max: 1,
            ..plain()
        },
        vec![status(500)],
        expect!["0s x · 0s MaxDeliveryAttemptsExceeded"],
    );
}

#[test]
fn a_status_has_a_least_wait_and_the_schedule_a_longer_one_later() {
    first_lines(
        vec![status(404)],
        0.0,
        expect!["0s x · 5m x · 10m x · 15m x · 20m x · 30m x · 1h x · 2h x"],
    );
    first_lines(
        vec![status(410)],
        0.0,
        expect!["0s x · 5m x · 10m x · 15m x · 20m x · 30m x · 1h x · 2h x"],
    );
    first_lines(
        vec![status(408)],
        0.0,
        expect!["0s x · 2m x · 4m x · 6m x · 11m x · 21m x · 51m x · 1h 51m x"],
    );
    first_lines(
        vec![status(503)],
        0.0,
        expect!["0s x · 30s x · 1m x · 2m x · 7m x · 17m x · 47m x · 1h 47m x"],
    );
}

#[test]
fn some_statuses_are_never_tried_again() {
    check(
        plain(),
        vec![status(400)],
        expect!["0s x · 0s UndeliverableDueToHttpBadRequest"],
    );
    check(
        plain(),
        vec![status(401)],
        expect!["0s x · 0s UndeliverableDueToHttpUnauthorized"],
    );
    check(
        plain(),
        vec![status(403)],
        expect!["0s x · 0s UndeliverableDueToHttpForbidden"],
    );
    check(
        plain(),
        vec![status(413)],
        expect!["0s x · 0s UndeliverableDueToHttpPayloadTooLarge"],
    );
}

#[test]
fn an_endpoint_may_ask_for_a_longer_wait_up_to_a_bound_and_for_no_shorter_one() {
    let asks = |seconds| RequestResult {
        retry_after: Some(Duration::from_secs(seconds)),
        ..status(503)
    };
    check(
        plain(),
        vec![asks(1), status(200)],
        expect!["0s x · 30s ok"],
    );
    check(
        plain(),
        vec![asks(90), status(200)],
        expect!["0s x · 1m 30s ok"],
    );
    check(
        plain(),
        vec![asks(1_000_000), status(200)],
        expect!["0s x · 1h ok"],
    );
}

#[test]
fn chance_adds_a_tenth_at_most_and_never_more_than_half_a_minute() {
    first_lines(
        vec![status(500)],
        0.999_999,
        expect![
            "0s x · 10s 999ms 999us x · 43s 999ms 996us x · 1m 49s 999ms 990us x · 7m 19s 999ms \
             960us x · 17m 49s 999ms 960us x · 48m 19s 999ms 960us x · 1h 48m 49s 999ms 960us x"
        ],
    );
}

#[test]
fn a_request_without_an_outcome_counts_as_lost_and_is_tried_again() {
    let mut turn = 0;
    let endpoint = Box::new(move |_: &_| {
        turn += 1;
        (turn > 1).then(|| (Duration::ZERO, status(200)))
    });
    let mut driver = Driver::new(plain(), endpoint);
    driver.publish(&[("yes", 10)]);
    expect!["0s ? · 3m 30s ok"].assert_eq(&driver.run());
}

#[test]
fn after_the_clock_was_set_back_an_event_waits_once_more() {
    let mut driver = Driver::new(plain(), answers(vec![status(500), status(200)]));
    driver.run_for(Duration::from_secs(5 * 24 * 60 * 60));
    driver.publish(&[("yes", 10); 2]);
    driver.run_for(Duration::ZERO);
    driver.now = START.after(Duration::from_secs(1));
    driver.restart(plain());
    assert_eq!(
        driver.run().split_once(" · ").expect("a second try").1,
        "5days ok · 11s ok"
    );
    assert_eq!(driver.disk.cursor.counters.delivered, 2);
}

#[test]
fn an_answer_after_the_deadline_changes_nothing() {
    let endpoint = Box::new(|_: &_| Some((Duration::from_secs(300), status(200))));
    let settings = SubscriptionSettings {
        time_to_live: Duration::from_secs(600),
        ..plain()
    };
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10)]);
    expect!["0s ok · 3m 30s ok · 7m 20s ok · 11m 40s TimeToLiveExceeded"].assert_eq(&driver.run());
}

#[test]
fn a_dead_letter_says_how_the_last_attempt_ended_however_the_event_ended() {
    let settings = SubscriptionSettings {
        time_to_live: Duration::from_secs(60),
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(503)]));
    driver.publish(&[("yes", 10)]);
    driver.run();
    let dead = driver.disk.dead.values().next().expect("it was put aside");
    assert_eq!(
        (dead.reason, dead.attempts),
        (Reason::TimeToLiveExceeded, 2)
    );
    assert_eq!(
        (dead.outcome, dead.status),
        (Failure::Busy.into(), Some(503))
    );
    assert_eq!(dead.tried, Some(START.after(Duration::from_secs(30))));
}

// --- offsets from the first attempt ---

/// The edition of namespaces with this schedule, and an endpoint that fails for ever after so long.
fn offsets(schedule: &[u64], latency: Duration) -> Driver {
    let mut edition = (*edition("namespace")).clone();
    if !schedule.is_empty() {
        edition.retry.schedule = schedule.iter().copied().map(Duration::from_secs).collect();
    }
    let settings = SubscriptionSettings {
        edition: Arc::new(edition),
        attempts_max: 10,
        concurrency_max: 8,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(500)]));
    driver.slow_down(latency);
    driver
}

#[test]
fn offsets_count_from_the_first_attempt_however_long_the_endpoint_takes() {
    let run = |schedule: &[u64], latency| {
        let mut driver = offsets(schedule, latency);
        driver.publish(&[("yes", 10)]);
        driver.run()
    };
    let slow = Duration::from_millis(1500);
    expect![
        "0s x · 2s x · 4s x · 6s x · 8s x · 5m 8s x · 10m 8s x · 15m 8s x · 20m 8s x · 25m 8s \
         x · 25m 9s 500ms MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&run(&[2, 4, 6, 8], slow));
    expect![
        "0s x · 10s x · 30s x · 1m x · 5m x · 10m x · 15m x · 20m x · 25m x · 30m x · 30m 1s \
         500ms MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&run(&[], slow));
    // An offset that passes while a response is waited for is left out.
    expect![
        "0s x · 30s x · 1m x · 5m x · 10m x · 15m x · 20m x · 25m x · 30m x · 35m x · 35m 30s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&run(&[], Duration::from_secs(30)));
    expect![
        "0s x · 1m x · 5m x · 10m x · 15m x · 20m x · 25m x · 30m x · 35m x · 40m x · 40m 31s \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&run(&[], Duration::from_secs(31)));
}

#[test]
fn events_of_one_request_keep_their_own_offsets() {
    let mut driver = offsets(&[10, 20], Duration::ZERO);
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(3));
    driver.publish(&[("yes", 10)]);
    expect!["0s x · 3s x · 10s x · 13s x · 20s x · 23s x"]
        .assert_eq(&driver.run_for(Duration::from_secs(60)));
    let mut batched = offsets(&[10, 20], Duration::ZERO);
    let batch = BatchLimits {
        events_max: 5,
        ..plain().batch
    };
    let settings = SubscriptionSettings {
        batch,
        edition: Arc::clone(&batched_edition()),
        suspend_after: u32::MAX,
        ..plain()
    };
    batched.restart(settings);
    batched.publish(&[("yes", 10)]);
    batched.run_for(Duration::from_secs(3));
    batched.publish(&[("yes", 10)]);
    batched.run_for(Duration::from_secs(2));
    // Held until both are due, so that they share a request; then each has its own time again.
    batched.command(Command::Hold);
    batched.run_for(Duration::from_secs(10));
    batched.command(Command::Resume);
    expect!["0s x · 3s x · 15s x×2 · 20s x · 23s x"]
        .assert_eq(&batched.run_for(Duration::from_secs(30)));
    let next: Vec<_> = batched
        .ledger
        .iter()
        .filter_map(|(_, entry)| match entry.what {
            LedgerEvent::Attempted { next, .. } => next.map(|next| next.since(START).as_secs()),
            _ => None,
        })
        .collect();
    assert_eq!(
        next[..4],
        [10, 13, 20, 23],
        "the ledger says for each event when it is tried next"
    );
}

fn batched_edition() -> Arc<Edition> {
    let mut edition = (*edition("namespace")).clone();
    edition.retry.schedule = [10, 20].map(Duration::from_secs).to_vec();
    Arc::new(edition)
}

/// Attempts whose time passed are not made up for: they would use all attempts up in a moment.
#[test]
fn an_event_that_was_held_back_goes_on_with_the_next_offset() {
    let mut driver = offsets(&[], Duration::ZERO);
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(35));
    driver.command(Command::Hold);
    driver.run_for(Duration::from_secs(1965));
    driver.command(Command::Resume);
    expect![
        "0s x · 10s x · 30s x · 33m 20s x · 35m x · 40m x · 45m x · 50m x · 55m x · 1h x · 1h \
         MaxDeliveryAttemptsExceeded"
    ]
    .assert_eq(&driver.run());
}

#[test]
fn a_new_process_and_a_status_with_a_wait_keep_the_offsets() {
    let mut driver = offsets(&[], Duration::from_secs(2));
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(15));
    driver.crash();
    expect!["0s x · 10s x · 30s x · 1m x · 5m x · 10m x"]
        .assert_eq(&driver.run_for(Duration::from_secs(700)));
    let mut turn = 0;
    let endpoint = Box::new(move |_: &_| {
        turn += 1;
        Some((
            Duration::from_secs(1),
            status(if turn == 1 { 503 } else { 500 }),
        ))
    });
    let mut busy = Driver::new(
        SubscriptionSettings {
            edition: edition("namespace"),
            attempts_max: 4,
            ..plain()
        },
        endpoint,
    );
    busy.publish(&[("yes", 10)]);
    // Half a minute after the response; then the offsets again.
    expect!["0s x · 31s x · 1m x · 5m x · 5m 1s MaxDeliveryAttemptsExceeded"]
        .assert_eq(&busy.run());
}
