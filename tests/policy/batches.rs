//! The events of one request.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use expect_test::expect;
use gridhook::{
    deliver::{Destination, build},
    event::{Event, EventRanges, Lane, Schema, Seq, TextRange, Timestamp},
    policy::{
        OutgoingBatch, SendItem, SubscriptionSettings,
        batch::{self, BatchLimits, ReadyEvent},
        filter::key::FilterKey,
        outcome::EventResult,
        property::PropertyGroup,
        record::{Health, OPEN_EVENTS_MAX},
    },
};
use parking_lot::Mutex;

use super::{
    driver::{Driver, answers, status},
    plain,
};

fn in_batches(events_max: u32, bytes_preferred: u64) -> SubscriptionSettings {
    SubscriptionSettings {
        batch: BatchLimits {
            events_max,
            bytes_preferred,
            ..plain().batch
        },
        ..plain()
    }
}

#[test]
fn a_batch_has_at_most_so_many_events_and_does_not_wait_for_more() {
    let mut driver = Driver::new(in_batches(4, 64 * 1024), answers(vec![status(200)]));
    driver.publish(&[("yes", 10); 10]);
    expect!["0s ok×4 · 0s ok×4 · 0s ok×2"].assert_eq(&driver.run());
}

#[test]
fn a_batch_has_the_preferred_bytes_and_an_event_larger_than_that_goes_alone() {
    let mut driver = Driver::new(in_batches(100, 1000), answers(vec![status(200)]));
    driver.publish(&[
        ("yes", 397),
        ("yes", 397),
        ("yes", 397),
        ("yes", 2000),
        ("yes", 10),
        ("yes", 10),
    ]);
    expect!["0s ok×2 · 0s ok · 0s ok · 0s ok×2"].assert_eq(&driver.run());
}

#[test]
fn events_that_were_tried_differently_often_do_not_share_a_request() {
    let mut driver = Driver::new(
        in_batches(10, 64 * 1024),
        answers(vec![status(500), status(500), status(200)]),
    );
    driver.publish(&[("yes", 10); 3]);
    driver.run_for(std::time::Duration::from_secs(10));
    driver.publish(&[("yes", 10); 2]);
    expect!["0s x×3 · 10s x×3 · 10s ok×2 · 40s ok×3"].assert_eq(&driver.run());
}

#[test]
fn a_batch_that_is_too_large_is_halved_and_that_is_no_attempt() {
    let endpoint = Box::new(|request: &gridhook::policy::OutgoingBatch| {
        let response = if request.items.len() > 3 {
            status(413)
        } else {
            status(200)
        };
        assert!(request.items.iter().all(|item| item.attempts == 0));
        Some((std::time::Duration::ZERO, response))
    });
    let mut driver = Driver::new(in_batches(16, 64 * 1024), endpoint);
    driver.publish(&[("yes", 10); 16]);
    expect![
        "0s x×16 · 0s x×8 · 0s x×4 · 0s ok×2 · 0s ok×2 · 0s ok×2 · 0s ok×2 · 0s ok×2 · 0s ok×2 · \
         0s ok×2 · 0s ok×2"
    ]
    .assert_eq(&driver.run());
}

#[test]
fn events_in_flight_are_bounded_whatever_the_settings_allow() {
    const EVENTS: usize = 3 * OPEN_EVENTS_MAX;
    let settings = SubscriptionSettings {
        concurrency_max: 10_000,
        ..in_batches(5_000, u64::MAX)
    };
    let endpoint = Box::new(|_: &OutgoingBatch| Some((Duration::from_secs(10), status(200))));
    let mut driver = Driver::new(settings, endpoint);
    driver.is_large();
    driver.publish(&vec![("yes", 1); EVENTS]);
    let mut open_max = 0;
    for _ in 0..200 {
        driver.run_for(Duration::from_secs(1));
        open_max = open_max.max(driver.disk.cursor.lanes[0].open.event_count() as usize);
    }
    assert!(
        open_max <= OPEN_EVENTS_MAX && open_max > OPEN_EVENTS_MAX / 2,
        "{open_max}"
    );
    assert_eq!(driver.disk.cursor.counters.delivered, EVENTS as u64);
}

#[test]
fn each_event_of_a_request_has_the_result_that_the_service_gives_it() {
    let mut requests = 0;
    let endpoint = Box::new(move |request: &OutgoingBatch| {
        requests += 1;
        let codes = if requests == 1 {
            vec![200, 400, 500, 200]
        } else {
            vec![200; request.items.len()]
        };
        let items = request.items.iter().zip(codes);
        let events = items
            .map(|(item, code)| EventResult::new(item.seq, &status(code)))
            .collect();
        Some((Duration::ZERO, status(200).with_events(events)))
    });
    let mut driver = Driver::new(in_batches(10, 64 * 1024), endpoint);
    driver.publish(&[("yes", 10); 4]);
    expect!["0s ok×4 · 0s UndeliverableDueToHttpBadRequest · 10s ok"].assert_eq(&driver.run());
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.pending),
        (3, 1, 0)
    );
}

#[test]
fn an_event_that_is_too_large_alone_is_given_up_and_the_others_are_not() {
    let endpoint = Box::new(|request: &gridhook::policy::OutgoingBatch| {
        let bad = request.items.iter().any(|item| item.seq.0 == 2);
        Some((
            std::time::Duration::ZERO,
            status(if bad { 413 } else { 200 }),
        ))
    });
    let mut driver = Driver::new(in_batches(4, 64 * 1024), endpoint);
    driver.publish(&[("yes", 10); 4]);
    expect![
        "0s x×4 · 0s x×2 · 0s ok · 0s ok · 0s ok · 0s x · 0s UndeliverableDueToHttpPayloadTooLarge"
    ]
    .assert_eq(&driver.run());
}

#[test]
fn neither_a_batch_nor_a_single_event_that_is_too_large_is_a_step_to_suspension() {
    let settings = SubscriptionSettings {
        suspend_after: 1,
        ..in_batches(4, 64 * 1024)
    };
    let endpoint = Box::new(|request: &gridhook::policy::OutgoingBatch| {
        let bad = request.items.len() > 1 || request.items[0].seq.0 == 2;
        Some((
            std::time::Duration::ZERO,
            status(if bad { 413 } else { 200 }),
        ))
    });
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10); 4]);
    expect![
        "0s x×4 · 0s x×2 · 0s ok · 0s ok · 0s ok · 0s x · 0s UndeliverableDueToHttpPayloadTooLarge"
    ]
    .assert_eq(&driver.run_for(std::time::Duration::from_secs(1)));
    let cursor = &driver.disk.cursor;
    assert_eq!(cursor.health, Health::Healthy { failures: 0 });
    let counters = cursor.counters;
    assert_eq!(
        (counters.delivered, counters.dead_lettered, counters.pending),
        (3, 1, 0)
    );
}

#[test]
fn retries_get_one_turn_in_ten_while_first_attempts_wait() {
    let mut turn = 0;
    let endpoint = Box::new(move |request: &gridhook::policy::OutgoingBatch| {
        turn += 1;
        // The first ten fail; all that follows takes a second each, so that retries and first
        // attempts both wait.
        let retry = request.items.iter().any(|item| item.attempts > 0);
        let response = if turn <= 10 || retry {
            status(500)
        } else {
            status(200)
        };
        Some((
            std::time::Duration::from_secs(if turn <= 10 { 0 } else { 20 }),
            response,
        ))
    });
    let mut driver = Driver::new(plain(), endpoint);
    driver.publish(&[("yes", 10); 40]);
    expect![
        "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s ok · 20s ok · \
        40s ok · 1m ok · 1m 20s ok · 1m 40s ok · 2m ok · 2m 20s ok · 2m 40s ok · 3m x · 3m 20s \
        ok · 3m 40s ok · 4m ok · 4m 20s ok · 4m 40s ok · 5m ok · 5m 20s ok · 5m 40s ok · 6m ok \
        · 6m 20s x · 6m 40s ok"
    ]
    .assert_eq(&driver.run_for(std::time::Duration::from_secs(20 * 20)));
}

#[test]
fn filtered_events_are_counted_once() {
    let mut driver = Driver::new(
        in_batches(2, 64 * 1024),
        answers(vec![status(500), status(200)]),
    );
    driver.publish(&[
        ("no", 1),
        ("yes", 1),
        ("no", 1),
        ("no", 1),
        ("yes", 1),
        ("yes", 1),
        ("no", 1),
    ]);
    driver.run();
    driver.publish(&[("no", 1); 5]);
    driver.run();
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (
            counters.passed,
            counters.filtered,
            counters.matched,
            counters.delivered
        ),
        (12, 9, 3, 3)
    );
    assert_eq!((counters.requests, counters.requests_failed), (3, 1));
}

/// A machine whose batches are divided by the subject, and the sequences of each request that its
/// endpoint got. Requests whose number is in `refused` fail.
fn grouped(refused: std::ops::Range<usize>) -> (Driver, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let endpoint = Box::new(move |request: &OutgoingBatch| {
        let mut seen = seen.lock();
        let seqs: Vec<String> = request
            .items
            .iter()
            .map(|item| item.seq.0.to_string())
            .collect();
        seen.push(seqs.join("+"));
        Some((
            Duration::ZERO,
            status(if refused.contains(&(seen.len() - 1)) {
                500
            } else {
                200
            }),
        ))
    });
    let grouping: Arc<[FilterKey]> = Arc::new([FilterKey::from("subject".to_owned())]);
    (
        Driver::new(
            SubscriptionSettings {
                grouping,
                ..in_batches(3, 64 * 1024)
            },
            endpoint,
        ),
        requests,
    )
}

#[test]
fn a_batch_is_of_one_group_and_those_in_between_wait_for_theirs() {
    let (mut driver, requests) = grouped(0..0);
    let subjects = [
        "yes-a", "no", "yes-b", "yes-a", "no", "no", "yes-c", "yes-a", "yes-a", "yes-b", "no",
    ];
    driver.publish(&subjects.map(|subject| (subject, 1)));
    driver.run();
    expect!["1+4+8 3+10 7 9"].assert_eq(&requests.lock().join(" "));
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (
            counters.passed,
            counters.filtered,
            counters.matched,
            counters.delivered
        ),
        (11, 4, 7, 7)
    );
    assert_eq!(driver.disk.cursor.lanes[0].read.0, 12);
    assert!(
        driver.disk.cursor.lanes[0].open.is_empty() && driver.disk.cursor.lanes[0].done.is_empty()
    );
}

#[test]
fn a_group_stays_together_when_it_is_tried_again() {
    let (mut driver, requests) = grouped(0..3);
    driver.publish(
        &["yes-a", "yes-b", "yes-a", "yes-c", "yes-b", "yes-a"].map(|subject| (subject, 1)),
    );
    driver.run();
    expect!["1+3+6 2+5 4 1+3+6 2+5 4"].assert_eq(&requests.lock().join(" "));
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (
            counters.delivered,
            counters.pending,
            counters.requests,
            counters.requests_failed
        ),
        (6, 0, 6, 3)
    );
}

#[test]
fn an_endpoint_that_was_mended_gets_larger_batches_again_and_one_that_was_not_is_seldom_asked() {
    let mended = std::rc::Rc::new(std::cell::Cell::new(false));
    let is_mended = std::rc::Rc::clone(&mended);
    let refused = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = std::rc::Rc::clone(&refused);
    let endpoint = Box::new(move |request: &gridhook::policy::OutgoingBatch| {
        let large = !is_mended.get() && request.items.len() > 3;
        count.set(count.get() + u32::from(large));
        Some((
            std::time::Duration::ZERO,
            status(if large { 413 } else { 200 }),
        ))
    });
    let mut driver = Driver::new(in_batches(16, 64 * 1024), endpoint);
    let most = |driver: &Driver| driver.core.view_endpoint(driver.now).events_max;
    for _ in 0..100 {
        driver.publish(&[("yes", 10); 40]);
        driver.run();
    }
    // At first 16, 8 and 4 are too many; then 4 is tried after 50 batches of two, after 100, 200,
    // 400 and 800.
    assert_eq!((refused.get(), most(&driver)), (3 + 5, 2));
    mended.set(true);
    for _ in 0..400 {
        driver.publish(&[("yes", 10); 40]);
        driver.run();
    }
    assert_eq!(most(&driver), 16);
}

#[test]
fn first_attempts_and_retries_share_a_pace_and_neither_starves_the_other() {
    let mut turn = 0;
    let endpoint = Box::new(move |request: &gridhook::policy::OutgoingBatch| {
        turn += 1;
        let failed = turn <= 200 || request.items[0].attempts > 0;
        Some((
            std::time::Duration::ZERO,
            status(if failed { 500 } else { 200 }),
        ))
    });
    let rate_max = Some(gridhook::policy::record::Rate::from_per_second(10.0));
    let mut driver = Driver::new(
        SubscriptionSettings {
            rate_max,
            edition: super::without_probation(),
            ..plain()
        },
        endpoint,
    );
    driver.publish(&[("yes", 10); 1200]);
    // 200 failures at 10 in a second; those that failed first are due again by then.
    driver.run_for(std::time::Duration::from_secs(20));
    let fresh = driver.disk.cursor.counters.delivered;
    let requests = driver.disk.cursor.counters.requests;
    driver.run_for(std::time::Duration::from_secs(50));
    let counters = driver.disk.cursor.counters;
    let fresh = counters.delivered - fresh;
    let requests = counters.requests - requests;
    assert!(
        (499..=501).contains(&requests),
        "the pace is used and kept: {requests} requests in 50 s"
    );
    let retries = requests - fresh;
    assert!(
        (45..=51).contains(&retries),
        "retries have a tenth while others wait: {retries} of {requests}"
    );
}

/// Events in batches as they are sent: the limit applies to the body of the request, in any schema.
#[test]
fn the_preferred_size_is_that_of_the_body_in_every_schema() {
    let made = |from: Schema, to: Schema, data: usize| {
        let limits = BatchLimits {
            events_max: 5000,
            bytes_preferred: 4096,
            schema: to,
        };
        let destination = Destination::new("https://example.com/hook", "all", from, to, true)
            .expect("it can be called");
        let mut queue: VecDeque<ReadyEvent> = stored(from, 200, data).into();
        let mut sizes = Vec::new();
        while !queue.is_empty() {
            let batch = batch::take_batch(&mut queue, limits);
            let mut events: Vec<Event> = batch.into_iter().map(|ready| ready.event).collect();
            let body = build(&destination, &events, 0)
                .expect("readable")
                .body
                .len();
            assert!(
                body <= 4096 || events.len() == 1,
                "{from:?} to {to:?}: {} events in {body} bytes",
                events.len()
            );
            if let Some(next) = queue.front() {
                events.push(next.event.clone());
                let more = build(&destination, &events, 0)
                    .expect("readable")
                    .body
                    .len();
                assert!(
                    more > 4096,
                    "{from:?} to {to:?}: one more had fitted into {more} bytes"
                );
            }
            sizes.push(events.len());
        }
        sizes.len()
    };
    for from in [Schema::EventGrid, Schema::CloudEvents, Schema::Custom] {
        for to in from.delivery_schemas() {
            for data in [0, 60, 900, 5000] {
                let requests = made(from, *to, data);
                assert_eq!(
                    requests == 200,
                    data == 5000,
                    "{from:?} to {to:?}: {requests} requests"
                );
            }
        }
    }
}

/// A number of stored events in this schema, ready to be sent.
fn stored(schema: Schema, count: u64, data: usize) -> Vec<ReadyEvent> {
    let data = format!(r#"{{"of":"{}"}}"#, "x".repeat(data));
    let ready = |seq: u64| {
        let wire = match schema {
            Schema::EventGrid => format!(
                r#"{{"id":"{seq}","topic":"/t","subject":"s","eventType":"Made","eventTime":"2026-01-01T00:00:00Z","data":{data},"dataVersion":"1","metadataVersion":"1"}}"#
            ),
            Schema::CloudEvents => {
                format!(
                    r#"{{"specversion":"1.0","id":"{seq}","source":"/s","type":"Made","data":{data}}}"#
                )
            }
            Schema::Custom => data.clone(),
        };
        let start = wire.len() as u32;
        let text = format!("{wire}{seq}MadeOfSomething/a/resource/id/of/a/topic");
        let at = |from: usize, len: usize| TextRange {
            start: start + from as u32,
            len: len as u32,
        };
        let id = seq.to_string().len();
        let ranges = EventRanges {
            id: at(0, id),
            event_type: at(id, 4),
            topic: at(id + 15, 25),
            ..EventRanges::default()
        };
        let wire = TextRange {
            start: 0,
            len: start,
        };
        let event = Event::new(Seq(seq), Timestamp(0), schema, text.into(), wire, ranges);
        let item = SendItem {
            lane: Lane::LIVE,
            seq: Seq(seq),
            appended: Timestamp(0),
            attempts: 0,
            due: None,
            since: None,
        };
        ReadyEvent {
            item,
            event,
            last: None,
            group: PropertyGroup::default(),
            order: None,
        }
    };
    (1..=count).map(ready).collect()
}
