//! Every record format that was ever written, in `formats.txt`, one line each. Lines are never
//! changed.
//!
//! A line has a kind and a record: JSON, or hexadecimal digits, which mostly begin with the
//! version. A change of a record's bytes raises its version and adds a line. Old lines must still
//! be decoded, as long as their version is supported, or refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use bytes::Bytes;
use gridhook::{
    control::filter_version,
    event::{PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, chunk::Chunk},
    policy::{
        outcome::RequestHeads,
        record::{Cursor, DeadLetterRecord, EndpointId, Excerpt, LedgerEntry, PendingDelivery},
    },
    repair::fsck,
    storage::{check_readable, record_decoders},
    store::{
        Batch, Family, Store, StoreError,
        id_filter::IdFilter,
        keys::{self, MetaKind},
        layer,
        migrate::{self, PART, Step, migrate_store},
        records::{AppliedPosition, LedgerLines, OutcomePage, PublishedId, StoredRecord},
        rocks::FORMAT,
    },
};
use proptest::{
    arbitrary::any,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::records as samples;
use crate::support::memory_store::MemoryStore;

const STORED: &str = include_str!("formats.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes all");
        text
    })
}

/// The bytes of a line: JSON, or hexadecimal digits, in which `ff*8192` is a repetition.
fn bytes(record: &str) -> Vec<u8> {
    if record.starts_with('{') {
        return record.as_bytes().to_vec();
    }
    let run = |run: &str| {
        let (hex, times) = run.split_once('*').unwrap_or((run, "1"));
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
        bytes.repeat(times.parse().expect("a number"))
    };
    record.split(' ').flat_map(run).collect()
}

/// The lines of a kind.
fn fixtures_with_kind(kind: &str) -> Vec<Vec<u8>> {
    let lines = STORED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(of, _)| *of == kind);
    lines.map(|(_, line)| bytes(line)).collect()
}

/// Whether a record can be decoded.
type Reads = fn(&[u8]) -> bool;

fn reads<R: StoredRecord>(bytes: &[u8]) -> bool {
    R::decode(bytes).is_ok()
}

fn reads_chunk(bytes: &[u8]) -> bool {
    Chunk::decode(Seq(9), Bytes::copy_from_slice(bytes)).is_ok_and(|chunk| {
        chunk
            .decode_events()
            .is_ok_and(|events| events.len() == 1 && events[0].id() == "a")
    })
}

/// The kinds of a family's records, and how they are decoded. A family without values has none.
fn kinds_of(family: Family) -> Vec<(&'static str, Reads)> {
    match family {
        Family::Meta => MetaKind::ALL.into_iter().flat_map(kinds_of_meta).collect(),
        Family::Log | Family::Carried => vec![("chunk", reads_chunk)],
        Family::Cursor => vec![("cursor", reads::<Cursor>), ("page", reads::<OutcomePage>)],
        Family::Pending => vec![("owed", reads::<PendingDelivery>)],
        Family::Due | Family::Pin => Vec::new(),
        Family::Dead => vec![("dead", reads::<DeadLetterRecord>)],
        Family::Ledger => vec![
            ("entry", reads::<LedgerEntry>),
            ("lines", reads::<LedgerLines<'static>>),
        ],
        Family::Excerpt => vec![("excerpt", reads::<Excerpt>)],
        Family::Ids => vec![("ids", |bytes| {
            IdFilter::decode(bytes).is_some_and(|ids| ids.may_have("any"))
        })],
        Family::PublishedIds => vec![("published_id", reads::<PublishedId>)],
    }
}

/// The same for [`Family::Meta`].
fn kinds_of_meta(kind: MetaKind) -> Vec<(&'static str, Reads)> {
    match kind {
        MetaKind::Format => vec![("format", |bytes| {
            check_readable(MetaKind::Format, bytes).is_ok()
        })],
        MetaKind::Topic => vec![("topic", |bytes| {
            check_readable(MetaKind::Topic, bytes).is_ok()
        })],
        MetaKind::Subscription => vec![("subscription", |bytes| {
            check_readable(MetaKind::Subscription, bytes).is_ok()
        })],
        MetaKind::Numbers => vec![("numbers", |bytes| {
            check_readable(MetaKind::Numbers, bytes).is_ok()
        })],
        MetaKind::Floor => vec![("floor", |bytes| {
            check_readable(MetaKind::Floor, bytes).is_ok()
        })],
        MetaKind::DeadLetters => vec![("totals", |bytes| {
            check_readable(MetaKind::DeadLetters, bytes).is_ok()
        })],
        MetaKind::Job => vec![
            ("job", |bytes| check_readable(MetaKind::Job, bytes).is_ok()),
            ("reap", |bytes| check_readable(MetaKind::Job, bytes).is_ok()),
        ],
        MetaKind::Proposal => vec![("proposal", |bytes| {
            check_readable(MetaKind::Proposal, bytes).is_ok()
        })],
        MetaKind::DomainTopic => vec![("domain_topic", |bytes| {
            check_readable(MetaKind::DomainTopic, bytes).is_ok()
        })],
        MetaKind::Filter => vec![("filter", |bytes| {
            check_readable(MetaKind::Filter, bytes).is_ok()
        })],
        MetaKind::Redrive => vec![("redrive", |bytes| {
            check_readable(MetaKind::Redrive, bytes).is_ok()
        })],
        MetaKind::Namespace => vec![("namespace", |bytes| {
            check_readable(MetaKind::Namespace, bytes).is_ok()
        })],
        MetaKind::Secret => vec![("secret", |bytes| {
            check_readable(MetaKind::Secret, bytes).is_ok()
        })],
        MetaKind::Token => vec![("token", |bytes| {
            check_readable(MetaKind::Token, bytes).is_ok()
        })],
        MetaKind::Audit => vec![("audit", |bytes| {
            check_readable(MetaKind::Audit, bytes).is_ok()
        })],
        MetaKind::ResourceGroup => {
            vec![("resource_group", |bytes| {
                check_readable(MetaKind::ResourceGroup, bytes).is_ok()
            })]
        }
        MetaKind::Deployment => vec![("deployment", |bytes| {
            check_readable(MetaKind::Deployment, bytes).is_ok()
        })],
        MetaKind::DeploymentTemplate => vec![("deployment_template", |bytes| {
            check_readable(MetaKind::DeploymentTemplate, bytes).is_ok()
        })],
        MetaKind::Session => vec![("session", |bytes| {
            check_readable(MetaKind::Session, bytes).is_ok()
        })],
        MetaKind::Loss => vec![("loss", |bytes| {
            check_readable(MetaKind::Loss, bytes).is_ok()
        })],
        MetaKind::Applied => vec![("applied", |bytes| {
            check_readable(MetaKind::Applied, bytes).is_ok()
        })],
        MetaKind::Followed => vec![("followed", |bytes| {
            check_readable(MetaKind::Followed, bytes).is_ok()
        })],
    }
}

#[test]
fn every_kind_of_record_is_stored_here_and_read_and_one_that_is_longer_or_of_no_known_version_is_refused()
 {
    let kinds: BTreeMap<&str, Reads> = Family::ALL.into_iter().flat_map(kinds_of).collect();
    let stored: BTreeSet<&str> = STORED
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        stored,
        kinds.keys().copied().collect(),
        "each kind has a line, and each line is of a kind"
    );
    for (kind, reads) in kinds {
        for record in fixtures_with_kind(kind) {
            assert!(reads(&record), "{kind} {} cannot be read", hex(&record));
            if record.starts_with(b"{") {
                let unknown =
                    [&record[..record.len() - 1], br#","of_a_later_version":1}"#].concat();
                assert!(
                    !reads(&unknown),
                    "{kind}: what a later version wrote would be lost"
                );
                continue;
            }
            assert!(
                !reads(&[&record[..], b"+"].concat()),
                "{kind}: bytes behind it are not noticed"
            );
            // Three kinds are a number or a key without a version.
            if !["format", "loss", "secret"].contains(&kind) {
                assert!(
                    !reads(&[&[0xee], &record[1..]].concat()),
                    "{kind}: a version that is not known"
                );
            }
        }
    }
}

#[test]
fn a_cursor_of_version_5_says_from_when_on_its_endpoint_takes_requests() {
    let cursors = fixtures_with_kind("cursor");
    let not_before = |bytes: &[u8]| Cursor::decode(bytes).expect("readable").pace.not_before;
    let reported = cursors
        .iter()
        .map(|cursor| (cursor[0], not_before(cursor)))
        .collect::<Vec<_>>();
    let asked = Some(Timestamp(1_615_410_176_000_000));
    assert_eq!(
        reported,
        [(5, None), (5, asked), (6, asked), (7, asked), (8, asked)]
    );
    let decoded = |cursor: &[u8]| Cursor::decode(cursor).expect("readable");
    assert_eq!(decoded(&cursors[1]), decoded(&cursors[2]));
    let old: Vec<_> = cursors[..3]
        .iter()
        .map(|cursor| decoded(cursor).pace.failing_since)
        .collect();
    assert_eq!(
        (old, decoded(&cursors[3]).pace.failing_since),
        (vec![None; 3], asked)
    );
    let mut newest = decoded(&cursors[1]);
    newest.pace.failing_since = asked;
    assert_eq!(
        newest,
        decoded(&cursors[3]),
        "an earlier version does not say which endpoint requested the wait"
    );
    newest.pace.requested_by = Some(EndpointId(7));
    assert_eq!(
        newest.encode(),
        cursors[4],
        "the old one is written as the new one"
    );
}

/// The versions of a kind in the file. Those that are supported must be encoded again: to the same
/// bytes, or in a newer version.
fn stored<R: StoredRecord>(kind: &str) -> BTreeSet<u8> {
    let lines = STORED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(of, _)| *of == kind);
    let mut versions = BTreeSet::new();
    for (_, line) in lines {
        let stored = bytes(line);
        versions.insert(stored[0]);
        if let Ok(record) = R::decode(&stored) {
            let written = record.encode();
            assert!(written[0] >= stored[0], "{kind}: a version goes up");
            assert!(
                written[0] > stored[0] || written == stored,
                "{kind}: {line} is written as {}",
                hex(&written)
            );
        }
    }
    versions
}

fn check<R: StoredRecord>(kind: &str, sample: impl Strategy<Value = R>, missing: &mut Vec<String>) {
    let mut runner = TestRunner::deterministic();
    let sample = sample
        .new_tree(&mut runner)
        .expect("a value")
        .current()
        .encode();
    let known = stored::<R>(kind);
    if !known.contains(&sample[0]) {
        missing.push(format!("{kind} {}", hex(&sample)));
    }
    let current = STORED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(of, _)| *of == kind);
    let read = current
        .filter(|(_, line)| bytes(line)[0] == sample[0])
        .all(|(_, line)| R::decode(&bytes(line)).is_ok());
    assert!(
        read,
        "{kind}: a stored record of the version that is written cannot be read"
    );
}

#[test]
fn every_version_of_a_record_that_is_written_is_stored_and_read_as_it_was() {
    let mut missing = Vec::new();
    check("floor", samples::floor(), &mut missing);
    check("owed", samples::pending(), &mut missing);
    check("dead", samples::dead(), &mut missing);
    check("entry", samples::entry(), &mut missing);
    check("lines", samples::lines(), &mut missing);
    check("job", samples::job(), &mut missing);
    check("cursor", samples::cursor(), &mut missing);
    check("page", samples::page(), &mut missing);
    let said = proptest::collection::vec(any::<u8>(), 1..40);
    let heads = ("[a-z]{1,9}", "[a-z]{1,9}")
        .prop_map(|(request, response)| Box::new(RequestHeads { request, response }));
    let said = (any::<bool>(), said, heads.prop_map(Some));
    let excerpt = said.prop_map(|(has_response, said, heads)| Excerpt {
        has_response,
        content: said.into(),
        heads,
    });
    check("excerpt", excerpt, &mut missing);
    let times = (any::<u64>(), any::<u64>(), any::<Option<u64>>());
    let published = (times, any::<u64>(), any::<u64>()).prop_map(
        |((accepted, until, last), seq, duplicates)| PublishedId {
            accepted: Timestamp(accepted),
            until: Timestamp(until),
            seq: Seq(seq),
            duplicates,
            last: last.map(Timestamp),
        },
    );
    check("published_id", published, &mut missing);
    let applied = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    let applied = applied.prop_map(|(sequence, chain, epoch, number)| AppliedPosition {
        sequence,
        chain,
        epoch,
        number,
    });
    check("applied", applied, &mut missing);
    assert!(
        missing.is_empty(),
        "lines to be added to tests/journal/formats.txt:\n{}",
        missing.join("\n")
    );
}

#[test]
fn an_unreadable_version_of_a_filter_is_reported_and_not_taken_for_an_earlier_one() {
    let subscription_key = SubscriptionKey {
        partition: PartitionId(1),
        subscription: SubscriptionId(2),
    };
    let store = MemoryStore::new();
    let mut batch = Batch::default();
    let good = fixtures_with_kind("filter").remove(0);
    let newer = [&good[..good.len() - 1], br#","of_a_later_version":1}"#].concat();
    for (version, record) in [(1, good.clone()), (2, newer), (3, good)] {
        let name = keys::filter_name(subscription_key, version);
        batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::Filter, name.as_bytes()),
            record,
        );
    }
    store.write(&batch).expect("written");
    let (journal, _clock, _hand) = crate::support::publisher::journal(&store);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let versions = runtime
        .block_on(filter_version::read_versions(&journal, subscription_key))
        .expect("readable");
    let known = [1, 2, 3, 4].map(|number| filter_version::in_force(&versions, number).is_some());
    assert_eq!(known, [true, false, true, true]);
    let report = fsck::check_store(&store, record_decoders(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("readable");
    let reported: Vec<String> = report
        .findings
        .into_iter()
        .map(|finding| finding.problem)
        .collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("00000001/00000002/00000002")
            && reported[0].contains("of_a_later_version"),
        "{reported:?}"
    );
}

fn name(number: u64) -> Vec<u8> {
    keys::meta_key(MetaKind::Topic, &number.to_be_bytes())
}

/// A migration step that appends a byte to each topic's record.
fn longer(
    store: &dyn Store,
    from: Option<&[u8]>,
    batch: &mut Batch,
) -> Result<Option<Vec<u8>>, StoreError> {
    let range = keys::meta_of(MetaKind::Topic);
    let mut next = None;
    let mut count = 0;
    store.scan(
        Family::Meta,
        from.unwrap_or(&range.start),
        &range.end,
        &mut |key, value| {
            if count == PART {
                next = Some(key.to_vec());
                return std::ops::ControlFlow::Break(());
            }
            count += 1;
            batch.put(Family::Meta, key.to_vec(), [value, b"+"].concat());
            std::ops::ControlFlow::Continue(())
        },
    )?;
    Ok(next)
}

fn format_of(store: &MemoryStore) -> u32 {
    let format = store
        .get(Family::Meta, &keys::meta_key(MetaKind::Format, b""))
        .expect("readable")
        .expect("a format");
    u32::from_be_bytes(format[..].try_into().expect("four bytes"))
}

#[test]
fn a_migration_that_is_killed_at_any_write_goes_on_and_changes_each_record_once() {
    const RECORDS: u64 = 3 * PART as u64 + 7;
    let steps: [Step; 2] = [longer, longer];
    for killed_after in 0..10 {
        let store = MemoryStore::new();
        let mut batch = Batch::default();
        batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::Format, b""),
            1u32.to_be_bytes().to_vec(),
        );
        batch.put(
            Family::Meta,
            keys::floor_key(PartitionId(1)),
            b"not a topic".to_vec(),
        );
        (0..RECORDS).for_each(|number| batch.put(Family::Meta, name(number), b"record".to_vec()));
        store.write(&batch).expect("written");
        let killed = Arc::new(Dying {
            store: store.clone(),
            left: killed_after.into(),
        });
        let died = migrate_store(&*killed, 1, 1, &steps).is_err();
        assert_eq!(died, killed_after < 8, "eight writes make up both steps");
        let found = format_of(&store);
        migrate_store(&store, found, 1, &steps).expect("migrated");
        assert_eq!(format_of(&store), 3);
        for number in 0..RECORDS {
            let value = store
                .get(Family::Meta, &name(number))
                .expect("readable")
                .expect("it is there");
            assert_eq!(
                &value[..],
                b"record++",
                "{number}, killed after {killed_after} writes"
            );
        }
        let range = keys::meta_of(MetaKind::Format);
        let (last, _) = store
            .last(Family::Meta, &range.start, &range.end)
            .expect("readable")
            .expect("a format");
        assert_eq!(last, range.start, "nothing is left of the progress");
    }
}

/// A store that fails after a number of writes, like a killed process.
struct Dying {
    store: MemoryStore,
    left: std::sync::atomic::AtomicU32,
}

impl layer::StoreLayer for Dying {
    type Inner = MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::Relaxed;
        match self
            .left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
        {
            Ok(_) => self.store.write(batch),
            Err(_) => Err(StoreError::Failed("killed".to_owned())),
        }
    }
}

#[test]
fn there_is_a_step_for_every_format_since_the_oldest() {
    assert_eq!(migrate::STEPS.len() as u32, FORMAT - migrate::OLDEST);
}
