//! The course of the figures, over HTTP.

use std::time::Duration;

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::control::{ControlFixture, RG};

#[actix_web::test]
async fn the_course_of_the_figures_is_recorded_for_the_dashboard_only() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let before = control.call("GET", "/history", Value::Null).await.json();
    assert_eq!(
        (&before["recorded"], &before["stepSeconds"]),
        (&json!(false), &json!(5))
    );
    for _ in 0..3 {
        control.record_figures();
        control.hand.advance(Duration::from_secs(5));
    }
    let course = control.call("GET", "/history", Value::Null).await.json();
    assert_eq!(course["recorded"], true, "{course}");
    assert!(
        course["backlog"]
            .as_array()
            .expect("steps")
            .contains(&json!(0)),
        "{course}"
    );
    // Those without series of their own in the metrics have none here.
    let course = control
        .call(
            "GET",
            &format!("/history?topic={RG}/topics/orders"),
            Value::Null,
        )
        .await
        .json();
    assert_eq!(course["recorded"], false, "{course}");
    for (query, status) in [
        ("?range=1h", 400),
        ("?subscription=to-shop", 400),
        (&format!("?topic={RG}/topics/none"), 404),
    ] {
        assert_eq!(
            control
                .call("GET", &format!("/history{query}"), Value::Null)
                .await
                .status,
            status,
            "{query}"
        );
    }
    // It goes on, so it is asked for a moment only.
    assert!(
        timeout(Duration::from_millis(20), control.recorder())
            .await
            .is_err(),
        "the recorder ended"
    );

    let without = control.without_dashboard();
    assert_eq!(
        without.call("GET", "/history", Value::Null).await.status,
        404
    );
    without.record_figures();
    without.hand.advance(Duration::from_secs(30));
    assert_eq!(
        without.call("GET", "/top", Value::Null).await.json()["windowSeconds"],
        30.0,
        "top needs no dashboard"
    );
}
