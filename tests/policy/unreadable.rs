//! A part of the log that cannot be read: its events end, each once, and what follows is read.

use gridhook::{
    event::{
        Event, Lane, RequestId, Seq,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        Effect, Input, Subscription,
        lane::LaneReader,
        outcome::Reason,
        record::{Cursor, LaneCursor, LedgerEvent, RecordChange, SeqRun},
        retry::Jitter,
    },
};

use super::{driver::START, plain, sealed};

fn live() -> LaneCursor {
    LaneCursor::new(Lane::LIVE, Seq(1), None)
}

fn event(seq: u64) -> Event {
    let chunk = sealed(&[("yes", 1)]).remove(0);
    let chunk = Chunk::decode(
        Seq(seq),
        chunk.stamp_record(START, RunningTotals::default()),
    )
    .expect("a sound chunk");
    chunk.decode_events().expect("a sound event").remove(0)
}

/// Runs the core until it asks nothing more; returns what it wrote.
fn written(
    core: &mut Subscription,
    respond: impl Fn(Effect) -> Option<Input>,
) -> Vec<RecordChange> {
    let mut inputs = vec![Input::Tick];
    let mut written = Vec::new();
    for _ in 0..20 {
        let Some(input) = inputs.pop() else { break };
        let step = core.process_input(input, START, Jitter(0.0));
        written.extend(step.write.into_iter().flat_map(|write| write.changes));
        inputs.extend(step.effects.into_iter().filter_map(|effect| match effect {
            Effect::FindPosition { before } => Some(Input::Position {
                before,
                at: Seq(1),
                appended: Some(START),
            }),
            effect => respond(effect),
        }));
    }
    written
}

#[test]
fn unreadable_events_end_once_even_if_a_later_incarnation_reads_them_again() {
    let mut lane = LaneReader::from_cursor(&live());
    assert_eq!(lane.next_read(Seq(20)), Some((Seq(1), None)));
    lane.add_read(Seq(1)..Seq(5), 4, vec![event(2)], &[], None);
    assert_eq!(lane.next_read(Seq(20)), Some((Seq(5), None)));
    assert_eq!(
        lane.skip_unreadable(Seq(5), Seq(9)).into_runs(),
        [SeqRun {
            first: Seq(5),
            count: 4
        }]
    );
    assert!(
        lane.skip_unreadable(Seq(5), Seq(9)).is_empty(),
        "it was answered"
    );
    assert_eq!(
        lane.next_read(Seq(20)),
        Some((Seq(9), None)),
        "what follows is read"
    );
    // The event before still waits: the next incarnation begins there.
    let cursor = lane.cursor();
    assert_eq!(
        (cursor.read, &cursor.done),
        (Seq(1), &(5..9).map(Seq).collect())
    );
    let mut lane = LaneReader::from_cursor(&cursor);
    assert_eq!(lane.next_read(Seq(20)), Some((Seq(1), None)));
    lane.add_read(Seq(1)..Seq(5), 4, Vec::new(), &[], None);
    assert_eq!(lane.pass_skipped().0.event_count(), 4);
    assert_eq!(lane.next_read(Seq(20)), Some((Seq(5), None)));
    assert!(
        lane.skip_unreadable(Seq(5), Seq(9)).is_empty(),
        "they have ended before"
    );
    assert!(lane.cursor().done.is_empty(), "and are behind it now");
}

#[test]
fn events_that_all_have_an_outcome_leave_the_backlog_when_they_are_read_again() {
    // The actor ended after these outcomes, before it read the log again.
    let lane = LaneCursor {
        done: (1..5).map(Seq).collect(),
        ..live()
    };
    let cursor = Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    };
    let mut core =
        Subscription::from_records(plain(), &cursor, Seq(5), Vec::new(), RequestId(1), START);
    let written = written(&mut core, |effect| match effect {
        Effect::ReadLog { lane, from, .. } if from == Seq(1) => Some(Input::Read {
            lane,
            from,
            upto: Seq(5),
            total: 4,
            events: (1..5).map(event).collect(),
        }),
        effect => panic!("{effect:?}"),
    });
    let [RecordChange::Cursor(cursor)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!(
        cursor.lanes,
        [LaneCursor {
            read: Seq(5),
            ..live()
        }]
    );
    assert!(
        core.process_input(Input::Durable, START, Jitter(0.0))
            .write
            .is_none()
    );
}

#[test]
fn unreadable_events_are_counted_and_have_a_ledger_entry() {
    let cursor = Cursor {
        lanes: vec![live()],
        ..Cursor::default()
    };
    let mut core =
        Subscription::from_records(plain(), &cursor, Seq(10), Vec::new(), RequestId(1), START);
    let written = written(&mut core, |effect| match effect {
        Effect::ReadLog { lane, from, .. } if from == Seq(1) => Some(Input::Unreadable {
            lane,
            from,
            upto: Seq(5),
        }),
        _ => None,
    });
    let counters = core.cursor().counters;
    assert_eq!(
        [
            counters.passed,
            counters.matched,
            counters.dropped,
            counters.filtered
        ],
        [4, 4, 4, 0]
    );
    assert_eq!(core.cursor().counts.dropped.get(&Reason::Missing), Some(&4));
    let reported: Vec<_> = written
        .iter()
        .filter_map(|change| match change {
            RecordChange::Note { entry, .. } => Some((entry.what.clone(), entry.runs.clone())),
            _ => None,
        })
        .collect();
    let lost = LedgerEvent::GivenUp {
        reason: Reason::Missing,
        dead_lettered: false,
    };
    assert_eq!(
        reported,
        [(
            lost,
            vec![SeqRun {
                first: Seq(1),
                count: 4
            }]
        )]
    );
}
