use std::time::Duration;

use gridhook::{
    dead_letter::{
        DeadLetterTarget, WaitingDeadLetters,
        staging::{Staging, StagingRules, TurnReport},
    },
    event::Timestamp,
};

use super::{subscription_key, target};

/// Two at once; 1 s after a failure, then 2 s, at most 3 s. The window is 4 hours.
const RULES: StagingRules = StagingRules {
    at_once: 2,
    retry_first: Duration::from_secs(1),
    retry_max: Duration::from_secs(3),
};

/// Long before every window.
fn at(seconds: u64) -> Timestamp {
    Timestamp(1_000_000_000_000).after(Duration::from_secs(seconds))
}

fn waiting(subscription: u32, due: u64) -> WaitingDeadLetters {
    let retry = [1, 2, 3].map(Duration::from_secs).to_vec();
    WaitingDeadLetters {
        subscription_key: subscription_key(subscription),
        target: DeadLetterTarget {
            retry,
            ..target("letters")
        },
        due: at(due),
    }
}

fn staging(all: &[(u32, u64)]) -> Staging {
    let mut staging = Staging::new(RULES);
    for (subscription, due) in all {
        staging.enqueue_waiting(waiting(*subscription, *due));
    }
    staging
}

/// The subscriptions whose turn it is.
fn take(staging: &mut Staging, now: u64) -> Vec<u32> {
    staging
        .take_turns(at(now))
        .iter()
        .map(|job| job.subscription_key.subscription.0)
        .collect()
}

fn done(staging: &mut Staging, subscription: u32, next: Option<u64>, now: u64) {
    staging.finish_turn(
        subscription_key(subscription),
        TurnReport::Done { next: next.map(at) },
        at(now),
    );
}

#[test]
fn no_turn_starts_before_it_is_due() {
    let mut staging = staging(&[(1, 300), (2, 200)]);
    assert_eq!(
        (take(&mut staging, 199), staging.next_due()),
        (vec![], Some(at(200)))
    );
    assert_eq!(
        (take(&mut staging, 200), staging.next_due()),
        (vec![2], Some(at(300)))
    );
}

#[test]
fn the_earliest_of_several_due_times_counts() {
    let mut staging = staging(&[(1, 300), (1, 200), (1, 400)]);
    assert_eq!(staging.next_due(), Some(at(200)));
    assert_eq!(take(&mut staging, 500), [1]);
    done(&mut staging, 1, None, 500);
    assert_eq!(staging.next_due(), None);
}

#[test]
fn a_message_enqueued_during_a_turn_causes_another() {
    let mut staging = staging(&[(1, 0)]);
    assert_eq!(take(&mut staging, 0), [1]);
    staging.enqueue_waiting(waiting(1, 250));
    staging.enqueue_waiting(waiting(1, 300));
    assert_eq!(
        take(&mut staging, 300),
        [] as [u32; 0],
        "one turn at a time"
    );
    done(&mut staging, 1, Some(280), 1);
    assert_eq!(staging.next_due(), Some(at(250)));
}

#[test]
fn the_number_of_running_turns_is_limited() {
    let mut staging = staging(&[(1, 1), (2, 2), (3, 3)]);
    assert_eq!(
        (take(&mut staging, 5), staging.next_due()),
        (vec![1, 2], None)
    );
    done(&mut staging, 2, None, 6);
    assert_eq!(
        (take(&mut staging, 6), staging.running_turns()),
        (vec![3], 2)
    );
}

#[test]
fn a_subscription_with_more_queues_behind_those_that_are_due() {
    let mut staging = staging(&[(1, 1), (2, 2), (3, 4)]);
    assert_eq!(take(&mut staging, 5), [1, 2]);
    done(&mut staging, 1, Some(1), 5);
    assert_eq!(take(&mut staging, 5), [3], "its own next was due at 1");
    done(&mut staging, 2, None, 5);
    assert_eq!(take(&mut staging, 5), [1]);
}

#[test]
fn failures_back_off_and_what_is_enqueued_shortens_nothing() {
    for report in [TurnReport::Unreachable, TurnReport::Broken] {
        let mut staging = staging(&[(1, 0)]);
        let mut now = 0;
        for wait in [1, 2, 3, 3] {
            assert_eq!(take(&mut staging, now), [1]);
            staging.finish_turn(subscription_key(1), report, at(now));
            staging.enqueue_waiting(waiting(1, 0));
            assert_eq!(staging.next_due(), Some(at(now + wait)));
            now += wait;
        }
        assert_eq!(take(&mut staging, now), [1]);
        done(&mut staging, 1, Some(now), now);
        assert_eq!(take(&mut staging, now), [1]);
        staging.finish_turn(subscription_key(1), report, at(now));
        assert_eq!(
            staging.next_due(),
            Some(at(now + 1)),
            "a success begins the count again"
        );
    }
}

#[test]
fn a_report_without_a_running_turn_changes_nothing() {
    let mut staging = staging(&[(1, 5)]);
    staging.finish_turn(subscription_key(1), TurnReport::Unreachable, at(0));
    staging.finish_turn(subscription_key(2), TurnReport::Unreachable, at(0));
    assert_eq!(
        (staging.next_due(), staging.running_turns()),
        (Some(at(5)), 0)
    );
}

#[test]
fn no_turn_starts_after_closing() {
    let mut staging = staging(&[(1, 0)]);
    staging.close();
    assert_eq!((take(&mut staging, 9), staging.next_due()), (vec![], None));
}

#[test]
fn a_changed_target_is_used() {
    let mut staging = staging(&[(1, 0)]);
    staging.enqueue_waiting(WaitingDeadLetters {
        target: target("elsewhere"),
        ..waiting(1, 50)
    });
    assert_eq!(
        staging
            .take_turns(at(0))
            .pop()
            .expect("a turn")
            .target
            .folder,
        "elsewhere"
    );
}
