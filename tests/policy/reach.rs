//! An endpoint that could not be reached is looked for with bare connections, and what is fresh
//! goes first when it is back.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, time::Duration};

use gridhook::{
    event::{Seq, Timestamp},
    policy::{
        SubscriptionSettings,
        outcome::{Failure, RequestResult},
        record::{Command, Health},
    },
};

use proptest::prelude::*;

use super::{
    driver::{Driver, START, answers, status},
    plain,
};

const SECOND: Duration = Duration::from_secs(1);

fn looking() -> SubscriptionSettings {
    SubscriptionSettings {
        suspend_after: 3,
        reconnect_interval: SECOND,
        ..plain()
    }
}

/// A request for which no connection was made.
fn unreached(failure: Failure) -> RequestResult {
    RequestResult {
        unreached: true,
        ..RequestResult::from_outcome(failure)
    }
}

/// An endpoint that is silent until it recovers, and 1,000 events for it.
fn down(settings: SubscriptionSettings, failure: Failure) -> (Driver, Rc<Cell<bool>>) {
    let well = Rc::new(Cell::new(false));
    let answers = Rc::clone(&well);
    let reaches = Rc::clone(&well);
    let endpoint = Box::new(move |_: &_| {
        Some((
            Duration::from_millis(10),
            if answers.get() {
                status(200)
            } else {
                unreached(failure)
            },
        ))
    });
    let mut driver = Driver::new(settings, endpoint);
    driver.reach = Box::new(move || reaches.get());
    driver.publish(&[("yes", 10); 1000]);
    (driver, well)
}

#[test]
fn an_endpoint_that_is_back_has_fresh_events_within_seconds_and_no_attempt_is_spent_on_looking() {
    for failure in [
        Failure::SocketError,
        Failure::ResolutionError,
        Failure::TimedOut,
    ] {
        for jitter in [0.0, 0.5, 1.0] {
            let (mut driver, well) = down(looking(), failure);
            driver.jitter = jitter;
            driver.run_for(50 * SECOND);
            assert!(
                (40..=65).contains(&driver.connects.len()),
                "{failure}: {}",
                driver.connects.len()
            );
            assert!(
                driver.left.len() <= 6,
                "{failure}: {} requests",
                driver.left.len()
            );
            well.set(true);
            let back = driver.now;
            let tried = driver.left.len();
            driver.publish(&[("yes", 10)]);
            driver.run_for(2 * SECOND);
            let fresh = driver
                .order
                .iter()
                .position(|(_, seq)| *seq == Seq(1001))
                .expect("it was sent");
            let after = driver.left[fresh].since(back);
            assert!(
                after <= Duration::from_millis(1300),
                "{failure}: the fresh event left {after:?} after the return"
            );
            assert!(
                fresh - tried <= 5,
                "{failure}: {} went before it",
                fresh - tried
            );
            let found = driver.connects.len();
            driver.run_for(60 * SECOND);
            assert_eq!(
                driver.connects.len(),
                found,
                "there is nothing more to look for"
            );
        }
    }
}

/// Publishes an event at each interval.
fn publish_each(
    driver: &mut Driver,
    interval: Duration,
    time: Duration,
) -> BTreeMap<Seq, Timestamp> {
    let mut published = BTreeMap::new();
    let end = driver.now.after(time);
    while driver.now < end {
        published.insert(driver.end(), driver.now);
        driver.publish(&[("yes", 10)]);
        driver.run_for(interval);
    }
    published
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Whether as many events come as before an outage or fewer: those published once the endpoint
    /// is found wait for a few requests, although a backlog waits and those published before it was
    /// found.
    #[test]
    fn fresh_events_do_not_wait_while_an_endpoint_returns(
        per_second in 20_u32..100,
        healthy_share in 100_u32..200,
        backlog in 500_usize..1_500,
        pause in 1_u32..5,
    ) {
        let pause = pause * SECOND;
        let interval = SECOND / per_second;
        let settings = SubscriptionSettings {
            suspend_after: 10,
            concurrency_max: 16,
            reconnect_interval: pause,
            ..plain()
        };
        let well = Rc::new(Cell::new(true));
        let answers = Rc::clone(&well);
        let reaches = Rc::clone(&well);
        let endpoint = Box::new(move |_: &_| {
            let result = if answers.get() {
                status(200)
            } else {
                unreached(Failure::SocketError)
            };
            Some((Duration::from_millis(5), result))
        });
        let mut driver = Driver::new(settings, endpoint);
        driver.is_large();
        driver.reach = Box::new(move || reaches.get());
        publish_each(&mut driver, interval * 100 / healthy_share, 70 * SECOND);
        well.set(false);
        publish_each(&mut driver, interval, SECOND);
        driver.publish(&vec![("yes", 10); backlog]);
        publish_each(&mut driver, interval, 20 * SECOND);
        well.set(true);
        let from = driver.left.len();
        let unfound = publish_each(&mut driver, interval, 2 * pause);
        let fresh = publish_each(&mut driver, interval, 20 * SECOND);
        driver.run();
        let sent = driver.order[from..].iter().zip(&driver.left[from..]);
        let sent: BTreeMap<Seq, Timestamp> = sent.map(|((_, seq), left)| (*seq, *left)).collect();
        let longest_wait = |published: &BTreeMap<Seq, Timestamp>| {
            let waits = published.iter().map(|(seq, at)| sent[seq].since(*at));
            waits.max().expect("some were published")
        };
        let fresh_wait = longest_wait(&fresh);
        prop_assert!(fresh_wait <= 3 * interval, "{fresh_wait:?} of {interval:?}");
        let last_unfound = unfound.keys().map(|seq| sent[seq]).max().expect("some");
        let last = driver.left.last().expect("some");
        prop_assert!(last_unfound < *last, "they precede the backlog");
        let counters = driver.disk.cursor.counters;
        prop_assert_eq!(counters.passed, counters.delivered);
    }
}

#[test]
fn the_pause_is_a_sixtieth_of_the_outage_between_one_and_ten_times_the_setting() {
    for jitter in [0.0, 0.5, 1.0] {
        let (mut driver, _) = down(looking(), Failure::SocketError);
        driver.jitter = jitter;
        driver.run_for(1800 * SECOND);
        let spread = 1.0 + 0.2 * (2.0 * jitter - 1.0);
        for pair in driver.connects.windows(2) {
            let outage = pair[0].since(START);
            let pause = pair[1].since(pair[0]);
            let expected = (outage / 60).clamp(SECOND, 10 * SECOND).mul_f64(spread);
            // A probe that is due by its schedule puts it off.
            assert!(
                pause >= expected.mul_f64(0.95) && pause <= 2 * expected + SECOND,
                "{pause:?} after {outage:?}"
            );
        }
        assert!(driver.connects.len() > 250, "{}", driver.connects.len());
    }
}

#[test]
fn nothing_is_looked_for_that_fails_for_another_cause_or_is_held_or_where_that_is_off() {
    let tls = RequestResult::from_outcome(Failure::SocketError);
    for response in [
        status(503),
        status(404),
        status(500),
        RequestResult::from_outcome(Failure::TimedOut),
        tls,
    ] {
        let mut driver = Driver::new(looking(), answers(vec![response]));
        driver.publish(&[("yes", 10); 100]);
        driver.run_for(600 * SECOND);
        assert!(driver.left.len() >= 3);
        assert_eq!(driver.connects, []);
    }
    let (mut driver, _) = down(
        SubscriptionSettings {
            reconnect_interval: Duration::ZERO,
            ..looking()
        },
        Failure::SocketError,
    );
    driver.run_for(600 * SECOND);
    assert_eq!(driver.connects, []);
    let (mut driver, _) = down(looking(), Failure::SocketError);
    driver.run_for(10 * SECOND);
    driver.command(Command::Hold);
    let tried = driver.connects.len();
    driver.run_for(600 * SECOND);
    assert_eq!(driver.connects.len(), tried);
}

#[test]
fn an_endpoint_that_accepts_only_connections_is_probed_no_faster_and_not_suspended_longer() {
    let mut driver = Driver::new(looking(), answers(vec![unreached(Failure::SocketError)]));
    driver.reach = Box::new(|| true);
    driver.publish(&[("yes", 10); 1000]);
    driver.run_for(600 * SECOND);
    let suspensions = match driver.core.cursor().health {
        Health::Suspended {
            consecutive_suspensions,
            ..
        }
        | Health::Probing {
            consecutive_suspensions,
            ..
        } => consecutive_suspensions,
        Health::Healthy { .. } => panic!("nothing was taken"),
    };
    assert_eq!(suspensions, 1);
    assert!(
        (100..=400).contains(&driver.left.len()),
        "{}",
        driver.left.len()
    );
}

#[test]
fn at_the_start_of_the_server_the_first_probe_is_due_at_once_and_fresh_events_have_their_turns() {
    for cause in [status(404), status(503), unreached(Failure::SocketError)] {
        let failures = vec![cause.clone(), cause.clone(), cause, status(200)];
        let settings = SubscriptionSettings {
            reconnect_interval: Duration::ZERO,
            ..looking()
        };
        let mut driver = Driver::new(settings.clone(), answers(failures));
        driver.publish(&[("yes", 10); 1000]);
        driver.run_for(Duration::from_millis(100));
        assert_eq!(driver.left.len(), 3, "it is suspended");
        driver.run_off(SECOND);
        driver.restart(settings);
        driver.core.start(driver.now);
        let start = driver.now;
        driver.publish(&[("yes", 10)]);
        driver.run_for(SECOND);
        assert_eq!(driver.left[3], start);
        let fresh = driver
            .order
            .iter()
            .position(|(_, seq)| *seq == Seq(1001))
            .expect("it was sent");
        assert!(fresh <= 9, "{fresh}");
    }

    // A healthy endpoint with a backlog: the server was down, or was killed before it sent
    // anything.
    let mut driver = Driver::new(looking(), Box::new(|_| Some((SECOND, status(200)))));
    driver.publish(&[("yes", 10); 1000]);
    driver.run_off(SECOND);
    driver.restart(looking());
    driver.core.start(driver.now);
    driver.publish(&[("yes", 10)]);
    driver.run_for(10 * SECOND);
    let fresh = driver
        .order
        .iter()
        .position(|(_, seq)| *seq == Seq(1001))
        .expect("it was sent");
    assert!(fresh <= 5, "{fresh}");
    driver.run();
    assert_eq!(driver.disk.cursor.counters.delivered, 1001);
}
