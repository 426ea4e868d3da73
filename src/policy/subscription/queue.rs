//! The way of a pending delivery from the disk to a request. Published events and jobs have one queue each, so that
//! neither blocks the other.

use std::collections::VecDeque;

use super::idle::IdleLanes;
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        SendItem,
        batch::{self, BatchLimits, ReadyEvent},
        record::DueKey,
        retry_window::RetryWindow,
    },
};

/// Number of pending deliveries fetched at once, unless a batch is larger.
const FETCH: usize = 64;

/// A pending delivery whose event is being fetched.
#[derive(Debug)]
pub(super) struct WantedEvents {
    pub(super) key: (Lane, Seq),
    /// When it was due. [`None`] for an event that was open at recovery and has no pending record.
    pub(super) due: Option<Timestamp>,
}

impl WantedEvents {
    fn of_due(DueKey { due, lane, seq }: DueKey) -> Self {
        Self { key: (lane, seq), due: Some(due) }
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    pub(super) due: RetryWindow,
    /// Open at recovery and not in flight: fetched and sent again.
    lost: VecDeque<(Lane, Seq)>,
    fetching: Vec<WantedEvents>,
    /// Ready to be sent again.
    retries: VecDeque<ReadyEvent>,
    /// Due, but no pull client waits for it.
    idle: IdleLanes,
}

impl SendQueue {
    pub(super) fn new(due: RetryWindow, lost: impl Iterator<Item = (Lane, Seq)>) -> Self {
        Self { due, lost: lost.collect(), fetching: Vec::new(), retries: VecDeque::new(), idle: IdleLanes::default() }
    }

    /// Keys that are being fetched, ready or idle.
    pub(super) fn engaged(&self) -> impl Iterator<Item = (Lane, Seq)> {
        let ready = self.retries.iter().map(|ready| ready.item.key());
        self.fetching.iter().map(|wanted| wanted.key).chain(ready).chain(self.idle.keys())
    }

    /// Whether anything is to be sent at once.
    pub(super) fn waits(&self) -> bool {
        !self.lost.is_empty() || !self.retries.is_empty()
    }

    /// Whether events of these lanes were open at recovery and are to be fetched.
    pub(super) fn has_lost(&self, lanes: &[Lane]) -> bool {
        self.lost.iter().any(|(lane, _)| lanes.contains(lane))
    }

    pub(super) fn is_fetching(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// Ends the fetch in progress.
    pub(super) fn take_fetching(&mut self) -> Vec<WantedEvents> {
        std::mem::take(&mut self.fetching)
    }

    /// The ready events.
    pub(super) fn ready(&self) -> &VecDeque<ReadyEvent> {
        &self.retries
    }

    pub(super) fn push_ready(&mut self, ready: ReadyEvent) {
        self.retries.push_back(ready);
    }

    /// Takes a batch of ready events.
    pub(super) fn take_ready(&mut self, limits: BatchLimits) -> Vec<ReadyEvent> {
        batch::take(&mut self.retries, limits)
    }

    /// Takes a batch of ready events of a lane.
    pub(super) fn take_ready_of(&mut self, lane: Lane, limits: BatchLimits) -> Vec<ReadyEvent> {
        let (mut own, others) = self.take_all_ready().into_iter().partition::<VecDeque<_>, _>(|r| r.item.lane == lane);
        let batch = batch::take(&mut own, limits);
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
        for key in self.idle.take(expired_by, wanted, max) {
            self.due.put_back(key);
        }
    }

    /// When the first idle event expires.
    pub(super) fn first_idle_expiry(&self) -> Option<Timestamp> {
        self.idle.first_expiry()
    }

    /// Bytes of the ready events.
    pub(super) fn ready_bytes(&self) -> usize {
        self.retries.iter().map(|ready| ready.event.wire_len()).sum()
    }

    /// When the first of these is due, wherever it is.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        let fetching = self.fetching.iter().filter_map(|wanted| wanted.due);
        let ready = self.retries.iter().filter_map(|ready| ready.item.due);
        self.due.first().into_iter().chain(fetching).chain(ready).chain(self.idle.first_due()).min()
    }

    /// Keys to fetch next, of the lanes that may send now. Empty while a fetch is in progress.
    pub(super) fn fetch(&mut self, now: Timestamp, batch: usize, may_go: impl Fn(Lane) -> bool) -> Vec<(Lane, Seq)> {
        if !self.fetching.is_empty() {
            return Vec::new();
        }
        let max = FETCH.max(batch);
        let mut left = VecDeque::new();
        for key in self.lost.drain(..) {
            if may_go(key.0) && self.fetching.len() < max {
                self.fetching.push(WantedEvents { key, due: None });
            } else {
                left.push_back(key);
            }
        }
        self.lost = left;
        self.fetching
            .extend(self.due.take(now, max - self.fetching.len(), may_go).into_iter().map(WantedEvents::of_due));
        self.fetching.iter().map(|wanted| wanted.key).collect()
    }

    /// Returns ready events of these lanes to the window. They are fetched again.
    pub(super) fn forget_ready(&mut self, is_such: impl Fn(Lane) -> bool) {
        let retries = std::mem::take(&mut self.retries);
        let (back, stay): (Vec<ReadyEvent>, Vec<ReadyEvent>) =
            retries.into_iter().partition(|ready| is_such(ready.item.lane));
        self.retries = stay.into();
        self.put_back(back.into_iter().map(|ReadyEvent { item, .. }| WantedEvents { key: item.key(), due: item.due }));
    }

    /// Stops sending for a lane and returns what is being fetched to the window. The result is the keys without a
    /// pending record.
    pub(super) fn withdraw(&mut self, lane: Lane) -> Vec<Seq> {
        let (back, stay): (Vec<WantedEvents>, Vec<WantedEvents>) =
            std::mem::take(&mut self.fetching).into_iter().partition(|wanted| wanted.key.0 == lane);
        self.fetching = stay;
        self.put_back(back);
        let (lost, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.lost).into_iter().partition(|(of, _)| *of == lane);
        self.lost = stay;
        lost.into_iter().map(|(_, seq)| seq).collect()
    }

    pub(super) fn put_back(&mut self, wanted: impl IntoIterator<Item = WantedEvents>) {
        for WantedEvents { key: (lane, seq), due } in wanted {
            match due {
                Some(due) => self.due.put_back(DueKey { due, lane, seq }),
                None => self.lost.push_back((lane, seq)),
            }
        }
    }

    /// Removes a pending delivery that is being fetched or ready.
    pub(super) fn take_out(&mut self, item: SendItem) -> Option<SendItem> {
        let key = item.key();
        if let Some(place) = self.retries.iter().position(|ready| ready.item.key() == key) {
            return self.retries.remove(place).map(|ready| ready.item);
        }
        let place = self.fetching.iter().position(|wanted| wanted.key == key)?;
        Some(SendItem { due: self.fetching.remove(place).due, ..item })
    }

    /// Removes a key from all stages after the window.
    pub(super) fn drop_key(&mut self, key: (Lane, Seq)) {
        self.lost.retain(|lost| *lost != key);
        self.fetching.retain(|wanted| wanted.key != key);
        self.retries.retain(|ready| ready.item.key() != key);
        self.idle.drop_key(key);
    }
}
