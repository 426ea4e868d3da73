//! How resources, loops, conditions, child resources and nested deployments are expanded.

use gridhook::template::{StateKey, States};
use serde_json::{Value, json};

use super::{expand_with, expanded};

const GROUP: &str = "/subscriptions/s-1/resourceGroups/rg/providers/";

fn template(name: &str) -> Value {
    let path = format!(
        "{}/tests/data/templates/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_topic_and_a_webhook_have_derived_names() {
    let expansion = expanded(
        &template("webhook"),
        &json!({"endpoint": "[not an expression]"}),
    );
    let [topic, subscription] = &expansion.resources[..] else {
        panic!("{:?}", expansion.resources)
    };
    assert!(
        topic.name.starts_with("topic-") && topic.name.len() == 19,
        "{}",
        topic.name
    );
    assert_eq!(topic.body, json!({"location": "westus2"}));
    let id = format!(
        "{GROUP}Microsoft.EventGrid/topics/{}/providers/Microsoft.EventGrid/eventSubscriptions/{}",
        topic.name, subscription.name
    );
    assert_eq!(subscription.id, id);
    assert_eq!(
        subscription.body["properties"]["destination"]["properties"]["endpointUrl"],
        "[not an expression]"
    );
    let needs: Vec<&str> = expansion
        .pending
        .iter()
        .map(|one| one.what.as_str())
        .collect();
    assert_eq!(needs, ["the output endpoint", "the output key"]);
    // The state arrives: the output has its value, and the secret is not shown.
    let states = States::from([
        (
            StateKey::get(&topic.id),
            json!({"properties": {"endpoint": "http://here/api/events"}}),
        ),
        (
            expansion.pending[1].needs.clone(),
            json!({"key1": "swordfish"}),
        ),
    ]);
    let done = expand_with(
        &template("webhook"),
        &json!({"endpoint": "http://x/"}),
        &states,
    )
    .expect("a template");
    assert_eq!(
        done.outputs["endpoint"],
        json!({"type": "string", "value": "http://here/api/events"})
    );
    assert_eq!(done.outputs["key"], json!({"type": "securestring"}));
    assert_eq!(done.secrets, ["swordfish"]);
}

#[test]
fn resources_of_other_services_are_listed_and_not_evaluated() {
    let expansion = expanded(&template("workflow"), &json!({}));
    let kinds: Vec<&str> = expansion
        .foreign
        .iter()
        .map(|one| one.kind.as_str())
        .collect();
    assert_eq!(kinds, ["Microsoft.Logic/workflows"]);
    assert_eq!(expansion.resources.len(), 1);
    let pending = &expansion.pending[0];
    assert!(
        pending.what.ends_with("/eventSubscriptions/to-flow"),
        "{pending:?}"
    );
    assert_eq!(pending.needs.action.as_deref(), Some("listCallbackUrl"));
    let expansion = expanded(&template("queue"), &json!({}));
    let foreign: Vec<&str> = expansion
        .foreign
        .iter()
        .map(|one| one.id.trim_start_matches(GROUP))
        .collect();
    assert_eq!(
        foreign,
        [
            "Microsoft.ServiceBus/namespaces/bus",
            "Microsoft.ServiceBus/namespaces/bus/queues/bills"
        ]
    );
    let queue =
        &expansion.resources[1].body["properties"]["destination"]["properties"]["resourceId"];
    assert_eq!(
        *queue,
        format!("{GROUP}Microsoft.ServiceBus/namespaces/bus/queues/bills")
    );
}

#[test]
fn a_module_with_symbolic_names_and_nested_deployments_is_expanded() {
    let hook = |path: &str| json!({"endpointType": "WebHook", "properties": {"endpointUrl": format!("http://x/{path}")}});
    let parameters = json!({
        "name": "orders",
        "eventSubscriptions": [
            {"name": "one", "destination": hook("1")},
            {"name": "two", "destination": hook("2"), "labels": ["a"], "expirationTimeUtc": "2040-01-01T00:00:00Z"},
        ],
        "identities": {"systemAssigned": true, "userAssignedResourceIds": ["/x/y"]},
        "lock": {"kind": "CanNotDelete"},
        "roles": [{"roleDefinitionIdOrName": "Reader", "principalId": "p"}],
        "inboundIpRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}],
        "tags": {"team": "shop"},
    });
    let states = States::from([(
        StateKey::get(&format!("{GROUP}Microsoft.EventGrid/topics/orders")),
        json!({"location": "local", "identity": {"principalId": "p-1"}, "properties": {}}),
    )]);
    let expansion = expand_with(&template("module"), &parameters, &states)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(expansion.pending.is_empty(), "{:?}", expansion.pending);
    let names: Vec<&str> = expansion
        .resources
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["orders", "orders/one", "orders/two"]);
    let identity =
        json!({"type": "SystemAssigned,UserAssigned", "userAssignedIdentities": {"/x/y": {}}});
    assert_eq!(expansion.resources[0].body["identity"], identity);
    let properties = json!({"inboundIpRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}], "disableLocalAuth": false});
    assert_eq!(
        expansion.resources[0].body["properties"], properties,
        "null is absent"
    );
    let two = json!({"destination": hook("2"), "expirationTimeUtc": "2040-01-01T00:00:00Z", "labels": ["a"]});
    assert_eq!(expansion.resources[2].body["properties"], two);
    let foreign: Vec<&str> = expansion
        .foreign
        .iter()
        .map(|one| one.kind.as_str())
        .collect();
    assert_eq!(
        foreign,
        [
            "Microsoft.Authorization/locks",
            "Microsoft.Authorization/roleAssignments"
        ]
    );
    let output = |name: &str| expansion.outputs[name]["value"].clone();
    assert_eq!(
        [output("name"), output("label"), output("principalId")],
        ["orders", "ORDERS-LABEL", "p-1"]
    );
    assert_eq!(output("masks"), json!(["10.0.0.0/8"]));
    let ids = ["one", "two"]
        .map(|name| format!("{GROUP}Microsoft.EventGrid/topics/orders/eventSubscriptions/{name}"));
    assert_eq!(output("subscriptions"), json!(ids));

    // Without the optional parts, nothing of them is there.
    let least = expand_with(
        &template("module"),
        &json!({"name": "orders", "enableTelemetry": false}),
        &states,
    );
    let least = least.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        least.foreign.is_empty() && least.pending.is_empty(),
        "{least:?}"
    );
    assert_eq!(
        least.resources[0].body,
        json!({"location": "westus2", "properties": {"disableLocalAuth": false}})
    );
}

#[test]
fn loops_conditions_and_children_are_unrolled() {
    let template = json!({
        "parameters": {"teams": {"type": "array", "defaultValue": ["a", "b"]}, "extra": {"type": "bool", "defaultValue": false}},
        "variables": {"copy": [{"name": "names", "count": "[length(parameters('teams'))]",
            "input": "[concat('team-', parameters('teams')[copyIndex('names')])]"}]},
        "resources": [
            {"type": "Microsoft.EventGrid/domains", "name": "shop", "properties": {}, "resources": [
                {"type": "topics", "name": "berlin"},
                {"type": "Microsoft.EventGrid/domains/topics", "name": "shop/paris"},
                {"type": "Microsoft.EventGrid/eventSubscriptions", "name": "all", "properties": {}},
                {"type": "providers/eventSubscriptions", "name": "Microsoft.EventGrid/some", "properties": {}},
            ]},
            {"type": "Microsoft.EventGrid/topics", "name": "[variables('names')[copyIndex()]]",
             "copy": {"name": "each", "count": "[length(parameters('teams'))]"},
             "tags": {"number": "[string(copyIndex(1))]", "same": "[string(copyIndex('each', \
                 10))]"},
             "properties": {"copy": [{"name": "inboundIpRules", "count": 2, "input": {"ipMask": "[format('10.{0}.{1}.0/24', copyIndex('each'), copyIndex('inboundIpRules'))]"}}]}},
            {"type": "Microsoft.EventGrid/topics", "name": "[parameters('none')]", "condition": "[parameters('extra')]"},
            {"type": "Microsoft.EventGrid/topics", "name": "[[literal", "condition": "[not(parameters('extra'))]"},
        ],
        "outputs": {"list": {"type": "array", "copy": {"count": 2, "input": "[copyIndex()]"}},
            "unwanted": {"type": "string", "condition": "[parameters('extra')]", "value": "[fail('no')]"}},
    });
    let expansion = expanded(&template, &json!({}));
    let ids: Vec<&str> = expansion
        .resources
        .iter()
        .map(|one| one.id.trim_start_matches(GROUP))
        .collect();
    assert_eq!(
        ids,
        [
            "Microsoft.EventGrid/domains/shop",
            "Microsoft.EventGrid/domains/shop/topics/berlin",
            "Microsoft.EventGrid/domains/shop/topics/paris",
            "Microsoft.EventGrid/domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all",
            "Microsoft.EventGrid/domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/some",
            "Microsoft.EventGrid/topics/team-a",
            "Microsoft.EventGrid/topics/team-b",
            "Microsoft.EventGrid/topics/[literal",
        ]
    );
    let second = &expansion.resources[6].body;
    assert_eq!(second["tags"], json!({"number": "2", "same": "11"}));
    assert_eq!(
        second["properties"]["inboundIpRules"],
        json!([{"ipMask": "10.1.0.0/24"}, {"ipMask": "10.1.1.0/24"}])
    );
    assert_eq!(expansion.outputs["list"]["value"], json!([0, 1]));
    assert!(!expansion.outputs.contains_key("unwanted"));
}

#[test]
fn nested_deployments_have_the_scope_that_they_say() {
    let nested = |options: Value, value: &str| {
        json!({"type": "Microsoft.Resources/deployments", "name": "inside",
        "resourceGroup": "other", "properties": {"mode": "Incremental", "expressionEvaluationOptions": options,
            "template": {"variables": {"name": "inner-name"}, "resources": [
                {"type": "Microsoft.EventGrid/topics", "name": value}], "outputs": {"it": {"type": "string", "value": value}}}}})
    };
    for (options, name) in [
        (json!({"scope": "inner"}), "inner-name"),
        (json!({"scope": "outer"}), "outer-name"),
        (Value::Null, "outer-name"),
    ] {
        let template = json!({"variables": {"name": "outer-name"},
            // The output of a deployment that stands behind is used before it.
            "resources": [
                {"type": "Microsoft.EventGrid/topics", "name": "first", "tags": {"of": "[reference('inside').outputs.it.value]"}},
                nested(options, "[variables('name')]")],
            "outputs": {"it": {"type": "string", "value": "[reference('inside').outputs.it.value]"}}});
        let expansion = expanded(&template, &json!({}));
        let topic = expansion
            .resources
            .iter()
            .find(|one| one.name == name)
            .expect("the topic inside");
        assert_eq!(topic.resource_group, "other");
        assert_eq!(
            topic.id,
            format!(
                "/subscriptions/s-1/resourceGroups/other/providers/Microsoft.EventGrid/topics/{name}"
            )
        );
        assert_eq!(expansion.outputs["it"]["value"], name);
        let first = expansion
            .resources
            .iter()
            .find(|one| one.name == "first")
            .expect("the first");
        assert_eq!(first.body["tags"]["of"], name);
    }
    let linked = json!({"resources": [{"type": "Microsoft.Resources/deployments", "name": "far",
        "properties": {"templateLink": {"uri": "https://example.com/a.json"}}}]});
    let error = expand_with(&linked, &json!({}), &States::new())
        .expect_err("no template")
        .to_string();
    assert!(
        error.contains("far: the deployment has no template") && error.contains("put it inline"),
        "{error}"
    );
}

#[test]
fn an_output_that_needs_a_state_does_not_hide_the_others_of_its_deployment() {
    let store = "resourceId('Microsoft.Storage/storageAccounts', 'store')";
    let template = json!({"resources": [
        {"type": "Microsoft.EventGrid/topics", "name": "orders",
            "tags": {"store": "[last(split(reference('module').outputs.id.value, '/'))]"}},
        {"type": "Microsoft.EventGrid/topics", "name": "bills",
            "tags": {"place": "[tryGet(reference('module').outputs, 'place', 'value')]"}},
        {"type": "Microsoft.Resources/deployments", "name": "module", "properties": {
            "expressionEvaluationOptions": {"scope": "inner"}, "template": {
                "resources": [{"type": "Microsoft.Storage/storageAccounts", "name": "store"}],
                "outputs": {
                    "id": {"type": "string", "value": format!("[{store}]")},
                    "place": {"type": "string", "value": format!("[reference({store}, '1', 'Full').location]")},
                }}}},
    ], "outputs": {
        "id": {"type": "string", "value": "[reference('module').outputs.id.value]"},
        "place": {"type": "string", "value": "[reference('module').outputs.place.value]"},
        "all": {"type": "object", "value": "[reference('module').outputs]"},
    }});
    let expansion = expanded(&template, &json!({}));
    assert_eq!(expansion.resources.len(), 1);
    assert_eq!(expansion.resources[0].body["tags"]["store"], "store");
    let mut pending: Vec<&str> = expansion
        .pending
        .iter()
        .map(|one| one.what.trim_start_matches(GROUP))
        .collect();
    pending.sort_unstable();
    assert_eq!(
        pending,
        [
            "Microsoft.EventGrid/topics/bills",
            "the output all",
            "the output place",
            "the output place of the deployment module",
        ]
    );
    assert!(
        expansion
            .pending
            .iter()
            .all(|one| one.needs.id.ends_with("/storageaccounts/store"))
    );
    let names: Vec<&String> = expansion.outputs.keys().collect();
    assert_eq!(names, ["id"]);
    // With the state, all are known.
    let key = StateKey::get(&format!("{GROUP}Microsoft.Storage/storageAccounts/store"));
    let states = States::from([(key, json!({"location": "here", "properties": {}}))]);
    let done = expand_with(&template, &json!({}), &states).expect("a template");
    assert!(done.pending.is_empty(), "{:?}", done.pending);
    assert_eq!(done.outputs["all"]["value"]["place"]["value"], "here");
}

#[test]
fn a_type_with_providers_is_that_of_an_extension() {
    let template = json!({"resources": [
        {"type": "Microsoft.EventGrid/topics", "name": "orders", "scale": null, "resources": [
            {"type": "providers/locks", "name": "Microsoft.Authorization/keep"}]},
        {"type": "Microsoft.EventGrid/topics/providers/diagnosticSettings",
            "name": "[concat('orders', '/Microsoft.Insights/', 'logs')]"},
        {"type": "Microsoft.EventGrid/domains/topics/providers/eventSubscriptions",
            "name": "shop/berlin/Microsoft.EventGrid/all", "properties": {"labels": null}},
    ]});
    let expansion = expanded(&template, &json!({}));
    let described: Vec<String> = expansion
        .foreign
        .iter()
        .chain(&expansion.resources[1..])
        .map(|one| {
            let scope = one
                .scope
                .as_deref()
                .expect("a scope")
                .trim_start_matches(GROUP);
            format!("{} {} of {scope}", one.kind, one.name)
        })
        .collect();
    assert_eq!(
        described,
        [
            "Microsoft.Authorization/locks keep of Microsoft.EventGrid/topics/orders",
            "Microsoft.Insights/diagnosticSettings logs of Microsoft.EventGrid/topics/orders",
            "Microsoft.EventGrid/eventSubscriptions all of Microsoft.EventGrid/domains/shop/topics/berlin",
        ]
    );
    let topic = format!("{GROUP}Microsoft.EventGrid/topics/orders");
    assert_eq!(
        expansion.foreign[1].id,
        format!("{topic}/providers/Microsoft.Insights/diagnosticSettings/logs")
    );
}

#[test]
fn existing_resources_and_loops_are_referred_to_by_symbol() {
    let template = json!({"languageVersion": "2.0", "resources": {
        "known": {"existing": true, "type": "Microsoft.EventGrid/topics", "apiVersion": "2025-02-15", "name": "orders"},
        "each": {"type": "Microsoft.EventGrid/topics", "name": "[format('t-{0}', copyIndex())]", "copy": {"name": "each", "count": 2}},
        "old": {"existing": true, "type": "Microsoft.EventGrid/topics", "name": "[format('t-{0}', copyIndex())]", "copy": {"name": "old", "count": 2}},
    }, "outputs": {
        "first_old": {"type": "string", "value": "[reference('old[0]').endpoint]"},
        "endpoint": {"type": "string", "value": "[reference('known').endpoint]"},
        "second": {"type": "string", "value": "[reference(format('each[{0}]', 1), '2025-02-15', \
            'Full').location]"},
        "all": {"type": "array", "value": "[map(references('each', 'Full'), lambda('one', \
            lambdaVariables('one').location))]"},
    }});
    let key = |name: &str| StateKey::get(&format!("{GROUP}Microsoft.EventGrid/topics/{name}"));
    let state = json!({"location": "local", "properties": {"endpoint": "e"}});
    let states = States::from([
        (key("orders"), state.clone()),
        (key("t-0"), state.clone()),
        (key("t-1"), state),
    ]);
    let expansion = expand_with(&template, &json!({}), &states).expect("a template");
    let names: Vec<&str> = expansion
        .resources
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["t-0", "t-1"], "an existing resource is not created");
    assert_eq!(expansion.outputs["endpoint"]["value"], "e");
    assert_eq!(expansion.outputs["first_old"]["value"], "e");
    assert_eq!(expansion.outputs["second"]["value"], "local");
    assert_eq!(expansion.outputs["all"]["value"], json!(["local", "local"]));
}

#[test]
fn a_resource_has_the_secure_output_of_a_nested_deployment() {
    let nested = json!({"resources": [], "outputs": {
        "code": {"type": "securestring", "value": "swordfish"},
    }});
    let template = json!({"languageVersion": "2.0", "resources": {
        "topic": {"type": "Microsoft.EventGrid/topics", "name": "orders", "tags": {
            "code": "[listOutputsWithSecureValues('inner', '2025-04-01').code]",
            "same": "[listoutputswithsecurevalues('inner', '2025-04-01').code]",
        }},
        "inner": {"type": "Microsoft.Resources/deployments", "name": "inner", "properties": {
            "mode": "Incremental", "expressionEvaluationOptions": {"scope": "inner"}, "template": nested,
        }},
    }});
    let expansion = expanded(&template, &json!({}));
    let tags = json!({"code": "swordfish", "same": "swordfish"});
    assert_eq!(expansion.resources[0].body["tags"], tags);
    assert_eq!(expansion.secrets, ["swordfish"]);
}

#[test]
fn a_function_of_the_template_knows_the_deployment() {
    let template = json!({"functions": [{"namespace": "shop", "members": {"place": {
        "parameters": [{"name": "what", "type": "string"}],
        "output": {"type": "string", "value": "[concat(deployment().name, ' ', \
            resourceId(parameters('what'), 'a'), ' ', resourceGroup().name)]"},
    }}}], "resources": [], "outputs": {
        "place": {"value": "[shop.place('Microsoft.EventGrid/topics')]"},
    }});
    assert_eq!(
        expanded(&template, &json!({})).outputs["place"]["value"],
        format!("main {GROUP}Microsoft.EventGrid/topics/a rg")
    );
}

#[test]
fn a_nullable_parameter_of_a_function_may_be_null() {
    let template = json!({"functions": [{"namespace": "shop", "members": {"label": {
        "parameters": [{"name": "team", "type": "string", "nullable": true}],
        "output": {"type": "string", "value": "[coalesce(parameters('team'), 'none')]"},
    }}}], "resources": [], "outputs": {"label": {"value": "[shop.label(null())]"}}});
    assert_eq!(
        expanded(&template, &json!({})).outputs["label"]["value"],
        "none"
    );
}

#[test]
fn a_symbolic_name_comes_before_the_name_of_another_resource() {
    let template = json!({"languageVersion": "2.0", "resources": {
        "audit": {"type": "Microsoft.EventGrid/domains", "name": "orders"},
        "orders": {"type": "Microsoft.EventGrid/topics", "name": "shop"},
    }, "outputs": {"endpoint": {"value": "[reference('orders').endpoint]"}}});
    let topic = StateKey::get(&format!("{GROUP}Microsoft.EventGrid/topics/shop"));
    let states = States::from([(topic, json!({"properties": {"endpoint": "e"}}))]);
    let expansion = expand_with(&template, &json!({}), &states).expect("a template");
    assert_eq!(expansion.outputs["endpoint"]["value"], "e");
}

#[test]
fn resources_of_extensions_are_foreign_unless_the_extension_is_azure() {
    // As Bicep compiles `extension microsoftGraphV1` and `extension kubernetes`.
    let template = json!({"languageVersion": "2.0",
    "imports": {"graph": {"provider": "MicrosoftGraph", "version": "1.0.0"}},
    "extensions": {
        "az": {"name": "AzureResourceManager", "version": "0.2.896"},
        "unused": {"name": "Kubernetes", "version": "1.0.0",
            "config": {"namespace": {"defaultValue": "[bad("}}},
    },
    "resources": {
        "app": {"import": "graph", "type": "Microsoft.Graph/applications@v1.0"},
        "none": {"import": "graph", "condition": false, "type": "Microsoft.Graph/groups@v1.0"},
        "known": {"import": "graph", "existing": true, "type": "Microsoft.Graph/groups@v1.0"},
        "orders": {"extension": "az", "type": "Microsoft.EventGrid/topics", "name": "orders"},
        "tagged": {"type": "Microsoft.EventGrid/topics", "name": "tagged",
            "tags": {"app": "[reference('app').appId]"}},
    }});
    let expansion = expanded(&template, &json!({}));
    let resources: Vec<_> = expansion.resources.iter().map(|one| &one.name).collect();
    assert_eq!(resources, ["orders"]);
    let foreign: Vec<_> = expansion
        .foreign
        .iter()
        .map(|one| [&one.id, &one.kind])
        .collect();
    assert_eq!(foreign, [["app", "Microsoft.Graph/applications@v1.0"]]);
    assert_eq!(expansion.pending[0].needs, StateKey::get("app"));
}

#[test]
fn errors_say_where_they_are() {
    for (template, part) in [
        (json!({"what": 1}), "unknown key what of a template"),
        (
            json!({"resources": [{"type": "Microsoft.EventGrid/topics"}]}),
            "resource 1: it has no name",
        ),
        (json!({"resources": [{"name": "x"}]}), "x: it has no type"),
        (
            json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "a/b"}]}),
            "a/b: its type Microsoft.EventGrid/topics has 1 level and its name 2",
        ),
        (
            json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "a", "color": 1}]}),
            "a: color is not supported in a resource",
        ),
        (
            json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "a", "condition": "yes"}]}),
            "a: condition is a string; expected a boolean",
        ),
        (
            json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "a", "tags": {"b": "[c()]"}}]}),
            "a: tags: b: the expression [c()]: the function c is not known",
        ),
        (
            json!({"resources": [{"type": "Microsoft.Resources/deployments", "name": "a",
                "properties": {"mode": "Complete", "template": {"resources": []}}}]}),
            "a: mode is Complete; expected Incremental",
        ),
        (
            json!({"resources": 1}),
            "resources is a number; expected a list or an object",
        ),
    ] {
        let error = expand_with(&template, &json!({}), &States::new())
            .expect_err("an error")
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}
