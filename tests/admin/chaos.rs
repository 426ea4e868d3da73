//! Chaos: a request is checked, the status shows it, and it ends.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::ControlFixture;

async fn on(control: &ControlFixture) -> Vec<String> {
    let report = control.call("GET", "/chaos", Value::Null).await.json();
    let on = report["active"].as_array().expect("a list").iter();
    on.map(|fault| fault["fault"].as_str().expect("a word").to_owned())
        .collect()
}

#[actix_web::test]
async fn a_running_experiment_is_listed_and_ends_on_request() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    for (path, body) in [
        ("stall", json!({"actor": "journal", "duration": "30s"})),
        ("writes", json!({"fail": 3, "duration": "1m"})),
        (
            "responses",
            json!({"fault": "drop", "rate": 0.5, "duration": "1m"}),
        ),
        (
            "responses",
            json!({"fault": "delay", "rate": 1, "delay": "2s", "topic": "orders", "duration": "1h"}),
        ),
        ("clock", json!({"step": "-1h", "duration": "10s"})),
        (
            "poison",
            json!({"topic": "orders", "subscription": "to-shop", "eventId": "e", "times": 3}),
        ),
    ] {
        let response = control
            .call("POST", &format!("/chaos/{path}"), body.clone())
            .await;
        assert_eq!(response.status, 200, "{path} {body}: {}", response.text);
    }
    assert_eq!(
        on(&control).await,
        [
            "stallJournal",
            "failWrites",
            "responses",
            "responses",
            "clock",
            "poison"
        ]
    );
    // There is one clock: the newer step takes the place of the older.
    let response = control
        .call(
            "POST",
            "/chaos/clock",
            json!({"step": "1h", "duration": "10s"}),
        )
        .await
        .json();
    assert_eq!(
        (
            response["fault"].as_str(),
            response["request"]["step"].as_str()
        ),
        (Some("clock"), Some("1h"))
    );
    assert_eq!(
        on(&control).await,
        [
            "stallJournal",
            "failWrites",
            "responses",
            "responses",
            "poison",
            "clock"
        ]
    );

    let report = control.call("DELETE", "/chaos", Value::Null).await.json();
    assert_eq!(report["active"], json!([]));
    assert_eq!(report["injected"]["clockSteps"], 2);
    assert_eq!(report["injected"]["journalStalls"], 1);
    assert_eq!(report["injected"]["eventsPoisoned"], 1);
    assert_eq!(on(&control).await, [""; 0]);
}

#[actix_web::test]
async fn a_running_experiment_ends_by_itself() {
    let control = ControlFixture::new(ChaosMode::Enabled);
    let response = control
        .call(
            "POST",
            "/chaos/clock",
            json!({"step": "1h", "duration": "20ms"}),
        )
        .await;
    assert_eq!(response.status, 200, "{}", response.text);
    for _ in 0..500 {
        if on(&control).await.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it goes on");
}

#[actix_web::test]
async fn an_invalid_experiment_is_refused_with_what_is_allowed() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    for (path, body, reported) in [
        (
            "kill",
            json!({"actor": "subscription", "topic": "orders", "by": "stop"}),
            "subscription is missing",
        ),
        (
            "kill",
            json!({"actor": "deadLetter", "topic": "orders", "by": "stop"}),
            "leave it out",
        ),
        (
            "stall",
            json!({"actor": "journal", "duration": "2m"}),
            "expected a duration from 1ms to 1m",
        ),
        (
            "stall",
            json!({"actor": "journal"}),
            "missing field `duration`",
        ),
        (
            "writes",
            json!({"fail": 0, "duration": "1s"}),
            "expected 1 to 10000 writes",
        ),
        (
            "writes",
            json!({"fail": 1, "duration": "2h"}),
            "expected a duration from 1ms to 1h",
        ),
        (
            "responses",
            json!({"fault": "drop", "rate": 0, "duration": "1s"}),
            "a share above 0 and up to 1",
        ),
        (
            "responses",
            json!({"fault": "drop", "rate": 1, "delay": "1s", "duration": "1s"}),
            "leave it out",
        ),
        (
            "responses",
            json!({"fault": "delay", "rate": 1, "duration": "1s"}),
            "delay is missing",
        ),
        (
            "responses",
            json!({"fault": "drop", "rate": 1, "subscription": "s", "duration": "1s"}),
            "topic is missing",
        ),
        (
            "clock",
            json!({"step": "30 years", "duration": "1s"}),
            "expected a duration",
        ),
        (
            "poison",
            json!({"topic": "orders", "subscription": "to-shop", "eventId": "e", "times": 0}),
            "1 or more",
        ),
    ] {
        let response = control
            .call("POST", &format!("/chaos/{path}"), body.clone())
            .await;
        assert_eq!(response.status, 400, "{path} {body}: {}", response.text);
        assert!(
            response.text.contains(reported),
            "{path} {body}: {}",
            response.text
        );
    }
    let nobody =
        json!({"actor": "subscription", "topic": "none", "subscription": "s", "by": "stop"});
    assert_eq!(
        control.call("POST", "/chaos/kill", nobody).await.status,
        404
    );
    assert_eq!(on(&control).await, [""; 0], "nothing of it goes on");
}

#[actix_web::test]
async fn as_much_as_may_be_goes_on_and_no_more() {
    let control = ControlFixture::new(ChaosMode::Enabled);
    let body = json!({"fault": "drop", "rate": 0.1, "duration": "1m"});
    for _ in 0..64 {
        assert_eq!(
            control
                .call("POST", "/chaos/responses", body.clone())
                .await
                .status,
            200
        );
    }
    let response = control.call("POST", "/chaos/responses", body.clone()).await;
    assert_eq!(response.status, 409, "{}", response.text);
    control.call("DELETE", "/chaos", Value::Null).await;
    assert_eq!(
        control.call("POST", "/chaos/responses", body).await.status,
        200
    );
}

#[actix_web::test]
async fn without_the_setting_there_is_no_chaos_and_without_the_token_no_report_of_incarnations() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    for (method, path) in [
        ("GET", "/chaos"),
        ("DELETE", "/chaos"),
        ("POST", "/chaos/stall"),
    ] {
        assert_eq!(
            control.call(method, path, json!({})).await.status,
            404,
            "{method} {path}"
        );
    }
    let report = control
        .call("GET", "/supervision?top=5&topic=orders", Value::Null)
        .await
        .json();
    assert_eq!(
        (report["actors"].as_u64(), report["ended"].as_u64()),
        (Some(2), Some(0)),
        "{report}"
    );
    assert_eq!(
        control
            .call("GET", "/supervision?top=0", Value::Null)
            .await
            .status,
        400
    );
    assert_eq!(
        control
            .call("GET", "/supervision?topic=none", Value::Null)
            .await
            .status,
        404
    );
    assert_eq!(
        control
            .send(actix_web::test::TestRequest::with_uri("/supervision"))
            .await
            .status,
        401
    );
}

#[actix_web::test]
async fn a_fault_beyond_the_limit_changes_nothing() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    let responses = json!({"fault": "drop", "rate": 0.5, "duration": "1h"});
    for _ in 0..64 {
        assert_eq!(
            control
                .call("POST", "/chaos/responses", responses.clone())
                .await
                .status,
            200
        );
    }
    let poison = json!({"topic": "orders", "subscription": "to-shop", "eventId": "e", "times": 3});
    for (path, body) in [("poison", poison), ("responses", responses)] {
        let response = control.call("POST", &format!("/chaos/{path}"), body).await;
        assert_eq!(response.status, 409, "{}", response.text);
    }
    let shared = control
        .registry
        .find_topic("orders")
        .and_then(|topic| topic.find_shared_state("to-shop"))
        .expect("it is there");
    assert!(!shared.is_poisoned(), "the event was poisoned all the same");
    let report = control.call("GET", "/chaos", Value::Null).await.json();
    assert_eq!(report["injected"]["eventsPoisoned"], 0);
}
