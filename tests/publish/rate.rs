//! The rate limits of a topic.

use std::time::Duration;

use actix_web::test::TestRequest;
use expect_test::expect;
use gridhook::publish::{PublishLimits, rate::TopicRates};

use super::http::{good, response_summary};
use crate::support::publisher::{Endpoint, KEY};

fn limits(events_per_second: u64, bytes_per_second: u64) -> PublishLimits {
    PublishLimits {
        rates: TopicRates {
            events_per_second,
            bytes_per_second,
        },
        ..PublishLimits::default()
    }
}

fn events(count: usize) -> TestRequest {
    let event = r#"{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}"#;
    good().set_payload(format!("[{}]", vec![event; count].join(",")))
}

#[actix_web::test]
async fn a_topic_takes_so_many_events_a_second_and_says_when_it_takes_more() {
    let endpoint = Endpoint::new(limits(10, 0));
    assert_eq!(response_summary(&endpoint, events(6)).await, "200");
    // Four are left. The other 26 are a debt.
    assert_eq!(response_summary(&endpoint, events(30)).await, "200");
    expect![[r#"
        429
        retry-after: 3
        TooManyRequests / TooManyRequests: Too Many Events. This topic accepts 10 events a second; try again in 3 s. …"#]]
    .assert_eq(&response_summary(&endpoint, events(1)).await);
    endpoint.hand.advance(Duration::from_millis(2_600));
    expect![[r#"
        429
        retry-after: 1
        TooManyRequests / TooManyRequests: Too Many Events. This topic accepts 10 events a second; try again in 1 s. Request '<guid>', 3/10/2021 9:02:58 PM (UTC)."#]].assert_eq(&response_summary(&endpoint, events(1)).await);
    endpoint.hand.advance(Duration::from_millis(1));
    assert_eq!(response_summary(&endpoint, events(1)).await, "200");
    // Another topic has a bucket of its own.
    let other = TestRequest::post()
        .uri("/topics/custom/api/events")
        .insert_header(("aeg-sas-key", KEY))
        .set_payload(r#"[{"ver":"1"}]"#);
    assert_eq!(response_summary(&endpoint, other).await, "200");
}

#[actix_web::test]
async fn a_topic_takes_so_many_bytes_a_second() {
    let endpoint = Endpoint::new(limits(0, 100));
    assert_eq!(response_summary(&endpoint, events(3)).await, "200");
    expect![[r#"
        429
        retry-after: 2
        TooManyRequests / TooManyRequests: Too Many Events. This topic accepts 100 bytes a second; try again in 2 s. …"#]]
    .assert_eq(&response_summary(&endpoint, events(1)).await);
    endpoint.hand.advance(Duration::from_secs(2));
    assert_eq!(response_summary(&endpoint, events(1)).await, "200");
}

#[actix_web::test]
async fn refused_requests_use_none_of_the_rate() {
    let endpoint = Endpoint::new(limits(1, 0));
    for _ in 0..3 {
        assert!(
            response_summary(&endpoint, good().set_payload("[{}]"))
                .await
                .starts_with("400")
        );
    }
    assert_eq!(response_summary(&endpoint, events(1)).await, "200");
    // A permanent error comes first: a retry would change nothing.
    let large = good().insert_header(("content-length", "1536001"));
    let refused = response_summary(&endpoint, large).await;
    assert!(refused.starts_with("413"), "{refused}");
    assert!(
        response_summary(&endpoint, events(1))
            .await
            .starts_with("429")
    );
}

#[actix_web::test]
async fn rates_can_be_switched_off() {
    let endpoint = Endpoint::new(limits(0, 0));
    for _ in 0..5 {
        assert_eq!(response_summary(&endpoint, events(4_000)).await, "200");
    }
    assert_eq!(
        PublishLimits::default().rates,
        TopicRates::default(),
        "and they are off unless somebody asks for them"
    );
    let endpoint = Endpoint::new(limits(5_000, 5_000_000));
    assert_eq!(response_summary(&endpoint, events(5_000)).await, "200");
    expect![[r#"
        429
        retry-after: 1
        TooManyRequests / TooManyRequests: Too Many Events. This topic accepts 5000 events and 5000000 bytes a second; try again in 1 s. …"#]].assert_eq(&response_summary(&endpoint, events(1)).await);
}
