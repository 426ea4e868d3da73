//! A million pending events, a window of some thousand keys.

use std::{collections::BTreeSet, time::Duration};

use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        record::DueKey,
        retry_window::{RetryWindow, WINDOW},
    },
};

/// No wait is longer.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn key(due: u64, seq: u64) -> DueKey {
    DueKey {
        due: Timestamp(due),
        lane: Lane::LIVE,
        seq: Seq(seq),
    }
}

#[test]
fn more_keys_than_the_window_holds_come_back_from_the_disk_in_order() {
    let total = 3 * WINDOW as u64;
    let mut window = RetryWindow::from_first_due(None, DAY);
    let mut disk = BTreeSet::new();
    // Every second one first, so that what runs over lies before and behind the horizon.
    for seq in (1..total).step_by(2).chain((0..total).step_by(2)) {
        window.insert(key(seq, seq));
        disk.insert(key(seq, seq));
    }
    window.begin_write();
    assert!(
        window.take_due(Timestamp::NEVER, 10, |_| true).is_empty(),
        "nothing is durable yet"
    );
    assert_eq!(
        window.next_wake(Timestamp(0)),
        None,
        "the word that it is durable will come"
    );
    window.finish_write();
    let mut taken = Vec::new();
    for _ in 0..1000 {
        for key in window.take_due(Timestamp::NEVER, 100, |_| true) {
            window.remove_pending(key);
            disk.remove(&key);
            taken.push(key.seq.0);
        }
        window.begin_write();
        window.finish_write();
        if let Some(from) = window.next_lookup(Timestamp::NEVER) {
            assert_eq!(
                window.next_lookup(Timestamp::NEVER),
                None,
                "one question at a time"
            );
            let keys: Vec<DueKey> = disk.range(from..).take(1000).copied().collect();
            window.add_stored(&keys, keys.len() < 1000, |_| false);
        }
    }
    assert_eq!(taken, (0..total).collect::<Vec<_>>());
    assert_eq!(
        (window.first_due(), window.next_wake(Timestamp(0))),
        (None, None)
    );
}

#[test]
fn a_stale_answer_of_the_disk_neither_revives_nor_omits_a_key() {
    let mut window = RetryWindow::from_first_due(Some(Timestamp(5)), DAY);
    assert_eq!(
        window.next_lookup(Timestamp(9)),
        Some(DueKey::first_at(Timestamp(5)))
    );
    let seen = [key(5, 1), key(6, 2)];
    // Meanwhile one is settled and another is pending; both are durable before the response comes.
    window.remove_pending(key(5, 1));
    window.insert(key(7, 3));
    window.begin_write();
    window.finish_write();
    window.add_stored(&seen, true, |_| false);
    assert_eq!(
        window.take_due(Timestamp(9), 9, |_| true),
        [key(6, 2), key(7, 3)]
    );
}

#[test]
fn a_key_that_is_in_the_answer_before_the_word_that_it_is_durable_comes_once() {
    let mut window = RetryWindow::from_first_due(Some(Timestamp(5)), DAY);
    window.insert(key(7, 3));
    window.begin_write();
    assert_eq!(
        window.next_lookup(Timestamp(9)),
        Some(DueKey::first_at(Timestamp(5)))
    );
    window.add_stored(&[key(7, 3)], true, |_| false);
    assert!(window.take_due(Timestamp(9), 9, |_| true).is_empty());
    window.finish_write();
    assert_eq!(window.take_due(Timestamp(9), 9, |_| true), [key(7, 3)]);
    assert!(window.take_due(Timestamp(9), 9, |_| true).is_empty());
}
