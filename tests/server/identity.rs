//! Access tokens of the server for endpoints that demand one, from an issuer of the test that signs
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LONG, wait_until_settled};
use crate::support::{
    certificates::{Authority, IssuedRsa},
    endpoint::{Endpoint, Received, Script, respond},
    http::header,
    http_service::HttpService,
    load,
    server::{SCOPE, Server, SubscriptionSpec, operator, subscription, wait_for},
};

const SECRET: &str = "s3cret of the server";

const KEY: &[u8] = b"the key of the issuer";

/// A signed token for `api://orders`.
fn token(id: &str) -> String {
    let claims = json!({"jti": id, "aud": "api://orders", "exp": 4_102_444_800_u64});
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(KEY),
    )
    .expect("it is signed")
}

/// The issuer's response with a token.
fn issued(id: &str, lifetime: &Value) -> Script {
    let body = json!({"token_type": "Bearer", "expires_in": lifetime, "access_token": token(id)});
    respond(200, "content-type: application/json\r\n", &body.to_string())
}

/// The id of the token in a request.
fn bearer(request: &Received) -> String {
    let token = request
        .header("authorization")
        .and_then(|value| value.strip_prefix("Bearer "))
        .expect("a token");
    let mut expected = Validation::new(Algorithm::HS256);
    expected.set_audience(&["api://orders"]);
    let claims = jsonwebtoken::decode::<Value>(token, &DecodingKey::from_secret(KEY), &expected)
        .expect("a good token");
    claims.claims["jti"].as_str().expect("an id").to_owned()
}

/// A server with an identity at this issuer.
fn server(issuer: &Endpoint, folder: &TempDir) -> Server {
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).expect("written");
    let url = format!("http://{}/{{tenant}}/oauth2/v2.0/token", issuer.address());
    Server::start(&[
        ("DELIVERY__IDENTITY_TOKEN_URL", url.as_str()),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            file.to_str().expect("UTF-8"),
        ),
        ("LOG__FILTER", "debug"),
    ])
}

fn spec(endpoint: &Endpoint) -> SubscriptionSpec {
    SubscriptionSpec::new(&endpoint.url())
        .schema("CloudEventSchemaV1_0")
        .webhook("azureActiveDirectoryTenantId", json!("contoso.example"))
        .webhook(
            "azureActiveDirectoryApplicationIdOrUri",
            json!("api://orders"),
        )
}

#[test]
fn requests_have_a_token_that_is_kept_and_fetched_anew_once_after_a_401() {
    let folder = TempDir::new().expect("a folder");
    let issuer = Endpoint::start(vec![
        issued("one", &json!(3600)),
        issued("two", &json!("3600")),
    ]);
    let accepted = || respond(200, "webhook-allowed-origin: *\r\n", "");
    let hook = Endpoint::start(vec![
        accepted(),
        accepted(),
        respond(401, "", ""),
        accepted(),
        respond(401, "", ""),
        respond(401, "", ""),
    ]);
    let server = server(&issuer, &folder);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &spec(&hook));
    for (id, delivered) in [("a", 1), ("b", 2)] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("the event", LONG, || {
            server.counter("orders", "hook", "delivered") == delivered
        });
    }
    let tokens: Vec<String> = hook.requests().iter().map(bearer).collect();
    assert_eq!(
        tokens,
        ["one", "one", "one", "two"],
        "validation, delivery, refused, sent again"
    );
    assert_eq!(server.counter("orders", "hook", "requestsFailed"), 0);
    let requests = issuer.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(
            request
                .head
                .starts_with("POST /contoso.example/oauth2/v2.0/token HTTP/1.1\r\n"),
            "{}",
            request.head
        );
        let form: Vec<(String, String)> = url::form_urlencoded::parse(&request.body)
            .into_owned()
            .collect();
        let expected = [
            ("grant_type", "client_credentials"),
            ("client_id", "gridhook"),
            ("client_secret", SECRET),
            ("scope", "api://orders/.default"),
        ];
        assert_eq!(
            form,
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }
    // An endpoint that refuses the new token, too: the request has failed.
    server.publish("orders", &key, &load::body(&["c".to_owned()], "/a"));
    wait_for("a failure", LONG, || {
        server.counter("orders", "hook", "requestsFailed") == 1
    });
    assert_eq!((hook.requests().len(), issuer.requests().len()), (6, 3));
    let shown = server.get_subscription("orders", "hook").text();
    for secret in [SECRET, token("one").as_str(), token("two").as_str()] {
        assert!(
            !server.logs().contains(secret) && !shown.contains(secret),
            "shown: {secret}"
        );
    }
    assert!(
        shown.contains("contoso.example") && shown.contains("api://orders"),
        "{shown}"
    );
}

#[test]
fn an_expired_token_is_replaced_and_a_refusal_of_the_issuer_is_reported_without_the_secret() {
    let folder = TempDir::new().expect("a folder");
    let refusal =
        json!({"error": "invalid_client", "error_description": format!("wrong: {SECRET}")})
            .to_string();
    let expired = |id| issued(id, &json!(0));
    let refused = respond(401, "", &refusal);
    let issuer = Endpoint::start(vec![
        expired("one"),
        expired("two"),
        refused,
        expired("three"),
    ]);
    let hook = Endpoint::start(vec![respond(200, "webhook-allowed-origin: *\r\n", "")]);
    let server = server(&issuer, &folder);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &spec(&hook));
    for id in ["a", "b"] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_until_settled(&server, "orders", "hook");
    }
    let tokens: Vec<String> = hook.requests().iter().map(bearer).collect();
    assert_eq!(
        tokens,
        ["one", "two", "three"],
        "nothing was sent without a token"
    );
    assert_eq!(server.counter("orders", "hook", "requestsFailed"), 1);
    let path = format!("{}/ledger", subscription("orders", "hook"));
    let ledger = server.command("GET", &path, &Value::Null).text();
    assert!(
        ledger.contains("no access token for the endpoint: the response is 401 (invalid_client)"),
        "{ledger}"
    );
    assert!(!ledger.contains(SECRET) && !server.logs().contains(SECRET));
}

#[test]
fn a_function_gets_a_token_for_the_audience_of_its_service() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).expect("written");
    let issuer = Endpoint::start(vec![
        issued("one", &json!(3600)),
        issued("two", &json!(3600)),
    ]);
    let app = Endpoint::start(vec![
        respond(200, "", ""),
        respond(401, "", ""),
        respond(200, "", ""),
    ]);
    let (token_url, app_url) = (
        format!("http://{}/{{tenant}}/token", issuer.address()),
        format!("http://{}", app.address()),
    );
    let server = Server::start(&[
        ("DELIVERY__IDENTITY_TOKEN_URL", token_url.as_str()),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            file.to_str().expect("UTF-8"),
        ),
        ("DELIVERY__RESOURCES__APP__URL", &app_url),
        ("DELIVERY__RESOURCES__APP__TOKEN_AUDIENCE", "api://orders"),
        ("DELIVERY__RESOURCES__APP__TOKEN_TENANT", "contoso.example"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({"endpointType": "AzureFunction", "properties": {"resourceId": "app/functions/bill"}});
    let spec = SubscriptionSpec::new("").also(&json!({}), &json!({"destination": properties}));
    server.subscribe("orders", "function", &spec);
    for (id, delivered) in [("a", 1), ("b", 2)] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("the event", LONG, || {
            server.counter("orders", "function", "delivered") == delivered
        });
    }
    let tokens: Vec<String> = app.requests().iter().map(bearer).collect();
    assert_eq!(
        tokens,
        ["one", "one", "two"],
        "delivery, refused, sent again"
    );
    assert!(
        issuer
            .requests()
            .iter()
            .all(|request| request.head.starts_with("POST /contoso.example/token "))
    );
}

#[test]
fn a_server_without_an_identity_refuses_a_subscription_that_needs_one() {
    let server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    let hook = Endpoint::start(vec![respond(200, "webhook-allowed-origin: *\r\n", "")]);
    let refused = server.put_subscription("orders", "hook", &spec(&hook));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused
            .text()
            .contains("the server has no identity; set delivery.identity_token_url"),
        "{}",
        refused.text()
    );
    assert!(hook.requests().is_empty());
}

/// An issuer that gives tokens, which expire at once, for an assertion that it can verify, and for
/// each assertion one.
fn asserting(certificate: &IssuedRsa) -> HttpService {
    let public = certificate.public();
    let print = certificate.thumbprint();
    let used: Mutex<BTreeSet<String>> = Mutex::default();
    let mut issuer = HttpService::new(Arc::new(move |head, body| {
        let form: BTreeMap<String, String> =
            url::form_urlencoded::parse(body).into_owned().collect();
        let text = |key: &str| form.get(key).map(String::as_str).unwrap_or_default();
        let host = header(head, "host").unwrap_or_default();
        let mut expected = Validation::new(Algorithm::PS256);
        expected.set_audience(&[format!("http://{host}/contoso.example/oauth2/v2.0/token")]);
        expected.set_issuer(&["gridhook"]);
        expected.sub = Some("gridhook".to_owned());
        expected.validate_nbf = true;
        expected.set_required_spec_claims(&["aud", "exp", "iss", "nbf", "sub"]);
        let key = DecodingKey::from_rsa_raw_components(&public.n, &public.e);
        let is_good = jsonwebtoken::decode::<Value>(text("client_assertion"), &key, &expected)
            .is_ok_and(|assertion| {
                let claims = &assertion.claims;
                let id = assertion.claims["jti"].as_str().unwrap_or_default();
                let lasts = claims["exp"]
                    .as_u64()
                    .zip(claims["iat"].as_u64())
                    .map(|(end, start)| end - start);
                assertion.header.x5t_s256.as_deref() == Some(print.as_str())
                    && lasts.is_some_and(|seconds| seconds <= 600)
                    && !id.is_empty()
                    && used.lock().insert(id.to_owned())
            });
        let is_form = text("grant_type") == "client_credentials"
            && text("client_assertion_type")
                == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            && text("client_id") == "gridhook"
            && text("scope") == "api://orders/.default"
            && !form.contains_key("client_secret");
        let json = "content-type: application/json\r\n";
        if !(is_good && is_form) {
            return (401, json, br#"{"error": "invalid_client"}"#.to_vec());
        }
        let body =
            json!({"token_type": "Bearer", "expires_in": 0, "access_token": token("asserted")});
        (200, json, body.to_string().into_bytes())
    }));
    issuer.resume();
    issuer
}

#[test]
fn a_certificate_proves_the_identity_to_an_issuer_that_checks_each_assertion() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let known = authority.issue_rsa("gridhook");
    known.write(folder.path(), "identity");
    let issuer = asserting(&known);
    let hook = Endpoint::start(vec![respond(200, "webhook-allowed-origin: *\r\n", "")]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let certificate = path("identity.crt");
    let private = path("identity.key");
    let url = format!("http://{}/{{tenant}}/oauth2/v2.0/token", issuer.address());
    let settings = [
        ("DELIVERY__IDENTITY_TOKEN_URL", url.as_str()),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        ("DELIVERY__IDENTITY_CERTIFICATE_FILE", &certificate),
        ("DELIVERY__IDENTITY_KEY_FILE", &private),
        ("LOG__FILTER", "debug"),
    ];
    let server = Server::start(&settings);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &spec(&hook));
    let publish = |id: &str, delivered: u64| {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("the event", LONG, || {
            server.counter("orders", "hook", "delivered") == delivered
        });
    };
    publish("a", 1);
    publish("b", 2);
    assert_eq!(server.counter("orders", "hook", "requestsFailed"), 0);
    assert!(
        hook.requests()
            .iter()
            .all(|request| bearer(request) == "asserted")
    );
    // The files are read for each token: one that the issuer does not know is refused, and the
    // known one is good again.
    authority
        .issue_rsa("stranger")
        .write(folder.path(), "identity");
    server.publish("orders", &key, &load::body(&["c".to_owned()], "/a"));
    wait_for("the refusal", LONG, || {
        server.counter("orders", "hook", "requestsFailed") > 0
    });
    known.write(folder.path(), "identity");
    wait_for("the event", LONG, || {
        server.counter("orders", "hook", "delivered") == 3
    });
    let path = format!("{}/ledger", subscription("orders", "hook"));
    let ledger = server.command("GET", &path, &Value::Null).text();
    assert!(
        ledger.contains("the response is 401 (invalid_client)"),
        "{ledger}"
    );
    assert!(
        !ledger.contains("eyJ") && !server.logs().contains("eyJ"),
        "no assertion and no token is shown"
    );

    // Another address keeps the identity.
    let at = subscription("orders", "named");
    let moved = hook.url().replace("/hook?code=1", "/moved");
    let identified = json!({"properties": {"deliveryWithResourceIdentity": {
        "identity": {"type": "SystemAssigned"}, "destination": spec(&hook).properties()["destination"]}}});
    server.command("PUT", &at, &identified);
    operator(
        &server,
        &[
            "subscriptions",
            "update",
            &format!("{SCOPE}/orders"),
            "named",
            "--endpoint",
            &moved,
        ],
    )
    .expect("it is changed");
    let shown = server.command("GET", &at, &Value::Null).json();
    let delivery = &shown["properties"]["deliveryWithResourceIdentity"];
    assert_eq!(delivery["identity"]["type"], "SystemAssigned", "{shown}");
    assert_eq!(
        delivery["destination"]["properties"]["endpointBaseUrl"], moved,
        "{shown}"
    );

    // A key that is not that of the certificate stops the start, and so does a certificate without
    // a key.
    authority.issue("gridhook").write(folder.path(), "other");
    let other = folder.path().join("other.key").display().to_string();
    for (private, problem) in [
        (other.as_str(), "identity.crt"),
        ("", "either the secret or both the certificate"),
    ] {
        let mut settings = settings;
        settings[3].1 = private;
        let refused = Server::with_data_dir(&folder.path().join("data"), &settings).try_restart();
        let (status, log) = refused.expect_err("it does not start");
        assert!(!status.success() && log.contains(problem), "{log}");
    }
}

#[test]
fn services_that_take_tokens_are_called_in_the_name_of_the_system_assigned_identity() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).expect("written");
    let issuer = Endpoint::start(vec![issued("one", &json!(3600))]);
    let service = Endpoint::start(vec![respond(201, "", "")]);
    let (token_url, url) = (
        format!("http://{}/token", issuer.address()),
        format!("http://{}", service.address()),
    );
    let server = Server::start(&[
        ("DELIVERY__IDENTITY_TOKEN_URL", token_url.as_str()),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            file.to_str().expect("UTF-8"),
        ),
        ("DELIVERY__RESOURCES__CLOUD__URL", &url),
        ("DELIVERY__RESOURCES__CLOUD__TOKEN_AUDIENCE", "api://orders"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let destinations = [
        (
            "queue",
            json!({"endpointType": "StorageQueue", "properties": {"resourceId": "cloud", "queueName": "orders"}}),
        ),
        (
            "bus",
            json!({"endpointType": "ServiceBusQueue", "properties": {"resourceId": "cloud/queues/orders"}}),
        ),
    ];
    for (name, destination) in &destinations {
        let identified =
            json!({"identity": {"type": "SystemAssigned"}, "destination": destination});
        let body = json!({"properties": {"deliveryWithResourceIdentity": identified}});
        let made = server.command("PUT", &subscription("orders", name), &body);
        assert_eq!(made.status, 201, "{}", made.text());
        let shown = &server.get_subscription("orders", name).json()["properties"]["deliveryWithResourceIdentity"];
        assert_eq!(shown["identity"]["type"], "SystemAssigned");
        assert_eq!(
            shown["destination"]["endpointType"],
            destination["endpointType"]
        );
        server.publish("orders", &key, &load::body(&[(*name).to_owned()], "/a"));
        wait_for("the event", LONG, || {
            server.counter("orders", name, "delivered") > 0
        });
    }
    assert!(service.requests().len() >= 3);
    assert!(
        service
            .requests()
            .iter()
            .all(|request| bearer(request) == "one")
    );
    let shown = operator(
        &server,
        &["subscriptions", "show", &format!("{SCOPE}/orders"), "queue"],
    )
    .expect("it is shown");
    assert!(
        shown.contains("StorageQueue") && shown.contains("cloud"),
        "{shown}"
    );
    // Also for a topic of a namespace.
    let namespace =
        "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant";
    server.command("PUT", namespace, &json!({"location": "local"}));
    server.command("PUT", &format!("{namespace}/topics/heat"), &json!({}));
    let push = json!({"deliveryWithResourceIdentity": {"identity": {"type": "SystemAssigned"},
        "destination": destinations[0].1}});
    let body =
        json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push", "push": push}}});
    let made = server.command(
        "PUT",
        &format!("{namespace}/topics/heat/eventSubscriptions/queue"),
        &body,
    );
    assert_eq!(made.status, 201, "{}", made.text());
    let push = &made.json()["properties"]["deliveryConfiguration"]["push"];
    assert_eq!(
        push["deliveryWithResourceIdentity"]["identity"]["type"],
        "SystemAssigned"
    );
}
