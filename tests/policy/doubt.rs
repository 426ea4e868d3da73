//! A core whose clock is in doubt, or without room for another request: it waits, without spinning,
//! and goes on where it was.

use std::time::Duration;

use gridhook::{
    event::Lane,
    policy::{
        Blocked, Input, SubscriptionSettings,
        endpoint::Unavailable,
        outcome::Reason,
        record::{Command, HeldBy, LedgerEvent, Rate},
    },
};

use super::{
    driver::{Driver, START, answers, status},
    expiry::busy_until,
    plain,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn six_hours() -> SubscriptionSettings {
    SubscriptionSettings {
        time_to_live: 6 * HOUR,
        suspend_after: 1,
        ..plain()
    }
}

fn expired(driver: &Driver) -> usize {
    let too_old = |dead_lettered| LedgerEvent::GivenUp {
        reason: Reason::TimeToLiveExceeded,
        dead_lettered,
    };
    [Lane::LIVE, Lane::EXPIRY]
        .into_iter()
        .map(|lane| {
            driver.noted(lane, too_old(true)).len() + driver.noted(lane, too_old(false)).len()
        })
        .sum()
}

#[test]
fn while_expiry_is_held_events_are_tried_and_none_is_too_old() {
    let mut driver = Driver::new(six_hours(), busy_until(START.after(8 * HOUR)));
    driver.core.set_expiry_paused(true);
    driver.publish(&[("yes", 10), ("yes", 10), ("yes", 10)]);
    driver.run_until(START.after(24 * HOUR));
    assert_eq!(expired(&driver), 0);
    assert_eq!(driver.core.cursor().counters.delivered, 3);
}

#[test]
fn a_held_subscription_gives_up_nothing_before_the_hold_of_expiry_ends() {
    let mut driver = Driver::new(six_hours(), answers(vec![status(200)]));
    driver.core.set_expiry_paused(true);
    driver.command(Command::Hold);
    driver.publish(&[("yes", 10), ("yes", 10), ("yes", 10)]);
    driver.run_for(10 * HOUR);
    assert_eq!(expired(&driver), 0);
    driver.core.set_expiry_paused(false);
    driver.absorb(Input::Tick);
    driver.run_for(HOUR);
    assert_eq!(expired(&driver), 3);
}

#[test]
fn without_memory_for_bodies_nothing_leaves_and_no_timer_spins() {
    let settings = SubscriptionSettings {
        rate_max: Some(Rate::from_per_second(1.0)),
        ..six_hours()
    };
    let mut driver = Driver::new(settings, answers(vec![status(200)]));
    driver.core.limit_resources(usize::MAX, 0);
    driver.publish(&[("yes", 10), ("yes", 10), ("yes", 10)]);
    driver.run_for(HOUR);
    assert!(driver.left.is_empty() && driver.core.blocked(driver.now) == Some(Blocked::Memory));
    assert_eq!(
        driver.core.next_due(driver.now),
        None,
        "the release of memory wakes it"
    );
    // A request counts with its body, and the last one may exceed the rest.
    driver.core.limit_resources(usize::MAX, 1);
    driver.absorb(Input::Tick);
    driver.run_for(HOUR);
    assert_eq!(driver.core.cursor().counters.delivered, 1);
    driver.core.limit_resources(usize::MAX, usize::MAX);
    driver.absorb(Input::Tick);
    driver.run_for(HOUR);
    assert_eq!(driver.core.cursor().counters.delivered, 3);
}

#[test]
fn without_room_nothing_leaves_and_no_attempt_is_counted() {
    let mut driver = Driver::new(six_hours(), answers(vec![status(200)]));
    driver.core.limit_resources(0, usize::MAX);
    driver.publish(&[("yes", 10), ("yes", 10), ("yes", 10)]);
    driver.run_for(HOUR);
    assert!(
        driver.left.is_empty() && driver.core.blocked(driver.now) == Some(Blocked::Descriptors)
    );
    driver.core.limit_resources(1, usize::MAX);
    driver.absorb(Input::Tick);
    driver.run_for(HOUR);
    assert!(!driver.left.is_empty() && driver.core.blocked(driver.now).is_none());
    driver.core.limit_resources(usize::MAX, usize::MAX);
    driver.absorb(Input::Tick);
    driver.run_for(HOUR);
    let counters = driver.core.cursor().counters;
    assert_eq!((counters.delivered, counters.requests_failed), (3, 0));
}

#[test]
fn what_blocks_an_endpoint_is_named_in_the_order_of_its_weight() {
    let mut driver = Driver::new(six_hours(), answers(vec![status(503)]));
    assert_eq!(driver.core.blocked(driver.now), None);
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    let blocked = driver.core.blocked(driver.now);
    assert!(
        matches!(
            blocked,
            Some(Blocked::Endpoint(Unavailable::Suspended { .. }))
        ),
        "{blocked:?}"
    );
    driver.command(Command::Hold);
    let by = HeldBy::ByOperator;
    let held = Blocked::Endpoint(Unavailable::Held { by });
    assert_eq!(driver.core.blocked(driver.now), Some(held));
    driver.core.close();
    let closed = Blocked::Endpoint(Unavailable::Closed);
    assert_eq!(driver.core.blocked(driver.now), Some(closed));
}
