//! Responses of an endpoint about the events of a request: refusals and `Retry-After`.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use gridhook::{
    event::RequestId,
    policy::{
        Input, OutgoingBatch, SubscriptionSettings,
        batch::BatchLimits,
        outcome::{Failure, RequestResult},
        record::{Command, EndpointId, Health, PaceRecord},
    },
};

use super::{
    current,
    driver::{Driver, START, answers, status},
    plain,
};

fn asks(code: u16, seconds: u64) -> RequestResult {
    RequestResult {
        retry_after: Some(Duration::from_secs(seconds)),
        ..status(code)
    }
}

/// An endpoint that refuses these events with `code` and takes all others.
fn refuses(code: u16, bad: impl Fn(u64) -> bool + 'static) -> super::driver::Endpoint {
    Box::new(move |request: &OutgoingBatch| {
        let refused = request.items.iter().any(|item| bad(item.seq.0));
        Some((
            Duration::from_millis(1),
            status(if refused { code } else { 200 }),
        ))
    })
}

#[test]
fn thirty_bad_events_hold_no_good_one_up() {
    for code in [400, 413] {
        for (edition, suspend_after) in [(plain().edition, 10), (current(), 10), (current(), 1)] {
            let settings = SubscriptionSettings {
                edition,
                suspend_after,
                concurrency_max: 4,
                ..plain()
            };
            let mut driver = Driver::new(settings, refuses(code, |seq| seq <= 30));
            driver.publish(&[("yes", 10); 60]);
            driver.run_for(Duration::from_secs(1));
            let counters = driver.disk.cursor.counters;
            assert_eq!(
                (counters.delivered, counters.dead_lettered),
                (30, 30),
                "{code}"
            );
            assert_eq!(
                driver.disk.cursor.health,
                Health::Healthy { failures: 0 },
                "{code}"
            );
        }
    }
}

#[test]
fn a_refusal_neither_adds_to_the_failures_of_an_endpoint_nor_forgives_them() {
    let mut script = vec![status(500); 9];
    script.extend([status(400), status(413), status(500)]);
    let settings = SubscriptionSettings {
        suspend_after: 10,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(script));
    driver.publish(&[("yes", 10); 11]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(driver.disk.cursor.health, Health::Healthy { failures: 9 });
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    assert!(matches!(
        driver.disk.cursor.health,
        Health::Suspended {
            cause: Failure::GenericError,
            consecutive_suspensions: 1,
            ..
        }
    ));
}

#[test]
fn a_probe_that_is_answered_with_a_refusal_has_found_the_endpoint_alive() {
    for (response, batch) in [(400, 1), (413, 1), (413, 4)] {
        let settings = SubscriptionSettings {
            suspend_after: 1,
            batch: BatchLimits {
                events_max: batch,
                ..plain().batch
            },
            ..plain()
        };
        let mut driver = Driver::new(
            settings,
            answers(vec![status(503), status(response), status(200)]),
        );
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        driver.publish(&[("yes", 10); 8]);
        driver.run_for(Duration::from_secs(15));
        assert_eq!(
            driver.disk.cursor.health,
            Health::Healthy { failures: 0 },
            "{response}: {:?}",
            driver.lines
        );
        assert!(
            driver.disk.cursor.counters.delivered >= 7,
            "{response}: {:?}",
            driver.lines
        );
    }
}

/// A response about the caller or the whole endpoint counts, also where it is final for the event.
#[test]
fn a_final_client_error_still_suspends() {
    for code in [401, 403, 404, 429, 500, 503] {
        let mut driver = Driver::new(
            SubscriptionSettings {
                suspend_after: 3,
                ..plain()
            },
            answers(vec![status(code)]),
        );
        driver.publish(&[("yes", 10); 5]);
        driver.run_for(Duration::from_secs(1));
        assert!(
            matches!(
                driver.disk.cursor.health,
                Health::Suspended {
                    consecutive_suspensions: 1,
                    ..
                }
            ),
            "{code}"
        );
    }
}

/// An operator who names the outcome among the durations of probation has it count.
#[test]
fn an_edition_may_say_that_a_refusal_is_the_endpoints() {
    let mut edition = (*plain().edition).clone();
    edition
        .probation
        .durations
        .insert(Failure::BadRequest, Duration::from_secs(60));
    let settings = SubscriptionSettings {
        edition: Arc::new(edition),
        suspend_after: 3,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(400)]));
    driver.publish(&[("yes", 10); 5]);
    driver.run_for(Duration::from_secs(1));
    assert!(matches!(
        driver.disk.cursor.health,
        Health::Suspended {
            cause: Failure::BadRequest,
            ..
        }
    ));
}

// --- Retry-After ---

#[test]
fn no_request_is_sent_before_the_time_that_the_endpoint_asked_for() {
    let mut driver = Driver::new(plain(), answers(vec![asks(429, 120), status(200)]));
    driver.publish(&[("yes", 10)]);
    for _ in 0..100 {
        driver.run_for(Duration::from_secs(1));
        driver.publish(&[("yes", 10)]);
    }
    assert_eq!(driver.lines, ["0s x"], "new events wait as well");
    driver.run_for(Duration::from_secs(60));
    assert!(
        driver.left[1..]
            .iter()
            .all(|left| *left >= START.after(Duration::from_secs(120))),
        "{:?}",
        driver.lines
    );
    assert_eq!(driver.disk.cursor.counters.delivered, 101);
}

#[test]
fn the_requested_wait_is_capped_by_the_edition() {
    let mut edition = (*plain().edition).clone();
    edition.retry.retry_after_max = Duration::from_secs(45);
    let settings = SubscriptionSettings {
        edition: Arc::new(edition),
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![asks(429, 1_000_000), status(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    driver.publish(&[("yes", 10)]);
    expect!["0s x · 45s ok · 45s ok"].assert_eq(&driver.run());
}

#[test]
fn retry_after_of_a_success_is_ignored() {
    let mut driver = Driver::new(plain(), answers(vec![asks(200, 120)]));
    driver.publish(&[("yes", 10); 3]);
    expect!["0s ok · 0s ok · 0s ok"].assert_eq(&driver.run());
}

#[test]
fn the_longest_of_several_retry_after_counts_and_a_success_beside_them_shortens_none() {
    let mut turn = 0;
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        let (seconds, response) = [(1, asks(429, 100)), (2, asks(503, 30)), (3, status(200))]
            .get(turn - 1)
            .cloned()
            .unwrap_or((0, status(200)));
        Some((Duration::from_secs(seconds), response))
    });
    let mut driver = Driver::new(
        SubscriptionSettings {
            concurrency_max: 3,
            ..plain()
        },
        endpoint,
    );
    driver.publish(&[("yes", 10); 5]);
    expect!["0s x · 0s x · 0s ok · 1m 41s ok · 1m 41s ok · 1m 41s ok · 1m 41s ok"]
        .assert_eq(&driver.run());
}

#[test]
fn probation_lasts_at_least_as_long_as_the_endpoint_asked_for() {
    // Ten seconds for Busy; then twenty.
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 1,
            ..plain()
        },
        answers(vec![
            asks(429, 120),
            asks(503, 300),
            asks(503, 1),
            status(200),
        ]),
    );
    driver.publish(&[("yes", 10); 3]);
    expect!["0s x · 2m x · 7m x · 7m 40s ok · 7m 40s ok · 7m 40s ok"].assert_eq(&driver.run());
}

/// One response suspends the endpoint. Another, to an earlier request, asks for more time.
#[test]
fn a_straggler_may_ask_for_more_time_while_the_endpoint_is_suspended_or_probed() {
    let mut turn = 0;
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        Some(match turn {
            1 => (Duration::from_secs(5), asks(429, 200)),
            2 => (Duration::ZERO, status(503)),
            _ => (Duration::ZERO, status(200)),
        })
    });
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 1,
            concurrency_max: 2,
            ..plain()
        },
        endpoint,
    );
    driver.publish(&[("yes", 10); 4]);
    driver.run();
    assert!(
        driver.left[2..]
            .iter()
            .all(|left| *left >= START.after(Duration::from_secs(205))),
        "{:?}",
        driver.lines
    );
    assert_eq!(driver.disk.cursor.counters.delivered, 4);
}

#[test]
fn a_wait_requested_of_one_subscription_holds_the_others_of_the_endpoint_back() {
    let mut asked = Driver::new(plain(), answers(vec![asks(429, 120), status(200)]));
    asked.publish(&[("yes", 10)]);
    asked.run_for(Duration::from_secs(1));
    let until = asked.core.take_requested_wait();
    assert_eq!(until, Some(START.after(Duration::from_secs(120))));
    assert_eq!(
        asked.core.take_requested_wait(),
        None,
        "it is passed on once"
    );
    // With a delivery that is due before the end of the wait, and with new events.
    let mut other = Driver::new(plain(), answers(vec![status(500), status(200)]));
    other.publish(&[("yes", 10)]);
    other.run_for(Duration::from_secs(1));
    other.core.delay_until(until, other.now);
    other.publish(&[("yes", 10); 2]);
    other.run_for(Duration::from_secs(1));
    assert_eq!(
        other.disk.cursor.pace.not_before, until,
        "a restart keeps it"
    );
    expect!["0s x · 2m ok · 2m ok · 2m ok"].assert_eq(&other.run());
    // The same report holds nothing back again.
    other.core.delay_until(until, other.now);
    other.publish(&[("yes", 10)]);
    other.run_for(Duration::from_secs(1));
    assert_eq!(other.disk.cursor.counters.delivered, 4);
}

#[test]
fn a_wait_requested_of_another_subscription_is_capped_by_the_own_edition_and_ended_by_an_operator()
{
    let mut edition = (*plain().edition).clone();
    edition.retry.retry_after_max = Duration::from_secs(45);
    let settings = SubscriptionSettings {
        edition: Arc::new(edition),
        ..plain()
    };
    let until = Some(START.after(Duration::from_secs(1_000_000)));
    let mut driver = Driver::new(settings, answers(vec![status(200)]));
    for seconds in [0, 30] {
        driver.run_for(Duration::from_secs(seconds));
        driver.core.delay_until(until, driver.now);
        driver.publish(&[("yes", 10)]);
    }
    expect!["45s ok · 45s ok"].assert_eq(&driver.run());
    let mut driver = Driver::new(plain(), answers(vec![status(200)]));
    driver
        .core
        .delay_until(Some(START.after(Duration::from_secs(600))), driver.now);
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    driver.command(Command::Release);
    driver
        .core
        .delay_until(Some(START.after(Duration::from_secs(600))), driver.now);
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(
        driver.disk.cursor.counters.delivered, 2,
        "{:?}",
        driver.lines
    );
}

#[test]
fn a_probe_or_release_by_an_operator_does_not_wait() {
    for command in [Command::Probe, Command::Release] {
        let mut driver = Driver::new(plain(), answers(vec![asks(429, 600), status(200)]));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        assert_eq!(driver.core.command_problem(command), None);
        driver.command(command);
        assert_eq!(driver.lines, ["0s x", "2s ok"], "{command:?}");
        assert!(
            driver.core.command_problem(command).is_some(),
            "there is nothing to lift any more"
        );
    }
}

/// A process that ends in between, or an actor, knows it afterwards.
#[test]
fn the_requested_wait_survives_a_restart_of_the_actor() {
    for incarnations in [1, 3] {
        let mut driver = Driver::new(plain(), answers(vec![asks(429, 120), status(200)]));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        for _ in 0..incarnations {
            driver.crash();
            driver.publish(&[("yes", 10)]);
            driver.run_for(Duration::from_secs(10));
        }
        assert_eq!(driver.lines, ["0s x"]);
        driver.run();
        assert_eq!(driver.left[1], START.after(Duration::from_secs(120)));
        assert!(driver.sent.contains_key(&RequestId(1)));
    }
}

/// The response to a request that was in flight when the URL changed.
#[test]
fn an_answer_of_an_earlier_endpoint_settles_its_events_and_says_nothing_about_the_present_one() {
    let plain = || SubscriptionSettings {
        suspend_after: 1,
        hold_when_gone: true,
        ..plain()
    };
    for (response, failed) in [(asks(503, 3600), 1), (status(410), 1), (asks(200, 3600), 0)] {
        let mut driver = Driver::new(plain(), answers(vec![response.clone(), status(200)]));
        driver.slow_down(Duration::from_secs(10));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        driver.settings.endpoint = EndpointId(2);
        driver.revive();
        driver.absorb(Input::Tick);
        driver.run_for(Duration::from_secs(10));
        let cursor = driver.core.cursor();
        assert_eq!(
            (cursor.counters.requests, cursor.counters.requests_failed),
            (1, failed),
            "{response:?}"
        );
        assert_eq!(driver.core.take_requested_wait(), None, "{response:?}");
        assert_eq!(
            (cursor.health, cursor.held),
            (Health::Healthy { failures: 0 }, None),
            "{response:?}"
        );
        assert_eq!(cursor.pace, PaceRecord::default(), "{response:?}");
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(11));
        assert_eq!(
            driver.core.cursor().counters.delivered,
            2 - failed,
            "the other event leaves at once: {response:?}"
        );
        driver.run();
        assert_eq!(driver.core.cursor().counters.pending, 0, "{response:?}");
    }
}

#[test]
fn a_change_of_the_endpoint_ends_the_wait_also_if_a_crash_follows_at_once() {
    for (suspend_after, change) in [(u32::MAX, 2), (1, 2), (u32::MAX, 0), (1, 0)] {
        let settings = SubscriptionSettings {
            suspend_after,
            ..plain()
        };
        let mut driver = Driver::new(settings, answers(vec![asks(503, 3600), status(200)]));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        assert_eq!(
            driver.disk.cursor.pace.requested_by,
            Some(EndpointId::default())
        );
        // Nothing is written after the change.
        driver.settings.endpoint = EndpointId(change);
        driver.crash();
        driver.crash();
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(60));
        let delivered = driver.core.cursor().counters.delivered;
        assert_eq!(
            delivered > 0,
            change == 2,
            "suspended after {suspend_after}, endpoint {change}: {:?}",
            driver.lines
        );
    }
}
