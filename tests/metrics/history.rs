//! The history of figures in memory, sampled at given seconds.

use gridhook::metrics::history::{History, RESOLUTIONS, Sample, Step};
use proptest::{collection::vec, prelude::*};

use crate::support::process;

/// A sample with this first counter and this first gauge.
fn sample(counter: u64, gauge: u64) -> Sample {
    Sample {
        counters: std::array::from_fn(|index| if index == 0 { counter } else { 0 }),
        gauges: [gauge, 0],
        ..Sample::default()
    }
}

/// The rises of the first counter, where there were some or where nothing was recorded.
fn rises(history: &History<u8>, resolution: usize) -> Vec<Option<u32>> {
    let (_, steps) = history.read_steps(&1, resolution).expect("a history");
    steps
        .iter()
        .map(|step| step.map(|step| step.counters[0]))
        .collect()
}

fn last(history: &History<u8>, resolution: usize, count: usize) -> Vec<Option<u32>> {
    let all = rises(history, resolution);
    all[all.len() - count..].to_vec()
}

/// Measured in a process of its own, as other tests allocate meanwhile.
#[test]
fn the_history_of_all_scopes_stays_within_its_budget_of_memory() {
    const SCOPES: usize = 301;
    const HISTORIES: usize = 8;
    if std::env::var_os("GRIDHOOK_MEASURED").is_none() {
        let name = "metrics::history::the_history_of_all_scopes_stays_within_its_budget_of_memory";
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        let out = child
            .args([name, "--exact", "--nocapture"])
            .env("GRIDHOOK_MEASURED", "1")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && said.contains("bytes a history"),
            "{said}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        print!("{said}");
        return;
    }
    let own = || process::anonymous(std::process::id());
    let before = own();
    let histories: Vec<History<(u32, u32)>> = (0..HISTORIES)
        .map(|_| {
            let mut history = History::default();
            for minute in 0..1_500 {
                history.add_samples(
                    minute * 60,
                    (0..SCOPES as u32).map(|scope| ((scope, 0), sample(minute, minute))),
                );
            }
            history
        })
        .collect();
    let each = (own() - before) / HISTORIES as u64;
    println!(
        "{each} bytes a history, {} computed",
        History::<(u32, u32)>::memory_bytes(SCOPES)
    );
    assert!((2_000_000..=7_000_000).contains(&each), "{each} bytes");
    assert!(
        histories
            .iter()
            .all(|history| history.read_steps(&(300, 0), 2).is_some())
    );
}

#[test]
fn each_resolution_has_the_rise_of_a_counter_and_the_maximum_of_a_gauge_in_each_step() {
    let mut history = History::default();
    for second in (0..=1_200).step_by(5) {
        history.add_samples(second, [(1, sample(second, second % 60))]);
    }
    for (resolution, (length, points)) in RESOLUTIONS.into_iter().enumerate() {
        let (from, steps) = history.read_steps(&1, resolution).expect("a history");
        let recorded: Vec<&Step> = steps.iter().flatten().collect();
        assert_eq!(
            from,
            (1_200 / length).saturating_sub(points as u64) * length
        );
        assert!(
            recorded
                .iter()
                .all(|step| step.counters == sample(length, 0).counters.map(|count| count as u32)),
            "{length}: {recorded:?}"
        );
        assert_eq!(recorded.len() as u64, (1_200 / length).min(points as u64));
        assert_eq!(recorded.iter().map(|step| step.gauges[0]).max(), Some(55));
        assert!(
            recorded.iter().all(|step| step.percentiles == [None, None]),
            "there were no responses"
        );
    }
    assert!(history.read_steps(&2, 0).is_none());
}

#[test]
fn a_moment_without_a_sample_is_a_gap_and_a_clock_that_goes_back_leaves_no_future() {
    let mut history = History::default();
    for second in [100, 105, 130, 135] {
        history.add_samples(second, [(1, sample(second, 0))]);
    }
    assert_eq!(
        last(&history, 0, 7),
        [Some(5), Some(25), None, None, None, None, Some(5)]
    );
    history.add_samples(110, [(1, sample(140, 0))]);
    history.add_samples(115, [(1, sample(145, 0))]);
    let steps = rises(&history, 0);
    assert_eq!(
        steps.iter().flatten().copied().collect::<Vec<_>>(),
        [5],
        "{steps:?}"
    );
}

#[test]
fn a_deleted_subscription_takes_its_counts_with_it_and_no_total_falls() {
    let mut history = History::default();
    for (second, counter) in [
        (0, 1_000),
        (5, 1_010),
        (10, 300),
        (15, 320),
        (20, 320),
        (60, 330),
    ] {
        history.add_samples(second, [(1, sample(counter, 0))]);
    }
    assert_eq!(
        rises(&history, 0)[..4],
        [Some(10), Some(0), Some(20), Some(0)]
    );
    assert_eq!(rises(&history, 1), [Some(40)], "only the rises count");
    history.add_samples(65, [(2, sample(0, 0))]);
    assert!(
        history.read_steps(&1, 0).is_none(),
        "a scope without a sample is forgotten"
    );
}

#[test]
fn a_scope_that_comes_later_has_gaps_before_it() {
    let mut history = History::default();
    history.add_samples(0, [(2, sample(0, 0))]);
    history.add_samples(5, [(1, sample(7, 0)), (2, sample(0, 0))]);
    history.add_samples(10, [(1, sample(9, 0)), (2, sample(0, 0))]);
    assert_eq!(rises(&history, 0), [None, Some(2)]);
}

#[test]
fn percentiles_are_of_the_responses_of_the_step() {
    let mut history = History::default();
    let with = |at: usize, count: u64| {
        let mut sample = Sample::default();
        sample.responses[0] = 1_000;
        sample.responses[at] += count;
        sample
    };
    history.add_samples(0, [(1, with(0, 0))]);
    // A hundred responses of 50 to 100 ms; those before do not count.
    history.add_samples(5, [(1, with(6, 100))]);
    let (_, steps) = history.read_steps(&1, 0).expect("a history");
    assert_eq!(
        steps[0].expect("a step").percentiles,
        [Some(75_000), Some(99_500)]
    );
    let mut slow = with(6, 100);
    *slow.responses.last_mut().expect("a range") += 1;
    history.add_samples(10, [(1, slow)]);
    let (_, steps) = history.read_steps(&1, 0).expect("a history");
    assert_eq!(
        steps[1].expect("a step").percentiles,
        [Some(30_000_000); 2],
        "more than 30 s has no upper bound"
    );
}

proptest! {
    /// As long as the clock goes forward and nothing falls, no event is lost or counted twice in
    /// any resolution.
    #[test]
    fn the_steps_add_up(samples in vec((1_u64..400, 0_u64..50), 1..60)) {
        let mut history = History::default();
        let mut second = 7_000_000;
        let mut counter = 0;
        history.add_samples(second, [(1, sample(0, 0))]);
        let mut known = vec![(second, 0)];
        for (wait, rise) in samples {
            (second, counter) = (second + wait, counter + rise);
            history.add_samples(second, [(1, sample(counter, 0))]);
            known.push((second, counter));
        }
        for (resolution, (length, points)) in RESOLUTIONS.into_iter().enumerate() {
            let all: u64 = rises(&history, resolution).into_iter().flatten().map(u64::from).sum();
            // The counter at the first sample of the current step, and that of the first step that
            // is kept.
            let at = |step: u64| known.iter().find(|(second, _)| second / length >= step).map_or(0, |(_, counter)| *counter);
            let current = second / length;
            let kept = current.saturating_sub(points as u64);
            let before = if kept <= 7_000_000 / length { 0 } else { at(kept) };
            // A step that was sampled before the kept ones may reach into them.
            prop_assert!(all <= at(current) - before.min(at(current)), "{all}");
            if kept <= 7_000_000 / length {
                prop_assert_eq!(all, at(current));
            }
        }
    }
}

#[test]
fn the_next_process_continues_the_points_with_a_gap_for_the_time_between() {
    let mut before = History::<u8>::default();
    for second in (0..60).step_by(5) {
        before.add_samples(second, [(1, sample(second * 2, 3)), (2, sample(second, 0))]);
    }
    let bytes = before.encode(|scope| u64::from(*scope));
    let continued = |bytes: &[u8], now: u64| {
        let mut after = History::default();
        let restored = after.restore(bytes, 10, |number| number as u8);
        // The first samples of a process have the server alone.
        after.add_samples(now, [(1, sample(1_000, 0))]);
        after.add_samples(now + 5, [(1, sample(1_005, 0)), (2, sample(7, 0))]);
        (after, restored)
    };
    let (after, restored) = continued(&bytes, 80);
    assert_eq!(restored, Some(()));
    let expected = [Some(10), Some(10), None, None, None, None, None, Some(5)];
    assert_eq!(last(&after, 0, 8)[..7], expected[..7]);
    let (_, steps) = after.read_steps(&2, 0).expect("a history");
    assert_eq!(
        steps.iter().flatten().count(),
        11,
        "the other scope is continued, too"
    );
    // A clock that was set back: the points are of a time that has not come.
    let (set_back, _) = continued(&bytes, 20);
    assert!(rises(&set_back, 0).iter().flatten().count() <= 1);
    for length in 0..bytes.len() {
        let mut damaged = History::default();
        let restored = damaged.restore(&bytes[..length], 10, |number| number as u8);
        assert_eq!(restored, None, "the first {length} bytes");
    }
    let mut of_later_version = bytes.clone();
    of_later_version[0] = 2;
    let mut fresh = History::default();
    assert_eq!(
        fresh.restore(&of_later_version, 10, |number| number as u8),
        None
    );
    // A scope that no sample uses is dropped.
    let (mut after, _) = continued(&bytes, 80);
    after.add_samples(90, [(3, sample(0, 0))]);
    assert!(after.read_steps(&2, 0).is_none());
}
