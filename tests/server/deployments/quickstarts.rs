//! Templates with the structures of Azure's quickstarts for Event Grid, through `gridhook apply`
//! and as deployments: what exists here is created, and what does not is left out by name.

use std::{fs, net::SocketAddr, sync::Arc};

use serde_json::{Value, json};

use super::{GROUP, PROVIDER, await_end, body, path};
use crate::{
    destinations::kafka_protocol::start_broker_with_topic,
    support::{
        http_service::HttpService,
        server::{Server, operator},
        sink::Sink,
    },
};

/// A quickstart, its parameters, and what becomes of it.
struct Quickstart {
    name: &'static str,
    parameters: Value,
    /// The number of resources that are created.
    created: usize,
    /// The names of the types that are left out, and `output` for an output.
    left_out: &'static [&'static str],
    /// The names of the outputs.
    outputs: &'static [&'static str],
}

fn quickstarts(sink: &Sink) -> Vec<Quickstart> {
    let endpoint = |path: &str| json!({"endpoint": {"value": sink.url(path)}});
    vec![
        Quickstart {
            name: "webhook",
            parameters: endpoint("/webhook"),
            created: 2,
            left_out: &[],
            outputs: &[],
        },
        Quickstart {
            name: "event-hubs",
            parameters: json!({}),
            created: 2,
            left_out: &[
                "Microsoft.EventHub/namespaces",
                "Microsoft.EventHub/namespaces/EventHubs",
            ],
            outputs: &["address"],
        },
        Quickstart {
            name: "service-bus-queue",
            parameters: json!({"space": {"value": "bus"}, "queue": {"value": "bills"},
                "grid": {"value": "to-bus"}, "listener": {"value": "to-queue"}}),
            created: 2,
            left_out: &[
                "Microsoft.ServiceBus/namespaces",
                "Microsoft.ServiceBus/namespaces/queues",
            ],
            outputs: &[],
        },
        Quickstart {
            name: "service-bus-topic",
            parameters: json!({"space": {"value": "bus"}}),
            created: 2,
            left_out: &[
                "Microsoft.ServiceBus/namespaces",
                "Microsoft.ServiceBus/namespaces/topics",
            ],
            outputs: &[],
        },
        // Services of Azure publish no events here.
        Quickstart {
            name: "resource-events",
            parameters: endpoint("/resources"),
            created: 0,
            left_out: &["Microsoft.EventGrid/eventSubscriptions"],
            outputs: &[],
        },
        Quickstart {
            name: "storage-events",
            parameters: endpoint("/storage"),
            created: 0,
            left_out: &[
                "Microsoft.Storage/storageAccounts",
                "Microsoft.EventGrid/systemTopics",
                "Microsoft.EventGrid/systemTopics/eventSubscriptions",
            ],
            outputs: &[],
        },
        // The template that comes before a quickstart: none of its resources exist here, and
        // neither does its output.
        Quickstart {
            name: "function",
            parameters: json!({}),
            created: 0,
            left_out: &[
                "Microsoft.Storage/storageAccounts",
                "Microsoft.Web/serverfarms",
                "Microsoft.Web/sites",
                "Microsoft.Web/sites/functions",
                "Microsoft.ManagedIdentity/userAssignedIdentities",
                "Microsoft.Authorization/roleAssignments",
                "Microsoft.Resources/deploymentScripts",
                "output",
            ],
            outputs: &[],
        },
    ]
}

fn read_template(name: &str) -> (String, Value) {
    let folder = env!("CARGO_MANIFEST_DIR");
    let file = format!("{folder}/tests/data/templates/quickstarts/{name}.json");
    let text = fs::read_to_string(&file).expect("a template");
    (file, serde_json::from_str(&text).expect("JSON"))
}

/// A server that knows a Service Bus and a broker by the ids that the templates have.
fn start_server(bus: SocketAddr, broker: SocketAddr, group: &str) -> Server {
    let provider = |name: &str| format!("{group}/providers/{name}/namespaces");
    let (bus_ids, broker_ids) = (
        provider("Microsoft.ServiceBus"),
        provider("Microsoft.EventHub"),
    );
    let server = Server::start(&[
        ("DEPLOYMENTS__IGNORE_FOREIGN", "true"),
        ("DELIVERY__RESOURCES__BUS__URL", &format!("http://{bus}")),
        ("DELIVERY__RESOURCES__BUS__RESOURCE_IDS", &bus_ids),
        (
            "DELIVERY__RESOURCES__BUS__SAS_TOKEN",
            "SharedAccessSignature sr=bus",
        ),
        (
            "DELIVERY__RESOURCES__HUBS__URL",
            &format!("kafka://{broker}"),
        ),
        ("DELIVERY__RESOURCES__HUBS__RESOURCE_IDS", &broker_ids),
    ]);
    let location = json!({"location": "westus2"});
    assert_eq!(server.command("PUT", group, &location).status, 201);
    server
}

fn start_bus() -> HttpService {
    let mut bus = HttpService::new(Arc::new(|_: &str, _: &[u8]| (201, "", Vec::new())));
    bus.resume();
    bus
}

#[test]
fn azures_quickstarts_are_validated_previewed_and_deployed() {
    let bus = start_bus();
    let server = start_server(bus.address(), start_broker_with_topic(), GROUP);
    let sink = Sink::start();
    for case in quickstarts(&sink) {
        let name = case.name;
        let (_, template) = read_template(name);
        let whole = body(&template, &case.parameters);
        let verb = |verb: &str| server.admin("POST", &format!("{}/{verb}", path(name)), &whole);
        let valid = verb("validate");
        assert_eq!(valid.status, 200, "{name}: {}", valid.text());
        let count = |kind: &str| {
            let preview = verb("whatIf").json();
            let changes = preview["properties"]["changes"]
                .as_array()
                .expect("a list")
                .clone();
            changes
                .iter()
                .filter(|one| one["changeType"] == kind)
                .count()
        };
        assert_eq!(count("Create"), case.created, "{name}");
        let response = server.admin("PUT", &path(name), &whole);
        assert_eq!(response.status, 201, "{name}: {}", response.text());
        let properties = await_end(&server, name)["properties"].take();
        assert_eq!(
            properties["provisioningState"], "Succeeded",
            "{name}: {properties}"
        );
        let created = properties["outputResources"].as_array().expect("a list");
        assert_eq!(created.len(), case.created, "{name}: {properties}");
        let diagnostics = properties["diagnostics"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let messages: Vec<&str> = diagnostics
            .iter()
            .filter_map(|one| {
                one["message"]
                    .as_str()?
                    .strip_prefix("The ")?
                    .split(' ')
                    .next()
            })
            .collect();
        assert_eq!(messages, case.left_out, "{name}");
        let outputs = properties["outputs"].as_object().expect("an object");
        assert_eq!(outputs.keys().collect::<Vec<_>>(), case.outputs, "{name}");
        assert_eq!(
            (count("Create"), count("NoChange")),
            (0, case.created),
            "{name}"
        );
    }
    // The address of a workflow is a secret of another service.
    let (_, template) = read_template("cloudevents");
    let refused = server.admin("PUT", &path("flow"), &body(&template, &json!({})));
    assert_eq!(refused.codes().1, "InvalidTemplate");
    assert!(
        refused.text().contains("needs listCallbackUrl of "),
        "{}",
        refused.text()
    );
    assert!(
        refused
            .text()
            .contains("replace the expression by a parameter")
    );
    let mut template = template;
    template["parameters"]["address"] = json!({"type": "securestring"});
    template["resources"][2]["properties"]["destination"]["properties"]["endpointUrl"] =
        "[parameters('address')]".into();
    let address = json!({"address": {"value": sink.url("/flow")}});
    server.admin("PUT", &path("flow"), &body(&template, &address));
    let properties = await_end(&server, "flow")["properties"].take();
    assert_eq!(properties["provisioningState"], "Succeeded", "{properties}");
    assert_eq!(
        properties["diagnostics"][0]["target"],
        format!(
            "{GROUP}/providers/Microsoft.Logic/workflows/{}",
            properties["parameters"]["flowName"]["value"]
                .as_str()
                .expect("text")
        )
    );
    let topic = properties["parameters"]["gridName"]["value"]
        .as_str()
        .expect("text");
    let topic = server.command("GET", &format!("{PROVIDER}/topics/{topic}"), &Value::Null);
    assert_eq!(
        topic.json()["properties"]["inputSchema"],
        "CloudEventSchemaV1_0"
    );
}

#[test]
fn azures_quickstarts_are_applied() {
    let bus = start_bus();
    let group = "/subscriptions/local/resourceGroups/dev";
    let server = start_server(bus.address(), start_broker_with_topic(), group);
    let sink = Sink::start();
    for case in quickstarts(&sink) {
        let name = case.name;
        let (file, _) = read_template(name);
        let parameters = case.parameters.as_object().expect("an object").iter();
        let parameters: Vec<String> = parameters
            .map(|(name, one)| format!("{name}={}", one["value"].as_str().expect("text")))
            .collect();
        let mut arguments = vec!["apply", "-f", &file, "--ignore-foreign", "--yes"];
        for parameter in &parameters {
            arguments.extend(["--parameter", parameter]);
        }
        let apply =
            || operator(&server, &arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
        let done = apply();
        if case.created > 0 {
            let summary = format!("done: create {}, change 0, delete 0", case.created);
            assert!(done.contains(&summary), "{name}: {done}");
        }
        assert_eq!(
            done.matches("left out: ").count(),
            case.left_out.len(),
            "{name}: {done}"
        );
        for output in case.outputs {
            assert!(
                done.contains(&format!("output {output}: http")),
                "{name}: {done}"
            );
        }
        let unchanged = if case.created == 1 {
            "resource matches"
        } else {
            "resources match"
        };
        let unchanged = format!("no changes: {} {unchanged} the file", case.created);
        let again = apply();
        assert!(again.starts_with(&unchanged), "{name}: {again}");
    }
    let (file, _) = read_template("cloudevents");
    let arguments = ["apply", "-f", &file, "--ignore-foreign", "--yes"];
    let refused = operator(&server, &arguments).expect_err("a secret");
    assert!(
        refused.contains("replace the expression by a parameter"),
        "{refused}"
    );
}
