//! Declared resources are created by the command and at the start, and a second time nothing
//! changes.

use std::{fs, path::PathBuf, time::Duration};

use expect_test::expect;
use serde_json::Value;

use crate::support::{
    server::{Server, operator, wait_for},
    sink::{HandshakeReply, Sink},
};

/// A file in a folder of its own.
struct Written {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Written {
    fn new(name: &'static str, text: &str) -> Self {
        let written = Self {
            folder: tempfile::tempdir().expect("a folder"),
            name,
        };
        written.write(text);
        written
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("a file");
    }
}

fn apply(server: &Server, file: &Written, flags: &[&str]) -> Result<String, String> {
    let path = file.path();
    operator(
        server,
        &[&["apply", "-f", path.to_str().expect("text")], flags].concat(),
    )
}

fn applied(server: &Server, file: &Written, flags: &[&str]) -> String {
    apply(server, file, flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"))
}

fn names(server: &Server, arguments: &[&str]) -> Vec<String> {
    let output = operator(server, &[arguments, &["--output", "json"]].concat()).expect("a list");
    let output: Value = serde_json::from_str(&output).expect("JSON");
    let items = output["value"].as_array().expect("a list");
    items
        .iter()
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn two(sink: &Sink, filter: &str) -> String {
    format!(
        r#"
        [topics.orders]
        tags = {{ team = "shop" }}

        [topics.orders.eventSubscriptions.billing]
        endpointUrl = "{}?code=hidden"
        filter = {filter}

        [domains.shop.topics.europe.eventSubscriptions.all]
        endpointUrl = "{}"
        "#,
        sink.url("/billing"),
        sink.url("/all")
    )
}

#[test]
fn a_file_is_applied_and_a_second_time_nothing_changes() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let file = Written::new("topics.toml", &two(&sink, "{ subjectBeginsWith = \"/a\" }"));
    let dry = applied(&server, &file, &["--dry-run"]);
    assert!(
        dry.starts_with("+ topic orders\n")
            && dry.ends_with("planned: create 5, change 0, delete 0; nothing was changed"),
        "{dry}"
    );
    assert_eq!(names(&server, &["topics", "list"]), [""; 0]);
    let unsure = apply(&server, &file, &[]).expect_err("not confirmed");
    assert!(unsure.contains("--yes"), "{unsure}");

    let done = applied(&server, &file, &["--yes"]);
    assert!(
        done.ends_with("done: create 5, change 0, delete 0"),
        "{done}"
    );
    assert_eq!(names(&server, &["topics", "list"]), ["orders", "shop"]);
    assert_eq!(
        names(
            &server,
            &["subscriptions", "list", "domains/shop/topics/europe"]
        ),
        ["all"]
    );
    expect!["no changes: 5 resources match the file"].assert_eq(&applied(
        &server,
        &file,
        &["--yes"],
    ));

    file.write(&two(&sink, "{ subjectBeginsWith = \"/b\" }").replace("code=hidden", "code=other"));
    let changed = applied(&server, &file, &["--yes"]).replace(&sink.url(""), "SINK");
    expect![[r#"
        ~ event subscription billing of orders
            destination.properties.endpointUrl: SINK/billing?[hidden] -> SINK/billing?[hidden] (another secret)
            filter.subjectBeginsWith: /a -> /b
        = 4 unchanged

        done: create 0, change 1, delete 0"#]]
    .assert_eq(&changed);
    assert!(applied(&server, &file, &["--yes"]).starts_with("no changes"));
}

#[test]
fn changes_made_by_hand_are_found_and_only_prune_deletes() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let file = Written::new("topics.toml", &two(&sink, "{}"));
    applied(&server, &file, &["--yes"]);
    let extra = sink.url("/extra");
    for arguments in [
        &["topics", "create", "invoices"][..],
        &["topics", "create", "domains/shop/topics/asia"],
        &[
            "subscriptions",
            "create",
            "orders",
            "extra",
            "--endpoint",
            &extra,
        ],
        &[
            "subscriptions",
            "update",
            "orders",
            "billing",
            "--label",
            "by hand",
        ],
    ] {
        operator(&server, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    }
    let dry = applied(&server, &file, &["--dry-run", "--prune"]);
    expect![[r#"
        ~ event subscription billing of orders
            labels: ["by hand"] -> []
        - orders/eventSubscriptions/extra
        - invoices
        - domains/shop/topics/asia
        = 4 unchanged

        planned: create 0, change 1, delete 3; nothing was changed"#]]
    .assert_eq(&sorted(&dry));
    let without: Value =
        serde_json::from_str(&applied(&server, &file, &["--yes", "--output", "json"]))
            .expect("JSON");
    assert_eq!(
        (
            &without["steps"].as_array().map(Vec::len),
            &without["applied"]
        ),
        (&Some(1), &true.into()),
        "{without}"
    );
    assert_eq!(
        names(&server, &["topics", "list"]),
        ["invoices", "orders", "shop"]
    );
    let pruned = applied(&server, &file, &["--yes", "--prune"]);
    assert!(
        pruned.ends_with("done: create 0, change 0, delete 3"),
        "{pruned}"
    );
    assert_eq!(names(&server, &["topics", "list"]), ["orders", "shop"]);
    assert_eq!(
        names(&server, &["subscriptions", "list"]),
        ["all", "billing"]
    );
    assert_eq!(
        names(&server, &["topics", "list", "domains/shop"]),
        ["europe"]
    );
}

/// Deletions come in the order of the lists.
fn sorted(reported: &str) -> String {
    let mut lines: Vec<&str> = reported.lines().collect();
    let gone: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("- "))
        .collect();
    if let (Some(first), Some(last)) = (gone.first(), gone.last()) {
        lines[*first..=*last].sort_by(|a, b| b.cmp(a));
    }
    lines.join("\n")
}

#[test]
fn a_refusal_names_the_resource_and_what_was_done_before() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let file = Written::new("topics.toml", &two(&sink, "{ includedEventTypes = 5 }"));
    let error = apply(&server, &file, &["--yes"]).expect_err("a refusal");
    assert!(
        error.contains("the event subscription billing of orders: the server responded 400"),
        "{error}"
    );
    assert!(
        error.contains("filter.includedEventTypes")
            && error.ends_with("; 3 of 5 changes were applied before"),
        "{error}"
    );
    // The existing resources are read before any change.
    file.write("[topics.orders]\ninputSchema = \"CustomEventSchema\"\n[topics.another]");
    let error = apply(&server, &file, &["--yes"]).expect_err("a refusal");
    assert!(
        error.contains("the topic orders: InvalidRequest: properties.inputSchema"),
        "{error}"
    );
    assert_eq!(names(&server, &["topics", "list"]), ["orders", "shop"]);
}

#[test]
fn namespaces_are_applied_with_their_topics() {
    let server = Server::start(&[]);
    let file = Written::new(
        "topics.toml",
        "[namespaces.shop.topics.orders]\neventRetentionInDays = 3\n",
    );
    assert!(applied(&server, &file, &["--yes"]).ends_with("done: create 2, change 0, delete 0"));
    assert!(applied(&server, &file, &["--yes", "--prune"]).starts_with("no changes: 2"));
    file.write(
        "[namespaces.shop]\ntags = \
         { team = \"shop\" }\n[namespaces.shop.topics.orders]\neventRetentionInDays = 2\n",
    );
    let changed = applied(&server, &file, &["--yes"]);
    expect![[r#"
        ~ namespace shop
            tags.team: - -> shop
        ~ topic orders of namespaces/shop
            properties.eventRetentionInDays: 3 -> 2

        done: create 0, change 2, delete 0"#]]
    .assert_eq(&changed);
    file.write("[namespaces.shop]\ntags = { team = \"shop\" }\n");
    let pruned = applied(&server, &file, &["--yes", "--prune"]);
    assert!(
        pruned.starts_with("- namespaces/shop/topics/orders\n") && pruned.ends_with("delete 1"),
        "{pruned}"
    );
    // A resource group may have the name of a resource type.
    let flags = [
        "--yes",
        "--prune",
        "--subscription-id",
        "s",
        "--resource-group",
        "topics",
    ];
    file.write("[namespaces.plant.topics.heat]\n");
    assert!(applied(&server, &file, &flags).ends_with("done: create 2, change 0, delete 0"));
    file.write("[namespaces.plant]\n");
    assert!(applied(&server, &file, &flags).ends_with("done: create 0, change 0, delete 1"));
}

#[test]
fn a_template_that_the_portal_exported_is_applied_as_it_stands() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let template = r#"{
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": {
            "topics_orders_name": {"defaultValue": "orders", "type": "String"},
            "billing_url": {"type": "SecureString"}
        },
        "variables": {},
        "resources": [
            {
                "type": "Microsoft.EventGrid/topics",
                "apiVersion": "2025-02-15",
                "name": "[parameters('topics_orders_name')]",
                "location": "westeurope",
                "sku": {"name": "Basic"},
                "kind": "Azure",
                "identity": {"type": "None"},
                "properties": {
                    "minimumTlsVersionAllowed": "1.2",
                    "inputSchema": "EventGridSchema",
                    "publicNetworkAccess": "Enabled",
                    "inboundIpRules": [],
                    "disableLocalAuth": false,
                    "dataResidencyBoundary": "WithinGeopair"
                }
            },
            {
                "type": "Microsoft.EventGrid/topics/eventSubscriptions",
                "apiVersion": "2025-02-15",
                "name": "[concat(parameters('topics_orders_name'), '/billing')]",
                "dependsOn": ["[resourceId('Microsoft.EventGrid/topics', parameters('topics_orders_name'))]"],
                "properties": {
                    "destination": {
                        "properties": {
                            "endpointUrl": "[parameters('billing_url')]",
                            "maxEventsPerBatch": 1,
                            "preferredBatchSizeInKilobytes": 64
                        },
                        "endpointType": "WebHook"
                    },
                    "filter": {"includedEventTypes": ["Order.Placed"], "enableAdvancedFilteringOnArrays": true},
                    "labels": [],
                    "eventDeliverySchema": "EventGridSchema",
                    "retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": 1440}
                }
            }
        ]
    }"#;
    let file = Written::new("template.json", template);
    let missing = apply(&server, &file, &["--yes"]).expect_err("a parameter is missing");
    assert!(
        missing.contains("give it with --parameter billing_url=VALUE"),
        "{missing}"
    );
    let url = format!("billing_url={}", sink.url("/billing?code=1"));
    let done = applied(&server, &file, &["--yes", "--parameter", &url]);
    assert!(
        done.ends_with("done: create 2, change 0, delete 0"),
        "{done}"
    );
    assert!(applied(&server, &file, &["--yes", "--parameter", &url]).starts_with("no changes: 2"));
}

#[test]
fn the_same_file_is_applied_at_every_start_before_the_server_is_ready() {
    let sink = Sink::start();
    let file = Written::new("topics.toml", &two(&sink, "{}"));
    let path = file.path();
    let mut server = Server::start(&[("SERVER__APPLY", path.to_str().expect("text"))]);
    assert_eq!(
        names(&server, &["subscriptions", "list"]),
        ["all", "billing"]
    );
    let asked = sink.handshakes("/billing?code=hidden").len();

    assert!(asked > 0, "the endpoint was asked");
    // A resource that is as declared is not changed: an endpoint that is down does not stop a
    // start.
    sink.greet("/billing?code=hidden", HandshakeReply::Refuse(503));
    server.terminate();
    server.restart();
    assert_eq!(sink.handshakes("/billing?code=hidden").len(), asked);
    assert!(applied(&server, &file, &["--dry-run"]).starts_with("no changes"));

    server.terminate();
    file.write(&two(&sink, "{}").replace("/billing", "/another"));
    sink.greet("/another?code=hidden", HandshakeReply::Refuse(503));
    let (status, reported) = server
        .try_restart()
        .expect_err("a declared endpoint does not agree");
    assert!(!status.success(), "{reported}");
    assert!(
        reported
            .contains("server.apply: the event subscription billing of orders: Webhook validation"),
        "{reported}"
    );
    file.write("[topics.orders");
    let (_, reported) = server.try_restart().expect_err("the file is damaged");
    assert!(
        reported.contains("gridhook: server.apply: ")
            && reported.contains("TOML parse error at line 1"),
        "{reported}"
    );
    file.write("[topics.orders]\ntags = { team = \"other\" }");
    server.restart();
    assert!(
        operator(&server, &["topics", "show", "orders"])
            .expect("a topic")
            .contains("team=other")
    );
}

#[test]
fn a_template_with_a_resource_without_a_name_stops_neither_command_with_a_panic() {
    let file = Written::new(
        "template.json",
        r#"{"resources": [{"type": "Microsoft.EventGrid/topics"}]}"#,
    );
    let path = file.path();
    let mut server = Server::start(&[]);
    let refused = apply(&server, &file, &["--yes"]).expect_err("a refusal");
    assert_eq!(
        refused,
        format!("gridhook: {}: resource 1: it has no name", path.display())
    );
    server.terminate();
    drop(server);
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::with_data_dir(
        data.path(),
        &[("SERVER__APPLY", path.to_str().expect("text"))],
    );
    let (status, reported) = server.try_restart().expect_err("the file declares nothing");
    assert_eq!(status.code(), Some(1), "{reported}");
    let last = reported.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        format!(
            "gridhook: server.apply: {}: resource 1: it has no name",
            path.display()
        )
    );
}

/// A template of the tests.
fn template(name: &str) -> Written {
    let path = format!(
        "{}/tests/data/templates/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    Written::new("main.json", &fs::read_to_string(path).expect("a template"))
}

#[test]
fn a_template_with_derived_names_and_outputs_is_applied_and_its_secrets_are_not_shown() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let file = template("webhook");
    let endpoint = format!("endpoint={}?code=hidden", sink.url("/hook"));
    let planned = applied(&server, &file, &["--parameter", &endpoint, "--dry-run"]);
    assert!(
        planned
            .contains("later: the output endpoint, which needs the state of /subscriptions/local/"),
        "{planned}"
    );
    let done = applied(&server, &file, &["--parameter", &endpoint, "--yes"]);
    let [topic] = &names(&server, &["topics", "list"])[..] else {
        panic!("one topic: {done}")
    };
    assert!(topic.starts_with("topic-") && topic.len() == 19, "{topic}");
    assert!(
        done.contains(&format!(
            "output endpoint: http://{}/topics/{topic}/api/events",
            server.address()
        )),
        "{done}"
    );
    assert!(done.ends_with("output key: (secure)"), "{done}");
    let again = applied(&server, &file, &["--parameter", &endpoint, "--yes"]);
    assert!(
        again.starts_with("no changes: 2 resources match the file"),
        "{again}"
    );
    let json = applied(
        &server,
        &file,
        &["--parameter", &endpoint, "--yes", "--output", "json"],
    );
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        json["outputs"]["key"],
        serde_json::json!({"type": "securestring"})
    );
}

#[test]
fn a_module_with_a_parameter_file_is_applied_and_foreign_resources_are_left_out_on_request() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let file = template("module");
    let hook = |path: &str| {
        let url = sink.url(path);
        format!(r#"{{"endpointType": "WebHook", "properties": {{"endpointUrl": "{url}"}}}}"#)
    };
    let parameters = format!(
        r#"{{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
        "contentVersion": "1.0.0.0", "parameters": {{
        "name": {{"value": "orders"}}, "lock": {{"value": {{"kind": "CanNotDelete"}}}},
        "identities": {{"value": {{"systemAssigned": true}}}},
        "eventSubscriptions": {{"value": [{{"name": "one", "destination": {}}}, {{"name": "two", "destination": {}}}]}}}}}}"#,
        hook("/1"),
        hook("/2")
    );
    let parameters = Written::new("main.parameters.json", &parameters);
    let at = format!("@{}", parameters.path().display());
    let refused = apply(&server, &file, &["--parameters", &at, "--yes"]).expect_err("a lock");
    assert!(
        refused.contains("Microsoft.Authorization/locks is not supported: there are no locks"),
        "{refused}"
    );
    assert!(
        refused.contains("With --ignore-foreign such resources are left out"),
        "{refused}"
    );
    let done = applied(
        &server,
        &file,
        &["--parameters", &at, "--ignore-foreign", "--yes"],
    );
    assert_eq!(
        names(&server, &["subscriptions", "list", "orders"]),
        ["one", "two"]
    );
    assert!(
        done.contains(
            "left out: \
             /subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/orders"
        ),
        "{done}"
    );
    assert!(
        done.contains("output label: ORDERS-LABEL") && done.contains("output location: local"),
        "{done}"
    );
    // A single parameter takes precedence over the file if it comes first.
    let flags = [
        "--parameter",
        "name=bills",
        "--parameters",
        &at,
        "--ignore-foreign",
        "--yes",
    ];
    applied(&server, &file, &flags);
    assert_eq!(names(&server, &["topics", "list"]), ["bills", "orders"]);
}

#[test]
fn a_template_has_the_environment_of_the_server_that_it_is_applied_to() {
    let server = Server::start(&[]);
    let file = Written::new(
        "main.json",
        r#"{"parameters": {"suffix": {"type": "string", "defaultValue": "[environment().suffixes.storage]"}},
        "resources": [{"type": "Microsoft.EventGrid/topics", "name": "orders", "tags": {"store": "[parameters('suffix')]"}}],
        "outputs": {"audience": {"type": "string", "value": "[first(environment().authentication.audiences)]"}}}"#,
    );
    let done = applied(&server, &file, &["--yes"]);
    assert!(
        done.contains("tags.store: storage.gridhook.invalid") && done.contains("done: create 1"),
        "{done}"
    );
    let address = server.address();
    assert!(
        done.ends_with(&format!("output audience: http://{address}/")),
        "{done}"
    );
    // At a start there is no address to ask yet.
    let data = tempfile::tempdir().expect("a folder");
    let path = file.path();
    let settings = [("SERVER__APPLY", path.to_str().expect("text"))];
    let mut server = Server::with_data_dir(data.path(), &settings);
    let (_, reported) = server.try_restart().expect_err("no environment");
    assert!(reported.contains("use gridhook apply"), "{reported}");
}

#[test]
fn a_resource_group_outlives_the_process() {
    let mut server = Server::start(&[]);
    let path = "/subscriptions/s/resourceGroups/shop";
    let body = serde_json::json!({"location": "westus2", "tags": {"team": "a"}});
    assert_eq!(server.command("PUT", path, &body).status, 201);
    server.terminate();
    server.restart();
    let group = server.command("GET", path, &Value::Null).json();
    assert_eq!(
        (&group["location"], &group["tags"]["team"]),
        (&"westus2".into(), &"a".into())
    );
}

fn template_of(resources: &Value) -> Written {
    let template = serde_json::json!({
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "resources": resources,
    });
    Written::new("main.json", &template.to_string())
}

#[test]
fn resources_that_wait_for_others_are_counted_with_those_before_them() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    for name in ["same", "old"] {
        operator(&server, &["topics", "create", name]).expect("a topic");
    }
    let file = template_of(&serde_json::json!([
        {"type": "Microsoft.EventGrid/topics", "name": "same"},
        {"type": "Microsoft.EventGrid/topics", "name": "orders"},
        {
            "type": "Microsoft.EventGrid/topics/eventSubscriptions",
            "name": "orders/billing",
            "properties": {
                "labels": ["[reference(resourceId('Microsoft.EventGrid/topics', 'orders')).endpoint]"],
                "destination": {
                    "endpointType": "WebHook",
                    "properties": {"endpointUrl": sink.url("/hook")},
                },
            },
        },
    ]));
    sink.greet("/hook", HandshakeReply::Refuse(503));
    let error = apply(&server, &file, &["--yes", "--prune"]).expect_err("no validation");
    assert!(
        error.ends_with("; 2 of 3 changes were applied before"),
        "{error}"
    );

    sink.greet("/hook", HandshakeReply::Accept);
    operator(&server, &["topics", "delete", "orders", "--yes"]).expect("a deletion");
    operator(&server, &["topics", "create", "old"]).expect("a topic");
    let done = applied(&server, &file, &["--yes", "--prune"]);
    assert!(
        done.ends_with("= 1 unchanged\n\ndone: create 2, change 0, delete 1"),
        "{done}"
    );
}

#[test]
fn a_resource_that_is_only_created_is_left_as_it_is() {
    // The schema of a topic cannot be changed, so a PUT of another one would be refused.
    let file = |team: &str, schema: &str| {
        template_of(&serde_json::json!([{
            "type": "Microsoft.EventGrid/topics", "name": "orders", "tags": {"team": team},
            "properties": {"inputSchema": schema}, "@options": {"onlyIfNotExists": []},
        }]))
    };
    let at_start = file("a", "EventGridSchema");
    let path = at_start.path();
    let mut server = Server::start(&[("SERVER__APPLY", path.to_str().expect("text"))]);
    let other = file("b", "CloudEventSchemaV1_0");
    fs::copy(other.path(), path).expect("a file");
    server.kill_9();
    server.restart();
    let again = applied(&server, &other, &["--yes"]);
    assert_eq!(again, "no changes: 1 resource matches the file");
    let deployment = serde_json::json!({"properties": {
        "mode": "Incremental",
        "template": serde_json::from_str::<Value>(&fs::read_to_string(other.path()).expect("text"))
            .expect("JSON"),
    }});
    let group = "/subscriptions/local/resourceGroups/dev/providers";
    let path = format!("{group}/Microsoft.Resources/deployments/main");
    let response = server.admin("PUT", &path, &deployment);
    assert_eq!(response.status, 201, "{}", response.text());
    wait_for("the deployment ends", Duration::from_secs(60), || {
        let view = server.admin("GET", &path, &Value::Null).json();
        view["properties"]["provisioningState"] == "Succeeded"
    });
    let topic = format!("{group}/Microsoft.EventGrid/topics/orders");
    let topic = server.admin("GET", &topic, &Value::Null).json();
    assert_eq!(topic["tags"]["team"], "a");
}

#[test]
fn a_resource_without_its_parent_is_refused_before_any_change() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    operator(&server, &["topics", "create", "domains/shop"]).expect("a domain");
    let file = |kind: &str, name: &str| {
        let webhook = serde_json::json!({
            "endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/a")}
        });
        template_of(&serde_json::json!([
            {"type": "Microsoft.EventGrid/topics", "name": "orders"},
            {
                "type": format!("Microsoft.EventGrid/{kind}/topics/eventSubscriptions"),
                "name": format!("{name}/europe/all"),
                "properties": {"destination": webhook},
            },
        ]))
    };
    for (kind, name) in [("namespaces", "plant"), ("domains", "none")] {
        let error = apply(&server, &file(kind, name), &["--yes"]).expect_err(name);
        assert!(
            error.contains("the event subscription all of ") && error.contains("404"),
            "{error}"
        );
    }
    assert_eq!(names(&server, &["topics", "list"]), ["shop"]);
    let done = applied(&server, &file("domains", "shop"), &["--yes"]);
    assert!(
        done.ends_with("done: create 2, change 0, delete 0"),
        "{done}"
    );
}

#[test]
fn the_first_value_of_a_parameter_counts_whatever_its_case() {
    let server = Server::start(&[]);
    let file = Written::new(
        "main.json",
        r#"{"parameters": {"name": {"type": "string"}},
        "resources": [{"type": "Microsoft.EventGrid/topics", "name": "[parameters('name')]"}]}"#,
    );
    for flags in [
        ["--parameter", "name=one", "--parameter", "NAME=two"],
        ["--parameter", "NAME=one", "--parameter", "name=two"],
    ] {
        let planned = applied(&server, &file, &[&flags[..], &["--dry-run"]].concat());
        assert!(planned.starts_with("+ topic one"), "{planned}");
    }
}
