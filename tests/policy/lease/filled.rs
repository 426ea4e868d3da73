//! The number of events that a client receives if the log has more than are ready.

use gridhook::{
    event::{
        Event, Lane, RequestId, Seq,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        CoreStep, Effect, Input, PullSettings, Subscription, SubscriptionSettings, batch,
        record::{Cursor, LaneCursor, lease::ReceiveId},
        retry::Jitter,
    },
};

use super::{
    super::{driver::START, plain, sealed},
    world::LOCK,
};

/// The log says: these events match, of those before `upto`.
fn found(from: u64, upto: u64, events: u64) -> Input {
    let event = |seq: u64| -> Event {
        let chunk = sealed(&[("yes", 1)]).remove(0);
        let chunk = Chunk::decode(
            Seq(seq),
            chunk.stamp_record(START, RunningTotals::default()),
        )
        .expect("a sound chunk");
        chunk.decode_events().expect("a sound event").remove(0)
    };
    let events = (from..from + events).map(event).collect();
    Input::Read {
        lane: Lane::LIVE,
        from: Seq(from),
        upto: Seq(upto),
        total: upto - from,
        events,
    }
}

/// From where the log is to be read, if it is.
fn reads(step: &CoreStep) -> Option<u64> {
    step.effects.iter().find_map(|effect| match effect {
        Effect::ReadLog { from, .. } => Some(from.0),
        _ => None,
    })
}

#[test]
fn where_less_is_ready_than_is_asked_for_the_log_is_read_on_while_most_of_it_matches() {
    let lane = LaneCursor::new(Lane::LIVE, Seq(1), None);
    let settings = SubscriptionSettings {
        batch: batch::BatchLimits {
            events_max: 100,
            bytes_preferred: 1 << 20,
            ..plain().batch
        },
        pull: Some(PullSettings {
            lock: LOCK,
            leases_max: 100,
        }),
        ..plain()
    };
    let cursor = Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    };
    let mut core =
        Subscription::from_records(settings, &cursor, Seq(50), Vec::new(), RequestId(1), START);
    let mut absorb = |input| core.process_input(input, START, Jitter(0.0));
    let handed = |step: CoreStep| match &step.effects[..] {
        [Effect::HandOver { to, events }] => Some((to.0, events.len())),
        _ => None,
    };
    let step = absorb(Input::Receive(ReceiveId(1), 1));
    let [Effect::FindPosition { before }] = step.effects[..] else {
        panic!("is any too old? {step:?}")
    };
    let step = absorb(Input::Position {
        before,
        at: Seq(1),
        appended: Some(START),
    });
    assert_eq!(reads(&step), Some(1));
    assert!(absorb(found(1, 5, 4)).write.is_some(), "one of four");
    assert_eq!(handed(absorb(Input::Durable)), Some((1, 1)));

    // Three are ready.
    let step = absorb(Input::Receive(ReceiveId(2), 5));
    assert!(step.write.is_none(), "he would get three: {step:?}");
    assert_eq!(reads(&step), Some(5));
    assert!(
        absorb(found(5, 10, 1)).write.is_some(),
        "there is more, and it was looked for once"
    );
    assert_eq!(handed(absorb(Input::Durable)), Some((2, 4)));

    // Nothing is: the first that is found goes.
    let step = absorb(Input::Receive(ReceiveId(3), 5));
    assert_eq!(reads(&step), Some(10));
    assert!(absorb(found(10, 20, 2)).write.is_some());
    assert_eq!(handed(absorb(Input::Durable)), Some((3, 2)));

    // At the end of the log nothing more is read.
    let step = absorb(Input::Receive(ReceiveId(4), 1));
    assert_eq!(reads(&step), Some(20));
    assert!(absorb(found(20, 50, 3)).write.is_some());
    assert_eq!(handed(absorb(Input::Durable)), Some((4, 1)));
    let step = absorb(Input::Receive(ReceiveId(5), 5));
    assert!(
        step.write.is_some() && reads(&step).is_none(),
        "two are all there is: {step:?}"
    );
    assert_eq!(handed(absorb(Input::Durable)), Some((5, 2)));

    // Reads that end where publishers did.
    let _ = absorb(Input::Appended { end: Seq(70) });
    let step = absorb(Input::Receive(ReceiveId(6), 8));
    assert_eq!(reads(&step), Some(50));
    let step = absorb(found(50, 53, 3));
    assert!(step.write.is_none(), "the log has more: {step:?}");
    assert_eq!(reads(&step), Some(53));
    let step = absorb(found(53, 57, 4));
    assert_eq!(reads(&step), Some(57));
    assert!(absorb(found(57, 70, 13)).write.is_some());
    assert_eq!(handed(absorb(Input::Durable)), Some((6, 8)));
}
