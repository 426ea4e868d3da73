//! Events that clients receive and never settle, and events without clients, become dead letters.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use super::{super::dead_letter::files, Consumer, LONG, RG, publish, put, start};
use crate::support::server::{Server, wait_for};

/// Dead letters: by the container that they are put aside in and the event's id, why, after how
/// many receipts, and how the last one ended.
fn letters(server: &Server) -> BTreeMap<(String, String), (String, u64, String)> {
    let mut letters = BTreeMap::new();
    for file in files(server) {
        let below = file
            .strip_prefix(server.data_dir().join("dead-letters"))
            .expect("a file of a container");
        let container = below
            .iter()
            .next()
            .expect("its folder")
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&file).expect("a file of text");
        for letter in serde_json::from_str::<Vec<Value>>(&text).expect("letters") {
            let why = &letter["deadletterProperties"];
            let shown = |key: &str| why[key].as_str().unwrap_or_default().to_owned();
            let reported = (
                shown("deadletterreason"),
                why["deliveryattempts"].as_u64().expect("a count"),
                shown("deliveryresult"),
            );
            let id = letter["event"]["id"].as_str().expect("an id").to_owned();
            letters.insert((container.clone(), id), reported);
        }
    }
    letters
}

#[test]
fn events_whose_locks_or_time_to_live_expire_are_dead_letters() {
    let _rows = crate::spec::shows(&[
        "S001-006: In pull delivery, an event that the consumer application could not process \
         before its lock expired is listed as a case in which dead-lettering happens.",
        "S001-007: In pull delivery, an event that the consumer application could not process \
         before the retention period expired is dead-lettered.",
    ]);
    let (mut server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("idle", 1, 10)]);
    let edition = json!({"properties": {"edition": "namespaces"}});
    server.command("PATCH", &format!("{RG}/plant/topics/heat"), &edition);
    server.terminate();
    let aside = |container: &str| json!({"resource_id": "/r", "container": container});
    put(&server, "work", (1, 2, 60), &aside("locks"));
    put(&server, "idle", (1, 10, 60), &aside("times"));
    server.restart();
    publish(&server, &shown, 0..2);

    // Received as often as it may be, and each time its lock expires without a word.
    let mut work = Consumer::new(&server, &shown, "work");
    let mut counts = BTreeMap::new();
    wait_for("both to be received twice", LONG, || {
        for event in work
            .try_receive(10)
            .expect("a waiting client receives an answer")
        {
            counts.insert(event.id().to_owned(), event.count);
        }
        counts.values().filter(|count| **count == 2).count() == 2
    });
    wait_for("both to be dead letters", LONG, || {
        letters(&server).len() == 2
    });
    let silent = "Event was not acknowledged nor rejected.".to_owned();
    for id in ["0", "1"] {
        let reported = (
            "Maximum delivery attempts was exceeded.".to_owned(),
            2,
            silent.clone(),
        );
        assert_eq!(
            letters(&server)[&("locks".to_owned(), id.to_owned())],
            reported
        );
    }

    // One is received, the other is not; and their time is over before anybody says anything.
    let received = Consumer::new(&server, &shown, "idle").receive(1);
    assert_eq!((received.len(), received[0].id()), (1, "0"));
    server.terminate();
    put(&server, "idle", (1, 10, 0), &aside("times"));
    server.restart();
    wait_for("both to be dead letters", LONG, || {
        letters(&server).len() == 4
    });
    for (id, attempts) in [("0", 1), ("1", 0)] {
        let reported = (
            "Time to live was exceeded.".to_owned(),
            attempts,
            silent.clone(),
        );
        assert_eq!(
            letters(&server)[&("times".to_owned(), id.to_owned())],
            reported
        );
    }
}
