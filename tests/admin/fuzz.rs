//! Changed bodies of the control plane, and changed `$filter`s: each is accepted, or refused with a
//! known code and a short message. What was accepted is returned and can be put again.

use gridhook::admin::{ChaosMode, model::odata::NameFilter};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};
use crate::support::fuzz::{cases, changed, changes};

/// A body in which everything is that can be.
fn full() -> Value {
    json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {
            "endpointUrl": "http://127.0.0.1:9000/hook?code=secret", "maxEventsPerBatch": 10, "preferredBatchSizeInKilobytes": 64,
            "deliveryAttributeMappings": [
                {"name": "x-static", "type": "Static", "properties": {"value": "a", "isSecret": true}},
                {"name": "x-dynamic", "type": "Dynamic", "properties": {"sourceField": "data.a"}}],
            "signing": {"secrets": ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]}}},
        "filter": {"includedEventTypes": ["A", "B"], "subjectBeginsWith": "/a", "subjectEndsWith": "z", "isSubjectCaseSensitive": true,
            "enableAdvancedFilteringOnArrays": true,
            "advancedFilters": [
                {"operatorType": "NumberIn", "key": "data.n", "values": [1, 2.5, -3e4]},
                {"operatorType": "NumberInRange", "key": "data.n", "values": [[1, 2], [3, 4]]},
                {"operatorType": "StringContains", "key": "subject", "values": ["x"]},
                {"operatorType": "BoolEquals", "key": "data.b", "value": true},
                {"operatorType": "IsNotNull", "key": "data.a.b"}]},
        "retryPolicy": {"maxDeliveryAttempts": 10, "eventTimeToLiveInMinutes": 60},
        "deadLetterDestination": {"endpointType": "StorageBlob", "properties": {"resourceId": "/r", "blobContainerName": "letters"}},
        "expirationTimeUtc": "2030-01-31T12:00:00Z", "labels": ["a"], "eventDeliverySchema": "EventGridSchema"}})
}

/// Replacements for any value.
fn values() -> [Value; 22] {
    [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("a\r\nb"),
        json!("\u{0}"),
        json!("\u{10ffff}"),
        json!("x".repeat(10_000)),
        json!("http://[::1"),
        json!("http://127.0.0.1:1/"),
        json!([]),
        json!({}),
        json!([[]]),
        json!([1, "a", null]),
        json!({"a": {"b": []}}),
        json!(vec![json!("a"); 1_000]),
    ]
}

/// Puts `value` at the place that `path` names.
fn put(into: &mut Value, path: &mut dyn Iterator<Item = Index>, value: Value) {
    let next = path.next();
    let inner = match (into, next) {
        (place, None) => {
            *place = value;
            return;
        }
        (Value::Object(members), Some(at)) if !members.is_empty() => {
            let count = members.len();
            members.values_mut().nth(at.index(count))
        }
        (Value::Array(items), Some(at)) if !items.is_empty() => {
            let count = items.len();
            items.get_mut(at.index(count))
        }
        (place, Some(_)) => {
            *place = value;
            return;
        }
    };
    if let Some(inner) = inner {
        put(inner, path, value);
    }
}

const CODES: [&str; 5] = [
    "InvalidRequest",
    "ResourceNotFound",
    "Conflict",
    "RequestEntityTooLarge",
    "NotFound",
];

async fn check(control: &ControlFixture, body: &[u8]) -> Result<(), TestCaseError> {
    let path = format!("{RG}/topics/orders/eventSubscriptions/fuzzed");
    let response = control.put_bytes(&path, body).await;
    prop_assert!(
        response.text.len() < 64 * 1024,
        "{} bytes",
        response.text.len()
    );
    if response.status >= 300 {
        let code = response.json()["error"]["code"].clone();
        prop_assert!(
            (400..500).contains(&response.status) && CODES.iter().any(|known| code == *known),
            "{}",
            response.brief()
        );
        prop_assert!(
            response.text.len() < 16 * 1024,
            "{} bytes of a complaint",
            response.text.len()
        );
        prop_assert!(
            !response.text.contains("code=secret") && !response.text.contains("MDEyMzQ1"),
            "{}",
            response.text
        );
        return Ok(());
    }
    prop_assert!(!response.text.contains("code=secret"), "{}", response.text);
    // The response is accepted again, except for what it leaves out.
    let mut reported = control.call("GET", &path, Value::Null).await.json();
    reported["properties"]["destination"]["properties"]["endpointUrl"] =
        "http://127.0.0.1:9000/".into();
    for name in ["deliveryAttributeMappings", "signing"] {
        reported["properties"]["destination"]["properties"]
            .as_object_mut()
            .expect("an object")
            .remove(name);
    }
    let again = control.call("PUT", &path, reported.clone()).await;
    prop_assert!(again.status < 300, "{} after {}", again.brief(), reported);
    Ok(())
}

#[test]
fn bodies_with_values_or_bytes_changed_are_taken_or_refused_by_name() {
    let system = actix_rt::System::new();
    let control =
        system.block_on(async { ControlFixture::new(ChaosMode::Disabled).with_topic().await });
    system
        .block_on(check(&control, full().to_string().as_bytes()))
        .expect("the whole body is taken");
    let path = || prop::collection::vec(any::<Index>(), 1..8);
    let strategy = (
        prop::collection::vec((path(), any::<Index>()), 0..4),
        prop::option::weighted(0.3, changes(2)),
    );
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases(300)));
    let checked = runner.run(&strategy, |(twists, bytes)| {
        let mut body = full();
        for (path, value) in twists {
            let values = values();
            put(
                &mut body,
                &mut path.into_iter(),
                values[value.index(values.len())].clone(),
            );
        }
        let body = body.to_string().into_bytes();
        let body = bytes.map_or(body.clone(), |bytes| changed(&body, &bytes));
        system.block_on(check(&control, &body))
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2_000)))]

    #[test]
    fn a_filter_of_names_is_read_or_refused(text in r"(not |and |or |\(|\)|name|eq|ne|contains|,|'[a-z']{0,3}'| ){0,40}") {
        if let Ok(names) = NameFilter::read(&text) {
            // Names are compared without case.
            prop_assert_eq!(names.matches_name("orders"), names.matches_name("ORDERS"));
        }
    }
}
