//! `ETag`, `If-Match` and `If-None-Match` of every resource.

use gridhook::admin::{ChaosMode, arm::routes::ROUTES};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, Response, hook};

/// A resource of each kind, in an order in which they can be created, with its body and a body of
/// its PATCH.
fn resources() -> Vec<(String, Value, Option<Value>)> {
    let tags = |value: &str| json!({"tags": {"team": value}});
    let kept = json!({"properties": {"autoDeleteTopicWithLastSubscription": false}});
    let pushed = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    [
        ("topics/orders", tags("a"), Some(tags("b"))),
        (
            "topics/orders/eventTypes/Order.Placed",
            json!({"properties": {"description": "a"}}),
            None,
        ),
        (
            "topics/orders/eventSubscriptions/to-shop",
            hook(),
            Some(json!({"labels": ["b"]})),
        ),
        ("domains/shops", kept, Some(tags("b"))),
        ("domains/shops/topics/berlin", json!({}), None),
        (
            "domains/shops/topics/berlin/eventSubscriptions/to-shop",
            hook(),
            Some(json!({"labels": ["b"]})),
        ),
        ("namespaces/plant", tags("a"), Some(tags("b"))),
        (
            "namespaces/plant/topics/heat",
            json!({}),
            Some(json!({"properties": {"eventRetentionInDays": 1}})),
        ),
        (
            "namespaces/plant/topics/heat/eventSubscriptions/all",
            pushed.clone(),
            Some(pushed),
        ),
    ]
    .map(|(path, body, patch)| (format!("{RG}/{path}"), body, patch))
    .into()
}

fn tag(response: &Response) -> String {
    let tag = response
        .headers
        .get("etag")
        .unwrap_or_else(|| panic!("no ETag: {}", response.brief()));
    tag.to_str().expect("text").to_owned()
}

async fn present(control: &ControlFixture, path: &str) -> String {
    let response = control.call("GET", path, Value::Null).await;
    assert_eq!(response.status, 200, "{path}: {}", response.text);
    tag(&response)
}

#[track_caller]
fn is_refused(response: &Response, condition: &str, present: &str) {
    assert_eq!(response.status, 412, "{}", response.text);
    let error = &response.json()["error"];
    assert_eq!(error["code"], "PreconditionFailed");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains(condition) && message.contains(present),
        "{message}"
    );
}

#[actix_web::test]
async fn each_resource_has_a_tag_that_changes_with_it_and_a_change_of_another_state_is_refused() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for (path, body, patch) in resources() {
        let missing = control
            .call_if("PUT", &path, &[("If-Match", "*")], body.clone())
            .await;
        is_refused(&missing, "If-Match: *", "does not exist");
        let created = control
            .call_if("PUT", &path, &[("If-None-Match", "*")], body.clone())
            .await;
        assert_eq!(created.status, 201, "{path}: {}", created.text);
        let first = present(&control, &path).await;
        assert_eq!(
            tag(&created),
            first,
            "{path}: the response to the PUT and GET"
        );
        assert_eq!(present(&control, &path).await, first, "{path}: read again");
        let twice = control
            .call_if("PUT", &path, &[("If-None-Match", "*")], body.clone())
            .await;
        is_refused(&twice, "If-None-Match: *", &first);

        // The clock of the fixture stands still, and the same is put again: it is another state all
        // the same.
        let again = if path.contains("/eventTypes/") {
            json!({"properties": {}})
        } else {
            body.clone()
        };
        let put = control
            .call_if("PUT", &path, &[("If-Match", &first)], again)
            .await;
        assert_eq!(put.status, 201, "{path}: {}", put.text);
        let second = present(&control, &path).await;
        assert_ne!(second, first, "{path}");
        let late = control
            .call_if("PUT", &path, &[("If-Match", &first)], body.clone())
            .await;
        is_refused(&late, &format!("If-Match: {first}"), &second);
        assert_eq!(
            present(&control, &path).await,
            second,
            "{path}: the refused PUT changed it"
        );

        let compared = control
            .call_if("PUT", &format!("{path}?whatIf=true"), &[], body)
            .await;
        assert_eq!(
            (compared.status, tag(&compared)),
            (200, second.clone()),
            "{path}: {}",
            compared.text
        );
        if let Some(patch) = patch {
            patch_with_conditions(&control, &path, patch, &first, &second).await;
        }
        // A weak tag matches nothing, as RFC 9110 has it.
        let weak = format!("W/{}", present(&control, &path).await);
        is_refused(
            &control
                .call_if("DELETE", &path, &[("If-Match", &weak)], Value::Null)
                .await,
            &weak,
            "\"",
        );
    }
    for (path, ..) in resources().into_iter().rev() {
        delete_with_conditions(&control, &path).await;
    }
}

async fn patch_with_conditions(
    control: &ControlFixture,
    path: &str,
    patch: Value,
    first: &str,
    second: &str,
) {
    let late = control
        .call_if("PATCH", path, &[("If-Match", first)], patch.clone())
        .await;
    is_refused(&late, first, second);
    // A list of tags, in two headers.
    let conditions = [("If-Match", "\"other\""), ("If-Match", second)];
    let patched = control.call_if("PATCH", path, &conditions, patch).await;
    assert!(
        matches!(patched.status, 200 | 201),
        "{path}: {}",
        patched.text
    );
    let third = present(control, path).await;
    assert_eq!(
        tag(&patched),
        third,
        "{path}: the response to the PATCH and GET"
    );
    assert_ne!(third, second, "{path}");
}

async fn delete_with_conditions(control: &ControlFixture, path: &str) {
    let stale = control
        .call_if("DELETE", path, &[("If-Match", "\"stale\"")], Value::Null)
        .await;
    let now = present(control, path).await;
    is_refused(&stale, "If-Match: \"stale\"", &now);
    let deleted = control
        .call_if("DELETE", path, &[("If-Match", &now)], Value::Null)
        .await;
    assert_eq!(deleted.status, 204, "{path}: {}", deleted.text);
    let again = control
        .call_if("DELETE", path, &[("If-Match", &now)], Value::Null)
        .await;
    is_refused(&again, &now, "does not exist");
    let patched = control
        .call_if("PATCH", path, &[("If-Match", &now)], json!({}))
        .await;
    assert!(
        matches!(patched.status, 404 | 405),
        "{path}: {}",
        patched.text
    );
}

#[test]
fn these_are_all_resources_of_the_table() {
    // The kinds of resources in a path, such as `domains/topics`.
    let kinds = |path: &str| {
        path.split('/')
            .skip(7)
            .step_by(2)
            .collect::<Vec<_>>()
            .join("/")
    };
    let mut known: Vec<String> = resources().iter().map(|(path, ..)| kinds(path)).collect();
    // A resource group has no kind below it; its tests are in `resource_groups`, and those of
    // deployments in `server::deployments`.
    known.extend(["", "deployments"].map(str::to_owned));
    known.extend(
        [
            "domains/eventSubscriptions",
            "domains/eventTypes",
            "namespaces/topics/eventTypes",
        ]
        .map(str::to_owned),
    );
    let puts = ROUTES.iter().filter(|route| {
        route
            .operations
            .iter()
            .any(|operation| operation.method == "PUT")
    });
    for route in puts.filter(|route| {
        !["systemTopics/", "partner"]
            .iter()
            .any(|other| route.template.contains(other))
    }) {
        let nested = route.template.replace(
            "}/providers/Microsoft.EventGrid/eventSubscriptions",
            "}/eventSubscriptions",
        );
        assert!(known.contains(&kinds(&nested)), "{}", route.template);
    }
}

#[actix_web::test]
async fn a_change_of_a_secret_changes_the_tag() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let path = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    let before = control.call("GET", &path, Value::Null).await;
    let mut other = hook();
    other["properties"]["destination"]["properties"]["endpointUrl"] =
        "http://127.0.0.1:9000/hook?code=other".into();
    assert_eq!(control.call("PUT", &path, other).await.status, 201);
    let after = control.call("GET", &path, Value::Null).await;
    assert_eq!(
        before.json()["properties"],
        after.json()["properties"],
        "a secret is shown"
    );
    assert_ne!(tag(&before), tag(&after));
}

#[actix_web::test]
async fn exactly_one_of_simultaneous_changes_of_one_state_is_made() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for (path, body, _) in resources() {
        let created =
            (0..8).map(|_| control.call_if("PUT", &path, &[("If-None-Match", "*")], body.clone()));
        let created = futures_util::future::join_all(created).await;
        assert_eq!(
            created
                .iter()
                .filter(|response| response.status == 201)
                .count(),
            1,
            "{path}: created"
        );
        let state = present(&control, &path).await;
        let conditions = [("If-Match", state.as_str())];
        // An event type has no time of its last change: its state is its content.
        let body = if path.contains("/eventTypes/") {
            json!({"properties": {}})
        } else {
            body
        };
        let changed = (0..8).map(|_| control.call_if("PUT", &path, &conditions, body.clone()));
        let changed = futures_util::future::join_all(changed).await;
        assert_eq!(
            changed
                .iter()
                .filter(|response| response.status == 201)
                .count(),
            1,
            "{path}: changed"
        );
        assert!(
            changed
                .iter()
                .all(|response| matches!(response.status, 201 | 412)),
            "{path}"
        );
    }
}

#[actix_web::test]
async fn a_get_of_a_known_state_is_304_and_a_weak_tag_is_one_of_if_none_match() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = format!("{RG}/topics/orders");
    let tag = present(&control, &topic).await;
    let weak = format!("W/{tag}");
    let several = format!("\"other\", {weak}");
    for condition in [tag.as_str(), &weak, &several, "*"] {
        let known = control
            .call_if("GET", &topic, &[("If-None-Match", condition)], Value::Null)
            .await;
        assert_eq!(
            (known.status, known.text.as_str()),
            (304, ""),
            "{condition}"
        );
        assert_eq!(known.headers.get("etag").expect("a tag"), tag.as_str());
        let made = control
            .call_if("PUT", &topic, &[("If-None-Match", condition)], json!({}))
            .await;
        is_refused(&made, "If-None-Match", &tag);
    }
    let other = control
        .call_if(
            "GET",
            &topic,
            &[("If-None-Match", "\"other\"")],
            Value::Null,
        )
        .await;
    assert_eq!(other.status, 200);
    // The comparison of If-Match is strong.
    let weakly = control
        .call_if("PUT", &topic, &[("If-Match", &weak)], json!({}))
        .await;
    is_refused(&weakly, "If-Match", &tag);
}
