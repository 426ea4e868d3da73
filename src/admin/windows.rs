//! The figures of topics and event subscriptions over recorded windows, and the condition that
//! follows from them.
//!
//! A window ends at the time of the request and begins at a recorded time, so every reader sees the
//! same figures.

use parking_lot::{Mutex, MutexGuard};

use gridhook_api::top::ConditionView;
use gridhook_engine::control::registry::{SubscriptionSnapshot, TopicHandle};
use gridhook_event::{PartitionId, SubscriptionKey, Timestamp, chunk::RunningTotals};
use gridhook_metrics::{
    history::{RANGES, estimate_quantile},
    windows::{RecordedSums, WINDOWS, WindowRule, WindowStart, Windows, WrappingSums},
};
use gridhook_policy::condition::{
    self, Condition, ConditionFacts, ConditionVerdict, WindowOutcomes, judge_condition,
};

const _: () = assert!(
    WINDOWS.len() == condition::WINDOWS,
    "a condition is judged by the recorded windows"
);

/// Response times have two recorded times only, because each has a number for each range: the
/// window has 30 to 60 minutes.
const RESPONSE_TIMES: [WindowRule; 1] = [WindowRule {
    length: 1_800,
    spacing: 1_800,
}];

type SubscriptionSums = WrappingSums<5>;
type ResponseSums = WrappingSums<RANGES>;

pub(super) struct RecordedWindows(Mutex<WindowsState>);

struct WindowsState {
    subscriptions: Windows<SubscriptionKey, SubscriptionSums>,
    response_times: Windows<SubscriptionKey, ResponseSums>,
    topics: Windows<PartitionId, [u64; 2]>,
}

impl Default for RecordedWindows {
    fn default() -> Self {
        Self(Mutex::new(WindowsState {
            subscriptions: Windows::new(&WINDOWS),
            response_times: Windows::new(&RESPONSE_TIMES),
            topics: Windows::new(&WINDOWS),
        }))
    }
}

fn whole_seconds(now: Timestamp) -> u64 {
    now.since(Timestamp(0)).as_secs()
}

fn subscription_sums(snapshot: &SubscriptionSnapshot) -> SubscriptionSums {
    let counters = &snapshot.counters;
    WrappingSums::new([
        counters.passed + snapshot.backlog,
        counters.delivered,
        counters.requests + snapshot.received,
        counters.requests_failed,
        counters.dead_lettered + counters.dropped,
    ])
}

fn response_sums(snapshot: &SubscriptionSnapshot) -> ResponseSums {
    let mut sums = [0; RANGES];
    for (sum, count) in sums.iter_mut().zip(snapshot.response_times()) {
        *sum = count;
    }
    WrappingSums::new(sums)
}

impl RecordedWindows {
    /// Records the present sums, if a window needs them.
    pub(super) fn record_sums(&self, topics: &[std::sync::Arc<TopicHandle>], now: Timestamp) {
        let seconds = whole_seconds(now);
        let snapshots = || topics.iter().flat_map(|topic| list_snapshots(topic));
        let mut state = self.lock();
        if state.topics.is_due(seconds) {
            let sums = topics
                .iter()
                .map(|topic| (topic.partition(), topic_sums(topic.accepted_totals())));
            state.topics.record_sums(seconds, sums);
        }
        if state.subscriptions.is_due(seconds) {
            let sums = snapshots().map(|(key, snapshot)| (key, subscription_sums(&snapshot)));
            state.subscriptions.record_sums(seconds, sums);
        }
        if state.response_times.is_due(seconds) {
            let sums = snapshots().map(|(key, snapshot)| (key, response_sums(&snapshot)));
            state.response_times.record_sums(seconds, sums);
        }
    }

    /// The recorded windows at this time. Keep the view for a moment only: recording waits.
    pub(super) fn view_at(&self, now: Timestamp) -> WindowsView<'_> {
        let state = self.lock();
        let now = whole_seconds(now);
        WindowsView {
            starts: state.subscriptions.window_starts(now),
            state,
            now,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WindowsState> {
        self.0.lock()
    }
}

fn topic_sums(taken: RunningTotals) -> [u64; 2] {
    [taken.count, taken.bytes]
}

/// The event subscriptions of a topic.
pub(super) fn list_snapshots(
    topic: &TopicHandle,
) -> impl Iterator<Item = (SubscriptionKey, SubscriptionSnapshot)> {
    let partition = topic.partition();
    topic.snapshots().map(move |snapshot| {
        let subscription = snapshot.number();
        let key = SubscriptionKey {
            partition,
            subscription,
        };
        (key, snapshot)
    })
}

/// The recorded windows at one time.
pub(super) struct WindowsView<'a> {
    state: MutexGuard<'a, WindowsState>,
    starts: Vec<Option<WindowStart>>,
    now: u64,
}

/// The figures of an event subscription over a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubscriptionWindow {
    pub(super) outcomes: WindowOutcomes,
    /// Whether an event that was there when the window began still waits to be passed.
    is_late: bool,
}

/// The figures of an event subscription over all windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubscriptionWindows {
    pub(super) windows: [SubscriptionWindow; WINDOWS.len()],
    pub(super) verdict: ConditionVerdict,
}

/// Lengths of the windows in seconds.
pub(super) type WindowLengths = [Option<f64>; WINDOWS.len()];

impl SubscriptionWindows {
    /// The share of good outcomes in the window that was judged.
    pub(super) fn good_share(&self) -> Option<f64> {
        self.verdict
            .window
            .and_then(|window| self.windows[window].outcomes.good_share())
    }

    /// The condition, for a response.
    pub(super) fn condition_view(&self, lengths: &WindowLengths) -> ConditionView {
        let ConditionVerdict { condition, window } = self.verdict;
        ConditionView {
            state: condition.to_string(),
            severity: condition_severity(condition),
            success_share: self.good_share(),
            window_seconds: window.and_then(|window| lengths[window]),
        }
    }
}

impl WindowsView<'_> {
    /// Length of a window in seconds; [`None`] in its first second.
    pub(super) fn window_length(&self, window: usize) -> Option<f64> {
        let start = self.starts[window]?;
        let length = self.now.saturating_sub(start.seconds);
        (length > 0).then_some(length as f64)
    }

    /// The length as reports have it. In steps, so that a report of an idle server does not change
    /// every second.
    fn reported_length(&self, window: usize) -> Option<f64> {
        const STEP: f64 = 60.0;
        let length = self.window_length(window)?;
        let is_short = length < STEP;
        Some(
            if is_short {
                length
            } else {
                (length / STEP).floor() * STEP
            }
            .min(WINDOWS[window].length as f64),
        )
    }

    /// The figures of an event subscription.
    pub(super) fn window_figures(
        &self,
        key: SubscriptionKey,
        snapshot: &SubscriptionSnapshot,
    ) -> SubscriptionWindows {
        let sums = subscription_sums(snapshot);
        let recorded_sums = self.state.subscriptions.recorded_sums(&key);
        let windows: [SubscriptionWindow; WINDOWS.len()] = std::array::from_fn(|window| {
            self.compute_window(window, recorded_sums, sums, snapshot.backlog)
        });
        let waiting = snapshot.backlog + snapshot.counters.pending + snapshot.in_flight as u64;
        let verdict = judge_condition(&ConditionFacts {
            health: snapshot.health,
            held: snapshot.held,
            lacks_receiver: waiting > 0
                && windows[0].outcomes.requests == 0
                && snapshot.lacks_client(),
            waiting,
            is_late: windows[0].is_late,
            windows: windows.map(|window| window.outcomes),
        });
        SubscriptionWindows { windows, verdict }
    }

    /// The lengths of all windows, as reports have them.
    pub(super) fn reported_lengths(&self) -> WindowLengths {
        std::array::from_fn(|window| self.reported_length(window))
    }

    /// The figures of one window, of an event subscription with these sums and this backlog.
    fn compute_window(
        &self,
        window: usize,
        recorded: RecordedSums<'_, SubscriptionSums>,
        sums: SubscriptionSums,
        backlog: u64,
    ) -> SubscriptionWindow {
        let Some(start) = self.starts[window] else {
            return SubscriptionWindow::default();
        };
        let [arrived, delivered, requests, failed, given_up] =
            sums.rises_since(recorded.sums_at(start));
        let is_whole = self.now.saturating_sub(start.seconds) >= WINDOWS[window].length;
        SubscriptionWindow {
            outcomes: WindowOutcomes {
                requests,
                failed,
                delivered,
                given_up,
            },
            is_late: is_whole && backlog > arrived.into(),
        }
    }

    /// The 50th, 95th and 99th percentile of the response times of the last 30 to 60 minutes, in
    /// milliseconds.
    pub(super) fn response_times(
        &self,
        key: SubscriptionKey,
        snapshot: &SubscriptionSnapshot,
    ) -> [Option<f64>; 3] {
        let Some(start) = self.state.response_times.window_starts(self.now)[0] else {
            return [None; 3];
        };
        let before = self.state.response_times.recorded_sums(&key).sums_at(start);
        let counts = response_sums(snapshot).rises_since(before).map(u64::from);
        [0.5, 0.95, 0.99]
            .map(|share| estimate_quantile(&counts, share).map(|micros| f64::from(micros) / 1e3))
    }

    /// Events and bytes a second that a topic accepted in the shortest window.
    pub(super) fn topic_rates(
        &self,
        topic: PartitionId,
        taken: RunningTotals,
    ) -> Option<(f64, f64)> {
        let start = self.state.topics.window_starts(self.now)[0]?;
        let length = self
            .now
            .checked_sub(start.seconds)
            .filter(|length| *length > 0)? as f64;
        let before = self.state.topics.recorded_sums(&topic).sums_at(start);
        let rate = |at: usize| topic_sums(taken)[at].saturating_sub(before[at]) as f64 / length;
        Some((rate(0), rate(1)))
    }
}

/// The number of a condition: a larger one is worse.
pub(super) fn condition_severity(condition: Condition) -> u8 {
    let better = Condition::ALL
        .iter()
        .filter(|other| **other > condition)
        .count();
    u8::try_from(better).unwrap_or(u8::MAX)
}
