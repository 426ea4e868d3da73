//! The actors of topics: there while there is something to do, and gone with their topic.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use gridhook::{
    event::Schema,
    journal::memory::Memory,
    topic::registry::{Registry, Topic},
};

use crate::support::publisher::{looking_registry, topic};

/// How often topics look after their subscriptions here.
const LOOK: Duration = Duration::from_millis(10);

/// How long something is waited for that takes some milliseconds.
const LONG: Duration = Duration::from_secs(20);

async fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let waited = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, waited).await.unwrap_or_else(|_| panic!("waited {LONG:?} for {what}"));
}

fn living(registry: &Registry) -> usize {
    registry.living(None).expect("all topics").len()
}

async fn put(registry: &Arc<Registry>) -> Arc<Topic> {
    registry.put_topic(topic("orders", Schema::EventGrid)).await.expect("a topic")
}

#[actix_web::test]
async fn an_idle_topic_has_no_actor_and_one_with_something_to_do_has_one_again() {
    let (registry, _clock, _hand) = looking_registry(&Memory::new(), LOOK);
    let topic = put(&registry).await;
    assert_eq!(living(&registry), 0, "nothing is to do");
    for life in 1..=3 {
        // A change is something to do.
        put(&registry).await;
        wait_until("an actor", || topic.chart().life() == life).await;
        wait_until("its end", || living(&registry) == 0).await;
    }
    let ends = topic.chart().ends();
    assert_eq!((ends.panicked, ends.stopped, ends.killed, ends.orphaned), (0, 0, 0, 0), "none of them died");
}

#[actix_web::test]
async fn nothing_is_left_of_topics_that_are_deleted() {
    let (registry, _clock, _hand) = looking_registry(&Memory::new(), LOOK);
    let mut gone: Vec<(&str, Weak<Topic>)> = Vec::new();
    let fresh = put(&registry).await;
    gone.push(("one whose actor never ran", Arc::downgrade(&fresh)));
    drop(fresh);
    registry.delete_topic("orders").await.expect("it is deleted");
    put(&registry).await;
    let starting = put(&registry).await;
    gone.push(("one whose actor is being started", Arc::downgrade(&starting)));
    drop(starting);
    registry.delete_topic("orders").await.expect("it is deleted");
    put(&registry).await;
    let running = put(&registry).await;
    wait_until("an actor", || living(&registry) == 1).await;
    gone.push(("one whose actor runs", Arc::downgrade(&running)));
    drop(running);
    registry.delete_topic("orders").await.expect("it is deleted");
    for (what, topic) in gone {
        wait_until(what, || topic.strong_count() == 0).await;
    }
}
