//! Every format that was ever written is kept here, and read: a line for each, in `formats.txt`, never changed.
//!
//! A line is a kind, and the record in hexadecimal digits, of which the first two are its version. Whoever changes what a
//! record is written as raises its version and adds a line; what the old lines say is then read, as long as the version is
//! one that is read at all, or refused by name.

use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use gridhook::{
    event::{PartitionId, Seq},
    journal::{
        keys::{self, MetaKind},
        memory::Memory,
        migrate::{self, PART, Step, migrate},
        records::Record,
        rocks::FORMAT,
        store::{Batch, Family, Store, StoreError},
    },
    policy::record::{Cursor, Dead, Entry, Excerpt, Owed, job::Job},
};
use proptest::{
    arbitrary::any,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::records as samples;

const STORED: &str = include_str!("formats.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes all");
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// The versions of a kind that are stored; what is still read comes back as it was.
fn stored<R: Record>(kind: &str) -> BTreeSet<u8> {
    let lines = STORED.lines().filter_map(|line| line.split_once(' ')).filter(|(of, _)| *of == kind);
    let mut versions = BTreeSet::new();
    for (_, line) in lines {
        let stored = bytes(line);
        versions.insert(stored[0]);
        if let Ok(record) = R::decode(&stored) {
            let written = record.encode();
            assert!(written[0] >= stored[0], "{kind}: a version goes up");
            assert!(written[0] > stored[0] || written == stored, "{kind}: {line} is written as {}", hex(&written));
        }
    }
    versions
}

fn check<R: Record>(kind: &str, sample: impl Strategy<Value = R>, missing: &mut Vec<String>) {
    let mut runner = TestRunner::deterministic();
    let sample = sample.new_tree(&mut runner).expect("a value").current().encode();
    let known = stored::<R>(kind);
    if !known.contains(&sample[0]) {
        missing.push(format!("{kind} {}", hex(&sample)));
    }
    let current = STORED.lines().filter_map(|line| line.split_once(' ')).filter(|(of, _)| *of == kind);
    let read = current.filter(|(_, line)| bytes(line)[0] == sample[0]).all(|(_, line)| R::decode(&bytes(line)).is_ok());
    assert!(read, "{kind}: a stored record of the version that is written cannot be read");
}

#[test]
fn every_version_of_a_record_that_is_written_is_stored_and_read_as_it_was() {
    let mut missing = Vec::new();
    check("floor", samples::floor(), &mut missing);
    check("owed", samples::owed(), &mut missing);
    check("dead", samples::dead(), &mut missing);
    check("entry", samples::entry(), &mut missing);
    check("job", samples::job(), &mut missing);
    check("cursor", samples::cursor(), &mut missing);
    let said = (any::<bool>(), proptest::collection::vec(any::<u8>(), 1..40));
    let excerpt = said.prop_map(|(answered, said)| Excerpt { answered, said: said.into() });
    check("excerpt", excerpt, &mut missing);
    assert!(missing.is_empty(), "lines to be added to tests/journal/formats.txt:\n{}", missing.join("\n"));
    let kinds: BTreeSet<&str> = STORED.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(kinds, BTreeSet::from(["cursor", "dead", "entry", "excerpt", "floor", "job", "owed"]));
}

#[test]
fn a_record_of_a_version_that_is_not_known_is_refused() {
    for line in STORED.lines() {
        let (kind, digits) = line.split_once(' ').expect("a kind and a record");
        let mut stored = bytes(digits);
        stored[0] = 0xee;
        let is_read = match kind {
            "cursor" => Cursor::decode(&stored).is_ok(),
            "dead" => Dead::decode(&stored).is_ok(),
            "entry" => Entry::decode(&stored).is_ok(),
            "excerpt" => Excerpt::decode(&stored).is_ok(),
            "job" => Job::decode(&stored).is_ok(),
            _ => Owed::decode(&stored).is_ok(),
        };
        assert!(!is_read, "{line}");
    }
}

fn name(number: u64) -> Vec<u8> {
    keys::meta(MetaKind::Topic, &number.to_be_bytes())
}

/// Each topic's record gets one byte more, a part at a time.
fn longer(store: &dyn Store, from: Option<&[u8]>, batch: &mut Batch) -> Result<Option<Vec<u8>>, StoreError> {
    let range = keys::meta_of(MetaKind::Topic);
    let (mut next, mut count) = (None, 0);
    store.scan(Family::Meta, from.unwrap_or(&range.start), &range.end, &mut |key, value| {
        if count == PART {
            next = Some(key.to_vec());
            return std::ops::ControlFlow::Break(());
        }
        count += 1;
        batch.put(Family::Meta, key.to_vec(), [value, b"+"].concat());
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(next)
}

fn format_of(store: &Memory) -> u32 {
    let format = store.get(Family::Meta, &keys::meta(MetaKind::Format, b"")).expect("readable").expect("a format");
    u32::from_be_bytes(format[..].try_into().expect("four bytes"))
}

#[test]
fn a_migration_that_is_killed_at_any_write_goes_on_and_changes_each_record_once() {
    const RECORDS: u64 = 3 * PART as u64 + 7;
    let steps: [Step; 2] = [longer, longer];
    for killed_after in 0..10 {
        let store = Memory::new();
        let mut batch = Batch::default();
        batch.put(Family::Meta, keys::meta(MetaKind::Format, b""), 1u32.to_be_bytes().to_vec());
        batch.put(Family::Meta, keys::floor(PartitionId(1)), b"not a topic".to_vec());
        (0..RECORDS).for_each(|number| batch.put(Family::Meta, name(number), b"record".to_vec()));
        store.write(&batch).expect("written");
        let killed = Arc::new(Dying { store: store.clone(), left: killed_after.into() });
        let died = migrate(&*killed, 1, 1, &steps).is_err();
        assert_eq!(died, killed_after < 8, "eight writes make up both steps");
        let found = format_of(&store);
        migrate(&store, found, 1, &steps).expect("migrated");
        assert_eq!(format_of(&store), 3);
        for number in 0..RECORDS {
            let value = store.get(Family::Meta, &name(number)).expect("readable").expect("it is there");
            assert_eq!(&value[..], b"record++", "{number}, killed after {killed_after} writes");
        }
        let range = keys::meta_of(MetaKind::Format);
        let (last, _) = store.last(Family::Meta, &range.start, &range.end).expect("readable").expect("a format");
        assert_eq!(last, range.start, "nothing is left of the progress");
    }
}

/// A store whose process is killed after so many writes.
struct Dying {
    store: Memory,
    left: std::sync::atomic::AtomicU32,
}

impl Store for Dying {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::Relaxed;
        match self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => self.store.write(batch),
            Err(_) => Err(StoreError::Failed("killed".to_owned())),
        }
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<bytes::Bytes>, StoreError> {
        self.store.get(family, key)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut gridhook::journal::store::Visit<'_>,
    ) -> Result<(), StoreError> {
        self.store.scan(family, from, upper, visit)
    }

    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, bytes::Bytes)>, StoreError> {
        self.store.last(family, lower, upper)
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        self.store.drop_log(partition, floor)
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn there_is_a_step_for_every_format_since_the_oldest() {
    assert_eq!(migrate::STEPS.len() as u32, FORMAT - migrate::OLDEST);
}
