use std::{fs, time::Duration};

use gridhook::{
    dead_letter::{DeadLetterTarget, DeadLetterTotals, totals::FileInProgress},
    event::{Lane, Seq},
    journal::{DeadLetterKey, DeadLetterWrite},
    policy::record::{RecordChange, WriteUrgency},
    store::keys::MetaKind,
};

use super::{
    dead, subscription_key, target,
    world::{DeadLetterService, START, dead_letter_change, files, ids, in_world, run},
};
use crate::support::memory_store::{MemoryStore, WriteFault};

const DELAY: Duration = Duration::from_millis(100);

/// Dead letters of a clock that was set back wait as long as new ones, also while new ones come.
#[test]
fn dead_letters_of_a_clock_that_was_a_year_ahead_wait_no_longer_than_new_ones() {
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    let year = Duration::from_secs(365 * 24 * 3600);
    let target = || DeadLetterTarget {
        delay: DELAY,
        ..target("letters")
    };
    run(async {
        let ahead = DeadLetterService::start(&memory, folder.path(), START.after(year));
        let due = START.after(year).after(DELAY);
        ahead.add_dead_letters(subscription_key(1), 5, due).await;
        ahead.stop().await;
        let world = DeadLetterService::start(&memory, folder.path(), START);
        let _actor = world.actor();
        let due = START.after(DELAY);
        world
            .add_more_dead_letters(subscription_key(1), 1, due)
            .await;
        for (subscription_key, due) in world.journal.reader_pool().all_dead().expect("read") {
            world.enqueue(subscription_key, target(), due);
        }
        let totals = world.until(subscription_key(1), written(6)).await;
        assert_eq!(totals.lost, 0);
        assert_eq!(world.waiting(subscription_key(1)).await, 0);
        assert!(world.clock.now().since(START) < year / 365);
        world.stop().await;
    });
}

fn written(count: u64) -> impl Fn(&DeadLetterTotals) -> bool {
    move |totals| totals.written == count && totals.in_progress.is_none()
}

#[test]
fn files_appear_after_the_delay_several_events_in_one() {
    let _rows = crate::spec::shows(&[
        "S000-095, S002-036, S003-072: When Event Grid cannot deliver an event within a certain \
         time or after a certain number of attempts, it can send the undelivered event to a \
         storage account (dead-lettering).",
        "S000-108, S002-044, S003-085: There is a delay of 5 minutes between the last attempt to \
         deliver an event and its delivery to the dead-letter location.",
    ]);
    in_world(async |world, folder| {
        let _actor = world.actor();
        let due = START.after(DELAY);
        world.add_dead_letters(subscription_key(1), 5, due).await;
        world.enqueue(subscription_key(1), target("letters"), due);
        actix_rt::time::sleep(Duration::from_millis(30)).await;
        assert!(files(folder).is_empty(), "nothing is due yet");

        let totals = world.until(subscription_key(1), written(5)).await;
        let found = files(folder);
        let counts: Vec<usize> = found.values().map(Vec::len).collect();
        assert_eq!(
            (counts.iter().sum::<usize>(), counts.len(), totals.files),
            (5, 2, 2),
            "3 events a file"
        );
        assert!(
            found
                .keys()
                .all(|path| path.starts_with("letters/MY-SUBSCRIPTION/2020/8/13/18")),
            "{found:?}"
        );
        let bytes: u64 = found
            .keys()
            .map(|path| fs::metadata(folder.join(path)).expect("a file").len())
            .sum();
        assert_eq!(
            (
                totals.bytes,
                totals.lost,
                world.waiting(subscription_key(1)).await
            ),
            (bytes, 0, 0)
        );
    });
}

#[test]
fn many_subscriptions_are_written_and_each_has_its_own_totals() {
    in_world(async |world, folder| {
        let _actor = world.actor();
        for subscription in 1..=9 {
            world
                .add_dead_letters(subscription_key(subscription), subscription, START)
                .await;
            world.enqueue(
                subscription_key(subscription),
                target(&format!("letters-{subscription}")),
                START,
            );
        }
        for subscription in 1..=9 {
            world
                .until(subscription_key(subscription), written(subscription.into()))
                .await;
            assert_eq!(
                ids(&folder.join(format!("letters-{subscription}"))).len(),
                subscription as usize
            );
        }
    });
}

#[test]
fn a_later_dead_letter_has_its_own_due_time() {
    in_world(async |world, _| {
        let _actor = world.actor();
        world.add_dead_letters(subscription_key(1), 1, START).await;
        world.add_dead_letters(subscription_key(2), 0, START).await;
        let later = START.after(Duration::from_secs(3));
        world.add_dead_letters(subscription_key(1), 1, later).await;
        // One call for all: the journal has the rest.
        world.enqueue(subscription_key(1), target("letters"), START);
        world.until(subscription_key(1), written(1)).await;
        assert_eq!(world.waiting(subscription_key(1)).await, 1);
        world.until(subscription_key(1), written(2)).await;
    });
}

#[test]
fn waiting_subscriptions_are_found_at_the_start() {
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&memory, folder.path(), START);
        assert_eq!(world.journal.reader_pool().all_dead().expect("read"), []);
        let due = START.after(DELAY);
        world.add_dead_letters(subscription_key(1), 5, due).await;
        world.add_dead_letters(subscription_key(2), 0, due).await;
        world
            .add_dead_letters(subscription_key(u32::MAX), 1, START)
            .await;
        let all = world.journal.reader_pool().all_dead().expect("read");
        assert_eq!(
            all,
            [
                (subscription_key(1), due),
                (subscription_key(u32::MAX), START)
            ]
        );
        world.stop().await;
    });
}

#[test]
fn a_new_incarnation_handles_what_was_enqueued_before() {
    in_world(async |world, _| {
        drop(world.actor());
        world.add_dead_letters(subscription_key(1), 2, START).await;
        world.enqueue(subscription_key(1), target("letters"), START);
        let _second = world.actor();
        world.until(subscription_key(1), written(2)).await;
    });
}

#[test]
fn a_new_incarnation_waits_for_the_turn_of_the_previous_one() {
    let memory = MemoryStore::new();
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&memory, folder.path(), START);
        world.add_dead_letters(subscription_key(1), 3, START).await;
        // The journal has no room for the removal of the dead letters, so it waits there and
        // completes late.
        memory.fail(memory.writes() + 1..memory.writes() + 2, WriteFault::Full);
        let first = world.actor();
        world.enqueue(subscription_key(1), target("letters"), START);
        while files(folder.path()).is_empty() {
            actix_rt::time::sleep(Duration::from_millis(5)).await;
        }
        drop(first);
        let _second = world.actor();
        world.enqueue(subscription_key(1), target("letters"), START);
        world.until(subscription_key(1), written(3)).await;
        assert_eq!(ids(folder.path()), ["1-0", "1-1", "1-2"]);
        world.stop().await;
    });
}

#[test]
fn an_unreachable_folder_is_retried_and_others_do_not_wait() {
    in_world(async |world, folder| {
        let _actor = world.actor();
        fs::write(folder.join("broken"), b"a file where a folder should be").expect("written");
        world.add_dead_letters(subscription_key(1), 4, START).await;
        world.add_dead_letters(subscription_key(2), 4, START).await;
        world.enqueue(subscription_key(1), target("broken"), START);
        let begun = world
            .until(subscription_key(1), |totals| totals.in_progress.is_some())
            .await;
        world.enqueue(subscription_key(2), target("whole"), START);
        world.until(subscription_key(2), written(4)).await;
        let still = world
            .dead_letters
            .read_totals(subscription_key(1))
            .await
            .expect("read");
        assert_eq!(still.in_progress, begun.in_progress, "the same name");
        assert_eq!(
            (still.lost, world.waiting(subscription_key(1)).await),
            (0, 4),
            "and nothing is lost"
        );

        fs::remove_file(folder.join("broken")).expect("removed");
        world.until(subscription_key(1), written(4)).await;
        let name = begun.in_progress.expect("it is begun").name;
        assert!(
            folder.join(name).is_file(),
            "the name that was in the journal is the file's"
        );
    });
}

#[test]
fn a_dead_letter_outlives_its_time_to_live_for_the_whole_retry_period() {
    let _rows = crate::spec::shows(&[
        "S001-111: If dead-letter retries begin before the event retention time to live configured \
         on the event subscription ends, and the remaining time to live is shorter than the \
         configured retry period, the broker keeps the dead letter for the whole configured \
         maximum dead-letter retry period.",
        "S001-112: Example of keeping a dead letter past its retention: with only 4 hours of event \
         time to live left and a dead-letter retry period of 2 days configured, the dead letter is \
         kept for up to 2 days of retries.",
    ]);
    in_world(async |world, folder| {
        let _actor = world.actor();
        fs::write(folder.join("broken"), b"").expect("written");
        world.add_dead_letters(subscription_key(1), 2, START).await;
        let patient = DeadLetterTarget {
            outage_window: Duration::from_secs(48 * 3600),
            ..target("broken")
        };
        world.enqueue(subscription_key(1), patient, START);
        world
            .until(subscription_key(1), |totals| totals.outage.is_some())
            .await;
        // Its four hours are long over, and nearly its two days.
        for hours in [5, 42] {
            world.hand.advance(Duration::from_secs(hours * 3600));
            actix_rt::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(world.waiting(subscription_key(1)).await, 2);
        }
        fs::remove_file(folder.join("broken")).expect("removed");
        let totals = world.until(subscription_key(1), written(2)).await;
        assert_eq!(
            (totals.lost, world.waiting(subscription_key(1)).await),
            (0, 0)
        );
    });
}

#[test]
fn after_the_outage_window_dead_letters_are_lost_and_counted() {
    let _rows = crate::spec::shows(&[
        "S000-110, S002-046, S003-087: If the dead-letter location is unavailable for 4 hours, the \
         event is dropped.",
        "S001-109: An event that was not stored on a blob after the maximum retry period is \
         dropped.",
        "S001-110: An event dropped because its dead-letter write did not succeed within the \
         maximum retry period is reported as a failed dead-letter event.",
    ]);
    in_world(async |world, folder| {
        let _actor = world.actor();
        fs::write(folder.join("broken"), b"").expect("written");
        world.add_dead_letters(subscription_key(1), 7, START).await;
        world.enqueue(subscription_key(1), target("broken"), START);
        // The outage must begin before the clock advances.
        world
            .until(subscription_key(1), |totals| totals.outage.is_some())
            .await;
        world.hand.advance(Duration::from_secs(3 * 3600));
        actix_rt::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(
            world.waiting(subscription_key(1)).await,
            7,
            "the window is 4 hours"
        );
        // A later dead letter has its own window.
        let late = START.after(Duration::from_secs(3 * 3600));
        world.add_dead_letters(subscription_key(1), 1, late).await;
        world.hand.advance(Duration::from_secs(3600));

        let totals = world
            .until(subscription_key(1), |totals| totals.lost == 7)
            .await;
        assert_eq!(
            (
                totals.written,
                totals.files,
                world.waiting(subscription_key(1)).await
            ),
            (0, 0, 1)
        );
        fs::remove_file(folder.join("broken")).expect("removed");
        let totals = world.until(subscription_key(1), written(1)).await;
        assert_eq!(
            (
                totals.lost,
                totals.in_progress,
                world.waiting(subscription_key(1)).await
            ),
            (7, None, 0)
        );
    });
}

#[test]
fn while_the_clock_may_be_wrong_the_outage_window_lasts() {
    in_world(async |world, folder| {
        let _actor = world.actor();
        fs::write(folder.join("broken"), b"").expect("written");
        world.add_dead_letters(subscription_key(1), 7, START).await;
        world.add_dead_letters(subscription_key(2), 1, START).await;
        world.enqueue(subscription_key(1), target("broken"), START);
        world
            .until(subscription_key(1), |totals| totals.outage.is_some())
            .await;
        world.hand.set_expiry_paused(true);
        world.hand.advance(Duration::from_secs(400 * 24 * 3600));
        // A turn at the new time: a subscription that has just failed shows that the actor was
        // woken.
        world.enqueue(subscription_key(2), target("broken"), START);
        world
            .until(subscription_key(2), |totals| totals.outage.is_some())
            .await;
        actix_rt::time::sleep(Duration::from_millis(50)).await;
        let totals = world
            .dead_letters
            .read_totals(subscription_key(1))
            .await
            .expect("read");
        assert_eq!(
            (totals.lost, world.waiting(subscription_key(1)).await),
            (0, 7)
        );

        world.hand.set_expiry_paused(false);
        world.hand.advance(Duration::from_secs(3600));
        world
            .until(subscription_key(1), |totals| totals.lost == 7)
            .await;
    });
}

/// The window continues while no process runs, across any number of restarts.
#[test]
fn an_outage_goes_on_through_restarts_and_begins_anew_at_another_destination() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = MemoryStore::new();
    fs::write(folder.path().join("broken"), b"").expect("written");
    let hours = |hours: u64| START.after(Duration::from_secs(hours * 3600));
    run(async {
        let world = DeadLetterService::start(&memory, folder.path(), START);
        let _actor = world.actor();
        world.add_dead_letters(subscription_key(1), 3, START).await;
        world.add_dead_letters(subscription_key(2), 3, START).await;
        for number in [1, 2] {
            world.enqueue(subscription_key(number), target("broken"), START);
            world
                .until(subscription_key(number), |totals| totals.outage.is_some())
                .await;
        }
        world.stop().await;
    });
    for now in [1, 2, 3] {
        run(async {
            let world = DeadLetterService::start(&memory, folder.path(), hours(now));
            let _actor = world.actor();
            world.enqueue(subscription_key(1), target("broken"), START);
            actix_rt::time::sleep(Duration::from_millis(50)).await;
            let totals = world
                .dead_letters
                .read_totals(subscription_key(1))
                .await
                .expect("read");
            assert_eq!(
                (totals.lost, world.waiting(subscription_key(1)).await),
                (0, 3),
                "after {now} hours"
            );
            assert!(
                totals.outage.is_some_and(|outage| outage.since < hours(1)),
                "it began with the first process"
            );
            world.stop().await;
        });
    }
    run(async {
        let world = DeadLetterService::start(&memory, folder.path(), hours(5));
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("broken"), START);
        world
            .until(subscription_key(1), |totals| totals.lost == 3)
            .await;
        // The other subscription got another destination meanwhile, which has its own window.
        fs::write(folder.path().join("other"), b"").expect("written");
        world.enqueue(subscription_key(2), target("other"), START);
        let totals = world.until(subscription_key(2), |totals| {
            totals
                .outage
                .as_ref()
                .is_some_and(|outage| outage.destination.starts_with("other/"))
        });
        let totals = totals.await;
        assert_eq!(
            (totals.lost, world.waiting(subscription_key(2)).await),
            (0, 3)
        );
        fs::remove_file(folder.path().join("other")).expect("removed");
        let totals = world.until(subscription_key(2), written(3)).await;
        assert_eq!(
            (totals.lost, totals.outage),
            (0, None),
            "what is written ends it"
        );
        world.stop().await;
    });
}

#[test]
fn a_container_outside_the_store_is_never_written_until_its_target_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let root = folder.path().join("root");
        let world = DeadLetterService::start(&MemoryStore::new(), &root, START);
        let _actor = world.actor();
        for (subscription, container) in [(1, ".."), (2, "a//b"), (3, "/a")] {
            world
                .add_dead_letters(subscription_key(subscription), 1, START)
                .await;
            world.enqueue(subscription_key(subscription), target(container), START);
        }
        actix_rt::time::sleep(Duration::from_millis(50)).await;
        assert!(
            files(folder.path()).is_empty(),
            "{:?}",
            files(folder.path())
        );
        world.enqueue(subscription_key(1), target("letters"), START);
        world.until(subscription_key(1), written(1)).await;
        assert_eq!(ids(&root), ["1-0"]);
        world.stop().await;
    });
}

#[test]
fn a_file_in_progress_starts_over_at_a_new_target() {
    in_world(async |world, folder| {
        world.add_dead_letters(subscription_key(1), 2, START).await;
        let last = DeadLetterKey {
            due: START,
            seq: Seq(2),
            lane: Lane::LIVE,
        };
        let begun = FileInProgress {
            name: "old/MY-SUBSCRIPTION/2020/8/13/17/a.json".to_owned(),
            last,
        };
        let totals = DeadLetterTotals {
            written: 40,
            in_progress: Some(begun),
            ..DeadLetterTotals::default()
        };
        let record = Some((
            DeadLetterTotals::name(subscription_key(1)),
            totals.encode().into(),
        ));
        world
            .journal
            .write_dead_letters(
                subscription_key(1),
                DeadLetterWrite {
                    totals: record,
                    ..DeadLetterWrite::default()
                },
            )
            .await
            .expect("written");
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("new"), START);
        world.until(subscription_key(1), written(42)).await;
        assert!(
            files(folder)
                .keys()
                .all(|path| path.starts_with("new/MY-SUBSCRIPTION/2020/8/13/18"))
        );
    });
}

#[test]
fn a_missing_event_is_lost_and_the_others_are_written() {
    in_world(async |world, _| {
        world.add_dead_letters(subscription_key(1), 2, START).await;
        let owner = world
            .journal
            .open(subscription_key(1))
            .await
            .expect("opened")
            .owner;
        let gone: RecordChange = dead_letter_change(Seq(1_000), START, dead());
        world.journal.write_changes(
            owner,
            vec![gone],
            WriteUrgency::Now,
            Box::new(|response| response.expect("written")),
        );
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("letters"), START);
        let totals = world.until(subscription_key(1), written(2)).await;
        assert_eq!(
            (totals.lost, world.waiting(subscription_key(1)).await),
            (1, 0)
        );
    });
}

#[test]
fn damaged_totals_stop_only_their_subscription_and_lose_nothing() {
    in_world(async |world, folder| {
        world.add_dead_letters(subscription_key(1), 1, START).await;
        world.add_dead_letters(subscription_key(2), 1, START).await;
        let garbage = Some((
            DeadLetterTotals::name(subscription_key(1)),
            "garbage".into(),
        ));
        world
            .journal
            .write_dead_letters(
                subscription_key(1),
                DeadLetterWrite {
                    totals: garbage,
                    ..DeadLetterWrite::default()
                },
            )
            .await
            .expect("written");
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("letters"), START);
        world.enqueue(subscription_key(2), target("letters"), START);
        world.until(subscription_key(2), written(1)).await;
        assert_eq!(
            (world.waiting(subscription_key(1)).await, ids(folder)),
            (1, vec!["2-0".to_owned()])
        );
        let kept = world
            .journal
            .reader_pool()
            .read_meta(
                MetaKind::DeadLetters,
                DeadLetterTotals::name(subscription_key(1)),
            )
            .await
            .expect("read");
        assert_eq!(kept.as_deref(), Some(&b"garbage"[..]));
    });
}
