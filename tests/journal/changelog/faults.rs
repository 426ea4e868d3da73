//! A changelog that loses, delays, repeats and changes records, and owners that die.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use gridhook::{
    journal::{
        changelog::{
            Changelog, ChangelogBounds, ChangelogError,
            record::{Body, BrokenRecord, Record, encode_batch},
        },
        replicated::{FollowError, OwnershipEnd, ReplicatedStore},
    },
    store::{Family, Store, StoreError},
};
use parking_lot::Mutex;
use proptest::{prelude::*, test_runner::TestCaseResult};

use super::{Contents, batch, contents, data, entry, log, owner, take};
use crate::support::{
    memory_changelog::{AppendFault, MemoryChangelog},
    memory_store::{MemoryStore, WriteFault},
};

#[test]
fn a_message_that_is_lost_late_or_repeated_is_written_once() {
    use AppendFault::{AcknowledgementLost, LateAfter, LateBefore, Lost, Twice};
    let all = [Lost, AcknowledgementLost, LateBefore, LateAfter, Twice];
    let pairs = all
        .iter()
        .flat_map(|one| all.iter().map(move |other| vec![*one, *other]));
    for faults in all.iter().map(|one| vec![*one]).chain(pairs) {
        for bytes in [0, 600] {
            let (memory, log) = log();
            let (first, local) = owner(&log, "a");
            let before = memory.records().len();
            memory.fail(faults.clone());
            first
                .write(&batch("k", 1, bytes))
                .unwrap_or_else(|error| panic!("{faults:?}: {error}"));
            let parts = if bytes == 0 { 1 } else { 4 };
            assert_eq!(memory.records().len() - before, parts, "{faults:?}");
            first
                .write(&batch("l", 2, 0))
                .unwrap_or_else(|error| panic!("{faults:?}: {error}"));
            assert_eq!(memory.records().len() - before, parts + 1, "{faults:?}");
            assert_eq!(data(&owner(&log, "b").1), data(&local), "{faults:?}");
        }
    }
}

/// A log that calls its owner before and after each append, which the owner waits for.
struct CallsOwner {
    log: MemoryChangelog,
    owner: OnceLock<Weak<ReplicatedStore>>,
    before: OwnerCall,
    after: OwnerCall,
}

type OwnerCall = Box<dyn Fn(&ReplicatedStore) + Send + Sync>;

impl CallsOwner {
    fn new(
        log: &MemoryChangelog,
        before: impl Fn(&ReplicatedStore) + Send + Sync + 'static,
        after: impl Fn(&ReplicatedStore) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            log: log.clone(),
            owner: OnceLock::new(),
            before: Box::new(before),
            after: Box::new(after),
        })
    }

    /// The owner with this local store.
    fn owner(self: &Arc<Self>, local: &MemoryStore) -> Arc<ReplicatedStore> {
        let log: Arc<dyn Changelog> = Arc::clone(self) as _;
        let owner = Arc::new(take(&log, local, "a").expect("a new log"));
        self.owner.set(Arc::downgrade(&owner)).expect("once");
        owner
    }
}

impl Changelog for CallsOwner {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        let owner = self.owner.get().and_then(Weak::upgrade);
        owner.iter().for_each(|owner| (self.before)(owner));
        let response = self.log.append(record, expected);
        owner.iter().for_each(|owner| (self.after)(owner));
        response
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        self.log.bounds()
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        self.log.trim(through, keep_bytes)
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        self.log.read(from, most)
    }
}

/// An owner that was stopped while its first write had this fault, and its local store.
fn stopped_while_it_writes(
    memory: &MemoryChangelog,
    fault: AppendFault,
) -> (Arc<ReplicatedStore>, MemoryStore) {
    let stop = |owner: &ReplicatedStore| {
        assert_eq!(owner.epoch(), 1, "it is known while a write waits");
        owner.stop();
    };
    let local = MemoryStore::new();
    let first = CallsOwner::new(memory, |_| {}, stop).owner(&local);
    memory.fail([fault]);
    assert!(matches!(
        first.write(&batch("k", 1, 0)),
        Err(StoreError::Failed(_))
    ));
    assert_eq!(first.ownership_end(), Some(&OwnershipEnd::Stopped));
    assert_eq!(data(&local).len(), 0, "nothing is known of it");
    (first, local)
}

#[test]
fn a_message_that_is_on_the_way_when_the_next_owner_comes_arrives_before_its_fence_or_never() {
    for (fault, arrived) in [(AppendFault::LateBefore, 1), (AppendFault::LateAfter, 0)] {
        let (memory, log) = log();
        let (_first, _) = stopped_while_it_writes(&memory, fault);
        let (second, copied) = owner(&log, "b");
        assert_eq!(
            (memory.records().len(), data(&copied).len()),
            (2 + arrived, arrived),
            "{fault:?}"
        );
        second.write(&batch("k", 2, 0)).expect("it owns the shard");
        assert_eq!(memory.records().len(), 3 + arrived, "{fault:?}");
        assert_eq!(
            data(&owner(&log, "c").1).values().next(),
            Some(&Bytes::from_static(b"2")),
            "{fault:?}"
        );
    }
}

#[test]
fn a_batch_whose_owner_dies_between_its_parts_is_written_nowhere() {
    for part in 0..4 {
        let (memory, log) = log();
        let (first, local) = owner(&log, "a");
        first.write(&batch("k", 1, 0)).expect("it owns the shard");
        let before = data(&local);
        memory.fail(std::iter::repeat_n(AppendFault::None, part).chain([AppendFault::Crash]));
        first.write(&batch("k", 2, 600)).expect_err("it dies");
        assert_eq!(memory.records().len(), 2 + part);
        assert_eq!(data(&local), before, "parts were applied early");
        let (second, copied) = owner(&log, "b");
        assert_eq!(data(&copied), before);
        second
            .write(&batch("k", 3, 500))
            .expect("the chain that is not complete is in nobody's way");
        // The local store of the dead one is behind the first part, and goes on from there.
        let again = take(&log, &local, "a").expect("no longer than the log");
        assert_eq!(data(&local), data(&copied));
        again.write(&batch("k", 4, 500)).expect("it owns the shard");
    }
}

#[test]
fn a_full_log_refuses_a_batch_whole_or_takes_it_whole() {
    let (memory, log) = log();
    let (first, local) = owner(&log, "a");
    memory.fail([AppendFault::Full]);
    assert!(matches!(
        first.write(&batch("k", 1, 500)),
        Err(StoreError::Full)
    ));
    assert_eq!((memory.records().len(), data(&local).len()), (1, 0));
    // Behind the first part it waits for space. So it does if an earlier attempt may have arrived.
    memory.fail([
        AppendFault::None,
        AppendFault::Full,
        AppendFault::None,
        AppendFault::Lost,
        AppendFault::Full,
    ]);
    first.write(&batch("k", 2, 500)).expect("written");
    memory.fail([AppendFault::AcknowledgementLost, AppendFault::Full]);
    first.write(&batch("l", 3, 0)).expect("written");
    assert_eq!(data(&owner(&log, "b").1), data(&local));
}

#[test]
fn an_owner_distinguishes_a_full_log_from_one_that_does_not_answer() {
    use AppendFault::{Full, Lost, None};
    let memory = MemoryChangelog::default();
    let asked = Arc::<Mutex<Vec<bool>>>::default();
    let answers = Arc::clone(&asked);
    let ask = move |owner: &ReplicatedStore| answers.lock().push(owner.waits_for_space());
    let first = CallsOwner::new(&memory, ask, |_| {}).owner(&MemoryStore::new());
    memory.fail([None, Full, Full, Lost, None]);
    first.write(&batch("k", 1, 300)).expect("written");
    assert_eq!(*asked.lock(), [false, false, true, true, false]);
}

#[test]
fn a_log_that_was_shortened_deleted_or_trimmed_is_refused_by_name() {
    let three = || {
        let (memory, log) = log();
        let (first, local) = owner(&log, "a");
        for index in 0..3 {
            first
                .write(&batch("k", index, 0))
                .expect("it owns the shard");
        }
        (memory, log, first, local)
    };
    let refused = |log: &Arc<dyn Changelog>, local: &MemoryStore| match take(log, local, "a") {
        Ok(_) => "taken".to_owned(),
        Err(error) => error.to_string(),
    };
    let (memory, log, first, local) = three();
    memory.tamper(|records| records.truncate(2));
    expect_test::expect![
        "the changelog ends at record 2, but the local store has applied records up to 4"
    ]
    .assert_eq(&refused(&log, &local));
    assert!(first.write(&batch("k", 9, 0)).is_err());
    assert_eq!(
        first.ownership_end(),
        Some(&OwnershipEnd::Shorter {
            last: 2,
            acknowledged: 4
        })
    );

    let (memory, log, first, local) = three();
    memory.delete();
    expect_test::expect![
        "the changelog does not exist, but the local store has applied 4 of its records"
    ]
    .assert_eq(&refused(&log, &local));
    assert!(first.write(&batch("k", 9, 0)).is_err());
    assert_eq!(first.ownership_end(), Some(&OwnershipEnd::Missing));

    // Another log in the place of this one, as long as it or longer.
    let (memory, log, first, local) = three();
    let (other, other_log) = super::log();
    let (stranger, _) = owner(&other_log, "z");
    for index in 0..4 {
        stranger
            .write(&batch("z", index, 0))
            .expect("it owns the shard");
    }
    memory.tamper(|records| *records = other.records());
    expect_test::expect![
        "record 4 of the changelog cannot be applied: the records before it were changed"
    ]
    .assert_eq(&refused(&log, &local));
    assert!(first.write(&batch("k", 9, 0)).is_err());
    assert_eq!(first.ownership_end(), Some(&OwnershipEnd::Fenced));

    let (memory, log, first, local) = three();
    memory.drop_first(2);
    expect_test::expect![
        "the changelog begins at record 3, but the local store has applied records up to 0: it \
         needs a copy"
    ]
    .assert_eq(&refused(&log, &MemoryStore::new()));
    first
        .write(&batch("k", 9, 0))
        .expect("an owner does not need what was trimmed");
    assert_eq!(refused(&log, &local), "taken");
}

/// Changes the operations of a record and makes its own checksum right again.
fn forge(record: &Bytes) -> Bytes {
    let mut record = Record::decode(record).expect("whole");
    record.body = Body::Group {
        part: 1,
        parts: 1,
        operations: encode_batch(&batch("k", 666, 0)),
    };
    record.encode()
}

/// A record of a writer that does not chain its records.
fn unchain(record: &Bytes) -> Bytes {
    Record {
        previous: 0,
        ..Record::decode(record).expect("whole")
    }
    .encode()
}

/// A record of a writer that applies the first part of a batch early.
fn part_as_whole(record: &Bytes) -> Bytes {
    let mut record = Record::decode(record).expect("whole");
    let Body::Group {
        part: 1,
        parts: 4,
        operations,
    } = record.body
    else {
        panic!("a first part")
    };
    record.body = Body::Group {
        part: 1,
        parts: 1,
        operations,
    };
    record.encode()
}

#[test]
fn a_record_that_was_changed_left_out_or_added_is_detected_and_nothing_behind_it_is_applied() {
    type Change = fn(&mut Vec<Bytes>);
    let cases: [(&str, Change, u64, BrokenRecord); 10] = [
        (
            "a bit",
            |records| records[2] = flip(&records[2]),
            3,
            BrokenRecord::Damaged,
        ),
        (
            "cut",
            |records| records[2] = records[2].slice(..20),
            3,
            BrokenRecord::Damaged,
        ),
        (
            "forged",
            |records| records[2] = forge(&records[2]),
            4,
            BrokenRecord::Chain,
        ),
        (
            "forged before a fence",
            |records| records[4] = forge(&records[4]),
            6,
            BrokenRecord::Chain,
        ),
        (
            "not chained",
            |records| records[2] = unchain(&records[2]),
            3,
            BrokenRecord::Chain,
        ),
        (
            "a part as a whole",
            |records| records[6] = part_as_whole(&records[6]),
            7,
            BrokenRecord::Damaged,
        ),
        (
            "left out",
            |records| drop(records.remove(2)),
            3,
            BrokenRecord::Gap,
        ),
        (
            "repeated",
            |records| records.insert(2, records[2].clone()),
            4,
            BrokenRecord::Gap,
        ),
        (
            "swapped",
            |records| records.swap(2, 3),
            3,
            BrokenRecord::Gap,
        ),
        (
            "fences swapped",
            |records| records.swap(0, 5),
            1,
            BrokenRecord::Chain,
        ),
    ];
    for (name, change, sequence, why) in cases {
        let (memory, log) = log();
        let (first, _) = owner(&log, "a");
        for index in 1..5 {
            first
                .write(&batch(&index.to_string(), index, 0))
                .expect("it owns the shard");
        }
        let (second, _) = owner(&log, "b");
        second
            .write(&batch("5", 5, 600))
            .expect("it owns the shard");
        memory.tamper(change);
        let local = MemoryStore::new();
        let error = take(&log, &local, "c")
            .err()
            .unwrap_or_else(|| panic!("{name}: not noticed"));
        let FollowError::Broken {
            sequence: at,
            why: found,
        } = error
        else {
            panic!("{name}: {error}")
        };
        assert_eq!((at, found), (sequence, why), "{name}");
        assert!(
            data(&local).len() < at as usize,
            "{name}: applied behind it"
        );
        assert!(
            !data(&local).contains_key(&(Family::Pending, b"5".to_vec())),
            "{name}: a part was applied"
        );
    }
}

fn flip(record: &Bytes) -> Bytes {
    let mut bytes = record.to_vec();
    bytes[26] ^= 4;
    bytes.into()
}

#[test]
fn without_the_expectation_records_of_a_former_owner_are_seen_and_refused() {
    let (memory, log) = log();
    memory.unfence();
    let (first, _) = owner(&log, "a");
    let (_second, _) = owner(&log, "b");
    assert!(
        first.write(&batch("k", 1, 0)).is_err(),
        "it is not where it should be"
    );
    assert_eq!(
        memory.records().len(),
        3,
        "a record of a former owner is in the log"
    );
    let error = take(&log, &MemoryStore::new(), "c")
        .err()
        .expect("not noticed");
    let why = BrokenRecord::Epoch { found: 1, epoch: 2 };
    assert!(
        matches!(error, FollowError::Broken { sequence: 3, why: found } if found == why),
        "{error}"
    );
}

#[test]
fn an_owner_whose_local_store_fails_writes_nothing_more_and_catches_up_later() {
    let (_, log) = log();
    let (first, local) = owner(&log, "a");
    local.fail(local.writes()..local.writes() + 1, WriteFault::Full);
    assert!(matches!(
        first.write(&batch("k", 1, 0)),
        Err(StoreError::Failed(_))
    ));
    assert!(matches!(
        first.ownership_end(),
        Some(OwnershipEnd::Local(_))
    ));
    assert!(first.write(&batch("k", 2, 0)).is_err());
    drop(take(&log, &local, "a").expect("the log is ahead"));
    assert_eq!(
        data(&local).values().next(),
        Some(&Bytes::from_static(b"1"))
    );
}

#[test]
fn a_write_that_waits_for_the_log_ends_with_the_server_and_is_whole_or_not_there() {
    for fault in [AppendFault::Lost, AppendFault::AcknowledgementLost] {
        let (memory, log) = log();
        let (_first, local) = stopped_while_it_writes(&memory, fault);
        drop(take(&log, &local, "a").expect("the log is whole"));
        assert_eq!(data(&local).len(), memory.records().len() - 2);
    }
}

#[test]
fn nothing_is_appended_after_a_stop() {
    let (memory, log) = log();
    let (first, _) = owner(&log, "a");
    first.stop();
    assert_eq!(
        first.ownership_end(),
        Some(&OwnershipEnd::Stopped),
        "without a write, too"
    );
    assert!(matches!(
        first.write(&batch("k", 1, 0)),
        Err(StoreError::Failed(_))
    ));
    assert_eq!(first.release_shard(), Err(OwnershipEnd::Stopped));
    assert_eq!(memory.appends(), 1, "the fence alone");
}

#[test]
fn a_shard_is_given_up_on_a_full_log_too() {
    let (memory, log) = log();
    let (first, _) = owner(&log, "a");
    memory.fail([AppendFault::Full]);
    assert_eq!(first.release_shard(), Ok(()));
    assert_eq!(
        (first.ownership_end(), memory.records().len()),
        (Some(&OwnershipEnd::Released), 1)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Write { key: u8, bytes: usize },
    Fault(AppendFault),
    TakeOver { keeps_store: bool },
    ZombieWrites,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    use AppendFault::{AcknowledgementLost, Crash, Full, LateAfter, LateBefore, Lost, None, Twice};
    let faults = [
        None,
        Lost,
        AcknowledgementLost,
        LateBefore,
        LateAfter,
        Twice,
        Full,
        Crash,
    ];
    prop_oneof![
        6 => (0..5u8, 0..700usize).prop_map(|(key, bytes)| Step::Write { key, bytes }),
        4 => proptest::sample::select(faults.to_vec()).prop_map(Step::Fault),
        2 => any::<bool>().prop_map(|keeps_store| Step::TakeOver { keeps_store }),
        2 => Just(Step::ZombieWrites),
        1 => Just(Step::Release),
    ]
}

/// Takes the shard, however often the messages for it are lost.
fn take_over(
    log: &Arc<dyn Changelog>,
    store: MemoryStore,
) -> Result<(MemoryStore, ReplicatedStore), TestCaseError> {
    loop {
        match take(log, &store, "next") {
            Ok(owner) => return Ok((store, owner)),
            Err(FollowError::Log(_)) => {}
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

/// Runs the steps and compares the shard with a map of what was acknowledged.
fn run(steps: &[Step]) -> TestCaseResult {
    let (memory, log) = log();
    let (mut current, mut local) = owner(&log, "0");
    let mut former: Vec<(ReplicatedStore, MemoryStore)> = Vec::new();
    let mut acknowledged = Contents::new();
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Fault(fault) => memory.fail([*fault]),
            Step::Write { key, bytes } => {
                let batch = batch(&key.to_string(), index as u64, *bytes);
                match current.write(&batch) {
                    Ok(()) => acknowledged.extend([entry(&batch)]),
                    Err(StoreError::Full) => {}
                    // An earlier attempt may have arrived before the owner died: the log tells.
                    Err(_) => {
                        prop_assert!(current.ownership_end().is_some());
                        let (store, _observer) = take_over(&log, MemoryStore::new())?;
                        let (key, value) = entry(&batch);
                        if data(&store).get(&key) == Some(&value) {
                            acknowledged.insert(key, value);
                        }
                        prop_assert_eq!(&data(&store), &acknowledged, "something else was written");
                    }
                }
            }
            Step::Release => drop(current.release_shard()),
            Step::ZombieWrites => {
                for (zombie, store) in &former {
                    let before = (memory.records().len(), contents(store));
                    prop_assert!(zombie.write(&super::batch("zombie", 0, 300)).is_err());
                    prop_assert_eq!(
                        (memory.records().len(), contents(store)),
                        before,
                        "a zombie has written"
                    );
                }
            }
            Step::TakeOver { keeps_store } => {
                let store = if *keeps_store {
                    local.clone()
                } else {
                    MemoryStore::new()
                };
                let (store, next) = take_over(&log, store)?;
                if !keeps_store {
                    former.push((
                        std::mem::replace(&mut current, next),
                        std::mem::replace(&mut local, store),
                    ));
                } else {
                    current = next;
                }
                prop_assert_eq!(&data(&local), &acknowledged, "not what was acknowledged");
            }
        }
        prop_assert!(
            current.applied_sequence() <= memory.records().len() as u64,
            "ahead of the log"
        );
    }
    let (store, _last) = take_over(&log, MemoryStore::new())?;
    prop_assert_eq!(data(&store), acknowledged);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_messages_and_owners_what_was_acknowledged_is_there_once(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        run(&steps)?;
    }
}
