//! Deployments as clients and templates of others have them.

use serde_json::{Value, json};

use super::{PROVIDER, await_end, body, deploy, operations, parameters, path, server, template};
use crate::support::sink::Sink;

#[test]
fn the_body_may_be_as_az_writes_it() {
    let server = server(&[]);
    let token = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let authorization = format!("Bearer {}", token.trim());
    // A key without quotes, comments, and a string over two lines.
    let text = "{\"properties\": {\"parameters\": {}, \"mode\": \"Incremental\", template:{ // by hand\r\n\
        /* two */ \"resources\": [], \"outputs\": {\"text\": {\"type\": \"string\", \"value\": \"[concat('a',\n 'b')]\"}}}}}";
    let headers = [("authorization", authorization.as_str())];
    let response = server
        .client()
        .ask("PUT", &path("main"), &headers, text.as_bytes())
        .expect("a response");
    assert_eq!(response.status, 201, "{}", response.text());
    let view = await_end(&server, "main");
    assert_eq!(
        view["properties"]["outputs"]["text"]["value"], "ab",
        "{view}"
    );
}

#[test]
fn nested_deployments_and_states_of_new_resources_work_as_with_apply() {
    let server = server(&[]);
    let inner = json!({
        "parameters": {"name": {"type": "string"}},
        "resources": [{"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15",
            "name": "[parameters('name')]", "location": "local"}],
        "outputs": {"id": {"type": "string",
            "value": "[reference(resourceId('Microsoft.EventGrid/topics', parameters('name')), '2022-06-15', 'Full').id]"}},
    });
    let template = json!({
        "resources": [
            {"type": "Microsoft.Resources/deployments", "apiVersion": "2022-09-01", "name": "inner",
                "properties": {"mode": "Incremental", "expressionEvaluationOptions": {"scope": "inner"},
                    "parameters": {"name": {"value": "first"}}, "template": inner}},
            // Its tag is the key of a topic that this deployment creates.
            {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "second", "location": "local",
                "tags": {"first": "[last(split(reference('inner').outputs.id.value, '/'))]"}},
        ],
        "outputs": {"first": {"type": "string", "value": "[reference('inner').outputs.id.value]"}},
    });
    let view = deploy(&server, "main", &body(&template, &json!({})));
    assert_eq!(
        view["properties"]["provisioningState"], "Succeeded",
        "{view}"
    );
    assert_eq!(
        view["properties"]["outputs"]["first"]["value"],
        format!("{PROVIDER}/topics/first")
    );
    let second = server
        .command("GET", &format!("{PROVIDER}/topics/second"), &Value::Null)
        .json();
    assert_eq!(second["tags"]["first"], "first");
    let ids: Vec<Value> = operations(&server, "main")
        .iter()
        .map(|one| one["properties"]["targetResource"]["resourceName"].clone())
        .collect();
    assert_eq!(ids, ["second", "first"]);
    // A resource that needs a missing one fails, after the others.
    let template = json!({"resources": [
        {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "third", "location": "local"},
        {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "fourth", "location": "local",
            "tags": {"x": "[reference(resourceId('Microsoft.EventGrid/topics', 'none')).endpoint]"}},
    ]});
    let view = deploy(&server, "main", &body(&template, &json!({})));
    assert_eq!(
        view["properties"]["error"]["code"], "ResourceNotFound",
        "{view}"
    );
    assert_eq!(
        server
            .admin("GET", &format!("{PROVIDER}/topics/third"), &Value::Null)
            .status,
        200
    );
}

/// The requests of Terraform's `azurerm_resource_group_template_deployment`, in their order, with
/// the statuses that its client accepts (its source, 2026-08-21).
#[test]
fn the_conversation_of_terraforms_template_deployment_works() {
    let server = server(&[]);
    let sink = Sink::start();
    let at = format!("{}?api-version=2020-06-01", path("main"));
    let verb = |verb: &str| format!("{}/{verb}?api-version=2020-06-01", path("main"));
    let none = &Value::Null;
    let mut whole = body(&template(), &parameters(&sink.url("/billing")));
    whole["properties"]["debugSetting"] = json!({"detailLevel": "none"});
    whole["tags"] = json!({"team": "a"});
    // Create: it must not exist, is validated, and is waited for.
    assert_eq!(server.admin("GET", &at, none).status, 404);
    assert_eq!(server.admin("POST", &verb("validate"), &whole).status, 200);
    assert_eq!(server.admin("PUT", &at, &whole).status, 201);
    await_end(&server, "main");
    // Read: parameters without types and the template are compared with the configuration.
    let read = server.admin("GET", &at, none).json();
    assert_eq!(read["tags"], json!({"team": "a"}));
    assert_eq!(
        read["properties"]["debugSetting"],
        json!({"detailLevel": "none"})
    );
    assert_eq!(
        read["properties"]["parameters"]["endpoint"]["value"],
        sink.url("/billing")
    );
    let exported = server.admin("POST", &verb("exportTemplate"), none);
    assert_eq!(
        (exported.status, &exported.json()["template"]),
        (200, &template())
    );
    // Delete: the provider's API versions, each resource, and the deployment.
    let providers = read["properties"]["providers"].as_array().expect("a list");
    for provider in providers {
        let namespace = provider["namespace"].as_str().expect("text");
        let known = format!("/subscriptions/s/providers/{namespace}?api-version=2022-09-01");
        let known = server.admin("GET", &known, none).json();
        let types = known["resourceTypes"].as_array().expect("a list");
        let first = &provider["resourceTypes"][0]["resourceType"];
        assert!(
            types.iter().any(|kind| kind["resourceType"] == *first),
            "{known}"
        );
    }
    for resource in read["properties"]["outputResources"]
        .as_array()
        .expect("a list")
    {
        let id = resource["id"].as_str().expect("text");
        let deleted = server.admin("DELETE", &format!("{id}?api-version=2025-02-15"), none);
        assert!(
            [204, 404].contains(&deleted.status),
            "{id}: {}",
            deleted.text()
        );
    }
    assert_eq!(server.admin("DELETE", &at, none).status, 204);
    assert_eq!(server.admin("GET", &at, none).status, 404);
}

#[test]
fn the_templates_of_quickstarts_and_modules_are_deployed() {
    let server = server(&[("DEPLOYMENTS__IGNORE_FOREIGN", "true")]);
    let sink = Sink::start();
    let hook =
        json!({"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/module")}});
    for (name, given, left_out) in [
        (
            "webhook",
            json!({"endpoint": {"value": sink.url("/webhook")}}),
            0,
        ),
        (
            "system",
            json!({"endpoint": {"value": sink.url("/system")}}),
            5,
        ),
        (
            "module",
            json!({
                "name": {"value": "module"}, "lock": {"value": {"kind": "CanNotDelete"}},
                "identities": {"value": {"systemAssigned": true}},
                "eventSubscriptions": {"value": [{"name": "one", "destination": hook}]},
            }),
            1,
        ),
    ] {
        let file = format!(
            "{}/tests/data/templates/{name}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(&file).expect("a template");
        let template: Value = serde_json::from_str(&text).expect("JSON");
        let view = deploy(&server, name, &body(&template, &given));
        assert_eq!(
            view["properties"]["provisioningState"], "Succeeded",
            "{name}: {view}"
        );
        let diagnostics = view["properties"]["diagnostics"]
            .as_array()
            .map_or(0, Vec::len);
        assert_eq!(diagnostics, left_out, "{name}: {view}");
    }
    // The state of another service cannot be had: it is named.
    let file = format!(
        "{}/tests/data/templates/workflow.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&file).expect("a template");
    let template: Value = serde_json::from_str(&text).expect("JSON");
    let response = server.admin("PUT", &path("workflow"), &body(&template, &json!({})));
    assert_eq!(
        (response.status, response.codes().1.as_str()),
        (400, "InvalidTemplate")
    );
    assert!(
        response
            .text()
            .contains("replace the expression by a parameter"),
        "{}",
        response.text()
    );
}
