//! Access tokens of the server for endpoints that demand one, from an issuer of the test that signs them.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, Received, Script, answer},
    load,
    server::{Server, SubscriptionSpec, subscription, wait_for},
};

const SECRET: &str = "s3cret of the server";

const KEY: &[u8] = b"the key of the issuer";

/// A signed token for `api://orders`.
fn token(id: &str) -> String {
    let claims = json!({"jti": id, "aud": "api://orders", "exp": 4_102_444_800_u64});
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(KEY)).expect("it is signed")
}

/// The issuer's answer with a token.
fn issued(id: &str, lifetime: &Value) -> Script {
    let body = json!({"token_type": "Bearer", "expires_in": lifetime, "access_token": token(id)});
    answer(200, "content-type: application/json\r\n", &body.to_string())
}

/// The id of the token in a request.
fn bearer(request: &Received) -> String {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    let mut expected = Validation::new(Algorithm::HS256);
    expected.set_audience(&["api://orders"]);
    let claims = jsonwebtoken::decode::<Value>(token, &DecodingKey::from_secret(KEY), &expected).expect("a good token");
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
        ("DELIVERY__IDENTITY_SECRET_FILE", file.to_str().expect("UTF-8")),
        ("LOG__FILTER", "debug"),
    ])
}

fn spec(endpoint: &Endpoint) -> SubscriptionSpec {
    SubscriptionSpec::of(&endpoint.url())
        .schema("CloudEventSchemaV1_0")
        .webhook("azureActiveDirectoryTenantId", json!("contoso.example"))
        .webhook("azureActiveDirectoryApplicationIdOrUri", json!("api://orders"))
}

#[test]
fn requests_have_a_token_that_is_kept_and_fetched_anew_once_after_a_401() {
    let folder = TempDir::new().expect("a folder");
    let issuer = Endpoint::start(vec![issued("one", &json!(3600)), issued("two", &json!("3600"))]);
    let accepted = || answer(200, "webhook-allowed-origin: *\r\n", "");
    let hook = Endpoint::start(vec![
        accepted(),
        accepted(),
        answer(401, "", ""),
        accepted(),
        answer(401, "", ""),
        answer(401, "", ""),
    ]);
    let server = server(&issuer, &folder);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &spec(&hook));
    for (id, delivered) in [("a", 1), ("b", 2)] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("the event", LONG, || server.counter("orders", "hook", "delivered") == delivered);
    }
    let tokens: Vec<String> = hook.requests().iter().map(bearer).collect();
    assert_eq!(tokens, ["one", "one", "one", "two"], "validation, delivery, refused, sent again");
    assert_eq!(server.counter("orders", "hook", "requestsFailed"), 0);
    let requests = issuer.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(request.head.starts_with("POST /contoso.example/oauth2/v2.0/token HTTP/1.1\r\n"), "{}", request.head);
        let form: Vec<(String, String)> = url::form_urlencoded::parse(&request.body).into_owned().collect();
        let expected = [
            ("grant_type", "client_credentials"),
            ("client_id", "gridhook"),
            ("client_secret", SECRET),
            ("scope", "api://orders/.default"),
        ];
        assert_eq!(form, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    // An endpoint that refuses the new token, too: the request has failed.
    server.publish("orders", &key, &load::body(&["c".to_owned()], "/a"));
    wait_for("a failure", LONG, || server.counter("orders", "hook", "requestsFailed") == 1);
    assert_eq!((hook.requests().len(), issuer.requests().len()), (6, 3));
    let shown = server.get_subscription("orders", "hook").text();
    for secret in [SECRET, token("one").as_str(), token("two").as_str()] {
        assert!(!server.logs().contains(secret) && !shown.contains(secret), "shown: {secret}");
    }
    assert!(shown.contains("contoso.example") && shown.contains("api://orders"), "{shown}");
}

#[test]
fn an_expired_token_is_replaced_and_a_refusal_of_the_issuer_is_told_without_the_secret() {
    let folder = TempDir::new().expect("a folder");
    let refusal = json!({"error": "invalid_client", "error_description": format!("wrong: {SECRET}")}).to_string();
    let (expired, refused) = (|id| issued(id, &json!(0)), answer(401, "", &refusal));
    let issuer = Endpoint::start(vec![expired("one"), expired("two"), refused, expired("three")]);
    let hook = Endpoint::start(vec![answer(200, "webhook-allowed-origin: *\r\n", "")]);
    let server = server(&issuer, &folder);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &spec(&hook));
    for id in ["a", "b"] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_until_settled(&server, "orders", "hook");
    }
    let tokens: Vec<String> = hook.requests().iter().map(bearer).collect();
    assert_eq!(tokens, ["one", "two", "three"], "nothing was sent without a token");
    assert_eq!(server.counter("orders", "hook", "requestsFailed"), 1);
    let path = format!("{}/ledger", subscription("orders", "hook"));
    let ledger = server.command("GET", &path, &Value::Null).text();
    assert!(ledger.contains("no access token for the endpoint: the response is 401 (invalid_client)"), "{ledger}");
    assert!(!ledger.contains(SECRET) && !server.logs().contains(SECRET));
}

#[test]
fn a_function_gets_a_token_for_the_audience_of_its_service() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).expect("written");
    let issuer = Endpoint::start(vec![issued("one", &json!(3600)), issued("two", &json!(3600))]);
    let app = Endpoint::start(vec![answer(200, "", ""), answer(401, "", ""), answer(200, "", "")]);
    let (token_url, app_url) =
        (format!("http://{}/{{tenant}}/token", issuer.address()), format!("http://{}", app.address()));
    let server = Server::start(&[
        ("DELIVERY__IDENTITY_TOKEN_URL", token_url.as_str()),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        ("DELIVERY__IDENTITY_SECRET_FILE", file.to_str().expect("UTF-8")),
        ("DELIVERY__RESOURCES__APP__URL", &app_url),
        ("DELIVERY__RESOURCES__APP__TOKEN_AUDIENCE", "api://orders"),
        ("DELIVERY__RESOURCES__APP__TOKEN_TENANT", "contoso.example"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({"endpointType": "AzureFunction", "properties": {"resourceId": "app/functions/bill"}});
    let spec = SubscriptionSpec::of("").also(&json!({}), &json!({"destination": properties}));
    server.subscribe("orders", "function", &spec);
    for (id, delivered) in [("a", 1), ("b", 2)] {
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("the event", LONG, || server.counter("orders", "function", "delivered") == delivered);
    }
    let tokens: Vec<String> = app.requests().iter().map(bearer).collect();
    assert_eq!(tokens, ["one", "one", "two"], "delivery, refused, sent again");
    assert!(issuer.requests().iter().all(|request| request.head.starts_with("POST /contoso.example/token ")));
}

#[test]
fn a_server_without_an_identity_refuses_a_subscription_that_needs_one() {
    let server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    let hook = Endpoint::start(vec![answer(200, "webhook-allowed-origin: *\r\n", "")]);
    let refused = server.ask_for("orders", "hook", &spec(&hook));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("the server has no identity; set delivery.identity_token_url"),
        "{}",
        refused.text()
    );
    assert!(hook.requests().is_empty());
}
