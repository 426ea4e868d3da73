//! The requests of Terraform's provider `azurerm` for each resource and data source of Event Grid
//! that exists here, in their order, with the statuses that its clients accept and the values that
//! it compares with the configuration (its source, 2026-08-21). It waits until a change is done:
//! the responses say so at once.

use serde_json::{Value, json};

use crate::support::{server::Server, sink::Sink};

const GROUP: &str = "/subscriptions/s/resourceGroups/tf";
const GROUPS_VERSION: &str = "2023-07-01";
const VERSION: &str = "2025-02-15";
const NAMESPACES_VERSION: &str = "2023-12-15-preview";

/// The body of a change in place, the statuses of its response, and the values afterwards.
type ChangeInPlace = (Value, &'static [u16], Vec<(&'static str, Value)>);

/// A resource of a configuration.
struct Resource {
    path: String,
    version: &'static str,
    body: Value,
    /// The values of a GET that are in the configuration, by JSON pointer.
    shown: Vec<(&'static str, Value)>,
    change: Option<ChangeInPlace>,
    /// The statuses of a DELETE that its client accepts.
    deleted: &'static [u16],
}

fn provider(name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.EventGrid/{name}")
}

fn topic() -> Resource {
    Resource {
        path: provider("topics/orders"),
        version: VERSION,
        body: json!({"location": "westeurope", "tags": {"a": "b"}, "identity": {"type": "SystemAssigned"},
            "properties": {"inputSchema": "EventGridSchema", "publicNetworkAccess": "Enabled",
                "disableLocalAuth": false, "inboundIpRules": [{"action": "Allow", "ipMask": "127.0.0.0/8"}]}}),
        shown: vec![
            ("/location", json!("westeurope")),
            ("/tags", json!({"a": "b"})),
            ("/identity/type", json!("SystemAssigned")),
            ("/properties/inputSchema", json!("EventGridSchema")),
            ("/properties/publicNetworkAccess", json!("Enabled")),
            ("/properties/disableLocalAuth", json!(false)),
            ("/properties/inboundIpRules/0/ipMask", json!("127.0.0.0/8")),
        ],
        change: Some((
            json!({"tags": {"c": "d"}, "properties": {"inboundIpRules": []}}),
            &[200, 201],
            vec![
                ("/tags", json!({"c": "d"})),
                ("/properties/inboundIpRules", json!([])),
            ],
        )),
        deleted: &[202, 204],
    }
}

fn domain() -> Resource {
    Resource {
        path: provider("domains/shops"),
        version: VERSION,
        body: json!({"location": "westeurope", "properties": {
            "autoCreateTopicWithFirstSubscription": true, "autoDeleteTopicWithLastSubscription": true,
            "inputSchema": "CloudEventSchemaV1_0", "publicNetworkAccess": "Enabled", "disableLocalAuth": false}}),
        shown: vec![
            (
                "/properties/autoCreateTopicWithFirstSubscription",
                json!(true),
            ),
            (
                "/properties/autoDeleteTopicWithLastSubscription",
                json!(true),
            ),
            ("/properties/inputSchema", json!("CloudEventSchemaV1_0")),
        ],
        change: Some((
            json!({"properties": {"autoDeleteTopicWithLastSubscription": false}}),
            &[200, 201],
            vec![(
                "/properties/autoDeleteTopicWithLastSubscription",
                json!(false),
            )],
        )),
        deleted: &[200, 202, 204],
    }
}

fn domain_topic() -> Resource {
    Resource {
        path: provider("domains/shops/topics/berlin"),
        version: VERSION,
        body: json!({}),
        shown: vec![("/name", json!("berlin"))],
        change: None,
        deleted: &[200, 202, 204],
    }
}

/// The body of `azurerm_eventgrid_event_subscription`: empty and null values for properties that
/// are not configured, and the id of its scope first.
fn subscription(scope: &str, name: &str, endpoint: &str) -> Resource {
    let body = |labels: &Value| {
        json!({"properties": {
            "deadLetterDestination": null, "eventDeliverySchema": "EventGridSchema", "expirationTimeUtc": "",
            "destination": {"endpointType": "WebHook", "properties": {
                "deliveryAttributeMappings": null, "endpointUrl": endpoint, "maxEventsPerBatch": 10,
                "preferredBatchSizeInKilobytes": 100}},
            "filter": {"enableAdvancedFilteringOnArrays": true, "includedEventTypes": ["Order.Placed"],
                "subjectBeginsWith": "/orders", "subjectEndsWith": "", "isSubjectCaseSensitive": false,
                "advancedFilters": [{"key": "data.total", "operatorType": "NumberGreaterThan", "value": 5}]},
            "labels": labels, "retryPolicy": {"eventTimeToLiveInMinutes": 60, "maxDeliveryAttempts": 7},
        }})
    };
    Resource {
        path: format!("{scope}/providers/Microsoft.EventGrid/eventSubscriptions/{name}"),
        version: VERSION,
        body: body(&json!(["one"])),
        shown: vec![
            ("/properties/eventDeliverySchema", json!("EventGridSchema")),
            ("/properties/expirationTimeUtc", Value::Null),
            ("/properties/labels", json!(["one"])),
            ("/properties/destination/endpointType", json!("WebHook")),
            (
                "/properties/destination/properties/maxEventsPerBatch",
                json!(10),
            ),
            (
                "/properties/destination/properties/preferredBatchSizeInKilobytes",
                json!(100),
            ),
            (
                "/properties/filter/enableAdvancedFilteringOnArrays",
                json!(true),
            ),
            (
                "/properties/filter/includedEventTypes",
                json!(["Order.Placed"]),
            ),
            ("/properties/filter/subjectBeginsWith", json!("/orders")),
            (
                "/properties/filter/advancedFilters/0/operatorType",
                json!("NumberGreaterThan"),
            ),
            (
                "/properties/retryPolicy/eventTimeToLiveInMinutes",
                json!(60),
            ),
            ("/properties/retryPolicy/maxDeliveryAttempts", json!(7)),
        ],
        // A change is the whole body again.
        change: Some((
            body(&json!(["two"])),
            &[201],
            vec![("/properties/labels", json!(["two"]))],
        )),
        deleted: &[200, 202, 204],
    }
}

fn namespace() -> Resource {
    Resource {
        path: provider("namespaces/plant"),
        version: NAMESPACES_VERSION,
        body: json!({"identity": {"type": "None"}, "location": "westeurope", "name": "plant", "tags": {},
            "properties": {"inboundIpRules": null, "publicNetworkAccess": "Enabled"},
            "sku": {"capacity": 2, "name": "Standard"}}),
        shown: vec![
            ("/location", json!("westeurope")),
            ("/sku", json!({"name": "Standard", "capacity": 2})),
            ("/properties/publicNetworkAccess", json!("Enabled")),
            ("/properties/topicSpacesConfiguration", Value::Null),
        ],
        change: Some((
            json!({"properties": {}, "sku": {"capacity": 3}, "tags": {"a": "b"}}),
            &[200, 202],
            vec![("/sku/capacity", json!(3)), ("/tags", json!({"a": "b"}))],
        )),
        deleted: &[200, 202, 204],
    }
}

fn namespace_topic() -> Resource {
    Resource {
        path: provider("namespaces/plant/topics/heat"),
        version: VERSION,
        body: json!({"name": "heat", "properties": {"eventRetentionInDays": 7,
            "inputSchema": "CloudEventSchemaV1_0", "publisherType": "Custom"}}),
        shown: vec![("/properties/eventRetentionInDays", json!(7))],
        change: Some((
            json!({"properties": {"eventRetentionInDays": 2}}),
            &[200, 202],
            vec![("/properties/eventRetentionInDays", json!(2))],
        )),
        deleted: &[200, 202, 204],
    }
}

impl Resource {
    fn url(&self) -> String {
        format!("{}?api-version={}", self.path, self.version)
    }

    fn check_values(&self, server: &Server, values: &[(&str, Value)]) {
        let shown = server.command("GET", &self.url(), &Value::Null).json();
        for (at, value) in values {
            let actual = shown.pointer(at).unwrap_or(&Value::Null);
            assert_eq!(actual, value, "{}: {at} of {shown}", self.path);
        }
    }

    /// It must not exist before.
    fn create(&self, server: &Server) {
        assert_eq!(
            server.admin("GET", &self.url(), &Value::Null).status,
            404,
            "{}",
            self.path
        );
        let response = server.admin("PUT", &self.url(), &self.body);
        assert_eq!(response.status, 201, "{}: {}", self.path, response.text());
        assert!(
            response.header("azure-asyncoperation").is_none()
                && response.header("x-go-azure-sdk-skip-polling-delay") == Some("true"),
            "it is done at once: {}",
            self.path
        );
        self.check_values(server, &self.shown);
    }

    fn change(&self, server: &Server) {
        let Some((body, statuses, values)) = &self.change else {
            return;
        };
        let method = if self.path.contains("/eventSubscriptions/") {
            "PUT"
        } else {
            "PATCH"
        };
        let response = server.admin(method, &self.url(), body);
        assert!(
            statuses.contains(&response.status),
            "{}: {}",
            self.path,
            response.text()
        );
        self.check_values(server, values);
    }

    fn delete(&self, server: &Server) {
        let deleted = server.admin("DELETE", &self.url(), &Value::Null);
        assert!(
            self.deleted.contains(&deleted.status),
            "{}: {}",
            self.path,
            deleted.status
        );
        assert_eq!(
            server.admin("GET", &self.url(), &Value::Null).status,
            404,
            "{}",
            self.path
        );
    }
}

#[test]
fn resources_and_data_sources_of_azurerm_are_created_changed_read_and_destroyed() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let group = |path: &str| format!("{GROUP}{path}?api-version={GROUPS_VERSION}");
    let none = &Value::Null;
    assert_eq!(server.admin("GET", &group(""), none).status, 404);
    let body = json!({"location": "westeurope", "tags": {}});
    assert!([200, 201].contains(&server.admin("PUT", &group(""), &body).status));
    let patch = json!({"tags": {"a": "b"}});
    assert_eq!(server.admin("PATCH", &group(""), &patch).status, 200);
    assert_eq!(
        server.command("GET", &group(""), none).json()["tags"],
        json!({"a": "b"})
    );

    let scope = provider("topics/orders");
    let mut resources = vec![
        topic(),
        domain(),
        domain_topic(),
        subscription(&scope, "of-topic", &sink.url("/1")),
        subscription(&provider("domains/shops"), "of-domain", &sink.url("/2")),
        subscription(
            &provider("domains/shops/topics/berlin"),
            "of-berlin",
            &sink.url("/3"),
        ),
        namespace(),
        namespace_topic(),
    ];
    for resource in &mut resources {
        if resource.path.contains("/domains/") {
            // The domain has CloudEvents.
            if let Some(schema) = resource.body.pointer_mut("/properties/eventDeliverySchema") {
                *schema = "CloudEventSchemaV1_0".into();
                resource
                    .shown
                    .retain(|(at, _)| !at.ends_with("/eventDeliverySchema"));
            }
            if let Some((body, ..)) = &mut resource.change
                && let Some(schema) = body.pointer_mut("/properties/eventDeliverySchema")
            {
                *schema = "CloudEventSchemaV1_0".into();
            }
        }
        resource.create(&server);
    }
    for resource in &resources {
        resource.change(&server);
    }
    // The data sources of topics, domains and domain topics read with the same GET, and the first
    // two with the access keys.
    for kind in ["topics/orders", "domains/shops"] {
        let keys = format!("{}/listKeys?api-version={VERSION}", provider(kind));
        let keys = server.admin("POST", &keys, none);
        assert_eq!(keys.status, 200, "{}", keys.text());
        assert!(keys.json()["key1"].is_string() && keys.json()["key2"].is_string());
        let endpoint =
            server.command("GET", &provider(kind), none).json()["properties"]["endpoint"].take();
        assert!(endpoint.is_string(), "{kind}");
    }
    // The address of a webhook, with its query.
    let url =
        format!("{scope}/providers/Microsoft.EventGrid/eventSubscriptions/of-topic/getFullUrl");
    let url = server.admin("POST", &format!("{url}?api-version={VERSION}"), none);
    assert_eq!(
        (url.status, &url.json()["endpointUrl"]),
        (200, &sink.url("/1").into())
    );

    // A group with resources is not destroyed, so they go first.
    let listed = server.command("GET", &group("/resources"), none).json();
    assert_eq!(
        listed["value"].as_array().map(Vec::len),
        Some(3),
        "{listed}"
    );
    for resource in resources.iter().rev() {
        resource.delete(&server);
    }
    let listed = server.command("GET", &group("/resources"), none).json();
    assert_eq!(listed["value"], json!([]));
    assert!([200, 202].contains(&server.admin("DELETE", &group(""), none).status));
    assert_eq!(server.admin("GET", &group(""), none).status, 404);
}

#[test]
fn resources_of_azurerm_that_do_not_exist_here_are_refused_with_the_reason() {
    let server = Server::start(&[]);
    for (kind, reason) in [
        (
            "systemTopics/blobs",
            "services of Azure publish no events here",
        ),
        ("partnerConfigurations/default", "there are no partners"),
        ("partnerNamespaces/shop", "there are no partners"),
        ("partnerRegistrations/shop", "there are no partners"),
    ] {
        let path = format!("{}?api-version={VERSION}", provider(kind));
        assert_eq!(
            server.admin("GET", &path, &Value::Null).status,
            404,
            "{kind}"
        );
        let response = server.admin("PUT", &path, &json!({"location": "westeurope"}));
        assert!(
            response.status >= 400 && response.text().contains(reason),
            "{kind}: {} {}",
            response.status,
            response.text()
        );
    }
}
