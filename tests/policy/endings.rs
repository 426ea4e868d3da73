//! The end of an event, in each edition whose document describes it: by which limit, by which
//! response, with or without a dead-letter destination, alone or in a batch.

use std::{sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use gridhook::policy::{
    SubscriptionSettings,
    batch::BatchLimits,
    edition::{Edition, EndpointKind},
    filter::key::FilterKey,
    order::OrderSettings,
    outcome::{Failure, Outcome, Reason, RequestResult},
    record::{Command, WriteUrgency},
};

use super::{
    driver::{Driver, START, answers, status},
    editions::edition,
    plain,
};

/// The editions whose documents have output batching and the list of statuses without a retry.
const WITH_A_LIST: [&str; 3] = ["2021", "2023", "current"];

const MINUTE: Duration = Duration::from_secs(60);

fn following(edition: Arc<Edition>) -> SubscriptionSettings {
    SubscriptionSettings { edition, ..plain() }
}

fn in_each_edition(names: &[&str], minutes: u64, attempts_max: u32, expected: &Expect) {
    for name in names {
        let settings = SubscriptionSettings {
            time_to_live: minutes as u32 * MINUTE,
            attempts_max,
            ..following(edition(name))
        };
        let mut driver = Driver::new(settings, answers(vec![status(500)]));
        driver.publish(&[("yes", 10)]);
        expected.assert_eq(&driver.run());
        let ends = driver.disk.cursor.counters;
        assert_eq!(
            (ends.dead_lettered, ends.dropped),
            (1, 0),
            "{name}: it is a dead letter"
        );
    }
}

#[test]
fn with_thirty_minutes_and_five_attempts_the_attempts_decide() {
    let _rows = crate::spec::shows(&[
        "S000-049: If both the time-to-live and the maximum number of attempts are set, whichever \
         of the two is reached first decides when delivery stops.",
        "S000-050: With a time-to-live of 30 minutes and a maximum of 5 attempts, an event that is \
         not delivered in 30 minutes or not delivered after 5 attempts, whichever comes first, is \
         dead-lettered.",
    ]);
    in_each_edition(
        &["2020", "2021", "2023", "current"],
        30,
        5,
        &expect!["0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 6m 40s MaxDeliveryAttemptsExceeded"],
    );
}

#[test]
fn with_thirty_minutes_ten_attempts_have_no_effect_and_the_time_to_live_decides() {
    let _rows = crate::spec::shows(&[
        "S000-049: If both the time-to-live and the maximum number of attempts are set, whichever \
         of the two is reached first decides when delivery stops.",
        "S000-051: With a time-to-live of 30 minutes and a maximum of 10 attempts, the attempts \
         that the exponential retry schedule allows all happen before 30 minutes (the document \
         prints no count).",
        "S000-052: With a time-to-live of 30 minutes, setting the maximum number of attempts to 10 \
         has no effect.",
        "S000-053: With a time-to-live of 30 minutes and a maximum of 10 attempts, an undelivered \
         event is dead-lettered after 30 minutes.",
    ]);
    let expected = expect![
        "0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 16m 40s x · 46m 40s TimeToLiveExceeded"
    ];
    in_each_edition(&["2020", "2021", "2023", "current"], 30, 10, &expected);
    in_each_edition(&["2020", "2021", "2023", "current"], 30, 30, &expected);
}

#[test]
fn an_event_past_either_limit_is_a_dead_letter_where_there_is_a_place_and_dropped_where_there_is_none()
 {
    let _rows = crate::spec::shows(&[
        "S000-042, S002-025, S003-061: The retry policy can be set, when an event subscription is \
         created, with two settings: maximum number of attempts and event time-to-live.",
        "S000-043: An event is dropped if either of the two limits of the retry policy is reached.",
        "S000-096, S003-073: Event Grid dead-letters an event that is not delivered within its \
         time-to-live.",
        "S000-097, S003-074: Event Grid dead-letters an event whose number of delivery attempts \
         has exceeded the limit.",
        "S000-098, S003-075: If either dead-letter condition (time-to-live or number of attempts) \
         is met, the event is dropped or dead-lettered.",
        "S000-102, S002-040, S003-079: Event Grid sends an event to the dead-letter location when \
         all of its retry attempts have been made.",
        "S000-107, S003-084: If the time-to-live runs out before the next scheduled delivery \
         attempt, the event is dead-lettered only at the time of that attempt.",
        "S000-199, S002-055, S003-141: Every status code other than 200 to 204 counts as a failed \
         delivery, and the event is retried or dead-lettered.",
        "S001-011: In push delivery only, an event whose maximum time allowed for retrying has \
         been reached is dead-lettered.",
        "S002-027, S003-063: The retry policy can be customized when an event subscription is \
         created.",
    ]);
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        for (minutes, attempts_max, reason) in [
            (29, 5, Reason::MaxDeliveryAttemptsExceeded),
            (29, 10, Reason::TimeToLiveExceeded),
        ] {
            for dead_letter in [true, false] {
                let limits = SubscriptionSettings {
                    time_to_live: minutes * MINUTE,
                    attempts_max,
                    ..following(edition(name))
                };
                let mut driver = Driver::new(
                    SubscriptionSettings {
                        dead_letter,
                        ..limits
                    },
                    answers(vec![status(500)]),
                );
                driver.publish(&[("yes", 10)]);
                driver.run();
                let reasons: Vec<Reason> =
                    driver.disk.dead.values().map(|dead| dead.reason).collect();
                assert_eq!(
                    reasons,
                    if dead_letter {
                        vec![reason]
                    } else {
                        Vec::new()
                    },
                    "{name}"
                );
                let counters = driver.disk.cursor.counters;
                let dead = u64::from(dead_letter);
                let dropped = u64::from(!dead_letter);
                assert_eq!(
                    (counters.dead_lettered, counters.dropped, counters.pending),
                    (dead, dropped, 0),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn events_never_retried_are_dropped_or_dead_lettered_after_one_attempt() {
    let _rows = crate::spec::shows(&[
        "S000-009, S003-026: When a delivery attempt returns an error, Event Grid decides from the \
         type of the error whether to retry the delivery, dead-letter the event or drop the event.",
        "S000-017, S003-038: If dead-lettering is not configured for an endpoint, an event that \
         meets one of the listed non-retried errors is dropped.",
        "S000-018, S003-039: If dead-lettering is configured, an event that meets one of the \
         listed non-retried errors is dead-lettered instead of dropped.",
        "S000-103, S003-080: If Event Grid receives status 400 (Bad Request), it immediately \
         schedules the event for dead-lettering.",
        "S000-104, S003-081: If Event Grid receives status 413 (Request Entity Too Large), it \
         immediately schedules the event for dead-lettering.",
        "S000-105, S003-082: Status 400 and status 413 indicate that delivery of the event will \
         never succeed.",
    ]);
    for name in WITH_A_LIST {
        let edition = edition(name);
        for (destination, rules) in [
            (EndpointKind::Webhook, &edition.webhook),
            (EndpointKind::Resource, &edition.resource),
        ] {
            assert!(!rules.never_retried.is_empty(), "{name}");
            for code in &rules.never_retried {
                for dead_letter in [true, false] {
                    let settings = SubscriptionSettings {
                        destination,
                        dead_letter,
                        ..following(Arc::clone(&edition))
                    };
                    let mut driver = Driver::new(settings, answers(vec![status(*code)]));
                    driver.publish(&[("yes", 10)]);
                    let lines = driver.run();
                    let Outcome::Failed(failure) = Outcome::from_status(*code) else {
                        panic!("{code} is a success")
                    };
                    assert_eq!(
                        lines,
                        format!("0s x · 0s UndeliverableDueToHttp{failure}"),
                        "{name}: {code}"
                    );
                    let counters = driver.disk.cursor.counters;
                    let dead = u64::from(dead_letter);
                    let dropped = u64::from(!dead_letter);
                    assert_eq!(
                        (counters.dead_lettered, counters.dropped),
                        (dead, dropped),
                        "{name}: {code}"
                    );
                    let dead = driver
                        .disk
                        .dead
                        .values()
                        .next()
                        .map(|dead| (dead.reason, dead.outcome, dead.attempts));
                    assert_eq!(
                        dead,
                        dead_letter.then_some((Reason::Undeliverable(failure), failure.into(), 1)),
                        "{name}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_destination_that_was_deleted_is_not_tried_again() {
    let _rows = crate::spec::shows(&[
        "S003-027: If the endpoint returns a configuration-related error that retries cannot fix, \
         the event is dead-lettered if dead-lettering is configured.",
        "S003-028: If the endpoint returns a configuration-related error that retries cannot fix, \
         the event is dropped if dead-lettering is not configured.",
        "S003-029: A deleted endpoint is an example of a configuration-related error that retries \
         cannot fix.",
    ]);
    for name in WITH_A_LIST {
        for dead_letter in [true, false] {
            let settings = SubscriptionSettings {
                destination: EndpointKind::Resource,
                dead_letter,
                ..following(edition(name))
            };
            let mut driver = Driver::new(
                settings,
                answers(vec![RequestResult::from_outcome(Failure::NotFound)]),
            );
            driver.publish(&[("yes", 10)]);
            assert_eq!(
                driver.run(),
                "0s x · 0s UndeliverableDueToHttpNotFound",
                "{name}"
            );
            let counters = driver.disk.cursor.counters;
            let dead = u64::from(dead_letter);
            let dropped = u64::from(!dead_letter);
            assert_eq!(
                (counters.dead_lettered, counters.dropped),
                (dead, dropped),
                "{name}"
            );
        }
    }
}

#[test]
fn whatever_a_destination_that_is_no_webhook_says_is_the_last_outcome_of_the_dead_letter() {
    let reported = [
        Failure::Disabled,
        Failure::Full,
        Failure::TimedOut,
        Failure::SocketError,
        Failure::ResolutionError,
        Failure::SessionQueueNotSupported,
        Failure::InvalidAzureFunctionDestination,
        Failure::GenericError,
    ];
    for failure in reported {
        let settings = SubscriptionSettings {
            destination: EndpointKind::Resource,
            attempts_max: 2,
            ..following(edition("2023"))
        };
        let mut driver = Driver::new(
            settings,
            answers(vec![RequestResult::from_outcome(failure)]),
        );
        driver.publish(&[("yes", 10)]);
        assert_eq!(
            driver.run(),
            "0s x · 10s x · 10s MaxDeliveryAttemptsExceeded",
            "{failure}"
        );
        let dead = driver.disk.dead.values().next().expect("it was put aside");
        assert_eq!(
            (dead.outcome, dead.status, dead.attempts),
            (failure.into(), None, 2)
        );
        assert_eq!(dead.outcome.to_string(), format!("{failure:?}"));
    }
}

#[test]
fn a_request_that_we_ended_ourselves_is_an_attempt_that_was_aborted() {
    let _rows = crate::spec::shows(&[
        "S000-148: The lastDeliveryOutcome value Aborted means that Event Grid aborted the \
         delivery after a set time interval.",
    ]);
    for name in ["2023", "current"] {
        let settings = SubscriptionSettings {
            attempts_max: 1,
            ..following(edition(name))
        };
        let mut driver = Driver::new(settings, Box::new(|_| None));
        driver.publish(&[("yes", 10)]);
        assert_eq!(
            driver.run(),
            "0s ? · 3m 20s MaxDeliveryAttemptsExceeded",
            "{name}"
        );
        let dead = driver.disk.dead.values().next().expect("it was put aside");
        assert_eq!(
            (dead.outcome.to_string().as_str(), dead.tried),
            ("Aborted", Some(START))
        );
    }
}

#[test]
fn a_batch_succeeds_or_fails_as_one_and_is_tried_again_as_one() {
    let _rows = crate::spec::shows(&[
        "S000-071: Batched delivery has all-or-none semantics.",
        "S000-072: Event Grid does not support partial success of a batch delivery.",
    ]);
    for name in WITH_A_LIST {
        let batch = BatchLimits {
            events_max: 3,
            bytes_preferred: 64 * 1024,
            ..plain().batch
        };
        let settings = SubscriptionSettings {
            batch,
            ..following(edition(name))
        };
        let mut driver = Driver::new(
            settings,
            answers(vec![status(500), status(206), status(200)]),
        );
        driver.publish(&[("yes", 10); 3]);
        driver.run_for(Duration::from_secs(39));
        assert_eq!(
            driver.disk.pending.len(),
            3,
            "{name}: nothing of it is delivered"
        );
        assert!(
            driver
                .disk
                .pending
                .values()
                .all(|pending| pending.attempts == 2),
            "{name}: each has both attempts"
        );
        expect!["0s x×3 · 10s x×3 · 40s ok×3"].assert_eq(&driver.run());
        assert_eq!(driver.disk.cursor.counters.delivered, 3, "{name}");
    }
}

#[test]
fn nothing_waits_for_the_write_of_a_success_but_a_retry_does() {
    let mut driver = Driver::new(
        plain(),
        answers(vec![status(200), status(200), status(503), status(200)]),
    );
    for _ in 0..2 {
        driver.publish(&[("yes", 1)]);
        driver.run_until(driver.now);
        assert_eq!(driver.awaited, 0, "{:?}", driver.lines);
    }
    driver.publish(&[("yes", 1)]);
    driver.run_until(driver.now.after(Duration::from_secs(60)));
    assert!(
        driver.awaited > 0,
        "the retry is read from the disk: {:?}",
        driver.lines
    );
    assert_eq!(driver.order.len(), 4);
}

#[test]
fn successes_may_be_written_late_a_failure_and_ordered_events_may_not() {
    let mut driver = Driver::new(
        plain(),
        answers(vec![status(200), status(503), status(200)]),
    );
    driver.publish(&[("yes", 1)]);
    driver.run_until(driver.now);
    assert_eq!(driver.urgencies, [WriteUrgency::Relaxed]);
    driver.publish(&[("yes", 1)]);
    driver.run_until(driver.now);
    assert_eq!(driver.urgencies[1..], [WriteUrgency::Usual]);
    driver.command(Command::Hold);
    assert_eq!(driver.urgencies[2..], [WriteUrgency::Now]);

    let order = OrderSettings {
        key: FilterKey::from("subject".to_owned()),
        tracked_max: 100,
        blocks: false,
        one_of_a_key: false,
    };
    let ordered = SubscriptionSettings {
        order: Some(Arc::new(order)),
        ..plain()
    };
    let mut driver = Driver::new(ordered, answers(vec![status(200)]));
    driver.publish(&[("yes", 1)]);
    driver.run_until(driver.now);
    assert!(
        !driver.urgencies.contains(&WriteUrgency::Relaxed),
        "the next event of the key may wait for it"
    );
}

#[test]
fn a_request_that_gridhook_aborted_uses_no_attempt() {
    let settings = SubscriptionSettings {
        attempts_max: 1,
        ..plain()
    };
    let script = vec![
        RequestResult::from_outcome(Outcome::Aborted),
        RequestResult::from_outcome(Outcome::Aborted),
        status(200),
    ];
    let mut driver = Driver::new(settings, answers(script));
    driver.publish(&[("yes", 10)]);
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dropped),
        (1, 0),
        "{:?}",
        driver.lines
    );
    assert!(
        driver.left[1].since(driver.left[0]) >= Duration::from_secs(1),
        "it waits as after a failure"
    );
}
