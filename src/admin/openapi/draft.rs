//! A builder of operations, and the registry of schemas.

use std::collections::BTreeMap;

use actix_web::http::Method;
use serde_json::{Map, Value, json};
use utoipa::{
    ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::comments::describe_schema;
use crate::{
    auth::{Access, Role},
    model::value_of,
};
use gridhook_api::resource::ErrorResponse;

/// The referenced schemas, by name.
#[derive(Default)]
pub(crate) struct SchemaRegistry(BTreeMap<String, Value>);

impl SchemaRegistry {
    pub(crate) fn reference_to<T: ToSchema>(&mut self) -> Value {
        self.named::<T>(&T::name())
    }

    /// A reference to the schema of `T`, which is called `name`: types of one generic type would
    /// have the same name.
    pub(crate) fn named<T: ToSchema>(&mut self, name: &str) -> Value {
        let mut all: Vec<(String, RefOr<Schema>)> = vec![(name.to_owned(), T::schema())];
        T::schemas(&mut all);
        for (name, schema) in all {
            let mut schema = value_of(&schema);
            describe_schema(&mut schema);
            name_constants(&name, &mut schema);
            assert!(
                self.0.get(&name).is_none_or(|known| *known == schema),
                "two schemas are called {name}"
            );
            self.0.insert(name, schema);
        }
        schema_reference(name)
    }

    pub(super) fn into_json(self) -> Value {
        value_of(&self.0)
    }
}

/// Names the constants of an enumeration after it: generators of some languages put the constants
/// of all enumerations in one namespace.
fn name_constants(name: &str, schema: &mut Value) {
    let Some(values) = schema["enum"].as_array() else {
        return;
    };
    let constants: Vec<String> = values
        .iter()
        .filter_map(Value::as_str)
        .map(|value| constant_name(name, value))
        .collect();
    schema["x-enum-varnames"] = constants.into();
}

/// The constant of a value, such as `IDENTITY_KIND_NONE`.
fn constant_name(name: &str, value: &str) -> String {
    let mut constant = String::new();
    let mut is_lowercase = false;
    for c in format!("{name} {value}").chars() {
        let begins_word = !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && is_lowercase;
        if begins_word && !constant.is_empty() && !constant.ends_with('_') {
            constant.push('_');
        }
        is_lowercase = c.is_ascii_lowercase();
        constant.extend(c.is_ascii_alphanumeric().then(|| c.to_ascii_uppercase()));
    }
    constant
}

fn schema_reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn list_of(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["value"],
        "properties": {
            "value": {"description": "Items of the list", "type": "array", "items": item},
            "nextLink": {"description": "Address of the next page", "type": "string"},
        },
    })
}

pub(crate) struct OperationBuilder {
    operation: Map<String, Value>,
    parameters: Vec<Value>,
    responses: Map<String, Value>,
}

impl OperationBuilder {
    pub(super) fn new(tag: &str, id: &str, summary: &str) -> Self {
        let operation = [
            ("tags", json!([tag])),
            ("operationId", id.into()),
            ("summary", summary.into()),
            ("security", json!([])),
        ];
        Self {
            operation: operation
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect(),
            parameters: Vec::new(),
            responses: Map::new(),
        }
    }

    pub(super) fn with_security(mut self, schemes: &[&str]) -> Self {
        self.operation["security"] = schemes
            .iter()
            .map(|scheme| json!({ *scheme: [] }))
            .collect();
        self
    }

    /// Adds the security scheme for a role and the errors of authorization.
    pub(crate) fn with_access(mut self, access: Access) -> Self {
        let Access {
            role: Some(role),
            is_for_portals,
        } = access
        else {
            return self;
        };
        let roles = [Some(role), is_for_portals.then_some(Role::Portal)];
        self.operation["security"] = roles
            .iter()
            .flatten()
            .map(|role| json!({"admin": [role.name()]}))
            .collect();
        self.with_other_errors(&[
            (401, "Missing or wrong token"),
            (403, "Token without the needed role"),
        ])
    }

    /// Describes the same operation for HEAD: no response has a body.
    pub(crate) fn for_head(mut self) -> Self {
        let id = format!(
            "{}Head",
            self.operation["operationId"].as_str().unwrap_or_default()
        );
        self.operation["operationId"] = id.into();
        for response in self.responses.values_mut().filter_map(Value::as_object_mut) {
            response.remove("content");
        }
        self
    }

    pub(crate) fn with_query(mut self, name: &str, what: &str, schema: &Value) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "query", "description": what, "schema": schema}));
        self
    }

    /// Adds the parameter that names a shard of a spread topic.
    pub(crate) fn with_shard(self) -> Self {
        let what = "Number of the shard to ask, for a spread topic only; without it, all that have \
            a part of the answer";
        self.with_query(
            "shard",
            what,
            &serde_json::json!({"type": "integer", "minimum": 0}),
        )
    }

    pub(super) fn with_header(mut self, name: &str, what: &str) -> Self {
        let schema = json!({"type": "string"});
        self.parameters
            .push(json!({"name": name, "in": "header", "description": what, "schema": schema}));
        self
    }

    /// Adds a JSON body.
    pub(super) fn with_body(self, required: bool, schema: &Value, example: Value) -> Self {
        self.with_bodies(
            required,
            json!({"application/json": {"schema": schema, "example": example}}),
        )
    }

    /// Adds a body of one of these content types.
    pub(super) fn with_bodies(mut self, required: bool, content: Value) -> Self {
        self.operation.insert(
            "requestBody".to_owned(),
            json!({"required": required, "content": content}),
        );
        self
    }

    pub(crate) fn with_json_response(self, status: u16, what: &str, schema: &Value) -> Self {
        self.with_response(
            status,
            what,
            json!({"application/json": {"schema": schema}}),
        )
    }

    /// Adds the response to a PUT that only reports the changes. Its schema allows the resource of
    /// the response 201, too: a generated client in Go reads all responses that succeed as one type.
    pub(crate) fn with_difference_response(self, what: &str, difference: &Value) -> Self {
        let saved = self.responses.get("201").or(self.responses.get("200"));
        let resource = saved.map(|saved| saved["content"]["application/json"]["schema"].clone());
        let schemas: Vec<Value> = resource.into_iter().chain([difference.clone()]).collect();
        self.with_json_response(200, what, &json!({"anyOf": schemas}))
    }

    /// Adds a response of one of these content types.
    pub(super) fn with_response(mut self, status: u16, what: &str, content: Value) -> Self {
        self.responses.insert(
            status.to_string(),
            json!({"description": what, "content": content}),
        );
        self
    }

    /// Adds a response without a body.
    pub(super) fn with_empty_response(mut self, status: u16, what: &str) -> Self {
        self.responses
            .insert(status.to_string(), json!({"description": what}));
        self
    }

    pub(crate) fn with_errors(self, errors: &[(u16, &str)], schema: &Value) -> Self {
        errors.iter().fold(self, |draft, (status, what)| {
            draft.with_json_response(*status, what, schema)
        })
    }

    /// Adds the ETag of a resource, and the preconditions of its changes.
    pub(super) fn with_etag(mut self, method: &Method) -> Self {
        for (status, response) in &mut self.responses {
            if ["200", "201"].contains(&status.as_str()) {
                response["headers"] = json!({"ETag": {"$ref": "#/components/headers/ETag"}});
            }
        }
        if *method == Method::GET {
            let known = json!({"description": "The resource has an ETag of the request"});
            self.responses.insert("304".to_owned(), known);
            return self.with_header(
                "If-None-Match",
                "ETags of the states that the client has: for one of them the response is 304",
            );
        }
        let draft = self
            .with_header(
                "If-Match",
                "ETags that the resource must have: one of a list, or `*` for any",
            )
            .with_header(
                "If-None-Match",
                "ETags that the resource must not have; with `*` it must not exist",
            );
        draft.with_errors(
            &[(412, "The resource has another ETag")],
            &error_reference(),
        )
    }

    /// Adds JSON error responses for statuses that are not described yet.
    pub(super) fn with_other_errors(self, errors: &[(u16, &str)]) -> Self {
        let missing: Vec<_> = errors
            .iter()
            .filter(|(status, _)| !self.responses.contains_key(&status.to_string()))
            .copied()
            .collect();
        self.with_errors(&missing, &error_reference())
    }

    pub(super) fn into_json(mut self) -> Value {
        self.operation
            .insert("responses".to_owned(), self.responses.into());
        if !self.parameters.is_empty() {
            self.operation
                .insert("parameters".to_owned(), self.parameters.into());
        }
        self.operation.into()
    }
}

/// A reference to the schema of errors of the control plane.
pub(crate) fn error_reference() -> Value {
    schema_reference(&ErrorResponse::name())
}

/// The parameters of a path, with examples.
pub(super) fn names_in(template: &str) -> Vec<Value> {
    // In namespace paths the operation follows the name in the same segment.
    let names = template
        .split('/')
        .filter_map(|part| Some(part.strip_prefix('{')?.split_once('}')?.0));
    names.map(describe_parameter).collect()
}

fn describe_parameter(name: &str) -> Value {
    let (description, example) = match name {
        "subscriptionId" => ("Azure subscription of the resource; any name", "s"),
        "resourceGroupName" => ("Resource group of the resource; any name", "r"),
        "topicName" | "topic" => ("Name of the topic", "orders"),
        "domainName" | "domain" => ("Name of the domain", "shops"),
        "namespaceName" | "namespace" => ("Name of the namespace", "plant"),
        "domainTopicName" => ("Name of the domain topic", "berlin"),
        "eventTypeName" => ("Name of the event type", "Order.Placed"),
        "eventSubscriptionName" => ("Name of the event subscription", "billing"),
        "sequence" => ("Sequence number of the event", "1"),
        "replayId" => ("Id of the replay", "16"),
        "deadLetterKey" => (
            "Key of the dead letter, taken from the list",
            "2026~11~20~8~a.json~0",
        ),
        "tokenName" => ("Name of the token", "shop"),
        "topicTypeName" => ("Name of the topic type", "Microsoft.EventGrid.Topics"),
        _ => ("Location of the topics", "local"),
    };
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
        "example": example,
    })
}
