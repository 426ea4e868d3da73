//! Deployments of templates to resource groups: what clients of Azure Resource Manager read of
//! them, how they end, and what stays of them.

mod clients;
mod complete;
mod preview;
mod quickstarts;

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    endpoint::{Endpoint, Gate, Step},
    server::{Server, wait_for},
    sink::{HandshakeReply, Sink},
};

const GROUP: &str = "/subscriptions/s/resourceGroups/shop";
const PROVIDER: &str = "/subscriptions/s/resourceGroups/shop/providers/Microsoft.EventGrid";
const SECRET: &str = "swordfish-of-the-test";

fn path(name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Resources/deployments/{name}")
}

/// A server with a resource group.
fn server(settings: &[(&str, &str)]) -> Server {
    let server = Server::start(settings);
    let body = json!({"location": "westus2", "tags": {"team": "a"}});
    assert_eq!(server.command("PUT", GROUP, &body).status, 201);
    server
}

fn body(template: &Value, parameters: &Value) -> Value {
    json!({"properties": {"mode": "Incremental", "template": template, "parameters": parameters}})
}

/// A topic, and an event subscription of it whose endpoint has a secret.
fn template() -> Value {
    json!({
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": {
            "name": {"type": "string", "defaultValue": "[concat('orders-', resourceGroup().location)]"},
            "endpoint": {"type": "string"},
            "code": {"type": "securestring"},
        },
        "resources": [
            {
                "type": "Microsoft.EventGrid/topics/eventSubscriptions", "apiVersion": "2022-06-15",
                "name": "[concat(parameters('name'), '/billing')]",
                "dependsOn": ["[resourceId('Microsoft.EventGrid/topics', parameters('name'))]"],
                "properties": {"destination": {"endpointType": "WebHook", "properties": {
                    "endpointUrl": "[concat(parameters('endpoint'), '?code=', parameters('code'))]",
                }}},
            },
            {
                "type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15",
                "name": "[parameters('name')]", "location": "[resourceGroup().location]",
            },
        ],
        "outputs": {
            "endpoint": {"type": "string",
                "value": "[reference(resourceId('Microsoft.EventGrid/topics', parameters('name'))).endpoint]"},
            "key": {"type": "securestring",
                "value": "[listKeys(resourceId('Microsoft.EventGrid/topics', parameters('name')), '2022-06-15').key1]"},
        },
    })
}

fn parameters(endpoint: &str) -> Value {
    json!({"endpoint": {"value": endpoint}, "code": {"value": SECRET}})
}

/// The state of a deployment once it has ended.
fn await_end(server: &Server, name: &str) -> Value {
    let mut view = Value::Null;
    wait_for("the deployment ends", Duration::from_secs(60), || {
        view = server.admin("GET", &path(name), &Value::Null).json();
        view["properties"]["provisioningState"] != "Running"
    });
    view
}

/// Deploys, and waits for the end.
fn deploy(server: &Server, name: &str, body: &Value) -> Value {
    let response = server.admin("PUT", &path(name), body);
    assert!([200, 201].contains(&response.status), "{}", response.text());
    await_end(server, name)
}

fn operations(server: &Server, name: &str) -> Vec<Value> {
    let list = server.command(
        "GET",
        &format!("{GROUP}/deployments/{name}/operations"),
        &Value::Null,
    );
    list.json()["value"].as_array().expect("a list").clone()
}

#[test]
fn a_template_is_deployed_and_its_deployment_has_what_clients_read() {
    let mut server = server(&[]);
    let sink = Sink::start();
    let whole = body(&template(), &parameters(&sink.url("/billing")));
    let missing = server.admin("GET", &path("main"), &Value::Null);
    assert_eq!(missing.codes().1, "DeploymentNotFound");
    let first = server.admin("PUT", &path("main"), &whole);
    assert_eq!(first.status, 201, "{}", first.text());
    let view = await_end(&server, "main");
    let topic = format!("{PROVIDER}/topics/orders-westus2");
    let subscription = format!("{topic}/eventSubscriptions/billing");
    assert_view_has_the_properties_of_azure(&view, &topic, &subscription);
    let list = server.command("GET", &path(""), &Value::Null).json();
    assert_eq!(list["value"], json!([view]));

    assert_operations_are_listed(&server, &subscription);

    deploy_again(&server, &sink, &whole);

    assert_deployment_survives_a_restart(&mut server);
    delete_the_deployment(&server, &subscription);
}

fn assert_view_has_the_properties_of_azure(view: &Value, topic: &str, subscription: &str) {
    let properties = &view["properties"];
    assert_eq!(properties["provisioningState"], "Succeeded", "{view}");
    assert_eq!(view["id"], path("main"));
    assert_eq!(view["type"], "Microsoft.Resources/deployments");
    assert_eq!(properties["mode"], "Incremental");
    assert_eq!(
        properties["outputResources"],
        json!([{"id": topic}, {"id": subscription}])
    );
    assert_eq!(
        properties["providers"][0]["resourceTypes"][1]["resourceType"],
        "topics/eventSubscriptions"
    );
    assert_eq!(
        properties["parameters"]["name"],
        json!({"type": "string", "value": "orders-westus2"})
    );
    assert_eq!(
        properties["parameters"]["code"],
        json!({"type": "securestring"})
    );
    let endpoint = properties["outputs"]["endpoint"]["value"]
        .as_str()
        .expect("text");
    assert!(
        endpoint.ends_with("/topics/orders-westus2/api/events"),
        "{endpoint}"
    );
    assert_eq!(
        properties["outputs"]["key"],
        json!({"type": "securestring"})
    );
    let duration = properties["duration"].as_str().expect("text");
    assert!(
        duration.starts_with("PT") && duration.ends_with('S'),
        "{duration}"
    );
}

fn assert_operations_are_listed(server: &Server, subscription: &str) {
    let all = operations(server, "main");
    let codes: Vec<&Value> = all
        .iter()
        .map(|one| &one["properties"]["statusCode"])
        .collect();
    assert_eq!(codes, ["Created", "Created"]);
    let target = &all[0]["properties"]["targetResource"];
    assert_eq!(
        *target,
        json!({"id": subscription, "resourceType": "Microsoft.EventGrid/topics/eventSubscriptions",
            "resourceName": "orders-westus2/billing"})
    );
    let one = format!(
        "{}/operations/{}",
        path("main"),
        all[0]["operationId"].as_str().expect("text")
    );
    assert_eq!(server.command("GET", &one, &Value::Null).json(), all[0]);
}

/// Nothing changes, so that no endpoint is validated again.
fn deploy_again(server: &Server, sink: &Sink, whole: &Value) {
    sink.greet(
        &format!("/billing?code={SECRET}"),
        HandshakeReply::Refuse(500),
    );
    let again = server.admin("PUT", &path("main"), whole);
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(
        await_end(server, "main")["properties"]["provisioningState"],
        "Succeeded"
    );
    assert_eq!(
        operations(server, "main")[0]["properties"]["statusCode"],
        "OK"
    );
}

fn assert_deployment_survives_a_restart(server: &mut Server) {
    let export = format!("{}/exportTemplate", path("main"));
    let before = server.command("POST", &export, &Value::Null).json();
    assert_eq!(before, json!({"template": template()}));
    let shown = await_end(server, "main");
    server.terminate();
    server.restart();
    assert_eq!(
        server.command("GET", &path("main"), &Value::Null).json(),
        shown
    );
    assert_eq!(server.command("POST", &export, &Value::Null).json(), before);
    assert!(!format!("{shown}{before}{:?}", operations(server, "main")).contains(SECRET));
    assert!(!server.logs().contains(SECRET));
}

/// The resources of a deleted deployment stay.
fn delete_the_deployment(server: &Server, subscription: &str) {
    assert_eq!(
        server.command("DELETE", &path("main"), &Value::Null).status,
        204
    );
    assert_eq!(server.admin("GET", &path("main"), &Value::Null).status, 404);
    assert_eq!(
        server.command("DELETE", &path("main"), &Value::Null).status,
        204
    );
    assert_eq!(
        server.command("GET", subscription, &Value::Null).status,
        200
    );
}

#[test]
fn a_deployment_ends_at_the_first_error_and_says_which_resource_failed() {
    let server = server(&[]);
    let sink = Sink::start();
    sink.greet(
        &format!("/billing?code={SECRET}"),
        HandshakeReply::Refuse(503),
    );
    let mut template = template();
    let resources = template["resources"].as_array_mut().expect("a list");
    let mut later = resources[0].clone();
    later["name"] = "[concat(parameters('name'), '/never')]".into();
    resources.push(later);
    let response = server.admin(
        "PUT",
        &path("main"),
        &body(&template, &parameters(&sink.url("/billing"))),
    );
    assert_eq!(response.status, 201, "{}", response.text());
    // Clients read the error at the address of the operation.
    assert_eq!(
        response.json()["properties"]["provisioningState"],
        "Running"
    );
    let status = response.header("azure-asyncoperation").expect("an address");
    assert!(response.header("retry-after").is_some());
    let (_, status) = status.split_once("://").expect("a scheme");
    let status = status[status.find('/').expect("a path")..].to_owned();
    let view = await_end(&server, "main");
    let ended = server.command("GET", &status, &Value::Null).json();
    assert_eq!(ended["status"], "Failed");
    assert_eq!(ended["error"], view["properties"]["error"]);
    assert_eq!(ended["error"]["code"], "DeploymentFailed");
    let detail = &ended["error"]["details"][0];
    assert_eq!(detail["code"], "Url validation", "{ended}");
    let target = detail["target"].as_str().expect("text");
    assert!(
        target.ends_with("/topics/orders-westus2/eventSubscriptions/billing"),
        "{target}"
    );
    let states: Vec<Value> = operations(&server, "main")
        .iter()
        .map(|one| one["properties"]["provisioningState"].clone())
        .collect();
    assert_eq!(states, ["Failed", "Succeeded"], "the third is not tried");
    let failed = &operations(&server, "main")[0]["properties"];
    assert_eq!(failed["statusCode"], "BadRequest");
    assert_eq!(failed["statusMessage"]["error"]["code"], "Url validation");
    assert!(!format!("{view}{failed}").contains(SECRET), "{failed}");
    assert!(view["properties"].get("outputs").is_none());
}

/// An event subscription to an endpoint that responds to handshakes once the gate is open, and
/// another one behind it.
fn slow_template(endpoint: &Endpoint) -> Value {
    let subscription = |name: &str| {
        json!({
            "type": "Microsoft.EventGrid/topics/eventSubscriptions", "apiVersion": "2022-06-15",
            "name": format!("clouds/{name}"),
            "properties": {"eventDeliverySchema": "CloudEventSchemaV1_0",
                "destination": {"endpointType": "WebHook", "properties": {
                    "endpointUrl": format!("http://{}/{name}", endpoint.address()),
                }}},
        })
    };
    json!({"resources": [
        {"type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "clouds",
            "properties": {"inputSchema": "CloudEventSchemaV1_0"}},
        subscription("one"), subscription("two"),
    ]})
}

fn gated_endpoint(gate: &Gate) -> Endpoint {
    let accept = b"HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\ncontent-length: 0\r\n\r\n";
    Endpoint::start(vec![vec![
        Step::Gate(gate.clone()),
        Step::Say(accept.to_vec()),
    ]])
}

fn await_operation(server: &Server, count: usize) {
    wait_for("an endpoint is validated", Duration::from_secs(60), || {
        let path = format!("{GROUP}/deployments/main/operations");
        let list = server.admin("GET", &path, &Value::Null);
        list.status == 200 && list.json()["value"].as_array().map(Vec::len) == Some(count)
    });
}

#[test]
fn a_deployment_that_runs_is_not_replaced_and_stops_before_its_next_resource() {
    let server = server(&[]);
    let gate = Gate::default();
    let endpoint = gated_endpoint(&gate);
    let whole = body(&slow_template(&endpoint), &json!({}));
    thread::scope(|scope| {
        let put = scope.spawn(|| server.admin("PUT", &path("main"), &whole));
        await_operation(&server, 2);
        let second = server.admin("PUT", &path("main"), &whole);
        assert_eq!(
            (second.status, second.codes().1.as_str()),
            (409, "DeploymentActive")
        );
        let deleted = server.admin("DELETE", &path("main"), &Value::Null);
        assert_eq!(
            (deleted.status, deleted.codes().1.as_str()),
            (409, "DeploymentActive")
        );
        let running = format!("{}?$filter=provisioningState%20eq%20'Running'", path(""));
        assert_eq!(
            server.command("GET", &running, &Value::Null).json()["value"][0]["name"],
            "main"
        );
        let cancel = format!("{}/cancel", path("main"));
        assert_eq!(server.command("POST", &cancel, &Value::Null).status, 204);
        gate.open();
        assert_eq!(put.join().expect("a response").status, 201);
        let view = await_end(&server, "main");
        assert_eq!(
            view["properties"]["provisioningState"], "Canceled",
            "{view}"
        );
        assert_eq!(operations(&server, "main").len(), 2);
        let late = server.admin("POST", &cancel, &Value::Null);
        assert_eq!(
            (late.status, late.codes().1.as_str()),
            (409, "DeploymentCannotBeCancelled")
        );
    });
}

#[test]
fn a_deployment_that_runs_when_the_process_dies_has_failed() {
    let mut server = server(&[]);
    let gate = Gate::default();
    let endpoint = gated_endpoint(&gate);
    let whole = body(&slow_template(&endpoint), &json!({}));
    // The response is late, and the process dies before.
    let mut client = server.client();
    let token = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let authorization = format!("Bearer {}", token.trim());
    let put = thread::spawn(move || {
        let headers = [("authorization", authorization.as_str())];
        client
            .ask("PUT", &path("main"), &headers, whole.to_string().as_bytes())
            .is_ok()
    });
    await_operation(&server, 2);
    server.kill_9();
    put.join().expect("it ended");
    server.restart();
    let view = server.command("GET", &path("main"), &Value::Null).json();
    assert_eq!(view["properties"]["provisioningState"], "Failed", "{view}");
    assert_eq!(
        view["properties"]["error"]["code"], "DeploymentInterrupted",
        "{view}"
    );
    gate.open();
    let view = deploy(
        &server,
        "main",
        &body(&slow_template(&endpoint), &json!({})),
    );
    assert_eq!(
        view["properties"]["provisioningState"], "Succeeded",
        "{view}"
    );
}

#[test]
fn what_a_deployment_cannot_do_is_refused_by_name() {
    let server = server(&[]);
    let refused = |body: &Value| {
        let response = server.admin("PUT", &path("main"), body);
        let error = response.json()["error"].clone();
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", response.status, text("code"), text("message"))
    };
    let with = |key: &str, value: Value| {
        let mut whole = body(&json!({"resources": []}), &json!({}));
        whole["properties"][key] = value;
        refused(&whole)
    };
    for (response, parts) in [
        (
            with("templateLink", json!({"uri": "https://x"})),
            "400 InvalidRequest properties.templateLink is not supported",
        ),
        (
            with("parametersLink", json!({"uri": "https://x"})),
            "properties.parametersLink is not supported",
        ),
        (
            with("onErrorDeployment", json!({"type": "LastSuccessful"})),
            "properties.onErrorDeployment is not supported",
        ),
        (
            with("mode", json!("Partial")),
            "properties.mode is \"Partial\"; expected Incremental or Complete",
        ),
        (
            with("template", Value::Null),
            "properties.template is missing",
        ),
        (with("nothing", json!(1)), "nothing"),
        (
            with("parameters", json!({"x": {"value": 1}})),
            "400 InvalidTemplate Deployment template validation failed: 'the template has no parameter 'x'",
        ),
        (
            with(
                "template",
                json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "[nope()]", "apiVersion": "1"}]}),
            ),
            "nope",
        ),
        (
            with(
                "template",
                json!({"resources": [{"type": "Microsoft.Logic/workflows", "name": "x", "apiVersion": "1"}]}),
            ),
            "With the setting deployments.ignore_foreign such resources are left out",
        ),
    ] {
        assert!(response.contains(parts), "{response}\nhas not: {parts}");
    }
    let other =
        "/subscriptions/s/resourceGroups/none/providers/Microsoft.Resources/deployments/main";
    let response = server.admin("PUT", other, &body(&json!({"resources": []}), &json!({})));
    assert_eq!(response.codes().1, "ResourceGroupNotFound");
    let whole = "/subscriptions/s/providers/Microsoft.Resources/deployments";
    let list = server.command("GET", whole, &Value::Null);
    assert_eq!(list.json()["value"], json!([]));
    for (method, verb) in [("PUT", ""), ("POST", "/validate"), ("POST", "/whatIf")] {
        let at = format!("{whole}/main{verb}");
        let response = server.admin(method, &at, &json!({"location": "local", "properties": {}}));
        assert_eq!(response.codes().1, "NotSupported", "{}", response.text());
        assert!(
            response.text().contains("az deployment group create"),
            "{}",
            response.text()
        );
    }
    let response = server.admin(
        "PUT",
        &path("a%20b"),
        &body(&json!({"resources": []}), &json!({})),
    );
    assert_eq!(response.status, 400, "{}", response.text());
    let response = server.admin(
        "PUT",
        &format!("{}?whatIf=true", path("main")),
        &body(&json!({"resources": []}), &json!({})),
    );
    assert!(
        response.text().contains("use POST …/whatIf"),
        "{}",
        response.text()
    );
    assert_eq!(
        server.admin("GET", &path("main"), &Value::Null).status,
        404,
        "nothing was deployed"
    );
}
