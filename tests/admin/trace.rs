//! A page of a trace reads the filter versions of the event subscriptions that it shows.

use std::time::Duration;

use gridhook::{
    control::registry::{ChangeBasis, TraceToken},
    event::{Schema, Seq},
    insight::event_finder::EventSelector,
    record::subscription::SubscriptionRecord,
    store::{
        Family,
        keys::{self, MetaKind},
    },
};

use crate::support::{
    memory_store::MemoryStore,
    publisher::{registry_with_check_interval, topic},
    read_log::RecordedStore,
};

const SUBSCRIPTIONS: usize = 60;
const VERSIONS: usize = 3;
const PAGE: usize = 10;

/// The version of an event subscription that begins with a prefix of its own.
fn record(name: &str, version: usize) -> SubscriptionRecord {
    let record = serde_json::json!({
        "number": 0, "version": 0, "name": name, "filter": {"subjectBeginsWith": format!("/{version}")},
        "delivery_schema": "EventGridSchema", "dead_letter": null,
        "webhook": {"endpoint_url": "http://127.0.0.1:9/", "max_events_per_batch": 1, "preferred_batch_size_in_kilobytes": 64},
        "retry": {"max_delivery_attempts": 1, "event_time_to_live_in_minutes": 60}, "labels": [],
    });
    serde_json::from_value(record).expect("a record")
}

#[actix_web::test]
async fn a_page_of_a_trace_reads_the_filters_of_its_subscriptions() {
    let store = RecordedStore::new(&MemoryStore::new());
    let (registry, clock, _hand) = registry_with_check_interval(&store, Duration::from_secs(20));
    let handle = registry
        .put_topic(topic("orders", Schema::EventGrid))
        .await
        .expect("a topic");
    let names: Vec<String> = (0..SUBSCRIPTIONS)
        .map(|number| format!("audit-{number}"))
        .collect();
    for version in 0..VERSIONS {
        for name in &names {
            let change =
                registry.put_subscription("orders", record(name, version), ChangeBasis::Any);
            change.await.expect("a subscription");
        }
    }
    let filters = keys::meta_of(MetaKind::Filter);
    let mut from = None::<TraceToken>;
    let mut shown = Vec::new();
    let mut pages = 0;
    loop {
        store.take_reads();
        let page = handle
            .trace_event(&EventSelector::Seq(Seq(1)), from, PAGE, clock.now())
            .await
            .expect("it can be read");
        let reads = store
            .take_reads()
            .into_iter()
            .filter(|read| read.family == Family::Meta);
        let versions = reads
            .flat_map(|read| read.keys)
            .filter(|key| filters.contains(key))
            .count();
        // The next subscription says that there is another page, and the record after it where it
        // ends.
        assert!(
            versions <= (PAGE + 1) * VERSIONS + 1,
            "{versions} filter versions were read for a page of {PAGE}"
        );
        let subscriptions = page
            .occurrences
            .into_iter()
            .flat_map(|occurrence| occurrence.subscriptions);
        shown.extend(subscriptions.filter_map(|traced| traced.name));
        pages += 1;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((pages, shown), (SUBSCRIPTIONS / PAGE, names));
}
