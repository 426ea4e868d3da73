//! The state of a subscription that operators and metrics read. It has a lock of its own, so that a
//! reader does not delay the actor.

use parking_lot::MutexGuard;

use super::SharedState;
use gridhook_event::{Lane, Seq};
use gridhook_policy::record::{
    Cursor, EndpointView, LaneCursor,
    job::{Job, JobKind},
};

/// The state of a subscription, for metrics and operators.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionState {
    /// The cursor, without the open events.
    pub cursor: Cursor,
    /// The endpoint, beyond what the cursor says of it.
    pub endpoint: EndpointView,
    /// The first position of the log that the subscription may still read.
    pub low: Seq,
    /// The first position that the subscription itself may still read, without its jobs.
    pub own_low: Seq,
    /// Jobs that have ended, until that is durable.
    pub ending: Vec<Job>,
}

impl SubscriptionState {
    /// The state for a cursor in a log that ends at `end`.
    pub(super) fn new(cursor: Cursor, endpoint: EndpointView, end: Seq) -> Self {
        let low = cursor.first_unread().unwrap_or(end);
        let own_low = cursor.own_low().unwrap_or(end);
        Self {
            low,
            own_low,
            endpoint,
            cursor,
            ending: Vec::new(),
        }
    }

    /// Number of events of a log that ends at `end` that the subscription has not passed, and the
    /// first of them.
    pub fn count_backlog(&self, end: Seq) -> (u64, Option<Seq>) {
        let lanes = || self.cursor.own_lanes();
        let unread = lanes()
            .map(|lane| lane.read)
            .filter(|read| *read < end)
            .min();
        // Sequences are dense within what was written; a gap would make this an upper bound.
        (
            lanes()
                .map(|lane| lane.end.unwrap_or(end).0.saturating_sub(lane.read.0))
                .sum(),
            unread,
        )
    }

    /// Whether all of a log that ends at `end` is passed, and neither jobs nor pending events are
    /// left.
    pub(super) fn is_idle(&self, end: Seq) -> bool {
        self.low >= end && self.cursor.jobs.is_empty() && self.cursor.next_due.is_none()
    }
}

impl SharedState {
    pub fn current_state(&self) -> SubscriptionState {
        self.lock_view().clone()
    }

    /// Calls `read` with the current state. Copies nothing, for lists of thousands.
    pub fn read_state<T>(&self, read: impl FnOnce(&SubscriptionState) -> T) -> T {
        read(&self.lock_view())
    }

    /// The first position of the log that the subscription may still read, without its jobs.
    pub fn own_low(&self) -> Seq {
        self.lock_view().own_low
    }

    /// The end of what the live lane has read; [`None`] before it exists.
    pub fn live_read(&self) -> Option<Seq> {
        self.lock_view()
            .cursor
            .lanes
            .iter()
            .find(|lane| lane.lane == Lane::LIVE)
            .map(|lane| lane.read)
    }

    /// The kind of the running job with this lane.
    pub fn job_kind(&self, lane: Lane) -> Option<JobKind> {
        self.lock_view()
            .cursor
            .jobs
            .iter()
            .find(|job| job.lane == lane)
            .map(|job| job.kind)
    }

    pub fn set_state(&self, cursor: &Cursor, endpoint: EndpointView) {
        let bare = |lane: &LaneCursor| LaneCursor::new(lane.lane, lane.read, lane.end);
        let end = || self.lock_inner().end;
        let low = cursor.first_unread().unwrap_or_else(end);
        let own_low = cursor.own_low().unwrap_or_else(end);
        let mut view = self.lock_view();
        // The vectors keep their memory, because each write comes here.
        let mut lanes = std::mem::take(&mut view.cursor.lanes);
        let mut jobs = std::mem::take(&mut view.cursor.jobs);
        lanes.clear();
        lanes.extend(cursor.lanes.iter().map(bare));
        jobs.clone_from(&cursor.jobs);
        view.cursor = Cursor {
            lanes,
            filtered_out: Vec::new(),
            jobs,
            counts: cursor.counts.clone(),
            ..*cursor
        };
        (view.low, view.own_low, view.endpoint) = (low, own_low, endpoint);
    }

    /// Notes a job whose end is being written.
    pub fn job_ends(&self, job: &Job) {
        self.lock_view().ending.push(job.clone());
    }

    /// The holder of the other lock may take this one, but not the reverse.
    pub(super) fn lock_view(&self) -> MutexGuard<'_, SubscriptionState> {
        self.view.lock()
    }
}
