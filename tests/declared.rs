//! Files that declare topics and event subscriptions, and the errors of invalid ones.

use expect_test::{Expect, expect};
use gridhook::declared::{self, ForeignResources, ParameterInput, ResourceGroup, TemplateOptions};

fn resolve(text: &str, is_json: bool, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().map(|(name, value)| {
        (
            (*name).to_owned(),
            ParameterInput::Text((*value).to_owned()),
        )
    });
    let options = TemplateOptions {
        parameters: given.collect(),
        ..TemplateOptions::default()
    };
    match declared::read(text, is_json, &ResourceGroup::default(), &options) {
        Ok(declared) => {
            let one = |resource: &declared::DeclaredResource| {
                format!(
                    "{} {} {}",
                    resource.display_name(),
                    resource.control_path(),
                    resource.body
                )
            };
            declared
                .resources
                .iter()
                .map(one)
                .collect::<Vec<_>>()
                .join("\n")
        }
        Err(error) => error.to_string(),
    }
    .replace(
        "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid",
        "…",
    )
}

fn check_toml(text: &str, expected: Expect) {
    expected.assert_eq(&resolve(text, false, &[]));
}

fn check_template(resources: &str, parameters: &[(&str, &str)], expected: Expect) {
    let template = format!(
        r#"{{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
            "contentVersion": "1.0.0.0",
            "parameters": {{"topic": {{"defaultValue": "orders", "type": "String"}}, "secret": {{"type": "SecureString"}}}},
            "variables": {{"both": "[concat(parameters('topic'), '/billing')]"}},
            "resources": [{resources}]}}"#
    );
    expected.assert_eq(&resolve(&template, true, parameters));
}

#[test]
fn a_table_for_each_topic_becomes_its_bodies() {
    check_toml(
        r#"
        [topics.orders]
        inputSchema = "CloudEventSchemaV1_0"
        tags = { team = "shop" }

        [topics.orders.eventSubscriptions.billing]
        endpointUrl = "https://example.com/hook?code=1"
        maxEventsPerBatch = 10
        filter = { includedEventTypes = ["Order.Placed"] }
        expirationTimeUtc = 2040-01-01T00:00:00Z

        [domains.shop.topics.europe.eventSubscriptions.all]
        destination = { endpointType = "WebHook", properties = { endpointUrl = "https://example.com/" } }
        "#,
        expect![[r#"
            topic orders …/topics/orders {"properties":{"inputSchema":"CloudEventSchemaV1_0"},"tags":{"team":"shop"}}
            domain shop …/domains/shop {}
            topic europe of domains/shop …/domains/shop/topics/europe {}
            event subscription billing of orders …/topics/orders/eventSubscriptions/billing {"properties":{"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"https://example.com/hook?code=1","maxEventsPerBatch":10}},"expirationTimeUtc":"2040-01-01T00:00:00Z","filter":{"includedEventTypes":["Order.Placed"]}}}
            event subscription all of domains/shop/topics/europe …/domains/shop/topics/europe/eventSubscriptions/all {"properties":{"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"https://example.com/"}}}}"#]],
    );
}

#[test]
fn namespaces_have_topics_too() {
    check_toml(
        "[namespaces.shop.topics.orders]\neventRetentionInDays = 3",
        expect![[r#"
            namespace shop …/namespaces/shop {}
            topic orders of namespaces/shop …/namespaces/shop/topics/orders {"properties":{"eventRetentionInDays":3}}"#]],
    );
}

#[test]
fn a_file_names_its_own_place() {
    let file = "subscription = \"s\"\nresourceGroup = \"r\"\n[topics.orders]";
    check_toml(
        file,
        expect![
            "topic orders \
             /subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders {}"
        ],
    );
}

#[test]
fn an_unknown_or_wrong_value_is_reported_with_the_allowed_ones() {
    check_toml(
        "[queues.a]",
        expect![
            "unknown key queues; expected one of topics, domains, namespaces, subscription or \
             resourceGroup"
        ],
    );
    check_toml(
        "topics = 5",
        expect!["topics is not a table; expected a table"],
    );
    check_toml(
        "[topics]\norders = 5",
        expect!["topics.orders is not a table; expected a table"],
    );
    check_toml(
        "resourceGroup = 5",
        expect!["resourceGroup is not a string; expected a name"],
    );
    check_toml(
        "[topics.a.eventSubscriptions.b]\nendpointUrl = \"x\"\ndestination = {}",
        expect![
            "topics.a.eventSubscriptions.b: both endpointUrl and destination are set; expected \
             one of them"
        ],
    );
    check_toml(
        "[topics.Orders]\n[topics.orders]",
        expect!["the topic orders is declared twice"],
    );
    check_toml(
        "[topics.orders",
        expect![[r#"
            TOML parse error at line 1, column 15
              |
            1 | [topics.orders
              |               ^
            unclosed table, expected `]`"#]],
    );
}

/// As the portal exports it.
const TOPIC: &str = r#"{"type": "Microsoft.EventGrid/topics", "apiVersion": "2025-02-15", "name": "[parameters('topic')]",
    "location": "westeurope", "sku": {"name": "Basic"}, "kind": "Azure", "identity": {"type": "None"},
    "properties": {"minimumTlsVersionAllowed": "1.2", "inputSchema": "EventGridSchema", "publicNetworkAccess": "Enabled",
        "inboundIpRules": [], "disableLocalAuth": false, "dataResidencyBoundary": "WithinGeopair"}}"#;

const SUBSCRIPTION: &str = r#"{"type": "Microsoft.EventGrid/topics/eventSubscriptions", "apiVersion": "2025-02-15",
    "name": "[variables('both')]", "dependsOn": ["[resourceId('Microsoft.EventGrid/topics', parameters('topic'))]"],
    "properties": {"destination": {"properties": {"endpointUrl": "[concat('https://example.com/?code=', parameters('secret'))]"},
        "endpointType": "WebHook"}, "labels": ["[[literal]"], "deadLetterDestination": {"endpointType": "StorageBlob",
        "properties": {"resourceId": "[resourceId('other', 'Microsoft.Storage/storageAccounts', 'letters')]"}}}}"#;

#[test]
fn a_template_is_taken_as_the_portal_exports_it() {
    check_template(
        &format!("{SUBSCRIPTION}, {TOPIC}"),
        &[("secret", "hidden")],
        expect![[r#"
            topic orders …/topics/orders {"identity":{"type":"None"},"kind":"Azure","location":"westeurope","properties":{"dataResidencyBoundary":"WithinGeopair","disableLocalAuth":false,"inboundIpRules":[],"inputSchema":"EventGridSchema","minimumTlsVersionAllowed":"1.2","publicNetworkAccess":"Enabled"},"sku":{"name":"Basic"}}
            event subscription billing of orders …/topics/orders/eventSubscriptions/billing {"properties":{"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":"/subscriptions/local/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/letters"}},"destination":{"endpointType":"WebHook","properties":{"endpointUrl":"https://example.com/?code=hidden"}},"labels":["[literal]"]}}"#]],
    );
}

#[test]
fn a_template_hangs_subscriptions_on_their_topics_in_several_ways() {
    let paths = [
        r#"{"type": "Microsoft.EventGrid/topics/providers/eventSubscriptions", "name": "orders/Microsoft.EventGrid/billing"}"#,
        r#"{"type": "Microsoft.EventGrid/eventSubscriptions", "name": "billing", "scope": "Microsoft.EventGrid/topics/orders"}"#,
        r#"{"type": "Microsoft.EventGrid/eventSubscriptions", "name": "billing", "scope": "[resourceId('Microsoft.EventGrid/topics', 'orders')]"}"#,
    ];
    for path in paths {
        check_template(
            path,
            &[("secret", "x")],
            expect![
                "event subscription billing of orders …/topics/orders/eventSubscriptions/billing {}"
            ],
        );
    }
    check_template(
        r#"{"type": "Microsoft.EventGrid/domains", "name": "shop", "resources": [
            {"type": "topics", "name": "europe", "resources": [{"type": "eventSubscriptions", "name": "all"}]}]}"#,
        &[("secret", "x")],
        expect![[r#"
            domain shop …/domains/shop {}
            topic europe of domains/shop …/domains/shop/topics/europe {}
            event subscription all of domains/shop/topics/europe …/domains/shop/topics/europe/eventSubscriptions/all {}"#]],
    );
}

#[test]
fn the_text_of_a_parameter_has_its_type() {
    let check = |text: &str, expected: Expect| {
        let template = r#"{"parameters": {"on": {"type": "bool", "defaultValue": false}, "days": {"type": "Int", "defaultValue": 1}},
            "resources": [{"type": "Microsoft.EventGrid/topics", "name": "orders", "tags": {"on": "[string(parameters('on'))]", "days": "[string(parameters('days'))]"}}]}"#;
        expected.assert_eq(&resolve(
            template,
            true,
            &[text.split_once('=').expect("a pair")],
        ));
    };
    check(
        "on=True",
        expect![[r#"topic orders …/topics/orders {"tags":{"days":"1","on":"True"}}"#]],
    );
    for spelling in ["on=null", "on= False"] {
        check(
            spelling,
            expect![[r#"topic orders …/topics/orders {"tags":{"days":"1","on":"False"}}"#]],
        );
    }
    check(
        "days=7",
        expect![[r#"topic orders …/topics/orders {"tags":{"days":"7","on":"False"}}"#]],
    );
    check(
        "on=yes",
        expect!["the parameter 'on' is of the type bool, and its text is not true or false"],
    );
    check(
        "days=week",
        expect!["the parameter 'days' is of the type int, and its text is not a whole number"],
    );
}

#[test]
fn a_parameter_file_is_not_read_as_a_template() {
    for schema in [
        "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
        "https://schema.management.azure.com/schemas/2018-05-01/subscriptionDeploymentParameters.json#",
    ] {
        let file = format!(
            r#"{{"$schema": "{schema}", "contentVersion": "1.0.0.0",
            "parameters": {{"topic": {{"value": "orders"}}}}}}"#
        );
        let expected = expect![
            "it is a parameter file; expected a template, and this file with --parameters @FILE"
        ];
        expected.assert_eq(&resolve(&file, true, &[]));
        let template = format!(
            r#"{{"$schema": "{schema}",
            "resources": [{{"type": "Microsoft.EventGrid/topics", "name": "orders"}}]}}"#
        );
        expect!["topic orders …/topics/orders {}"].assert_eq(&resolve(&template, true, &[]));
    }
}

#[test]
fn unknown_parts_of_a_template_are_refused_by_name() {
    let check =
        |resource: &str, expected: Expect| check_template(resource, &[("secret", "x")], expected);
    let named =
        |name: &str| format!(r#"{{"type": "Microsoft.EventGrid/topics", "name": "{name}"}}"#);
    check_template(
        TOPIC,
        &[],
        expect![
            "the parameter 'secret' has no default value; give it with --parameter secret=VALUE, \
             or a default"
        ],
    );
    check_template(
        TOPIC,
        &[("other", "x")],
        expect!["the template has no parameter 'other'; it has secret, topic"],
    );
    check(
        &named("[toPhysicalZone('a')]"),
        expect![
            "[toPhysicalZone('a')]: the expression [toPhysicalZone('a')]: the function \
             toPhysicalZone is not supported: there are no zones"
        ],
    );
    check(
        &named("[parameters('x')]"),
        expect!["[parameters('x')]: the expression [parameters('x')]: there is no parameter 'x'"],
    );
    check(
        &named("[concat('a' 'b')]"),
        expect![
            "[concat('a' 'b')]: the expression [concat('a' 'b')]: a comma or a closing bracket is \
             missing"
        ],
    );
    check(
        r#"{"type": "Microsoft.Storage/storageAccounts", "name": "a"}"#,
        expect![
            "a: a resource of the type Microsoft.Storage/storageAccounts is not supported: it \
             belongs to another service; a service that exists is named in delivery.resources; \
             expected topics, domains, namespaces, the topics of these two, or \
             eventSubscriptions below topics or domains, of Microsoft.EventGrid. With \
             --ignore-foreign such resources are left out"
        ],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/systemTopics", "name": "a"}"#,
        expect![
            "a: a resource of the type Microsoft.EventGrid/systemTopics is not supported: a system \
             topic has the events of a service of Azure, which publishes none here; expected \
             topics, domains, namespaces, the topics of these two, or eventSubscriptions below \
             topics or domains, of Microsoft.EventGrid. With --ignore-foreign such resources are \
             left out"
        ],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/topics/eventSubscriptions", "name": "a"}"#,
        expect![
            "a: its type Microsoft.EventGrid/topics/eventSubscriptions has 2 levels and its name 1"
        ],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/topics", "name": "a", "copy": {}}"#,
        expect!["a: the count of a loop is not a number; expected a whole number"],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/topics", "name": "a", "condition": false}"#,
        expect![""],
    );
}

#[test]
fn a_default_value_of_a_template_may_be_an_expression() {
    let template = |parameters: &str, properties: &str| {
        format!(
            r#"{{// The portal writes none of these.
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", /*/ but
            people do: "[x()]" */
            "parameters": {{{parameters}}},
            "variables": {{"both": "[concat(PARAMETERS('NAME'), '-', parameters('place'))]"}},
            "resources": [{{"type": "Microsoft.EventGrid/topics", "name": "[parameters('name')]", "properties": {properties}}}]}}"#
        )
    };
    let check = |parameters: &str, properties: &str, given: &[(&str, &str)], expected: Expect| {
        expected.assert_eq(&resolve(&template(parameters, properties), true, given));
    };
    let usual =
        r#""Name": {"type": "string", "defaultValue": "[concat('a//', variables('tail'))]"}"#;
    check(
        r#""Name": {"type": "string", "defaultValue": "orders"},
           "place": {"type": "string", "defaultValue": "[resourceGroup().location]"},
           "filter": {"type": "object", "defaultValue": {"a": ["[variables('both')]", "[[x]", "// no comment", "\"/*"]}},
           "later": {"type": "string", "defaultValue": "[variables('both')]"}"#,
        r#"{"f": "[parameters('Filter')]", "l": "[parameters('LATER')]"}"#,
        &[("NAME", "[sales]")],
        expect![[
            r#"topic [sales] …/topics/%5Bsales%5D {"properties":{"f":{"a":["[sales]-local","[x]","// no comment","\"/*"]},"l":"[sales]-local"}}"#
        ]],
    );
    let unknown = r#""Name": {"type": "string", "defaultValue": "orders"}, "id": {"type": "string", "defaultValue": "[what()]"}"#;
    let error = resolve(&template(unknown, "{}"), true, &[]);
    let part = "the default value of the parameter 'id': the expression [what()]: the function \
        what is not known; expected one of";
    assert!(error.starts_with(part), "{error}");
    check(
        usual,
        "{}",
        &[],
        expect![
            "the default value of the parameter 'Name': the expression [concat('a//', \
             variables('tail'))]: there is no variable 'tail'"
        ],
    );
    let circle = r#""Name": {"type": "string", "defaultValue": "[parameters('name')]"}"#;
    assert!(
        resolve(&template(circle, "{}"), true, &[])
            .contains("the default value of the parameter 'Name' refers to itself")
    );
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let topic = "topic orders …/topics/orders {}";
    assert_eq!(resolve("\u{feff}[topics.orders]\n", false, &[]), topic);
    assert_eq!(
        resolve("\u{feff}{\"topics\": {\"orders\": {}}}", true, &[]),
        topic
    );
}

#[test]
fn no_template_takes_the_reader_too_deep() {
    let deep = format!("[{}'a'{}]", "concat(".repeat(5_000), ")".repeat(5_000));
    let text = resolve(
        &format!(
            r#"{{"resources": [{{"type": "Microsoft.EventGrid/topics", "name": "{deep}"}}]}}"#
        ),
        true,
        &[],
    );
    assert!(
        text.ends_with("it is nested deeper than 64 levels"),
        "{text}"
    );
    let endless = r#"{"variables": {"a": "[variables('a')]"}, "resources": [{"type": "Microsoft.EventGrid/topics", "name": "[variables('a')]"}]}"#;
    assert!(self::resolve(endless, true, &[]).contains("the variable 'a' refers to itself"));
}

#[test]
fn a_resource_without_a_name_is_refused_by_its_place() {
    let check = |resources: &str, expected: Expect| {
        expected.assert_eq(&resolve(
            &format!(r#"{{"resources": [{resources}]}}"#),
            true,
            &[],
        ));
    };
    check(
        r#"{"type": "Microsoft.EventGrid/topics"}"#,
        expect!["resource 1: it has no name"],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/topics", "name": null}"#,
        expect!["resource 1: it has no name"],
    );
    check(
        r#"{"type": "Microsoft.EventGrid/topics", "name": 5}"#,
        expect!["resource 1: name is a number; expected a string"],
    );
    check(r#"{"name": "orders"}"#, expect!["orders: it has no type"]);
    check("{}", expect!["resource 1: it has no type"]);
    check("5", expect!["resource 1 is a number; expected an object"]);
    check(
        r#"{"type": "Microsoft.EventGrid/domains", "name": "shop", "resources": [{"type": "topics"}]}"#,
        expect!["shop: resource 1: it has no name"],
    );
}

/// Variables each of which is made of two of the one before.
fn doubling(first: &str, twice: impl Fn(usize) -> String) -> String {
    let mut variables = vec![format!("\"v0\": {first}")];
    variables.extend((1..24).map(|level| format!("\"v{level}\": {}", twice(level - 1))));
    format!(
        r#"{{"variables": {{{}}}, "resources": [{{"type": "Microsoft.EventGrid/topics", "name": "a", "tags": "[variables('v23')]"}}]}}"#,
        variables.join(", ")
    )
}

#[test]
fn variables_that_double_each_other_are_bounded() {
    let texts =
        |level: usize| format!("\"[concat(variables('v{level}'), variables('v{level}'))]\"");
    let lists =
        |level: usize| format!("[\"[variables('v{level}')]\", \"[variables('v{level}')]\"]");
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for template in [
        doubling("\"xxxxxxxxxxxxxxxx\"", texts),
        doubling("[]", lists),
        doubling(&long, texts),
    ] {
        let refused = resolve(&template, true, &[]);
        assert!(
            refused.ends_with(
                "the expressions and loops of the template make more than 16 MiB in total"
            ),
            "{:.200}",
            refused
        );
    }
}

proptest::proptest! {
    /// Any value in a template is read or refused.
    #[test]
    fn no_template_panics(text in "[\\[\\]{}\",: a-c0-9']{0,64}", name in proptest::option::of("[\\[\\]a-z()',]{0,24}"), at in 0..6_usize) {
        let keys = ["name", "type", "scope", "resources", "properties", "condition"];
        let mut resource = serde_json::json!({"type": "Microsoft.EventGrid/topics"});
        if let Some(name) = &name {
            resource["name"] = name.as_str().into();
        }
        resource[keys[at]] = serde_json::from_str(&text).unwrap_or_else(|_| text.clone().into());
        let template = serde_json::json!({"resources": [resource], "variables": {"a": text}});
        resolve(&template.to_string(), true, &[]);
        resolve(&text, true, &[]);
        resolve(&text, false, &[]);
    }
}

#[test]
fn a_number_that_would_be_rounded_is_refused_with_its_place() {
    let toml = |number: &str| {
        let text = format!(
            "[topics.orders.eventSubscriptions.billing]\nendpointUrl = \"https://example.com/\"\n\
             filter = \
             {{ advancedFilters = [{{ operatorType = \"NumberIn\", key = \"data.k\", values = [1, {number}] }}] }}\n"
        );
        resolve(&text, false, &[])
    };
    let json = |number: &str| {
        let text = format!(
            r#"{{"topics": {{"orders": {{"eventSubscriptions": {{"billing": {{"endpointUrl": "https://example.com/",
            "filter": {{"advancedFilters": [{{"operatorType": "NumberIn", "key": "data.k", "values": [1, {number}]}}]}}}}}}}}}}}}"#
        );
        resolve(&text, true, &[])
    };
    let at = "topics.orders.eventSubscriptions.billing.filter.advancedFilters[0].values[1]";
    let why = "which would be rounded; expected an integer of 64 bits or a number of 17 digits";
    for exact in [
        "9223372036854775807",
        "-9223372036854775808",
        "0.1",
        "1e22",
        "1234567890.1234567",
        "0.10000000000000001",
        "0.30000000000000004",
        "5e-324",
        "1.7976931348623157e308",
    ] {
        assert!(
            toml(exact).contains("\"values\":[1,"),
            "{exact}: {}",
            toml(exact)
        );
        assert!(
            json(exact).contains("\"values\":[1,"),
            "{exact}: {}",
            json(exact)
        );
    }
    for rounded in ["0.12345678901234567890", "-1234567890123456789.5"] {
        assert_eq!(toml(rounded), format!("{at} is {rounded}, {why}"));
        assert_eq!(json(rounded), format!("{at} is {rounded}, {why}"));
    }
    assert_eq!(
        toml("+0.12345678901234567890"),
        format!("{at} is 0.12345678901234567890, {why}")
    );
    for none in ["inf", "-nan"] {
        assert_eq!(toml(none), format!("{at} is {none}; expected a number"));
    }
    for large in [
        "9223372036854775808",
        "-9223372036854775809",
        "0xffffffffffffffffff",
    ] {
        let allowed = "expected an integer from -9223372036854775808 to 9223372036854775807";
        assert_eq!(toml(large), format!("{at} is {large}; {allowed}"));
    }
    assert_eq!(
        json("18446744073709551617"),
        format!("{at} is 18446744073709551617, {why}")
    );

    let template = |number: &str| {
        let text = format!(
            r#"{{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
            "parameters": {{"least": {{"type": "int", "defaultValue": {number}}}}}, "resources": []}}"#
        );
        resolve(&text, true, &[])
    };
    assert_eq!(template("7"), "");
    let twenty = "12345678901234567890.5";
    assert_eq!(
        template(twenty),
        format!("parameters.least.defaultValue is {twenty}, {why}")
    );
    let given = r#"{"parameters": {"least": {"type": "int"}}, "resources": []}"#;
    let text = resolve(given, true, &[("least", "18446744073709551617")]);
    assert_eq!(
        text,
        format!("the parameter 'least' (int): is 18446744073709551617, {why}")
    );
}

/// The content of a template of the tests, with these parameters, if foreign resources are left
/// out.
fn left_out(name: &str) -> Result<declared::Declared, declared::DeclarationError> {
    let path = format!(
        "{}/tests/data/templates/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect("a template");
    let options = TemplateOptions {
        foreign: ForeignResources::LeftOut,
        ..TemplateOptions::default()
    };
    declared::read(&text, true, &ResourceGroup::default(), &options)
}

#[test]
fn foreign_resources_are_refused_or_left_out_with_a_reason() {
    let queue = left_out("queue").expect("a template");
    let foreign: Vec<&str> = queue
        .template
        .foreign
        .iter()
        .map(|one| one.kind.as_str())
        .collect();
    assert_eq!(
        foreign,
        [
            "Microsoft.ServiceBus/namespaces",
            "Microsoft.ServiceBus/namespaces/queues"
        ]
    );
    assert_eq!(queue.resources.len(), 2);
    let system = left_out("system").expect("a template");
    assert!(system.resources.is_empty(), "{:?}", system.resources);
    let reasons: Vec<String> = system
        .template
        .foreign
        .iter()
        .map(|one| format!("{}: {}", one.kind, one.reason))
        .collect();
    expect![[r#"
        Microsoft.Storage/storageAccounts: it belongs to another service; a service that exists is named in delivery.resources
        Microsoft.EventGrid/systemTopics: a system topic has the events of a service of Azure, which publishes none here
        Microsoft.EventGrid/systemTopics/eventSubscriptions: a system topic has the events of a service of Azure, which publishes none here
        Microsoft.EventGrid/eventSubscriptions: its scope is not a topic: an Azure subscription, a resource group and the services of Azure publish no events here
        Microsoft.EventGrid/eventSubscriptions: its scope is not a topic: an Azure subscription, a resource group and the services of Azure publish no events here"#]].assert_eq(&reasons.join("\n"));
    // A resource that refers to a foreign one cannot be left out.
    expect!["/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/topic-p6taaydrzzvxo/providers/Microsoft.EventGrid/eventSubscriptions/to-flow needs listCallbackUrl of /subscriptions/local/resourcegroups/dev/providers/microsoft.logic/workflows/flow-p6taaydrzzvxo/triggers/manual, a resource that this server does not have; replace the expression by a parameter"].assert_eq(&left_out("workflow").expect_err("a callback").to_string());
    let path = format!(
        "{}/tests/data/templates/system.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let refused = resolve(
        &std::fs::read_to_string(path).expect("a template"),
        true,
        &[],
    );
    expect![
        "storagep6taaydrzzvxo: a resource of the type Microsoft.Storage/storageAccounts is not \
        supported: it belongs to another service; a service that exists is named in \
        delivery.resources; expected topics, domains, namespaces, the topics of these two, or \
        eventSubscriptions below topics or domains, of Microsoft.EventGrid. All such types: \
        Microsoft.EventGrid/eventSubscriptions, Microsoft.EventGrid/systemTopics, \
        Microsoft.EventGrid/systemTopics/eventSubscriptions, Microsoft.Storage/storageAccounts. \
        With --ignore-foreign such \
        resources are left out"
    ]
    .assert_eq(&refused);
}

/// A module with a private endpoint, a topic of a service of Azure, and outputs of both.
const OUTPUTS: &str = r#"{"resources": [
    {"type": "Microsoft.EventGrid/topics", "name": "orders"},
    {"type": "Microsoft.EventGrid/topics/privateEndpointConnections", "name": "orders/one"},
    {"type": "Microsoft.EventGrid/systemTopics", "name": "blobs"},
    {"type": "Microsoft.Resources/deployments", "name": "endpoint", "properties": {
        "expressionEvaluationOptions": {"scope": "inner"}, "template": {"resources": [
            {"type": "Microsoft.Network/privateEndpoints", "name": "a"}],
            "outputs": {"place": {"type": "string",
                "value": "[reference(resourceId('Microsoft.Network/privateEndpoints', 'a'), '1', 'Full').location]"}}}}}],
    "outputs": {
        "own": {"type": "string", "value": "[reference('orders').endpoint]"},
        "place": {"type": "string", "value": "[reference('endpoint').outputs.place.value]"},
        "blobs": {"type": "string", "value": "[reference('blobs', '1', 'Full').location]"}}}"#;

#[test]
fn an_output_that_needs_what_is_left_out_is_left_out_too() {
    let options = TemplateOptions {
        foreign: ForeignResources::LeftOut,
        ..TemplateOptions::default()
    };
    let read = declared::read(OUTPUTS, true, &ResourceGroup::default(), &options);
    let read = read.expect("a template");
    let names = |all: &[declared::PendingValue]| -> Vec<String> {
        all.iter().map(|one| one.what.clone()).collect()
    };
    assert_eq!(
        names(&read.template.unobtainable_outputs),
        ["the output blobs", "the output place"]
    );
    assert_eq!(names(&read.template.pending), ["the output own"]);
    let reasons: Vec<&str> = read
        .template
        .foreign
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "the address that the server listens on decides who reaches it",
            "the address that the server listens on decides who reaches it",
            "a system topic has the events of a service of Azure, which publishes none here",
        ]
    );
    // An output that needs a service which the template does not create.
    let text = r#"{"resources": [], "outputs": {"host": {"type": "string",
        "value": "[reference('/subscriptions/s/resourceGroups/r/providers/Microsoft.Web/sites/app').defaultHostName]"}}}"#;
    let refused = resolve(text, true, &[]);
    assert!(
        refused.contains("the output host needs reference of /subscriptions/s/")
            && refused.ends_with("With --ignore-foreign such outputs are left out"),
        "{refused}"
    );
}

#[test]
fn a_deployment_that_needs_another_service_is_left_out_with_a_reason() {
    let text = r#"{"resources": [
        {"type": "Microsoft.EventGrid/topics", "name": "orders"},
        {"type": "Microsoft.Resources/deployments", "name": "endpoint", "properties": {
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {"place": {"value": "[reference('/subscriptions/s/resourceGroups/r/providers/Microsoft.Network/virtualNetworks/v', '2023-04-01', 'Full').location]"}},
            "template": {"parameters": {"place": {"type": "string"}}, "resources": [
                {"type": "Microsoft.Network/privateEndpoints", "name": "a", "location": "[parameters('place')]"}]}}}]}"#;
    let options = TemplateOptions {
        foreign: ForeignResources::LeftOut,
        ..TemplateOptions::default()
    };
    let read = declared::read(text, true, &ResourceGroup::default(), &options).expect("a template");
    assert_eq!(read.resources.len(), 1);
    let [left_out] = &read.template.foreign[..] else {
        panic!("{:?}", read.template)
    };
    assert!(
        left_out
            .id
            .ends_with("/providers/Microsoft.Resources/deployments/endpoint"),
        "{left_out:?}"
    );
    assert!(
        left_out
            .reason
            .contains("needs the state of /subscriptions/s/")
            && read.first_pending_resource().is_none()
    );
    let refused = resolve(text, true, &[]);
    assert!(
        refused.contains("endpoint: a resource of the type Microsoft.Resources/deployments is not")
            && refused.contains("it needs the state of /subscriptions/s/"),
        "{refused}"
    );
}

#[test]
fn a_file_may_have_every_property_that_an_event_subscription_has() {
    let document =
        gridhook::admin::openapi::generate_document(gridhook::admin::ChaosMode::Disabled);
    let schemas = &document["components"]["schemas"];
    for schema in [
        "EventSubscriptionProperties",
        "NamespaceSubscriptionProperties",
        "WebhookProperties",
    ] {
        let properties = schemas[schema]["properties"]
            .as_object()
            .expect("an object");
        assert!(!properties.is_empty(), "{schema}");
        for key in properties.keys() {
            let text = format!("[topics.orders.eventSubscriptions.billing]\n{key} = []\n");
            let declared = resolve(&text, false, &[]);
            let is_read_only = properties[key]["readOnly"] == true;
            assert!(
                !declared.contains("unknown key") || is_read_only && schema == "WebhookProperties",
                "{schema}.{key}: {declared}"
            );
        }
    }
}
