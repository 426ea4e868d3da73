//! `deliveryAttributeMappings`: how the control plane reads and returns them.

use expect_test::expect;
use gridhook::admin::model::subscription::subscription_view;
use gridhook::{
    admin::{
        ChaosMode,
        model::subscription::{PathForm, read_patch, read_put},
    },
    event::{Name, Schema},
    record::subscription::SubscriptionRecord,
};
use serde_json::{Value, json};

use super::{
    control::{ControlFixture, RG},
    ranges, topic_record,
};

fn body(schema: &str, mappings: &Value) -> Value {
    let webhook =
        json!({"endpointUrl": "http://127.0.0.1:9000/", "deliveryAttributeMappings": mappings});
    json!({"properties": {"destination": {"endpointType": "WebHook", "properties": webhook},
        "eventDeliverySchema": schema}})
}

fn take(schema: &str, mappings: &Value) -> Result<SubscriptionRecord, String> {
    let body = body(schema, mappings).to_string();
    read_put(
        &Name::new("to-shop"),
        &topic_record(Schema::EventGrid),
        None,
        &ranges(),
        body.as_bytes(),
    )
    .map_err(|error| error.to_string())
}

fn fixed(name: &str, value: &str, is_secret: bool) -> Value {
    json!({"name": name, "type": "Static", "properties": {"value": value, "isSecret": is_secret}})
}

fn dynamic(name: &str, field: &str) -> Value {
    json!({"name": name, "type": "Dynamic", "properties": {"sourceField": field}})
}

fn three() -> Value {
    json!([
        fixed("Authorization", "Bearer swordfish", true),
        fixed("X-Plain", "seen", false),
        dynamic("Channel", "data.system")
    ])
}

#[test]
fn secrets_are_kept_and_not_shown() {
    let record = take("EventGridSchema", &three()).expect("it is taken");
    let kept = serde_json::to_vec(&record).expect("it is JSON");
    let again: SubscriptionRecord =
        serde_json::from_slice(&kept).expect("the store reads what it wrote");
    assert_eq!(again.webhook, record.webhook);
    assert_eq!(
        serde_json::to_value(&record.webhook.delivery_properties).expect("it is JSON"),
        three()
    );
    assert!(!format!("{record:?}").contains("swordfish"), "{record:?}");
    let topic = topic_record(Schema::EventGrid);
    let reported = serde_json::to_value(subscription_view(&record, &topic, PathForm::Nested))
        .expect("it is JSON");
    let mut masked = three();
    masked[0]["properties"]["value"] = "Hidden".into();
    assert_eq!(
        reported["properties"]["destination"]["properties"]["deliveryAttributeMappings"],
        masked
    );
    // Without an existing secret there is nothing that "Hidden" could stand for.
    let refused = take("EventGridSchema", &masked).expect_err("the secret is not in it");
    expect![[r#"properties.destination.properties.deliveryAttributeMappings[0].properties.value is "Hidden", which stands for a secret that exists; the event subscription has none of this name"#]].assert_eq(&refused);
    // Read, changed and written back, whole or without the address: the secrets stay.
    for value in [json!("Hidden"), Value::Null, json!("absent")] {
        let mut mappings = masked.clone();
        match value.as_str() {
            Some("absent") => drop(
                mappings[0]["properties"]
                    .as_object_mut()
                    .expect("an object")
                    .remove("value"),
            ),
            _ => mappings[0]["properties"]["value"] = value,
        }
        let mut body = body("EventGridSchema", &mappings);
        drop(
            body["properties"]["destination"]["properties"]
                .as_object_mut()
                .expect("an object")
                .remove("endpointUrl"),
        );
        body["properties"]["labels"] = json!(["changed"]);
        let body = body.to_string();
        let again = read_put(
            &record.name,
            &topic,
            Some(&record),
            &ranges(),
            body.as_bytes(),
        )
        .expect("it is taken");
        assert_eq!(
            (&again.webhook, &again.labels[..]),
            (&record.webhook, &["changed".to_owned()][..])
        );
        let patch_body =
            json!({"destination": {"properties": {"deliveryAttributeMappings": mappings}}})
                .to_string();
        let patched =
            read_patch(&record, &topic, &ranges(), patch_body.as_bytes()).expect("it is taken");
        assert_eq!(patched.webhook, record.webhook);
    }
    let patched =
        read_patch(&record, &topic, &ranges(), br#"{"labels": ["x"]}"#).expect("it is taken");
    assert_eq!(patched.webhook, record.webhook);
    let none = br#"{"destination": {"properties": {"deliveryAttributeMappings": []}}}"#;
    let patched = read_patch(&record, &topic, &ranges(), none).expect("it is taken");
    assert!(patched.webhook.delivery_properties.is_empty());
    let bare = serde_json::to_string(&subscription_view(&patched, &topic, PathForm::Nested))
        .expect("it is JSON");
    assert!(!bare.contains("deliveryAttributeMappings"), "{bare}");
}

#[test]
fn ten_properties_are_taken_and_no_more() {
    let many = |count: usize| -> Value {
        (0..count)
            .map(|number| fixed(&format!("X-{number}"), "v", false))
            .collect()
    };
    let most = (1..20)
        .filter(|count| take("EventGridSchema", &many(*count)).is_ok())
        .max();
    crate::spec::fact("S000-218", &json!({"max": most}));
    expect![
        "properties.destination.properties.deliveryAttributeMappings has 11 entries; expected \
         at most 10"
    ]
    .assert_eq(&take("EventGridSchema", &many(11)).expect_err("one too many"));
}

#[test]
fn a_property_that_cannot_be_is_refused_and_its_value_not_repeated() {
    let grid = "EventGridSchema";
    let bad = [
        (grid, json!(["swordfish"])),
        (
            grid,
            json!([{"name": "X", "type": "Static", "properties": "swordfish"}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Static", "value": "swordfish"}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "swordfish", "properties": {}}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Static", "properties": {"isSecret": true}}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Static", "properties": {"value": ["swordfish"]}}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Static", "properties": {"value": "v", "isSecret": "swordfish"}}]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Static", "properties": {"value": "v", "secret": "swordfish"}}]),
        ),
        (grid, json!([fixed("X", "swordfish\r\nHost: y", true)])),
        (grid, json!([fixed("X", "", true)])),
        (grid, json!([fixed("X", &"swordfish".repeat(500), true)])),
        (grid, json!([fixed("X", "a", true), dynamic("x", "data.a")])),
        (grid, json!([fixed("aeg-event-type", "swordfish", true)])),
        (grid, json!([fixed("a b", "swordfish", true)])),
        (
            "CloudEventSchemaV1_0",
            json!([fixed("ce-id", "swordfish", true)]),
        ),
        (
            grid,
            json!([{"name": "X", "type": "Dynamic", "properties": {}}]),
        ),
        (grid, json!([dynamic("X", "source")])),
        (
            grid,
            json!([{"name": "X", "type": "Dynamic", "properties": {"sourceField": "data.x", "value": "swordfish"}}]),
        ),
    ];
    let lines: Vec<String> = bad
        .iter()
        .map(|(schema, mappings)| take(schema, mappings).expect_err(&mappings.to_string()))
        .collect();
    let text = lines.join("\n").replace(
        "properties.destination.properties.deliveryAttributeMappings",
        "…",
    );
    assert!(!text.contains("swordfish"), "{text}");
    expect![[r#"
        …[0] is not an object; expected an object
        …[0].properties is not an object; expected an object
        …[0].value cannot be read: unknown field `value`, expected one of `name`, `type`, `properties`
        …[0].type is unknown; expected Static or Dynamic
        …[0].properties.value is missing; a secret may be left out only where the event subscription has one of this name
        …[0].properties.value is not a string; expected a string
        …[0].properties.isSecret is not a boolean; expected true or false
        …[0].properties.secret is no member of Static; leave it out
        …[0].properties.value has a character in it that a header cannot carry; expected printable ASCII characters, without a space at either end
        …[0].properties.value has 0 bytes; expected 1 to 4096
        …[0].properties.value has 4500 bytes; expected 1 to 4096
        …[1].name is "x" for a second time; a header has one value
        …[0].name is "aeg-event-type", which is not allowed: names that begin with aeg- are Event Grid's own
        …[0].name is "a b"; expected 1 to 128 letters, digits and any of !#$%&'*+-.^_`|~
        …[0].name is "ce-id", which is not allowed: names that begin with ce- are attributes of a CloudEvent
        …[0].properties.sourceField is missing, or not a string; expected the name of a property, such as data.total
        …[0].properties.sourceField is "source"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema
        …[0].properties.value is no member of Dynamic; leave it out"#]].assert_eq(&text);
    take(grid, &json!([fixed("ce-id", "v", false)]))
        .expect("only CloudEvents have headers of that name");
}

#[actix_web::test]
async fn secrets_are_returned_by_their_own_call_only() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = format!("{RG}/topics/orders");
    let hook = format!("{topic}/eventSubscriptions/to-shop");
    let mut reported = vec![control.call("PUT", &topic, json!({})).await];
    reported.push(
        control
            .call("PUT", &hook, body("EventGridSchema", &three()))
            .await,
    );
    reported.push(control.call("GET", &hook, Value::Null).await);
    reported.push(control.call("PATCH", &hook, json!({"labels": ["x"]})).await);
    reported.push(
        control
            .call("GET", &format!("{topic}/eventSubscriptions"), Value::Null)
            .await,
    );
    reported.push(
        control
            .call("GET", &format!("{hook}/status"), Value::Null)
            .await,
    );
    reported.push(
        control
            .call("POST", &format!("{hook}/getFullUrl"), Value::Null)
            .await,
    );
    for response in reported {
        assert!(
            response.status < 300 && !response.text.contains("swordfish"),
            "{}",
            response.brief()
        );
    }
    let attributes = control
        .call(
            "POST",
            &format!("{hook}/getDeliveryAttributes"),
            Value::Null,
        )
        .await;
    assert_eq!(attributes.json(), json!({"value": three()}));
}
