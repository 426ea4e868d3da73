//! Order by key, checked against a list of what was sent: whatever happens, the events of a key arrive in order.
//!
//! Within a process, an event is sent only if no earlier event of its key is in flight or is ever sent again. Events of
//! one request count as one. After a crash events may be sent again, but none is sent for the first time behind a later
//! one of its key.

use super::*;

/// What is known of each key.
#[derive(Debug, Default)]
pub(super) struct OrderCheck {
    keys: BTreeMap<Seq, String>,
    sent: BTreeMap<String, SentOfKey>,
    /// Events of requests with a late success: delivered, though they may be in flight once more.
    late: BTreeSet<Seq>,
}

#[derive(Debug, Default)]
struct SentOfKey {
    /// The first event of the last request of this process.
    first: Option<Seq>,
    /// The last event that was ever sent.
    last: Option<Seq>,
    ever: BTreeSet<Seq>,
}

impl OrderCheck {
    pub(super) fn publish(&mut self, seq: Seq, key: &str) {
        self.keys.insert(seq, key.to_owned());
    }

    /// A request succeeded after its timeout.
    pub(super) fn late(&mut self, request: &OutgoingBatch) {
        self.late.extend(request.items.iter().filter(|item| !item.lane.is_job()).map(|item| item.seq));
    }

    /// A new process may send again what an earlier one sent.
    pub(super) fn crash(&mut self) {
        self.sent.values_mut().for_each(|sent| sent.first = None);
    }

    pub(super) fn send<'a>(&mut self, request: &OutgoingBatch, in_flight: impl Iterator<Item = &'a OutgoingBatch>) {
        let others: Vec<Seq> = in_flight
            .flat_map(|request| &request.items)
            .filter(|item| !item.lane.is_job() && !self.late.contains(&item.seq))
            .map(|item| item.seq)
            .collect();
        let mut of_request: BTreeMap<String, Seq> = BTreeMap::new();
        for item in request.items.iter().filter(|item| !item.lane.is_job()) {
            let Some(key) = self.keys.get(&item.seq) else { continue };
            let earlier = others.iter().find(|other| self.keys.get(other) == Some(key));
            assert_eq!(earlier, None, "{item:?} leaves while its key is in flight");
            let sent = self.sent.entry(key.clone()).or_default();
            match of_request.insert(key.clone(), item.seq) {
                Some(before) => assert!(before < item.seq, "{item:?} is behind {before:?} in {request:?}"),
                None => {
                    assert!(sent.first.is_none_or(|first| first <= item.seq), "{item:?} comes after {:?}", sent.first);
                    sent.first = Some(item.seq);
                }
            }
            if sent.ever.insert(item.seq) {
                assert!(sent.last < Some(item.seq), "{item:?} arrives for the first time after {:?}", sent.last);
                sent.last = Some(item.seq);
            }
        }
    }
}

/// Runs a scenario of a subscription that keeps the order of subjects.
pub(in super::super) fn tell_ordered(seed: u64, steps: usize, saboteur: &Arc<Saboteur>) {
    let tracked_max = [3, 8, 1000][seed as usize % 3];
    let order = OrderSettings { key: FilterKey::from("subject".to_owned()), tracked_max };
    Scenario::begin_with(seed, saboteur, Some(Arc::new(order))).run(steps);
}

#[test]
fn events_of_a_key_arrive_in_order_whatever_happens() {
    if let Some(seed) = std::env::var("STORY").ok().and_then(|seed| seed.parse().ok()) {
        return tell_ordered(seed, 400, &Arc::default());
    }
    for seed in 0..250 {
        if let Err(panic) = std::panic::catch_unwind(|| tell_ordered(seed, 400, &Arc::default())) {
            println!("STORY={seed} tells this one alone");
            std::panic::resume_unwind(panic);
        }
    }
}
