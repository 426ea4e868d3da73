//! When a job may send, what it sends, and what it reads ahead.

use super::{
    super::{Subscription, lane_mut},
    PENDING_MAX, RunningJob,
};
use crate::{
    Effect,
    batch::{BatchLimits, ReadyEvent},
    lane::LaneReader,
    record::Traffic,
};
use gridhook_event::{Lane, Timestamp};

impl Subscription {
    /// When the endpoint has room for a job's request; [`None`] if only an outcome can make room.
    fn spares_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        if self.ordering.is_some() && self.requests.count_of_jobs() > 0 {
            return None;
        }
        self.endpoint
            .jobs_open(self.requests.count_of_jobs(), self.jobs.left, now)
    }

    /// Events of jobs that are ready to be sent again.
    fn ready_retries(&self) -> impl Iterator<Item = &ReadyEvent> {
        self.replays
            .iter()
            .flat_map(|replays| replays.ready_events())
    }

    /// What a job could send at once, before its rate limit.
    fn job_ready(&self, lane: Lane) -> u32 {
        let retries = self
            .ready_retries()
            .filter(|ready| ready.item.lane == lane)
            .count();
        let fresh = self
            .lanes
            .iter()
            .find(|reading| reading.lane() == lane)
            .map_or(0, LaneReader::ready);
        let ready = if retries > 0 { retries } else { fresh };
        u32::try_from(ready)
            .unwrap_or(u32::MAX)
            .min(self.endpoint.batch_max())
    }

    /// The next batch of a job, round robin; empty if no job may send or has anything to send.
    pub(in crate::subscription) fn next_job_batch(&mut self, now: Timestamp) -> Vec<ReadyEvent> {
        if self.jobs.is_empty()
            || self.awaits_lane_assignment()
            || self.spares_jobs(now).is_none_or(|at| at > now)
        {
            return Vec::new();
        }
        let mut lanes = self.job_lanes(RunningJob::is_running);
        lanes.sort_unstable();
        let first = lanes.partition_point(|lane| *lane <= self.jobs.last);
        lanes.rotate_left(first);
        for lane in lanes {
            let ready = self.job_ready(lane);
            let Some(index) = self
                .jobs
                .list
                .iter()
                .position(|running| running.job.lane == lane)
            else {
                continue;
            };
            let allowance = self.jobs.list[index].allowance.as_ref();
            if ready == 0 || allowance.is_some_and(|allowance| allowance.opens_at(ready, now) > now)
            {
                continue;
            }
            let events_free = allowance.map_or(u32::MAX, |allowance| allowance.free_events(now));
            let events_max = self.batch_max().min(events_free.max(1));
            let batch = self.take_of_job(
                lane,
                BatchLimits {
                    events_max,
                    ..self.settings.batch
                },
                now,
            );
            if let Some(allowance) = &mut self.jobs.list[index].allowance {
                allowance.take_events(batch.len(), now);
            }
            (self.jobs.others, self.jobs.last, self.jobs.left) = (0, lane, now);
            return batch;
        }
        Vec::new()
    }

    /// Retries precede first attempts: their number is bounded, and at the bound the job stops.
    fn take_of_job(&mut self, lane: Lane, limits: BatchLimits, now: Timestamp) -> Vec<ReadyEvent> {
        let batch = self.job_queue_mut().take_ready_of(lane, limits);
        match self.lanes.iter().position(|reading| reading.lane() == lane) {
            Some(index) if batch.is_empty() => self.take_batch(index, limits, now),
            Some(_) | None => batch,
        }
    }

    /// Reads and fetches what jobs could send next.
    pub(in crate::subscription) fn ask_for_jobs(
        &mut self,
        effects: &mut Vec<Effect>,
        is_open: bool,
        now: Timestamp,
    ) {
        if self.jobs.is_empty() || self.endpoint.is_closed() {
            return;
        }
        if let Some(from) = self.job_queue_mut().due.next_lookup(now) {
            effects.push(Effect::ReadDue {
                of: Traffic::Jobs,
                from,
            });
        }
        if !is_open || self.pending_write.is_ahead() || self.awaits_lane_assignment() {
            return;
        }
        let batch = self.settings.batch.events_max as usize;
        for lane in self
            .job_lanes(|running| running.is_running() && running.job.counters.pending < PENDING_MAX)
        {
            let Some(reading) =
                lane_mut(&mut self.lanes, lane).filter(|reading| reading.ready() < batch)
            else {
                continue;
            };
            if let Some((from, end)) = reading.next_read(self.end) {
                effects.push(Effect::ReadLog { lane, from, end });
            }
        }
        let lanes = self.fetchable_jobs();
        let fetch = self
            .job_queue_mut()
            .take_fetch_keys(now, batch, |lane| lanes.contains(&lane));
        if !fetch.is_empty() {
            effects.push(Effect::Fetch(fetch));
        }
    }

    /// Jobs that have nothing fetched and could send it.
    fn fetchable_jobs(&self) -> Vec<Lane> {
        let has_ready = |lane| self.ready_retries().any(|ready| ready.item.lane == lane);
        self.job_lanes(|running| running.is_running() && !has_ready(running.job.lane))
    }

    /// When a job could send or read, if nothing happens before. Where it waits for room or an
    /// answer, that wakes it.
    pub(in crate::subscription) fn next_of_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        if self.jobs.is_empty()
            || self.pending_write.is_ahead()
            || self.awaits_lane_assignment()
            || !self.is_wanted()
        {
            return None;
        }
        let free = match self.endpoint.free_requests(self.requests.count_open(), now) {
            0 => self.endpoint.pace_opens(self.requests.count_open(), now),
            1.. => Some(now),
        };
        let free = free.filter(|_| self.may_request());
        let sends = free.zip(self.spares_jobs(now)).and_then(|(free, spare)| {
            let opens = self
                .jobs
                .list
                .iter()
                .filter(|running| running.is_running())
                .filter_map(|running| {
                    let ready = self.job_ready(running.job.lane);
                    let opens = running
                        .allowance
                        .as_ref()
                        .map_or(now, |allowance| allowance.opens_at(ready, now));
                    (ready > 0).then_some(opens)
                });
            opens.min().map(|opens| opens.max(free).max(spare))
        });
        sends.into_iter().chain(self.next_job_key(now)).min()
    }

    fn next_job_key(&self, now: Timestamp) -> Option<Timestamp> {
        let lanes = self.fetchable_jobs();
        let replays = self
            .replays
            .as_ref()
            .filter(|replays| !replays.is_fetching() && !lanes.is_empty())?;
        replays.due.wakes_of(now, |lane| lanes.contains(&lane))
    }

    /// When a job has something to send. It is enough reason to probe a suspended endpoint.
    pub(in crate::subscription) fn wait_of_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        let running = self.job_lanes(RunningJob::is_running);
        let behind = |lane: &LaneReader| running.contains(&lane.lane()) && lane.is_behind(self.end);
        let waits = self.lanes.iter().any(behind)
            || self
                .replays
                .as_ref()
                .is_some_and(|replays| replays.has_lost(&running))
            || self
                .ready_retries()
                .any(|ready| running.contains(&ready.item.lane));
        let due = || {
            self.replays
                .as_ref()?
                .due
                .wakes_of(now, |lane| running.contains(&lane))
        };
        if waits { Some(now) } else { due() }
    }

    /// Drops ready events of jobs while the endpoint is suspended.
    pub(in crate::subscription) fn forget_ready_jobs(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.lane().is_job()) {
            lane.forget_ready();
        }
        if let Some(replays) = &mut self.replays {
            replays.forget_ready(|_| true);
        }
    }
}
