//! Each file is announced after it is stored and before its dead letters are removed.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{
    dead_letter::{FileWritten, Notifier, Sink},
    event::{
        PartitionId, Schema,
        chunk::{ChunkBuilder, EncodedEvent},
    },
    journal::{Journal, JournalState},
};

use super::{
    subscription_key, target,
    world::{DeadLetterService, START, files, ids, run},
};
use crate::support::memory_store::{MemoryStore, WriteFault};

/// The durable notifications: the file, whether it was stored, and how many dead letters waited.
/// And the number of tries.
#[derive(Clone, Default)]
struct Notifications(
    Arc<Mutex<Vec<(FileWritten, bool, usize)>>>,
    Arc<AtomicUsize>,
);

impl Notifications {
    /// Notifies by an event in the journal, like the server.
    fn notifier(&self, journal: Journal) -> Option<Notifier> {
        let notifications = self.clone();
        Some(Box::new(move |filed| {
            let notifications = notifications.clone();
            let journal = journal.clone();
            notifications.1.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                let waiting = journal
                    .reader_pool()
                    .read_dead_letters(subscription_key(1), filed.at, 1_000, 1 << 20)
                    .await?
                    .len();
                let mut draft = ChunkBuilder::new(Schema::EventGrid);
                draft.push(|out| {
                    out.extend_from_slice(filed.blob.path.as_bytes());
                    EncodedEvent {
                        wire_end: out.len(),
                        ranges: gridhook::event::EventRanges::default(),
                    }
                });
                journal
                    .append_events(PartitionId(1), draft.into_chunks(), None)
                    .await?;
                let there = place(&filed).is_file();
                notifications.0.lock().push((filed, there, waiting));
                Ok(())
            })
        }))
    }

    fn all(&self) -> Vec<(FileWritten, bool, usize)> {
        self.0.lock().clone()
    }
}

/// The announced file.
fn place(filed: &FileWritten) -> PathBuf {
    let url: url::Url = filed.blob.url.parse().expect("an address");
    url.to_file_path().expect("of a file")
}

fn world(memory: &MemoryStore, folder: &Path, notifications: &Notifications) -> DeadLetterService {
    let sink = Sink::in_folder(folder).expect("a folder");
    DeadLetterService::with_notifier(memory, sink, START, |journal| {
        notifications.notifier(journal)
    })
}

/// 5 dead letters make 2 files.
async fn five_wait(world: &DeadLetterService) {
    world
        .add_dead_letters(subscription_key(1), 5, START.after(Duration::from_secs(1)))
        .await;
    world.hand.advance(Duration::from_secs(1));
}

/// Every file is announced, and only stored ones. A repeat has the same name.
fn assert_announced(notifications: &Notifications, folder: &Path) {
    let files = files(folder);
    let notifications = notifications.all();
    assert!(
        notifications.iter().all(|(_, there, _)| *there),
        "{notifications:?}"
    );
    let name = |filed: &FileWritten| Path::new(&filed.blob.container).join(&filed.blob.path);
    for file in files.keys() {
        let (of, _, _) = notifications
            .iter()
            .find(|(filed, _, _)| name(filed) == *file)
            .expect("each file is announced");
        assert_eq!(of.blob.container, "letters");
        assert!(
            of.id().parse::<uuid::Uuid>().is_ok()
                && of.blob.path.ends_with(&format!("{}.json", of.id()))
        );
        assert_eq!(
            std::fs::metadata(folder.join(file)).expect("a file").len() as usize,
            of.bytes
        );
    }
    assert!(
        notifications
            .iter()
            .all(|(filed, _, _)| files.contains_key(&name(filed)))
    );
}

#[test]
fn a_file_is_announced_after_it_is_stored_and_before_its_dead_letters_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let notifications = Notifications::default();
    run(async {
        let world = world(&MemoryStore::new(), folder.path(), &notifications);
        let _actor = world.actor();
        five_wait(&world).await;
        world.enqueue(subscription_key(1), target("letters"), START);
        world
            .until(subscription_key(1), |totals| {
                totals.written == 5 && totals.in_progress.is_none()
            })
            .await;
        assert_announced(&notifications, folder.path());
        let waiting: Vec<usize> = notifications
            .all()
            .iter()
            .map(|(_, _, waiting)| *waiting)
            .collect();
        assert_eq!(
            waiting,
            [5, 2],
            "a file of 3 and one of 2, each announced once"
        );
        world.stop().await;
    });
}

#[test]
fn a_failed_notification_is_retried_at_the_next_turn() {
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    let notifications = Notifications::default();
    run(async {
        let world = world(&memory, folder.path(), &notifications);
        five_wait(&world).await;
        // The first write is the file's name, the second the notification, for which there is no
        // room.
        let at = memory.writes() + 1;
        memory.fail(at..at + 1, WriteFault::Full);
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("letters"), START);
        let totals = world
            .until(subscription_key(1), |totals| {
                totals.written == 5 && totals.in_progress.is_none()
            })
            .await;
        assert_eq!((totals.files, totals.lost), (2, 0));
        assert_announced(&notifications, folder.path());
        let tried = notifications.1.load(Ordering::Relaxed);
        assert_eq!(
            (notifications.all().len(), tried),
            (2, 3),
            "the failed notification succeeds later"
        );
        assert_eq!(
            ids(folder.path()).len(),
            5,
            "each dead letter is in one file"
        );
        world.stop().await;
    });
}

/// Runs until write `killed` (from 0) fails, then a new process on the same store.
async fn killed_at(killed: u64, kept: usize) {
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    let notifications = Notifications::default();
    let before = world(&memory, folder.path(), &notifications);
    five_wait(&before).await;
    let at = memory.writes() + killed;
    memory.fail(at..at + 1, WriteFault::Failed);
    let _actor = before.actor();
    before.enqueue(subscription_key(1), target("letters"), START);
    for _ in 0..1_000 {
        if before.journal.writer_state() == JournalState::Closed {
            break;
        }
        actix_rt::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(
        before.journal.writer_state(),
        JournalState::Closed,
        "write {killed} never came"
    );
    before.stop().await;

    let after = world(&memory.crash(kept), folder.path(), &notifications);
    after.hand.advance(Duration::from_secs(2));
    let _actor = after.actor();
    for (subscription_key, due) in after.journal.reader_pool().all_dead().expect("read") {
        after.enqueue(subscription_key, target("letters"), due);
    }
    after
        .until(subscription_key(1), |totals| {
            totals.written == 5 && totals.in_progress.is_none()
        })
        .await;
    assert_announced(&notifications, folder.path());
    assert_eq!(
        ids(folder.path()).len(),
        5,
        "killed at write {killed}, {kept} kept: each is in one file"
    );
    after.stop().await;
}

#[test]
fn no_kill_at_any_write_leaves_a_file_unannounced() {
    for kept in [0, 1] {
        // Each of the two files has three writes: its name, the notification, and the removal of
        // its dead letters.
        for killed in 0..6 {
            run(killed_at(killed, kept));
        }
    }
}
