//! The OpenAPI document and the server: every operation of one is in the other.

use std::collections::{BTreeMap, BTreeSet};

use gridhook::{
    admin::{ChaosMode, GridhookRoute, arm::routes::ROUTES, openapi::generate_document},
    publish::{http, namespace},
    pull,
};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};

/// The methods of HTTP that a path can be asked with.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

fn operations(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().expect("paths");
    let reported = paths.iter().flat_map(|(path, item)| {
        let methods = item
            .as_object()
            .expect("operations")
            .keys()
            .filter(|key| *key != "parameters");
        methods
            .map(|method| (path.clone(), method.to_ascii_uppercase()))
            .collect::<Vec<_>>()
    });
    reported.collect()
}

/// The paths of those who publish to namespaces and those who pull from them, with the method of
/// each.
fn namespaces() -> Vec<(String, actix_web::http::Method)> {
    let publish = namespace::publish_paths().map(|path| (path, namespace::METHOD));
    let pull = pull::http::OPERATIONS
        .into_iter()
        .flat_map(pull::http::operation_paths);
    publish
        .into_iter()
        .chain(pull.map(|path| (path, pull::http::METHOD)))
        .collect()
}

/// A path with the names that its parameters have as examples, or with others.
fn filled(
    document: &Value,
    path: &str,
    item: &Value,
    name: impl Fn(&str, &str) -> String,
) -> String {
    let mut path = path.to_owned();
    for parameter in item["parameters"].as_array().into_iter().flatten() {
        let reference = parameter["$ref"]
            .as_str()
            .expect("a reference")
            .trim_start_matches('#');
        let of = |key: &str| {
            document.pointer(reference).expect("it is there")[key]
                .as_str()
                .expect("text")
        };
        path = path.replace(
            &format!("{{{}}}", of("name")),
            &name(of("name"), of("example")),
        );
    }
    assert!(!path.contains('{'), "{path}: a name is not described");
    path
}

#[test]
fn every_route_is_described_and_nothing_else() {
    for chaos in [ChaosMode::Enabled, ChaosMode::Disabled] {
        let mut routes = BTreeSet::new();
        let mut add = |path: &str, methods: &[actix_web::http::Method]| {
            routes.extend(
                methods
                    .iter()
                    .map(|method| (path.to_owned(), method.to_string())),
            );
        };
        http::PATHS
            .iter()
            .for_each(|path| add(path, &http::METHODS));
        namespaces()
            .into_iter()
            .for_each(|(path, method)| add(&path, &[method]));
        for path in GridhookRoute::all_routes(chaos) {
            path.operations()
                .for_each(|(method, _)| add(path.template, std::slice::from_ref(method)));
        }
        for route in ROUTES.iter() {
            route.operations.iter().for_each(|operation| {
                add(&route.template, std::slice::from_ref(&operation.method))
            });
        }
        assert_eq!(operations(&generate_document(chaos)), routes);
    }
}

#[test]
fn the_description_has_the_paths_that_operators_know() {
    let reported = operations(&generate_document(ChaosMode::Enabled));
    let below = |rest: &str| {
        format!(
            "/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}/providers/Microsoft.EventGrid{rest}"
        )
    };
    let known = [
        ("POST", "/topics/{topic}/api/events".to_owned()),
        ("OPTIONS", "/domains/{domain}/api/events".to_owned()),
        ("POST", "/api/events".to_owned()),
        ("GET", "/healthz".to_owned()),
        ("HEAD", "/readyz".to_owned()),
        ("GET", "/openapi.json".to_owned()),
        ("POST", "/chaos/kill".to_owned()),
        (
            "GET",
            "/eventsubscriptions/{eventSubscriptionName}/validate".to_owned(),
        ),
        (
            "GET",
            "/providers/Microsoft.EventGrid/topicTypes/{topicTypeName}/eventTypes".to_owned(),
        ),
        (
            "GET",
            "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/domains".to_owned(),
        ),
        ("PATCH", below("/topics/{topicName}")),
        ("POST", below("/topics/{topicName}/regenerateKey")),
        (
            "PUT",
            below("/domains/{domainName}/topics/{domainTopicName}"),
        ),
        (
            "PUT",
            below("/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}"),
        ),
        (
            "GET",
            below("/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/explain"),
        ),
        (
            "POST",
            below("/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/testFilter"),
        ),
        (
            "POST",
            below(
                "/domains/{domainName}/topics/{domainTopicName}/providers/Microsoft.EventGrid/eventSubscriptions/{eventSubscriptionName}/hold",
            ),
        ),
    ];
    for (method, path) in known {
        assert!(
            reported.contains(&(path.clone(), method.to_owned())),
            "{method} {path}"
        );
    }
}

#[actix_web::test]
async fn described_operations_are_answered_and_others_are_refused_with_the_allowed_ones() {
    let control = ControlFixture::new(ChaosMode::Enabled);
    let document = generate_document(ChaosMode::Enabled);
    let reported = operations(&document);
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        if http::PATHS.contains(&path.as_str()) || namespaces().iter().any(|(of, _)| of == path) {
            continue;
        }
        let real = filled(&document, path, item, |_, example| example.to_owned());
        // A stream of server-sent events has no end.
        for method in METHODS
            .into_iter()
            .filter(|method| !(path == "/tail" && *method == "GET"))
        {
            let response = control.call(method, &real, Value::Null).await;
            // HEAD is GET without its body, except for a stream and for a confirmation.
            let has_head = method == "HEAD" && path != "/tail" && !path.ends_with("/validate");
            if has_head && reported.contains(&(path.clone(), "GET".to_owned())) {
                assert_ne!(response.status, 405, "{method} {path}");
                continue;
            }
            let is_described = reported.contains(&(path.clone(), method.to_owned()));
            assert_eq!(
                response.status != 405,
                is_described,
                "{method} {path}: {}",
                response.brief()
            );
            assert_ne!(response.status, 500, "{method} {path}: {}", response.text);
            if is_described {
                assert!(
                    !response.text.contains("No HTTP resource"),
                    "{method} {path}: {}",
                    response.text
                );
                let status = response.status.to_string();
                assert!(
                    !item[method.to_ascii_lowercase()]["responses"][&status].is_null(),
                    "{method} {path}: {status}"
                );
                asked += 1;
            } else {
                let allowed = response
                    .headers
                    .get("Allow")
                    .expect("it says what is allowed")
                    .to_str()
                    .expect("text");
                for allowed in allowed.split(", ").filter(|allowed| *allowed != "HEAD") {
                    assert!(
                        reported.contains(&(path.clone(), allowed.to_owned())),
                        "{path} allows {allowed}"
                    );
                }
            }
        }
    }
    assert!(asked > 100, "{asked} operations were asked");
}

#[actix_web::test]
async fn the_examples_of_the_description_are_taken() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let document = generate_document(ChaosMode::Disabled);
    let paths = document["paths"].as_object().expect("paths");
    // Create a child after its parent: its path is longer.
    let is_supported = |item: &Value| item["put"]["tags"] != json!(["not supported"]);
    let mut puts: Vec<_> = paths
        .iter()
        .filter(|(_, item)| !item["put"].is_null() && is_supported(item))
        .collect();
    puts.sort_by_key(|(path, _)| path.len());
    assert_eq!(
        puts.len(),
        17,
        "resource groups, deployments, topics, domains, namespaces, the topics of both, the event types of \
         three, and seven ways to a subscription"
    );
    for (path, item) in puts {
        let real = filled(&document, path, item, |_, example| example.to_owned());
        for method in ["put", "patch"] {
            if item[method].is_null() {
                continue;
            }
            let body =
                item[method]["requestBody"]["content"]["application/json"]["example"].clone();
            let response = control
                .call(&method.to_ascii_uppercase(), &real, body)
                .await;
            // Azure's clients want it so of what belongs to namespaces.
            let is_group = path.ends_with("/{resourceGroupName}");
            let is_updated = method == "patch" && (is_group || path.contains("/namespaces/"));
            let expected = if is_updated { 200 } else { 201 };
            assert_eq!(
                response.status, expected,
                "{method} {path}: {}",
                response.text
            );
        }
    }
}

#[actix_web::test]
async fn the_description_needs_no_token_and_has_no_secret() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let path = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    assert_eq!(control.call("PUT", &path, hook()).await.status, 201);
    let response = control
        .send(actix_web::test::TestRequest::with_uri("/openapi.json"))
        .await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.headers.get("Content-Type").expect("it is there"),
        "application/json"
    );
    assert_eq!(response.json(), generate_document(ChaosMode::Disabled));
    for secret in ["swordfish", "code=secret", "to-shop", "/chaos/"] {
        assert!(!response.text.contains(secret), "{secret}");
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_an_id_of_its_own() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    found.insert(to.clone());
                }
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = generate_document(ChaosMode::Enabled);
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in found {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let mut ids = BTreeSet::new();
    for (path, method) in operations(&document) {
        let operation = &document["paths"][&path][method.to_ascii_lowercase()];
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id.to_owned()), "{id} twice, at {method} {path}");
        assert!(
            operation["responses"]
                .as_object()
                .is_some_and(|answers| !answers.is_empty()),
            "{id}"
        );
        let is_open = ["health", "description", "validation"]
            .map(|tag| json!([tag]))
            .contains(&operation["tags"]);
        assert!(
            is_open || method == "OPTIONS" || operation["security"] != json!([]),
            "{id} asks for nothing"
        );
    }
}

/// Every text that describes something, with where it stands.
fn texts<'a>(value: &'a Value, at: &str, found: &mut Vec<(String, &'a str)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) if key == "description" || key == "summary" => {
                        found.push((format!("{at}/{key}"), text));
                    }
                    Value::Object(_) | Value::Array(_) => {
                        texts(value, &format!("{at}/{key}"), found)
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|value| texts(value, at, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The properties of a schema, and of those in it, that have no description.
fn undescribed(schema: &Value, at: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, property) in members
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                if property["description"].is_null() {
                    found.push(format!("{at}/{name}"));
                }
            }
            for (key, value) in members {
                match (key.as_str(), value) {
                    // Its keys are names of properties, of which one may be "properties".
                    ("properties", Value::Object(properties)) => {
                        properties.iter().for_each(|(name, value)| {
                            undescribed(value, &format!("{at}/{name}"), found)
                        });
                    }
                    (_, value) => undescribed(value, &format!("{at}/{key}"), found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|value| undescribed(value, at, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_operation_parameter_field_and_answer_is_described_in_more_than_a_word() {
    let document = generate_document(ChaosMode::Enabled);
    let mut found = Vec::new();
    texts(&document, "", &mut found);
    assert!(found.len() > 1_000, "{} texts", found.len());
    let pronouns = ["It", "They", "So", "Them", "Theirs", "Its"];
    let bad = |text: &str| {
        text.split_whitespace().count() < 2
            || pronouns
                .iter()
                .any(|word| text.starts_with(&format!("{word} ")))
    };
    let bad: Vec<_> = found.iter().filter(|(_, text)| bad(text)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let stopped: Vec<_> = found
        .iter()
        .filter(|(at, text)| {
            at.ends_with("/summary")
                && (text.ends_with('.') || !text.starts_with(char::is_uppercase))
        })
        .collect();
    assert!(stopped.is_empty(), "{stopped:#?}");
    // Placeholders that fit anything describe nothing.
    let vague = [
        "of the item",
        "or their number",
        "or means",
        "items of the list",
    ];
    let vague: Vec<_> = found
        .iter()
        .filter(|(_, text)| text.ends_with('.') || vague.iter().any(|words| text.contains(words)))
        .collect();
    assert!(vague.is_empty(), "{vague:#?}");
    let mut silent = Vec::new();
    undescribed(&document["components"]["schemas"], "", &mut silent);
    assert!(silent.is_empty(), "{silent:#?}");
    for (path, method) in operations(&document) {
        let operation = &document["paths"][&path][method.to_ascii_lowercase()];
        assert!(operation["summary"].is_string(), "{method} {path}");
        for (status, response) in operation["responses"].as_object().expect("answers") {
            assert!(
                response["description"].is_string() || response["$ref"].is_string(),
                "{method} {path} {status}"
            );
        }
    }
}

/// The kind of the values of a property, as far as it matters for what a name means.
fn kind_of(property: &Value) -> Option<&str> {
    let one = match &property["type"] {
        Value::String(one) => Some(one.as_str()),
        Value::Array(several) => several
            .iter()
            .filter_map(Value::as_str)
            .find(|one| *one != "null"),
        _ => None,
    };
    match one {
        Some("integer" | "number") => Some("number"),
        Some(other) => Some(other),
        None => None,
    }
}

#[test]
fn a_field_of_another_kind_has_a_description_of_its_own() {
    let document = generate_document(ChaosMode::Enabled);
    let mut known: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (schema, definition) in document["components"]["schemas"]
        .as_object()
        .expect("schemas")
    {
        for (name, property) in definition["properties"].as_object().into_iter().flatten() {
            let (Some(kind), Some(text)) = (kind_of(property), property["description"].as_str())
            else {
                continue;
            };
            known
                .entry((name.clone(), text.to_owned()))
                .or_default()
                .insert(format!("{kind} in {schema}"));
        }
    }
    let kinds = |of: &BTreeSet<String>| {
        of.iter()
            .filter_map(|one| one.split(' ').next())
            .collect::<BTreeSet<_>>()
            .len()
    };
    let wrong: Vec<_> = known.iter().filter(|(_, of)| kinds(of) > 1).collect();
    assert!(
        wrong.is_empty(),
        "one description for fields of several kinds: {wrong:#?}"
    );
    let described = |schema: &str, field: &str| {
        document["components"]["schemas"][schema]["properties"][field]["description"].clone()
    };
    for (schema, field, text) in [
        ("Top", "held", "Number of held event subscriptions"),
        (
            "Replay",
            "state",
            "State of the job: `running`, `paused`, `canceling`, `completed` or `canceled`",
        ),
        (
            "ChaosKill",
            "by",
            "How the actor ends: by a panic or by a regular stop",
        ),
        ("SimulatedDistribution", "p50", "Median of the values"),
        ("ChaosFault", "number", "Number of the fault, from 1"),
        (
            "TransformReportLine",
            "id",
            "`id` of the event, as the publisher set it",
        ),
    ] {
        assert_eq!(described(schema, field), text, "{schema}.{field}");
    }
}

/// A number that a client may leave out has its range, and what holds then.
#[test]
fn numbers_in_bodies_are_described_with_their_ranges_and_defaults() {
    let document = generate_document(ChaosMode::Disabled);
    for field in [
        "RetryPolicy/maxDeliveryAttempts",
        "RetryPolicy/eventTimeToLiveInMinutes",
        "WebhookProperties/maxEventsPerBatch",
        "WebhookProperties/preferredBatchSizeInKilobytes",
        "QueueInfo/receiveLockDurationInSeconds",
        "QueueInfo/maxDeliveryCount",
        "PushInfo/maxDeliveryCount",
        "NamespaceTopicProperties/eventRetentionInDays",
        "NamespaceSku/capacity",
    ] {
        let (schema, name) = field.split_once('/').expect("a schema and a name");
        let property = &document["components"]["schemas"][schema]["properties"][name];
        let text = property["description"].as_str().unwrap_or_default();
        let numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty())
            .count();
        assert!(
            numbers >= 3 && text.contains(" to ") && text.contains("; default "),
            "{field}: {text}"
        );
        for bound in ["minimum", "maximum"] {
            if let Some(bound) = property[bound].as_u64().filter(|bound| *bound > 0) {
                assert!(
                    text.contains(&bound.to_string()),
                    "{field}: {text}, and not {bound}"
                );
            }
        }
    }
}

#[test]
fn parts_that_operations_share_are_described_once() {
    let document = generate_document(ChaosMode::Enabled);
    let size = document.to_string().len();
    let operations = operations(&document).len();
    assert!(
        size < 1_790 * operations,
        "{size} bytes for {operations} operations"
    );
}

/// Generators of clients put all constants of a package in one namespace, call the constructor of a
/// type `New` and its name, and skip operations that never succeed.
#[test]
fn the_document_has_what_generators_of_clients_need() {
    let document = generate_document(ChaosMode::Enabled);
    assert_eq!(
        document["info"]["license"]["identifier"],
        env!("CARGO_PKG_LICENSE")
    );
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    let mut constants = BTreeSet::new();
    for (name, schema) in schemas {
        if let Some(constructed) = name.strip_prefix("New") {
            assert!(
                !schemas.contains_key(constructed),
                "{name} is the constructor of {constructed}"
            );
        }
        let values = schema["enum"].as_array().map_or(&[][..], Vec::as_slice);
        let names = schema["x-enum-varnames"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        assert_eq!(values.len(), names.len(), "{name}");
        for constant in names
            .iter()
            .map(|constant| constant.as_str().expect("text"))
        {
            assert!(
                constant
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            );
            assert!(
                constants.insert(constant.to_owned()),
                "{constant} of {name} is there twice"
            );
        }
    }
    assert!(
        constants.contains("IDENTITY_KIND_SYSTEM_ASSIGNED_USER_ASSIGNED"),
        "{constants:?}"
    );
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item
            .as_object()
            .expect("operations")
            .iter()
            .filter(|(key, _)| *key != "parameters")
        {
            let responses = operation["responses"].as_object().expect("responses");
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{method} {path}"
            );
        }
    }
}
