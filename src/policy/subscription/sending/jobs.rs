//! When a job may send, what it sends, and what it reads ahead.

use super::{Sending, blocked::lacks_resources};
use crate::{
    Effect,
    batch::{BatchLimits, ReadyEvent},
    endpoint::EventAge,
    lane::LaneReader,
    record::Traffic,
    subscription::{clients::PullClients, settlement::Settlement},
};
use gridhook_event::{Lane, Timestamp};

impl Sending {
    /// When the endpoint has room for a job's request; [`None`] if only an outcome can make room.
    fn spares_jobs(&self, settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
        let request_count = settlement.requests.count_of_jobs();
        if settlement.order.is_enabled() && request_count > 0 {
            return None;
        }
        self.endpoint
            .jobs_open(request_count, settlement.jobs.last_sent(), now)
    }

    /// What a job could send at once, before its rate limit.
    fn job_ready(&self, settlement: &Settlement, lane: Lane) -> u32 {
        let retries = ready_retries(settlement)
            .filter(|ready| ready.item.lane == lane)
            .count();
        let fresh = settlement.log.lane(lane).map_or(0, LaneReader::ready_count);
        let ready = if retries > 0 { retries } else { fresh };
        u32::try_from(ready)
            .unwrap_or(u32::MAX)
            .min(self.endpoint.batch_max())
    }

    /// The next batch of a job, round robin; empty if no job may send or has anything to send.
    pub(super) fn next_job_batch(
        &self,
        settlement: &mut Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        if settlement.jobs.is_empty()
            || self.awaits_lane_assignment(settlement)
            || self.endpoint.holds_back_old(now)
            || self.spares_jobs(settlement, now).is_none_or(|at| at > now)
        {
            return Vec::new();
        }
        for lane in settlement.jobs.lanes_in_turn() {
            let ready = self.job_ready(settlement, lane);
            if ready == 0 || settlement.jobs.rate_opens(lane, ready, now) > now {
                continue;
            }
            let events_free = settlement.jobs.rate_allows(lane, now);
            let limits = BatchLimits {
                events_max: self.batch_max(settlement, clients).min(events_free.max(1)),
                ..settlement.settings.batch
            };
            let batch = take_of_job(settlement, lane, limits, now);
            settlement.jobs.note_batch(lane, batch.len(), now);
            return batch;
        }
        Vec::new()
    }

    /// Reads and fetches what jobs could send next.
    pub(super) fn read_ahead_jobs(
        &self,
        settlement: &mut Settlement,
        effects: &mut Vec<Effect>,
        is_open: bool,
        now: Timestamp,
    ) {
        if settlement.jobs.is_empty() || self.endpoint.is_closed() {
            return;
        }
        let window = settlement.queues.jobs_mut().window_mut();
        if let Some(from) = window.next_lookup(now) {
            effects.push(Effect::ReadDue {
                traffic: Traffic::Jobs,
                from,
            });
        }
        if !is_open
            || settlement.pending_write.is_ahead()
            || self.awaits_lane_assignment(settlement)
        {
            return;
        }
        let batch = settlement.settings.batch.events_max as usize;
        for lane in settlement.jobs.reading_lanes() {
            let has_room = settlement
                .log
                .lane(lane)
                .is_some_and(|reader| reader.ready_count() < batch);
            if has_room {
                effects.extend(settlement.log.begin_read(lane));
            }
        }
        let lanes = fetchable_jobs(settlement);
        let fetch = settlement
            .queues
            .jobs_mut()
            .take_fetch_keys(now, batch, |lane| lanes.contains(&lane));
        if !fetch.is_empty() {
            effects.push(Effect::Fetch(fetch));
        }
    }

    /// When a job could send or read, if nothing happens before. Where it waits for room or an
    /// answer, that wakes it.
    pub(super) fn next_of_jobs(
        &self,
        settlement: &Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if settlement.jobs.is_empty()
            || settlement.pending_write.is_ahead()
            || self.awaits_lane_assignment(settlement)
            || settlement.settings.is_pulled() && !clients.is_wanted()
        {
            return None;
        }
        self.next_send_of_jobs(settlement, now)
            .into_iter()
            .chain(next_job_key(settlement, now))
            .min()
    }

    fn next_send_of_jobs(&self, settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
        let request_count = settlement.requests.count_open();
        let age = EventAge::Old;
        let free = match self.endpoint.free_requests(request_count, age, now) {
            0 => self.endpoint.pace_opens(request_count, age, now),
            1.. => Some(now),
        };
        let free = free.filter(|_| lacks_resources(settlement).is_none())?;
        let spare = self.spares_jobs(settlement, now)?;
        let opens = settlement
            .jobs
            .running_lanes()
            .into_iter()
            .filter_map(|lane| {
                let ready = self.job_ready(settlement, lane);
                (ready > 0).then(|| settlement.jobs.rate_opens(lane, ready, now))
            });
        opens.min().map(|opens| opens.max(free).max(spare))
    }

    /// When a job has something to send. It is enough reason to probe a suspended endpoint.
    pub(super) fn wait_of_jobs(
        &self,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let running = settlement.jobs.running_lanes();
        let jobs = settlement.queues.jobs();
        let waits = settlement.log.is_any_behind(&running)
            || jobs.is_some_and(|jobs| jobs.has_lost(&running))
            || ready_retries(settlement).any(|ready| running.contains(&ready.item.lane));
        if waits {
            return Some(now);
        }
        jobs?.window().wakes_of(now, |lane| running.contains(&lane))
    }
}

/// Events of jobs that are ready to be sent again.
fn ready_retries(settlement: &Settlement) -> impl Iterator<Item = &ReadyEvent> {
    let jobs = settlement.queues.jobs();
    jobs.into_iter().flat_map(|jobs| jobs.ready_events())
}

/// Retries precede first attempts: their number is bounded, and at the bound the job stops.
fn take_of_job(
    settlement: &mut Settlement,
    lane: Lane,
    limits: BatchLimits,
    now: Timestamp,
) -> Vec<ReadyEvent> {
    let batch = settlement.queues.jobs_mut().take_ready_of(lane, limits);
    if batch.is_empty() {
        settlement.take_batch(lane, limits, now)
    } else {
        batch
    }
}

/// Jobs that have nothing fetched and could send it.
fn fetchable_jobs(settlement: &Settlement) -> Vec<Lane> {
    let mut lanes = settlement.jobs.running_lanes();
    lanes.retain(|lane| ready_retries(settlement).all(|ready| ready.item.lane != *lane));
    lanes
}

fn next_job_key(settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
    let lanes = fetchable_jobs(settlement);
    let jobs = settlement
        .queues
        .jobs()
        .filter(|jobs| !jobs.is_fetching() && !lanes.is_empty())?;
    jobs.window().wakes_of(now, |lane| lanes.contains(&lane))
}
