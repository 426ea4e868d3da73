//! The order of the stages of one turn of the core: prepare, give up and send, read ahead and end.

use std::{sync::Arc, time::Duration};

use gridhook::{
    event::{Event, Lane, RequestId, Seq, Timestamp},
    policy::{
        CoreStep, Effect, Input, Subscription, SubscriptionSettings,
        batch::BatchLimits,
        filter::key::FilterKey,
        order::OrderSettings,
        outcome::{Failure, Outcome, RequestResult},
        record::{Cursor, Health, LaneCursor},
        retry::Jitter,
    },
    store::chunk::{Chunk, LogTail},
};

use super::{driver::START, plain, sealed};

/// A core that has read nothing yet of a log with events up to `end`.
fn core(settings: SubscriptionSettings, health: Health, end: u64) -> Subscription {
    let lane = LaneCursor { lane: Lane::LIVE, read: Seq(1), end: None, open: Vec::new(), done: Vec::new() };
    let cursor = Cursor { lanes: vec![lane], health, ..Cursor::default() };
    Subscription::recover(settings, &cursor, Seq(end), Vec::new(), RequestId(1), START)
}

fn by_subject() -> Arc<OrderSettings> {
    Arc::new(OrderSettings { key: FilterKey::from("subject".to_owned()), tracked_max: 100, blocks: false })
}

fn absorb(core: &mut Subscription, input: Input) -> CoreStep {
    core.absorb(input, START, Jitter(0.0))
}

/// The log's answer: of the events from `from` to `upto` these match.
fn read(from: u64, upto: u64, matching: usize) -> Input {
    let chunks = sealed(&vec![("yes", 10); matching]).into_iter();
    let chunk = chunks.map(|chunk| Chunk::decode(Seq(from), chunk.stamp(START, LogTail::default())).expect("a chunk"));
    let events: Vec<Event> = chunk.flat_map(|chunk| chunk.events().expect("events")).collect();
    Input::Read { lane: Lane::LIVE, from: Seq(from), upto: Seq(upto), total: upto - from, events }
}

/// The core searches for expired events, finds none, and reads the log.
fn find_nothing_expired(core: &mut Subscription) {
    let asked = absorb(core, Input::Tick);
    let [Effect::FindPosition { before }] = asked.effects[..] else { panic!("{:?}", asked.effects) };
    let reads = absorb(core, Input::Position { before, at: Seq(1), appended: Some(START) });
    assert!(names(&reads).contains(&"read"), "{:?}", reads.effects);
}

/// A core with a healthy endpoint, which reads the log.
fn healthy(end: u64) -> Subscription {
    let mut core = core(plain(), Health::default(), end);
    find_nothing_expired(&mut core);
    core
}

fn names(step: &CoreStep) -> Vec<&'static str> {
    let name = |effect: &Effect| match effect {
        Effect::Send { .. } => "send",
        Effect::ReadLog { .. } => "read",
        Effect::Fetch(_) => "fetch",
        _ => "other",
    };
    step.effects.iter().map(name).collect()
}

fn suspended(cause: Failure, until: Timestamp) -> Health {
    Health::Suspended { cause, since: START.before(Duration::from_secs(10)), until, consecutive_suspensions: 1 }
}

/// A core with an endpoint that recovers, whose probe has just left.
fn probing(settings: SubscriptionSettings, matching: usize) -> (Subscription, CoreStep) {
    let mut core = core(settings, suspended(Failure::Busy, START), 1001);
    find_nothing_expired(&mut core);
    let probe = absorb(&mut core, read(1, 11, matching));
    (core, probe)
}

#[test]
fn lanes_are_assigned_before_a_batch_leaves() {
    let (mut core, _) = probing(plain(), 10);
    let answer = RequestResult { status: Some(200), ..RequestResult::bare(Outcome::Delivered) };
    let step = absorb(&mut core, Input::Finished { request: RequestId(1), answer });
    let lanes: Vec<Lane> = core.cursor().lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes, [Lane::LIVE, Lane::BACKLOG]);
    assert_eq!(names(&step), [""; 0], "first attempts wait until the new lane is on disk");
}

/// An incarnation that begins after the deadline of what the previous one sent must not send again what was answered.
#[test]
fn results_that_an_earlier_incarnation_received_come_before_deadlines() {
    let settings = plain();
    let batch = BatchLimits { events_max: 1, ..settings.batch };
    let settings = SubscriptionSettings { batch, concurrency_max: 2, ..settings };
    let mut former = core(settings.clone(), Health::default(), 3);
    find_nothing_expired(&mut former);
    let sent = absorb(&mut former, read(1, 3, 2)).effects.into_iter();
    let requests: Vec<_> = sent
        .filter_map(|effect| if let Effect::Send { request, .. } = effect { Some(request) } else { None })
        .collect();
    assert_eq!(requests.len(), 2);
    let cursor = core(settings.clone(), Health::default(), 3).cursor();
    let deadline = requests[0].deadline;
    let answered = requests.iter().map(|request| Input::Finished {
        request: request.id,
        answer: RequestResult { status: Some(200), ..RequestResult::bare(Outcome::Delivered) },
    });
    let answered = answered.collect();
    let mut next = Subscription::recover(settings, &cursor, Seq(3), requests, RequestId(3), START);
    next.inherit(answered);
    let step = next.absorb(Input::Tick, deadline, Jitter(0.0));
    assert!(!names(&step).contains(&"send"), "{:?}", step.effects);
    let counters = next.cursor().counters;
    assert_eq!((counters.delivered, counters.requests_failed), (2, 0));
}

/// A crash before the write would find the first event pending or unread, and send it after the second.
#[test]
fn the_next_event_of_a_key_waits_until_it_is_durable_that_the_one_before_is_given_up() {
    for order in [None, Some(by_subject())] {
        let is_ordered = order.is_some();
        let mut core = core(SubscriptionSettings { order, ..plain() }, Health::default(), 3);
        find_nothing_expired(&mut core);
        assert_eq!(names(&absorb(&mut core, read(1, 3, 2)))[0], "send");
        let answer = RequestResult { status: Some(400), ..RequestResult::bare(Failure::BadRequest) };
        let step = absorb(&mut core, Input::Finished { request: RequestId(1), answer });
        assert!(step.write.is_some());
        assert_eq!(names(&step).contains(&"send"), !is_ordered, "{:?}", step.effects);
        assert_eq!(names(&absorb(&mut core, Input::Durable)).contains(&"send"), is_ordered);
    }
}

#[test]
fn nothing_is_read_behind_a_probe_that_has_just_left() {
    let settings = plain();
    let roomy = SubscriptionSettings { batch: BatchLimits { events_max: 10, ..settings.batch }, ..settings };
    let (_, step) = probing(roomy, 1);
    assert_eq!(names(&step), ["send"]);
}

#[test]
fn what_was_sent_makes_room_for_the_next_read_in_the_same_turn() {
    let mut core = healthy(1001);
    assert_eq!(names(&absorb(&mut core, read(1, 2, 1))), ["send", "read"]);
}

#[test]
fn what_was_given_up_makes_room_for_the_next_read_in_the_same_turn() {
    let settings = SubscriptionSettings { dead_letter_in_probation: true, ..plain() };
    let until = START.after(Duration::from_secs(300));
    let mut core = core(settings, suspended(Failure::NotFound, until), 1001);
    let reads = absorb(&mut core, Input::Tick);
    assert_eq!(names(&reads), ["read"]);
    assert_eq!(names(&absorb(&mut core, read(1, 2, 1))), ["read"]);
    assert_eq!(core.cursor().counters.dead_lettered, 1);
}

#[test]
fn filtered_events_behind_one_that_was_sent_are_passed_in_the_same_turn() {
    let mut core = healthy(3);
    assert_eq!(names(&absorb(&mut core, read(1, 3, 1))), ["send"]);
    assert_eq!(core.cursor().counters.filtered, 1);
}

#[test]
fn a_lane_that_has_given_up_its_last_event_ends_in_the_same_turn() {
    let mut core = healthy(2);
    assert_eq!(names(&absorb(&mut core, Input::Overflow { below: Seq(2) })), ["read"]);
    let Input::Read { from, upto, total, events, .. } = read(1, 2, 1) else { unreachable!("it is a read") };
    drop(absorb(&mut core, Input::Read { lane: Lane::OVERFLOW, from, upto, total, events }));
    let lanes: Vec<Lane> = core.cursor().lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes, [Lane::LIVE]);
    assert_eq!(core.cursor().counters.dead_lettered, 1);
}
