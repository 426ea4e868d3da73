//! Events that the server delivers to a topic of its own: the topic treats them as those of a
//! publisher.

use std::sync::Arc;

use bytes::Bytes;
use gridhook::{
    control::registry::TopicHandle,
    publish::{PublishLimits, Refusal, auth::AuthRules, rate::TopicRates},
    record::ingress::IngressSettings,
};

use crate::support::publisher::Endpoint;

fn clouds(endpoint: &Endpoint) -> Arc<TopicHandle> {
    let is_clouds = |topic: &Arc<TopicHandle>| {
        topic.record().name.as_str() == "clouds" && !topic.record().is_domain()
    };
    endpoint
        .registry
        .list_topics()
        .into_iter()
        .find(is_clouds)
        .expect("the topic")
}

/// Delivers events with these ids to the topic `clouds`.
async fn forward(endpoint: &Endpoint, ids: &[&str]) -> Result<(), Refusal> {
    let event =
        |id: &&str| format!(r#"{{"specversion":"1.0","type":"T","source":"/s","id":"{id}"}}"#);
    let events: Vec<String> = ids.iter().map(event).collect();
    let body = Bytes::from(format!("[{}]", events.join(",")));
    endpoint
        .publisher
        .forward_events(&clouds(endpoint), body)
        .await
}

#[actix_web::test]
async fn a_delivered_event_that_is_repeated_within_the_window_of_its_topic_is_stored_once() {
    let ingress = IngressSettings {
        duplicate_window_s: Some(20),
        ..IngressSettings::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), AuthRules::default(), &ingress);
    forward(&endpoint, &["1", "2"]).await.expect("it is taken");
    forward(&endpoint, &["2", "3"]).await.expect("it is taken");
    assert_eq!(endpoint.stored(), 3);
    assert_eq!(clouds(&endpoint).meter().publish_counts().duplicates, 1);
}

#[actix_web::test]
async fn delivered_events_count_for_the_rate_of_their_topic() {
    let rates = TopicRates {
        events_per_second: 2,
        ..TopicRates::default()
    };
    let endpoint = Endpoint::new(PublishLimits {
        rates,
        ..PublishLimits::default()
    });
    forward(&endpoint, &["1", "2"]).await.expect("it is taken");
    let refused = forward(&endpoint, &["3"]).await;
    assert!(
        matches!(refused, Err(Refusal::Throttled { .. })),
        "{refused:?}"
    );
    assert_eq!(endpoint.stored(), 2);
}

#[actix_web::test]
async fn delivered_events_need_room_for_their_bytes() {
    let endpoint = Endpoint::new(PublishLimits {
        admitted_bytes_max: 10,
        ..PublishLimits::default()
    });
    let refused = forward(&endpoint, &["1"]).await;
    assert!(matches!(refused, Err(Refusal::NoRoom)), "{refused:?}");
    assert_eq!(
        (endpoint.stored(), endpoint.publisher.bytes_in_flight().0),
        (0, 0)
    );
}
