//! The two queues of pending deliveries: published events, and jobs.

use super::queue::SendQueue;
use crate::{record::Traffic, retry_window::WindowEntry};
use gridhook_event::{Lane, Seq, Timestamp};

#[derive(Debug)]
pub(super) struct SendQueues {
    live: SendQueue,
    /// From the first pending delivery of a job on. Boxed: most subscriptions have none.
    jobs: Option<Box<SendQueue>>,
}

impl SendQueues {
    pub(super) fn new(live: SendQueue, jobs: Option<Box<SendQueue>>) -> Self {
        Self { live, jobs }
    }

    pub(super) fn live(&self) -> &SendQueue {
        &self.live
    }

    pub(super) fn live_mut(&mut self) -> &mut SendQueue {
        &mut self.live
    }

    pub(super) fn jobs(&self) -> Option<&SendQueue> {
        self.jobs.as_deref()
    }

    pub(super) fn jobs_mut(&mut self) -> &mut SendQueue {
        let longest_wait = self.live.window().wait_max();
        self.jobs
            .get_or_insert_with(|| Box::new(SendQueue::for_jobs(None, longest_wait, Vec::new())))
    }

    /// The queue of this lane's pending deliveries.
    pub(super) fn lane_queue_mut(&mut self, lane: Lane) -> &mut SendQueue {
        self.traffic_queue_mut(Traffic::from_lane(lane))
    }

    pub(super) fn traffic_queue_mut(&mut self, traffic: Traffic) -> &mut SendQueue {
        match traffic {
            Traffic::Live => &mut self.live,
            Traffic::Jobs => self.jobs_mut(),
        }
    }

    /// What the window knows about a delivery.
    pub(super) fn find_pending(&mut self, key: (Lane, Seq)) -> WindowEntry {
        self.lane_queue_mut(key.0).window().find_pending(key)
    }

    fn iter(&self) -> impl Iterator<Item = &SendQueue> {
        std::iter::once(&self.live).chain(self.jobs.as_deref())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut SendQueue> {
        std::iter::once(&mut self.live).chain(self.jobs.as_deref_mut())
    }

    /// Keys that are being fetched, ready or idle.
    pub(super) fn iter_engaged_keys(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.iter().flat_map(SendQueue::iter_engaged_keys)
    }

    /// When the first pending delivery is due that is not in a request.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.iter().filter_map(SendQueue::first_due).min()
    }

    /// Bytes of the ready events.
    pub(super) fn ready_bytes(&self) -> usize {
        self.iter().map(SendQueue::ready_bytes).sum()
    }

    /// Returns ready events of jobs in such lanes to the window.
    pub(super) fn drop_ready_jobs(&mut self, is_such: impl Fn(Lane) -> bool) {
        if let Some(jobs) = &mut self.jobs {
            jobs.drop_ready(is_such);
        }
    }

    /// Returns all ready events to the window.
    pub(super) fn release_memory(&mut self) {
        self.iter_mut().for_each(|queue| queue.drop_ready(|_| true));
    }

    /// Notes that all changes are in the write in progress.
    pub(super) fn begin_write(&mut self) {
        self.iter_mut()
            .for_each(|queue| queue.window_mut().begin_write());
    }

    /// Notes that the write in progress is durable.
    pub(super) fn finish_write(&mut self) {
        self.iter_mut()
            .for_each(|queue| queue.window_mut().finish_write());
    }
}
