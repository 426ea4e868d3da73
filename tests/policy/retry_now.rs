//! Retries that an operator brings forward: which events are sent, which stay as they are, and
//! which are refused.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Input, PullSettings, SubscriptionSettings,
        filter::key::FilterKey,
        order::OrderSettings,
        record::{Command, CommandRefused, DueKey, Health, RetryRequest},
    },
};

use super::{
    driver::{Driver, Endpoint, answers, status},
    plain,
};

const MOMENT: Duration = Duration::from_secs(1);

/// Three events that failed once and are due later.
fn pending(settings: SubscriptionSettings, endpoint: Endpoint) -> Driver {
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10), ("yes", 10), ("yes", 10)]);
    driver.run_for(MOMENT);
    assert_eq!((driver.disk.pending.len(), driver.left.len()), (3, 3));
    assert!(driver.disk.due.iter().all(|key| key.due > driver.now));
    driver
}

fn patient() -> SubscriptionSettings {
    SubscriptionSettings {
        suspend_after: 100,
        ..plain()
    }
}

fn keys(driver: &Driver) -> Vec<DueKey> {
    driver.disk.due.iter().copied().collect()
}

fn retry(seqs: &[u64]) -> Input {
    let keys = seqs.iter().map(|seq| (Lane::LIVE, Seq(*seq))).collect();
    Input::Retry(RetryRequest {
        keys,
        tried_before: Timestamp::NEVER,
    })
}

#[test]
fn retries_brought_forward_are_sent_now_and_the_others_when_they_are_due() {
    let mut driver = pending(
        patient(),
        answers(vec![status(503), status(503), status(503), status(200)]),
    );
    driver.absorb(retry(&[2, 99]));
    driver.run_for(Duration::ZERO);
    assert_eq!(driver.order.last().map(|(_, seq)| *seq), Some(Seq(2)));
    assert_eq!(
        (
            driver.left.len(),
            driver.disk.pending.len(),
            driver.moved_by_commands
        ),
        (4, 2, 1)
    );
    // It has ended: asked for again, it changes nothing.
    driver.absorb(retry(&[2]));
    driver.run_for(Duration::ZERO);
    assert_eq!((driver.left.len(), driver.moved_by_commands), (4, 1));
    driver.absorb(retry(&[1, 2, 3]));
    driver.run_for(Duration::ZERO);
    assert_eq!(
        (
            driver.left.len(),
            driver.disk.pending.len(),
            driver.disk.cursor.counters.delivered
        ),
        (6, 0, 3)
    );
}

#[test]
fn an_attempt_that_was_brought_forward_counts_and_the_next_wait_follows_the_schedule() {
    let mut driver = pending(patient(), answers(vec![status(503)]));
    driver.absorb(retry(&[1, 2, 3]));
    driver.run_for(Duration::ZERO);
    assert_eq!(driver.left.len(), 6);
    assert!(
        driver
            .disk
            .pending
            .values()
            .all(|pending| pending.attempts == 2),
        "{:?}",
        driver.disk.pending
    );
    assert!(
        driver.disk.due.iter().all(|key| key.due > driver.now),
        "each waits again"
    );
    // A request that began before these attempts leaves them as they are.
    let keys = [1, 2, 3].map(|seq| (Lane::LIVE, Seq(seq))).to_vec();
    driver.absorb(Input::Retry(RetryRequest {
        keys,
        tried_before: driver.now,
    }));
    driver.run_for(Duration::ZERO);
    assert_eq!(driver.left.len(), 6);
}

#[test]
fn a_wait_of_the_endpoint_holds_and_what_was_brought_forward_leaves_after_it() {
    let script = vec![status(503), status(503), status(503), status(200)];
    let mut driver = pending(
        SubscriptionSettings {
            suspend_after: 3,
            ..plain()
        },
        answers(script),
    );
    let Health::Suspended { until, .. } = driver.core.cursor().health else {
        panic!("it is not suspended")
    };
    driver.absorb(retry(&[1, 2, 3]));
    driver.run_until(until.before(MOMENT));
    assert_eq!(driver.left.len(), 3, "nothing leaves before {until}");
    assert!(driver.disk.due.iter().all(|key| key.due < driver.now));
    driver.command(Command::Probe);
    driver.run_for(MOMENT);
    assert_eq!(driver.disk.cursor.counters.delivered, 3);
}

#[test]
fn it_is_durable_before_it_is_answered() {
    let mut driver = pending(
        patient(),
        answers(vec![status(503), status(503), status(503), status(200)]),
    );
    let before = driver.now;
    driver.absorb(Input::Command(Command::Probe));
    driver.absorb(retry(&[1, 2, 3]));
    driver.crash();
    assert!(
        keys(&driver).iter().all(|key| key.due <= before),
        "{:?}",
        keys(&driver)
    );
    driver.run_for(MOMENT);
    assert_eq!(driver.disk.cursor.counters.delivered, 3);
}

#[test]
fn a_decision_that_overtakes_the_disk_wins() {
    let mut driver = pending(patient(), answers(vec![status(503)]));
    driver.held_back = Some(VecDeque::new());
    driver.absorb(retry(&[1, 2]));
    // The first attempt of an event succeeds while the disk is read, and nothing is written until
    // it answers.
    let writes = driver.writes_left;
    driver.late(1);
    assert_eq!(driver.writes_left, writes);
    let answers = driver.held_back.take().into_iter().flatten();
    for response in answers {
        driver.absorb(response);
    }
    driver.run_for(Duration::ZERO);
    assert_eq!(driver.disk.cursor.counters.delivered, 1);
    assert_eq!(
        driver.moved_by_commands, 1,
        "only the other one is brought forward"
    );
    assert_eq!(driver.left.len(), 4);
}

#[test]
fn a_probation_that_began_while_the_disk_was_read_costs_no_event() {
    let settings = SubscriptionSettings {
        dead_letter: true,
        dead_letter_in_probation: true,
        suspend_after: 4,
        ..plain()
    };
    let mut driver = pending(
        settings,
        answers(vec![status(503), status(503), status(503), status(404)]),
    );
    driver.held_back = Some(VecDeque::new());
    driver.absorb(retry(&[1, 2, 3]));
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::ZERO);
    assert_eq!(
        driver.core.refuses_retry(driver.now),
        Some(CommandRefused::DeadLettering)
    );
    for response in driver.held_back.take().into_iter().flatten() {
        driver.absorb(response);
    }
    driver.run_for(Duration::ZERO);
    assert_eq!(driver.moved_by_commands, 0);
    let pending: Vec<u64> = driver.disk.pending.keys().map(|(_, seq)| seq.0).collect();
    assert!(pending.starts_with(&[1, 2, 3]), "{pending:?}");
}

#[test]
fn events_that_are_held_back_follow_the_first_of_their_key() {
    let order = OrderSettings {
        key: FilterKey::from("subject".to_owned()),
        tracked_max: 100,
        blocks: false,
        one_of_a_key: false,
    };
    let settings = SubscriptionSettings {
        order: Some(Arc::new(order)),
        ..patient()
    };
    let mut driver = Driver::new(settings, answers(vec![status(503), status(200)]));
    driver.publish(&[("yes-a", 1), ("yes-a", 1), ("yes-a", 1)]);
    driver.run_for(MOMENT);
    assert_eq!((driver.left.len(), driver.disk.pending.len()), (1, 3));
    driver.absorb(retry(&[3, 2]));
    driver.run_for(Duration::ZERO);
    assert_eq!((driver.left.len(), driver.moved_by_commands), (1, 0));
    driver.absorb(retry(&[1]));
    driver.run_for(Duration::ZERO);
    assert_eq!(
        driver
            .order
            .iter()
            .map(|(_, seq)| seq.0)
            .collect::<Vec<_>>(),
        [1, 1, 2, 3]
    );
}

#[test]
fn it_is_refused_while_held_for_pull_delivery_and_where_due_events_are_given_up() {
    let mut driver = pending(patient(), answers(vec![status(503)]));
    assert_eq!(driver.core.refuses_retry(driver.now), None);
    driver.command(Command::Hold);
    assert_eq!(
        driver.core.refuses_retry(driver.now),
        Some(CommandRefused::Held)
    );
    driver.absorb(retry(&[1]));
    driver.run_for(MOMENT);
    assert_eq!(driver.left.len(), 3, "nothing is sent while it is held");
    let pull = Some(PullSettings {
        lock: Duration::from_secs(60),
        leases_max: 10,
    });
    let pulled = Driver::new(
        SubscriptionSettings { pull, ..plain() },
        answers(vec![status(200)]),
    );
    assert_eq!(
        pulled.core.refuses_retry(pulled.now),
        Some(CommandRefused::Pulled)
    );
    let probation = SubscriptionSettings {
        dead_letter: true,
        dead_letter_in_probation: true,
        suspend_after: 1,
        ..plain()
    };
    let mut refusing = Driver::new(probation, answers(vec![status(404)]));
    refusing.publish(&[("yes", 10)]);
    refusing.run_for(MOMENT);
    assert_eq!(
        refusing.core.refuses_retry(refusing.now),
        Some(CommandRefused::DeadLettering)
    );
}
