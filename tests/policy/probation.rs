//! When an endpoint is left alone.

use std::time::Duration;

use expect_test::{Expect, expect};
use gridhook::policy::{
    Settings,
    edition::Probation,
    endpoint::duration,
    outcome::{Answer, Outcome},
    record::{Command, Health},
};

use super::{
    current,
    driver::{Driver, answers, status},
    plain,
};

/// Twelve events in twelve requests at once: ten failures suspend.
fn check(script: Vec<Answer>, wait: Duration, expected: Expect) -> Driver {
    let settings = Settings { suspend_after: 10, concurrency_max: 12, ..plain() };
    let mut driver = Driver::new(settings, answers(script));
    driver.publish(&[("yes", 10); 12]);
    expected.assert_eq(&driver.run_for(wait));
    driver
}

const HOUR: Duration = Duration::from_secs(60 * 60);

#[test]
fn ten_failures_suspend_for_the_tables_duration_then_one_probe_goes_out() {
    let driver = check(
        vec![status(503)],
        Duration::from_secs(300),
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 30s x · 50s x · 1m 30s x · 2m 50s x"
        ],
    );
    assert!(matches!(driver.core.cursor().health, Health::Suspended { cause: Outcome::Busy, .. }));
}

#[test]
fn each_probe_that_fails_doubles_the_wait_by_its_own_outcome() {
    check(
        vec![Answer::bare(Outcome::ResolutionError)],
        6 * HOUR,
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 5m x · 15m x · 35m x · 1h 15m x · 2h 35m x · 5h 15m x"
        ],
    );
}

#[test]
fn a_probe_that_succeeds_lets_everything_through() {
    let mut script = vec![status(500); 12];
    script.push(status(200));
    let driver = check(
        script,
        HOUR,
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok"
        ],
    );
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 0 });
    assert_eq!(driver.disk.cursor.counters.delivered, 12);
}

#[test]
fn nine_failures_and_a_success_begin_the_count_again() {
    let mut script = vec![status(500); 9];
    script.push(status(200));
    script.extend(vec![status(500); 2]);
    script.push(status(200));
    let driver = check(
        script,
        Duration::from_secs(5),
        expect!["0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s ok · 0s x · 0s x"],
    );
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 2 });
}

#[test]
fn a_subscription_that_is_suspended_asks_for_no_reads() {
    let mut driver = check(
        vec![status(404)],
        Duration::from_secs(5),
        expect!["0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x"],
    );
    let reads = driver.reads;
    driver.publish(&[("yes", 10); 50]);
    driver.run_for(Duration::from_secs(60));
    assert_eq!(driver.reads, reads);
    assert_eq!(driver.core.in_flight(), 0);
}

#[test]
fn a_subscription_that_is_held_sends_and_reads_nothing_until_it_is_resumed() {
    let mut driver = Driver::new(plain(), answers(vec![status(500), status(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(5));
    driver.command(Command::Hold);
    let reads = driver.reads;
    driver.publish(&[("yes", 10)]);
    driver.run_for(HOUR);
    assert_eq!((driver.reads, driver.core.next_due(driver.now)), (reads, None));
    assert!(driver.disk.cursor.held);
    driver.command(Command::Resume);
    expect!["0s x · 1h 5s ok · 1h 5s ok"].assert_eq(&driver.run());
}

#[test]
fn the_wait_doubles_with_every_strike_up_to_the_longest() {
    let table: Probation = current().probation.clone();
    let minutes = |cause, strikes| duration(&table, cause, strikes).as_secs_f64() / 60.0;
    assert_eq!([1, 2, 3, 6, 7].map(|strikes| minutes(Outcome::NotFound, strikes)), [5.0, 10.0, 20.0, 160.0, 180.0]);
    assert_eq!(minutes(Outcome::GenericError, 2), 20.0 / 60.0);
    assert_eq!(minutes(Outcome::Busy, u32::MAX), 180.0);
}

#[test]
fn an_answer_from_before_the_suspension_does_not_end_probing() {
    let mut turn = 0;
    // The first takes long and succeeds; the second suspends the endpoint; the third is the probe, and takes longer.
    let endpoint = Box::new(move |_: &_| {
        turn += 1;
        Some(match turn {
            1 => (Duration::from_secs(20), status(200)),
            2 => (Duration::ZERO, status(500)),
            3 => (Duration::from_secs(30), status(200)),
            _ => (Duration::ZERO, status(200)),
        })
    });
    let settings = Settings { suspend_after: 1, concurrency_max: 2, ..plain() };
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10); 4]);
    expect!["0s ok · 0s x · 10s ok"].assert_eq(&driver.run_for(Duration::from_secs(30)));
    assert_eq!(driver.disk.cursor.counters.delivered, 1, "the straggler's event is delivered");
    assert!(matches!(driver.core.cursor().health, Health::Probing { .. }), "and the probe is still waited for");
    assert_eq!(driver.core.in_flight(), 1);
    expect!["0s ok · 0s x · 10s ok · 40s ok · 40s ok"].assert_eq(&driver.run());
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 0 });
}
