//! The preview of a deployment, which changes nothing.

use serde_json::{Value, json};

use super::{GROUP, PROVIDER, SECRET, body, deploy, parameters, path, server, template};
use crate::support::sink::Sink;

#[test]
fn a_validation_and_a_preview_change_nothing() {
    let server = server(&[("DEPLOYMENTS__IGNORE_FOREIGN", "true")]);
    let sink = Sink::start();
    let mut template = template();
    template["resources"].as_array_mut().expect("a list").push(
        json!({"type": "Microsoft.Logic/workflows", "apiVersion": "1", "name": "flow", "properties": {}}),
    );
    let whole = body(&template, &parameters(&sink.url("/billing")));
    let ask = |verb: &str, whole: &Value| {
        server.admin("POST", &format!("{}/{verb}", path("main")), whole)
    };
    let valid = ask("validate", &whole);
    assert_eq!(valid.status, 200, "{}", valid.text());
    assert_eq!(
        valid.json()["properties"]["validatedResources"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(
        valid.json()["properties"]["diagnostics"][0]["code"],
        "ForeignResource"
    );
    let changes = |whole: &Value| {
        let result = ask("whatIf", whole).json();
        assert_eq!(result["status"], "Succeeded", "{result}");
        assert!(!result.to_string().contains(SECRET), "{result}");
        result["properties"]["changes"]
            .as_array()
            .expect("a list")
            .clone()
    };
    let kinds = |changes: &[Value]| -> Vec<String> {
        changes
            .iter()
            .map(|one| one["changeType"].as_str().expect("text").to_owned())
            .collect()
    };
    let planned = changes(&whole);
    assert_eq!(kinds(&planned), ["Create", "Create", "Unsupported"]);
    assert_eq!(planned[0]["after"]["name"], "orders-westus2");
    assert_eq!(
        server
            .admin(
                "GET",
                &format!("{PROVIDER}/topics/orders-westus2"),
                &Value::Null
            )
            .status,
        404
    );

    assert_eq!(
        deploy(&server, "main", &whole)["properties"]["diagnostics"][0]["target"],
        format!("{GROUP}/providers/Microsoft.Logic/workflows/flow")
    );
    server.command(
        "PUT",
        &format!("{PROVIDER}/topics/other"),
        &json!({"location": "local"}),
    );
    let planned = changes(&whole);
    assert_eq!(
        kinds(&planned),
        ["NoChange", "NoChange", "Unsupported", "Ignore"]
    );
    let mut tagged = whole.clone();
    tagged["properties"]["template"]["resources"][1]["tags"] = json!({"team": "b"});
    let planned = changes(&tagged);
    assert_eq!(
        kinds(&planned),
        ["Modify", "NoChange", "Unsupported", "Ignore"]
    );
    assert_eq!(
        planned[0]["delta"],
        json!([{"path": "tags.team", "propertyChangeType": "Create", "before": null, "after": "b"}])
    );
    assert_eq!(
        (&planned[0]["before"]["tags"], &planned[0]["after"]["tags"]),
        (&json!({}), &json!({"team": "b"}))
    );
    tagged["properties"]["whatIfSettings"] = json!({"resultFormat": "ResourceIdOnly"});
    assert!(changes(&tagged)[0].get("after").is_none());

    // A wrong template: a validation returns 400, a preview 200, as in Azure.
    let mut wrong = whole.clone();
    wrong["properties"]["template"]["resources"][1]["properties"] = json!({"inputSchema": "None"});
    let invalid = ask("validate", &wrong);
    assert_eq!(
        (invalid.status, invalid.codes().1.as_str()),
        (400, "InvalidTemplateDeployment")
    );
    assert_eq!(
        invalid.json()["error"]["details"][0]["code"],
        "InvalidRequest"
    );
    let failed = ask("whatIf", &wrong);
    assert_eq!(
        (failed.status, &failed.json()["status"]),
        (200, &json!("Failed"))
    );
    assert_eq!(failed.json()["error"]["code"], "InvalidTemplateDeployment");
}

#[test]
fn a_validation_checks_event_subscriptions_of_topics_that_do_not_exist_yet() {
    let server = server(&[]);
    let subscription = |kind: &str, of: &str, destination: Value| {
        json!({"type": format!("Microsoft.EventGrid/{kind}/eventSubscriptions"),
            "apiVersion": "2022-06-15", "name": format!("{of}/billing"),
            "properties": {"destination": destination}})
    };
    let relay = json!({"endpointType": "HybridConnection", "properties": {"resourceId": "/x"}});
    let queue = json!({"endpointType": "StorageQueue", "properties": {"resourceId": "/x", "queueName": "q"}});
    let template = json!({"resources": [
        {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "orders", "location": "local"},
        {"type": "Microsoft.EventGrid/domains", "apiVersion": "2022-06-15", "name": "shops", "location": "local"},
        subscription("topics", "orders", relay),
        subscription("domains/topics", "shops/berlin", queue),
        // Resources below a refused topic add no errors.
        {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "x", "location": "local"},
        subscription("topics", "x", json!({"endpointType": "WebHook", "properties": {"endpointUrl": "https://example.com/"}})),
    ]});
    let whole = body(&template, &json!({}));
    let invalid = server.admin("POST", &format!("{}/validate", path("main")), &whole);
    assert_eq!(invalid.status, 400, "{}", invalid.text());
    let details = invalid.json()["error"]["details"].take();
    let messages: Vec<&str> = details
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["message"].as_str().expect("text"))
        .collect();
    assert_eq!(messages.len(), 3, "{messages:#?}");
    let has = |part: &str| messages.iter().any(|message| message.contains(part));
    assert!(
        has("HybridConnection") && has("queueName") && has("The topic x: "),
        "{messages:#?}"
    );
}

#[test]
fn a_validation_refuses_event_subscriptions_of_missing_topics() {
    let server = server(&[]);
    let domain = format!("{PROVIDER}/domains/shops");
    let created = server.command("PUT", &domain, &json!({"location": "local"}));
    assert_eq!(created.status, 201, "{}", created.text());
    let hook =
        json!({"endpointType": "WebHook", "properties": {"endpointUrl": "https://example.com/"}});
    let subscription = |kind: &str, of: &str, properties: Value| {
        json!({"resources": [{"type": format!("Microsoft.EventGrid/{kind}/eventSubscriptions"),
            "apiVersion": "2025-02-15", "name": format!("{of}/billing"), "properties": properties}]})
    };
    let pull = json!({"deliveryConfiguration": {"deliveryMode": "Queue", "queue": {}}});
    let validate = |template: &Value| {
        let whole = body(template, &json!({}));
        let response = server.admin("POST", &format!("{}/validate", path("main")), &whole);
        let answer = response.json();
        let code = answer.pointer("/error/details/0/code").cloned();
        (response.status, code.unwrap_or_default())
    };
    let push = json!({"destination": hook});
    // The domain creates its topics with their first event subscriptions.
    let berlin = subscription("domains/topics", "shops/berlin", push.clone());
    assert_eq!(validate(&berlin), (200, Value::Null));
    let missing = (400, json!("ResourceNotFound"));
    let no_domain = subscription("domains/topics", "none/berlin", push);
    assert_eq!(validate(&no_domain), missing);
    let no_topic = subscription("namespaces/topics", "plant/heat", pull);
    assert_eq!(validate(&no_topic), missing);
}
