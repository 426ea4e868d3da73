//! The way of a pending delivery from the disk to a request. Published events and jobs have one
//! queue each, so that neither blocks the other.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::idle::IdleKeys;
use crate::{
    SendItem,
    batch::{self, BatchLimits, ReadyEvent},
    record::{DueKey, HELD_BACK},
    retry_window::RetryWindow,
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Number of pending deliveries fetched at once, unless a batch is larger.
const FETCH: usize = 64;

/// A delivery whose event is fetched, or may be.
#[derive(Debug)]
pub(super) struct WantedEvent {
    pub(super) key: (Lane, Seq),
    /// When it was due. [`None`] for an event that was open at recovery and has no pending record.
    pub(super) due: Option<Timestamp>,
}

impl WantedEvent {
    fn from_due_key(DueKey { due, lane, seq }: DueKey) -> Self {
        Self {
            key: (lane, seq),
            due: Some(due),
        }
    }
}

#[derive(Debug)]
pub(super) struct SendQueue {
    due: RetryWindow,
    /// Open at recovery and not in flight: fetched and sent again.
    lost: VecDeque<(Lane, Seq)>,
    /// No longer held back by an earlier event of their key. [`None`] if events have no order.
    released: Option<VecDeque<(Lane, Seq)>>,
    fetching: Vec<WantedEvent>,
    /// Ready to be sent again.
    retries: VecDeque<ReadyEvent>,
    /// Due, but no pull client waits for it.
    idle: IdleKeys,
}

impl SendQueue {
    pub(super) fn new(
        due: RetryWindow,
        lost: impl Iterator<Item = (Lane, Seq)>,
        ordered: bool,
    ) -> Self {
        let released_events = ordered.then(VecDeque::new);
        Self {
            due,
            lost: lost.collect(),
            released: released_events,
            fetching: Vec::new(),
            retries: VecDeque::new(),
            idle: IdleKeys::default(),
        }
    }

    pub(super) fn for_jobs(
        next_due: Option<Timestamp>,
        longest: Duration,
        lost: Vec<(Lane, Seq)>,
    ) -> Self {
        Self::new(
            RetryWindow::recover_roomy(next_due, longest),
            lost.into_iter(),
            false,
        )
    }

    /// The deliveries that wait for their due time.
    pub(super) fn window(&self) -> &RetryWindow {
        &self.due
    }

    pub(super) fn window_mut(&mut self) -> &mut RetryWindow {
        &mut self.due
    }

    /// Keys that are being fetched, ready or idle.
    pub(super) fn iter_engaged_keys(&self) -> impl Iterator<Item = (Lane, Seq)> {
        let ready = self.retries.iter().map(|ready| ready.item.key());
        let released_keys = self.released.iter().flatten().copied();
        self.fetching
            .iter()
            .map(|wanted| wanted.key)
            .chain(ready)
            .chain(self.idle.iter_keys())
            .chain(released_keys)
    }

    /// An event is no longer held back.
    pub(super) fn release_event(&mut self, event: WantedEvent) {
        self.put_back([event]);
    }

    /// Whether the event was open at recovery.
    pub(super) fn is_lost(&self, key: (Lane, Seq)) -> bool {
        self.lost.contains(&key)
    }

    /// An event that was open at recovery is held back.
    pub(super) fn forget_lost(&mut self, key: (Lane, Seq)) {
        self.lost.retain(|lost| *lost != key);
    }

    /// Whether anything is to be sent at once.
    pub(super) fn has_immediate_work(&self) -> bool {
        !self.lost.is_empty()
            || !self.retries.is_empty()
            || self.released.iter().flatten().next().is_some()
    }

    /// Whether events of these lanes were open at recovery and are to be fetched.
    pub(super) fn has_lost(&self, lanes: &[Lane]) -> bool {
        self.lost.iter().any(|(lane, _)| lanes.contains(lane))
    }

    pub(super) fn is_fetching(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// Ends the fetch in progress.
    pub(super) fn take_fetching(&mut self) -> Vec<WantedEvent> {
        std::mem::take(&mut self.fetching)
    }

    pub(super) fn ready_events(&self) -> &VecDeque<ReadyEvent> {
        &self.retries
    }

    pub(super) fn push_ready(&mut self, ready: ReadyEvent) {
        self.retries.push_back(ready);
    }

    pub(super) fn take_ready(&mut self, limits: BatchLimits) -> Vec<ReadyEvent> {
        batch::take_batch(&mut self.retries, limits)
    }

    /// Takes a batch of ready events of a lane.
    pub(super) fn take_ready_of(&mut self, lane: Lane, limits: BatchLimits) -> Vec<ReadyEvent> {
        let (mut own, others) = self
            .take_all_ready()
            .into_iter()
            .partition::<VecDeque<_>, _>(|r| r.item.lane == lane);
        let batch = batch::take_batch(&mut own, limits);
        self.retries = others;
        self.retries.extend(own);
        batch
    }

    pub(super) fn take_all_ready(&mut self) -> VecDeque<ReadyEvent> {
        std::mem::take(&mut self.retries)
    }

    /// Keeps the key of an event that no pull client waits for until the event expires.
    pub(super) fn keep_idle(&mut self, key: DueKey, expires: Timestamp) {
        self.idle.insert(key, expires);
    }

    /// Returns idle keys to the window: those that expired, or the first `max` if a client waits.
    pub(super) fn wake_idle(&mut self, expired_by: Timestamp, wanted: bool, max: usize) {
        let woken = self.idle.take_due(expired_by, wanted, max);
        self.put_back(woken.into_iter().map(WantedEvent::from_due_key));
    }

    /// When the first idle event expires.
    pub(super) fn first_idle_expiry(&self) -> Option<Timestamp> {
        self.idle.first_expiry()
    }

    /// Bytes of the ready events.
    pub(super) fn ready_bytes(&self) -> usize {
        self.retries
            .iter()
            .map(|ready| ready.event.memory_len())
            .sum()
    }

    /// When the first of these is due, wherever it is.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        let fetching = self.fetching.iter().filter_map(|wanted| wanted.due);
        let ready = self.retries.iter().filter_map(|ready| ready.item.due);
        let held_back = self.released.iter().flatten().map(|_| HELD_BACK).next();
        self.due
            .first_due()
            .into_iter()
            .chain(fetching)
            .chain(ready)
            .chain(self.idle.first_due())
            .chain(held_back)
            .min()
    }

    /// Keys to fetch next, of the lanes that may send now. Empty while a fetch is in progress.
    pub(super) fn take_fetch_keys(
        &mut self,
        now: Timestamp,
        batch: usize,
        may_go: impl Fn(Lane) -> bool,
    ) -> Vec<(Lane, Seq)> {
        if !self.fetching.is_empty() {
            return Vec::new();
        }
        let max = FETCH.max(batch);
        let mut left = VecDeque::new();
        for key in self.lost.drain(..) {
            if may_go(key.0) && self.fetching.len() < max {
                self.fetching.push(WantedEvent { key, due: None });
            } else {
                left.push_back(key);
            }
        }
        self.lost = left;
        // Neither retries nor released events starve the others.
        let room = max - self.fetching.len();
        let released_count = self.released.iter().flatten().count().min(room.div_ceil(2));
        self.fetching.extend(
            self.due
                .take_due(now, room - released_count, may_go)
                .into_iter()
                .map(WantedEvent::from_due_key),
        );
        if let Some(released) = &mut self.released {
            let room = (max - self.fetching.len()).min(released.len());
            let first = released.drain(..room);
            self.fetching.extend(first.map(|key| WantedEvent {
                key,
                due: Some(HELD_BACK),
            }));
        }
        self.fetching.iter().map(|wanted| wanted.key).collect()
    }

    /// Returns ready events of these lanes to the window. They are fetched again.
    pub(super) fn drop_ready(&mut self, is_such: impl Fn(Lane) -> bool) {
        let retries = std::mem::take(&mut self.retries);
        let (back, stay): (Vec<ReadyEvent>, Vec<ReadyEvent>) = retries
            .into_iter()
            .partition(|ready| is_such(ready.item.lane));
        self.retries = stay.into();
        self.put_back(back.into_iter().map(|ReadyEvent { item, .. }| WantedEvent {
            key: item.key(),
            due: item.due,
        }));
    }

    /// Stops sending for a lane and returns what is being fetched to the window. The result is the
    /// keys without a pending record.
    pub(super) fn withdraw_lane(&mut self, lane: Lane) -> Vec<Seq> {
        let (back, stay): (Vec<WantedEvent>, Vec<WantedEvent>) = std::mem::take(&mut self.fetching)
            .into_iter()
            .partition(|wanted| wanted.key.0 == lane);
        self.fetching = stay;
        self.put_back(back);
        let (lost, stay): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.lost)
            .into_iter()
            .partition(|(of, _)| *of == lane);
        self.lost = stay;
        lost.into_iter().map(|(_, seq)| seq).collect()
    }

    pub(super) fn put_back(&mut self, wanted: impl IntoIterator<Item = WantedEvent>) {
        for WantedEvent {
            key: (lane, seq),
            due,
        } in wanted
        {
            match (due, &mut self.released) {
                (Some(HELD_BACK), Some(released)) => released.push_back((lane, seq)),
                (Some(due), _) => self.due.put_back(DueKey { due, lane, seq }),
                (None, _) => self.lost.push_back((lane, seq)),
            }
        }
    }

    /// Removes those of these deliveries that are being fetched or ready.
    pub(super) fn take_out(&mut self, items: &[SendItem]) -> Vec<SendItem> {
        if self.retries.is_empty() && self.fetching.is_empty() {
            return Vec::new();
        }
        let items_by_key: HashMap<(Lane, Seq), SendItem> =
            items.iter().map(|item| (item.key(), *item)).collect();
        let (ready, others): (VecDeque<ReadyEvent>, VecDeque<ReadyEvent>) = self
            .take_all_ready()
            .into_iter()
            .partition(|ready| items_by_key.contains_key(&ready.item.key()));
        self.retries = others;
        let fetching = self
            .fetching
            .extract_if(.., |fetching| items_by_key.contains_key(&fetching.key));
        let fetching = fetching.map(|WantedEvent { key, due }| SendItem {
            due,
            ..items_by_key[&key]
        });
        ready
            .into_iter()
            .map(|ready| ready.item)
            .chain(fetching)
            .collect()
    }

    /// Removes an event that is released.
    pub(super) fn take_released(&mut self, key: (Lane, Seq)) -> bool {
        let Some(released) = &mut self.released else {
            return false;
        };
        let index = released.iter().position(|released| *released == key);
        index.and_then(|index| released.remove(index)).is_some()
    }

    /// Removes a key from all stages after the window.
    pub(super) fn drop_key(&mut self, key: (Lane, Seq)) {
        self.lost.retain(|lost| *lost != key);
        self.fetching.retain(|wanted| wanted.key != key);
        self.retries.retain(|ready| ready.item.key() != key);
        self.idle.drop_key(key);
        if let Some(released) = &mut self.released {
            released.retain(|released| *released != key);
        }
    }
}
