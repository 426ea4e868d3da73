//! Browsing dead letters in all places, in bounded pages, and purging them.

use std::{fs, path::Path};

use gridhook::{
    dead_letter::{
        DeadLetterTarget, Owner,
        browse::{
            BrowseCursor, DeadLetterId, DeadLetterLocation, DeadLetterPage, DeadLetterQuery,
            DeadLetterStage,
        },
        file::target_folder,
        purge::PurgeCursor,
    },
    event::SubscriptionKey,
};

use super::{
    subscription_key, target,
    world::{DeadLetterService, START, files, run},
};
use crate::support::memory_store::MemoryStore;

/// The end of a marker's stored name.
const SUFFIX: &str = ".redriven";

/// The location of [`target`].
fn location(subscription_key: SubscriptionKey) -> DeadLetterLocation {
    let owner = Some(target("c").owner());
    DeadLetterLocation {
        subscription_key,
        folder: Some(target_folder(&target("c"))),
        custom: false,
        owner,
        others: Vec::new(),
    }
}

fn ids(page: &DeadLetterPage) -> Vec<&str> {
    page.found
        .iter()
        .map(|found| found.dead_letter.id.as_deref().expect("an id"))
        .collect()
}

/// Seven dead letters of one subscription: six in two files, and one waiting.
async fn six_written_and_one_waiting(memory: &MemoryStore, folder: &Path) -> DeadLetterService {
    let world = DeadLetterService::start(memory, folder, START);
    let _actor = world.actor();
    world.add_dead_letters(subscription_key(1), 6, START).await;
    world.enqueue(subscription_key(1), target("c"), START);
    world
        .until(subscription_key(1), |totals| totals.written == 6)
        .await;
    let later = gridhook::event::Timestamp::NEVER;
    world
        .add_more_dead_letters(subscription_key(1), 1, later)
        .await;
    world
}

/// All pages of this size.
async fn all(world: &DeadLetterService, query: &DeadLetterQuery, top: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = Some(BrowseCursor::START);
    while let Some(from) = at {
        let page = world
            .dead_letters
            .read_page(&location(subscription_key(1)), query, from, top)
            .await
            .expect("read");
        assert!(
            page.found.len() <= top && page.problems.is_empty(),
            "{page:?}"
        );
        found.extend(ids(&page).into_iter().map(str::to_owned));
        // The cursor as a client passes it back.
        at = page
            .next
            .map(|next| next.to_string().parse().expect("the marker parses"));
    }
    found.sort();
    found
}

#[test]
fn waiting_and_written_dead_letters_are_found_on_pages_of_any_size() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = six_written_and_one_waiting(&MemoryStore::new(), folder.path()).await;
        let expected = ["1-0", "1-0", "1-1", "1-2", "1-3", "1-4", "1-5"];
        for top in [1, 2, 3, 7, 50] {
            assert_eq!(
                all(&world, &DeadLetterQuery::default(), top).await,
                expected,
                "{top}"
            );
        }
        let waiting = DeadLetterQuery {
            stage: Some(DeadLetterStage::Waiting),
            ..DeadLetterQuery::default()
        };
        assert_eq!(all(&world, &waiting, 50).await, ["1-0"]);
        let written = DeadLetterQuery {
            stage: Some(DeadLetterStage::Written),
            ..DeadLetterQuery::default()
        };
        assert_eq!(all(&world, &written, 50).await.len(), 6);
        let by_id = DeadLetterQuery {
            id: Some("1-4".to_owned()),
            ..DeadLetterQuery::default()
        };
        assert_eq!(all(&world, &by_id, 50).await, ["1-4"]);
        let reason = |reason: &str| DeadLetterQuery {
            reason: Some(reason.to_owned()),
            ..DeadLetterQuery::default()
        };
        assert_eq!(
            all(&world, &reason("maxdeliveryattemptsexceeded"), 50)
                .await
                .len(),
            7
        );
        assert_eq!(
            all(&world, &reason("TimeToLiveExceeded"), 50).await.len(),
            0
        );
        let tried = super::dead().tried.expect("it was tried");
        let at = Some(tried);
        let past = Some(gridhook::event::Timestamp(tried.0 + 1));
        for (from, to, found) in [
            (at, None, 7),
            (past, None, 0),
            (None, at, 0),
            (None, past, 7),
            (at, past, 7),
        ] {
            assert_eq!(
                all(
                    &world,
                    &DeadLetterQuery {
                        from,
                        to,
                        ..DeadLetterQuery::default()
                    },
                    50
                )
                .await
                .len(),
                found,
                "{from:?} {to:?}"
            );
        }
        assert_eq!(
            world
                .dead_letters
                .read_page(
                    &location(subscription_key(2)),
                    &waiting,
                    BrowseCursor::START,
                    9
                )
                .await
                .expect("read")
                .found,
            []
        );
        world.stop().await;
    });
}

#[test]
fn each_one_is_found_by_its_key_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = six_written_and_one_waiting(&MemoryStore::new(), folder.path()).await;
        let page = world
            .dead_letters
            .read_page(
                &location(subscription_key(1)),
                &DeadLetterQuery::default(),
                BrowseCursor::START,
                50,
            )
            .await
            .expect("read");
        for found in page.found {
            let key: DeadLetterId = found.key.to_string().parse().expect("a key");
            let one = world
                .dead_letters
                .read_one(&location(subscription_key(1)), key)
                .await
                .expect("read");
            assert_eq!(one, Ok(Some(found)));
        }
        for none in ["waiting~1~1~0", "2020~8~13~18~nothing.json~0"] {
            let one = world
                .dead_letters
                .read_one(&location(subscription_key(1)), none.parse().expect("a key"))
                .await
                .expect("read");
            assert_eq!(one, Ok(None), "{none}");
        }
        for bad in [
            "",
            "~",
            "a",
            "..~..~etc~0",
            "a~",
            "waiting~1~1~x",
            "a~-1",
            "a/b~0",
        ] {
            assert!(bad.parse::<DeadLetterId>().is_err(), "{bad}");
        }
        world.stop().await;
    });
}

#[test]
fn a_purged_dead_letter_is_removed_and_counted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = six_written_and_one_waiting(&MemoryStore::new(), folder.path()).await;
        let purge = |query: DeadLetterQuery, dry_run| {
            let dead_letters = world.dead_letters.clone();
            async move {
                dead_letters
                    .purge_page(
                        &location(subscription_key(1)),
                        &query,
                        PurgeCursor::START,
                        dry_run,
                    )
                    .await
                    .expect("purged")
            }
        };
        assert_eq!(
            purge(DeadLetterQuery::default(), true).await.dead_letters,
            7,
            "a dry run only counts"
        );
        assert_eq!(all(&world, &DeadLetterQuery::default(), 50).await.len(), 7);

        let first = DeadLetterQuery {
            id: Some("1-1".to_owned()),
            ..DeadLetterQuery::default()
        };
        assert_eq!(purge(first.clone(), false).await.dead_letters, 1);
        assert_eq!(purge(first, false).await.dead_letters, 0, "it is gone");
        assert_eq!(all(&world, &DeadLetterQuery::default(), 50).await.len(), 6);
        let marked = files(folder.path())
            .into_keys()
            .filter(|path| path.to_string_lossy().ends_with(SUFFIX))
            .count();
        assert_eq!(
            marked, 1,
            "its file stays for the others, and says so beside it"
        );

        assert_eq!(
            purge(DeadLetterQuery::default(), false).await.dead_letters,
            6
        );
        assert_eq!(all(&world, &DeadLetterQuery::default(), 50).await.len(), 0);
        assert_eq!(
            files(folder.path()).len(),
            0,
            "files of which nothing is left go, and what stood beside them"
        );
        let totals = world
            .dead_letters
            .read_totals(subscription_key(1))
            .await
            .expect("read");
        assert_eq!(
            (totals.written, totals.purged, totals.lost),
            (6, 1, 0),
            "written is written"
        );
        assert_eq!(world.waiting(subscription_key(1)).await, 0);
        world.stop().await;
    });
}

#[test]
fn a_dead_letter_written_during_a_count_is_counted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&MemoryStore::new(), folder.path(), START);
        world.add_dead_letters(subscription_key(1), 6, START).await;
        let location = location(subscription_key(1));
        let query = DeadLetterQuery::default();
        let mut counting = Box::pin(world.dead_letters.purge_page(
            &location,
            &query,
            PurgeCursor::START,
            true,
        ));
        assert!(
            futures_util::poll!(&mut counting).is_pending(),
            "it waits for the journal"
        );
        let _actor = world.actor();
        world.enqueue(subscription_key(1), target("c"), START);
        // Between any two steps, the writer has time to write both files.
        let counted = loop {
            for _ in 0..20 {
                world.hand.advance(std::time::Duration::from_millis(20));
                actix_rt::time::sleep(std::time::Duration::from_millis(2)).await;
            }
            if let std::task::Poll::Ready(counted) = futures_util::poll!(&mut counting) {
                break counted.expect("counted");
            }
        };
        assert_eq!((counted.dead_letters, counted.next), (6, None));
        drop(counting);
        world
            .until(subscription_key(1), |totals| totals.written == 6)
            .await;
        let counted = world
            .dead_letters
            .purge_page(&location, &query, PurgeCursor::START, true)
            .await
            .expect("counted");
        assert_eq!(counted.dead_letters, 6, "in their files");
        world.stop().await;
    });
}

#[test]
fn a_dead_letter_written_between_two_parts_of_a_count_is_counted_once() {
    let root = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&MemoryStore::new(), root.path(), START);
        let location = location(subscription_key(1));
        let query = DeadLetterQuery::default();
        let _actor = world.actor();
        world.add_dead_letters(subscription_key(1), 3, START).await;
        world.enqueue(subscription_key(1), target("c"), START);
        world
            .until(subscription_key(1), |totals| totals.written == 3)
            .await;
        // More names than one call reads come before the file, which is an hour old by the server's
        // clock.
        let folder = root.path().join(target_folder(&target("c")));
        for number in 0..70 {
            fs::create_dir_all(folder.join("0")).expect("a folder");
            fs::write(folder.join(format!("0/{number}.json{SUFFIX}")), "{}").expect("written");
        }
        for file in files(root.path()).into_keys() {
            let hour_ago =
                std::time::UNIX_EPOCH + std::time::Duration::from_micros(START.0 - 3_600_000_000);
            fs::File::options()
                .write(true)
                .open(root.path().join(file))
                .and_then(|file| file.set_modified(hour_ago))
                .expect("its time");
        }
        let now = world.clock.now();
        world
            .add_more_dead_letters(subscription_key(1), 6, now)
            .await;
        let first = world
            .dead_letters
            .purge_page(&location, &query, PurgeCursor::START, true)
            .await
            .expect("counted");
        assert_eq!(first.dead_letters, 6, "those that wait");
        world.enqueue(subscription_key(1), target("c"), now);
        world
            .until(subscription_key(1), |totals| totals.written == 9)
            .await;
        let mut counted = first.dead_letters;
        let mut next = first.next;
        assert!(next.is_some(), "files are left");
        while let Some(at) = next {
            // As a client passes it back.
            let at = at.to_string().parse().expect("the cursor of a response");
            let part = world
                .dead_letters
                .purge_page(&location, &query, at, true)
                .await
                .expect("counted");
            (counted, next) = (counted + part.dead_letters, part.next);
        }
        assert_eq!(counted, 9, "3 in the old file and 6 that waited");
        world.stop().await;
    });
}

#[test]
fn a_damaged_file_is_reported_and_kept_and_hides_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = six_written_and_one_waiting(&MemoryStore::new(), folder.path()).await;
        let own = folder.path().join("c/MY-SUBSCRIPTION/2020/8/13/18");
        fs::write(own.join("0-cut.json"), r#"[{"id":"a""#).expect("a file");
        fs::write(own.join("0-not.json"), r#"[{"id":"a"}]"#).expect("a file");
        fs::write(own.join("0~name.json"), "[]").expect("a file");
        let page = world
            .dead_letters
            .read_page(
                &location(subscription_key(1)),
                &DeadLetterQuery::default(),
                BrowseCursor::START,
                50,
            )
            .await
            .expect("read");
        assert_eq!(page.found.len(), 7);
        let problems: Vec<(String, String)> = page
            .problems
            .into_iter()
            .map(|problem| (problem.at, problem.why))
            .collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].0.ends_with("0-cut.json") && problems[0].1.contains("EOF"),
            "{problems:?}"
        );
        assert!(
            problems[1].0.ends_with("0-not.json~0") && problems[1].1.contains("not a dead letter"),
            "{problems:?}"
        );
        assert!(
            problems[2].0.ends_with("0~name.json") && problems[2].1.contains('~'),
            "{problems:?}"
        );
        let purged = world
            .dead_letters
            .purge_page(
                &location(subscription_key(1)),
                &DeadLetterQuery::default(),
                PurgeCursor::START,
                false,
            )
            .await
            .expect("purged");
        assert_eq!((purged.dead_letters, purged.problems.len()), (7, 3));
        assert_eq!(files(folder.path()).len(), 3, "what cannot be read stays");
        world.stop().await;
    });
}

/// A subscription of this name in another topic.
fn topic_owner(topic: &str) -> Owner {
    Owner {
        source: topic.to_owned(),
        name: "MY-subscription".to_owned(),
    }
}

/// Subscriptions of two topics with the same name write into one folder: neither sees the other's
/// files, and files without an owner are reported and kept.
#[test]
fn files_in_a_shared_folder_are_separated_by_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let world = DeadLetterService::start(&MemoryStore::new(), folder.path(), START);
        let _actor = world.actor();
        let topics = ["/topics/heat", "/topics/cold"];
        for (number, topic) in (1..).zip(topics) {
            world
                .add_dead_letters(subscription_key(number), 3, START)
                .await;
            world.enqueue(
                subscription_key(number),
                DeadLetterTarget {
                    source: topic.to_owned(),
                    ..target("c")
                },
                START,
            );
            world
                .until(subscription_key(number), |totals| totals.written == 3)
                .await;
        }
        let of = |number: u32, topic: usize, others: &[&str]| DeadLetterLocation {
            owner: Some(topic_owner(topics[topic])),
            others: others.iter().map(|topic| topic_owner(topic)).collect(),
            ..location(subscription_key(number))
        };
        let page = async |location: &DeadLetterLocation| {
            let page = world
                .dead_letters
                .read_page(
                    location,
                    &DeadLetterQuery::default(),
                    BrowseCursor::START,
                    99,
                )
                .await
                .expect("read");
            let mut found: Vec<String> = ids(&page).into_iter().map(str::to_owned).collect();
            found.sort();
            (
                found,
                page.problems
                    .into_iter()
                    .map(|problem| problem.why)
                    .collect::<Vec<_>>(),
            )
        };
        let heat = of(1, 0, &topics[1..]);
        let cold = of(2, 1, &topics[..1]);
        assert_eq!(
            page(&heat).await,
            (
                vec!["1-0".to_owned(), "1-1".to_owned(), "1-2".to_owned()],
                vec![]
            )
        );
        assert_eq!(
            page(&cold).await,
            (
                vec!["2-0".to_owned(), "2-1".to_owned(), "2-2".to_owned()],
                vec![]
            )
        );
        // The other one was deleted: its files have no owner.
        let (found, problems) = page(&of(1, 0, &[])).await;
        assert_eq!((found.len(), problems.len()), (3, 1), "{problems:?}");
        assert!(
            problems
                .iter()
                .all(|why| why.contains("another event subscription")),
            "{problems:?}"
        );

        // A file from elsewhere: its events may identify the owner.
        let fate =
            r#""deadLetterReason":"x","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound""#;
        let dead_letter = |id: &str, topic: &str| {
            format!(r#"{{"id":"{id}","topic":"{topic}","eventType":"T","data":1,{fate}}}"#)
        };
        let dead_letters = [
            dead_letter("a", "/TOPICS/heat"),
            dead_letter("b", "/topics/cold"),
            dead_letter("c", "/from/elsewhere"),
        ];
        let name = "c/MY-SUBSCRIPTION/2020/8/13/18/c33cc2e5-54a8-49bf-98d7-1b2c3d4e5f60.json";
        fs::write(
            folder.path().join(name),
            format!("[{}]", dead_letters.join(",")),
        )
        .expect("written");
        let (found, problems) = page(&heat).await;
        assert_eq!(found, ["1-0", "1-1", "1-2", "a"]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("/topics/cold")
                && problems[0].contains("identifies its event subscription"),
            "{problems:?}"
        );
        assert_eq!(page(&cold).await.0, ["2-0", "2-1", "2-2", "b"]);
        // In a folder of only one subscription, files from elsewhere belong to it.
        let (found, _) = page(&of(1, 0, &[])).await;
        assert_eq!(found, ["1-0", "1-1", "1-2", "a", "b", "c"]);

        // A purge removes only its own.
        let purged = world
            .dead_letters
            .purge_page(
                &heat,
                &DeadLetterQuery::default(),
                PurgeCursor::START,
                false,
            )
            .await
            .expect("purged");
        assert_eq!(purged.dead_letters, 4);
        assert_eq!(page(&cold).await.0, ["2-0", "2-1", "2-2", "b"]);
        assert_eq!(page(&heat).await.0, Vec::<String>::new());
        world.stop().await;
    });
}

#[test]
fn the_name_of_a_file_identifies_its_subscription() {
    let owner = topic_owner("/topics/heat");
    let first = owner.new_guid([1; 8]);
    let second = owner.new_guid([2; 8]);
    assert_ne!(first, second);
    assert_eq!(first, owner.new_guid([1; 8]));
    assert_ne!(first, topic_owner("/topics/cold").new_guid([1; 8]));
    // Names and ids are compared without case; and a GUID has the usual form.
    assert_eq!(
        first,
        Owner {
            name: "my-SUBSCRIPTION".to_owned(),
            ..topic_owner("/Topics/HEAT")
        }
        .new_guid([1; 8])
    );
    assert_eq!(first.get_version_num(), 8);
    assert_eq!(first.to_string().len(), 36);
    expect_test::expect!["01010101-0101-8101"].assert_eq(&first.to_string()[..18]);
}
