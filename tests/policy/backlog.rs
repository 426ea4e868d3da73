//! An endpoint that returns: the backlog and live events share the limit in turns.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use gridhook::{
    event::{Lane, Seq},
    policy::{
        OutgoingBatch, SubscriptionSettings,
        record::{Command, FilteredOut, LaneCursor, LedgerEvent},
    },
};

use proptest::prelude::*;

use super::{
    driver::{Driver, Endpoint, START, answers, status},
    expiry::busy_until,
    plain, without_probation,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Suspended by the first failure; one request at a time, with one event.
fn strict() -> SubscriptionSettings {
    SubscriptionSettings {
        suspend_after: 1,
        ..plain()
    }
}

/// An endpoint that fails on demand, and takes a second for every success.
fn switched(well: &Rc<Cell<bool>>) -> Endpoint {
    let well = Rc::clone(well);
    Box::new(move |_: &OutgoingBatch| {
        Some(if well.get() {
            (Duration::from_secs(1), status(200))
        } else {
            (Duration::ZERO, status(503))
        })
    })
}

/// An endpoint that was down while 1,000 events came, and is back.
fn returned(well: &Rc<Cell<bool>>) -> Driver {
    let mut driver = Driver::new(strict(), switched(well));
    driver.publish(&[("yes", 10); 1000]);
    driver.run_for(MINUTE);
    well.set(true);
    // Until the probe has come back.
    for _ in 0..1000 {
        if driver.disk.cursor.lanes.len() > 1 {
            return driver;
        }
        driver.run_for(Duration::from_millis(500));
    }
    panic!("no backlog lane: {:?}", driver.disk.cursor);
}

fn lanes(driver: &Driver) -> Vec<(Lane, u64, Option<u64>)> {
    let part = |lane: &LaneCursor| (lane.lane, lane.read.0, lane.end.map(|end| end.0));
    driver.disk.cursor.lanes.iter().map(part).collect()
}

#[test]
fn live_events_after_a_return_do_not_wait_behind_the_backlog() {
    let well = Rc::new(Cell::new(false));
    let mut driver = returned(&well);
    assert_eq!(lanes(&driver)[0], (Lane::LIVE, 1001, None));
    assert_eq!(lanes(&driver)[1].2, Some(1001));
    let before = driver.order.len();
    driver.publish(&[("yes", 10); 3]);
    driver.run_for(Duration::from_secs(10));
    let place = |seq| {
        driver
            .order
            .iter()
            .position(|sent| *sent == (Lane::LIVE, Seq(seq)))
            .expect("it was sent")
    };
    assert!(
        place(1003) - before <= 8,
        "the third live event was sent as number {}",
        place(1003) - before
    );
    driver.run();
    assert_eq!(driver.disk.cursor.counters.delivered, 1003);
    assert_eq!(
        lanes(&driver),
        [(Lane::LIVE, 1004, None)],
        "a finished lane is no more"
    );
}

#[test]
fn live_events_have_nine_of_ten_turns_and_the_backlog_and_retries_share_one() {
    // Ten failures suspend it; then every event with an even place fails for ever, and three in a
    // row are the most.
    let mut turn = 0;
    let endpoint = Box::new(move |request: &OutgoingBatch| {
        turn += 1;
        let fails = turn <= 10 || request.items.iter().any(|item| item.seq.0 % 2 == 0);
        Some((
            Duration::from_secs(1),
            status(if fails { 500 } else { 200 }),
        ))
    });
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 10,
            edition: without_probation(),
            ..plain()
        },
        endpoint,
    );
    driver.publish(&[("yes", 10); 1001]);
    driver.run_for(MINUTE);
    driver.publish(&[("yes", 10); 500]);
    driver.run_for(2 * MINUTE);
    let known: BTreeSet<(Lane, Seq)> = driver.order.iter().copied().collect();
    let from = driver.order.len();
    driver.run_for(Duration::from_secs(100));
    let all = &driver.order[from..];
    let mut first: Vec<(Lane, Seq)> = all
        .iter()
        .copied()
        .filter(|key| !known.contains(key))
        .collect();
    first.sort_unstable();
    first.dedup();
    let live = first.iter().filter(|(lane, _)| *lane == Lane::LIVE).count();
    let backlog = first.len() - live;
    assert_eq!((live, backlog, all.len() - first.len()), (90, 5, 5));
}

#[test]
fn without_retries_no_turn_is_lost() {
    let well = Rc::new(Cell::new(false));
    let mut driver = returned(&well);
    driver.publish(&[("yes", 10); 500]);
    driver.run_for(MINUTE);
    let from = driver.order.len();
    driver.run_for(Duration::from_secs(100));
    let live = driver.order[from..]
        .iter()
        .filter(|(lane, _)| *lane == Lane::LIVE)
        .count();
    assert_eq!(
        (driver.order.len() - from, live),
        (100, 90),
        "the turn of the retries falls to the live events"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A fresh event does not wait for the backlog as long as live events leave a tenth of the
    /// endpoint's time to it, and no time is lost: an endpoint that takes one request at a time has
    /// one, until nothing waits.
    #[test]
    fn a_fresh_event_waits_for_few_requests_while_a_backlog_is_sent(
        latency in 1_u64..50,
        interval_share in 115_u64..400,
        backlog in 300_usize..1_000,
    ) {
        let latency = Duration::from_millis(latency);
        let interval = latency * u32::try_from(interval_share).expect("small") / 100;
        let well = Rc::new(Cell::new(false));
        let is_well = Rc::clone(&well);
        let endpoint: Endpoint = Box::new(move |_: &OutgoingBatch| {
            let response = if is_well.get() { 200 } else { 503 };
            Some((latency, status(response)))
        });
        let mut driver = Driver::new(strict(), endpoint);
        driver.publish(&vec![("yes", 10); backlog]);
        driver.run_for(MINUTE);
        well.set(true);
        while driver.disk.cursor.lanes.len() < 2 {
            driver.run_for(latency);
        }
        let first = driver.left.len();
        let mut published = BTreeMap::new();
        while driver.disk.cursor.lanes.len() > 1 {
            published.insert((Lane::LIVE, driver.end()), driver.now);
            driver.publish(&[("yes", 10)]);
            driver.run_for(interval);
        }
        prop_assert!(published.len() > backlog / 4, "{} fresh events", published.len());
        let waits = driver.order.iter().zip(&driver.left).filter_map(|(key, left)| {
            Some(left.since(*published.get(key)?))
        });
        let longest_wait = waits.max().expect("some were sent");
        prop_assert!(longest_wait <= 6 * latency, "{longest_wait:?} of {latency:?}");
        let backlog_sent = driver.order.iter().rposition(|(lane, _)| *lane == Lane::BACKLOG);
        let times = &driver.left[first..=backlog_sent.expect("there was a backlog")];
        prop_assert!(times.windows(2).all(|two| two[1].since(two[0]) == latency));
    }
}

#[test]
fn a_small_backlog_and_one_that_an_operator_made_keep_their_order() {
    let settings = SubscriptionSettings {
        concurrency_max: 1,
        ..strict()
    };
    let mut driver = Driver::new(settings.clone(), busy_until(START.after(MINUTE)));
    driver.publish(&[("yes", 10); 200]);
    driver.run();
    assert!(
        driver.order.iter().all(|(lane, _)| *lane == Lane::LIVE),
        "fewer than the bound"
    );

    let mut driver = Driver::new(settings, answers(vec![status(200)]));
    driver.command(Command::Hold);
    driver.publish(&[("yes", 10); 2000]);
    driver.run_for(MINUTE);
    driver.command(Command::Resume);
    driver.run();
    let expected: Vec<(Lane, Seq)> = (1..=2000).map(|seq| (Lane::LIVE, Seq(seq))).collect();
    assert_eq!(
        driver.order, expected,
        "nothing failed, so first in is first out"
    );
}

#[test]
fn a_second_return_extends_a_backlog_that_nothing_live_has_passed_and_else_leaves_live_what_is_live()
 {
    let well = Rc::new(Cell::new(false));
    let mut driver = returned(&well);
    // Down again before any live event came.
    well.set(false);
    driver.run_for(MINUTE);
    driver.publish(&[("yes", 10); 500]);
    well.set(true);
    driver.run_for(10 * MINUTE);
    let found = lanes(&driver);
    assert_eq!(
        (found[0], found[1].2),
        ((Lane::LIVE, 1501, None), Some(1501)),
        "it was extended"
    );

    driver.publish(&[("yes", 10); 10]);
    driver.run_for(MINUTE);
    assert_eq!(lanes(&driver)[0], (Lane::LIVE, 1511, None));
    well.set(false);
    driver.run_for(MINUTE);
    driver.publish(&[("yes", 10); 500]);
    well.set(true);
    // Suspended for a minute or two, and back: the backlog of before is unfinished.
    driver.run_for(4 * MINUTE);
    let found = lanes(&driver);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].1 > 1511 && found[0].1 < 2011 && found[1].2 == Some(1501),
        "{found:?}"
    );
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.passed, counters.delivered, counters.pending),
        (2010, 2010, 0)
    );
    assert_eq!(lanes(&driver), [(Lane::LIVE, 2011, None)]);
}

#[test]
fn a_crash_behind_any_write_after_a_return_loses_and_repeats_nothing_that_was_durable() {
    for writes in 1..40 {
        let well = Rc::new(Cell::new(false));
        let mut driver = returned(&well);
        driver.publish(&[("yes", 10); 20]);
        driver.writes_left = writes;
        driver.run();
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (counters.passed, counters.delivered, counters.pending),
            (1020, 1020, 0),
            "behind write {writes}"
        );
        let mut sent = driver.order.len();
        // Each crash repeats what was in flight, and the probes before the return failed.
        sent -= 1020;
        assert!(sent <= 5, "{sent} requests too many behind write {writes}");
    }
}

#[test]
fn filtered_events_have_one_entry_per_block_of_the_ledger() {
    let mut driver = Driver::new(
        SubscriptionSettings {
            concurrency_max: 100,
            ..plain()
        },
        answers(vec![status(200)]),
    );
    let mixed: Vec<(&str, usize)> = (0..90)
        .map(|at| (if at % 3 == 0 { "yes" } else { "no" }, 10))
        .collect();
    driver.publish(&mixed);
    driver.run();
    let hull = |first, end| FilteredOut {
        lane: Lane::LIVE,
        version: 1,
        first: Seq(first),
        end: Seq(end),
    };
    assert_eq!(
        driver.disk.cursor.filtered_out,
        [hull(2, 91)],
        "no line yet: the cursor has it"
    );
    let filtered = LedgerEvent::Filtered { version: 1 };
    let ledger = driver.ledger.len();
    assert!(driver.noted(Lane::LIVE, filtered.clone()).is_empty());
    driver.crash();
    for _ in 0..90 {
        driver.publish(&mixed);
        driver.run();
    }
    let lines: Vec<_> = driver
        .ledger
        .iter()
        .filter(|(_, entry)| entry.what == filtered)
        .collect();
    assert_eq!(lines.len(), 1, "8,190 events end in the second block");
    let noted = driver.noted(Lane::LIVE, filtered);
    assert_eq!(
        (noted[0], driver.disk.cursor.filtered_out.len()),
        (2, 1),
        "nor is what a crash found forgotten"
    );
    assert_eq!(
        driver.disk.cursor.filtered_out[0].first.0,
        noted[noted.len() - 1] + 2,
        "between them is a match"
    );
    assert_eq!(driver.disk.cursor.filtered_out[0].end, Seq(8191));
    assert!(
        driver.ledger.len() - ledger < 3000,
        "and each request has its own"
    );
}
