//! A success after the response timeout: it removes its events from the retry queue.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use gridhook::{
    event::{Seq, Timestamp},
    policy::{
        OutgoingBatch, SubscriptionSettings,
        batch::BatchLimits,
        outcome::{Failure, RequestResult},
        record::{Cursor, Health, LedgerEvent, PaceRecord, SeqRun},
    },
};

use super::{
    driver::{Driver, Endpoint, START, status},
    editions::edition,
    plain,
};

/// The editions whose documents have late responses.
const EDITIONS: [&str; 4] = ["2020", "2021", "2023", "current"];

/// The response timeout.
const WAIT: Duration = Duration::from_secs(30);

fn seconds(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

/// The first requests time out, one for each response that is `None`; the last response goes for
/// all further ones.
fn times_out_first(script: Vec<Option<u16>>) -> Endpoint {
    let mut turn = 0;
    Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        Some(match script[turn.min(script.len()) - 1] {
            Some(code) => (Duration::ZERO, status(code)),
            None => (WAIT, RequestResult::from_outcome(Failure::TimedOut)),
        })
    })
}

/// An event whose requests time out; request number `flight` succeeds at second
/// `at`.
fn check(
    script: Vec<Option<u16>>,
    settings: SubscriptionSettings,
    at: u64,
    request: u64,
    expected: Expect,
) -> Driver {
    let mut driver = Driver::new(settings, times_out_first(script));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(at));
    driver.late(request);
    expected.assert_eq(&driver.run());
    assert_eq!(driver.disk.cursor.counters.late, 1);
    assert_eq!(driver.disk.cursor.counters.pending, 0);
    driver
}

#[test]
fn a_late_success_delivers_events_that_are_still_pending() {
    let _rows = crate::spec::shows(&[
        "S000-036, S002-020, S003-056: If the endpoint responds within 3 minutes, Event Grid \
         tries, on a best-effort basis, to remove the event from the retry queue.",
    ]);
    for name in EDITIONS {
        let settings = SubscriptionSettings {
            edition: edition(name),
            ..plain()
        };
        let driver = check(
            vec![None, Some(200)],
            settings,
            35,
            1,
            expect!["0s x · 35s late"],
        );
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (
                counters.delivered,
                counters.requests,
                counters.requests_failed
            ),
            (1, 1, 1),
            "{name}"
        );
        assert_eq!(
            driver.reads, 2,
            "the log was asked from where on it is young enough, and read; where it fell due was \
             known"
        );
    }
}

#[test]
fn a_late_success_settles_an_event_in_another_request_whose_outcome_then_changes_nothing() {
    // Sent again at 40 s, for 30 s.
    for second in [Some(200), Some(503), Some(400)] {
        let mut turn = 0;
        let endpoint = Box::new(move |_: &OutgoingBatch| {
            turn += 1;
            let second =
                second.map_or_else(|| RequestResult::from_outcome(Failure::TimedOut), status);
            Some((
                WAIT,
                if turn == 1 {
                    RequestResult::from_outcome(Failure::TimedOut)
                } else {
                    second
                },
            ))
        });
        let mut driver = Driver::new(plain(), endpoint);
        driver.publish(&[("yes", 10)]);
        driver.run_until(seconds(50));
        driver.late(1);
        let reported = driver.run();
        assert!(reported.ends_with("50s late"), "{reported}");
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (counters.delivered, counters.requests, counters.late),
            (1, 2, 1)
        );
        assert!(driver.disk.dead.is_empty());
    }
}

#[test]
fn a_success_that_comes_behind_a_faster_one_is_only_counted() {
    let _rows = crate::spec::shows(&[
        "S000-037, S002-021, S003-057: A subscriber may still receive a duplicate of an event \
         after a late response (within 3 minutes).",
    ]);
    for name in EDITIONS {
        let settings = SubscriptionSettings {
            edition: edition(name),
            ..plain()
        };
        let driver = check(
            vec![None, Some(200)],
            settings,
            60,
            1,
            expect!["0s x · 40s ok · 1m late for nothing"],
        );
        assert_eq!(driver.disk.cursor.counters.delivered, 1, "{name}");
    }
}

#[test]
fn an_event_that_was_given_up_stays_given_up() {
    let settings = SubscriptionSettings {
        attempts_max: 1,
        ..plain()
    };
    let driver = check(
        vec![None],
        settings,
        60,
        1,
        expect!["0s x · 30s MaxDeliveryAttemptsExceeded · 1m late for nothing"],
    );
    assert_eq!(driver.disk.cursor.counters.dead_lettered, 1);
    assert_eq!(driver.disk.dead.len(), 1);
}

#[test]
fn each_of_two_late_answers_has_its_line() {
    let mut driver = Driver::new(plain(), times_out_first(vec![None, None, Some(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(80));
    driver.late(2);
    driver.late(1);
    driver.late(1);
    expect!["0s x · 40s x · 1m 20s late · 1m 20s late for nothing · 1m 20s late for nothing"]
        .assert_eq(&driver.run());
    assert_eq!(driver.disk.cursor.counters.delivered, 1);
}

#[test]
fn a_late_success_of_a_batch_settles_only_pending_events() {
    let settings = SubscriptionSettings {
        batch: BatchLimits {
            events_max: 3,
            bytes_preferred: 1 << 16,
            ..plain().batch
        },
        ..plain()
    };
    let mut turn = 0;
    // After the first three time out together, what goes out next alone is taken.
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        Some(if turn == 1 {
            (WAIT, RequestResult::from_outcome(Failure::TimedOut))
        } else {
            (Duration::ZERO, status(200))
        })
    });
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10), ("no", 10), ("yes", 10), ("yes", 10)]);
    driver.run_until(seconds(31));
    assert_eq!(driver.disk.pending.len(), 3);
    driver.late(1);
    assert!(driver.disk.pending.is_empty() && driver.disk.due.is_empty());
    expect!["0s x×3 · 31s late"].assert_eq(&driver.run());
    let late = driver
        .ledger
        .iter()
        .map(|(_, entry)| entry)
        .find(|entry| entry.what == LedgerEvent::Late { settled: true })
        .expect("a line");
    assert_eq!(
        late.runs,
        [
            SeqRun::single(Seq(1)),
            SeqRun {
                first: Seq(3),
                count: 2
            }
        ]
    );
}

#[test]
fn a_batch_that_was_too_large_was_so_whatever_a_late_answer_has_taken_from_it() {
    let settings = SubscriptionSettings {
        batch: BatchLimits {
            events_max: 3,
            bytes_preferred: 1 << 16,
            ..plain().batch
        },
        concurrency_max: 2,
        ..plain()
    };
    let mut turn = 0;
    let endpoint = Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        Some(match turn {
            1 | 2 => (WAIT, RequestResult::from_outcome(Failure::TimedOut)),
            3 => (WAIT, status(413)),
            _ => (Duration::ZERO, status(200)),
        })
    });
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10), ("yes", 10)]);
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(50));
    driver.late(1);
    // The third event is left alone in the batch of three, of which the endpoint refuses the size
    // and not the event.
    expect!["0s x×2 · 0s x · 40s x×3 · 50s late · 1m 10s ok"].assert_eq(&driver.run());
    assert_eq!(driver.disk.cursor.counters.delivered, 3);
}

#[test]
fn a_late_success_does_not_change_the_endpoint_and_is_settled_during_a_suspension() {
    let settings = SubscriptionSettings {
        suspend_after: 2,
        concurrency_max: 2,
        ..plain()
    };
    let mut driver = Driver::new(settings, times_out_first(vec![None]));
    driver.publish(&[("yes", 10), ("yes", 10)]);
    driver.run_until(seconds(31));
    let shown = |driver: &Driver| {
        let Cursor { health, pace, .. } = driver.core.cursor();
        (health, pace, driver.core.view_endpoint(driver.now))
    };
    let before = shown(&driver);
    assert!(matches!(before.0, Health::Suspended { .. }), "{before:?}");
    assert!(before.1.failing_since.is_some(), "{before:?}");
    driver.late(1);
    let after = (
        before.0,
        PaceRecord {
            failing_since: None,
            ..before.1
        },
        before.2,
    );
    assert_eq!(
        shown(&driver),
        after,
        "only the time without a success ends"
    );
    assert_eq!((driver.disk.pending.len(), driver.core.in_flight()), (1, 0));
    assert!(driver.disk.pending.keys().all(|(_, seq)| *seq == Seq(2)));
}

#[test]
fn where_memory_does_not_know_when_an_event_falls_due_the_disk_is_asked() {
    let mut driver = Driver::new(plain(), times_out_first(vec![None, Some(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(31));
    driver.revive();
    let reads = driver.reads;
    driver.late(1);
    assert_eq!(driver.reads, reads + 1, "a new incarnation has no key");
    expect!["0s x · 31s late"].assert_eq(&driver.run());
    assert_eq!(driver.disk.cursor.counters.delivered, 1);
}

#[test]
fn an_answer_of_the_disk_that_was_overtaken_is_asked_for_again() {
    let mut driver = Driver::new(plain(), times_out_first(vec![None, Some(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run_until(seconds(31));
    driver.revive();
    driver.held_back = Some(VecDeque::new());
    driver.late(1);
    // The disk reports it as pending; before that arrives, it is sent again and delivered.
    driver.run_until(seconds(50));
    let answers = driver.held_back.take().expect("set above");
    assert_eq!(answers.len(), 1);
    for response in answers {
        driver.absorb(response);
    }
    expect!["0s x · 40s ok · 50s late for nothing"].assert_eq(&driver.run());
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.pending, counters.late),
        (1, 0, 1)
    );
}

#[test]
fn a_detached_event_is_not_in_flight_in_a_later_incarnation() {
    for second in [status(200), status(503)] {
        let mut turn = 0;
        let endpoint = Box::new(move |_: &OutgoingBatch| {
            turn += 1;
            Some((
                WAIT,
                if turn == 1 {
                    RequestResult::from_outcome(Failure::TimedOut)
                } else {
                    second.clone()
                },
            ))
        });
        let mut driver = Driver::new(plain(), endpoint);
        driver.publish(&[("yes", 10)]);
        driver.run_until(seconds(50));
        driver.late(1);
        driver.revive();
        assert!(driver.run().ends_with("50s late"));
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (counters.delivered, counters.pending, counters.requests),
            (1, 0, 2)
        );
    }
}

/// The time that an event takes in late successes of batches of this many.
fn time_late_success(events: usize) -> Duration {
    // As many as an endpoint gets at first.
    const REQUESTS: usize = 16;
    let batch = BatchLimits {
        events_max: events as u32,
        bytes_preferred: 1 << 20,
        ..plain().batch
    };
    let settings = SubscriptionSettings {
        concurrency_max: 100,
        batch,
        ..plain()
    };
    let mut driver = Driver::new(settings, times_out_first(vec![None; REQUESTS]));
    driver.is_large();
    driver.slice_max = events as u64;
    let all = REQUESTS * events;
    driver.publish(&vec![("yes", 10); all]);
    assert_eq!(driver.sent.len(), REQUESTS);
    driver.run_until(START.after(WAIT));
    assert_eq!(driver.disk.cursor.counters.pending, all as u64);
    let began = Instant::now();
    (1..=REQUESTS as u64).for_each(|request| driver.late(request));
    let time = began.elapsed();
    assert_eq!(driver.disk.cursor.counters.delivered, all as u64);
    time / all as u32
}

#[test]
fn a_late_success_costs_an_event_of_a_large_batch_as_much_as_one_of_a_small_batch() {
    let quickest = |events| {
        (0..3)
            .map(|_| time_late_success(events))
            .min()
            .expect("three runs")
    };
    let [small, large] = [500, 2_500].map(quickest);
    // Larger batches leave the processor's caches. With a search for each event it was 200 µs,
    // hundreds of times.
    assert!(
        large < 20 * small,
        "{large:?}, and {small:?} in small batches"
    );
}
