//! Access tokens of the issuer on the control plane.

use gridhook::clock::Clock;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::LONG;
use crate::{
    publish::bearer::Signer,
    support::{
        endpoint::{Endpoint, respond},
        server::{Server, wait_for},
    },
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

#[test]
fn a_token_of_the_issuer_operates_with_the_role_that_is_set_and_only_then() {
    let signer = Signer::new();
    let issuer = Endpoint::start(vec![respond(200, "", &signer.set().to_string())]);
    let jwks = format!("{}keys", issuer.url());
    let mut server = Server::start(&[
        ("AUTH__ISSUER", "https://issuer/"),
        ("AUTH__JWKS", &jwks),
        ("AUTH__ADMIN_ROLE", "Grid.Admin"),
        ("AUTH__AUDIENCE", "https://eventgrid.azure.net, api://grid"),
    ]);
    let seconds = Clock::system().now().0 / 1_000_000;
    let token = |roles: Value, expires: u64, padding: usize| {
        let claims = json!({
            "iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": expires, "roles": roles,
            "preferred_username": "ada@example.org", "padding": "x".repeat(padding),
        });
        signer.sign(Some("ec"), Algorithm::ES256, &claims)
    };
    let later = seconds + 6_000;
    let ask = |server: &Server, method: &str, token: &str| {
        let response = server.request_without_token(
            method,
            TOPIC,
            &[("authorization", &format!("Bearer {token}"))],
        );
        (response.status, response.json())
    };
    // The admin token works as before, and longer tokens than keys of old are read.
    let good = token(json!(["Reader", "Grid.Admin"]), later, 4_000);
    assert!(good.len() > 4_000);
    wait_for("the issuer's keys", LONG, || {
        ask(&server, "PUT", &good).0 == 201
    });
    let (status, made) = ask(&server, "GET", &good);
    assert_eq!(status, 200);
    assert_eq!(
        (
            &made["systemData"]["createdBy"],
            &made["systemData"]["createdByType"]
        ),
        (&json!("ada@example.org"), &json!("User"))
    );
    for (roles, expires, status, code) in [
        (json!(["Reader"]), later, 403, "AuthorizationFailed"),
        (json!("grid.admin"), later, 403, "AuthorizationFailed"),
        (Value::Null, later, 403, "AuthorizationFailed"),
        (
            json!(["Grid.Admin"]),
            seconds - 600,
            401,
            "InvalidAuthenticationToken",
        ),
    ] {
        let (is, reported) = ask(&server, "GET", &token(roles.clone(), expires, 0));
        assert_eq!(
            (is, reported["error"]["code"].as_str()),
            (status, Some(code)),
            "{roles}: {reported}"
        );
    }
    // Terraform requests tokens for the address of the server, others for one of several audiences.
    for (audience, status) in [
        (format!("http://{}", server.address()), 200),
        (format!("http://{}/", server.address()), 200),
        ("api://grid".to_owned(), 200),
        ("http://127.0.0.1:1".to_owned(), 401),
    ] {
        let claims = json!({"iss": "https://issuer/", "aud": audience, "exp": later, "roles": ["Grid.Admin"]});
        let token = signer.sign(Some("ec"), Algorithm::ES256, &claims);
        assert_eq!(ask(&server, "GET", &token).0, status, "{audience}");
    }
    // An operator may publish, too. The records outlive the process.
    server.terminate();
    server.restart();
    let after = server.command("GET", TOPIC, &Value::Null).json();
    assert_eq!(after["systemData"], made["systemData"]);
}
