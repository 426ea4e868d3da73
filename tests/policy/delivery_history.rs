//! The history of an event from its ledger lines, compared with a model that keeps no lines, also
//! if the oldest lines are gone.

use std::collections::BTreeMap;

use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        delivery_history::{DeadLetterState, HistoryEnd, HistoryInput, delivery_history},
        explain::EventState,
        filter,
        outcome::{Failure, Outcome, Reason},
        record::{Cursor, LaneCursor, LedgerEntry, LedgerEvent, LedgerLine, SeqRun},
    },
};
use proptest::prelude::*;

const SEQ: Seq = Seq(7);

fn line(at: u64, lane: Lane, attempt: u32, what: LedgerEvent) -> LedgerLine {
    LedgerLine {
        lane,
        attempt,
        entry: LedgerEntry {
            at: Timestamp(at),
            runs: vec![SeqRun::single(SEQ)],
            what,
        },
    }
}

fn attempted(at: u64, lane: Lane, attempt: u32, outcome: Outcome, next: Option<u64>) -> LedgerLine {
    let latency = std::time::Duration::from_millis(1);
    let next = next.map(Timestamp);
    line(
        at,
        lane,
        attempt,
        LedgerEvent::Attempted {
            outcome,
            status: None,
            latency,
            next,
            excerpt: None,
        },
    )
}

fn passed() -> Cursor {
    let lane = LaneCursor::new(Lane::LIVE, Seq(100), None);
    Cursor {
        lanes: vec![lane],
        began: Seq(1),
        ..Cursor::default()
    }
}

fn stopped() -> filter::FilterResult {
    filter::FilterResult::Stopped {
        clause: "subjectBeginsWith".to_owned(),
        why: "",
        seen: None,
    }
}

/// How an event of the model ends.
#[derive(Clone, Debug)]
enum End {
    Delivered,
    Late,
    Dropped,
    Waits,
    Filed,
    Lost,
    Redriven(bool),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Delivered),
        Just(End::Late),
        Just(End::Dropped),
        Just(End::Waits),
        Just(End::Filed),
        Just(End::Lost),
        any::<bool>().prop_map(End::Redriven),
    ]
}

/// The lines that a machine would write, and what they come to.
fn event_of_the_model(failures: u32, end: &End) -> (Vec<LedgerLine>, HistoryEnd) {
    let mut lines: Vec<LedgerLine> = (1..=failures)
        .map(|attempt| {
            let at = u64::from(attempt) * 10;
            attempted(
                at,
                Lane::LIVE,
                attempt,
                Outcome::Failed(Failure::Busy),
                Some(at + 10),
            )
        })
        .collect();
    let last = failures + 1;
    let at = u64::from(failures + 1) * 10;
    let reason = Reason::MaxDeliveryAttemptsExceeded;
    let given_up = |dead_lettered| {
        let attempt = attempted(at, Lane::LIVE, last, Outcome::Failed(Failure::Busy), None);
        [
            attempt,
            line(
                at,
                Lane::LIVE,
                last,
                LedgerEvent::GivenUp {
                    reason,
                    dead_lettered,
                },
            ),
        ]
    };
    let verdict = match end {
        End::Delivered => {
            lines.push(attempted(at, Lane::LIVE, last, Outcome::Delivered, None));
            HistoryEnd::Delivered {
                at: Timestamp(at),
                attempt: last,
                late: false,
            }
        }
        End::Late => {
            lines.push(attempted(
                at,
                Lane::LIVE,
                last,
                Outcome::Failed(Failure::TimedOut),
                Some(at + 10),
            ));
            lines.push(line(
                at + 5,
                Lane::LIVE,
                last,
                LedgerEvent::Late { settled: true },
            ));
            HistoryEnd::Delivered {
                at: Timestamp(at + 5),
                attempt: last,
                late: true,
            }
        }
        End::Dropped => {
            lines.extend(given_up(false));
            // A late settlement changes nothing.
            lines.push(line(
                at + 5,
                Lane::LIVE,
                last,
                LedgerEvent::Late { settled: false },
            ));
            HistoryEnd::GivenUp {
                reason,
                then: DeadLetterState::Dropped,
            }
        }
        End::Waits => {
            lines.extend(given_up(true));
            HistoryEnd::GivenUp {
                reason,
                then: DeadLetterState::Waits,
            }
        }
        End::Filed => {
            lines.extend(given_up(true));
            lines.push(line(
                at + 5,
                Lane::LIVE,
                0,
                LedgerEvent::Filed { file: "f".into() },
            ));
            HistoryEnd::GivenUp {
                reason,
                then: DeadLetterState::Filed("f".into()),
            }
        }
        End::Lost => {
            lines.extend(given_up(true));
            lines.push(line(
                at + 5,
                Lane::LIVE,
                0,
                LedgerEvent::Lost { why: "w".into() },
            ));
            HistoryEnd::GivenUp {
                reason,
                then: DeadLetterState::Lost("w".into()),
            }
        }
        End::Redriven(delivered) => {
            lines.extend(given_up(true));
            let into = Lane::FIRST_JOB;
            lines.push(line(at + 5, Lane::LIVE, 0, LedgerEvent::Redriven { into }));
            if *delivered {
                lines.push(attempted(at + 9, into, 1, Outcome::Delivered, None));
                HistoryEnd::Delivered {
                    at: Timestamp(at + 9),
                    attempt: 1,
                    late: false,
                }
            } else {
                lines.push(attempted(
                    at + 9,
                    into,
                    1,
                    Outcome::Failed(Failure::BadRequest),
                    None,
                ));
                let reason = Reason::Undeliverable(Failure::BadRequest);
                lines.push(line(
                    at + 9,
                    into,
                    1,
                    LedgerEvent::GivenUp {
                        reason,
                        dead_lettered: false,
                    },
                ));
                HistoryEnd::GivenUp {
                    reason,
                    then: DeadLetterState::Dropped,
                }
            }
        }
    };
    (lines, verdict)
}

proptest! {
    #[test]
    fn a_story_comes_to_what_the_model_says_and_never_to_something_else(
        failures in 0u32..6,
        end in end(),
        hull: bool,
        gone in 0usize..8,
        turn in 0usize..8,
    ) {
        let (whole, expected) = event_of_the_model(failures, &end);
        let mut lines = whole.clone();
        if hull {
            // The event lies between others that the filter stopped.
            lines.push(line(3, Lane::LIVE, 0, LedgerEvent::Filtered { version: 2 }));
        }
        lines.rotate_left(turn % whole.len().max(1));
        let cursor = passed();
        let state = EventState::Passed;
        let filters = BTreeMap::from([(2, filter::FilterResult::Match)]);
        let present = Some((&state, &cursor));
        for filters in [&filters, &BTreeMap::new()] {
            let story = delivery_history(HistoryInput { seq: SEQ, lines: &lines, filters, present, oldest: None });
            prop_assert_eq!(&story.verdict, &expected);
            prop_assert_eq!(&story.steps, &whole, "in order, and without the hull");
        }
        // The oldest lines are gone: it says the same, or that it does not know.
        let left = &whole[gone.min(whole.len())..];
        let oldest = Some(Timestamp(1));
        let story = delivery_history(HistoryInput { seq: SEQ, lines: left, filters: &filters, present, oldest });
        let unknown = HistoryEnd::Unknown { ledger_from: oldest };
        prop_assert!(story.verdict == expected || story.verdict == unknown, "{:?} of {:?}", story.verdict, left);
        if left.is_empty() {
            prop_assert_eq!(story.verdict, unknown);
        }
    }
}

#[test]
fn a_filtered_event_is_reported_with_the_version_of_the_filter() {
    let cursor = passed();
    let state = EventState::Passed;
    let lines = [line(5, Lane::LIVE, 0, LedgerEvent::Filtered { version: 3 })];
    let filters = BTreeMap::from([(3, stopped())]);
    let known = HistoryInput {
        seq: SEQ,
        lines: &lines,
        filters: &filters,
        present: Some((&state, &cursor)),
        oldest: None,
    };
    assert_eq!(
        delivery_history(known).verdict,
        HistoryEnd::Filtered { version: 3 }
    );
    let nothing = BTreeMap::new();
    assert_eq!(
        delivery_history(HistoryInput {
            filters: &nothing,
            ..known
        })
        .verdict,
        HistoryEnd::Filtered { version: 3 },
        "nothing else is there"
    );
    assert_eq!(
        delivery_history(HistoryInput {
            present: None,
            ..known
        })
        .verdict,
        HistoryEnd::Filtered { version: 3 },
        "it was deleted since"
    );
    // It was stopped where it came by, and a replay has sent it since.
    let replayed = [
        lines[0].clone(),
        attempted(9, Lane::FIRST_JOB, 1, Outcome::Delivered, None),
    ];
    let story = delivery_history(HistoryInput {
        lines: &replayed,
        ..known
    });
    assert_eq!(
        story.verdict,
        HistoryEnd::Delivered {
            at: Timestamp(9),
            attempt: 1,
            late: false
        }
    );
    assert_eq!(story.steps.len(), 2);
}

#[test]
fn without_a_ledger_entry_the_state_of_the_event_is_reported() {
    let tell_of = |seq: u64, state: &EventState, cursor: &Cursor| {
        let filters = BTreeMap::new();
        delivery_history(HistoryInput {
            seq: Seq(seq),
            lines: &[],
            filters: &filters,
            present: Some((state, cursor)),
            oldest: None,
        })
        .verdict
    };
    let cursor = Cursor {
        began: Seq(5),
        ..passed()
    };
    assert_eq!(tell_of(4, &EventState::Passed, &cursor), HistoryEnd::Before);
    assert_eq!(
        tell_of(5, &EventState::Passed, &cursor),
        HistoryEnd::Unknown { ledger_from: None }
    );
    assert_eq!(
        tell_of(100, &EventState::Unread { behind: 0 }, &cursor),
        HistoryEnd::Unread
    );
    assert_eq!(
        tell_of(100, &EventState::Filtered, &cursor),
        HistoryEnd::Unread,
        "what it will be is not what it is"
    );
    assert_eq!(
        tell_of(200, &EventState::Unpublished, &cursor),
        HistoryEnd::Unpublished
    );
    assert_eq!(tell_of(50, &EventState::Open, &cursor), HistoryEnd::Pending);
}
