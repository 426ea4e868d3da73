//! Order by key with `onFailure: block`: what waits, the decisions of an operator, and the cost.

use std::{fs, ops::Range, sync::Arc, time::Duration};

use gridhook::{
    event::{RequestId, Seq},
    policy::{
        Input, OutgoingBatch, SubscriptionSettings,
        filter::key::FilterKey,
        order::{OrderHash, OrderSettings},
        record::{BLOCKING, Command, CommandRefused, OrderView},
        retry::Jitter,
    },
};

use super::{
    driver::{Driver, answers, status},
    plain, without_probation,
};
use crate::support::needs::many;

fn blocking(tracked_max: usize) -> SubscriptionSettings {
    let order = OrderSettings {
        key: FilterKey::from("subject".to_owned()),
        tracked_max,
        blocks: true,
        one_of_a_key: false,
    };
    SubscriptionSettings {
        order: Some(Arc::new(order)),
        concurrency_max: 16,
        edition: without_probation(),
        ..plain()
    }
}

fn order(driver: &Driver) -> OrderView {
    *driver
        .core
        .view_endpoint(driver.now)
        .order
        .expect("it has an order")
}

fn sent(driver: &Driver) -> Vec<u64> {
    driver.order.iter().map(|(_, seq)| seq.0).collect()
}

/// An endpoint that refuses these events the first time.
fn refusing(seqs: &'static [u64]) -> Driver {
    let mut refused = Vec::new();
    Driver::new(
        blocking(100),
        Box::new(move |request| {
            let seq = request.items[0].seq.0;
            let refuses = seqs.contains(&seq) && !refused.contains(&seq);
            refused.push(seq);
            Some((Duration::ZERO, status(if refuses { 400 } else { 200 })))
        }),
    )
}

#[test]
fn an_event_that_is_given_up_blocks_its_key_and_no_other() {
    let mut driver = refusing(&[1]);
    driver.publish(&[
        ("yes-a", 1),
        ("yes-a", 1),
        ("yes-b", 1),
        ("yes-a", 1),
        ("yes-b", 1),
    ]);
    driver.run();
    assert_eq!(sent(&driver), [1, 3, 5]);
    let view = OrderView {
        keys: 1,
        events: 2,
        blocked: 1,
        first_blocking: Some(Seq(1)),
        tracked: 3,
        tracked_max: 100,
    };
    assert_eq!(order(&driver), view);
    assert_eq!(
        driver.disk.cursor.counters.pending, 3,
        "nothing is given up"
    );
    assert_eq!(driver.disk.cursor.next_due, Some(BLOCKING));
    for _ in 0..2 {
        driver.crash();
        driver.run_for(Duration::from_secs(90 * 24 * 3600));
        assert_eq!(
            (order(&driver), sent(&driver).len()),
            (view, 3),
            "neither a crash nor time lifts it"
        );
    }
}

#[test]
fn an_operator_has_it_given_up_or_attempted_again() {
    for (retry, delivered, order_of_sends) in
        [(false, 3, &[1, 3, 2, 4][..]), (true, 4, &[1, 3, 1, 2, 4])]
    {
        let mut driver = refusing(&[1]);
        driver.publish(&[("yes-a", 1), ("yes-a", 1), ("yes-b", 1), ("yes-a", 1)]);
        driver.run();
        for (key, refusal) in [("yes-b", Some(CommandRefused::NotBlocked)), ("yes-a", None)] {
            let command = Command::Unblock {
                key: Some(OrderHash::hash_value(key)),
                retry,
            };
            assert_eq!(driver.core.command_problem(command), refusal, "{key}");
            driver.command(command);
        }
        driver.run();
        let counters = driver.disk.cursor.counters;
        assert_eq!(sent(&driver), order_of_sends);
        assert_eq!(
            (counters.delivered, counters.dead_lettered, counters.pending),
            (delivered, 4 - delivered, 0)
        );
        assert_eq!(
            order(&driver),
            OrderView {
                tracked_max: 100,
                ..OrderView::default()
            }
        );
        assert_eq!(
            driver
                .core
                .command_problem(Command::Unblock { key: None, retry }),
            Some(CommandRefused::NotBlocked)
        );
    }
}

#[test]
fn another_attempt_has_no_age_and_what_waited_too_long_behind_it_is_given_up() {
    let mut driver = refusing(&[1]);
    driver.publish(&[("yes-a", 1), ("yes-a", 1)]);
    driver.run_for(Duration::from_secs(90 * 24 * 3600));
    driver.publish(&[("yes-a", 1)]);
    driver.command(Command::Unblock {
        key: None,
        retry: true,
    });
    // The decision is durable. The attempt in flight is made again.
    driver.crash();
    driver.run();
    assert_eq!(sent(&driver), [1, 1, 1, 3]);
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.pending),
        (2, 1, 0)
    );
}

#[test]
fn an_attempt_that_fails_again_blocks_again() {
    let mut driver = Driver::new(
        blocking(100),
        Box::new(|_: &_| Some((Duration::ZERO, status(503)))),
    );
    driver.publish(&[("yes-a", 1), ("yes-a", 1)]);
    driver.run();
    let attempts = driver.left.len();
    assert_eq!(order(&driver).blocked, 1, "after {attempts} attempts");
    for more in 1..3 {
        driver.command(Command::Unblock {
            key: None,
            retry: true,
        });
        driver.run();
        assert_eq!(
            (order(&driver).blocked, driver.left.len()),
            (1, attempts + more)
        );
    }
    driver.command(Command::Unblock {
        key: None,
        retry: false,
    });
    driver.run();
    assert_eq!(
        driver.disk.cursor.counters.dead_lettered, 2,
        "the second one waited too long behind it"
    );
}

#[test]
fn a_late_success_lifts_it_and_skip_lifts_all() {
    let refuse = Box::new(|_: &_| Some((Duration::ZERO, status(400))));
    let mut driver = Driver::new(blocking(100), refuse);
    driver.publish(&[("yes-a", 1), ("yes-b", 1), ("yes-a", 1)]);
    driver.run();
    assert_eq!(order(&driver).blocked, 2);
    driver.late(1);
    driver.run();
    assert_eq!(
        sent(&driver),
        [1, 2, 3],
        "the next one goes, and blocks in its turn"
    );
    assert_eq!(
        (
            order(&driver).blocked,
            driver.disk.cursor.counters.delivered
        ),
        (2, 1)
    );
    let mut skip = blocking(100);
    skip.order = skip.order.map(|order| {
        Arc::new(OrderSettings {
            blocks: false,
            ..(*order).clone()
        })
    });
    driver.restart(skip);
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.dead_lettered, counters.pending),
        (2, 0),
        "each is attempted once more and given up"
    );
}

#[test]
fn without_an_order_what_blocked_is_attempted_once_more_whatever_its_age() {
    let mut driver = refusing(&[1]);
    driver.publish(&[("yes-a", 1), ("yes-b", 1)]);
    driver.run_for(Duration::from_secs(90 * 24 * 3600));
    driver.restart(SubscriptionSettings {
        order: None,
        ..blocking(100)
    });
    driver.run();
    assert_eq!(sent(&driver), [1, 2, 1]);
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.pending),
        (2, 0, 0)
    );
}

#[test]
fn events_that_no_longer_block_are_attempted_once_more_in_bounded_writes() {
    const EVENTS: u64 = 3000;
    for (key, blocks) in [("subject", false), ("data.nowhere", true)] {
        let mut refused = 0;
        let endpoint = move |_: &_| {
            refused += 1;
            Some((
                Duration::ZERO,
                status(if refused <= EVENTS { 400 } else { 200 }),
            ))
        };
        let mut driver = Driver::new(blocking(10_000), Box::new(endpoint));
        driver.is_large();
        publish(&mut driver, 0..EVENTS as usize, 1);
        assert_eq!(order(&driver).blocked, EVENTS as usize);
        let order = OrderSettings {
            key: FilterKey::from(key.to_owned()),
            tracked_max: 10_000,
            blocks,
            one_of_a_key: false,
        };
        driver.settings.order = Some(Arc::new(order));
        driver.largest_write = 0;
        driver.revive();
        // A late success while earlier events are rescheduled.
        driver.late(EVENTS);
        driver.run();
        let counters = driver.disk.cursor.counters;
        assert_eq!(
            (counters.delivered, counters.dead_lettered, counters.pending),
            (EVENTS, 0, 0),
            "{key}"
        );
        assert_eq!(
            (sent(&driver).len() as u64, driver.disk.pending.len()),
            (2 * EVENTS - 1, 0),
            "{key}"
        );
        assert_eq!(driver.moved_by_commands, 0, "no command decided");
        assert!(
            driver.largest_write < 2048,
            "{key}: {} changes in one write",
            driver.largest_write
        );
    }
}

#[test]
fn events_that_an_order_moves_behind_another_are_written_in_bounded_writes() {
    const EVENTS: u64 = 3000;
    let mut asked = 0;
    let endpoint = move |_: &_| {
        asked += 1;
        Some((
            Duration::ZERO,
            status(if asked <= EVENTS { 503 } else { 200 }),
        ))
    };
    let unordered = SubscriptionSettings {
        order: None,
        ..blocking(10_000)
    };
    let mut driver = Driver::new(unordered, Box::new(endpoint));
    driver.is_large();
    driver.publish(&vec![("yes", 1); EVENTS as usize]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(driver.disk.cursor.counters.pending, EVENTS);
    driver.settings.order = blocking(10_000).order;
    driver.largest_write = 0;
    driver.revive();
    driver.absorb(Input::Tick);
    let OrderView { keys, events, .. } = order(&driver);
    assert_eq!(
        (keys, events),
        (1, EVENTS as usize - 1),
        "all have one subject: the first goes first"
    );
    driver.run();
    assert_eq!(
        sent(&driver)[EVENTS as usize..],
        (1..=EVENTS).collect::<Vec<_>>(),
        "in order"
    );
    assert_eq!(driver.disk.cursor.counters.delivered, EVENTS);
    assert!(
        driver.largest_write < 2048,
        "{} changes in one write",
        driver.largest_write
    );
}

#[test]
fn a_decision_is_not_carried_out_before_a_write_contains_it() {
    let mut driver = refusing(&[1]);
    driver.publish(&[("yes-a", 1), ("yes-a", 1)]);
    driver.run();
    let mut absorb = |input| {
        let step = driver.core.process_input(input, driver.now, Jitter(0.0));
        (
            step.write.map(|write| write.moved_by_commands),
            driver.core.is_deciding(),
        )
    };
    assert_eq!(
        absorb(Input::Command(Command::Hold)),
        (Some(Some(0)), false)
    );
    // The write of the first command is in progress.
    assert_eq!(
        absorb(Input::Command(Command::Unblock {
            key: None,
            retry: true
        })),
        (None, true)
    );
    assert_eq!(absorb(Input::Durable), (Some(Some(1)), false));
}

/// The first event of a key is in flight for the second time, for a minute, after its first attempt
/// timed out.
fn twice_in_flight() -> Driver {
    let mut answers = 0;
    let timed_out = move |_: &_| {
        answers += 1;
        let (after, response) = if answers == 1 {
            (10, status(503))
        } else {
            (60, status(200))
        };
        Some((Duration::from_secs(after), response))
    };
    let mut driver = Driver::new(blocking(100), Box::new(timed_out));
    driver.publish(&[("yes-a", 1), ("yes-a", 1)]);
    while sent(&driver).len() < 2 {
        driver.run_for(Duration::from_secs(1));
    }
    assert_eq!(sent(&driver), [1, 1]);
    driver
}

#[test]
fn a_late_success_waits_for_the_other_request_of_its_event_also_in_a_new_incarnation() {
    for revived in [false, true] {
        let mut driver = twice_in_flight();
        driver.late(1);
        if revived {
            driver.revive();
            driver.absorb(Input::Tick);
        }
        driver.run_for(Duration::from_secs(30));
        assert_eq!(
            driver.disk.cursor.counters.delivered, 1,
            "the late success counts at once"
        );
        assert_eq!(
            sent(&driver),
            [1, 1],
            "the endpoint may still process the first event"
        );
        driver.run();
        assert_eq!(sent(&driver), [1, 1, 2]);
        assert_eq!(driver.disk.cursor.counters.delivered, 2);
    }
}

#[test]
fn an_event_that_waits_for_a_retry_keeps_its_turn_when_its_first_attempt_is_quarantined() {
    let mut settings = blocking(100);
    settings.order = settings.order.map(|order| {
        Arc::new(OrderSettings {
            blocks: false,
            ..(*order).clone()
        })
    });
    let mut driver = Driver::new(
        settings,
        answers(vec![status(503), status(503), status(200)]),
    );
    driver.publish(&[("yes-a", 1), ("yes-a", 1)]);
    driver.run_for(Duration::from_secs(1));
    let first = driver.sent[&RequestId(1)].items[0];
    driver.absorb(Input::Quarantine(first));
    driver.run();
    assert_eq!(sent(&driver), [1, 1, 1, 2]);
    assert_eq!(driver.disk.cursor.counters.delivered, 2);
}

/// Bytes of memory that the process uses, and its processor time.
fn used() -> (u64, Duration) {
    let fields = |path: &str| fs::read_to_string(path).expect("Linux has it");
    let pages = fields("/proc/self/statm")
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    let nanos = fields("/proc/thread-self/schedstat")
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok());
    (
        4096 * pages.expect("a number"),
        Duration::from_nanos(nanos.expect("a number")),
    )
}

/// Prints the processor time and the memory of a step.
fn measure(what: &str, step: impl FnOnce()) {
    let (bytes, busy) = used();
    step();
    let (bytes_after, busy_after) = used();
    let grown = bytes_after.saturating_sub(bytes) >> 10;
    println!(
        "{what}: {:?} of processor time, {grown} KiB more memory",
        busy_after.saturating_sub(busy)
    );
}

#[test]
fn blocked_keys_cost_what_is_behind_them_and_other_keys_nothing() {
    let keys = many(20_000, 1_000_000);
    let blocked = keys / 100;
    let endpoint = move |request: &OutgoingBatch| {
        let seq = request.items[0].seq.0;
        Some((
            Duration::ZERO,
            status(if seq <= keys as u64 && seq % 100 == 1 {
                400
            } else {
                200
            }),
        ))
    };
    let mut driver = Driver::new(blocking(10 * blocked), Box::new(endpoint));
    driver.is_large();
    // The log of the test is in memory, too.
    measure(
        &format!("{keys} events of as many keys, {blocked} of which block"),
        || {
            for first in (0..keys).step_by(1000) {
                publish(&mut driver, first..first + 1000, 1);
            }
        },
    );
    let view = order(&driver);
    assert_eq!(
        (view.blocked, view.tracked),
        (blocked, blocked),
        "of all other keys nothing is kept"
    );
    assert_eq!(
        driver.disk.cursor.counters.delivered,
        (keys - blocked) as u64
    );
    measure(&format!("{blocked} more events behind them"), || {
        for first in (0..keys).step_by(100_000) {
            publish(&mut driver, first..keys.min(first + 100_000), 100);
        }
    });
    let view = order(&driver);
    assert_eq!((view.events, view.tracked), (blocked, 2 * blocked));
    // The former state machine stays, so that the memory of the next one is seen.
    let former = std::mem::replace(
        &mut driver.core,
        Driver::new(blocking(1), Box::new(|_| None)).core,
    );
    measure("the state machine of a new process", || {
        driver.crash();
        driver.run();
    });
    drop(former);
    assert_eq!(order(&driver), view);
    driver.largest_write = 0;
    measure("all of them given up", || {
        driver.command(Command::Unblock {
            key: None,
            retry: false,
        });
        driver.run();
    });
    assert_eq!((order(&driver).blocked, order(&driver).tracked), (0, 0));
    assert_eq!(driver.disk.cursor.counters.dead_lettered, blocked as u64);
    assert!(
        driver.largest_write < 8192,
        "{} changes in one write",
        driver.largest_write
    );
}

fn publish(driver: &mut Driver, keys: Range<usize>, step: usize) {
    let subjects: Vec<String> = keys.step_by(step).map(|key| format!("yes-{key}")).collect();
    driver.publish(
        &subjects
            .iter()
            .map(|subject| (subject.as_str(), 1))
            .collect::<Vec<_>>(),
    );
    driver.run();
}
