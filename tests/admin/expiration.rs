//! `expirationTimeUtc`, on a manual clock.

use std::time::Duration;

use expect_test::expect;
use gridhook::{admin::ChaosMode, control::expiry, event::Timestamp};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};
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

impl ControlFixture {
    fn now(&self) -> Timestamp {
        // 2021-03-10T21:02:56Z
        Timestamp(1_615_410_176_000_000)
    }

    async fn is_there(&self) -> bool {
        self.call("GET", &subscription(), Value::Null).await.status == 200
    }
}

#[actix_web::test]
async fn a_time_is_returned_as_it_was_put() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let mut lines = Vec::new();
    for given in [
        "2030-01-31T12:00:00Z",
        "2030-01-31T12:00:00.1234567+01:00",
        "2030-01-31T12:00:00",
        "2030-01-31",
    ] {
        let response = control.call("PUT", &subscription(), expiring(given)).await;
        lines.push(format!(
            "{given} {} {}",
            response.status,
            response.json()["properties"]["expirationTimeUtc"]
        ));
    }
    let patched = control
        .call("PATCH", &subscription(), json!({"labels": ["x"]}))
        .await
        .json();
    lines.push(format!(
        "another patch {}",
        patched["properties"]["expirationTimeUtc"]
    ));
    let patched = control
        .call(
            "PATCH",
            &subscription(),
            json!({"expirationTimeUtc": EXPIRES}),
        )
        .await
        .json();
    lines.push(format!(
        "a patch {}",
        patched["properties"]["expirationTimeUtc"]
    ));
    let patched = control
        .call("PATCH", &subscription(), json!({"expirationTimeUtc": null}))
        .await
        .json();
    lines.push(format!(
        "a patch {}",
        patched["properties"]["expirationTimeUtc"]
    ));
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
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let mut lines = Vec::new();
    for given in ["2021-03-10T21:02:56Z", "1960-01-01T00:00:00Z", "tomorrow"] {
        lines.push(
            control
                .call("PUT", &subscription(), expiring(given))
                .await
                .brief(),
        );
    }
    let past = json!({"expirationTimeUtc": "2020-01-01T00:00:00Z"});
    lines.push(control.call("PATCH", &subscription(), past).await.brief());
    expect![[r#"
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is 2021-03-10T21:02:56.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is 1970-01-01T00:00:00.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.expirationTimeUtc is \"tomorrow\"; expected a date and time such as 2030-01-31T12:00:00Z.","target":"properties.expirationTimeUtc","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"expirationTimeUtc is 2020-01-01T00:00:00.0000000Z, which is not in the future (it is 2021-03-10T21:02:56.0000000Z). Invalid expiration time.","target":"expirationTimeUtc","details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_subscription_is_deleted_when_its_time_comes_and_not_before() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    assert_eq!(
        control
            .call("PUT", &subscription(), expiring(EXPIRES))
            .await
            .status,
        201
    );
    let expires = control.now().after(MINUTE);
    assert_eq!(
        expiry::delete_expired(&control.registry, expires.before(Duration::from_micros(1))).await,
        Some(expires)
    );
    assert!(control.is_there().await);
    assert_eq!(
        expiry::delete_expired(&control.registry, expires).await,
        None
    );
    assert!(!control.is_there().await);
}

#[actix_web::test]
async fn a_time_that_was_moved_or_taken_away_is_not_kept_to() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    assert_eq!(
        control
            .call("PUT", &subscription(), expiring(EXPIRES))
            .await
            .status,
        201
    );
    let later = json!({"expirationTimeUtc": "2021-03-10T22:00:00Z"});
    assert_eq!(
        control.call("PATCH", &subscription(), later).await.status,
        201
    );
    assert!(
        expiry::delete_expired(&control.registry, control.now().after(MINUTE))
            .await
            .is_some()
    );
    assert!(control.is_there().await);
    assert_eq!(
        control
            .call("PATCH", &subscription(), json!({"expirationTimeUtc": null}))
            .await
            .status,
        201
    );
    assert_eq!(
        expiry::delete_expired(&control.registry, Timestamp::NEVER.before(MINUTE)).await,
        None
    );
    assert!(control.is_there().await);
}

#[actix_web::test]
async fn the_watch_of_expirations_follows_the_clock() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let watch = actix_web::rt::spawn(expiry::run(control.registry.clone(), control.clock.clone()));
    control.hand.advance(MINUTE / 2);
    assert_eq!(
        control
            .call("PUT", &subscription(), expiring(EXPIRES))
            .await
            .status,
        201
    );
    control.hand.advance(MINUTE);
    // Another one is put, so that it is looked again: nothing waits by the real clock.
    let other = format!("{RG}/topics/orders/eventSubscriptions/other");
    assert_eq!(
        control
            .call("PUT", &other, expiring("2021-03-10T22:00:00Z"))
            .await
            .status,
        201
    );
    let mut looks = 0;
    while control.is_there().await {
        looks += 1;
        assert!(looks < 1000, "it is still there");
        actix_web::rt::task::yield_now().await;
    }
    assert_eq!(control.call("GET", &other, Value::Null).await.status, 200);
    watch.abort();
}

#[actix_web::test]
async fn a_restart_remembers_when_a_subscription_expires() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    assert_eq!(
        control
            .call("PUT", &subscription(), expiring(EXPIRES))
            .await
            .status,
        201
    );
    let (again, _clock, _hand) = running_registry(&control.store);
    let topic = again.find_topic("orders").expect("it is recovered");
    assert!(topic.find_subscription("to-shop").is_some());
    assert_eq!(
        expiry::delete_expired(&again, control.now().after(2 * MINUTE)).await,
        None
    );
    assert!(topic.find_subscription("to-shop").is_none());
    let (third, _clock, _hand) = running_registry(&control.store);
    assert!(
        third
            .find_topic("orders")
            .expect("it is recovered")
            .find_subscription("to-shop")
            .is_none(),
        "it is gone for good"
    );
}
