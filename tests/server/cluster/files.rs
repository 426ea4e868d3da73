//! Files outside of the fence of the changelog: what a former owner still does has no effect on
//! those of the next one.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{Cluster, LONG, START};
use crate::support::{
    cloud::Cloud,
    load,
    nats::has_nats,
    server::{SCOPE, Server, SubscriptionSpec, operator, wait_for},
    sink::{Behavior, Sink},
};

/// The output of `gridhook dead-letters`.
fn dead_letters(node: &Server, verb: &str, rest: &[&str]) -> Result<Value, String> {
    let topic = format!("{SCOPE}/orders");
    let arguments = ["dead-letters", verb, &topic, "all", "--output", "json"];
    let text = operator(node, &[&arguments[..], rest].concat())?;
    Ok(serde_json::from_str(&text).expect("JSON"))
}

fn count_dead_letters(node: &Server) -> usize {
    let list = dead_letters(node, "list", &[]).expect("a list");
    list["value"].as_array().expect("dead letters").len()
}

#[test]
fn a_file_that_a_paused_owner_stores_late_brings_no_purged_dead_letter_back() {
    if !has_nats() {
        return;
    }
    let cloud = Cloud::start("gs://letters");
    let own = |_| {
        let settings = cloud.settings().into_iter();
        let settings = settings.map(|(name, value)| (&*name.leak(), value));
        settings
            .map(|(name, value)| match name {
                "DEAD_LETTER__STORES__CLOUD__ACCOUNTS" => (name, "*".to_owned()),
                _ => (name, value),
            })
            .collect()
    };
    let nats = super::NatsCluster::start(3, "always");
    let mut cluster = Cluster::prepare_each(nats, &[], own);
    cluster.join_all();
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    let spec = SubscriptionSpec::new(&sink.url("/all")).dead_letters("letters");
    cluster.nodes[0].subscribe("orders", "all", &spec);
    sink.set("/all", Behavior::Respond(400));
    let bucket = cloud.bucket();
    bucket.hold_put();
    let ids: Vec<String> = (0..7).map(|number| format!("e{number}")).collect();
    cluster.nodes[0].publish("orders", &key, &load::body(&ids, "s"));
    wait_for("a file to be stored", START, || bucket.is_put_held());
    cluster.nodes[0].signal("STOP");
    let next = cluster.owner_but(Some(0));
    let node = &cluster.nodes[next];
    wait_for("the next owner to store a file", START, || {
        let list = dead_letters(node, "list", &[]).unwrap_or_default();
        let found = list["value"].as_array().cloned().unwrap_or_default();
        !found.is_empty() && found.iter().all(|found| found["stage"] == "written")
    });
    assert_eq!(count_dead_letters(node), ids.len());
    dead_letters(node, "purge", &["--all", "--yes"]).expect("purged");
    assert_eq!(count_dead_letters(node), 0);
    bucket.release_put();
    wait_for("the file of the former owner", START, || {
        bucket.is_put_made()
    });
    let before = cluster.nodes[0].logs().matches("standby again").count();
    cluster.nodes[0].signal("CONT");
    wait_for("the former owner to follow", LONG, || {
        cluster.nodes[0].logs().matches("standby again").count() > before
    });
    // A client of object stores retries once.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(count_dead_letters(node), 0, "purged dead letters are back");
    let counted = dead_letters(node, "purge", &["--all", "--dry-run"]).expect("counted");
    assert_eq!(counted["deadLetters"], json!(0), "{counted}");
}
