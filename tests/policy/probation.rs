//! Probation: when an endpoint is suspended.

use std::time::Duration;

use expect_test::{Expect, expect};
use gridhook::{
    event::{RequestId, Timestamp},
    policy::{
        SubscriptionSettings,
        edition::ProbationRules,
        endpoint::{Endpoint, EventAge, RequestReport, suspension_duration},
        outcome::{Failure, LastOutcome, Outcome, Reason, RequestResult},
        record::{Command, CommandRefused, Cursor, Health, HeldBy},
    },
};

use super::{
    current,
    driver::{Driver, START, answers, status},
    plain,
};

/// Twelve events in twelve concurrent requests: ten failures suspend.
fn check(script: Vec<RequestResult>, wait: Duration, expected: Expect) -> Driver {
    let settings = SubscriptionSettings {
        suspend_after: 10,
        concurrency_max: 12,
        ..plain()
    };
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
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · \
             30s x · 50s x · 1m 30s x · 2m 50s x"
        ],
    );
    assert!(matches!(
        driver.core.cursor().health,
        Health::Suspended {
            cause: Failure::Busy,
            ..
        }
    ));
}

#[test]
fn each_probe_that_fails_doubles_the_wait_by_its_own_outcome() {
    check(
        vec![RequestResult::from_outcome(Failure::ResolutionError)],
        6 * HOUR,
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · \
             5m x · 15m x · 35m x · 1h 15m x · 2h 35m x · 5h 15m x"
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
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · \
             10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s ok · 10s \
             ok · 10s ok · 10s ok"
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
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s ok · 0s x · 0s x"
        ],
    );
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 2 });
}

#[test]
fn a_suspended_subscription_reads_nothing() {
    let _rows = crate::spec::shows(&["S000-146: No delivery is attempted during probation."]);
    let mut driver = check(
        vec![status(404)],
        Duration::from_secs(5),
        expect![
            "0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x · 0s x"
        ],
    );
    let reads = driver.reads;
    driver.publish(&[("yes", 10); 50]);
    driver.run_for(Duration::from_secs(60));
    assert_eq!(driver.reads, reads);
    assert_eq!(driver.core.in_flight(), 0);
}

#[test]
fn an_endpoint_that_only_refuses_events_is_not_held() {
    let settings = SubscriptionSettings {
        hold_after_failing: Some(24 * HOUR),
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(503), status(400)]));
    for _ in 0..5 {
        driver.publish(&[("yes", 10)]);
        driver.run_for(12 * HOUR);
    }
    assert_eq!(driver.disk.cursor.held, None);
}

#[test]
fn an_endpoint_without_a_success_for_days_is_held_at_the_first_failure_after_them_also_across_restarts()
 {
    let days = |days: u32| 24 * days * HOUR;
    let settings = SubscriptionSettings {
        hold_after_failing: Some(days(5)),
        suspend_after: 10,
        ..plain()
    };
    for failure in [
        status(503),
        RequestResult::from_outcome(Outcome::Failed(Failure::TimedOut)),
    ] {
        let is_back = std::rc::Rc::new(std::cell::Cell::new(false));
        let is_up = std::rc::Rc::clone(&is_back);
        let failed = failure.clone();
        let endpoint = Box::new(move |_: &gridhook::policy::OutgoingBatch| {
            Some((
                Duration::ZERO,
                if is_up.get() {
                    status(200)
                } else {
                    failed.clone()
                },
            ))
        });
        let mut driver = Driver::new(settings.clone(), endpoint);
        // An event every seven hours, so that there is always one that is tried.
        let fail_for = |driver: &mut Driver, turns: u32| {
            for _ in 0..turns {
                driver.publish(&[("yes", 10)]);
                driver.run_for(7 * HOUR);
                driver.restart(settings.clone());
            }
        };
        fail_for(&mut driver, 13);
        is_back.set(true);
        driver.publish(&[("yes", 10)]);
        driver.run_for(24 * HOUR);
        is_back.set(false);
        assert!(
            driver.disk.cursor.pace.failing_since.is_none(),
            "a success begins anew"
        );
        let from = driver.left.len();
        fail_for(&mut driver, 17);
        assert_eq!(
            driver.disk.cursor.held, None,
            "{failure:?}: 119 hours are less than five days"
        );
        fail_for(&mut driver, 5);
        let left = &driver.left[from..];
        let held = left
            .iter()
            .position(|at| at.since(left[0]) >= days(5))
            .expect("an attempt after five days");
        assert_eq!(
            driver.disk.cursor.held,
            Some(HeldBy::EndpointFailing),
            "{failure:?}"
        );
        assert_eq!(
            left.len(),
            held + 1,
            "{failure:?}: the first attempt after five days is the last one"
        );

        driver.command(Command::Resume);
        fail_for(&mut driver, 2);
        assert_eq!(
            driver.disk.cursor.held, None,
            "{failure:?}: the time begins anew"
        );
        assert!(
            driver.left.len() > from + held + 1,
            "{failure:?}: it is called again"
        );
    }
    let mut off = Driver::new(plain(), answers(vec![status(503)]));
    for _ in 0..20 {
        off.publish(&[("yes", 10)]);
        off.run_for(12 * HOUR);
    }
    assert_eq!(off.disk.cursor.held, None);
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
    let too_old = START
        .after(Duration::from_secs(5))
        .after(plain().time_to_live);
    assert_eq!(
        (driver.reads, driver.core.next_due(driver.now)),
        (reads, Some(too_old))
    );
    assert_eq!(driver.disk.cursor.held, Some(HeldBy::ByOperator));
    driver.command(Command::Resume);
    expect!["0s x · 1h 5s ok · 1h 5s ok"].assert_eq(&driver.run());
}

#[test]
fn the_suspension_doubles_each_time_up_to_the_maximum() {
    let table: ProbationRules = current().probation.clone();
    let minutes =
        |cause, suspensions| suspension_duration(&table, cause, suspensions).as_secs_f64() / 60.0;
    assert_eq!(
        [1, 2, 3, 6, 7].map(|suspensions| minutes(Failure::NotFound, suspensions)),
        [5.0, 10.0, 20.0, 160.0, 180.0]
    );
    assert_eq!(minutes(Failure::GenericError, 2), 20.0 / 60.0);
    assert_eq!(minutes(Failure::Busy, u32::MAX), 180.0);
}

#[test]
fn an_answer_from_before_the_suspension_does_not_end_probing() {
    let mut turn = 0;
    // The first takes long and succeeds; the second suspends the endpoint; the third is the probe,
    // and takes longer.
    let endpoint = Box::new(move |_: &_| {
        turn += 1;
        Some(match turn {
            1 => (Duration::from_secs(20), status(200)),
            2 => (Duration::ZERO, status(500)),
            3 => (Duration::from_secs(30), status(200)),
            _ => (Duration::ZERO, status(200)),
        })
    });
    let settings = SubscriptionSettings {
        suspend_after: 1,
        concurrency_max: 2,
        ..plain()
    };
    let mut driver = Driver::new(settings, endpoint);
    driver.publish(&[("yes", 10); 4]);
    expect!["0s ok · 0s x · 10s ok"].assert_eq(&driver.run_for(Duration::from_secs(30)));
    assert_eq!(
        driver.disk.cursor.counters.delivered, 1,
        "the straggler's event is delivered"
    );
    assert!(
        matches!(driver.core.cursor().health, Health::Probing { .. }),
        "and the probe is still waited for"
    );
    assert_eq!(driver.core.in_flight(), 1);
    expect!["0s ok · 0s x · 10s ok · 40s ok · 40s ok"].assert_eq(&driver.run());
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 0 });
}

/// An endpoint after these outcomes, one second apart.
fn after(settings: &SubscriptionSettings, outcomes: &[Outcome]) -> (Endpoint, Timestamp) {
    let mut endpoint =
        Endpoint::from_cursor(settings, &Cursor::default(), std::iter::empty(), START);
    let mut now = START;
    for (number, outcome) in outcomes.iter().enumerate() {
        let request = RequestId(number as u64);
        endpoint.record_sent(request, EventAge::Old, true, now);
        let received = RequestReport {
            request,
            sent: now,
            events: 1,
            in_flight: 1,
            outcome: *outcome,
            refused: false,
            retry_after: None,
            latency: Duration::from_millis(1),
        };
        endpoint.on_response(received, now);
        now = now.after(Duration::from_secs(1));
    }
    (endpoint, now)
}

fn strict() -> SubscriptionSettings {
    SubscriptionSettings {
        edition: current(),
        suspend_after: 10,
        ..plain()
    }
}

#[test]
fn half_of_the_requests_of_a_minute_suspend_by_the_outcome_that_crossed_the_line() {
    let ok = Outcome::Delivered;
    let bad = Outcome::Failed(Failure::TimedOut);
    let rows: [(&str, Vec<Outcome>, bool); 5] = [
        ("every second one of twenty", [ok, bad].repeat(10), true),
        ("of nineteen", [bad, ok].repeat(10)[..19].to_vec(), false),
        (
            "nine of twenty",
            [vec![ok], [ok, bad].repeat(9), vec![ok]].concat(),
            false,
        ),
        ("one in three", [ok, ok, bad].repeat(20), false),
        (
            "in two minutes",
            [vec![ok; 20], vec![ok; 60], [ok, bad].repeat(9)].concat(),
            false,
        ),
    ];
    for (reported, outcomes, expected) in rows {
        let (endpoint, _) = after(&strict(), &outcomes);
        let suspended = matches!(
            endpoint.health(),
            Health::Suspended {
                cause: Failure::TimedOut,
                ..
            }
        );
        assert_eq!(suspended, expected, "{reported}: {:?}", endpoint.health());
    }
}

#[test]
fn failures_before_a_probation_do_not_count_after_it() {
    let ok = Outcome::Delivered;
    let bad = Outcome::Failed(Failure::Busy);
    let mut outcomes = [ok, bad].repeat(10);
    // Ten seconds of Busy, then the probe.
    outcomes.extend(vec![Outcome::Aborted; 10]);
    let (mut endpoint, now) = after(&strict(), &outcomes);
    endpoint.on_command(Command::Release, now);
    for number in 100..103 {
        endpoint.record_sent(RequestId(number), EventAge::Old, true, now);
        let latency = Duration::ZERO;
        let received = RequestReport {
            request: RequestId(number),
            sent: now,
            events: 1,
            in_flight: 1,
            outcome: bad,
            refused: false,
            retry_after: None,
            latency,
        };
        endpoint.on_response(received, now);
    }
    assert_eq!(endpoint.health(), Health::Healthy { failures: 3 });
}

#[test]
fn the_probation_of_every_outcome_has_the_duration_of_the_table() {
    let rows = [
        (Failure::Busy, 10),
        (Failure::NotFound, 300),
        (Failure::SocketError, 30),
        (Failure::ResolutionError, 300),
        (Failure::Disabled, 300),
        (Failure::Full, 300),
        (Failure::TimedOut, 10),
        (Failure::Unauthorized, 300),
        (Failure::Forbidden, 300),
        (Failure::InvalidAzureFunctionDestination, 600),
        (Failure::GenericError, 10),
    ];
    for (failure, seconds) in rows {
        let (endpoint, now) = after(&strict(), &[Outcome::Failed(failure); 10]);
        let last = now.before(Duration::from_secs(1));
        let Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions: 1,
        } = endpoint.health()
        else {
            panic!("{failure}: {:?}", endpoint.health());
        };
        assert_eq!(
            (cause, since, until.since(since).as_secs()),
            (failure, last, seconds)
        );
        assert_eq!(
            endpoint.free_requests(0, EventAge::Old, until.before(Duration::from_micros(1))),
            0,
            "nobody calls before its end"
        );
        assert_eq!(
            (
                endpoint.free_requests(0, EventAge::Old, until),
                endpoint.opens_at()
            ),
            (1, Some(until)),
            "then one probe goes out"
        );
    }
}

#[test]
fn a_clock_that_was_set_back_makes_no_suspension_longer_than_its_kind_allows() {
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let since = START.after(year);
    let until = START.after(year).after(Duration::from_secs(20));
    for (consecutive_suspensions, seconds) in [(1, 10), (2, 20), (30, 3 * 60 * 60)] {
        let health = Health::Suspended {
            cause: Failure::Busy,
            since,
            until,
            consecutive_suspensions,
        };
        let cursor = Cursor {
            health,
            ..Cursor::default()
        };
        let endpoint = Endpoint::from_cursor(&strict(), &cursor, std::iter::empty(), START);
        assert_eq!(
            endpoint.opens_at(),
            Some(START.after(Duration::from_secs(seconds))),
            "{consecutive_suspensions} suspensions"
        );
    }
}

// --- an operator's commands ---

#[test]
fn a_probe_that_is_asked_for_goes_out_at_once_and_costs_nothing_else() {
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 3,
            ..plain()
        },
        answers(vec![status(404)]),
    );
    driver.publish(&[("yes", 10); 5]);
    expect!["0s x · 0s x · 0s x"].assert_eq(&driver.run_for(Duration::from_secs(60)));
    driver.command(Command::Probe);
    expect!["0s x · 0s x · 0s x · 1m x"].assert_eq(&driver.run_for(Duration::from_secs(60)));
    let Health::Suspended {
        consecutive_suspensions,
        ..
    } = driver.core.cursor().health
    else {
        panic!("the probe failed")
    };
    assert_eq!(
        (consecutive_suspensions, driver.disk.pending.len()),
        (2, 4),
        "the fifth was not touched"
    );
    assert!(
        driver
            .disk
            .pending
            .values()
            .all(|pending| pending.attempts == 1)
    );
}

#[test]
fn an_endpoint_that_is_released_is_healthy_at_once() {
    let mut script = vec![status(404); 3];
    script.push(status(200));
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 3,
            ..plain()
        },
        answers(script),
    );
    driver.publish(&[("yes", 10); 5]);
    driver.run_for(Duration::from_secs(60));
    driver.command(Command::Release);
    assert_eq!(driver.core.cursor().health, Health::Healthy { failures: 0 });
    expect!["0s x · 0s x · 0s x · 1m ok · 1m ok · 5m ok · 5m ok · 5m ok"].assert_eq(&driver.run());
    assert_eq!(driver.disk.cursor.health, Health::Healthy { failures: 0 });
}

#[test]
fn a_command_that_has_no_sense_says_why_and_changes_nothing() {
    let mut driver = Driver::new(
        SubscriptionSettings {
            suspend_after: 1,
            ..plain()
        },
        answers(vec![status(404)]),
    );
    let check = |driver: &mut Driver, probe, release| {
        assert_eq!(driver.core.command_problem(Command::Probe), probe);
        assert_eq!(driver.core.command_problem(Command::Release), release);
        if let (Some(_), Some(_)) = (probe, release) {
            let before = driver.core.cursor();
            driver.command(Command::Probe);
            driver.command(Command::Release);
            assert_eq!(driver.core.cursor(), before);
        }
    };
    check(
        &mut driver,
        Some(CommandRefused::Healthy),
        Some(CommandRefused::Healthy),
    );
    driver.publish(&[("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    check(&mut driver, None, None);
    driver.command(Command::Hold);
    check(&mut driver, Some(CommandRefused::Held), None);
}

// --- dead letters during probation, and 410 ---

fn impatient() -> SubscriptionSettings {
    SubscriptionSettings {
        suspend_after: 2,
        dead_letter_in_probation: true,
        ..plain()
    }
}

/// Outcome and attempts of every dead letter caused by probation, in order.
fn dead(driver: &Driver) -> Vec<(LastOutcome, u32)> {
    let dead = driver.disk.dead.values();
    dead.filter(|dead| dead.reason == Reason::ProbationCausedByClientError)
        .map(|dead| (dead.outcome, dead.attempts))
        .collect()
}

#[test]
fn events_due_in_a_probation_after_a_client_error_become_dead_letters_at_once() {
    // 404 is tried again after five minutes. The suspension lasts five minutes, and then ten.
    let mut driver = Driver::new(impatient(), answers(vec![status(404)]));
    driver.publish(&[
        ("yes", 10),
        ("yes", 10),
        ("yes", 10),
        ("no", 1),
        ("yes", 10),
    ]);
    driver.run_for(Duration::from_secs(1));
    let probation = (LastOutcome::Probation, 0);
    assert_eq!(
        dead(&driver),
        [probation; 2],
        "those that were not tried yet"
    );
    driver.publish(&[("yes", 10); 300]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(dead(&driver), [probation; 302]);
    // The first one is the probe; the second is due while the endpoint is suspended again.
    driver.run_for(Duration::from_secs(10 * 60));
    assert_eq!(driver.disk.pending.len(), 0);
    let tried: Vec<_> = dead(&driver)
        .into_iter()
        .filter(|(_, attempts)| *attempts > 0)
        .collect();
    assert_eq!(
        tried,
        [(LastOutcome::Probation, 2), (LastOutcome::Probation, 1)]
    );
    crate::spec::fact("S000-145", &tried[0].0.to_string().into());
    let counters = driver.disk.cursor.counters;
    assert_eq!(
        (counters.matched, counters.dead_lettered, counters.requests),
        (304, 304, 3)
    );
}

#[test]
fn other_causes_and_other_subscriptions_wait() {
    let waits = |settings: SubscriptionSettings, response: RequestResult| {
        let mut driver = Driver::new(settings, answers(vec![response]));
        driver.publish(&[("yes", 10); 4]);
        driver.run_for(Duration::from_secs(5));
        assert!(matches!(
            driver.core.cursor().health,
            Health::Suspended { .. }
        ));
        driver.disk.dead.len()
    };
    assert_eq!(waits(impatient(), status(404)), 2);
    assert_eq!(waits(impatient(), status(503)), 0);
    assert_eq!(
        waits(
            SubscriptionSettings {
                dead_letter_in_probation: false,
                ..impatient()
            },
            status(404)
        ),
        0
    );
}

#[test]
fn an_endpoint_that_is_gone_is_held_where_the_subscription_says_so_until_it_is_resumed() {
    let settings = SubscriptionSettings {
        hold_when_gone: true,
        ..plain()
    };
    let mut driver = Driver::new(
        settings,
        answers(vec![status(404), status(410), status(200)]),
    );
    driver.publish(&[("yes", 10); 3]);
    expect!["0s x · 0s x"].assert_eq(&driver.run_for(HOUR));
    let too_old = START.after(plain().time_to_live);
    assert_eq!(
        (driver.disk.cursor.held, driver.core.next_due(driver.now)),
        (Some(HeldBy::Gone), Some(too_old))
    );
    driver.command(Command::Resume);
    assert_eq!(driver.disk.cursor.held, None);
    expect!["0s x · 0s x · 1h ok · 1h ok · 1h ok"].assert_eq(&driver.run());
    let mut patient = Driver::new(plain(), answers(vec![status(410), status(200)]));
    patient.publish(&[("yes", 10)]);
    expect!["0s x · 5m ok"].assert_eq(&patient.run());
}
