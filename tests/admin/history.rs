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
    // The response does not end, so that only its beginning is read.
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

#[actix_web::test]
async fn the_course_of_an_earlier_process_is_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history");
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await
        .with_history_file(&path);
    for _ in 0..4 {
        control.record_figures();
        control.hand.advance(Duration::from_secs(5));
    }
    control.save_history();
    control.hand.advance(Duration::from_secs(20));
    let next = control.with_history_file(&path);
    next.record_figures();
    next.hand.advance(Duration::from_secs(5));
    next.record_figures();
    let course = next
        .call("GET", "/history?destinations=true", Value::Null)
        .await
        .json();
    let backlog = course["backlog"].as_array().expect("steps");
    let recorded: Vec<bool> = backlog.iter().rev().take(10).map(Value::is_u64).collect();
    assert_eq!(
        recorded,
        [
            true, false, false, false, false, false, true, true, true, false
        ],
        "the newest first: {course}"
    );
    for column in ["refusedRequests", "busyRequests", "unansweredRequests"] {
        assert_eq!(
            course[column].as_array().map(Vec::len),
            Some(backlog.len()),
            "{column}"
        );
    }

    std::fs::write(&path, b"no history").expect("a file");
    let next = next.with_history_file(&path);
    next.record_figures();
    let course = next.call("GET", "/history", Value::Null).await.json();
    assert_eq!(course["recorded"], true, "a damaged file is ignored");
}
