//! Replays in the core: priority, rate, duration and end.

use std::time::Duration;

use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        SubscriptionSettings,
        batch::BatchLimits,
        outcome::Reason,
        record::{
            Command, Counters, Rate,
            job::{Job, JobCommand, JobKind, JobRefused, JobState},
        },
    },
};

use super::{
    driver::{Driver, answers, status},
    plain, without_probation,
};

const JOB: Lane = Lane::FIRST_JOB;
const SECOND: Duration = Duration::from_secs(1);

fn replay(from: u64, end: u64, rate: Option<f64>) -> Command {
    let kind = JobKind::Replay {
        from: Seq(from),
        end: Seq(end),
    };
    Command::Job(JobCommand::Start {
        kind,
        rate: rate.map(Rate::from_per_second),
    })
}

/// A subscription that has received this number of events. Later requests have this result.
fn with_history(settings: SubscriptionSettings, events: usize, then: Vec<u16>) -> Driver {
    let mut script = vec![status(200); events];
    script.extend(then.into_iter().map(status));
    let mut driver = Driver::new(settings, answers(script));
    for _ in 0..events {
        driver.publish(&[("yes", 1)]);
    }
    driver.run();
    assert_eq!(driver.core.cursor().counters.delivered, events as u64);
    driver.order.clear();
    driver.left.clear();
    driver
}

fn ended(driver: &Driver) -> &Job {
    let [job] = &driver.disk.ended[..] else {
        panic!("{:?}", driver.disk.ended)
    };
    assert_eq!(driver.core.cursor().jobs, []);
    job
}

#[test]
fn a_replay_sends_its_part_of_the_log_once_more_and_counts_in_its_own_column() {
    let mut driver = Driver::new(plain(), answers(vec![status(200)]));
    driver.publish(&[
        ("yes", 1),
        ("no", 1),
        ("yes", 1),
        ("yes", 1),
        ("no", 1),
        ("yes", 1),
    ]);
    driver.run();
    let before = driver.core.cursor().counters;
    driver.order.clear();
    driver.command(replay(2, 6, None));
    driver.run();
    assert_eq!(driver.order, [(JOB, Seq(3)), (JOB, Seq(4))]);
    let counters = Counters {
        passed: 4,
        filtered: 2,
        matched: 2,
        delivered: 2,
        requests: 2,
        ..Counters::default()
    };
    let job = ended(&driver);
    assert_eq!((job.state, job.counters), (JobState::Completed, counters));
    assert_eq!(
        (driver.core.cursor().counters, driver.core.cursor().replayed),
        (before, counters)
    );
}

#[test]
fn its_own_rate_is_obeyed_and_used() {
    for (rate, batch, events) in [(5.0, 1, 40), (200.0, 20, 400), (0.5, 4, 10)] {
        let settings = SubscriptionSettings {
            batch: BatchLimits {
                events_max: batch,
                bytes_preferred: 1 << 20,
                ..plain().batch
            },
            ..plain()
        };
        let mut driver = with_history(settings, events, vec![200]);
        let from = driver.now;
        driver.command(replay(1, events as u64 + 1, Some(rate)));
        driver.run();
        assert_eq!(ended(&driver).counters.delivered, events as u64);
        let took = driver.now.since(from).as_secs_f64();
        let least = (events as f64 - (rate / 4.0).max(1.0) - 1.0) / rate;
        assert!(
            (least..least * 1.2 + 1.0).contains(&took),
            "{events} events at {rate} took {took} s"
        );
    }
}

#[test]
fn published_events_are_sent_at_once_during_a_replay() {
    let settings = SubscriptionSettings {
        concurrency_max: 8,
        ..plain()
    };
    let mut driver = with_history(settings, 100, vec![200]);
    // From here on each request lasts a second.
    driver.slow_down(SECOND);
    driver.command(replay(1, 101, None));
    let mut waited = Duration::ZERO;
    for _ in 0..20 {
        driver.run_for(Duration::from_millis(300));
        let from = driver.now;
        let sent = driver.order.len();
        driver.publish(&[("yes", 1)]);
        while driver.order[sent..]
            .iter()
            .all(|(lane, _)| *lane != Lane::LIVE)
        {
            driver.run_for(Duration::from_millis(1));
        }
        waited = waited.max(driver.now.since(from));
    }
    assert_eq!(
        waited,
        Duration::ZERO,
        "something that was published had to wait"
    );
    let jobs = driver.order.iter().filter(|(lane, _)| *lane == JOB).count();
    // Two of eight places, six seconds.
    assert!((10..=14).contains(&jobs), "{jobs} of the replay left");
    driver.run();
    assert_eq!(ended(&driver).counters.delivered, 100);
}

#[test]
fn a_busy_subscription_leaves_a_replay_its_turn() {
    let mut driver = with_history(plain(), 20, vec![200]);
    driver.slow_down(Duration::from_millis(10));
    driver.command(replay(1, 21, None));
    for _ in 0..400 {
        driver.publish(&[("yes", 1)]);
    }
    driver.run();
    let first = driver
        .order
        .iter()
        .position(|(lane, _)| *lane == JOB)
        .expect("it has a turn");
    let last = driver
        .order
        .iter()
        .rposition(|(lane, _)| *lane == JOB)
        .expect("it has a turn");
    assert!(
        first < 25 && (360..=420).contains(&last),
        "from {first} to {last} of {}",
        driver.order.len()
    );
}

#[test]
fn a_replay_stops_while_the_endpoint_is_suspended_or_held() {
    let settings = SubscriptionSettings {
        suspend_after: 1,
        ..plain()
    };
    let mut driver = with_history(settings, 30, [vec![200; 5], vec![503], vec![200]].concat());
    driver.slow_down(Duration::from_millis(10));
    driver.command(replay(1, 31, None));
    driver.run_for(SECOND);
    assert_eq!(
        driver.order.len(),
        6,
        "nothing leaves while it is suspended"
    );
    driver.command(Command::Release);
    // It is called at a pace now, and the replay has a quarter of that.
    driver.run_for(10 * SECOND);
    driver.command(Command::Hold);
    let held = driver.order.len();
    driver.run_for(60 * SECOND);
    assert!(
        held > 6 && driver.order.len() == held,
        "{held}, {}",
        driver.order.len()
    );
    driver.command(Command::Resume);
    driver.run();
    assert_eq!(
        (
            ended(&driver).counters.delivered,
            ended(&driver).counters.requests_failed
        ),
        (30, 1)
    );
}

#[test]
fn a_paused_replay_sends_nothing_not_even_pending_deliveries() {
    let settings = SubscriptionSettings {
        edition: without_probation(),
        ..plain()
    };
    let mut driver = with_history(settings, 20, [vec![503; 10], vec![200]].concat());
    driver.slow_down(Duration::from_millis(10));
    driver.command(replay(1, 21, None));
    driver.run_for(Duration::from_millis(95));
    driver.command(Command::Job(JobCommand::Pause(JOB)));
    driver.run_for(Duration::from_millis(20));
    let sent = driver.order.len();
    let jobs = driver.core.cursor().jobs;
    assert!(
        jobs[0].counters.pending > 5 && jobs[0].state == JobState::Paused,
        "{jobs:?}"
    );
    driver.run_for(3600 * SECOND);
    assert_eq!(driver.order.len(), sent, "a paused replay sends");
    driver.crash();
    driver.run_for(3600 * SECOND);
    assert_eq!(
        driver.order.len(),
        sent,
        "a paused replay sends after a crash"
    );
    assert_eq!(
        driver
            .core
            .command_problem(Command::Job(JobCommand::Pause(JOB)))
            .map(|why| why.to_string())
            .as_deref(),
        Some("the job 16 is paused")
    );
    driver.command(Command::Job(JobCommand::Resume(JOB)));
    driver.run();
    assert_eq!(
        (ended(&driver).state, ended(&driver).counters.delivered),
        (JobState::Completed, 20)
    );
}

#[test]
fn a_canceled_replay_ends_its_pending_deliveries_and_no_others() {
    let settings = SubscriptionSettings {
        edition: without_probation(),
        ..plain()
    };
    for crash in [false, true] {
        let mut driver = with_history(settings.clone(), 30, vec![503; 500]);
        driver.command(replay(1, 31, None));
        driver.run_for(Duration::from_millis(95));
        driver.publish(&[("yes", 1)]);
        driver.run_for(SECOND);
        driver.command(Command::Job(JobCommand::Cancel(JOB)));
        if crash {
            driver.crash();
        }
        driver.run_for(SECOND);
        let job = ended(&driver).clone();
        assert_eq!(job.state, JobState::Canceled);
        assert!(
            job.counters.canceled > 0 && job.counters.pending == 0,
            "{job:?}"
        );
        assert_eq!(
            driver.core.cursor().counters.pending,
            1,
            "what was published is pending"
        );
        let sent = driver.order.iter().filter(|(lane, _)| *lane == JOB).count();
        driver.run_for(3600 * SECOND);
        assert_eq!(
            driver.order.iter().filter(|(lane, _)| *lane == JOB).count(),
            sent,
            "a canceled replay sends"
        );
        assert_eq!(
            driver
                .core
                .command_problem(Command::Job(JobCommand::Cancel(JOB))),
            Some(gridhook::policy::record::CommandRefused::Job(
                JobRefused::Unknown(JOB)
            ))
        );
    }
}

#[test]
fn old_events_grow_old_anew_in_a_replay_and_what_it_gives_up_is_a_dead_letter_of_its_own() {
    let settings = SubscriptionSettings {
        time_to_live: 600 * SECOND,
        edition: without_probation(),
        ..plain()
    };
    let mut driver = with_history(settings, 3, [vec![200], vec![503; 100]].concat());
    driver.run_for(24 * 3600 * SECOND);
    let from = driver.now;
    driver.command(replay(1, 4, None));
    driver.run();
    let job = ended(&driver);
    assert_eq!(
        (job.counters.delivered, job.counters.dead_lettered),
        (1, 2),
        "{job:?}"
    );
    for seq in [2, 3] {
        let dead = &driver.disk.dead[&(JOB, Seq(seq))];
        assert_eq!(dead.reason, Reason::TimeToLiveExceeded);
        assert!(
            dead.attempts > 3 && dead.given_up >= from.after(600 * SECOND),
            "{dead:?}"
        );
        assert!(dead.published < from, "{dead:?}");
    }
}

#[test]
fn a_subscription_that_starts_in_the_past_does_not_find_it_too_old() {
    let mut driver = Driver::new(
        SubscriptionSettings {
            time_to_live: 60 * SECOND,
            ..plain()
        },
        answers(vec![status(200)]),
    );
    driver.command(Command::Hold);
    driver.publish(&[("yes", 1), ("yes", 1)]);
    driver.run_off(3600 * SECOND);
    let made = driver.now;
    driver.restart(SubscriptionSettings {
        time_to_live: 60 * SECOND,
        since: made,
        ..plain()
    });
    driver.command(Command::Resume);
    driver.run();
    assert_eq!(driver.core.cursor().counters.delivered, 2);
}

#[test]
fn as_many_run_as_may_and_each_in_a_lane_of_its_own() {
    let mut driver = with_history(plain(), 5, vec![200]);
    driver.command(Command::Hold);
    for _ in 0..20 {
        driver.command(replay(1, 6, None));
    }
    let jobs = driver.core.cursor().jobs;
    assert_eq!(
        jobs.iter().map(|job| job.lane.0).collect::<Vec<_>>(),
        (16..24).collect::<Vec<_>>()
    );
    let refused = driver
        .core
        .command_problem(replay(1, 6, None))
        .map(|why| why.to_string())
        .unwrap_or_default();
    assert!(
        refused.starts_with("8 jobs of this event subscription run or are paused"),
        "{refused}"
    );
    driver.command(Command::Resume);
    driver.run();
    assert_eq!(driver.disk.ended.len(), 8);
    assert_eq!(driver.core.cursor().replayed.delivered, 40);
    driver.command(replay(1, 2, None));
    assert_eq!(
        driver.core.cursor().jobs[0].lane,
        Lane(24),
        "a number is not used again"
    );
    driver.run_until(Timestamp::NEVER);
}

#[test]
fn a_crash_at_any_write_leaves_a_replay_that_ends_whole() {
    for writes in 1..40 {
        let settings = SubscriptionSettings {
            edition: without_probation(),
            ..plain()
        };
        let mut driver = with_history(settings, 12, [200, 503].repeat(100));
        driver.command(replay(3, 13, None));
        driver.writes_left = writes;
        driver.run();
        assert_eq!(driver.core.cursor().jobs, []);
        assert_eq!(
            (
                ended(&driver).counters.passed,
                ended(&driver).counters.delivered
            ),
            (10, 10),
            "{writes}"
        );
    }
}
