//! Redriven dead letters are sent once more and never lost: delivered, or dead letters again.

use std::time::Duration;

use bytes::Bytes;
use gridhook::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Input, OutgoingBatch, SubscriptionSettings,
        outcome::{Reason, RequestResult},
        record::{
            Command, Counters, LedgerEvent, RedrivePage, RedrivenEvent,
            job::{Job, JobCommand, JobKind, JobState},
        },
    },
};

use super::{
    driver::{Driver, Endpoint, status},
    plain,
};

const JOB: Lane = Lane::FIRST_JOB;

/// An endpoint that responds to a number of requests with `first`, and then with `then`; [`None`]
/// is no response.
fn turns(requests: usize, first: RequestResult, then: Option<RequestResult>) -> Endpoint {
    let mut turn = 0;
    Box::new(move |_: &OutgoingBatch| {
        turn += 1;
        if turn <= requests {
            Some((Duration::ZERO, first.clone()))
        } else {
            Some((Duration::ZERO, then.clone()?))
        }
    })
}

fn with_dead_letters() -> SubscriptionSettings {
    SubscriptionSettings {
        dead_letter: true,
        ..plain()
    }
}

/// Three events, given up.
fn given_up(endpoint: Endpoint) -> Driver {
    let mut driver = Driver::new(with_dead_letters(), endpoint);
    driver.publish(&[("yes", 10), ("yes", 10), ("no", 10), ("yes", 10)]);
    driver.run_for(Duration::from_secs(1));
    assert_eq!(driver.disk.dead.len(), 3);
    driver
}

/// Begins a redrive, and takes back all dead letters, in a number of pages.
fn redrive(driver: &mut Driver, pages: usize) {
    let kind = JobKind::Redrive { drained: false };
    let rate = None;
    driver.command(Command::Job(JobCommand::Start { kind, rate }));
    let waiting: Vec<(Lane, Seq)> = driver.disk.dead.keys().copied().collect();
    let size = waiting.len().div_ceil(pages);
    for (number, page) in waiting.chunks(size).enumerate() {
        let letter = |(lane, seq): &(Lane, Seq)| RedrivenEvent {
            seq: *seq,
            waited: Some((Timestamp(1), *seq, *lane)),
            event: None,
        };
        let letters = page.iter().map(letter).collect();
        let drained = (number + 1) * size >= waiting.len();
        let page = RedrivePage {
            lane: JOB,
            dead_letters: letters,
            progress: Bytes::new(),
            totals: None,
            drained,
        };
        // A redrive that a crash has prevented takes nothing.
        if driver.core.refuses_dead_letters(JOB).is_none() {
            driver.absorb(Input::Redrive(Box::new(page)));
        }
    }
}

fn ended(driver: &Driver) -> &Job {
    assert!(
        driver.disk.cursor.jobs.is_empty(),
        "{:?}",
        driver.disk.cursor.jobs
    );
    driver.disk.ended.last().expect("it has ended")
}

#[test]
fn redriven_dead_letters_are_delivered_and_counted_separately() {
    for pages in [1, 2, 3] {
        let mut driver = given_up(turns(3, status(400), Some(status(200))));
        let own = driver.disk.cursor.counters;
        redrive(&mut driver, pages);
        driver.run_for(Duration::from_secs(60));
        let Job {
            state, counters, ..
        } = *ended(&driver);
        let expected = Counters {
            passed: 3,
            matched: 3,
            delivered: 3,
            requests: counters.requests,
            ..Counters::default()
        };
        assert_eq!((state, counters), (JobState::Completed, expected));
        assert_eq!(
            driver.disk.cursor.replayed, counters,
            "one job is the whole column"
        );
        assert_eq!(
            driver.disk.cursor.counters, own,
            "nothing else is counted again"
        );
        assert!(driver.disk.dead.is_empty() && driver.disk.pending.is_empty());
        assert_eq!(
            driver.noted(Lane::LIVE, LedgerEvent::Redriven { into: JOB }),
            [1, 2, 4]
        );
    }
}

#[test]
fn attempts_and_time_to_live_begin_anew() {
    let mut driver = given_up(turns(3, status(400), Some(status(503))));
    driver.run_off(with_dead_letters().time_to_live * 2);
    redrive(&mut driver, 1);
    driver.run_for(Duration::from_secs(300));
    let job = &driver.disk.cursor.jobs[0];
    assert_eq!(
        (job.counters.pending, job.counters.dead_lettered),
        (3, 0),
        "they are young again"
    );
    assert!(
        driver
            .disk
            .pending
            .values()
            .all(|pending| pending.attempts > 0)
    );
    // The last wait of the schedule may reach beyond it.
    driver.run_for(with_dead_letters().time_to_live * 2);
    let job = ended(&driver);
    assert_eq!(
        (job.state, job.counters.dead_lettered),
        (JobState::Completed, 3),
        "and dead letters again"
    );
    assert_eq!(driver.disk.dead.len(), 3);
    assert!(driver.disk.dead.keys().all(|(lane, _)| *lane == JOB));
    assert!(driver.disk.dead.values().all(|dead| dead.attempts > 1));
}

#[test]
fn a_canceled_redrive_returns_its_pending_deliveries_to_the_dead_letters() {
    let mut driver = given_up(turns(3, status(400), Some(status(503))));
    redrive(&mut driver, 1);
    driver.run_for(Duration::from_secs(5));
    assert_eq!(driver.disk.cursor.jobs[0].counters.pending, 3);
    driver.command(Command::Job(JobCommand::Cancel(JOB)));
    driver.run_for(Duration::from_secs(1));
    let job = ended(&driver);
    assert_eq!(
        (job.state, job.counters.dead_lettered, job.counters.canceled),
        (JobState::Canceled, 3, 0)
    );
    let reasons: Vec<Reason> = driver.disk.dead.values().map(|dead| dead.reason).collect();
    assert_eq!(reasons, [Reason::RedriveCanceled; 3]);
    let why = LedgerEvent::GivenUp {
        reason: Reason::RedriveCanceled,
        dead_lettered: true,
    };
    assert_eq!(driver.noted(JOB, why), [1, 2, 4]);
    assert!(
        driver.core.refuses_dead_letters(JOB).is_some(),
        "it takes no more"
    );
}

#[test]
fn a_paused_redrive_takes_nothing_back_and_one_that_is_unknown_never() {
    let mut driver = given_up(turns(3, status(400), None));
    assert!(driver.core.refuses_dead_letters(JOB).is_some());
    redrive(&mut driver, 1);
    driver.command(Command::Job(JobCommand::Pause(JOB)));
    assert!(driver.core.refuses_dead_letters(JOB).is_some());
    driver.command(Command::Job(JobCommand::Resume(JOB)));
    assert_eq!(driver.core.refuses_dead_letters(JOB), None);
}

#[test]
fn a_crash_behind_any_write_leaves_every_dead_letter_in_one_place() {
    for writes in 0..8 {
        let mut driver = given_up(turns(3, status(400), Some(status(200))));
        driver.writes_left = writes;
        redrive(&mut driver, 1);
        driver.run_for(Duration::from_secs(120));
        let job = driver.disk.cursor.jobs.first();
        let counters = driver.disk.cursor.replayed;
        let waiting = driver.disk.dead.len() as u64;
        let pending = driver.disk.pending.len() as u64;
        assert_eq!(
            waiting + pending + counters.delivered,
            3,
            "{writes}: {job:?}"
        );
        assert_eq!(pending, 0, "{writes}: what was taken back is sent");
    }
}
