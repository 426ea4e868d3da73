//! Several stores: an unreachable one does not delay the others, and its dead letters can be
//! redirected.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use actix::Actor;
use gridhook::{
    dead_letter::{DeadLetterStores, DeadLetterTarget, DeadLetterTotals, Sink, WaitingDeadLetters},
    event::SubscriptionKey,
};
use parking_lot::Mutex;

use super::{
    subscription_key, target,
    world::{DeadLetterService, OPTIONS, START, ids, run},
};
use crate::support::memory_store::MemoryStore;

fn at(store: &str, folder: &str) -> DeadLetterTarget {
    DeadLetterTarget {
        store: store.to_owned(),
        ..target(folder)
    }
}

/// The current target of each subscription's dead letters.
type Targets = Arc<Mutex<BTreeMap<SubscriptionKey, DeadLetterTarget>>>;

/// The stores `a` and `b`, folders below `root`, on the journal of `world`.
fn stores(world: &DeadLetterService, root: &Path, targets: &Targets) -> DeadLetterStores {
    let sinks = ["a", "b"].map(|name| {
        (
            name.to_owned(),
            Sink::in_folder(&root.join(name)).expect("a folder"),
        )
    });
    let targets = Arc::clone(targets);
    let aim = Box::new(move |subscription_key| targets.lock().get(&subscription_key).cloned());
    DeadLetterStores::new(&world.journal, &world.clock, sinks, aim, None, OPTIONS)
}

/// Makes writes fail by replacing the folder with a file.
fn break_store(root: &Path) {
    fs::write(root.join("a/letters"), b"").expect("written");
}

async fn until(
    world: &DeadLetterService,
    stores: &DeadLetterStores,
    of: SubscriptionKey,
    enough: impl Fn(&DeadLetterTotals) -> bool,
) -> DeadLetterTotals {
    let dead_letters = stores.get("a").expect("a store");
    for _ in 0..500 {
        let totals = dead_letters
            .read_totals(of)
            .await
            .expect("a journal that works");
        if enough(&totals) {
            return totals;
        }
        world.hand.advance(Duration::from_millis(20));
        actix_rt::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "it never came to that: {:?}",
        dead_letters.read_totals(of).await
    );
}

#[test]
fn an_unreachable_store_does_not_delay_others() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world =
            DeadLetterService::start(&MemoryStore::new(), &folder.path().join("none"), START);
        let stores = stores(&world, folder.path(), &Targets::default());
        let _actors: Vec<_> = stores
            .list_stores()
            .map(|(_, dead_letters)| dead_letters.build().start())
            .collect();
        break_store(folder.path());
        // As many as the files that a store writes at once.
        for subscription in 1..=OPTIONS.rules.at_once as u32 {
            world
                .add_dead_letters(subscription_key(subscription), 1, START)
                .await;
            stores.queue_waiting(WaitingDeadLetters {
                subscription_key: subscription_key(subscription),
                target: at("a", "letters"),
                due: START,
            });
        }
        world.add_dead_letters(subscription_key(9), 2, START).await;
        assert!(stores.queue_waiting(WaitingDeadLetters {
            subscription_key: subscription_key(9),
            target: at("b", "letters"),
            due: START
        }));
        until(&world, &stores, subscription_key(9), |totals| {
            totals.written == 2
        })
        .await;
        assert_eq!(ids(&folder.path().join("b")), ["9-0", "9-1"]);
        assert_eq!(world.waiting(subscription_key(1)).await, 1);
        fs::remove_file(folder.path().join("a/letters")).expect("removed");
        until(&world, &stores, subscription_key(1), |totals| {
            totals.written == 1
        })
        .await;
        assert!(stores.finish_turns(Duration::from_secs(60)).await);
        world.stop().await;
    });
}

#[test]
fn dead_letters_for_a_lost_store_can_be_redirected() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world =
            DeadLetterService::start(&MemoryStore::new(), &folder.path().join("none"), START);
        let targets = Targets::default();
        let stores = stores(&world, folder.path(), &targets);
        let _actors: Vec<_> = stores
            .list_stores()
            .map(|(_, dead_letters)| dead_letters.build().start())
            .collect();
        break_store(folder.path());
        targets
            .lock()
            .insert(subscription_key(1), at("a", "letters"));
        world.add_dead_letters(subscription_key(1), 5, START).await;
        stores.queue_waiting(WaitingDeadLetters {
            subscription_key: subscription_key(1),
            target: at("a", "letters"),
            due: START,
        });
        let begun = until(&world, &stores, subscription_key(1), |totals| {
            totals.in_progress.is_some()
        })
        .await;
        assert!(
            begun
                .in_progress
                .expect("it is begun")
                .name
                .starts_with("a:letters/MY-SUBSCRIPTION/")
        );

        targets
            .lock()
            .insert(subscription_key(1), at("b", "elsewhere/letters"));
        let totals = until(&world, &stores, subscription_key(1), |totals| {
            totals.written == 5
        })
        .await;
        assert_eq!(
            (
                totals.lost,
                totals.in_progress,
                world.waiting(subscription_key(1)).await
            ),
            (0, None, 0)
        );
        assert_eq!(
            ids(&folder.path().join("b/elsewhere/letters/MY-SUBSCRIPTION")).len(),
            5
        );
        assert!(stores.finish_turns(Duration::from_secs(60)).await);
        world.stop().await;
    });
}

#[test]
fn a_missing_store_keeps_its_dead_letters_in_the_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world =
            DeadLetterService::start(&MemoryStore::new(), &folder.path().join("none"), START);
        let stores = stores(&world, folder.path(), &Targets::default());
        world.add_dead_letters(subscription_key(1), 1, START).await;
        assert!(!stores.queue_waiting(WaitingDeadLetters {
            subscription_key: subscription_key(1),
            target: at("c", "letters"),
            due: START
        }));
        assert!(stores.get("c").is_none());
        assert_eq!(world.waiting(subscription_key(1)).await, 1);
        world.stop().await;
    });
}
