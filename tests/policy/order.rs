//! The order of the stages of one turn of the core: prepare, give up and send, read ahead and end.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use gridhook::{
    event::{
        Event, EventRanges, Lane, RequestId, Schema, Seq, TextRange, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        CoreStep, Effect, Input, Subscription, SubscriptionSettings,
        batch::BatchLimits,
        filter::key::FilterKey,
        order::OrderSettings,
        outcome::{Failure, Outcome, RequestResult},
        record::{Cursor, FetchedPending, Health, LaneCursor, RecordChange},
        retry::Jitter,
        transform::{Program, Transform},
    },
};

use super::{
    driver::{Driver, START, answers, status},
    plain, sealed,
};

/// A core that has read nothing yet of a log with events up to `end`.
fn core(settings: SubscriptionSettings, health: Health, end: u64) -> Subscription {
    let lane = LaneCursor::new(Lane::LIVE, Seq(1), None);
    let cursor = Cursor {
        lanes: vec![lane],
        health,
        ..Cursor::default()
    };
    Subscription::from_records(settings, &cursor, Seq(end), Vec::new(), RequestId(1), START)
}

fn by_subject() -> Arc<OrderSettings> {
    Arc::new(OrderSettings {
        key: FilterKey::from("subject".to_owned()),
        tracked_max: 100,
        blocks: false,
        one_of_a_key: false,
    })
}

fn absorb(core: &mut Subscription, input: Input) -> CoreStep {
    core.process_input(input, START, Jitter(0.0))
}

/// The result of a read of the log: of the events from `from` to `upto` these match.
fn read(from: u64, upto: u64, matching: usize) -> Input {
    let chunks = sealed(&vec![("yes", 10); matching]).into_iter();
    let chunk = chunks.map(|chunk| {
        Chunk::decode(
            Seq(from),
            chunk.stamp_record(START, RunningTotals::default()),
        )
        .expect("a chunk")
    });
    let events: Vec<Event> = chunk
        .flat_map(|chunk| chunk.decode_events().expect("events"))
        .collect();
    Input::Read {
        lane: Lane::LIVE,
        from: Seq(from),
        upto: Seq(upto),
        total: upto - from,
        events,
    }
}

/// The core searches for expired events, finds none, and reads the log.
fn find_nothing_expired(core: &mut Subscription) {
    let asked = absorb(core, Input::Tick);
    let [Effect::FindPosition { before }] = asked.effects[..] else {
        panic!("{:?}", asked.effects)
    };
    let reads = absorb(
        core,
        Input::Position {
            before,
            at: Seq(1),
            appended: Some(START),
        },
    );
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
    Health::Suspended {
        cause,
        since: START.before(Duration::from_secs(10)),
        until,
        consecutive_suspensions: 1,
    }
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
    let result = RequestResult {
        status: Some(200),
        ..RequestResult::from_outcome(Outcome::Delivered)
    };
    let step = absorb(
        &mut core,
        Input::Finished {
            request: RequestId(1),
            result,
        },
    );
    let lanes: Vec<Lane> = core.cursor().lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes, [Lane::LIVE, Lane::BACKLOG]);
    assert_eq!(
        names(&step),
        [""; 0],
        "first attempts wait until the new lane is on disk"
    );
}

/// An incarnation that begins after the deadline of what the previous one sent must not send again
/// what was answered.
#[test]
fn results_that_an_earlier_incarnation_received_come_before_deadlines() {
    let settings = plain();
    let batch = BatchLimits {
        events_max: 1,
        ..settings.batch
    };
    let settings = SubscriptionSettings {
        batch,
        concurrency_max: 2,
        ..settings
    };
    let mut former = core(settings.clone(), Health::default(), 3);
    find_nothing_expired(&mut former);
    let sent = absorb(&mut former, read(1, 3, 2)).effects.into_iter();
    let requests: Vec<_> = sent
        .filter_map(|effect| {
            if let Effect::Send { request, .. } = effect {
                Some(request)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(requests.len(), 2);
    let cursor = core(settings.clone(), Health::default(), 3).cursor();
    let deadline = requests[0].deadline;
    let answered = requests.iter().map(|request| Input::Finished {
        request: request.id,
        result: RequestResult {
            status: Some(200),
            ..RequestResult::from_outcome(Outcome::Delivered)
        },
    });
    let answered = answered.collect();
    let mut next =
        Subscription::from_records(settings, &cursor, Seq(3), requests, RequestId(3), START);
    next.inherit_results(answered);
    let step = next.process_input(Input::Tick, deadline, Jitter(0.0));
    assert!(!names(&step).contains(&"send"), "{:?}", step.effects);
    let counters = next.cursor().counters;
    assert_eq!((counters.delivered, counters.requests_failed), (2, 0));
}

/// A crash before the write would find the first event pending or unread, and send it after the
/// second.
#[test]
fn the_next_event_of_a_key_waits_until_it_is_durable_that_the_one_before_is_given_up() {
    for order in [None, Some(by_subject())] {
        let is_ordered = order.is_some();
        let mut core = core(
            SubscriptionSettings { order, ..plain() },
            Health::default(),
            3,
        );
        find_nothing_expired(&mut core);
        assert_eq!(names(&absorb(&mut core, read(1, 3, 2)))[0], "send");
        let result = RequestResult {
            status: Some(400),
            ..RequestResult::from_outcome(Failure::BadRequest)
        };
        let step = absorb(
            &mut core,
            Input::Finished {
                request: RequestId(1),
                result,
            },
        );
        assert!(step.write.is_some());
        assert_eq!(
            names(&step).contains(&"send"),
            !is_ordered,
            "{:?}",
            step.effects
        );
        assert_eq!(
            names(&absorb(&mut core, Input::Durable)).contains(&"send"),
            is_ordered
        );
    }
}

/// An event of a key. Only JSON can be transformed.
fn event(seq: u64, key: &str, is_json: bool, appended: Timestamp) -> Event {
    let wire = if is_json {
        format!(r#"{{"subject":"{key}"}}"#)
    } else {
        key.to_owned()
    };
    let start = wire.find(key).expect("it has its key") as u32;
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    let ranges = EventRanges {
        subject: TextRange {
            start,
            len: key.len() as u32,
        },
        ..EventRanges::default()
    };
    Event::new(
        Seq(seq),
        appended,
        Schema::EventGrid,
        Bytes::from(wire),
        whole,
        ranges,
    )
}

/// The events that a step sends.
fn sent(step: &CoreStep) -> Vec<u64> {
    let sends = step.effects.iter().filter_map(|effect| match effect {
        Effect::Send { request, .. } => Some(&request.items),
        _ => None,
    });
    sends.flatten().map(|item| item.seq.0).collect()
}

#[test]
fn later_events_of_a_key_do_not_leave_with_a_batch_whose_first_event_is_given_up() {
    let transform = Transform {
        body: Some("subject".to_owned()),
        ..Transform::default()
    };
    let program = Arc::new(Program::new(&transform, true, Schema::EventGrid).expect("it is sound"));
    let old = START.before(2 * plain().time_to_live);
    let blocking = Arc::new(OrderSettings {
        blocks: true,
        ..(*by_subject()).clone()
    });
    for (order, is_old) in [
        (None, true),
        (None, false),
        (Some(by_subject()), true),
        (Some(by_subject()), false),
        (Some(blocking), false),
    ] {
        let case = format!("{order:?}, old: {is_old}");
        let is_ordered = order.is_some();
        let blocks = order.as_ref().is_some_and(|order| order.blocks);
        let batch = BatchLimits {
            events_max: 10,
            ..plain().batch
        };
        let transform = Some(Arc::clone(&program));
        let settings = SubscriptionSettings {
            order,
            batch,
            transform,
            concurrency_max: 2,
            ..plain()
        };
        let mut core = core(settings, Health::default(), 5);
        find_nothing_expired(&mut core);
        let first = event(1, "a", is_old, if is_old { old } else { START });
        let others = [(2, "a"), (3, "b"), (4, "a")].map(|(seq, key)| event(seq, key, true, START));
        let events: Vec<Event> = [first].into_iter().chain(others.clone()).collect();
        let read = Input::Read {
            lane: Lane::LIVE,
            from: Seq(1),
            upto: Seq(5),
            total: 4,
            events,
        };
        let step = absorb(&mut core, read);
        assert_eq!(
            sent(&step),
            if is_ordered { &[3][..] } else { &[2, 3, 4] },
            "{case}"
        );
        let write = step.write.expect("an event ended");
        let step = absorb(&mut core, Input::Durable);
        let is_fetch = |effect: &Effect| matches!(effect, Effect::Fetch(keys) if *keys == [(Lane::LIVE, Seq(2))]);
        let fetched = step.effects.iter().any(is_fetch);
        assert_eq!(fetched, is_ordered && !blocks, "{case}: {:?}", step.effects);
        let view = core.view_endpoint(START).order.unwrap_or_default();
        assert_eq!(
            (view.blocked, view.events),
            (
                usize::from(blocks),
                if is_ordered {
                    1 + usize::from(blocks)
                } else {
                    0
                }
            )
        );
        if fetched {
            // Its turn came with the write.
            let pending = write.changes.into_iter().find_map(|change| match change {
                RecordChange::Defer {
                    seq: Seq(2),
                    pending,
                    ..
                } => Some(pending),
                _ => None,
            });
            let event = Some(others[0].clone());
            let fetched = FetchedPending {
                lane: Lane::LIVE,
                seq: Seq(2),
                pending,
                event,
            };
            assert_eq!(
                sent(&absorb(&mut core, Input::Fetched(vec![fetched]))),
                [2],
                "{case}"
            );
        }
    }
}

/// Each cut waits for its write, and later events wait for a read. Before each of these, the topic
/// overflows again.
#[test]
fn a_topic_that_goes_on_overflowing_does_not_keep_events_with_an_order_from_leaving() {
    let settings = SubscriptionSettings {
        order: Some(by_subject()),
        ..plain()
    };
    let mut core = core(settings, Health::default(), 1001);
    find_nothing_expired(&mut core);
    let mut inputs = VecDeque::new();
    let mut sends = 0;
    for below in 2..200 {
        let mut steps = vec![absorb(&mut core, Input::Overflow { below: Seq(below) })];
        steps.extend(inputs.pop_front().map(|input| absorb(&mut core, input)));
        for step in steps {
            sends += sent(&step).len();
            inputs.extend(step.write.map(|_| Input::Durable));
            for effect in step.effects {
                let Effect::ReadLog { lane, from, end } = effect else {
                    continue;
                };
                let upto = end.map_or(from.0 + 10, |end| end.0.min(from.0 + 10));
                let Input::Read {
                    from,
                    upto,
                    total,
                    events,
                    ..
                } = read(from.0, upto, (upto - from.0) as usize)
                else {
                    unreachable!("it is a read")
                };
                inputs.push_back(Input::Read {
                    lane,
                    from,
                    upto,
                    total,
                    events,
                });
            }
        }
    }
    let given_up = core.cursor().counters.dead_lettered;
    assert!(
        sends > 0 && given_up > 0,
        "{sends} sent, {given_up} given up"
    );
}

/// The rest of the range stays in its lane, so that nothing is written and nothing waits.
#[test]
fn a_lane_that_cannot_be_split_delays_no_ordered_event() {
    let settings = SubscriptionSettings {
        order: Some(by_subject()),
        ..plain()
    };
    let lane = |lane, read, end| LaneCursor::new(lane, Seq(read), end);
    // The lane of expired events ends before the first unread one, behind a gap.
    let lanes = vec![
        lane(Lane::LIVE, 3, None),
        lane(Lane::EXPIRY, 1, Some(Seq(2))),
    ];
    let cursor = Cursor {
        lanes,
        ..Cursor::default()
    };
    let mut core =
        Subscription::from_records(settings, &cursor, Seq(11), Vec::new(), RequestId(1), START);
    let asked = absorb(&mut core, Input::Tick);
    let Some(Effect::FindPosition { before }) = asked
        .effects
        .iter()
        .find(|effect| matches!(effect, Effect::FindPosition { .. }))
    else {
        panic!("{:?}", asked.effects)
    };
    let step = absorb(
        &mut core,
        Input::Position {
            before: *before,
            at: Seq(5),
            appended: Some(START),
        },
    );
    assert!(step.write.is_none(), "{step:?}");
}

#[test]
fn nothing_is_read_behind_a_probe_that_has_just_left() {
    let settings = plain();
    let roomy = SubscriptionSettings {
        batch: BatchLimits {
            events_max: 10,
            ..settings.batch
        },
        ..settings
    };
    let (_, step) = probing(roomy, 1);
    assert_eq!(names(&step), ["send"]);
}

#[test]
fn sent_events_make_room_for_the_next_read_in_the_same_turn() {
    let mut core = healthy(1001);
    assert_eq!(names(&absorb(&mut core, read(1, 2, 1))), ["send", "read"]);
}

#[test]
fn events_given_up_make_room_for_the_next_read_in_the_same_turn() {
    let settings = SubscriptionSettings {
        dead_letter_in_probation: true,
        ..plain()
    };
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
    assert_eq!(
        names(&absorb(&mut core, Input::Overflow { below: Seq(2) })),
        ["read"]
    );
    let Input::Read {
        from,
        upto,
        total,
        events,
        ..
    } = read(1, 2, 1)
    else {
        unreachable!("it is a read")
    };
    drop(absorb(
        &mut core,
        Input::Read {
            lane: Lane::OVERFLOW,
            from,
            upto,
            total,
            events,
        },
    ));
    let lanes: Vec<Lane> = core.cursor().lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes, [Lane::LIVE]);
    assert_eq!(core.cursor().counters.dead_lettered, 1);
}

#[test]
fn an_event_that_is_set_aside_takes_the_last_place_among_tracked_ones_once() {
    let order = OrderSettings {
        tracked_max: 2,
        ..(*by_subject()).clone()
    };
    let settings = SubscriptionSettings {
        order: Some(Arc::new(order)),
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(503)]));
    driver.publish(&[("yes", 10), ("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(
        driver.disk.pending.len(),
        2,
        "the first one waits for its retry, and holds the second one back"
    );
}
