//! Lists are sorted by name and divided into pages.

use expect_test::expect;
use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};

async fn with_topics(names: &[&str]) -> ControlFixture {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for name in names {
        assert_eq!(
            control
                .call("PUT", &format!("{RG}/topics/{name}"), json!({}))
                .await
                .status,
            201
        );
    }
    control
}

/// The names on every page, and how the pages were asked for.
async fn pages(control: &ControlFixture, path: &str) -> String {
    let mut lines = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next {
        let page = control.call("GET", &path, Value::Null).await.json();
        let names: Vec<_> = page["value"]
            .as_array()
            .expect("a page")
            .iter()
            .map(|one| one["name"].to_string())
            .collect();
        lines.push(format!("{}: {}", path.replace(RG, "RG:"), names.join(" ")));
        next = page["nextLink"].as_str().map(|link| {
            link.strip_prefix("http://here")
                .expect("its own")
                .to_owned()
        });
        assert!(lines.len() < 10, "pages without an end: {lines:?}");
    }
    lines.join("\n")
}

#[actix_web::test]
async fn a_list_is_answered_in_pages() {
    let control = with_topics(&["Delta", "alpha", "charlie", "bravo", "echo"]).await;
    let all = pages(&control, &format!("{RG}/topics")).await;
    let twos = pages(
        &control,
        &format!("{RG}/topics?api-version=2025-02-15&$top=2"),
    )
    .await;
    let filtered = pages(
        &control,
        &format!("{RG}/topics?$top=1&$filter=contains(name,'l')%20and%20name%20ne%20'delta'"),
    )
    .await;
    let whole = pages(&control, &format!("{RG}/topics?$top=5")).await;
    expect![[r#"
        RG:/topics: "alpha" "bravo" "charlie" "Delta" "echo"
        RG:/topics?api-version=2025-02-15&$top=2: "alpha" "bravo"
        RG:/topics?api-version=2025-02-15&%24top=2&%24skipToken=bravo: "charlie" "Delta"
        RG:/topics?api-version=2025-02-15&%24top=2&%24skipToken=delta: "echo"
        RG:/topics?$top=1&$filter=contains(name,'l')%20and%20name%20ne%20'delta': "alpha"
        RG:/topics?%24top=1&%24filter=contains%28name%2C%27l%27%29+and+name+ne+%27delta%27&%24skipToken=alpha: "charlie"
        RG:/topics?$top=5: "alpha" "bravo" "charlie" "Delta" "echo""#]]
    .assert_eq(&[all, twos, filtered, whole].join("\n"));
}

#[actix_web::test]
async fn a_page_that_cannot_be_is_refused() {
    let control = with_topics(&[]).await;
    let mut lines = Vec::new();
    for query in [
        "$top=0",
        "$top=101",
        "$top=x",
        "$filter=location%20eq%20'x'",
    ] {
        lines.push(
            control
                .call("GET", &format!("{RG}/topics?{query}"), Value::Null)
                .await
                .brief(),
        );
    }
    expect![[r#"
        400 {"error":{"code":"InvalidRequest","message":"$top is \"0\"; expected 1 to 100 resources.","target":"$top","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"$top is \"101\"; expected 1 to 100 resources.","target":"$top","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"$top is \"x\"; expected 1 to 100 resources.","target":"$top","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"$filter cannot be read at \"location\"; expected contains(name, 'text'), name eq 'text' or name ne 'text', joined by and, or, not and parentheses.","target":"$filter","details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn event_subscriptions_are_listed_by_place_location_and_type() {
    let control = with_topics(&[]).await;
    let put = async |path: &str, body: Value| {
        let response = control.call("PUT", &format!("{RG}/{path}"), body).await;
        assert_eq!(response.status, 201, "{path}: {}", response.text);
    };
    put("topics/orders", json!({"location": "West US 2"})).await;
    put("domains/shop", json!({"location": "elsewhere"})).await;
    for path in ["topics/orders", "domains/shop", "domains/shop/topics/north"] {
        put(&format!("{path}/eventSubscriptions/to-shop"), hook()).await;
    }
    let mut lines = Vec::new();
    for path in [
        format!("{RG}/eventSubscriptions"),
        "/subscriptions/s-1/providers/Microsoft.EventGrid/eventSubscriptions".to_owned(),
        "/subscriptions/none/providers/Microsoft.EventGrid/eventSubscriptions".to_owned(),
        format!("{RG}/locations/westus2/eventSubscriptions"),
        format!("{RG}/topicTypes/Microsoft.EventGrid.Domains/eventSubscriptions"),
        format!(
            "{RG}/locations/elsewhere/topicTypes/Microsoft.EventGrid.Topics/eventSubscriptions"
        ),
        format!("{RG}/topics/orders/eventSubscriptions"),
        format!("{RG}/domains/shop/eventSubscriptions"),
        format!("{RG}/domains/shop/providers/Microsoft.EventGrid/eventSubscriptions"),
        format!("{RG}/domains/shop/topics/north/eventSubscriptions"),
        format!("{RG}/domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions"),
    ] {
        let list = control.call("GET", &path, Value::Null).await.json();
        let ids = list["value"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["id"].as_str().expect("an id"));
        let ids: Vec<_> = ids.map(|id| id.replace(RG, "")).collect();
        lines.push(path.replace(RG, "RG:"));
        lines.extend(ids.iter().map(|id| format!("    {id}")));
    }
    expect![[r#"
        RG:/eventSubscriptions
            /domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
            /domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
            /topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
        /subscriptions/s-1/providers/Microsoft.EventGrid/eventSubscriptions
            /domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
            /domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
            /topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
        /subscriptions/none/providers/Microsoft.EventGrid/eventSubscriptions
        RG:/locations/westus2/eventSubscriptions
            /topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
        RG:/topicTypes/Microsoft.EventGrid.Domains/eventSubscriptions
            /domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
            /domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
        RG:/locations/elsewhere/topicTypes/Microsoft.EventGrid.Topics/eventSubscriptions
        RG:/topics/orders/eventSubscriptions
            /topics/orders/eventSubscriptions/to-shop
        RG:/domains/shop/eventSubscriptions
            /domains/shop/eventSubscriptions/to-shop
        RG:/domains/shop/providers/Microsoft.EventGrid/eventSubscriptions
            /domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/to-shop
        RG:/domains/shop/topics/north/eventSubscriptions
            /domains/shop/topics/north/eventSubscriptions/to-shop
        RG:/domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions
            /domains/shop/topics/north/providers/Microsoft.EventGrid/eventSubscriptions/to-shop"#]]
    .assert_eq(&lines.join("\n"));
}
