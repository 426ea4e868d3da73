//! What is read ahead: slices of the log, due keys and their events.

use std::collections::{HashMap, HashSet};

use super::Sending;
use crate::{
    Effect, SendItem,
    batch::{LastAttempt, ReadyEvent},
    outcome::{LastOutcome, Reason},
    property::PropertyGroup,
    record::{BLOCKING, DueKey, FetchedPending, Health, PendingDelivery, Traffic},
    retry_window::WindowEntry,
    subscription::{clients::PullClients, queue::WantedEvent, settlement::Settlement},
};
use gridhook_event::{Lane, Seq, Timestamp};

impl Sending {
    pub(super) fn read_ahead(
        &self,
        settlement: &mut Settlement,
        clients: &PullClients,
        effects: &mut Vec<Effect>,
        dead_lettering: bool,
        now: Timestamp,
    ) {
        let is_open = self.endpoint.is_open(now);
        let is_wanted = !settlement.settings.is_pulled() || clients.is_wanted();
        if !settlement.pending_write.is_ahead()
            && !self.awaits_position()
            && (dead_lettering || is_open)
        {
            if is_wanted && settlement.free_leases() > 0 && !self.awaits_lane_assignment(settlement)
            {
                self.read_lanes(settlement, effects);
            }
            fetch_due(settlement, clients, effects, now);
        }
        self.read_ahead_jobs(settlement, effects, is_wanted && is_open, now);
    }

    fn read_lanes(&self, settlement: &mut Settlement, effects: &mut Vec<Effect>) {
        let batch = settlement.settings.batch.events_max as usize;
        let probes = !matches!(self.endpoint.health(), Health::Healthy { .. });
        let only = settlement.only_lane();
        settlement.log.begin_reads(batch, only, probes, effects);
    }
}

fn fetch_due(
    settlement: &mut Settlement,
    clients: &PullClients,
    effects: &mut Vec<Effect>,
    now: Timestamp,
) {
    if settlement.fetches_enough() {
        return;
    }
    clients.wake_idle(settlement, now);
    let batch = settlement.settings.batch.events_max as usize;
    let live = settlement.queues.live_mut();
    let fetch = live.take_fetch_keys(now, batch, |_| true);
    if !fetch.is_empty() {
        effects.push(Effect::Fetch(fetch));
    }
    if let Some(from) = live.window_mut().next_lookup(now) {
        effects.push(Effect::ReadDue {
            traffic: Traffic::Live,
            from,
        });
    }
}

/// Takes keys in the order of their due times.
pub(in crate::subscription) fn on_due_read(
    settlement: &mut Settlement,
    traffic: Traffic,
    keys: &[DueKey],
    is_complete: bool,
) {
    let engaged_keys: HashSet<(Lane, Seq)> = settlement
        .requests
        .iter_items()
        .map(SendItem::key)
        .chain(settlement.queues.iter_engaged_keys())
        .collect();
    // Events that are held back are last, and known.
    let due_count = if settlement.order.is_enabled() {
        keys.partition_point(|key| key.due < BLOCKING)
    } else {
        keys.len()
    };
    let queue = settlement.queues.traffic_queue_mut(traffic);
    queue.window_mut().add_stored(
        &keys[..due_count],
        is_complete || due_count < keys.len(),
        |key| engaged_keys.contains(&(key.lane, key.seq)),
    );
}

/// Takes events that were fetched.
pub(in crate::subscription) fn on_fetched(
    settlement: &mut Settlement,
    clients: &PullClients,
    fetched: Vec<FetchedPending>,
    now: Timestamp,
) {
    let Some(of) = fetched.first().map(|fetched| fetched.lane) else {
        return;
    };
    let wanted_events = settlement.queues.lane_queue_mut(of).take_fetching();
    let indexes = wanted_events
        .iter()
        .enumerate()
        .map(|(index, event)| (event.key, index));
    let indexes: HashMap<(Lane, Seq), usize> = indexes.collect();
    let mut remaining_events: Vec<Option<WantedEvent>> =
        wanted_events.into_iter().map(Some).collect();
    for fetched in fetched {
        let request = indexes
            .get(&(fetched.lane, fetched.seq))
            .and_then(|index| remaining_events.get_mut(*index)?.take());
        if let Some(WantedEvent { due, .. }) = request {
            take_fetched(settlement, clients, fetched, due, now);
        }
    }
    // Keys that did not fit into the result are fetched again.
    settlement
        .queues
        .lane_queue_mut(of)
        .put_back(remaining_events.into_iter().flatten());
}

/// Takes an event that was fetched because it was due at `due`.
fn take_fetched(
    settlement: &mut Settlement,
    clients: &PullClients,
    fetched: FetchedPending,
    due: Option<Timestamp>,
    now: Timestamp,
) {
    let FetchedPending {
        lane,
        seq,
        pending,
        event,
    } = fetched;
    if due != pending.as_ref().map(|pending| pending.due) {
        // The record is authoritative: a damaged store may return the key of a pending delivery
        // that has ended.
        return;
    }
    if let Some(due) = pending
        .as_ref()
        .and_then(|pending| find_due_of_misdated(settlement, pending, now))
        && let Some(pending) = pending
    {
        return settlement.move_due_time(lane, seq, pending, due);
    }
    if let Some(due) = due.filter(|due| *due > now && *due < BLOCKING) {
        // Its due time was too far in the future when it was fetched, and no longer is.
        if settlement.queues.find_pending((lane, seq)) == WindowEntry::Nothing {
            let window = settlement.queues.lane_queue_mut(lane).window_mut();
            window.put_back(DueKey { due, lane, seq });
        }
        return;
    }
    let attempts = pending.as_ref().map_or(0, |pending| pending.attempts);
    let since = pending.as_ref().and_then(|pending| pending.received);
    let last = pending.as_ref().map(LastAttempt::from);
    // A batch that was too large for the endpoint was not an attempt at its events.
    let last = last.filter(|_| attempts > 0);
    let append_time = event.as_ref().map_or(now, |event| event.appended);
    let item = SendItem {
        lane,
        seq,
        appended: append_time,
        attempts,
        due,
        since,
    };
    let Some(event) = event else {
        return settlement.give_up(item, Reason::Missing, last, now);
    };
    let event = settlement.settings.transform_event(event);
    let group = PropertyGroup::from_event(&settlement.settings.grouping, &event);
    let ready = ReadyEvent {
        item,
        event,
        last,
        group,
        order: None,
    };
    if settlement.settings.is_pulled() {
        clients.take_up(settlement, ready, now);
    } else {
        settlement.queues.lane_queue_mut(lane).push_ready(ready);
    }
}

/// The due time that a delivery gets because the clock was set back; [`None`] if its own holds. A
/// retry waits once more, and no longer than any can. When a lock began is not known after a
/// renewal, so that it lasts as long as any can.
fn find_due_of_misdated(
    settlement: &Settlement,
    pending: &PendingDelivery,
    now: Timestamp,
) -> Option<Timestamp> {
    let window = settlement.queues.live().window();
    if pending.due >= BLOCKING || !window.is_out_of_range(pending.due, now) {
        return None;
    }
    let latest = window.latest_due(now);
    if pending.last == LastOutcome::Delivering {
        return Some(latest);
    }
    Some(now.after(pending.due.since(pending.tried)).min(latest))
}
