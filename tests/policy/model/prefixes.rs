//! Power cuts between any two writes of a scenario: from every prefix of the synced writes a new
//! process must bring every event to its end, and must keep all guarantees given by then.
//!
//! Replays are left out: their counters say how each event ended, which a process behind a cut has
//! not seen.

use gridhook::{
    repair::fsck,
    storage::record_decoders,
    store::records::{FloorRecord, StoredRecord},
};

use super::*;
use crate::support::needs::many;

impl Scenario {
    /// A new process after a power cut: it has the first `kept` writes of `former`.
    fn behind(former: &Self, kept: usize) -> Self {
        let memory = MemoryStore::new();
        for batch in &former.store.written.lock()[..kept] {
            memory.write(batch).expect("an honest store writes");
        }
        let floor = memory
            .get(Family::Meta, &gridhook::store::keys::floor_key(PARTITION))
            .expect("readable");
        let floor = FloorRecord::decode(&floor.expect("founded"))
            .expect("whole")
            .floor;
        // RocksDB reads the floor when it opens.
        memory.drop_log(PARTITION, floor).expect("dropped");
        let report = fsck::check_store(&memory, record_decoders(), &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .expect("readable");
        assert!(report.findings.is_empty(), "behind {kept} writes: {report}");

        let mut scenario = Self::begin(0, &Arc::default());
        scenario.settings = former.settings.clone();
        scenario.retention = former.retention;
        scenario.without_replays = true;
        scenario.set_back = true;
        (scenario.clock, scenario.hand) = Clock::new_manual(former.clock.now());
        scenario.store = Arc::new(FaultyStore {
            memory,
            full: AtomicBool::new(false),
            saboteur: Arc::default(),
            written: Arc::default(),
        });
        (scenario.journal, scenario.writer) =
            start(&scenario.store, &scenario.clock, scenario.retention);
        let disk = load(&scenario.store.memory, SUBSCRIPTION_KEY);
        scenario.late = disk.cursor.counters.late;
        for seq in (1..scenario.end().0).map(Seq) {
            let matches = former.truth[&(Lane::LIVE, seq)].matches;
            let pending = pending_of(&disk, seq);
            let ended = has_passed(&disk, seq) && matches && pending.is_none();
            let attempts = pending.map_or(0, |pending| pending.attempts);
            scenario.truth.insert(
                (Lane::LIVE, seq),
                Truth {
                    matches,
                    attempts,
                    first: pending.and_then(|pending| pending.received),
                    end: ended.then_some("before the cut"),
                },
            );
        }
        scenario.open(None);
        scenario
    }

    /// The guarantees given by this number of writes hold.
    fn assert_kept(&self, promised: &[(usize, Promised)], kept: usize) {
        for (_, promised) in promised.iter().filter(|(writes, _)| *writes <= kept) {
            match promised {
                Promised::Published(below) => {
                    assert!(self.end() >= *below, "{below:?} of {:?}", self.end())
                }
                Promised::Ended(seq) => assert!(
                    self.truth[&(Lane::LIVE, *seq)].end.is_some(),
                    "{seq:?} had ended"
                ),
            }
        }
    }
}

/// Returns the number of prefixes tried.
fn recover_from_prefixes(seed: u64, every: usize, promised_later: usize) -> usize {
    let mut scenario = Scenario::begin(seed, &Arc::default());
    scenario.without_replays = true;
    for _ in 0..300 {
        scenario.step();
    }
    let mut tried = 0;
    for kept in (1 + seed as usize % every..=scenario.store.writes()).step_by(every) {
        let mut next = Scenario::behind(&scenario, kept);
        next.assert_kept(&scenario.promised, kept + promised_later);
        next.heal();
        next.journal.close();
        next.writer.join_all();
        tried += 1;
    }
    tried
}

#[test]
fn from_every_prefix_of_synced_writes_all_events_end_and_guarantees_hold() {
    let (scenarios, every) = many((40, 3), (100, 1));
    let tried: usize = (0..scenarios)
        .map(|seed| recover_from_prefixes(seed, every, 0))
        .sum();
    println!(
        "{tried} prefixes of the writes of {scenarios} scenarios: recovered, nothing promised is \
         missing, all came to an end"
    );
    assert!(tried > 300, "hardly a prefix: {tried}");
}

#[test]
fn a_store_that_promises_one_write_too_early_is_found_out() {
    let caught = (0..20)
        .filter(|seed| std::panic::catch_unwind(|| recover_from_prefixes(*seed, 5, 1)).is_err());
    let caught = caught.count();
    println!("caught {caught} of 20");
    assert_eq!(caught, 20, "the test would not notice a loss");
}
