//! `GET /openapi.json`: the OpenAPI 3.1 document of all paths.
//!
//! Paths, methods, roles, summaries and statuses come from the tables of routes
//! ([`routes`](super::arm::routes), [`GridhookRoute`], [`http::PATHS`]), schemas from the types of
//! bodies and views.
//!
//! The document has no secrets and no names of resources, so it needs no token.
//!
//! Not described: paths that are always refused (event subscriptions of other providers'
//! resources), and 405 responses, which every path sends with `Allow` for other methods.

mod comments;
mod description;
mod draft;
mod events;
mod publishing;
mod pull;
mod shared;

use std::cell::OnceCell;

use actix_web::{HttpResponse, http::header::ContentType, web};
use serde_json::{Map, Value, json};

pub(crate) use self::{
    description::{
        CHANGING, Description, Errors, Query, QueryType, READING, SKIP_TOKEN, TOP, any_object,
        any_text, describe,
    },
    draft::{OperationBuilder, SchemaRegistry, error_reference},
};
use super::{ChaosMode, GridhookRoute, arm::routes::ROUTES};
use gridhook_api::resource::ErrorResponse;
use gridhook_publish::{http, namespace};
use gridhook_pull::http as pulling;

/// The document, generated at the first request, so that a start does not wait for it.
#[derive(Debug)]
pub struct OpenApiDocument {
    chaos: ChaosMode,
    text: OnceCell<web::Bytes>,
}

impl OpenApiDocument {
    /// The document of a server with or without fault injection.
    pub fn new(chaos: ChaosMode) -> Self {
        Self {
            chaos,
            text: OnceCell::new(),
        }
    }

    fn document_text(&self) -> web::Bytes {
        self.text
            .get_or_init(|| generate_document(self.chaos).to_string().into())
            .clone()
    }
}

/// `GET /openapi.json`.
pub(super) async fn get_document(document: web::Data<OpenApiDocument>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(ContentType::json())
        .body(document.document_text())
}

pub fn generate_document(chaos: ChaosMode) -> Value {
    let mut schemas = SchemaRegistry::default();
    let mut paths = Map::new();
    let mut add = |template: &str, method: &str, draft: OperationBuilder| {
        let path = paths
            .entry(template)
            .or_insert_with(|| json!({ "parameters": draft::names_in(template) }));
        path[method.to_ascii_lowercase()] = draft.into_json();
    };
    for path in http::PATHS {
        for method in http::METHODS {
            add(
                path,
                method.as_str(),
                publishing::describe_publish(path, &method, &mut schemas),
            );
        }
    }
    for path in namespace::publish_paths() {
        add(
            &path,
            namespace::METHOD.as_str(),
            publishing::in_namespace(&path, &mut schemas),
        );
    }
    for operation in pulling::OPERATIONS {
        for path in pulling::operation_paths(operation) {
            add(
                &path,
                pulling::METHOD.as_str(),
                pull::describe_pull(operation, &path, &mut schemas),
            );
        }
    }
    schemas.reference_to::<ErrorResponse>();
    for path in GridhookRoute::all_routes(chaos) {
        for (method, operation) in path.operations() {
            let draft = path.describe_operation(operation, method, &mut schemas);
            add(path.template, method.as_str(), draft);
        }
    }
    for route in ROUTES.iter() {
        for operation in route.operations {
            let draft = operation.describe_operation(route, &mut schemas);
            let draft = draft.with_query(
                "api-version",
                "API version; every version is accepted",
                &json!({"type": "string"}),
            );
            let draft = if route.is_resource() {
                draft.with_etag(&operation.method)
            } else {
                draft
            };
            let draft = draft
                .with_access(operation.access)
                .with_other_errors(description::ALWAYS);
            add(&route.template, operation.method.as_str(), draft);
        }
    }
    let mut paths = Value::Object(paths);
    let (parameters, responses) = shared::take_out(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gridhook",
            "description": env!("CARGO_PKG_DESCRIPTION"),
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.into_json(),
            "parameters": parameters,
            "responses": responses,
            "headers": {"ETag": {"description": "Tag of this state of the resource", "schema": {"type": "string"}}},
            "securitySchemes": security_schemes(),
        },
    })
}

fn key_scheme(location: &str, name: &str, description: &str) -> Value {
    json!({
        "type": "apiKey",
        "in": location,
        "name": name,
        "description": description,
    })
}

fn security_schemes() -> Value {
    let bearer = |what: &str| json!({"type": "http", "scheme": "bearer", "description": what});
    json!({
        "admin": bearer("The admin token from the settings or from `admin-token` in the data \
            folder, or a named token, or an access token of the issuer with a role"),
        "publisher": bearer("The admin token, a named token with the role, or an access token of \
            the issuer `auth.issuer`"),
        "key": key_scheme("header", "aeg-sas-key", "One of the two access keys of the topic"),
        "keyInQuery": key_scheme("query", "aeg-sas-key", "One of the two access keys of the topic"),
        "token": key_scheme("header", "aeg-sas-token", "A SAS token signed with one of the two \
            access keys of the topic"),
        "keyInAuthorization": key_scheme(
            "header",
            "Authorization",
            "`SharedAccessKey`, and one of the access keys of the namespace or of its topic",
        ),
        "tokenInAuthorization": key_scheme(
            "header",
            "Authorization",
            "`SharedAccessSignature`, and a SAS token",
        ),
    })
}
