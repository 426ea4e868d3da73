//! Events that expired before an attempt: given up by ranges, counted to the last event.

use std::{collections::BTreeSet, time::Duration};

use expect_test::expect;
use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Input, OutgoingBatch, SubscriptionSettings,
        batch::BatchLimits,
        outcome::Reason,
        record::{Command, LedgerEvent},
    },
};

use super::{
    driver::{Driver, Endpoint, START, answers, status},
    plain,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const TOO_OLD: LedgerEvent = LedgerEvent::GivenUp {
    reason: Reason::TimeToLiveExceeded,
    dead_lettered: true,
};
const FILTERED: LedgerEvent = LedgerEvent::Filtered { version: 1 };

/// An endpoint that is busy until then, and well from then on.
pub(super) fn busy_until(at: Timestamp) -> Endpoint {
    Box::new(move |request: &OutgoingBatch| {
        Some((
            Duration::ZERO,
            status(if request.sent < at { 503 } else { 200 }),
        ))
    })
}

fn six_hours() -> SubscriptionSettings {
    SubscriptionSettings {
        time_to_live: 6 * HOUR,
        suspend_after: 1,
        batch: BatchLimits {
            events_max: 10,
            bytes_preferred: 1 << 20,
            ..plain().batch
        },
        ..plain()
    }
}

/// Every third event matches no filter.
fn publish(driver: &mut Driver, events: usize) {
    let events: Vec<(&str, usize)> = (0..events)
        .map(|at| (if at % 3 == 2 { "no" } else { "yes" }, 10))
        .collect();
    driver.publish(&events);
}

/// An endpoint goes down with 3,000 events unread, and 999 more come shortly before it is back. The
/// last probe may be three hours later.
fn day_off(settings: SubscriptionSettings) -> Driver {
    let back = START.after(23 * HOUR + 50 * MINUTE);
    let mut driver = Driver::new(settings, busy_until(back));
    driver.slice_max = 700;
    publish(&mut driver, 3000);
    driver.run_until(START.after(23 * HOUR));
    publish(&mut driver, 999);
    driver
}

#[test]
fn after_a_day_the_old_events_end_by_ranges_and_the_young_ones_are_delivered() {
    let mut driver = day_off(six_hours());
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.passed, counters.filtered, counters.matched),
        (3999, 1333, 2666)
    );
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.pending),
        (666, 2000, 0)
    );
    let old = driver.noted(Lane::EXPIRY, TOO_OLD);
    // Attempted events end by their own schedule.
    let tried = driver.noted(Lane::LIVE, TOO_OLD);
    assert_eq!(old.len() + tried.len(), 2000);
    assert!(tried.len() < 200, "{} were tried", tried.len());
    assert!(
        old.iter().all(|seq| *seq <= 3000 && seq % 3 != 0),
        "each of them matches, and is old"
    );
    let others = driver.noted(Lane::EXPIRY, FILTERED);
    let all: BTreeSet<u64> = [old, tried, others, driver.noted(Lane::LIVE, FILTERED)]
        .concat()
        .into_iter()
        .collect();
    assert_eq!(
        all.range(..=3000).count(),
        3000,
        "each of them has its line"
    );
    for (key, dead) in driver
        .disk
        .dead
        .iter()
        .filter(|((lane, _), _)| *lane == Lane::EXPIRY)
    {
        assert_eq!(
            (dead.attempts, dead.reason, dead.tried),
            (0, Reason::TimeToLiveExceeded, None),
            "{key:?}"
        );
    }
    assert!(
        driver
            .order
            .iter()
            .all(|(_, seq)| *seq < Seq(300) || *seq > Seq(3000)),
        "none of them was sent"
    );
    let lines = driver
        .ledger
        .iter()
        .filter(|(lane, _)| *lane == Lane::EXPIRY)
        .count();
    assert!(
        lines <= 2 * 3000_usize.div_ceil(700),
        "{lines} lines for ranges"
    );
    assert_eq!(
        driver.disk.cursor.lanes.len(),
        1,
        "finished lanes are no more"
    );
}

#[test]
fn without_a_destination_expired_events_are_dropped_and_counted() {
    let mut driver = day_off(SubscriptionSettings {
        dead_letter: false,
        ..six_hours()
    });
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.dropped),
        (666, 0, 2000)
    );
    assert!(driver.disk.dead.is_empty());
}

#[test]
fn a_crash_behind_any_write_changes_no_end() {
    let mut whole = day_off(six_hours());
    whole.run();
    for writes in 1..60 {
        let mut driver = day_off(six_hours());
        driver.writes_left = writes;
        driver.run();
        let counters = driver.disk.cursor.counters;
        let expected = whole.disk.cursor.counters;
        let ends = |counters: gridhook::policy::record::Counters| {
            (
                counters.passed,
                counters.filtered,
                counters.delivered,
                counters.dead_lettered,
                counters.pending,
            )
        };
        assert_eq!(
            ends(counters),
            ends(expected),
            "a crash behind write {writes}"
        );
        assert_eq!(
            driver.disk.dead.len(),
            whole.disk.dead.len(),
            "a crash behind write {writes}"
        );
    }
}

#[test]
fn held_events_expire_by_a_timer_although_nothing_is_sent() {
    let mut driver = Driver::new(six_hours(), answers(vec![status(200)]));
    driver.command(Command::Hold);
    publish(&mut driver, 300);
    driver.run_for(HOUR);
    publish(&mut driver, 30);
    expect![""].assert_eq(&driver.run_for(5 * HOUR - MINUTE));
    let reads = driver.reads;
    expect!["6h TimeToLiveExceeded×200"].assert_eq(&driver.run_for(2 * MINUTE));
    assert_eq!(driver.reads, reads + 2, "one look for where, and one slice");
    expect!["6h TimeToLiveExceeded×200 · 7h TimeToLiveExceeded×20"]
        .assert_eq(&driver.run_for(10 * HOUR));
    assert_eq!(
        driver.core.next_due(driver.now),
        None,
        "and then there is nothing to wait for"
    );
    assert!(driver.disk.cursor.held.is_some() && driver.order.is_empty());
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.passed, counters.filtered, counters.dead_lettered),
        (330, 110, 220)
    );
}

#[test]
fn held_events_expire_to_the_last_without_another_wake() {
    for dead_letter in [false, true] {
        let settings = SubscriptionSettings {
            dead_letter,
            time_to_live: MINUTE,
            ..plain()
        };
        let mut driver = Driver::new(settings, answers(vec![status(200)]));
        driver.is_large();
        driver.slice_max = 5000;
        driver.command(Command::Hold);
        publish(&mut driver, 20_000);
        driver.run_for(2 * MINUTE);
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (counters.passed, counters.filtered),
            (20_000, 6666),
            "dead letters: {dead_letter}"
        );
        assert_eq!(
            counters.dropped + counters.dead_lettered,
            13_334,
            "dead letters: {dead_letter}"
        );
        assert_eq!(driver.disk.cursor.lanes.len(), 1, "the log is free");
    }
}

#[test]
fn overflowing_events_end_to_the_last_without_another_wake() {
    let settings = SubscriptionSettings {
        dead_letter: false,
        ..six_hours()
    };
    let mut driver = Driver::new(settings, answers(vec![status(200)]));
    driver.is_large();
    driver.slice_max = 5000;
    driver.command(Command::Hold);
    publish(&mut driver, 20_000);
    driver.absorb(Input::Overflow { below: Seq(15_001) });
    driver.run_for(MINUTE);
    assert_eq!(driver.disk.cursor.counters.dropped, 10_000);
    assert_eq!(driver.disk.cursor.lanes.len(), 1, "the log is free");
}

#[test]
fn events_that_arrive_during_a_hold_are_looked_for_every_ten_seconds() {
    let mut driver = Driver::new(
        SubscriptionSettings {
            time_to_live: MINUTE,
            ..plain()
        },
        answers(vec![status(200)]),
    );
    driver.command(Command::Hold);
    for _ in 0..600 {
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_millis(100));
    }
    let reads = driver.reads;
    let before = driver.ledger.len();
    driver.run_for(2 * MINUTE);
    assert_eq!(
        driver.noted(Lane::EXPIRY, TOO_OLD),
        (1..=600).collect::<Vec<u64>>()
    );
    assert!(driver.reads - reads <= 16, "{} reads", driver.reads - reads);
    assert!(
        driver.ledger.len() - before <= 8,
        "{} lines",
        driver.ledger.len() - before
    );
}

#[test]
fn a_backlog_that_is_too_old_at_a_start_is_not_sent_first() {
    let mut driver = Driver::new(six_hours(), Box::new(|_| None));
    publish(&mut driver, 2000);
    // One batch is in flight when the process dies; the next one starts seven hours later.
    driver.now = driver.now.after(7 * HOUR);
    driver.order.clear();
    driver.crash();
    driver.run_for(MINUTE);
    assert_eq!(driver.order, [], "all is too old");
    assert_eq!(driver.disk.cursor.counters.dead_lettered, 1334);
    publish(&mut driver, 2);
    assert_eq!(driver.order.len(), 2);
}

#[test]
fn overflowing_events_are_given_up_with_that_reason_while_the_rest_is_sent() {
    let mut driver = Driver::new(six_hours(), busy_until(START.after(MINUTE)));
    publish(&mut driver, 3000);
    driver.absorb(Input::Overflow { below: Seq(2001) });
    driver.run();
    let gone = driver.noted(
        Lane::OVERFLOW,
        LedgerEvent::GivenUp {
            reason: Reason::BacklogExceeded,
            dead_lettered: true,
        },
    );
    assert_eq!((gone.len(), gone.last()), (1324, Some(&2000)));
    let counters = driver.disk.cursor.counters;
    assert_eq!((counters.delivered, counters.dead_lettered), (676, 1324));
}
