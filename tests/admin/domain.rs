//! Domains and their topics, over HTTP against a registry in memory.

use expect_test::expect;
use gridhook::{
    admin::ChaosMode,
    store::{
        Family, Store,
        keys::{MetaKind, meta_of},
    },
};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};
use crate::support::publisher::running_registry;

const NORTH: &str = "domains/shop/topics/north";

impl ControlFixture {
    async fn ask(&self, method: &str, path: &str, body: Value) -> super::control::Response {
        self.call(method, &format!("{RG}/{path}"), body).await
    }

    async fn with_domain(self, properties: Value) -> Self {
        let response = self
            .ask("PUT", "domains/shop", json!({"properties": properties}))
            .await;
        assert_eq!(response.status, 201, "{}", response.text);
        self
    }

    async fn topics(&self) -> Vec<String> {
        let list = self
            .ask("GET", "domains/shop/topics", Value::Null)
            .await
            .json();
        let names = list["value"].as_array().expect("a list").iter();
        names
            .map(|topic| topic["name"].as_str().expect("a name").to_owned())
            .collect()
    }
}

#[actix_web::test]
async fn statuses_are_those_that_every_client_accepts() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let domain_nested = "domains/shop/eventSubscriptions/all";
    let domain_scoped = "domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all";
    let topic_nested = "domains/shop/topics/north/eventSubscriptions/all";
    let topic_scoped =
        "DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL";
    let mut calls = vec![
        ("GET", "domains/shop".to_owned(), Value::Null),
        (
            "PUT",
            "domains/shop".to_owned(),
            json!({"location": "here"}),
        ),
        (
            "PUT",
            "domains/shop".to_owned(),
            json!({"location": "here"}),
        ),
        (
            "PATCH",
            "domains/shop".to_owned(),
            json!({"tags": {"a": "b"}}),
        ),
        ("GET", "domains/shop".to_owned(), Value::Null),
        ("GET", "domains".to_owned(), Value::Null),
        ("POST", "domains/shop/listKeys".to_owned(), Value::Null),
        (
            "POST",
            "domains/shop/regenerateKey".to_owned(),
            json!({"keyName": "key1"}),
        ),
        ("GET", NORTH.to_owned(), Value::Null),
        ("PUT", NORTH.to_owned(), Value::Null),
        ("PUT", NORTH.to_owned(), Value::Null),
        ("PATCH", NORTH.to_owned(), Value::Null),
        ("GET", NORTH.to_owned(), Value::Null),
        ("GET", "domains/shop/topics".to_owned(), Value::Null),
    ];
    for path in [domain_nested, domain_scoped, topic_nested, topic_scoped] {
        calls.push(("PUT", path.to_owned(), hook()));
        calls.push(("PATCH", path.to_owned(), json!({"labels": ["x"]})));
        calls.push(("GET", path.to_owned(), Value::Null));
        for verb in ["getFullUrl", "getDeliveryAttributes", "hold", "resume"] {
            calls.push(("POST", format!("{path}/{verb}"), Value::Null));
        }
        calls.push(("POST", format!("{path}/testFilter"), json!({"last": 1})));
        calls.push(("GET", format!("{path}/explain?sequence=1"), Value::Null));
        calls.push(("GET", format!("{path}/status"), Value::Null));
        calls.push(("DELETE", path.to_owned(), Value::Null));
        calls.push(("DELETE", path.to_owned(), Value::Null));
        calls.push(("GET", path.to_owned(), Value::Null));
    }
    calls.push(("DELETE", NORTH.to_owned(), Value::Null));
    calls.push(("DELETE", NORTH.to_owned(), Value::Null));
    calls.push(("DELETE", "domains/shop".to_owned(), Value::Null));
    calls.push(("DELETE", "domains/shop".to_owned(), Value::Null));
    calls.push(("PUT", NORTH.to_owned(), Value::Null));
    calls.push(("DELETE", NORTH.to_owned(), Value::Null));
    let mut lines = Vec::new();
    for (method, path, body) in calls {
        lines.push(format!(
            "{method} {path} {}",
            control.ask(method, &path, body).await.status
        ));
    }
    expect![[r#"
        GET domains/shop 404
        PUT domains/shop 201
        PUT domains/shop 201
        PATCH domains/shop 201
        GET domains/shop 200
        GET domains 200
        POST domains/shop/listKeys 200
        POST domains/shop/regenerateKey 200
        GET domains/shop/topics/north 404
        PUT domains/shop/topics/north 201
        PUT domains/shop/topics/north 201
        PATCH domains/shop/topics/north 405
        GET domains/shop/topics/north 200
        GET domains/shop/topics 200
        PUT domains/shop/eventSubscriptions/all 201
        PATCH domains/shop/eventSubscriptions/all 201
        GET domains/shop/eventSubscriptions/all 200
        POST domains/shop/eventSubscriptions/all/getFullUrl 200
        POST domains/shop/eventSubscriptions/all/getDeliveryAttributes 200
        POST domains/shop/eventSubscriptions/all/hold 200
        POST domains/shop/eventSubscriptions/all/resume 200
        POST domains/shop/eventSubscriptions/all/testFilter 200
        GET domains/shop/eventSubscriptions/all/explain?sequence=1 200
        GET domains/shop/eventSubscriptions/all/status 200
        DELETE domains/shop/eventSubscriptions/all 204
        DELETE domains/shop/eventSubscriptions/all 204
        GET domains/shop/eventSubscriptions/all 404
        PUT domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 201
        PATCH domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 201
        GET domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 200
        POST domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/getFullUrl 200
        POST domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/getDeliveryAttributes 200
        POST domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/hold 200
        POST domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/resume 200
        POST domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/testFilter 200
        GET domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/explain?sequence=1 200
        GET domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all/status 200
        DELETE domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 204
        DELETE domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 204
        GET domains/shop/providers/Microsoft.EventGrid/eventSubscriptions/all 404
        PUT domains/shop/topics/north/eventSubscriptions/all 201
        PATCH domains/shop/topics/north/eventSubscriptions/all 201
        GET domains/shop/topics/north/eventSubscriptions/all 200
        POST domains/shop/topics/north/eventSubscriptions/all/getFullUrl 200
        POST domains/shop/topics/north/eventSubscriptions/all/getDeliveryAttributes 200
        POST domains/shop/topics/north/eventSubscriptions/all/hold 200
        POST domains/shop/topics/north/eventSubscriptions/all/resume 200
        POST domains/shop/topics/north/eventSubscriptions/all/testFilter 200
        GET domains/shop/topics/north/eventSubscriptions/all/explain?sequence=1 200
        GET domains/shop/topics/north/eventSubscriptions/all/status 200
        DELETE domains/shop/topics/north/eventSubscriptions/all 204
        DELETE domains/shop/topics/north/eventSubscriptions/all 204
        GET domains/shop/topics/north/eventSubscriptions/all 404
        PUT DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 201
        PATCH DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 201
        GET DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 200
        POST DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/getFullUrl 200
        POST DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/getDeliveryAttributes 200
        POST DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/hold 200
        POST DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/resume 200
        POST DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/testFilter 200
        GET DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/explain?sequence=1 200
        GET DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL/status 200
        DELETE DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 204
        DELETE DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 204
        GET DOMAINS/SHOP/TOPICS/NORTH/PROVIDERS/MICROSOFT.EVENTGRID/EVENTSUBSCRIPTIONS/ALL 404
        DELETE domains/shop/topics/north 204
        DELETE domains/shop/topics/north 204
        DELETE domains/shop 204
        DELETE domains/shop 204
        PUT domains/shop/topics/north 404
        DELETE domains/shop/topics/north 404"#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_domain_has_the_settings_for_publishers_that_a_topic_has() {
    let mapping = json!({"inputSchemaMappingType": "Json", "properties": {"topic": {"sourceField": "shop"},
        "eventType": {"defaultValue": "Sold"}}});
    let custom = json!({"inputSchema": "CustomEventSchema", "inputSchemaMapping": mapping});
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(custom)
        .await;
    let rules = json!([{"ipMask": "10.0.0.0/8", "action": "Allow"}]);
    let strict = json!({"properties": {"disableLocalAuth": true, "publicNetworkAccess": "Disabled",
        "inboundIpRules": rules, "minimumTlsVersionAllowed": "1.2"}});
    let response = control.ask("PATCH", "domains/shop", strict).await.json()["properties"].clone();
    assert_eq!(
        (
            &response["disableLocalAuth"],
            &response["publicNetworkAccess"]
        ),
        (&json!(true), &json!("Disabled"))
    );
    assert_eq!(
        (&response["inboundIpRules"], &response["inputSchemaMapping"]),
        (&rules, &mapping)
    );
    assert_eq!(response["minimumTlsVersionAllowed"], "1.2");
    let ingress = &control
        .registry
        .find_topic("domain:shop")
        .expect("it is there")
        .record()
        .ingress;
    assert!(
        ingress.disable_local_auth && ingress.inbound_ip_rules.len() == 1,
        "{ingress:?}"
    );
    let mut untold = mapping;
    untold["properties"]["topic"] = json!({});
    let untold =
        json!({"properties": {"inputSchema": "CustomEventSchema", "inputSchemaMapping": untold}});
    let refused = control.ask("PUT", "domains/other", untold.clone()).await;
    expect![[r#"400 {"error":{"code":"InvalidRequest","message":"properties.inputSchemaMapping.properties.topic is missing; a domain with CustomEventSchema needs its sourceField, the field with the topic of an event.","target":"properties.inputSchemaMapping.properties.topic","details":[]}}"#]].assert_eq(&refused.brief());
    assert_eq!(
        control.ask("PUT", "topics/other", untold).await.status,
        201,
        "a topic needs none"
    );
}

#[actix_web::test]
async fn the_view_of_a_domain_has_its_stored_properties() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let body = json!({"location": "here", "identity": {"type": "SystemAssigned"}, "sku": {"name": "Premium"},
        "extendedLocation": {"type": "customLocation", "name": "x"}, "kind": "AzureArc",
        "properties": {"inputSchema": "CloudEventSchemaV1_0", "minimumTlsVersionAllowed": "1.1",
            "dataResidencyBoundary": "WithinRegion", "autoCreateTopicWithFirstSubscription": false}});
    let response = control.ask("PUT", "domains/Shop", body).await.json();
    let mut again = control
        .ask("PUT", "domains/shop", response.clone())
        .await
        .json();
    // Each change is later than the one before.
    again["systemData"]["lastModifiedAt"] = response["systemData"]["lastModifiedAt"].clone();
    assert_eq!(again, response, "the response can be put, and ids stay");
    let patched = control
        .ask("PATCH", "domains/shop", json!({"tags": {"a": "b"}}))
        .await
        .json();
    assert_eq!(patched["identity"], response["identity"]);
    let (registry, _clock, _hand) = running_registry(&control.store);
    let kept = registry
        .find_topic("domain:shop")
        .expect("it is recovered")
        .record();
    let principal = kept
        .azure_properties
        .identity
        .as_ref()
        .and_then(|identity| identity.principal_id.clone());
    assert_eq!(
        principal.as_deref(),
        response["identity"]["principalId"].as_str(),
        "also after a restart"
    );
    assert_eq!(
        json!(kept.metric_resource_id),
        response["properties"]["metricResourceId"]
    );
    let mut response = response;
    response["identity"]["principalId"] = "…".into();
    response["properties"]["metricResourceId"] = "…".into();
    expect![[r#"
        {
          "extendedLocation": {
            "name": "x",
            "type": "customLocation"
          },
          "id": "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/domains/Shop",
          "identity": {
            "principalId": "…",
            "tenantId": "00000000-0000-0000-0000-000000000000",
            "type": "SystemAssigned"
          },
          "kind": "AzureArc",
          "location": "here",
          "name": "Shop",
          "properties": {
            "autoCreateTopicWithFirstSubscription": false,
            "autoDeleteTopicWithLastSubscription": true,
            "dataResidencyBoundary": "WithinRegion",
            "disableLocalAuth": false,
            "edition": "current",
            "endpoint": "http://here/domains/Shop/api/events",
            "inboundIpRules": [],
            "inputSchema": "CloudEventSchemaV1_0",
            "metricResourceId": "…",
            "minimumTlsVersionAllowed": "1.1",
            "provisioningState": "Succeeded",
            "publicNetworkAccess": "Enabled"
          },
          "sku": {
            "name": "Premium"
          },
          "systemData": {
            "createdAt": "2021-03-10T21:02:56.0000000Z",
            "createdBy": "admin",
            "createdByType": "Key",
            "lastModifiedAt": "2021-03-10T21:02:56.0000000Z",
            "lastModifiedBy": "admin",
            "lastModifiedByType": "Key"
          },
          "tags": {},
          "type": "Microsoft.EventGrid/domains"
        }"#]]
    .assert_eq(&super::pretty(&response));
}

#[actix_web::test]
async fn errors_say_what_is_wrong() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_topic()
        .await
        .with_domain(json!({}))
        .await;
    let mut lines = Vec::new();
    for (method, path, body) in [
        ("PUT", "domains/no_t", json!({})),
        ("PUT", "domains/system-a", json!({})),
        (
            "PUT",
            "domains/shop",
            json!({"properties": {"inputSchema": "CloudEventSchemaV1_0"}}),
        ),
        (
            "PUT",
            "domains/shop",
            json!({"properties": {"privateEndpointConnections": [{}]}}),
        ),
        ("PUT", "domains/shop", json!({"sku": {"name": "Gold"}})),
        ("PUT", "domains/shop", json!({"identity": {"type": "Mine"}})),
        (
            "PUT",
            "topics/orders",
            json!({"properties": {"autoCreateTopicWithFirstSubscription": true}}),
        ),
        ("GET", "domains/none", Value::Null),
        ("GET", "domains/none/topics", Value::Null),
        ("GET", NORTH, Value::Null),
        (
            "GET",
            "domains/shop/topics/north/eventSubscriptions",
            Value::Null,
        ),
        (
            "GET",
            "domains/shop/topics/north/eventSubscriptions/all",
            Value::Null,
        ),
        ("PUT", "domains/shop/topics/n", Value::Null),
        (
            "PUT",
            "domains/shop/topics/n/eventSubscriptions/all",
            hook(),
        ),
        (
            "PUT",
            "domains/shop/topics/north/eventSubscriptions/a",
            hook(),
        ),
        ("PUT", NORTH, json!({"location": "here"})),
        ("PUT", NORTH, json!({"name": "south"})),
        ("PUT", "eventSubscriptions/all", hook()),
    ] {
        lines.push(
            control
                .ask(method, path, body)
                .await
                .brief()
                .replace(RG, "RG:"),
        );
    }
    let elsewhere = control
        .call(
            "PUT",
            &format!("{RG}/domains/shop").replace("/rg/", "/else/"),
            json!({}),
        )
        .await;
    lines.push(elsewhere.brief().replace(RG, "RG:"));
    expect![[r#"
        400 {"error":{"code":"InvalidRequest","message":"the domain's name is \"no_t\"; expected 3 to 50 letters (a to z), digits and hyphens.","target":"the domain's name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"the domain's name is \"system-a\"; names that begin with \"system\" are reserved by Event Grid.","target":"the domain's name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.inputSchema is CloudEventSchemaV1_0; the schema of a topic cannot be changed from EventGridSchema.","target":"properties.inputSchema","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.privateEndpointConnections is not supported yet (the address that the server listens on decides who reaches it): expected [].","target":"properties.privateEndpointConnections","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"sku.name cannot be read: unknown variant `Gold`, expected `Basic` or `Premium`.","target":"sku.name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"identity.type cannot be read: unknown variant `Mine`, expected one of `None`, `SystemAssigned`, `UserAssigned`, `SystemAssigned, UserAssigned`.","target":"identity.type","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"properties.autoCreateTopicWithFirstSubscription applies only to domains, and this is a topic; leave it out.","target":"properties.autoCreateTopicWithFirstSubscription","details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/none' under resource group 'rg' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/none' under resource group 'rg' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/shop/topics/north' under resource group 'rg' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/shop/topics/north' under resource group 'rg' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/shop/topics/north/eventSubscriptions/all' under resource group 'rg' was not found.","target":null,"details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"the domain topic's name is \"n\"; expected 3 to 128 letters (a to z), digits and hyphens.","target":"the domain topic's name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"the domain topic's name is \"n\"; expected 3 to 128 letters (a to z), digits and hyphens.","target":"the domain topic's name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"the subscription's name is \"a\"; expected 3 to 64 letters (a to z), digits and hyphens.","target":"the subscription's name","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"location cannot be read: unknown field `location`, expected one of `id`, `name`, `type`, `properties`, `systemData`.","target":"location","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"name is \"south\"; expected the name in the path, \"north\".","target":"name","details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"'subscriptions/S-1/resourceGroups/rg' is not a source of events: event subscriptions belong to a topic, a domain, a topic of a domain or a topic of a namespace.","target":null,"details":[]}}
        409 {"error":{"code":"Conflict","message":"The name 'shop' is taken: names of domains are unique in the server, and RG:/domains/shop exists.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_topic_and_a_domain_may_have_one_name() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(json!({}))
        .await;
    assert_eq!(
        control.ask("PUT", "topics/shop", json!({})).await.status,
        201
    );
    let key = async |path: &str| {
        control
            .ask("POST", &format!("{path}/listKeys"), Value::Null)
            .await
            .json()
    };
    assert_ne!(key("topics/shop").await, key("domains/shop").await);
    let list = control.ask("GET", "topics", Value::Null).await.json();
    assert_eq!(list["value"].as_array().expect("a list").len(), 1);
    for method in ["GET", "DELETE", "PUT"] {
        let status = control
            .ask(method, "topics/domain:shop", Value::Null)
            .await
            .status;
        assert_eq!(
            status,
            match method {
                "GET" => 404,
                "DELETE" => 204,
                _ => 400,
            },
            "{method}: a key is no name"
        );
    }
    assert_eq!(
        control
            .ask("DELETE", "topics/shop", Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        control.ask("GET", "domains/shop", Value::Null).await.status,
        200
    );
}

#[actix_web::test]
async fn a_topic_comes_with_its_first_subscription_and_goes_with_its_last() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(json!({}))
        .await;
    let subscription =
        |topic: &str, name: &str| format!("domains/shop/topics/{topic}/eventSubscriptions/{name}");
    for (topic, name) in [("North", "one"), ("NORTH", "two"), ("south", "one")] {
        assert_eq!(
            control
                .ask("PUT", &subscription(topic, name), hook())
                .await
                .status,
            201
        );
    }
    assert_eq!(control.topics().await, ["North", "south"]);
    let response = control
        .ask("GET", &subscription("north", "TWO"), Value::Null)
        .await
        .json();
    assert_eq!(
        response["id"],
        format!("{RG}/domains/shop/topics/North/eventSubscriptions/two"),
        "as it was first spelled"
    );
    control
        .ask("DELETE", &subscription("north", "one"), Value::Null)
        .await;
    assert_eq!(control.topics().await, ["North", "south"]);
    control
        .ask("DELETE", &subscription("north", "two"), Value::Null)
        .await;
    assert_eq!(control.topics().await, ["south"]);
    let (registry, _clock, _hand) = running_registry(&control.store);
    let domain = registry.find_topic("domain:shop").expect("it is recovered");
    assert_eq!(
        domain
            .domain_topics()
            .iter()
            .map(|topic| topic.name.to_string())
            .collect::<Vec<_>>(),
        ["south"]
    );
}

#[actix_web::test]
async fn a_domain_can_leave_its_topics_to_their_makers() {
    let manual = json!({"autoCreateTopicWithFirstSubscription": false, "autoDeleteTopicWithLastSubscription": false});
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(manual)
        .await;
    let subscription = format!("{NORTH}/eventSubscriptions/one");
    let response = control.ask("PUT", &subscription, hook()).await;
    expect![[r#"404 {"error":{"code":"ResourceNotFound","message":"the domain has no topic 'north', and autoCreateTopicWithFirstSubscription is false: PUT the topic first","target":null,"details":[]}}"#]].assert_eq(&response.brief());
    assert_eq!(control.ask("PUT", NORTH, Value::Null).await.status, 201);
    assert_eq!(control.ask("PUT", &subscription, hook()).await.status, 201);
    assert_eq!(
        control
            .ask("DELETE", &subscription, Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(control.topics().await, ["north"]);
}

#[actix_web::test]
async fn a_domain_has_no_more_topics_than_the_setting_says() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(json!({}))
        .await;
    let most = crate::support::publisher::DOMAIN_TOPICS;
    for number in 0..most {
        assert_eq!(
            control
                .ask(
                    "PUT",
                    &format!("domains/shop/topics/topic-{number}"),
                    Value::Null
                )
                .await
                .status,
            201
        );
    }
    let by_hand = control.ask("PUT", NORTH, Value::Null).await;
    let by_subscription = control
        .ask("PUT", &format!("{NORTH}/eventSubscriptions/one"), hook())
        .await;
    expect![[r#"409 {"error":{"code":"Conflict","message":"The domain 'shop' has the maximum of 5 topics (topic.domain_topics).","target":null,"details":[]}}"#]].assert_eq(&by_hand.brief());
    assert_eq!(by_subscription.brief(), by_hand.brief());
    assert_eq!(
        control
            .ask("PUT", "domains/shop/topics/topic-0", Value::Null)
            .await
            .status,
        201,
        "what is there stays"
    );
}

#[actix_web::test]
async fn a_deleted_topic_takes_its_subscriptions_and_a_domain_takes_all() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_domain(json!({}))
        .await;
    for path in ["domains/shop", NORTH, "domains/shop/topics/south"] {
        assert_eq!(
            control
                .ask("PUT", &format!("{path}/eventSubscriptions/one"), hook())
                .await
                .status,
            201
        );
    }
    let records = |kind: MetaKind| {
        let mut count = 0;
        let range = meta_of(kind);
        let scanned = control
            .store
            .scan(Family::Meta, &range.start, &range.end, &mut |_, _| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            });
        scanned.expect("memory can be read");
        count
    };
    assert_eq!(
        (
            records(MetaKind::Subscription),
            records(MetaKind::DomainTopic)
        ),
        (3, 2)
    );
    assert_eq!(control.ask("DELETE", NORTH, Value::Null).await.status, 204);
    assert_eq!(
        (
            records(MetaKind::Subscription),
            records(MetaKind::DomainTopic)
        ),
        (2, 1)
    );
    assert_eq!(
        control
            .ask(
                "GET",
                &format!("{NORTH}/eventSubscriptions/one"),
                Value::Null
            )
            .await
            .status,
        404
    );
    assert_eq!(
        control
            .ask("GET", "domains/shop/eventSubscriptions/one", Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(
        control
            .ask("DELETE", "domains/shop", Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        (
            records(MetaKind::Subscription),
            records(MetaKind::DomainTopic)
        ),
        (0, 0)
    );
}
