//! A journal in memory with dead letters, a folder, and the actor between them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use actix::{Actor, Addr};
use bytes::BufMut;
use gridhook::{
    clock::{Clock, ManualClock},
    dead_letter::{
        DeadLetterActor, DeadLetterTarget, DeadLetterTotals, DeadLetters, Notifier, Sink,
        WaitingDeadLetters, WriterOptions, staging::StagingRules,
    },
    event::{
        EventRanges, Lane, PartitionId, Schema, Seq, SubscriptionKey, TextRange, Timestamp,
        chunk::{ChunkBuilder, EncodedEvent},
    },
    journal::{self, BacklogLimits, Journal, MetaChange, WriterThreads},
    policy::record::{DeadLetterRecord, RecordChange, WriteUrgency},
    store::Store,
};

use super::dead;
use crate::support::memory_store::MemoryStore;

/// 2020-08-13T18:00:00Z
pub(super) const START: Timestamp = Timestamp(1_597_341_600_000_000);

/// A fast server: 3 events per file, and failures are retried after 20 ms.
pub(super) const OPTIONS: WriterOptions = WriterOptions {
    rules: StagingRules {
        at_once: 4,
        retry_first: Duration::from_millis(20),
        retry_max: Duration::from_millis(40),
    },
    events_max: 3,
    bytes_max: 1 << 20,
};

pub(super) struct DeadLetterService {
    pub(super) journal: Journal,
    pub(super) dead_letters: DeadLetters,
    pub(super) hand: ManualClock,
    pub(super) clock: Clock,
    writer: WriterThreads,
}

impl DeadLetterService {
    /// A server on the content of `memory`, its clock at `now`, writing to `folder`.
    pub(super) fn start(memory: &MemoryStore, folder: &Path, now: Timestamp) -> Self {
        Self::over(memory, Sink::in_folder(folder).expect("a folder"), now)
    }

    /// A server on the content of `memory`, its clock at `now`, writing to `sink`.
    pub(super) fn over(memory: &MemoryStore, sink: Sink, now: Timestamp) -> Self {
        Self::with_notifier(memory, sink, now, |_| None)
    }

    /// A server on `store`.
    pub(super) fn on(store: impl Store, folder: &Path, now: Timestamp) -> Self {
        Self::build(
            Arc::new(store),
            Sink::in_folder(folder).expect("a folder"),
            now,
            |_| None,
        )
    }

    /// The same with a notifier that may use the journal.
    pub(super) fn with_notifier(
        memory: &MemoryStore,
        sink: Sink,
        now: Timestamp,
        notifier: impl FnOnce(Journal) -> Option<Notifier>,
    ) -> Self {
        Self::build(Arc::new(memory.clone()), sink, now, notifier)
    }

    fn build(
        store: Arc<dyn Store>,
        sink: Sink,
        now: Timestamp,
        notifier: impl FnOnce(Journal) -> Option<Notifier>,
    ) -> Self {
        let (clock, hand) = Clock::new_manual(now);
        let limits = BacklogLimits {
            retention: Duration::from_secs(3600),
            ..BacklogLimits::default()
        };
        let options = journal::JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards: journal::Shards::default(),
            limits,
        };
        let (journal, writer) = Journal::start(
            store,
            clock.clone(),
            options,
            Box::new(|_, _| {}),
            Box::new(|_| {}),
        )
        .expect("a store that is whole");
        let dead_letters = DeadLetters::new(
            journal.clone(),
            clock.clone(),
            sink,
            notifier(journal.clone()),
            OPTIONS,
        );
        Self {
            journal,
            dead_letters,
            hand,
            clock,
            writer,
        }
    }

    /// Publishes `count` events for `subscription_key` and dead-letters all of them, due at `due`.
    pub(super) async fn add_dead_letters(
        &self,
        subscription_key: SubscriptionKey,
        count: u32,
        due: Timestamp,
    ) {
        let found = self.journal.log_end(PartitionId(1)).is_some();
        let mut changes = vec![MetaChange::Subscribe(subscription_key, None)];
        if !found {
            changes.insert(0, MetaChange::CreatePartition(PartitionId(1)));
        }
        self.journal
            .write_meta_changes(changes)
            .await
            .expect("written");
        self.add_more_dead_letters(subscription_key, count, due)
            .await;
    }

    /// The same for an existing subscription.
    pub(super) async fn add_more_dead_letters(
        &self,
        subscription_key: SubscriptionKey,
        count: u32,
        due: Timestamp,
    ) {
        let mut draft = ChunkBuilder::new(Schema::EventGrid);
        for index in 0..count {
            draft.push(|out| {
                let id = format!("{}-{index}", subscription_key.subscription.0);
                let start = out.len() as u32;
                let before = br#"{"id":""#;
                out.put_slice(before);
                out.put_slice(id.as_bytes());
                out.put_slice(br#"","data":1.0}"#);
                let id = TextRange {
                    start: start + before.len() as u32,
                    len: id.len() as u32,
                };
                EncodedEvent {
                    wire_end: out.len(),
                    ranges: EventRanges {
                        id,
                        ..EventRanges::default()
                    },
                }
            });
        }
        let first = self
            .journal
            .append_events(PartitionId(1), draft.into_chunks(), None)
            .await
            .expect("published")
            .first;
        let owner = self
            .journal
            .open(subscription_key)
            .await
            .expect("opened")
            .owner;
        let record = |index| dead_letter_change(first.plus(u64::from(index)), due, dead());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let done = Box::new(move |response| sender.send(response).expect("somebody waits"));
        self.journal.write_changes(
            owner,
            (0..count).map(record).collect(),
            WriteUrgency::Now,
            done,
        );
        receiver.await.expect("a response").expect("written");
    }

    pub(super) fn enqueue(
        &self,
        subscription_key: SubscriptionKey,
        target: DeadLetterTarget,
        due: Timestamp,
    ) {
        self.dead_letters.queue_waiting(WaitingDeadLetters {
            subscription_key,
            target,
            due,
        });
    }

    pub(super) fn actor(&self) -> Addr<DeadLetterActor> {
        self.dead_letters.build().start()
    }

    /// Advances the clock until the totals of `subscription_key` satisfy `enough`.
    pub(super) async fn until(
        &self,
        subscription_key: SubscriptionKey,
        enough: impl Fn(&DeadLetterTotals) -> bool,
    ) -> DeadLetterTotals {
        for _ in 0..500 {
            let totals = self
                .dead_letters
                .read_totals(subscription_key)
                .await
                .expect("a journal that works");
            if enough(&totals) {
                return totals;
            }
            self.hand.advance(Duration::from_millis(20));
            actix_rt::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "it never came to that: {:?}",
            self.dead_letters.read_totals(subscription_key).await
        );
    }

    pub(super) async fn waiting(&self, subscription_key: SubscriptionKey) -> usize {
        self.journal
            .reader_pool()
            .read_dead_letters(subscription_key, Timestamp::NEVER, 1_000, 1 << 20)
            .await
            .expect("read")
            .len()
    }

    /// Stops it like a server.
    pub(super) async fn stop(self) {
        assert!(
            self.dead_letters
                .finish_turns(Duration::from_secs(60))
                .await,
            "files end"
        );
        self.journal.close();
        self.writer.join_all();
    }
}

pub(super) fn dead_letter_change(seq: Seq, due: Timestamp, dead: DeadLetterRecord) -> RecordChange {
    RecordChange::DeadLetter {
        lane: Lane::LIVE,
        seq,
        due,
        dead,
    }
}

/// Runs a test with a new server and its folder, and stops the server.
pub(super) fn in_world(test: impl AsyncFnOnce(&DeadLetterService, &Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&MemoryStore::new(), folder.path(), START);
        test(&world, folder.path()).await;
        world.stop().await;
    });
}

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(work)
}

/// The files below `root`, and the ids of the events in each.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<String>> {
    let mut found = BTreeMap::new();
    collect(root, root, &mut found);
    found
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<String>>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let text = fs::read_to_string(&path).expect("a file");
            let events: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
            let ids = events
                .iter()
                .map(|event| event["id"].as_str().expect("an id").to_owned())
                .collect();
            found.insert(path.strip_prefix(root).expect("below").to_owned(), ids);
        }
    }
}

/// All ids in all files, sorted. A repeated id appears twice.
pub(super) fn ids(root: &Path) -> Vec<String> {
    let mut ids: Vec<_> = files(root).into_values().flatten().collect();
    ids.sort();
    ids
}
