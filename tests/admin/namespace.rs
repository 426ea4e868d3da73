//! Namespaces and their topics over HTTP, against a registry in memory.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

fn place(name: &str) -> String {
    format!("{RG}/namespaces/{name}")
}

async fn control() -> ControlFixture {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let body =
        json!({"location": "here", "sku": {"name": "Standard", "capacity": 2}, "tags": {"a": "b"}});
    assert_eq!(control.call("PUT", &place("plant"), body).await.status, 201);
    assert_eq!(
        control
            .call("PUT", &place("plant/topics/heat"), json!({}))
            .await
            .status,
        201
    );
    control
}

#[actix_web::test]
async fn statuses_are_those_that_every_client_accepts() {
    let control = control().await;
    let topic = "plant/topics/heat";
    for (method, path, body, expected) in [
        ("PUT", "plant", json!({"location": "local"}), 201),
        ("PATCH", "plant", json!({"tags": {"c": "d"}}), 200),
        ("GET", "plant", Value::Null, 200),
        ("POST", "plant/listKeys", Value::Null, 200),
        (
            "POST",
            "plant/regenerateKey",
            json!({"keyName": "key2"}),
            200,
        ),
        (
            "PUT",
            topic,
            json!({"properties": {"eventRetentionInDays": 7}}),
            201,
        ),
        (
            "PATCH",
            topic,
            json!({"properties": {"eventRetentionInDays": 2}}),
            200,
        ),
        ("GET", topic, Value::Null, 200),
        ("GET", "PLANT/Topics/HEAT", Value::Null, 200),
        ("POST", "plant/topics/heat/listKeys", Value::Null, 200),
        (
            "POST",
            "plant/topics/heat/regenerateKey",
            json!({"keyName": "key1"}),
            200,
        ),
        ("GET", "plant/topics/heat/status", Value::Null, 200),
        ("GET", "plant/topics", Value::Null, 200),
        ("GET", "plant/topics/cold", Value::Null, 404),
        ("PUT", "none/topics/cold", json!({}), 404),
        ("DELETE", topic, Value::Null, 204),
        ("DELETE", topic, Value::Null, 204),
        ("DELETE", "plant", Value::Null, 204),
        ("DELETE", "plant", Value::Null, 204),
        ("GET", "plant", Value::Null, 404),
        ("POST", "plant", Value::Null, 405),
    ] {
        let response = control.call(method, &place(path), body).await;
        assert_eq!(
            response.status, expected,
            "{method} {path}: {}",
            response.text
        );
    }
}

#[actix_web::test]
async fn the_view_of_a_namespace_has_what_was_set_and_its_endpoint() {
    let control = control().await;
    let reported = control
        .call("GET", &place("Plant"), Value::Null)
        .await
        .json();
    assert_eq!(reported["id"], place("plant"));
    assert_eq!(reported["type"], "Microsoft.EventGrid/namespaces");
    assert_eq!(reported["sku"], json!({"name": "Standard", "capacity": 2}));
    assert_eq!(reported["location"], "here");
    let properties = &reported["properties"];
    assert_eq!(properties["provisioningState"], "Succeeded");
    assert_eq!(properties["endpoint"], "http://here/namespaces/plant");
    assert_eq!(
        properties["topicsConfiguration"],
        json!({"hostname": "here/namespaces/plant"})
    );
    assert!(!reported.to_string().contains("key"), "{reported}");
    // The response of a GET is a valid body of a PUT.
    let mut again = control
        .call("PUT", &place("plant"), reported.clone())
        .await
        .json();
    // Each change is later than the one before.
    again["systemData"]["lastModifiedAt"] = reported["systemData"]["lastModifiedAt"].clone();
    assert_eq!(again, reported);
    control
        .call(
            "PATCH",
            &place("plant"),
            json!({"tags": {"c": "d"}, "identity": {"type": "SystemAssigned"}}),
        )
        .await;
    let changed = control
        .call("GET", &place("plant"), Value::Null)
        .await
        .json();
    assert_eq!(
        (&changed["tags"], &changed["location"]),
        (&json!({"c": "d"}), &json!("here"))
    );
    assert!(changed["identity"]["principalId"].is_string(), "{changed}");
}

#[actix_web::test]
async fn the_view_of_a_namespace_topic_is_below_its_namespace() {
    let control = control().await;
    let mut reported = control
        .call("GET", &place("plant/topics/heat"), Value::Null)
        .await
        .json();
    reported
        .as_object_mut()
        .expect("an object")
        .remove("systemData");
    assert_eq!(
        reported,
        json!({
            "id": place("plant/topics/heat"), "name": "heat", "type": "Microsoft.EventGrid/namespaces/topics",
            "properties": {
                "provisioningState": "Succeeded", "publisherType": "Custom", "inputSchema": "CloudEventSchemaV1_0",
                "eventRetentionInDays": 1, "edition": "namespace",
            },
        })
    );
    let list = control
        .call("GET", &place("plant/topics"), Value::Null)
        .await
        .json();
    let mut listed = list.clone();
    listed["value"][0]
        .as_object_mut()
        .expect("an object")
        .remove("systemData")
        .expect("who made it");
    assert_eq!(listed, json!({"value": [reported]}));
    // A topic of the same name that is in no namespace is another one, and in no list of these.
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/heat"), json!({}))
            .await
            .status,
        201
    );
    assert_eq!(
        control
            .call("GET", &place("plant/topics"), Value::Null)
            .await
            .json(),
        list
    );
    let topics = control
        .call("GET", &format!("{RG}/topics"), Value::Null)
        .await
        .json();
    assert_eq!(topics["value"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        control
            .call("DELETE", &place("plant"), Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        control
            .call("GET", &format!("{RG}/topics/heat"), Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(
        control.registry.list_topics().len(),
        1,
        "topics go with their namespace"
    );
}

#[actix_web::test]
async fn limits_of_throughput_units_are_stored_and_returned() {
    let control = control().await;
    let scaling = json!({"enableAutoScale": "true", "minimumThroughputUnits": 1, "maximumThroughputUnits": 10});
    let body = json!({"properties": {"autoScaleConfiguration": scaling}});
    let changed = control.call("PUT", &place("plant"), body.clone()).await;
    assert_eq!(changed.status, 201, "{}", changed.text);
    let patch = json!({"tags": {"a": "b"}});
    control.call("PATCH", &place("plant"), patch).await;
    let response = control.call("GET", &place("plant"), Value::Null).await;
    assert_eq!(
        response.json()["properties"]["autoScaleConfiguration"],
        json!({"enableAutoScale": true, "minimumThroughputUnits": 1, "maximumThroughputUnits": 10})
    );
}

#[actix_web::test]
async fn a_refused_value_is_reported_with_the_allowed_ones() {
    let control = control().await;
    for (path, body, target, allowed) in [
        ("ab", json!({}), "the namespace's name", "3 to 50 letters"),
        (
            "system-x",
            json!({}),
            "the namespace's name",
            "reserved by Event Grid",
        ),
        (
            "plant",
            json!({"sku": {"capacity": 41}}),
            "sku.capacity",
            "1 to 40",
        ),
        (
            "plant",
            json!({"properties": {"autoScaleConfiguration": {"maximumThroughputUnits": 41}}}),
            "properties.autoScaleConfiguration.maximumThroughputUnits",
            "1 to 40",
        ),
        (
            "plant",
            json!({"sku": {"name": "Basic"}}),
            "sku.name",
            "Standard",
        ),
        (
            "plant",
            json!({"properties": {"topicSpacesConfiguration": {"state": "Enabled"}}}),
            "properties.topicSpacesConfiguration",
            "MQTT",
        ),
        (
            "plant",
            json!({"properties": {"inputSchema": "x"}}),
            "properties.inputSchema",
            "unknown field",
        ),
        (
            "plant/topics/heat",
            json!({"properties": {"eventRetentionInDays": 8}}),
            "properties.eventRetentionInDays",
            "1 to 7",
        ),
        (
            "plant/topics/heat",
            json!({"properties": {"inputSchema": "EventGridSchema"}}),
            "properties.inputSchema",
            "CloudEventSchemaV1_0",
        ),
        (
            "plant/topics/heat",
            json!({"properties": {"publisherType": "Partner"}}),
            "properties.publisherType",
            "Custom",
        ),
        ("plant/topics/h", json!({}), "the topic's name", "3 to 50"),
        (
            "plant/topics/heat",
            json!({"properties": {"edition": "9"}}),
            "properties.edition",
            "namespace",
        ),
    ] {
        let response = control.call("PUT", &place(path), body.clone()).await;
        let error = response.json()["error"].clone();
        assert_eq!(
            (response.status, error["target"].as_str()),
            (400, Some(target)),
            "{body}: {error}"
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| message.contains(allowed)),
            "{body}: {error}"
        );
    }
    let elsewhere = place("plant").replace("/rg/", "/other/");
    let response = control.call("PUT", &elsewhere, json!({})).await;
    assert_eq!(response.status, 409, "{}", response.text);
    assert_eq!(
        control.call("GET", &elsewhere, Value::Null).await.status,
        404
    );
}

#[actix_web::test]
async fn keys_are_returned_by_their_own_calls_only_and_made_anew() {
    let control = control().await;
    for of in ["plant", "plant/topics/heat"] {
        let before = control
            .call("POST", &place(&format!("{of}/listKeys")), Value::Null)
            .await
            .json();
        let body = json!({"keyName": "key2"});
        let after = control
            .call("POST", &place(&format!("{of}/regenerateKey")), body)
            .await
            .json();
        assert_eq!(before["key1"], after["key1"]);
        assert_ne!(before["key2"], after["key2"]);
        assert_eq!(
            control
                .call("POST", &place(&format!("{of}/listKeys")), Value::Null)
                .await
                .json(),
            after
        );
    }
}

/// Resource ids of a namespace topic, whose namespace is made, a topic and a domain.
async fn topics_of_each_kind(control: &ControlFixture) -> [String; 3] {
    control
        .call("PUT", &place("plant"), json!({"location": "local"}))
        .await;
    let provider = place("").replace("namespaces/", "");
    [
        place("plant/topics/heat"),
        format!("{provider}topics/orders"),
        format!("{provider}domains/shop"),
    ]
}

#[actix_web::test]
async fn the_window_of_duplicate_detection_is_set_kept_and_removed() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for topic in topics_of_each_kind(&control).await {
        let key = "duplicateDetectionHistoryTimeWindow";
        for (method, properties, window) in [
            ("PUT", json!({key: "PT20S"}), json!("PT20S")),
            ("PATCH", json!({"edition": "current"}), json!("PT20S")),
            ("PATCH", json!({key: "p7d"}), json!("P7D")),
            ("PATCH", json!({key: null}), Value::Null),
            ("PATCH", json!({key: "PT90M1S"}), json!("PT1H30M1S")),
            ("PUT", json!({}), Value::Null),
        ] {
            let response = control
                .call(method, &topic, json!({"properties": properties}))
                .await;
            let body = response.json();
            assert_eq!(
                body["properties"][key], window,
                "{method} {topic} {properties} {body}"
            );
        }
        for window in ["PT19S", "P7DT1S", "PT20.5S", "P1M", "20 s", "-PT1M"] {
            let body = control
                .call("PATCH", &topic, json!({"properties": {key: window}}))
                .await
                .json()
                .to_string();
            assert!(
                body.contains("properties.duplicateDetectionHistoryTimeWindow is"),
                "{window}: {body}"
            );
        }
    }
}

#[actix_web::test]
async fn a_patch_keeps_the_event_types_that_were_put_one_by_one() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for topic in topics_of_each_kind(&control).await {
        control.call("PUT", &topic, json!({"properties": {}})).await;
        let event_type = format!("{topic}/eventTypes/Order.Placed");
        let put = control
            .call("PUT", &event_type, json!({"properties": {}}))
            .await;
        assert!(put.status < 300, "{event_type}: {}", put.text);
        for (method, properties) in [("PATCH", json!({"edition": "current"})), ("PUT", json!({}))] {
            let changed = control
                .call(method, &topic, json!({"properties": properties}))
                .await;
            assert!(changed.status < 300, "{method} {topic}: {}", changed.text);
            let kept = control.call("GET", &event_type, json!({})).await;
            assert_eq!(kept.status, 200, "{method} {topic}: {}", kept.text);
        }
    }
}
