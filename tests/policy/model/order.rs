//! Order by key, checked against a list of what was sent: whatever happens, the events of a key
//! arrive in order.
//!
//! Within a process, an event is sent only if no earlier event of its key is in flight or is ever
//! sent again. Events of one request count as one. After a crash events may be sent again, but none
//! is sent for the first time behind a later one of its key.

use gridhook::{
    policy::{outcome::Reason, record::LedgerEntry},
    simulate::SimulatedStore,
};

use super::*;

/// The state of each key.
#[derive(Debug, Default)]
pub(super) struct OrderCheck {
    /// Whether an event that would be given up blocks its key.
    pub(super) blocks: bool,
    keys: BTreeMap<Seq, String>,
    sent: BTreeMap<String, SentOfKey>,
    /// The event that blocks a key on disk, unless that was lifted in this process.
    blocked: BTreeMap<String, Seq>,
    /// Blocking events that a late success delivered, or about which an operator decided, in this
    /// process.
    lifted: BTreeSet<Seq>,
    /// Decisions of an operator, ever: whether the event is attempted once more.
    decisions: BTreeMap<Seq, bool>,
    /// Decisions that are durable with the write in progress, if it completes their command.
    answered: Option<BTreeSet<Seq>>,
    /// Decisions whose command has no response yet.
    unanswered: BTreeSet<Seq>,
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
    pub(super) fn new(blocks: bool) -> Self {
        Self {
            blocks,
            ..Self::default()
        }
    }

    pub(super) fn publish(&mut self, seq: Seq, key: &str) {
        self.keys.insert(seq, key.to_owned());
    }

    /// A request succeeded after its timeout.
    pub(super) fn late(&mut self, request: &OutgoingBatch) {
        for item in request.items.iter().filter(|item| !item.lane.is_job()) {
            self.lifted.insert(item.seq);
            self.blocked.retain(|_, blocking| *blocking != item.seq);
        }
    }

    /// Number of blocked keys.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// An operator decides about all blocked keys.
    pub(super) fn unblock(&mut self, retry: bool) {
        for seq in std::mem::take(&mut self.blocked).into_values() {
            self.lifted.insert(seq);
            self.decisions.insert(seq, retry);
            self.unanswered.insert(seq);
        }
    }

    /// Whether an operator wanted this event attempted once more.
    pub(super) fn is_asked(&self, seq: Seq) -> bool {
        self.decisions.get(&seq) == Some(&true)
    }

    /// A write begins. `commanded` tells whether it completes the commands.
    pub(super) fn begin_write(&mut self, commanded: Option<u64>) {
        self.answered = commanded.map(|_| std::mem::take(&mut self.unanswered));
    }

    /// Compares the events that block their key on disk with the decisions, after a write.
    pub(super) fn note_blocked(&mut self, disk: &SimulatedStore) {
        let blocking: BTreeSet<Seq> = disk
            .pending
            .iter()
            .filter(|(_, pending)| pending.due == BLOCKING)
            .map(|((_, seq), _)| *seq)
            .collect();
        for seq in self.answered.take().into_iter().flatten() {
            assert!(
                !blocking.contains(&seq),
                "the decision about {seq:?} is answered and not on disk"
            );
        }
        self.lifted.retain(|seq| blocking.contains(seq));
        let keys = &self.keys;
        self.blocked = blocking
            .difference(&self.lifted)
            .map(|seq| (keys[seq].clone(), *seq))
            .collect();
    }

    /// A new incarnation has the state on disk.
    pub(super) fn restart(&mut self, disk: &SimulatedStore) {
        self.lifted.clear();
        self.unanswered.clear();
        self.answered = None;
        self.note_blocked(disk);
    }

    /// Events of a blocking subscription are given up where an operator decided that, or if they
    /// cannot be attempted.
    pub(super) fn check_given_up(
        &self,
        reason: Reason,
        entry: &LedgerEntry,
        attempts: impl Fn(Seq) -> u32,
    ) {
        for seq in entry.runs.iter().flat_map(|run| run.iter_seqs()) {
            let may_end = match reason {
                Reason::Missing | Reason::Quarantined | Reason::BacklogExceeded => true,
                Reason::TimeToLiveExceeded if attempts(seq) == 0 => true,
                _ => self.decisions.get(&seq) == Some(&false),
            };
            assert!(
                may_end,
                "{seq:?} is given up ({reason}), and does not block its key"
            );
        }
    }

    /// A new process may send again what an earlier one sent.
    pub(super) fn crash(&mut self) {
        self.sent.values_mut().for_each(|sent| sent.first = None);
    }

    pub(super) fn send<'a>(
        &mut self,
        request: &OutgoingBatch,
        in_flight: impl Iterator<Item = &'a OutgoingBatch>,
    ) {
        let others: Vec<Seq> = in_flight
            .flat_map(|request| {
                let items = request
                    .items
                    .iter()
                    .filter(|item| !item.lane.is_job())
                    .map(|item| item.seq);
                items.chain(request.detached_keys.iter().map(|(seq, _)| *seq))
            })
            .collect();
        let mut of_request: BTreeMap<String, Seq> = BTreeMap::new();
        for item in request.items.iter().filter(|item| !item.lane.is_job()) {
            let Some(key) = self.keys.get(&item.seq) else {
                continue;
            };
            let earlier = others
                .iter()
                .find(|other| self.keys.get(other) == Some(key));
            assert_eq!(earlier, None, "{item:?} leaves while its key is in flight");
            let blocking = self.blocked.get(key);
            assert!(
                blocking.is_none_or(|blocking| item.seq < *blocking),
                "{item:?} passes {blocking:?}, which blocks"
            );
            let sent = self.sent.entry(key.clone()).or_default();
            match of_request.insert(key.clone(), item.seq) {
                Some(before) => assert!(
                    before < item.seq,
                    "{item:?} is behind {before:?} in {request:?}"
                ),
                None => {
                    assert!(
                        sent.first.is_none_or(|first| first <= item.seq),
                        "{item:?} comes after {:?}",
                        sent.first
                    );
                    sent.first = Some(item.seq);
                }
            }
            if sent.ever.insert(item.seq) {
                assert!(
                    sent.last < Some(item.seq),
                    "{item:?} arrives for the first time after {:?}",
                    sent.last
                );
                sent.last = Some(item.seq);
            }
        }
    }
}

/// Runs a scenario of a subscription that keeps the order of subjects.
pub(in super::super) fn run_ordered(seed: u64, steps: usize, saboteur: &Arc<Saboteur>) {
    let tracked_max = [3, 8, 1000][seed as usize % 3];
    let order = OrderSettings {
        key: FilterKey::from("subject".to_owned()),
        tracked_max,
        blocks: seed % 2 == 1,
        one_of_a_key: false,
    };
    Scenario::begin_with(seed, saboteur, Some(Arc::new(order))).run(steps);
}

#[test]
fn events_of_a_key_arrive_in_order_whatever_happens() {
    // Where nothing waits for the write that gives up earlier events, 199 and 1213 send later ones
    // of the key first. Where nothing waits for a late success of an earlier incarnation, 364 does.
    run_each((0..250).chain([364, 1213]), |seed| {
        run_ordered(seed, 400, &Arc::default())
    });
}
