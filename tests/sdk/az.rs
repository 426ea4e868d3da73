//! `az`, as it is on PyPI: registers the server as a cloud, signs in and lists topics.

use std::process::Command;

use gridhook::clock::Clock;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{Stage, packages};
use crate::{
    publish::bearer::Signer,
    support::{
        endpoint::{Endpoint, answer},
        needs,
    },
};

const AUDIENCE: &str = "https://eventgrid.azure.net";

#[test]
fn az_registers_the_server_as_a_cloud_signs_in_and_lists_topics() {
    if !needs::python() {
        return;
    }
    let signer = Signer::new();
    let issuer = Endpoint::start(vec![answer(200, "", &signer.set().to_string())]);
    let stage = Stage::https_with(&[
        ("AUTH__ISSUER", "https://login.example.org/realm/v2.0"),
        ("AUTH__JWKS", &format!("{}keys", issuer.url())),
        ("AUTH__AUDIENCE", AUDIENCE),
        ("AUTH__ADMIN_ROLE", "Grid.Admin"),
    ]);
    let topic = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders";
    assert_eq!(stage.server.command("PUT", topic, &json!({})).status, 201);

    let tenant = "00000000-0000-0000-0000-000000000000";
    let expires = Clock::system().now().0 / 1_000_000 + 6_000;
    let claims = json!({
        "iss": "https://login.example.org/realm/v2.0", "aud": AUDIENCE, "exp": expires, "roles": ["Grid.Admin"],
        "tid": tenant, "oid": "az", "sub": "az", "idtyp": "app",
    });
    let token = signer.sign(Some("ec"), Algorithm::ES256, &claims);
    let token = json!({
        "access_token": token, "expires_on": expires.to_string(), "resource": AUDIENCE, "token_type": "Bearer",
    });
    let identity = Endpoint::start(vec![answer(200, "content-type: application/json\r\n", &token.to_string())]);

    let az = |args: &[&str]| {
        let output = Command::new(&*packages::AZ)
            .args(["-m", "azure.cli"])
            .args(args)
            .args(["--output", "json"])
            .env("AZURE_CONFIG_DIR", stage.folder.path().join("az"))
            .env("AZURE_CORE_COLLECT_TELEMETRY", "no")
            .env("REQUESTS_CA_BUNDLE", stage.authority.as_ref().expect("an authority"))
            .env("IDENTITY_ENDPOINT", identity.url())
            .env("IDENTITY_HEADER", "secret")
            .output()
            .expect("az runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "az {args:?}: {error}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
    };
    az(&["cloud", "register", "-n", "gridhook", "--endpoint-resource-manager", &stage.url]);
    az(&["cloud", "set", "-n", "gridhook"]);
    let endpoints = az(&["cloud", "show", "-n", "gridhook"])["endpoints"].clone();
    assert_eq!(endpoints["resourceManager"], stage.url);
    assert_eq!(endpoints["activeDirectory"], "https://login.example.org/");
    assert_eq!(endpoints["activeDirectoryResourceId"], AUDIENCE);
    assert_eq!(endpoints["portal"], format!("{}/ui/", stage.url));
    let accounts = az(&["login", "--identity"]);
    assert_eq!(accounts[0]["id"], "s-1", "{accounts}");
    let topics = az(&["eventgrid", "topic", "list"]);
    assert_eq!(topics[0]["name"], "orders", "{topics}");
    let shown = az(&["eventgrid", "topic", "show", "-n", "orders", "-g", "rg"]);
    assert_eq!(shown["id"], topic, "{shown}");
}
