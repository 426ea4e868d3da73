//! A service that issues access tokens as Microsoft Entra ID does, to one application: for its
//! secret (OAuth 2 client credentials), and as the managed identity of the machine.

use std::{collections::HashMap, sync::Arc};

use gridhook::clock::Clock;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::{
    publish::bearer::Signer,
    support::{
        certificates::Authority,
        endpoint::{Endpoint, respond},
        http::header,
        http_service::HttpService,
    },
};

/// The audience that Azure's clients request tokens for.
const AUDIENCE: &str = "https://eventgrid.azure.net";

const TENANT: &str = "00000000-0000-0000-0000-000000000000";
const APPLICATION: &str = "11111111-1111-1111-1111-111111111111";
const SECRET: &str = "secret-of-the-application";

/// The value of `IDENTITY_HEADER`, which a managed identity's requests have.
const IDENTITY: &str = "secret-of-the-machine";

const JSON: &str = "content-type: application/json\r\n";

/// The service, over https.
pub(super) struct TokenService {
    service: HttpService,
    /// The public keys, as gridhook reads them.
    keys: Endpoint,
}

impl TokenService {
    /// Starts it with a certificate of this authority.
    pub(super) fn start(authority: &Authority) -> Self {
        let signer = Signer::new();
        let keys = Endpoint::start(vec![respond(200, "", &signer.set().to_string())]);
        let handler = Arc::new(move |head: &str, body: &[u8]| {
            let (status, response) = issue_token(&signer, head, body);
            (status, JSON, response.to_string().into_bytes())
        });
        let mut service = HttpService::secure(
            handler,
            authority.endpoint("127.0.0.1", rustls::ALL_VERSIONS),
        );
        service.resume();
        Self { service, keys }
    }

    fn url(&self) -> String {
        format!("https://{}", self.service.address())
    }

    /// The settings of a server that accepts its tokens.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AUTH__ISSUER", issuer(&self.service.address().to_string())),
            ("AUTH__JWKS", format!("{}keys", self.keys.url())),
            ("AUTH__AUDIENCE", AUDIENCE.to_owned()),
            ("AUTH__ADMIN_ROLE", "Grid.Admin".to_owned()),
        ]
    }

    /// The values that a client needs to sign in.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("GRIDHOOK_TEST_AUTHORITY", format!("{}/", self.url())),
            ("GRIDHOOK_TEST_AUDIENCE", AUDIENCE.to_owned()),
            ("GRIDHOOK_TEST_TENANT", TENANT.to_owned()),
            ("GRIDHOOK_TEST_CLIENT", APPLICATION.to_owned()),
            ("GRIDHOOK_TEST_SECRET", SECRET.to_owned()),
            ("IDENTITY_ENDPOINT", format!("{}/identity", self.url())),
            ("IDENTITY_HEADER", IDENTITY.to_owned()),
        ]
    }
}

fn issuer(host: &str) -> String {
    format!("https://{host}/{TENANT}/v2.0")
}

fn issue_token(signer: &Signer, head: &str, body: &[u8]) -> (u16, Value) {
    let host = header(head, "host").unwrap_or_default();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parsed = |text: &[u8]| {
        form_urlencoded::parse(text)
            .into_owned()
            .collect::<HashMap<String, String>>()
    };
    let of = |values: &HashMap<String, String>, name: &str| {
        values.get(name).cloned().unwrap_or_default()
    };
    if path == "/identity" {
        if header(head, "x-identity-header") != Some(IDENTITY) {
            return (401, json!({"error": "unauthorized_client"}));
        }
        let resource = of(&parsed(query.as_bytes()), "resource");
        let (token, expires) = token(signer, host, &resource);
        let token = json!({
            "access_token": token, "expires_on": expires.to_string(), "resource": resource, "token_type": "Bearer",
        });
        return (200, token);
    }
    let base = format!("https://{host}/{TENANT}");
    match path.strip_prefix(&format!("/{TENANT}")) {
        Some("/v2.0/.well-known/openid-configuration") => {
            let addresses = json!({
                "issuer": issuer(host),
                "token_endpoint": format!("{base}/oauth2/v2.0/token"),
                "authorization_endpoint": format!("{base}/oauth2/v2.0/authorize"),
                "jwks_uri": format!("{base}/discovery/v2.0/keys"),
            });
            (200, addresses)
        }
        Some("/oauth2/v2.0/token") => {
            let form = parsed(body);
            if of(&form, "client_id") != APPLICATION || of(&form, "client_secret") != SECRET {
                let text = "AADSTS7000215: Invalid client secret provided.";
                let error = json!({"error": "invalid_client", "error_description": text, "error_codes": [7_000_215]});
                return (401, error);
            }
            let scope = of(&form, "scope");
            let audience = scope
                .split(' ')
                .find_map(|scope| scope.strip_suffix("/.default"))
                .unwrap_or_default();
            let (token, _) = token(signer, host, audience);
            (
                200,
                json!({"access_token": token, "expires_in": 3_599, "token_type": "Bearer"}),
            )
        }
        Some(_) | None => (
            404,
            json!({"error": "not_found", "error_description": target}),
        ),
    }
}

/// A token for this audience, and the second of its end.
fn token(signer: &Signer, host: &str, audience: &str) -> (String, u64) {
    let expires = Clock::system().now().0 / 1_000_000 + 6_000;
    let claims = json!({
        "iss": issuer(host), "aud": audience.trim_end_matches('/'), "exp": expires, "roles": ["Grid.Admin"],
        "tid": TENANT, "oid": APPLICATION, "sub": APPLICATION, "appid": APPLICATION, "idtyp": "app",
    });
    (signer.sign(Some("ec"), Algorithm::ES256, &claims), expires)
}
