//! Tests of a draft filter.

use expect_test::expect;
use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, Response, hook};

const VERB: &str = "/topics/orders/eventSubscriptions/to-shop/testFilter";

async fn control(schema: &str) -> ControlFixture {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = json!({"properties": {"inputSchema": schema}});
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/orders"), topic)
            .await
            .status,
        201
    );
    let body = json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9000/"}},
        "filter": {"includedEventTypes": ["Made"], "subjectBeginsWith": "/a", "advancedFilters": [
            {"operatorType": "IsNotNull", "key": "data.total"},
            {"operatorType": "NumberGreaterThan", "key": "data.total", "value": 100}]}}});
    let hook = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    assert_eq!(control.call("PUT", &hook, body).await.status, 201);
    control
}

async fn ask(control: &ControlFixture, body: Value) -> Response {
    control.call("POST", &format!("{RG}{VERB}"), body).await
}

fn event(id: &str, kind: &str, subject: &str, data: Value) -> Value {
    json!({"id": id, "eventType": kind, "subject": subject, "data": data, "eventTime": "2026-11-20T12:00:00Z", "dataVersion": "1"})
}

#[actix_web::test]
async fn the_report_names_the_part_of_the_filter_that_stops_each_event() {
    let control = control("EventGridSchema").await;
    let events = json!([
        event("1", "made", "/A/1", json!({"total": 100.01})),
        event("2", "Lost", "/a/1", json!({"total": 101})),
        event("3", "Made", "/b/1", json!({"total": 101})),
        event("4", "Made", "/a/1", json!({"total": 100})),
        event("5", "Made", "/a/1", json!({})),
        event("6", "Made", "/a/1", json!({"total": [1, 2]})),
    ]);
    let response = ask(&control, events.clone()).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let pretty = |response: &Response| {
        let lines: Vec<String> = response.json()["results"]
            .as_array()
            .expect("results")
            .iter()
            .map(Value::to_string)
            .collect();
        lines.join("\n")
    };
    expect![[r#"
        {"id":"1","matches":true}
        {"id":"2","matches":false,"reason":"the event type is not among them","stoppedBy":"includedEventTypes","value":"\"Lost\""}
        {"id":"3","matches":false,"reason":"the subject begins otherwise","stoppedBy":"subjectBeginsWith","value":"\"/b/1\""}
        {"id":"4","matches":false,"reason":"the value is not what the operator asks for","stoppedBy":"advancedFilters[1] (NumberGreaterThan data.total)","value":"100"}
        {"id":"5","matches":false,"reason":"the event has nothing at this key","stoppedBy":"advancedFilters[0] (IsNotNull data.total)"}
        {"id":"6","matches":false,"reason":"the value is an array, and enableAdvancedFilteringOnArrays is not true","stoppedBy":"advancedFilters[1] (NumberGreaterThan data.total)","value":"[1,2]"}"#]].assert_eq(&pretty(&response));
    assert_eq!(
        (&response.json()["tested"], &response.json()["matched"]),
        (&json!(6), &json!(1))
    );
    let thought = ask(
        &control,
        json!({"filter": {"subjectEndsWith": "/1"}, "events": events}),
    )
    .await;
    assert_eq!(thought.json()["matched"], 6);
    let draft = json!({"advancedFilters": [{"operatorType": "NUMBERgreaterthan", "key": "data.total", "value": 100}]});
    let thought = ask(&control, json!({"filter": draft, "events": events})).await;
    assert_eq!(
        (thought.status, &thought.json()["matched"]),
        (200, &json!(3)),
        "{}",
        thought.text
    );
    let single = ask(&control, event("7", "Made", "/a/", json!({"total": 1e3}))).await;
    assert_eq!(
        single.json(),
        json!({"tested": 1, "matched": 1, "results": [{"id": "7", "matches": true}]})
    );
}

#[actix_web::test]
async fn cloud_events_are_tried_as_well() {
    let control = control("CloudEventSchemaV1_0").await;
    let event = json!({"specversion": "1.0", "id": "c", "source": "/s", "type": "MADE", "subject": "/a", "ext": "x", "data": {"total": 5}});
    let filter =
        json!({"advancedFilters": [{"operatorType": "StringIn", "key": "ext", "values": ["X"]}]});
    let response = ask(&control, json!({"filter": filter, "events": event})).await;
    assert_eq!(response.json()["matched"], 1, "{}", response.text);
    let response = ask(&control, json!([event])).await;
    assert_eq!(
        response.json()["results"][0]["stoppedBy"],
        "advancedFilters[1] (NumberGreaterThan data.total)"
    );
}

#[actix_web::test]
async fn a_filter_that_cannot_be_tested_is_refused() {
    let control = control("EventGridSchema").await;
    let bodies = [
        json!("x"),
        json!({}),
        json!([{"id": "1"}]),
        json!({"filter": {}}),
        json!({"last": 0}),
        json!({"last": 1001}),
        json!({"last": "all"}),
        json!({"last": 1, "events": []}),
        json!({"last": 1, "filter": {"advancedFilters": [{"operatorType": "IsNotNull", "key": "nowhere"}]}}),
        json!({"last": 1, "filter": {"subjectContains": "x"}}),
    ];
    let mut lines = Vec::new();
    for body in bodies {
        let response = ask(&control, body).await;
        lines.push(format!(
            "{} {}",
            response.status,
            response.json()["error"]["message"]
        ));
    }
    expect![[r#"
        400 "events would be refused: This resource is configured to receive event in 'EventGridEvent' schema. The JSON received does not conform to the expected schema. Token Expected: StartObject, Actual Token Received: String."
        400 "events would be refused: This resource is configured for 'EventGridEvent' schema and requires 'subject' property to be set."
        400 "events would be refused: This resource is configured for 'EventGridEvent' schema and requires 'subject' property to be set."
        400 "the body has no events to test; add events, or last: 1 to 1000 newest events."
        400 "last is 0; expected 1 to 1000."
        400 "last is 1001; expected 1 to 1000."
        400 "last is \"all\"; expected 1 to 1000."
        400 "last and events are both given; leave one of them out."
        400 "filter.advancedFilters[0].key is \"nowhere\"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema."
        400 "filter.subjectContains cannot be read: unknown field `subjectContains`, expected one of `subjectBeginsWith`, `subjectEndsWith`, `includedEventTypes`, `isSubjectCaseSensitive`, `advancedFilters`, `enableAdvancedFilteringOnArrays`.""#]].assert_eq(&lines.join("\n"));
    let empty = ask(&control, json!({"last": 10})).await;
    assert_eq!(
        empty.json(),
        json!({"tested": 0, "matched": 0, "results": []})
    );
    let nobody = format!("{RG}/topics/orders/eventSubscriptions/none/testFilter");
    assert_eq!(
        control
            .call("POST", &nobody, json!({"last": 1}))
            .await
            .status,
        404
    );
    let read = control
        .call("GET", &format!("{RG}{VERB}"), Value::Null)
        .await;
    assert_eq!(read.status, 405, "{}", read.text);
}

#[actix_web::test]
async fn a_filter_is_tried_where_its_subscription_hangs() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let domain = format!("{RG}/domains/shop");
    assert_eq!(control.call("PUT", &domain, json!({})).await.status, 201);
    let mut body = hook();
    body["properties"]["destination"]["properties"]["deliveryAttributeMappings"] =
        json!([{"name": "k", "type": "Static", "properties": {"value": "v", "isSecret": true}}]);
    assert_eq!(
        control
            .call(
                "PUT",
                &format!("{domain}/topics/north/eventSubscriptions/all"),
                body
            )
            .await
            .status,
        201
    );
    let event = |topic: &str| json!({"id": topic, "topic": topic, "subject": "", "eventType": "T", "eventTime": "2026-01-01T00:00:00Z", "dataVersion": ""});
    let events = json!([event("North"), event("south")]);
    let mut lines = Vec::new();
    for asked in [
        events.clone(),
        json!({"filter": {"subjectBeginsWith": "/a"}, "events": events}),
    ] {
        let path = format!("{domain}/topics/north/eventSubscriptions/all/testFilter");
        lines.push(control.call("POST", &path, asked).await.brief());
    }
    let path =
        format!("{domain}/topics/north/providers/Microsoft.EventGrid/eventSubscriptions/all");
    lines.push(
        control
            .call(
                "POST",
                &format!("{path}/getDeliveryAttributes"),
                Value::Null,
            )
            .await
            .brief(),
    );
    let status = control
        .call("GET", &format!("{path}/status"), Value::Null)
        .await
        .json();
    lines.push(format!(
        "{} {} {}",
        status["topic"], status["domainTopic"], status["subscription"]
    ));
    expect![[r#"
        200 {"tested":2,"matched":1,"results":[{"id":"North","matches":true},{"id":"south","matches":false,"stoppedBy":"domainTopic","reason":"the event is for another topic of the domain","value":"\"south\""}]}
        200 {"tested":2,"matched":0,"results":[{"id":"North","matches":false,"stoppedBy":"subjectBeginsWith","reason":"the subject begins otherwise","value":"\"\""},{"id":"south","matches":false,"stoppedBy":"domainTopic","reason":"the event is for another topic of the domain","value":"\"south\""}]}
        200 {"value":[{"name":"k","type":"Static","properties":{"value":"v","isSecret":true}}]}
        "shop" "north" "all""#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn what_a_transformation_makes_of_all_events_is_bounded() {
    let control = control("EventGridSchema").await;
    let long = "x".repeat(5_000);
    let events: Vec<Value> = (0..40)
        .map(|number| event(&number.to_string(), "Made", "/a", json!(long)))
        .collect();
    let copies = vec!["@"; 190].join(",");
    let body = json!({"events": events, "transform": {"body": format!("[{copies}]")}});
    let path = format!("{RG}/topics/orders/eventSubscriptions/to-shop/testTransform");
    let response = control.call("POST", &path, body).await;
    assert_eq!(response.status, 400, "{}", response.text);
    assert!(
        response
            .text
            .contains("needs more than 33554432 bytes of memory"),
        "{}",
        response.text
    );
    let few = json!({"events": events[..3], "transform": {"body": format!("[{copies}]")}});
    let response = control.call("POST", &path, few).await;
    assert_eq!(
        (response.status, &response.json()["tested"]),
        (200, &json!(3)),
        "{}",
        response.text
    );
}

#[actix_web::test]
async fn a_schema_without_a_bound_is_refused_by_name_and_in_a_preview() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/orders"), json!({}))
            .await
            .status,
        201
    );
    let nested = (0..26).fold(
        json!({}),
        |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
    );
    let body =
        json!({"properties": {"versions": {"1": {"schema": nested, "examples": [{"a": 1}]}}}});
    let path = format!("{RG}/topics/orders/eventTypes/Order.Placed");
    for path in [path.clone(), format!("{path}?whatIf=true")] {
        let response = control.call("PUT", &path, body.clone()).await;
        assert_eq!(response.status, 400, "{}", response.text);
        let named =
            "properties.eventTypeInfo.inlineEventTypes.Order.Placed.versions.1.schema could take";
        assert!(
            response.text.contains(named) && response.text.contains("unevaluatedProperties"),
            "{}",
            response.text
        );
    }
    let sound = json!({"properties": {"versions": {"1": {"schema": {"type": "object"}, "examples": [{"a": 1}]}}}});
    assert_eq!(control.call("PUT", &path, sound).await.status, 201);
}
