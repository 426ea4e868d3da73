//! Events that may make the actor panic: if code panics on the content of an event, the event is
//! noted. An event that was noted in several panics is quarantined.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
};

use super::SharedState;
use gridhook_event::{Event, Lane, Seq};
use gridhook_policy::{
    SendItem,
    record::{Cursor, RecordChange},
};

/// An event that was the current event in this many panics is quarantined.
const DEATHS_MAX: u32 = 3;

/// Maximum number of suspects. Beyond it, the oldest event that is not quarantined is removed.
const SUSPECTS_MAX: usize = 1024;

/// Maximum number of quarantined events that are listed with their ids.
const QUARANTINED_LISTED: usize = 8;

/// Events that were dead-lettered because they made the actor panic repeatedly.
#[derive(Clone, Debug, Default)]
pub struct QuarantinedEvents {
    /// Number of quarantined events since the server started.
    pub count: u64,
    /// The newest quarantined events with position and id, oldest first.
    pub newest: VecDeque<(Seq, String)>,
}

impl QuarantinedEvents {
    fn add(&mut self, seq: Seq, id: String) {
        self.count += 1;
        self.newest.push_back((seq, id));
        if self.newest.len() > QUARANTINED_LISTED {
            self.newest.pop_front();
        }
    }
}

/// An event that was the current event when an actor panicked.
#[derive(Debug)]
struct Suspect {
    deaths: u32,
    /// Whether the event is, or may be, pending. The cursor does not contain pending events.
    pending: bool,
}

/// The current event, the suspects and the quarantined events of a subscription.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The event that the actor was processing when it panicked.
    current_event: Option<Box<(SendItem, String)>>,
    suspects: BTreeMap<(Lane, Seq), Suspect>,
    quarantined: QuarantinedEvents,
    /// The event that chaos makes the actor panic on, and how often.
    pub(super) poison: Option<Box<(String, u32)>>,
}

impl Suspects {
    fn is_quarantined(&self, of: (Lane, Seq)) -> bool {
        self.suspects
            .get(&of)
            .is_some_and(|suspect| suspect.deaths >= DEATHS_MAX)
    }

    /// A new incarnation begins. Returns the event that it must quarantine.
    pub(super) fn begin_incarnation(&mut self) -> Option<SendItem> {
        let (item, id) = *self
            .current_event
            .take()
            .filter(|event| self.is_quarantined(event.0.key()))?;
        self.quarantined.add(item.seq, id);
        Some(item)
    }

    /// The incarnation ended. After a panic that chaos did not cause, the current event becomes a
    /// suspect.
    pub(super) fn on_incarnation_end(&mut self, panicked: bool) {
        match self.current_event.as_deref() {
            Some((item, _)) if panicked => {
                let of = (item.lane, item.seq);
                if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&of) {
                    let least = self
                        .suspects
                        .iter()
                        .min_by_key(|(of, suspect)| (suspect.deaths >= DEATHS_MAX, of.1));
                    if let Some(least) = least.map(|(of, _)| *of) {
                        self.suspects.remove(&least);
                    }
                }
                let suspect = self.suspects.entry(of).or_insert(Suspect {
                    deaths: 0,
                    pending: false,
                });
                suspect.deaths += 1;
                suspect.pending |= item.due.is_some();
            }
            Some(_) | None => self.current_event = None,
        }
    }

    /// Returns the suspects that are settled once these changes are durable.
    pub(super) fn begin_write(&mut self, changes: &[RecordChange]) -> Vec<(Lane, Seq)> {
        if self.suspects.is_empty() {
            return Vec::new();
        }
        for change in changes {
            let (of, is_pending) = match change {
                RecordChange::Defer { lane, seq, .. } => ((*lane, *seq), true),
                RecordChange::Settle { lane, seq, .. }
                | RecordChange::DeadLetter { lane, seq, .. } => ((*lane, *seq), false),
                _ => continue,
            };
            self.suspects
                .entry(of)
                .and_modify(|suspect| suspect.pending = is_pending);
        }
        let cursor = changes.iter().rev().find_map(|change| match change {
            RecordChange::Cursor(cursor) => Some(cursor),
            _ => None,
        });
        // Events that the cursor has not passed are read again, even dead-lettered ones.
        let suspects = self.suspects.iter();
        let settled_suspects = suspects.filter(|(of, suspect)| {
            !suspect.pending && cursor.is_some_and(|cursor| has_passed(cursor, **of))
        });
        settled_suspects.map(|(of, _)| *of).collect()
    }

    /// Removes suspects that are settled durably.
    pub(super) fn settle_suspects(&mut self, settled: &[(Lane, Seq)]) {
        for of in settled {
            self.suspects.remove(of);
        }
    }
}

fn has_passed(cursor: &Cursor, (lane, seq): (Lane, Seq)) -> bool {
    let lane = cursor.lanes.iter().find(|state| state.lane == lane);
    lane.is_none_or(|lane| seq < lane.read && !lane.open.contains(seq))
}

/// Notes the event whose code is running when that panics. A note before each event would cost more
/// than the event's filter.
struct CurrentEvent<'a> {
    shared: &'a SharedState,
    item: SendItem,
    event: &'a Event,
}

impl Drop for CurrentEvent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut inner = self.shared.lock_inner();
            inner.suspects.get_or_insert_default().current_event =
                Some(Box::new((self.item, self.event.id().into_owned())));
        }
    }
}

impl SharedState {
    /// Runs code that can panic on the content of this event. If the actor panics meanwhile, the
    /// event is the suspect.
    pub fn on_event<T>(&self, item: SendItem, event: &Event, act: impl FnOnce() -> T) -> T {
        let _current = CurrentEvent {
            shared: self,
            item,
            event,
        };
        act()
    }

    /// Whether chaos makes the actor panic on an event.
    pub fn is_poisoned(&self) -> bool {
        self.has_poison.load(Ordering::Acquire)
    }

    /// Panics if chaos makes the actor panic on this event.
    pub fn panic_if_poisoned(&self, event: &Event) {
        let mut inner = self.lock_inner();
        if let Some((poisoned, times)) = inner
            .suspects
            .as_mut()
            .and_then(|suspects| suspects.poison.as_deref_mut())
            && **poisoned == *event.id()
            && *times > 0
        {
            *times -= 1;
            drop(inner);
            panic!("poisoned by chaos: event {}", event.id());
        }
    }

    /// The quarantined events of a lane. Usually empty.
    pub fn quarantined_seqs(&self, lane: Lane) -> Vec<Seq> {
        let inner = self.lock_inner();
        let suspects = inner
            .suspects
            .iter()
            .flat_map(|suspects| &suspects.suspects);
        let fatal_suspects =
            suspects.filter(|((of, _), suspect)| *of == lane && suspect.deaths >= DEATHS_MAX);
        fatal_suspects.map(|((_, seq), _)| *seq).collect()
    }

    pub fn quarantined_events(&self) -> QuarantinedEvents {
        self.lock_inner()
            .suspects
            .as_ref()
            .map(|suspects| suspects.quarantined.clone())
            .unwrap_or_default()
    }

    /// Number of quarantined events since the server started.
    pub fn quarantined_count(&self) -> u64 {
        self.lock_inner()
            .suspects
            .as_ref()
            .map_or(0, |suspects| suspects.quarantined.count)
    }

    /// Number of suspects that are not settled yet.
    pub fn suspect_count(&self) -> usize {
        self.lock_inner()
            .suspects
            .as_ref()
            .map_or(0, |suspects| suspects.suspects.len())
    }
}
