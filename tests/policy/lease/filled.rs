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
    found_in(Lane::LIVE, from, upto, events)
}

fn found_in(lane: Lane, from: u64, upto: u64, events: u64) -> Input {
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
        lane,
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

/// The client that receives events, and how many.
fn handed(step: CoreStep) -> Option<(u64, usize)> {
    match &step.effects[..] {
        [Effect::HandOver { client, events }] => Some((client.0, events.len())),
        _ => None,
    }
}

/// A pulled event subscription that starts with the log read up to `read`, and at its end at 50.
fn pulled_from(read: Seq, backlog_min: u32) -> Subscription {
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
        backlog_min,
        ..plain()
    };
    let cursor = Cursor {
        lanes: vec![LaneCursor::new(Lane::LIVE, read, None)],
        ..Cursor::default()
    };
    Subscription::from_records(settings, &cursor, Seq(50), Vec::new(), RequestId(1), START)
}

/// Lets a client ask for `events_max` events; it is then known that no event is too old.
fn receive_first(core: &mut Subscription, events_max: u32) -> CoreStep {
    let receive = Input::Receive(ReceiveId(1), events_max);
    let step = core.process_input(receive, START, Jitter(0.0));
    let [Effect::FindPosition { before }] = step.effects[..] else {
        panic!("is any too old? {step:?}")
    };
    let position = Input::Position {
        before,
        at: Seq(1),
        appended: Some(START),
    };
    core.process_input(position, START, Jitter(0.0))
}

#[test]
fn the_backlog_of_the_start_and_newer_events_fill_one_answer() {
    let mut core = pulled_from(Seq(45), 1);
    core.start(START);
    let step = receive_first(&mut core, 8);
    assert_eq!(reads(&step), None, "the lane is written first: {step:?}");
    let mut absorb = |input| core.process_input(input, START, Jitter(0.0));
    let step = absorb(Input::Durable);
    assert_eq!(reads(&step), Some(45), "the lane is written: {step:?}");
    let step = absorb(Input::Appended { end: Seq(60) });
    assert_eq!(reads(&step), Some(50), "newer events are live: {step:?}");
    let step = absorb(found_in(Lane::BACKLOG, 45, 50, 5));
    assert!(
        step.write.is_none(),
        "newer events are being read: {step:?}"
    );
    assert!(absorb(found(50, 60, 10)).write.is_some());
    assert_eq!(handed(absorb(Input::Durable)), Some((1, 8)));
}

#[test]
fn where_less_is_ready_than_is_asked_for_the_log_is_read_on_while_most_of_it_matches() {
    let mut core = pulled_from(Seq(1), plain().backlog_min);
    let step = receive_first(&mut core, 1);
    assert_eq!(reads(&step), Some(1));
    let mut absorb = |input| core.process_input(input, START, Jitter(0.0));
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
    let step = absorb(Input::Appended { end: Seq(70) });
    assert_eq!(reads(&step), None, "nobody waits: {step:?}");
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
