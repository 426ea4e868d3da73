//! The list of event subscriptions with their figures: search, filters, orders and pages.

use std::{collections::BTreeSet, time::Duration};

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

/// 12 event subscriptions of one topic and 13 of another, of which every fourth is held.
async fn fixture() -> ControlFixture {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for (topic, numbers) in [("orders", 0..12), ("bills", 12..25)] {
        assert_eq!(
            control
                .call("PUT", &format!("{RG}/topics/{topic}"), json!({}))
                .await
                .status,
            201
        );
        for number in numbers {
            let host = if number % 2 == 0 {
                "127.0.0.1:9000/Shop"
            } else {
                "127.0.0.1:9001/depot"
            };
            let url = format!("http://{host}?code=secret{number}");
            let hook = json!({"endpointType": "WebHook", "properties": {"endpointUrl": url}});
            let path = format!("{RG}/topics/{topic}/eventSubscriptions/Sub-{number:02}");
            let response = control
                .call("PUT", &path, json!({"properties": {"destination": hook}}))
                .await;
            assert_eq!(response.status, 201, "{}", response.text);
            if number % 4 == 0 {
                assert_eq!(
                    control
                        .call("POST", &format!("{path}/hold"), Value::Null)
                        .await
                        .status,
                    200
                );
            }
        }
    }
    control
}

async fn ask(control: &ControlFixture, query: &str) -> Value {
    let response = control
        .call("GET", &format!("/top?{query}"), Value::Null)
        .await;
    assert_eq!(response.status, 200, "{query}: {}", response.text);
    response.json()
}

fn names(report: &Value) -> Vec<String> {
    let lines = report["top"].as_array().expect("lines");
    lines
        .iter()
        .map(|line| line["subscription"].as_str().expect("a name").to_owned())
        .collect()
}

#[actix_web::test]
async fn pages_of_every_order_have_each_event_subscription_once() {
    let control = fixture().await;
    for by in [
        "activity",
        "health",
        "backlog",
        "pending",
        "failures",
        "inFlight",
        "deadLetters",
        "responseP50",
        "responseP95",
        "responseP99",
        "name",
    ] {
        let mut all = Vec::new();
        for skip in [0, 10, 20, 30] {
            let report = ask(&control, &format!("by={by}&top=10&skip={skip}")).await;
            assert_eq!(
                (&report["subscriptions"], &report["matching"]),
                (&json!(25), &json!(25)),
                "{by}"
            );
            all.extend(names(&report));
        }
        assert_eq!(all.len(), 25, "{by}");
        assert_eq!(
            all.iter().collect::<BTreeSet<_>>().len(),
            25,
            "{by}: {all:?}"
        );
        assert_eq!(
            all,
            names(&ask(&control, &format!("by={by}&top=500")).await),
            "{by}: pages are parts of one order"
        );
        if by == "name" {
            assert!(all.is_sorted(), "{all:?}");
        }
    }
}

#[actix_web::test]
async fn pages_by_name_merge_topics_and_a_domain_also_where_names_are_equal() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let hook =
        json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9000/"}});
    let mut expected = Vec::new();
    for (parent, numbers) in [
        ("topics/orders", [1, 3, 5, 7]),
        ("topics/bills", [2, 3, 6, 7]),
        ("domains/shops", [0, 3, 4, 8]),
        ("domains/shops/topics/zeta", [1, 3, 7, 9]),
        ("domains/shops/topics/alfa", [3, 5, 8, 9]),
    ] {
        let kind = format!("{RG}/{parent}");
        assert_eq!(
            control.call("PUT", &kind, json!({})).await.status,
            201,
            "{parent}"
        );
        for number in numbers {
            let path = format!("{kind}/eventSubscriptions/sub-{number}");
            let response = control
                .call("PUT", &path, json!({"properties": {"destination": hook}}))
                .await;
            assert_eq!(response.status, 201, "{}", response.text);
            expected.push(format!("sub-{number}"));
        }
    }
    expected.sort();
    for size in [1, 3, 7, 20] {
        let mut all = Vec::new();
        let mut seen = BTreeSet::new();
        for skip in (0..=expected.len()).step_by(size) {
            let report = ask(&control, &format!("by=name&top={size}&skip={skip}")).await;
            all.extend(names(&report));
            let lines = report["top"].as_array().expect("lines").iter();
            seen.extend(lines.map(|line| format!("{} {}", line["topic"], line["subscription"])));
        }
        assert_eq!(all, expected, "pages of {size}");
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
    }
}

#[actix_web::test]
async fn a_search_looks_at_names_and_endpoints_but_not_at_the_secret_part() {
    let control = fixture().await;
    for (query, matching) in [
        ("search=sub-0", 10),
        ("search=SHOP", 13),
        ("search=9001", 12),
        ("search=secret", 0),
        ("search=code", 0),
        ("health=held", 7),
        ("health=unhealthy", 7),
        ("health=idle", 18),
        ("health=healthy", 0),
        ("health=failing", 0),
        ("health=waiting", 0),
        ("health=slow", 0),
        ("health=suspended", 0),
        ("health=probing", 0),
        ("health=held&search=depot", 0),
        (&format!("topic={RG}/topics/orders"), 12),
        (
            &format!("topic={RG}/topics/bills&search=shop&health=held"),
            4,
        ),
    ] {
        let report = ask(&control, &format!("{query}&top=500")).await;
        assert_eq!(report["matching"], matching, "{query}");
        assert_eq!(names(&report).len(), matching, "{query}");
        assert_eq!(
            (&report["subscriptions"], &report["held"]),
            (&json!(25), &json!(7)),
            "totals are of all"
        );
    }
    let report = ask(&control, "top=1").await;
    assert_eq!(
        (&report["conditions"]["held"], &report["conditions"]["idle"]),
        (&json!(7), &json!(18)),
        "{report}"
    );
    let report = ask(&control, "search=sub-01").await;
    assert_eq!(report["top"][0]["endpoint"], "http://127.0.0.1:9001/depot");
}

#[actix_web::test]
async fn a_query_that_cannot_be_used_is_refused_with_what_is_allowed() {
    let control = fixture().await;
    for (query, text) in [
        ("top=0", "1 to 500"),
        ("top=501", "1 to 500"),
        ("skip=-1", "0 to 1000000"),
        (
            "by=age",
            "deadLetters, responseP50, responseP95, responseP99 or name",
        ),
        ("health=ill", "waiting, slow or idle"),
        ("colour=red", "search"),
        ("window=1d", "1m, 1h or 24h"),
        ("topic=orders", "resource id"),
    ] {
        let response = control
            .call("GET", &format!("/top?{query}"), Value::Null)
            .await;
        assert_eq!(response.status, 400, "{query}");
        assert!(response.text.contains(text), "{query}: {}", response.text);
    }
    let response = control
        .call("GET", &format!("/top?topic={RG}/topics/none"), Value::Null)
        .await;
    assert_eq!(response.status, 404);
}

#[actix_web::test]
async fn rates_are_of_recorded_windows_and_the_same_however_many_ask() {
    let control = fixture().await;
    let windows = async || {
        let mut lengths = Vec::new();
        for window in ["1m", "1h", "24h"] {
            // Each is asked for twice: a reader changes nothing for the next one.
            for _ in 0..2 {
                lengths.push(
                    ask(&control, &format!("window={window}")).await["windowSeconds"].as_f64(),
                );
            }
        }
        lengths
    };
    assert_eq!(windows().await, [None; 6], "nothing is recorded");
    for _ in 0..8 {
        control.record_figures();
        control.hand.advance(Duration::from_secs(10));
    }
    assert_eq!(windows().await, [Some(60.0); 6], "in steps of a minute");
    let report = ask(&control, "by=name&top=1").await;
    let line = &report["top"][0];
    assert_eq!(
        (&line["condition"]["state"], &line["deliveredPerSecond"]),
        (&json!("held"), &json!(0.0)),
        "{line}"
    );
}
