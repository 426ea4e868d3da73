//! `expirationTimeUtc`, on a clock that stands still until it is moved.

use std::time::Duration;

use expect_test::expect;
use gridhook::{admin::Chaos, event::Timestamp, topic::expiry};
use serde_json::{Value, json};

use super::plane::{Plane, RG, hook};
use crate::support::publisher::running_registry;

/// A minute behind the time at which the tests' clock stands.
const EXPIRES: &str = "2021-03-10T21:03:56Z";

const MINUTE: Duration = Duration::from_secs(60);

fn subscription() -> String {
    format!("{RG}/topics/orders/eventSubscriptions/to-shop")
}

fn expiring(at: &str) -> Value {
    let mut body = hook();
    body["properties"]["expirationTimeUtc"] = at.into();
    body
}

impl Plane {
    fn now(&self) -> Timestamp {
        // 2021-03-10T21:02:56Z
        Timestamp(1_615_410_176_000_000)
    }

    async fn is_there(&self) -> bool {
        self.call("GET", &subscription(), Value::Null).await.status == 200
    }
}

#[actix_web::test]
async fn a_time_is_told_as_it_was_put() {
    let plane = Plane::new(Chaos::Disabled).with_topic().await;
    let mut lines = Vec::new();
    for given in ["2030-01-31T12:00:00Z", "2030-01-31T12:00:00.1234567+01:00", "2030-01-31T12:00:00", "2030-01-31"] {
        let answer = plane.call("PUT", &subscription(), expiring(given)).await;
        lines.push(format!("{given} {} {}", answer.status, answer.json()["properties"]["expirationTimeUtc"]));
    }
    let patched = plane.call("PATCH", &subscription(), json!({"labels": ["x"]})).await.json();
    lines.push(format!("another patch {}", patched["properties"]["expirationTimeUtc"]));
    let patched = plane.call("PATCH", &subscription(), json!({"expirationTimeUtc": EXPIRES})).await.json();
    lines.push(format!("a patch {}", patched["properties"]["expirationTimeUtc"]));
    let patched = plane.call("PATCH", &subscription(), json!({"expirationTimeUtc": null})).await.json();
    lines.push(format!("a patch {}", patched["properties"]["expirationTimeUtc"]));
    expect![[r#"
        2030-01-31T12:00:00Z 201 "2030-01-31T12:00:00.0000000Z"
        2030-01-31T12:00:00.1234567+01:00 201 "2030-01-31T11:00:00.1234560Z"
        2030-01-31T12:00:00 201 "2030-01-31T12:00:00.0000000Z"
        2030-01-31 201 "2030-01-31T00:00:00.0000000Z"
        another patch "2030-01-31T00:00:00.0000000Z"
        a patch "2021-03-10T21:03:56.0000000Z"
        a patch null"#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_time_that_is_none_or_has_passed_is_refused() {
    let plane = Plane::new(Chaos::Disabled).with_subscription().await;
    let mut lines = Vec::new();
    for given in ["2021-03-10T21:02:56Z", "1960-01-01T00:00:00Z", "tomorrow", ""] {
        lines.push(plane.call("PUT", &subscription(), expiring(given)).await.brief());
    }
    let past = json!({"expirationTimeUtc": "2020-01-01T00:00:00Z"});
    lines.push(plane.call("PATCH", &subscription(), past).await.brief());
    expect![[r#"
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is 2021-03-10T21:02:56.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is 1970-01-01T00:00:00.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is \"tomorrow\"; allowed is a date and time such as 2030-01-31T12:00:00Z.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is \"\"; allowed is a date and time such as 2030-01-31T12:00:00Z.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"expirationTimeUtc is 2020-01-01T00:00:00.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"expirationTimeUtc","details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_subscription_is_deleted_when_its_time_comes_and_not_before() {
    let plane = Plane::new(Chaos::Disabled).with_topic().await;
    assert_eq!(plane.call("PUT", &subscription(), expiring(EXPIRES)).await.status, 201);
    let expires = plane.now().after(MINUTE);
    assert_eq!(expiry::sweep(&plane.registry, expires.before(Duration::from_micros(1))).await, Some(expires));
    assert!(plane.is_there().await);
    assert_eq!(expiry::sweep(&plane.registry, expires).await, None);
    assert!(!plane.is_there().await);
}

#[actix_web::test]
async fn a_time_that_was_moved_or_taken_away_is_not_kept_to() {
    let plane = Plane::new(Chaos::Disabled).with_topic().await;
    assert_eq!(plane.call("PUT", &subscription(), expiring(EXPIRES)).await.status, 201);
    let later = json!({"expirationTimeUtc": "2021-03-10T22:00:00Z"});
    assert_eq!(plane.call("PATCH", &subscription(), later).await.status, 201);
    assert!(expiry::sweep(&plane.registry, plane.now().after(MINUTE)).await.is_some());
    assert!(plane.is_there().await);
    assert_eq!(plane.call("PATCH", &subscription(), json!({"expirationTimeUtc": null})).await.status, 201);
    assert_eq!(expiry::sweep(&plane.registry, Timestamp::NEVER.before(MINUTE)).await, None);
    assert!(plane.is_there().await);
}

#[actix_web::test]
async fn who_watches_deletes_by_the_clock() {
    let plane = Plane::new(Chaos::Disabled).with_topic().await;
    let watch = actix_web::rt::spawn(expiry::run(plane.registry.clone(), plane.clock.clone()));
    plane.hand.advance(MINUTE / 2);
    assert_eq!(plane.call("PUT", &subscription(), expiring(EXPIRES)).await.status, 201);
    plane.hand.advance(MINUTE);
    // Another one is put, so that it is looked again: nothing waits by the real clock.
    let other = format!("{RG}/topics/orders/eventSubscriptions/other");
    assert_eq!(plane.call("PUT", &other, expiring("2021-03-10T22:00:00Z")).await.status, 201);
    let mut looks = 0;
    while plane.is_there().await {
        looks += 1;
        assert!(looks < 1000, "it is still there");
        actix_web::rt::task::yield_now().await;
    }
    assert_eq!(plane.call("GET", &other, Value::Null).await.status, 200);
    watch.abort();
}

#[actix_web::test]
async fn a_restart_remembers_when_a_subscription_expires() {
    let plane = Plane::new(Chaos::Disabled).with_topic().await;
    assert_eq!(plane.call("PUT", &subscription(), expiring(EXPIRES)).await.status, 201);
    let (again, _clock, _hand) = running_registry(&plane.store);
    let topic = again.topic("orders").expect("it is recovered");
    assert!(topic.subscription("to-shop").is_some());
    assert_eq!(expiry::sweep(&again, plane.now().after(2 * MINUTE)).await, None);
    assert!(topic.subscription("to-shop").is_none());
    let (third, _clock, _hand) = running_registry(&plane.store);
    assert!(third.topic("orders").expect("it is recovered").subscription("to-shop").is_none(), "it is gone for good");
}
