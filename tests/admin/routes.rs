//! The table of routes: each route is described, responds, and needs a token of its role.

use actix_web::{http::Method, test::TestRequest};
use gridhook::admin::{
    ChaosMode, GridhookRoute,
    arm::routes::ROUTES,
    auth::{Access, Role},
    openapi::generate_document,
};
use serde_json::{Value, json};

use super::control::{ControlFixture, Response, TOKEN};

const METRICS_TOKEN: &str = "only-for-metrics";

/// Path, method and access of each operation.
fn operations() -> Vec<(String, Method, Access)> {
    let own = GridhookRoute::all_routes(ChaosMode::Enabled).flat_map(|route| {
        let operations = route.operations();
        operations.map(|(method, operation)| {
            (route.template.to_owned(), method.clone(), operation.access)
        })
    });
    let arm = ROUTES.iter().flat_map(|route| {
        let operations = route.operations.iter();
        operations.map(|operation| {
            (
                route.template.clone(),
                operation.method.clone(),
                operation.access,
            )
        })
    });
    own.chain(arm).collect()
}

/// The path with a value for each parameter.
fn filled(template: &str) -> String {
    let part = |part: &str| {
        if part.starts_with('{') {
            "1-x".to_owned()
        } else {
            part.to_owned()
        }
    };
    template.split('/').map(part).collect::<Vec<_>>().join("/")
}

async fn ask(
    control: &ControlFixture,
    method: &Method,
    path: &str,
    token: Option<&str>,
) -> Response {
    let request = TestRequest::with_uri(path).method(method.clone());
    let header = token.map(|token| ("Authorization", format!("Bearer {token}")));
    control
        .send(
            header
                .into_iter()
                .fold(request, |request, header| request.insert_header(header)),
        )
        .await
}

#[test]
fn each_role_has_the_permissions_of_the_roles_before_it() {
    let roles = [
        None,
        Some(Role::Metrics),
        Some(Role::Read),
        Some(Role::Operate),
        Some(Role::Admin),
    ];
    for (place, needed) in roles.into_iter().enumerate() {
        let admitted = roles.map(|role| {
            Access {
                role: needed,
                is_for_portals: false,
            }
            .admits_role(role)
        });
        assert_eq!(
            admitted,
            std::array::from_fn(|role| role >= place),
            "{needed:?}"
        );
    }
}

#[test]
fn the_role_of_each_route_is_described() {
    let document = generate_document(ChaosMode::Enabled);
    let all = operations();
    for (path, method, access) in &all {
        let operation = &document["paths"][path][method.as_str().to_ascii_lowercase()];
        let roles = [access.role, access.is_for_portals.then_some(Role::Portal)];
        let expected: Value = roles
            .iter()
            .flatten()
            .map(|role| json!({"admin": [role.name()]}))
            .collect();
        assert_eq!(operation["security"], expected, "{method} {path}");
    }
    for role in [
        None,
        Some(Role::Metrics),
        Some(Role::Read),
        Some(Role::Operate),
        Some(Role::Admin),
    ] {
        assert!(
            all.iter().any(|(_, _, access)| access.role == role),
            "no operation needs {role:?}"
        );
    }
}

/// A replaced or merged state could overwrite the change of another operator. Only a resource with
/// a GET and a PUT has one, and its ETag guards it; the other operations are actions, and deletions
/// of what cannot be changed: tokens, sessions, faults.
#[test]
fn only_resources_with_an_etag_can_lose_an_update() {
    let all = operations();
    let has = |path: &str, wanted: &Method| {
        all.iter()
            .any(|(of, method, _)| of == path && method == wanted)
    };
    for (path, method, _) in &all {
        let is_resource = has(path, &Method::GET)
            && has(path, &Method::PUT)
            && path.starts_with("/subscriptions/");
        let is_state = [Method::PUT, Method::PATCH].contains(method)
            || *method == Method::DELETE && has(path, &Method::PATCH);
        let is_plain = [
            "/tokens/{tokenName}",
            "/sessions/{sessionId}",
            "/ui/session",
            "/chaos",
        ]
        .contains(&path.as_str());
        assert!(
            is_resource || !is_state && (*method != Method::DELETE || is_plain),
            "{method} {path}"
        );
    }
}

/// Readers may not change a resource or see a secret. They may read everything else.
#[test]
fn readers_cannot_change_anything_or_see_a_secret() {
    let secret = [
        "listKeys",
        "regenerateKey",
        "getFullUrl",
        "getDeliveryAttributes",
    ];
    for (path, method, access) in operations() {
        let last = path.rsplit('/').next().expect("a segment");
        let shows = method == Method::GET
            || method == Method::HEAD
            || ["simulate", "testFilter", "testTransform"].contains(&last);
        // An endpoint has a token of its own in the query; a session has the role of the token it
        // is started with.
        if let Some(needed) = [("validate", None), ("session", Some(Role::Read))]
            .iter()
            .find(|(of, _)| *of == last && !path.contains("/deployments/"))
        {
            assert_eq!(access.role, needed.1, "{method} {path}");
            continue;
        }
        assert_eq!(
            access.admits_role(Some(Role::Read)),
            shows,
            "{method} {path}"
        );
        if secret.contains(&last) || [Method::PUT, Method::PATCH].contains(&method) {
            assert!(!access.admits_role(Some(Role::Operate)), "{method} {path}");
        }
    }
}

#[actix_web::test]
async fn every_route_answers_and_needs_a_token_of_its_role() {
    let control = ControlFixture::new(ChaosMode::Enabled);
    control.let_read_metrics(METRICS_TOKEN);
    let all = operations();
    assert!(all.len() > 100, "{} operations", all.len());
    for (template, method, access) in all {
        let path = filled(&template);
        let of = format!("{method} {template}");
        // A stream has no end.
        let is_stream = template == "/tail";
        for (token, role) in [
            (None, None),
            (Some("wrong"), None),
            (Some(METRICS_TOKEN), Some(Role::Metrics)),
            (Some(TOKEN), Some(Role::Admin)),
        ] {
            if is_stream && role == Some(Role::Admin) {
                continue;
            }
            let response = ask(&control, &method, &path, token).await;
            assert_eq!(
                ![401, 403].contains(&response.status),
                access.admits_role(role),
                "{of} {role:?}: {}",
                response.brief()
            );
            assert_ne!(response.status, 405, "{of}: {}", response.brief());
            assert!(
                !response.text.contains("No HTTP resource"),
                "{of}: {}",
                response.brief()
            );
        }
    }
}

#[actix_web::test]
async fn a_method_that_is_not_allowed_is_reported_to_holders_of_a_token_only() {
    let control = ControlFixture::new(ChaosMode::Enabled);
    for (path, allowed) in [
        ("/top", "GET, HEAD"),
        ("/chaos", "GET, DELETE, HEAD"),
        ("/subscriptions", "GET, HEAD"),
    ] {
        assert_eq!(
            ask(&control, &Method::PUT, path, None).await.status,
            401,
            "{path}"
        );
        let response = control.call("PUT", path, Value::Null).await;
        assert_eq!(response.status, 405, "{path}");
        assert_eq!(
            response.headers.get("Allow").expect("it is there"),
            allowed,
            "{path}"
        );
    }
    assert_eq!(
        ask(&control, &Method::PUT, "/healthz", None).await.status,
        405,
        "a probe needs no token"
    );
}
