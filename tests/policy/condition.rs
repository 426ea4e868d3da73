//! The condition of an event subscription.

use gridhook::{
    event::Timestamp,
    policy::{
        condition::{Condition, ConditionFacts, WindowOutcomes, judge_condition},
        outcome::Failure,
        record::{Health, HeldBy},
    },
};

const NOTHING: WindowOutcomes = WindowOutcomes {
    requests: 0,
    failed: 0,
    delivered: 0,
    given_up: 0,
};

/// An endpoint that was never called.
fn facts() -> ConditionFacts {
    ConditionFacts {
        health: Health::Healthy { failures: 0 },
        held: None,
        lacks_receiver: false,
        waiting: 0,
        is_late: false,
        windows: [NOTHING; 3],
    }
}

fn outcomes(requests: u32, failed: u32, delivered: u32, given_up: u32) -> WindowOutcomes {
    WindowOutcomes {
        requests,
        failed,
        delivered,
        given_up,
    }
}

/// The condition and the judged window.
fn judge(facts: ConditionFacts) -> (Condition, Option<usize>) {
    let verdict = judge_condition(&facts);
    (verdict.condition, verdict.window)
}

#[test]
fn an_endpoint_that_refuses_everything_is_failing_although_it_is_never_suspended() {
    let all_refused = outcomes(10_628, 10_628, 0, 10_628);
    assert_eq!(
        judge(ConditionFacts {
            windows: [all_refused; 3],
            ..facts()
        }),
        (Condition::Failing, Some(0))
    );
    // A transformation that fails makes no request.
    let never_sent = outcomes(0, 0, 0, 4);
    assert_eq!(
        judge(ConditionFacts {
            windows: [never_sent; 3],
            ..facts()
        }),
        (Condition::Failing, Some(0))
    );
    let steady = outcomes(100, 12, 88, 0);
    assert_eq!(
        judge(ConditionFacts {
            windows: [steady; 3],
            ..facts()
        })
        .0,
        Condition::Failing
    );
    let good = outcomes(100, 9, 91, 0);
    assert_eq!(
        judge(ConditionFacts {
            windows: [good; 3],
            ..facts()
        })
        .0,
        Condition::Healthy
    );
}

#[test]
fn the_shortest_window_with_enough_outcomes_is_judged() {
    let bad = outcomes(50, 50, 0, 50);
    // Corrected a minute ago.
    assert_eq!(
        judge(ConditionFacts {
            windows: [outcomes(3, 0, 3, 0), bad, bad],
            ..facts()
        })
        .0,
        Condition::Healthy
    );
    assert_eq!(
        judge(ConditionFacts {
            windows: [outcomes(2, 0, 2, 0), bad, bad],
            ..facts()
        }),
        (Condition::Failing, Some(1))
    );
    // One request a day, which failed; and one that failed and one that did not.
    let windows = |day| [NOTHING, NOTHING, day];
    assert_eq!(
        judge(ConditionFacts {
            windows: windows(outcomes(1, 1, 0, 0)),
            ..facts()
        }),
        (Condition::Failing, Some(2))
    );
    assert_eq!(
        judge(ConditionFacts {
            windows: windows(outcomes(2, 1, 1, 0)),
            ..facts()
        })
        .0,
        Condition::Healthy
    );
}

#[test]
fn what_an_operator_did_comes_before_what_the_endpoint_does() {
    let bad = [outcomes(50, 50, 0, 50); 3];
    let suspended = Health::Probing {
        cause: Failure::TimedOut,
        since: Timestamp(1),
        consecutive_suspensions: 1,
    };
    let held = Some(HeldBy::ByOperator);
    assert_eq!(
        judge(ConditionFacts {
            windows: bad,
            health: suspended,
            held,
            waiting: 9,
            ..facts()
        })
        .0,
        Condition::Held
    );
    assert_eq!(
        judge(ConditionFacts {
            windows: bad,
            health: suspended,
            ..facts()
        })
        .0,
        Condition::Suspended
    );
}

#[test]
fn events_that_nobody_receives_wait_and_unread_ones_are_slow() {
    let lacks_receiver = true;
    assert_eq!(
        judge(ConditionFacts {
            lacks_receiver,
            waiting: 223,
            is_late: true,
            ..facts()
        })
        .0,
        Condition::Waiting
    );
    assert_eq!(
        judge(ConditionFacts {
            lacks_receiver,
            ..facts()
        })
        .0,
        Condition::Idle,
        "nothing is there to receive"
    );
    assert_eq!(
        judge(ConditionFacts {
            waiting: 5,
            is_late: true,
            ..facts()
        })
        .0,
        Condition::Slow
    );
    assert_eq!(
        judge(ConditionFacts {
            waiting: 5,
            ..facts()
        })
        .0,
        Condition::Healthy,
        "they came just now"
    );
    assert!(
        Condition::ALL.is_sorted() && Condition::Slow.is_sick() && !Condition::Healthy.is_sick()
    );
}
