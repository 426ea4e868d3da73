//! Inputs that arrive together have the same consequences as one by one, in fewer writes.

use gridhook::{
    event::{Lane, RequestId, Seq},
    policy::{
        Effect, Input, SubscriptionSettings,
        batch::BatchLimits,
        record::{Command, RecordChange},
        retry::Jitter,
    },
};

use super::{
    driver::{Driver, status},
    plain,
};

const CONCURRENCY: usize = 16;

/// A subscription whose requests are in flight, one event each: as many of `events` as the first
/// limit allows.
fn waiting(events: usize) -> Driver {
    let settings = SubscriptionSettings {
        concurrency_max: 100,
        ..plain()
    };
    let mut driver = Driver::new(settings, Box::new(|_| None));
    driver.publish(&vec![("yes", 10); events]);
    assert_eq!(driver.sent.len(), events.min(CONCURRENCY));
    driver
}

fn taken(request: &RequestId) -> (Input, Jitter) {
    (
        Input::Finished {
            request: *request,
            result: status(200),
        },
        Jitter(0.0),
    )
}

fn sends(effects: &[Effect]) -> usize {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Send { .. }))
        .count()
}

#[test]
fn answers_that_arrive_together_raise_the_limit_as_one_by_one_and_share_a_write() {
    let mut alone = waiting(100);
    let mut together = waiting(100);
    let requests: Vec<RequestId> = alone.sent.keys().copied().collect();
    let mut sent = 0;
    let mut finished = Vec::new();
    for request in &requests {
        let step = alone.core.process_inputs([taken(request)], alone.now);
        sent += sends(&step.effects);
        finished.push(step.write.map_or(0, |write| write.finished.len()));
    }
    let step = together
        .core
        .process_inputs(requests.iter().map(taken), together.now);
    assert_eq!(
        finished[..2],
        [1, 0],
        "the others wait for the write in progress"
    );
    assert_eq!(step.write.map(|write| write.finished), Some(requests));
    assert_eq!(
        (sends(&step.effects), sent),
        (2 * CONCURRENCY, 2 * CONCURRENCY)
    );
    let limits =
        [&alone, &together].map(|driver| driver.core.view_endpoint(driver.now).concurrency);
    assert_eq!(limits, [2 * CONCURRENCY as u32; 2]);
}

#[test]
fn a_limit_that_was_not_reached_is_not_raised_by_answers_that_arrive_together() {
    let mut driver = waiting(CONCURRENCY - 1);
    let requests: Vec<RequestId> = driver.sent.keys().copied().collect();
    let step = driver
        .core
        .process_inputs(requests.iter().map(taken), driver.now);
    assert_eq!(step.write.map(|write| write.finished), Some(requests));
    assert_eq!(
        driver.core.view_endpoint(driver.now).concurrency,
        CONCURRENCY as u32
    );
}

#[test]
fn appended_events_are_read_before_a_decision_only_where_nothing_else_would_follow() {
    let mut driver = waiting(1);
    let end = Seq(2);
    let next = Seq(3);
    assert_eq!(driver.core.read_on(end, driver.now), None, "nothing is new");
    assert_eq!(driver.core.read_on(next, driver.now), Some(end));
    assert_eq!(
        driver.core.read_on(next, driver.now),
        None,
        "a read is in progress"
    );
    let read = Input::Read {
        lane: Lane::LIVE,
        from: end,
        upto: next,
        total: 1,
        events: Vec::new(),
    };
    let step = driver
        .core
        .process_inputs([(read, Jitter(0.0))], driver.now);
    assert!(
        step.effects.is_empty(),
        "the filter rejected it: {:?}",
        step.effects
    );
    assert_eq!(driver.core.cursor().lanes[0].read, next);
    driver.command(Command::Hold);
    assert_eq!(
        driver.core.read_on(Seq(4), driver.now),
        None,
        "nothing is read while it is held"
    );
}

#[test]
fn a_wave_of_failures_is_written_in_parts_and_to_its_end() {
    let batch = BatchLimits {
        events_max: 2500,
        bytes_preferred: 1 << 20,
        ..plain().batch
    };
    let mut driver = Driver::new(
        SubscriptionSettings {
            concurrency_max: 100,
            batch,
            ..plain()
        },
        Box::new(|_| None),
    );
    driver.is_large();
    driver.slice_max = 2500;
    driver.publish(&vec![("yes", 10); CONCURRENCY * 2500]);
    let requests: Vec<RequestId> = driver.sent.keys().copied().collect();
    assert_eq!(requests.len(), CONCURRENCY);
    let failed = |request: &RequestId| {
        (
            Input::Finished {
                request: *request,
                result: status(503),
            },
            Jitter(0.0),
        )
    };
    let mut step = driver
        .core
        .process_inputs(requests.iter().map(failed), driver.now);
    let mut deferred = 0;
    let mut finished = Vec::new();
    while let Some(write) = step.write.take() {
        let is_deferred = |change: &&RecordChange| matches!(change, RecordChange::Defer { .. });
        deferred += write.changes.iter().filter(is_deferred).count();
        assert!(
            write.changes.len() < 4096 + 2600,
            "{} changes in a write",
            write.changes.len()
        );
        finished.extend(write.finished);
        assert!(
            finished.len() == requests.len() || driver.core.waits_for_write(),
            "the rest has a wake"
        );
        step = driver
            .core
            .process_input(Input::Durable, driver.now, Jitter(0.0));
    }
    assert_eq!((deferred, finished), (CONCURRENCY * 2500, requests));
}
