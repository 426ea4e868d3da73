//! Resource groups that are created by themselves, the list of resources in them, and what else
//! clients ask of a group.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

const GROUPS: &str = "/subscriptions/S-1/resourcegroups";

async fn get(control: &ControlFixture, path: &str) -> Value {
    let response = control.call("GET", path, Value::Null).await;
    assert_eq!(response.status, 200, "{path}: {}", response.text);
    response.json()
}

/// The resources of the group, parents first.
const RESOURCES: [&str; 4] = [
    "topics/orders",
    "domains/shops",
    "namespaces/plant",
    "namespaces/plant/topics/line",
];

#[actix_web::test]
async fn a_group_is_created_changed_and_deleted_with_what_is_in_it() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let path = format!("{GROUPS}/Shop");
    assert_eq!(control.call("HEAD", &path, Value::Null).await.status, 404);
    assert_eq!(
        control.call("DELETE", &path, Value::Null).await.json()["error"]["code"],
        "ResourceGroupNotFound"
    );
    create_group(&control, &path).await;
    change_tags(&control, &path).await;
    for (body, part) in [
        (json!({"location": 5}), "location"),
        (json!({"sku": {}}), "sku"),
        (json!({"tags": {"a": "x".repeat(257)}}), "tags"),
    ] {
        let response = control.call("PUT", &path, body).await;
        assert!(
            response.status == 400 && response.text.contains(part),
            "{}",
            response.text
        );
    }
    let other = format!("{RG}/topics/bills");
    assert_eq!(control.call("PUT", &other, json!({})).await.status, 201);
    delete_group_with_resources(&control, &path).await;
    assert_eq!(
        control.call("GET", &other, Value::Null).await.status,
        200,
        "another group is left alone"
    );

    // A group that only has resources exists, too, and is deleted with them.
    assert_eq!(
        control
            .call("DELETE", &format!("{GROUPS}/rg"), Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(control.call("GET", &other, Value::Null).await.status, 404);
}

/// Creates the group. A preview creates nothing, and names are compared without case.
async fn create_group(control: &ControlFixture, path: &str) {
    let planned = control
        .call(
            "PUT",
            &format!("{path}?whatIf=true"),
            json!({"location": "westus2"}),
        )
        .await
        .json();
    assert_eq!(planned["exists"], false, "{planned}");
    assert_eq!(control.call("HEAD", path, Value::Null).await.status, 404);
    let body = json!({"location": "westus2", "tags": {"team": "a", "cost": "7"}});
    let made = control.call("PUT", path, body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let group = json!({"id": "/subscriptions/S-1/resourceGroups/Shop", "name": "Shop", "location": "westus2",
        "type": "Microsoft.Resources/resourceGroups", "tags": {"team": "a", "cost": "7"},
        "properties": {"provisioningState": "Succeeded"}});
    assert_eq!(made.json(), group);
    assert_eq!(
        get(control, &format!("{GROUPS}/SHOP")).await,
        group,
        "names are compared without case"
    );
    let exists = control.call("HEAD", path, Value::Null).await;
    assert_eq!((exists.status, exists.text.as_str()), (204, ""));
    assert_eq!(get(control, GROUPS).await["value"], json!([group]));
    assert_eq!(
        get(control, "/subscriptions").await["value"][0]["subscriptionId"],
        "S-1"
    );
    let again = control
        .call("PUT", &format!("{path}?whatIf=true"), body)
        .await
        .json();
    assert_eq!(again, json!({"exists": true, "changes": []}));
}

/// Tags are replaced as a whole. A PATCH without them leaves them.
async fn change_tags(control: &ControlFixture, path: &str) {
    let patched = control
        .call("PATCH", path, json!({"tags": {"team": "b"}}))
        .await
        .json();
    assert_eq!(
        (&patched["tags"], &patched["location"]),
        (&json!({"team": "b"}), &json!("westus2"))
    );
    assert_eq!(
        control.call("PATCH", path, json!({})).await.json()["tags"],
        json!({"team": "b"})
    );
    assert_eq!(
        control.call("PUT", path, json!({})).await.json()["tags"],
        json!({})
    );
}

async fn delete_group_with_resources(control: &ControlFixture, path: &str) {
    let inside = "/subscriptions/S-1/resourceGroups/shop/providers/Microsoft.EventGrid";
    for resource in RESOURCES {
        assert_eq!(
            control
                .call("PUT", &format!("{inside}/{resource}"), json!({}))
                .await
                .status,
            201,
            "{resource}"
        );
    }
    assert_eq!(control.call("DELETE", path, Value::Null).await.status, 200);
    assert_eq!(control.call("HEAD", path, Value::Null).await.status, 404);
    for resource in RESOURCES {
        assert_eq!(
            control
                .call("GET", &format!("{inside}/{resource}"), Value::Null)
                .await
                .status,
            404,
            "{resource}"
        );
    }
}

#[actix_web::test]
async fn resources_of_all_types_are_listed_and_filtered() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for (resource, tags) in [
        ("topics/orders", json!({"team": "a"})),
        ("domains/shops", json!({"team": "b", "cost": "7"})),
        ("namespaces/plant", json!({})),
    ] {
        let made = control
            .call(
                "PUT",
                &format!("{RG}/{resource}"),
                json!({"tags": tags, "location": "local"}),
            )
            .await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    let other =
        "/subscriptions/S-1/resourceGroups/other/providers/Microsoft.EventGrid/topics/bills";
    control
        .call("PUT", other, json!({"tags": {"team": "a"}}))
        .await;
    let list = async |path: &str| {
        let list = get(&control, path).await;
        list["value"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        list("/subscriptions/s-1/resources").await,
        ["bills", "shops", "plant", "orders"]
    );
    assert_eq!(
        list("/subscriptions/S-1/resourceGroups/RG/resources").await,
        ["shops", "plant", "orders"]
    );
    let filtered =
        async |filter: &str| list(&format!("/subscriptions/S-1/resources?$filter={filter}")).await;
    assert_eq!(
        filtered("resourceType%20eq%20'microsoft.eventgrid/topics'").await,
        ["bills", "orders"]
    );
    assert_eq!(
        filtered("resourceGroup%20eq%20'rg'%20and%20tagName%20eq%20'team'").await,
        ["shops", "orders"]
    );
    assert_eq!(filtered("name%20eq%20'orders'").await, ["orders"]);
    assert_eq!(
        filtered("tagname%20eq%20'team'%20and%20tagvalue%20eq%20'a'").await,
        ["bills", "orders"]
    );
    let first = get(
        &control,
        "/subscriptions/S-1/resources?$top=1&$filter=location%20eq%20'local'",
    )
    .await;
    let next = first["nextLink"]
        .as_str()
        .expect("a next page")
        .replacen("http://here", "", 1);
    assert_eq!(get(&control, &next).await["value"][0]["name"], "shops");
    let response = control
        .call(
            "GET",
            "/subscriptions/S-1/resources?$filter=substringof('a',name)",
            Value::Null,
        )
        .await;
    assert!(
        response.status == 400 && response.text.contains("expected resourceType"),
        "{}",
        response.text
    );
    let names = get(&control, "/subscriptions/S-1/tagNames").await;
    let team = names["value"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["tagName"] == "team")
        .expect("team");
    assert_eq!(team["count"]["value"], 3);
    assert_eq!(team["values"][0]["tagValue"], "a");
}

#[actix_web::test]
async fn nothing_is_locked_or_assigned_and_the_provider_is_registered() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    for scope in [
        "/subscriptions/S-1",
        "/subscriptions/S-1/resourceGroups/rg",
        &format!("{RG}/topics/orders"),
    ] {
        for kind in ["locks", "roleAssignments"] {
            let list = get(
                &control,
                &format!("{scope}/providers/Microsoft.Authorization/{kind}?api-version=1"),
            )
            .await;
            assert_eq!(list["value"], json!([]), "{scope} {kind}");
        }
    }
    let path = "/subscriptions/S-1/providers/Microsoft.EventGrid/register?api-version=2022-09-01";
    let registered = control.call("POST", path, Value::Null).await;
    assert_eq!(
        (registered.status, &registered.json()["registrationState"]),
        (200, &json!("Registered"))
    );
}

/// Terraform's provider polls after a change, 10 s later, unless a response has this header; with
/// it, it polls without any pause.
#[actix_web::test]
async fn a_client_does_not_wait_after_a_change_that_is_done() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = format!("{RG}/topics/orders");
    let subscription = format!("{topic}/eventSubscriptions/billing");
    let endpoint = json!({"properties": {"destination": {"endpointType": "WebHook",
        "properties": {"endpointUrl": "https://example.com/"}}}});
    for (method, path, body, is_done) in [
        ("PUT", &topic, json!({}), true),
        ("PATCH", &topic, json!({"tags": {"a": "1"}}), true),
        ("GET", &topic, Value::Null, false),
        (
            "PUT",
            &subscription,
            json!({"properties": {"nothing": 1}}),
            false,
        ),
        ("PUT", &subscription, endpoint, true),
        ("DELETE", &topic, Value::Null, true),
    ] {
        let response = control.call(method, path, body).await;
        let header = response.headers.get("x-go-azure-sdk-skip-polling-delay");
        let state = response.text.contains("AwaitingManualAction");
        assert_eq!(
            header.is_some(),
            is_done && !state,
            "{method} {path}: {}",
            response.brief()
        );
    }
}
