//! The audit trail: a change and its record are one, and no identity removes the records of the
//! others.

use std::{collections::BTreeMap, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use actix_web::{http::Method, test::TestRequest};
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::control::{ControlFixture, RG, Response, TOKEN, hook};
use crate::support::http::session_bearer;

/// More turns of the tasks than a request needs until it waits for the journal.
const TURNS: usize = 1_000;

async fn ask(
    control: &ControlFixture,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Response {
    let request = TestRequest::with_uri(path).method(method);
    let request = request.insert_header(("Authorization", format!("Bearer {token}")));
    control
        .send(if body.is_null() {
            request
        } else {
            request.set_payload(body.to_string())
        })
        .await
}

async fn token(control: &ControlFixture, name: &str, body: Value) -> String {
    let mut body = body;
    body["name"] = name.into();
    let response = control.call("POST", "/tokens", body).await;
    assert_eq!(response.status, 201, "{}", response.text);
    response.json()["token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

/// The entries of the trail, oldest first.
async fn trail(control: &ControlFixture) -> Vec<Value> {
    let mut entries = control
        .call("GET", "/audit?top=1000", Value::Null)
        .await
        .json()["value"]
        .clone();
    let entries = entries.as_array_mut().expect("a list");
    entries.reverse();
    std::mem::take(entries)
}

/// Operator, method, last segment of the path and status.
fn line(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or("-");
    let end = text("path").rsplit('/').next().unwrap_or_default();
    format!(
        "{} {} {end} {}",
        text("operator"),
        text("method"),
        entry["status"]
    )
}

async fn lines(control: &ControlFixture) -> Vec<String> {
    trail(control).await.iter().map(line).collect()
}

async fn count_by_operator(control: &ControlFixture) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines(control).await {
        let operator = line.split(' ').next().unwrap_or_default().to_owned();
        *counts.entry(operator).or_default() += 1;
    }
    counts
}

async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

async fn take_turns() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

#[actix_web::test]
async fn a_change_is_made_with_its_record_and_under_its_lock_though_its_client_goes_away() {
    let control = ControlFixture::audited(100);
    let topic = format!("{RG}/topics/orders");
    let response = control.call("PUT", &topic, json!({})).await;
    let tag = response
        .headers
        .get("etag")
        .expect("a tag")
        .to_str()
        .expect("text")
        .to_owned();
    let hold = control.store.hold();
    let request = TestRequest::with_uri(&topic).method(Method::PATCH);
    let request = request.insert_header(("Authorization", format!("Bearer {TOKEN}")));
    let request = request.insert_header(("If-Match", tag.clone()));
    let mut gone = Box::pin(
        control.respond(request.set_payload(json!({"tags": {"by": "first"}}).to_string())),
    );
    for _ in 0..TURNS {
        assert!(is_pending(&mut gone).await, "the write is held");
        yield_now().await;
    }
    hold.until_a_write_waits();
    drop(gone);
    let conditions = [("If-Match", tag.as_str())];
    let second = control.call_if(
        "PATCH",
        &topic,
        &conditions,
        json!({"tags": {"by": "second"}}),
    );
    let mut second = Box::pin(second);
    for _ in 0..TURNS {
        assert!(
            is_pending(&mut second).await,
            "the first change has the lock"
        );
        yield_now().await;
    }
    drop(hold);
    let second = second.await;
    assert_eq!(
        second.status, 412,
        "the first change was made meanwhile: {}",
        second.text
    );
    assert_eq!(
        control.call("GET", &topic, Value::Null).await.json()["tags"],
        json!({"by": "first"})
    );
    let entries = trail(&control).await;
    let lines: Vec<String> = entries.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "admin PUT orders 201",
            "admin PATCH orders 201",
            "admin PATCH orders 412"
        ]
    );
    assert_eq!(
        entries[1]["changes"],
        json!([{"at": "tags.by", "before": null, "after": "first"}])
    );
}

/// A resource group that is created implicitly.
const GROUP: &str = "/subscriptions/S-1/resourceGroups/new";

#[actix_web::test]
async fn a_deployment_and_each_resource_that_it_changes_have_a_record_without_secrets() {
    let control = ControlFixture::audited(100).with_topic().await;
    let path =
        "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.Resources/deployments/main";
    let template = json!({
        "parameters": {"code": {"type": "securestring"}, "team": {"type": "string"}},
        "resources": [
            {"type": "Microsoft.EventGrid/topics", "apiVersion": "1", "name": "orders",
                "tags": {"team": "[parameters('team')]"}},
            {"type": "Microsoft.EventGrid/topics", "apiVersion": "1", "name": "bills",
                "tags": {"code": "[concat('n', length(parameters('code')))]"}},
        ],
        "outputs": {"key": {"type": "string",
            "value": "[listKeys(resourceId('Microsoft.EventGrid/topics', 'orders'), '1').key1]"}},
    });
    let parameters = json!({"code": {"value": "swordfish-1"}, "team": {"value": "a"}});
    let body = json!({"properties": {"mode": "Incremental", "template": template,
        "parameters": parameters}});
    assert_eq!(control.call("HEAD", path, Value::Null).await.status, 404);
    let deployed = control.call("PUT", path, body).await;
    assert_eq!(control.call("HEAD", path, Value::Null).await.status, 204);
    assert_eq!(deployed.status, 201, "{}", deployed.text);
    assert_eq!(
        deployed.json()["properties"]["provisioningState"],
        "Succeeded",
        "{}",
        deployed.text
    );
    let keys = control
        .call("POST", &format!("{RG}/topics/orders/listKeys"), Value::Null)
        .await
        .json();
    let key = keys["key1"].as_str().expect("a key").to_owned();
    let entries = trail(&control).await;
    let text = Value::from(entries.clone()).to_string();
    assert!(deployed.text.contains(&key), "{}", deployed.text);
    assert!(
        !text.contains("swordfish-1") && !text.contains(&key),
        "{text}"
    );
    let lines: Vec<String> = entries.iter().map(line).collect();
    assert_eq!(
        lines[1..],
        [
            "admin PUT main 201",
            "admin PUT orders 201",
            "admin PUT bills 201",
            "admin POST listKeys 200"
        ]
    );
    assert_eq!(
        entries[2]["changes"],
        json!([{"at": "tags.team", "before": null, "after": "a"}])
    );
    let has = |entry: &Value, at: &str| {
        let changes = entry["changes"].as_array().expect("a list");
        changes.iter().any(|change| change["at"] == at)
    };
    assert!(
        has(&entries[1], "properties.parameters.team.value"),
        "{}",
        entries[1]
    );
    assert!(has(&entries[3], "tags.code"), "{}", entries[3]);
    // A reader does not see outputs, which may contain access keys.
    let reader = token(
        &control,
        "reader",
        json!({"name": "reader", "roles": ["read"]}),
    )
    .await;
    let response = ask(&control, &reader, Method::GET, path, Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.text);
    assert!(!response.text.contains(&key), "{}", response.text);
}

#[actix_web::test]
async fn a_change_and_its_record_are_one_write() {
    let control = ControlFixture::audited(1_000);
    let push = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    let types = json!({"properties": {"description": "a"}});
    let mut has_actors = false;
    for (method, path, body) in [
        ("PUT", GROUP, json!({"location": "local"})),
        ("PATCH", GROUP, json!({"tags": {"a": "2"}})),
        ("DELETE", GROUP, Value::Null),
        ("PUT", "/topics/orders", json!({"tags": {"a": "1"}})),
        ("PATCH", "/topics/orders", json!({"tags": {"a": "2"}})),
        ("PUT", "/topics/orders/eventTypes/Order.Placed", types),
        (
            "DELETE",
            "/topics/orders/eventTypes/Order.Placed",
            Value::Null,
        ),
        (
            "POST",
            "/topics/orders/regenerateKey",
            json!({"keyName": "key1"}),
        ),
        ("PUT", "/domains/shops", json!({})),
        ("PUT", "/domains/shops/topics/berlin", json!({})),
        ("DELETE", "/domains/shops/topics/berlin", Value::Null),
        ("PUT", "/namespaces/plant", json!({})),
        ("PATCH", "/namespaces/plant", json!({"tags": {"a": "2"}})),
        ("PUT", "/namespaces/plant/topics/heat", json!({})),
        (
            "PATCH",
            "/namespaces/plant/topics/heat",
            json!({"properties": {"eventRetentionInDays": 1}}),
        ),
        (
            "POST",
            "/tokens",
            json!({"name": "reader", "roles": ["read"]}),
        ),
        ("DELETE", "/tokens/reader", Value::Null),
        ("PUT", "/topics/orders/eventSubscriptions/to-shop", hook()),
        (
            "PATCH",
            "/topics/orders/eventSubscriptions/to-shop",
            json!({"labels": ["b"]}),
        ),
        (
            "DELETE",
            "/topics/orders/eventSubscriptions/to-shop",
            Value::Null,
        ),
        (
            "PUT",
            "/namespaces/plant/topics/heat/eventSubscriptions/all",
            push.clone(),
        ),
        (
            "PATCH",
            "/namespaces/plant/topics/heat/eventSubscriptions/all",
            push,
        ),
        ("DELETE", "/namespaces/plant/topics/heat", Value::Null),
        ("DELETE", "/namespaces/plant", Value::Null),
        ("DELETE", "/topics/orders", Value::Null),
    ] {
        let whole = if path.starts_with("/tokens") || path == GROUP {
            path.to_owned()
        } else {
            format!("{RG}{path}")
        };
        let before = control.store.writes();
        let records = trail(&control).await.len();
        let response = control.call(method, &whole, body).await;
        assert!(
            (200..300).contains(&response.status),
            "{method} {path}: {}",
            response.brief()
        );
        let writes = control.store.writes() - before;
        // The actors of event subscriptions write, too.
        has_actors |= path.contains("eventSubscriptions");
        assert!(
            writes == 1 || has_actors,
            "{method} {path}: {writes} writes"
        );
        let entries = trail(&control).await;
        assert_eq!(entries.len(), records + 1, "{method} {path}");
        let last = entries.last().expect("a record");
        assert_eq!(last["status"], response.status, "{method} {path}");
        let shown = ["PUT", "PATCH", "DELETE"].contains(&method) && !path.starts_with("/tokens");
        let has_changes = !last["changes"].as_array().expect("a list").is_empty();
        let is_empty = method == "PATCH" && (path.ends_with("/all") || path.ends_with("/heat"));
        assert!(!shown || has_changes || is_empty, "{method} {path}: {last}");
    }
}

#[actix_web::test]
async fn refused_requests_of_a_valid_token_never_remove_a_change() {
    let control = ControlFixture::audited(30);
    let scoped = json!({"roles": ["portal"], "scopes": ["labels/team=shop"], "expires": "2021-03-11T00:00:00Z"});
    let portal = token(&control, "portal", scoped).await;
    let reader = token(&control, "reader", json!({"roles": ["read"]})).await;
    for number in 0..29 {
        control
            .call("PUT", &format!("{RG}/topics/topic-{number}"), json!({}))
            .await;
    }
    let changes = lines(&control).await;
    assert_eq!(
        changes.len(),
        30,
        "two tokens and 29 topics, of which 30 are kept"
    );
    for _ in 0..320 {
        assert_eq!(
            ask(&control, &portal, Method::DELETE, "/tokens/x", Value::Null)
                .await
                .status,
            403
        );
    }
    for name in ["one", "two"] {
        ask(
            &control,
            &reader,
            Method::DELETE,
            &format!("/tokens/{name}"),
            Value::Null,
        )
        .await;
    }
    let entries = trail(&control).await;
    let all: Vec<String> = entries.iter().map(line).collect();
    let refused: Vec<&String> = all.iter().filter(|line| line.ends_with(" 403")).collect();
    assert_eq!(
        refused,
        [
            "portal DELETE x 403",
            "reader DELETE one 403",
            "reader DELETE two 403"
        ],
        "a tenth"
    );
    assert_eq!(
        all.iter()
            .filter(|line| !line.ends_with(" 403"))
            .cloned()
            .collect::<Vec<_>>(),
        changes
    );
    // The next one that is recorded has the number of those that were not.
    control.hand.advance(Duration::from_secs(1));
    ask(&control, &portal, Method::DELETE, "/tokens/x", Value::Null).await;
    let entries = trail(&control).await;
    let last = entries
        .iter()
        .rev()
        .find(|entry| entry["operator"] == "portal")
        .expect("it is there");
    assert_eq!(last["suppressed"], 310);
}

#[actix_web::test]
async fn no_identity_removes_the_changes_of_another() {
    let control = ControlFixture::audited(20);
    let busy = token(&control, "busy", json!({"roles": ["admin"]})).await;
    for number in 0..5 {
        control
            .call("PUT", &format!("{RG}/topics/topic-{number}"), json!({}))
            .await;
    }
    for number in 0..100 {
        let body = json!({"tags": {"number": number.to_string()}});
        ask(
            &control,
            &busy,
            Method::PUT,
            &format!("{RG}/topics/busy"),
            body,
        )
        .await;
    }
    let counts = count_by_operator(&control).await;
    assert_eq!(
        counts,
        BTreeMap::from([("admin".to_owned(), 6), ("busy".to_owned(), 14)])
    );
}

#[actix_web::test]
async fn an_operator_that_is_no_administrator_loses_its_own_changes_first() {
    let control = ControlFixture::audited(20);
    let busy = token(
        &control,
        "busy",
        json!({"roles": ["admin"], "scopes": ["topics/busy"]}),
    )
    .await;
    for number in 0..15 {
        control
            .call("PUT", &format!("{RG}/topics/topic-{number}"), json!({}))
            .await;
    }
    for number in 0..100 {
        let body = json!({"tags": {"number": number.to_string()}});
        let response = ask(
            &control,
            &busy,
            Method::PUT,
            &format!("{RG}/topics/busy"),
            body,
        )
        .await;
        assert_eq!(response.status, 201, "{}", response.text);
    }
    let counts = count_by_operator(&control).await;
    assert_eq!(
        counts,
        BTreeMap::from([("admin".to_owned(), 16), ("busy".to_owned(), 4)])
    );
}

#[actix_web::test]
async fn sign_ins_are_recorded_and_end_sessions_of_their_own_identity_only() {
    let control = ControlFixture::audited(100);
    let sign_in = control.call("POST", "/ui/session", Value::Null).await;
    let cookie = sign_in.headers.get("Set-Cookie").expect("a cookie");
    let session = &session_bearer(cookie.to_str().ok(), &sign_in.json());
    let narrow = json!({"roles": ["read"], "scopes": ["topics/none"]});
    let reader = token(&control, "reader", narrow).await;
    for _ in 0..64 {
        assert_eq!(
            ask(&control, &reader, Method::POST, "/ui/session", Value::Null)
                .await
                .status,
            200
        );
    }
    let own = ask(&control, session, Method::GET, "/ui/session", Value::Null).await;
    assert_eq!(
        own.status, 200,
        "the administrator is signed in still: {}",
        own.text
    );
    let all = lines(&control).await;
    assert_eq!(
        all[..2],
        ["admin POST session 200", "admin POST tokens 201"]
    );
    assert_eq!(all[2..], vec!["reader POST session 200"; 9]);
    // An escaped letter is the same path.
    control.hand.advance(Duration::from_secs(60));
    assert_eq!(
        ask(
            &control,
            &reader,
            Method::POST,
            "/ui/sess%69on",
            Value::Null
        )
        .await
        .status,
        200
    );
    assert_eq!(
        lines(&control).await.last().map(String::as_str),
        Some("reader POST session 200")
    );
}

#[actix_web::test]
async fn a_change_that_cannot_be_written_is_no_change_and_is_recorded_later() {
    let control = ControlFixture::audited(100);
    control
        .call("PUT", &format!("{RG}/topics/orders"), json!({}))
        .await;
    let next = control.store.writes();
    control.store.fail(
        next..next + 1,
        crate::support::memory_store::WriteFault::Full,
    );
    let response = control
        .call(
            "PATCH",
            &format!("{RG}/topics/orders"),
            json!({"tags": {"a": "b"}}),
        )
        .await;
    assert_eq!(response.status, 503, "{}", response.text);
    take_turns().await;
    let entries = trail(&control).await;
    assert_eq!(
        entries.iter().map(line).collect::<Vec<_>>(),
        ["admin PUT orders 201", "admin PATCH orders 503"]
    );
    assert_eq!(entries[1]["changes"], json!([]));
}

#[actix_web::test]
async fn a_command_has_a_record_before_it_begins() {
    let subscription = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    for command in ["hold", "release", "retry", "unblock"] {
        let control = ControlFixture::audited(100).with_subscription().await;
        for command in ["hold", "resume"] {
            let path = format!("{subscription}/{command}");
            let response = control.call("POST", &path, Value::Null).await;
            assert_eq!(response.status, 200, "{}", response.text);
        }
        let first = control.store.writes();
        control.store.fail(
            first + 1..first + 2,
            crate::support::memory_store::WriteFault::Failed,
        );
        let body = if command == "retry" {
            json!({"all": true})
        } else {
            Value::Null
        };
        control
            .call("POST", &format!("{subscription}/{command}"), body)
            .await;
        let restarted = ControlFixture::audited_over(control.store.crash(0), 100);
        let lines = lines(&restarted).await;
        let record = format!("admin POST {command} 102");
        assert_eq!(lines.last(), Some(&record), "{lines:?}");
    }
}

#[actix_web::test]
async fn a_command_that_is_refused_never_removes_a_change() {
    let control = ControlFixture::audited(30).with_subscription().await;
    let operator = token(&control, "operator", json!({"roles": ["operate"]})).await;
    let changes = lines(&control).await;
    let pause = format!("{RG}/topics/orders/eventSubscriptions/to-shop/replays/9/pause");
    for _ in 0..40 {
        let response = ask(&control, &operator, Method::POST, &pause, Value::Null).await;
        assert!(
            (400..500).contains(&response.status),
            "{}",
            response.brief()
        );
    }
    let after = lines(&control).await;
    let (refused, others): (Vec<_>, Vec<_>) = after
        .into_iter()
        .partition(|line| line.starts_with("operator POST pause 4"));
    assert_eq!(others, changes);
    assert_eq!(refused.len(), 3, "a tenth of the limit");
}
