//! The process is killed at every write of the journal, with the write kept and with it lost.

use std::time::Duration;

use gridhook::{dead_letter::DeadLetterTotals, journal::JournalState, store::Store};

use super::{
    subscription_key, target,
    world::{DeadLetterService, START, files, ids, run},
};
use crate::support::memory_store::{MemoryStore, WriteFault};

/// 7 dead letters make 3 files, and each file two writes: its name, and the removal of its dead
/// letters.
const DEAD_LETTERS: u32 = 7;
pub(super) const WRITES: u64 = 6;

fn expected() -> Vec<String> {
    (0..DEAD_LETTERS)
        .map(|index| format!("1-{index}"))
        .collect()
}

async fn finish(world: &DeadLetterService) -> DeadLetterTotals {
    let _actor = world.actor();
    for (subscription_key, due) in world.journal.reader_pool().all_dead().expect("read") {
        world.enqueue(subscription_key, target("letters"), due);
    }
    world
        .until(subscription_key(1), |totals| {
            totals.written == u64::from(DEAD_LETTERS)
        })
        .await
}

/// When the process is killed, and which writes are kept.
#[derive(Clone, Copy)]
pub(super) struct Kill {
    /// The number of the actor's write that fails, from 0.
    pub(super) write: u64,
    /// Number of unsynced writes that are kept.
    pub(super) kept: usize,
    /// Number of dead letters that are added between the kill and the repeat.
    pub(super) more_meanwhile: u32,
}

/// Runs until the process is killed, then a new process on the same store.
pub(super) async fn survive<S: Store>(kill: Kill, through: impl Fn(MemoryStore) -> S) {
    let Kill {
        write: killed,
        kept,
        more_meanwhile,
    } = kill;
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    let world = DeadLetterService::on(through(memory.clone()), folder.path(), START);
    world
        .add_dead_letters(
            subscription_key(1),
            DEAD_LETTERS - more_meanwhile,
            START.after(Duration::from_secs(1)),
        )
        .await;
    world.hand.advance(Duration::from_millis(1_000));
    let at = memory.writes() + killed;
    memory.fail(at..at + 1, WriteFault::Failed);
    let _actor = world.actor();
    world.enqueue(subscription_key(1), target("letters"), START);
    for _ in 0..1_000 {
        if world.journal.writer_state() == JournalState::Closed {
            break;
        }
        actix_rt::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(
        world.journal.writer_state(),
        JournalState::Closed,
        "write {killed} never came"
    );
    let before = files(folder.path());
    world.stop().await;

    let memory = memory.crash(kept);
    // The clock was set back: a new dead letter is due before those in the file.
    let world = DeadLetterService::on(through(memory), folder.path(), START);
    if more_meanwhile > 0 {
        world
            .add_dead_letters(subscription_key(1), more_meanwhile, START)
            .await;
    }
    world.hand.advance(Duration::from_secs(2));
    let totals = finish(&world).await;
    let case = format!("killed at write {killed}, {kept} kept, {more_meanwhile} more");
    let after = files(folder.path());
    assert!(
        before.keys().all(|name| after.contains_key(name)),
        "{case}: {before:?} {after:?}"
    );
    assert_eq!(
        (
            totals.lost,
            totals.in_progress,
            world.waiting(subscription_key(1)).await
        ),
        (0, None, 0),
        "{case}"
    );
    assert_eq!(totals.files as usize, after.len(), "{case}");
    if more_meanwhile == 0 {
        assert_eq!(
            ids(folder.path()),
            expected(),
            "{case}: each is in one file, once"
        );
    } else {
        assert_eq!(
            ids(folder.path()).len(),
            DEAD_LETTERS as usize,
            "{case}: {after:?}"
        );
    }
    world.stop().await;
}

#[test]
fn no_kill_at_any_write_loses_or_repeats_a_dead_letter() {
    for kept in [0, 1] {
        for write in 0..WRITES {
            run(survive(
                Kill {
                    write,
                    kept,
                    more_meanwhile: 0,
                },
                |memory| memory,
            ));
        }
    }
}

#[test]
fn no_kill_at_any_write_is_confused_by_dead_letters_before_the_repeat() {
    for kept in [0, 1] {
        // 5 dead letters make 2 files.
        for write in 0..4 {
            run(survive(
                Kill {
                    write,
                    kept,
                    more_meanwhile: 2,
                },
                |memory| memory,
            ));
        }
    }
}
