//! The limit of concurrent requests.

use std::time::Duration;

use gridhook::{
    config::{Config, SettingSources},
    policy::{
        SubscriptionSettings,
        outcome::{Failure, Outcome},
    },
};

use super::{
    caller::{Caller, SECOND, busy, well},
    driver::{Driver, status},
    plain, without_probation,
};

const MS: Duration = Duration::from_millis(1);

fn caller(concurrency_max: u32) -> Caller {
    Caller::new(SubscriptionSettings {
        edition: without_probation(),
        concurrency_max,
        ..plain()
    })
}

fn limit(caller: &Caller) -> u32 {
    caller.endpoint.view(caller.now).concurrency
}

#[test]
fn a_fresh_endpoint_is_not_slow_and_gets_no_more_than_the_setting() {
    assert_eq!(
        [1, 5, 16, 1000].map(|max| limit(&caller(max))),
        [1, 5, 16, 16]
    );
}

#[test]
fn the_limit_rises_to_the_setting_while_it_is_reached_and_all_goes_well() {
    let mut caller = caller(200);
    caller.call_all(SECOND, &mut |_, _| (Outcome::Delivered, 100 * MS));
    assert_eq!(limit(&caller), 200);
}

/// The threads of a busy server and of an endpoint beside it wait for a processor for longer than a
/// request takes: then all requests in flight finish together, and the next ones are sent together.
#[test]
fn the_default_limit_keeps_up_with_bursts_whose_answers_come_in_rounds() {
    const ROUND: Duration = Duration::from_micros(2_500);
    let default = Config::load(&SettingSources::default())
        .expect("the defaults")
        .delivery
        .concurrency;
    let settings = SubscriptionSettings {
        concurrency_max: default as u32,
        ..plain()
    };
    let mut driver = Driver::new(settings, Box::new(|_| Some((ROUND, status(200)))));
    driver.is_large();
    // A stall of 50 ms, and then 8,000 events a second.
    driver.publish(&[("yes", 0); 400]);
    for _ in 0..80 {
        driver.publish(&[("yes", 0); 20]);
        driver.run_for(ROUND);
    }
    let waiting = 400 + 80 * 20 - driver.left.len();
    assert!(waiting < 2 * 20, "{waiting} events wait for a request");
}

#[test]
fn a_limit_that_is_not_reached_does_not_rise() {
    let mut caller = caller(200);
    caller.call(10 * SECOND, 50, &mut |_, _| (Outcome::Delivered, 100 * MS));
    assert_eq!(limit(&caller), 16);
}

#[test]
fn a_volley_of_failures_takes_the_limit_down_once_and_it_never_falls_below_one() {
    let mut volley = caller(16);
    let mut left = 16;
    let mut behavior = |_, _| {
        left -= 1;
        (
            if left >= 0 {
                Outcome::Failed(Failure::GenericError)
            } else {
                Outcome::Aborted
            },
            10 * MS,
        )
    };
    volley.call_all(15 * MS, &mut behavior);
    assert_eq!(limit(&volley), 11, "seven tenths of 16");
    let mut endless = caller(16);
    endless.call_all(SECOND, &mut busy);
    assert_eq!(limit(&endless), 1);
    endless.call_all(5 * SECOND, &mut well);
    assert_eq!(limit(&endless), 16, "it rises again");
}

#[test]
fn an_endpoint_that_gets_slower_by_what_it_is_given_is_given_less() {
    let mut caller = caller(64);
    // Four at once are no trouble; each further one makes all of them slower.
    let mut load =
        |_, in_flight: usize| (Outcome::Delivered, 20 * MS * (in_flight.max(4) / 4) as u32);
    caller.call(5 * SECOND, 100, &mut load);
    caller.call_all(SECOND, &mut load);
    let mut least = u32::MAX;
    let mut most = 0;
    for _ in 0..240 {
        caller.call_all(SECOND / 4, &mut load);
        (least, most) = (least.min(limit(&caller)), most.max(limit(&caller)));
    }
    assert!(
        least >= 4 && most <= 16,
        "neither starved nor driven to the setting: {least} to {most}"
    );
}

#[test]
fn an_endpoint_that_is_slower_for_good_is_known_as_that_after_a_while() {
    let mut caller = caller(16);
    caller.call_all(5 * SECOND, &mut |_, _| (Outcome::Delivered, 10 * MS));
    let mut slower = |_, _| (Outcome::Delivered, 100 * MS);
    caller.call_all(3 * SECOND, &mut slower);
    assert!(
        limit(&caller) < 8,
        "it may be pushed too hard: {}",
        limit(&caller)
    );
    caller.call_all(30 * SECOND, &mut slower);
    assert_eq!(limit(&caller), 16, "it was not");
}

#[test]
fn failures_and_our_own_aborts_teach_nothing_of_latency() {
    let run = |outcome: Outcome| {
        let mut caller = caller(16);
        caller.call_all(SECOND, &mut |_, _| (Outcome::Delivered, 10 * MS));
        let mut turn = 0;
        let mut behavior = |_, _| {
            turn += 1;
            if turn % 20 == 0 {
                (outcome, 900 * MS)
            } else {
                (Outcome::Delivered, 10 * MS)
            }
        };
        let lowest = |_| {
            caller.call_all(20 * MS, &mut behavior);
            limit(&caller)
        };
        (0..150).map(lowest).min().expect("some")
    };
    assert_eq!(run(Outcome::Aborted), 16);
    assert!(
        run(Outcome::Failed(Failure::TimedOut)) < 16,
        "but a failure is a failure"
    );
}

#[test]
fn a_batch_is_compared_with_batches_of_its_size() {
    let mut caller = caller(16);
    for _ in 0..20 {
        // A batch of a thousand takes longer than one of one; that is no sign of load.
        caller.events = 1;
        caller.call_all(SECOND / 4, &mut |_, _| (Outcome::Delivered, 5 * MS));
        caller.events = 1000;
        caller.call_all(SECOND / 2, &mut |_, _| (Outcome::Delivered, 100 * MS));
    }
    assert_eq!(limit(&caller), 16);
}

#[test]
fn after_probation_an_endpoint_without_a_known_rate_is_begun_with_one_request() {
    let mut caller = Caller::new(SubscriptionSettings {
        concurrency_max: 16,
        suspend_after: 10,
        ..plain()
    });
    caller.call_all(SECOND, &mut busy);
    caller.now = caller.endpoint.opens_at().expect("it is suspended");
    caller.call_all(12 * MS, &mut well);
    assert_eq!(limit(&caller), 1);
    caller.call_all(SECOND, &mut well);
    assert_eq!(limit(&caller), 16);
}
