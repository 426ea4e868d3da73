//! The requests of `az` before any request for a resource; and the recorded creators and times of
//! resources.

use std::time::Duration;

use gridhook::{admin::ChaosMode, event::Schema};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};

async fn get(control: &ControlFixture, path: &str) -> Value {
    let response = control.call("GET", path, Value::Null).await;
    assert_eq!(response.status, 200, "{path}: {}", response.text);
    response.json()
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one[key].as_str().expect("text").to_owned())
        .collect()
}

#[actix_web::test]
async fn subscriptions_groups_and_locations_are_those_that_resources_name() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let other = "/subscriptions/s-1/resourceGroups/Berlin/providers/Microsoft.EventGrid";
    let made = control
        .call(
            "PUT",
            &format!("{other}/namespaces/plant"),
            json!({"location": "West US 2"}),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let third = "/subscriptions/third/resourceGroups/rg/providers/Microsoft.EventGrid";
    assert_eq!(
        control
            .call("PUT", &format!("{third}/domains/shops"), json!({}))
            .await
            .status,
        201
    );

    assert_eq!(
        names(&get(&control, "/subscriptions").await, "subscriptionId"),
        ["S-1", "third"]
    );
    assert_eq!(
        get(&control, "/subscriptions/s-1").await["state"],
        "Enabled"
    );
    assert_eq!(
        names(
            &get(&control, "/subscriptions/S-1/resourceGroups").await,
            "name"
        ),
        ["Berlin", "rg"]
    );
    let first = get(&control, "/subscriptions/S-1/resourceGroups?$top=1").await;
    assert_eq!(names(&first, "name"), ["Berlin"]);
    assert!(first["nextLink"].is_string());
    let group = get(&control, "/subscriptions/s-1/RESOURCEGROUPS/berlin").await;
    assert_eq!(group["id"], "/subscriptions/s-1/resourceGroups/Berlin");
    assert_eq!(group["location"], "West US 2");
    assert_eq!(group["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        names(&get(&control, "/subscriptions/S-1/locations").await, "name"),
        ["local", "westus2"]
    );
    let provider = get(&control, "/subscriptions/S-1/providers/microsoft.eventgrid").await;
    assert_eq!(provider["registrationState"], "Registered");
    let types = provider["resourceTypes"].as_array().expect("a list");
    let topics = types
        .iter()
        .find(|kind| kind["resourceType"] == "topics")
        .expect("topics");
    assert_eq!(topics["locations"], json!(["local", "West US 2"]));
    assert_eq!(
        get(&control, "/subscriptions/S-1/providers").await["value"],
        json!([provider])
    );
    assert_eq!(
        names(&get(&control, "/tenants").await, "tenantId"),
        ["00000000-0000-0000-0000-000000000000"]
    );

    for (path, code) in [
        ("/subscriptions/none", "SubscriptionNotFound"),
        (
            "/subscriptions/third/resourceGroups/Berlin",
            "ResourceGroupNotFound",
        ),
    ] {
        let response = control.call("GET", path, Value::Null).await;
        assert_eq!(
            (response.status, &response.json()["error"]["code"]),
            (404, &json!(code)),
            "{path}"
        );
    }
    for path in [
        "/tenants",
        "/subscriptions",
        "//subscriptions/S-1/resourceGroups",
    ] {
        let response = control
            .send(actix_web::test::TestRequest::with_uri(path))
            .await;
        assert_eq!(response.status, 401, "{path}");
    }
}

/// `az cloud register` and Terraform request version 2022-09-01, `Add-AzEnvironment -ARMEndpoint` of
/// PowerShell 1.0.
#[actix_web::test]
async fn the_addresses_of_the_cloud_have_the_fields_of_the_versions_that_clients_request() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let ask = async |query: &str| {
        let response = control
            .send(actix_web::test::TestRequest::with_uri(&format!(
                "/metadata/endpoints{query}"
            )))
            .await;
        assert_eq!(response.status, 200, "{query}: {}", response.text);
        response.json()
    };
    let authentication = json!({
        "loginEndpoint": "http://here/", "audiences": ["http://here/"], "tenant": "common", "identityProvider": "AAD",
    });
    let suffixes = ask("").await["suffixes"].clone();
    // Terraform's provider does not start without these two. No service has these names.
    for (key, suffix) in [
        ("storage", "storage.gridhook.invalid"),
        ("keyVaultDns", "vault.gridhook.invalid"),
    ] {
        assert_eq!(suffixes[key], suffix);
    }
    let cloud = json!({
        "name": "gridhook", "portal": "http://here/ui/", "resourceManager": "http://here/",
        "authentication": authentication, "graphAudience": "http://here/",
        "microsoftGraphResourceId": "http://here/", "batch": "http://here/", "media": "http://here/",
        "galleryEndpoint": "http://here/", "graphEndpoint": "http://here/", "portalEndpoint": "http://here/ui/",
        "suffixes": suffixes,
    });
    for query in ["", "?api-version=2022-09-01", "?api-version=1.0"] {
        assert_eq!(ask(query).await, cloud, "{query}");
    }
}

#[actix_web::test]
async fn every_resource_has_its_creator_and_its_last_editor() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let resources = [
        (format!("{RG}/topics/orders"), json!({})),
        (format!("{RG}/domains/shops"), json!({})),
        (format!("{RG}/domains/shops/topics/europe"), json!({})),
        (format!("{RG}/namespaces/plant"), json!({})),
        (format!("{RG}/namespaces/plant/topics/heat"), json!({})),
        (
            format!("{RG}/topics/orders/eventSubscriptions/to-shop"),
            hook(),
        ),
    ];
    for (path, body) in &resources {
        let response = control.call("PUT", path, body.clone()).await;
        assert_eq!(response.status, 201, "{}", response.text);
        let first = get(&control, path).await["systemData"].clone();
        assert_eq!(first, response.json()["systemData"], "{path}");
        assert_eq!(
            (&first["createdBy"], &first["createdByType"]),
            (&json!("admin"), &json!("Key")),
            "{path}"
        );
        control.hand.advance(Duration::from_secs(60));
        let method = if path.contains("/domains/shops/topics/") {
            "PUT"
        } else {
            "PATCH"
        };
        let changed = control.call(method, path, json!({})).await;
        assert!(changed.status < 300, "{path}: {}", changed.text);
        let second = get(&control, path).await["systemData"].clone();
        assert_eq!(second["createdAt"], first["createdAt"], "{path}");
        assert_ne!(second["lastModifiedAt"], first["lastModifiedAt"], "{path}");
        assert_eq!(second["lastModifiedByType"], "Key", "{path}");
        // The response of a GET can be put unchanged.
        let again = control.call("PUT", path, get(&control, path).await).await;
        let endpoint_is_hidden = path.contains("eventSubscriptions");
        assert!(
            again.status == 201 || endpoint_is_hidden,
            "{path}: {}",
            again.text
        );
    }
}

#[actix_web::test]
async fn a_new_key_is_a_change_of_its_resource() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    for path in [
        "topics/orders",
        "domains/shops",
        "namespaces/plant",
        "namespaces/plant/topics/heat",
    ] {
        let path = format!("{RG}/{path}");
        assert_eq!(
            control.call("PUT", &path, json!({})).await.status,
            201,
            "{path}"
        );
        let before = get(&control, &path).await["systemData"].clone();
        control.hand.advance(Duration::from_secs(60));
        let response = control
            .call(
                "POST",
                &format!("{path}/regenerateKey"),
                json!({"keyName": "key1"}),
            )
            .await;
        assert_eq!(response.status, 200, "{path}: {}", response.text);
        let after = get(&control, &path).await["systemData"].clone();
        assert_eq!(after["createdAt"], before["createdAt"], "{path}");
        assert!(
            after["lastModifiedAt"].as_str() > before["lastModifiedAt"].as_str(),
            "{path}: {before} {after}"
        );
        assert_eq!(after["lastModifiedBy"], "admin", "{path}");
    }
}

#[actix_web::test]
async fn a_domain_topic_comes_with_its_first_subscription_in_the_same_name() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/domains/shops"), json!({}))
            .await
            .status,
        201
    );
    let path = format!("{RG}/domains/shops/topics/europe");
    let response = control
        .call("PUT", &format!("{path}/eventSubscriptions/to-shop"), hook())
        .await;
    assert_eq!(response.status, 201, "{}", response.text);
    let first = get(&control, &path).await["systemData"].clone();
    assert_eq!(
        (&first["createdBy"], &first["createdAt"]),
        (&json!("admin"), &first["lastModifiedAt"])
    );
    // A PUT keeps the name as it was first given, and who created it.
    control.hand.advance(Duration::from_secs(60));
    let again = control
        .call("PUT", &path.replace("europe", "EUROPE"), json!({}))
        .await
        .json();
    assert_eq!(
        (&again["name"], &again["systemData"]["createdAt"]),
        (&json!("europe"), &first["createdAt"])
    );
    assert_ne!(
        again["systemData"]["lastModifiedAt"],
        first["lastModifiedAt"]
    );
    let listed = get(&control, &format!("{RG}/domains/shops/topics")).await;
    assert_eq!(listed["value"][0]["systemData"], again["systemData"]);
}

#[actix_web::test]
async fn a_record_from_before_says_nothing_of_its_creation() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let record = super::topic_record(Schema::EventGrid);
    let stored = serde_json::to_value(&record).expect("JSON");
    assert_eq!(
        stored.get("system_data"),
        None,
        "an older store has no such key"
    );
    control
        .registry
        .put_topic(serde_json::from_value(stored).expect("it is read"))
        .await
        .expect("made");
    let path = format!("{RG}/topics/orders");
    assert_eq!(get(&control, &path).await.get("systemData"), None);
    assert_eq!(
        control
            .call("PATCH", &path, json!({"tags": {"a": "b"}}))
            .await
            .status,
        201
    );
    let data = get(&control, &path).await["systemData"].clone();
    assert_eq!(
        (data.get("createdAt"), &data["lastModifiedBy"]),
        (None, &json!("admin"))
    );
}
