//! One operation in the making, and the bodies that all of them speak of.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::{
    ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::fields;
use crate::admin::model::value_of;

/// The bodies that were spoken of, by their names.
#[derive(Default)]
pub(super) struct SchemaRegistry(BTreeMap<String, Value>);

impl SchemaRegistry {
    /// A reference to the schema of `T`.
    pub(super) fn of<T: ToSchema>(&mut self) -> Value {
        let mut all: Vec<(String, RefOr<Schema>)> = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut all);
        for (name, schema) in all {
            let mut schema = value_of(&schema);
            fields::describe(&name, &mut schema);
            assert!(self.0.get(&name).is_none_or(|known| *known == schema), "two schemas are called {name}");
            self.0.insert(name, schema);
        }
        reference(&T::name())
    }

    /// A reference to a schema `name` that is `T`'s, changed.
    pub(super) fn made<T: ToSchema>(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        self.of::<T>();
        let mut schema = self.0[T::name().as_ref()].clone();
        change(&mut schema);
        self.0.insert(name.to_owned(), schema);
        reference(name)
    }

    /// All of them.
    pub(super) fn into_json(self) -> Value {
        value_of(&self.0)
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A page of a list, or a list that is short.
pub(super) fn list_of(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["value"],
        "properties": {
            "value": {"description": "Items of the list", "type": "array", "items": item},
            "nextLink": {"description": "Address of the next page, if there is one", "type": "string"},
        },
    })
}

/// An operation.
pub(super) struct OperationBuilder {
    told: Map<String, Value>,
    parameters: Vec<Value>,
    answers: Map<String, Value>,
}

impl OperationBuilder {
    /// With an id of its own, and a sentence.
    pub(super) fn new(tag: &str, id: &str, summary: &str) -> Self {
        let told = json!({"tags": [tag], "operationId": id, "summary": summary, "security": []});
        let Value::Object(told) = told else { return Self::empty() };
        Self { told, ..Self::empty() }
    }

    fn empty() -> Self {
        Self { told: Map::new(), parameters: Vec::new(), answers: Map::new() }
    }

    /// For whoever has what one of these security schemes asks for.
    pub(super) fn secured(mut self, schemes: &[&str]) -> Self {
        self.told["security"] = schemes.iter().map(|scheme| json!({ *scheme: [] })).collect();
        self
    }

    /// With something that may stand in the query.
    pub(super) fn query(mut self, name: &str, what: &str, schema: &Value) -> Self {
        self.parameters.push(json!({"name": name, "in": "query", "description": what, "schema": schema}));
        self
    }

    /// With something that may stand in a header.
    pub(super) fn header(mut self, name: &str, what: &str) -> Self {
        let schema = json!({"type": "string"});
        self.parameters.push(json!({"name": name, "in": "header", "description": what, "schema": schema}));
        self
    }

    /// With a body of JSON, which may be left out or not.
    pub(super) fn body(self, required: bool, schema: &Value, example: Value) -> Self {
        self.bodies(required, json!({"application/json": {"schema": schema, "example": example}}))
    }

    /// With a body of one of these content types.
    pub(super) fn bodies(mut self, required: bool, content: Value) -> Self {
        self.told.insert("requestBody".to_owned(), json!({"required": required, "content": content}));
        self
    }

    /// Can end with this status and this JSON.
    pub(super) fn answer(mut self, status: u16, what: &str, schema: &Value) -> Self {
        let content = json!({"application/json": {"schema": schema}});
        self.answers.insert(status.to_string(), json!({"description": what, "content": content}));
        self
    }

    /// Can end with this status and one of these content types.
    pub(super) fn contents(mut self, status: u16, what: &str, content: Value) -> Self {
        self.answers.insert(status.to_string(), json!({"description": what, "content": content}));
        self
    }

    /// Can end with this status and a sentence.
    pub(super) fn text(mut self, status: u16, what: &str) -> Self {
        let content = json!({"text/plain": {"schema": {"type": "string"}}});
        self.answers.insert(status.to_string(), json!({"description": what, "content": content}));
        self
    }

    /// Can end with this status and without a body.
    pub(super) fn done(mut self, status: u16, what: &str) -> Self {
        self.answers.insert(status.to_string(), json!({"description": what}));
        self
    }

    /// Can end with these statuses and this JSON.
    pub(super) fn errors(self, errors: &[(u16, &str)], schema: &Value) -> Self {
        errors.iter().fold(self, |draft, (status, what)| draft.answer(*status, what, schema))
    }

    /// The same, where nothing else is said of the status.
    pub(super) fn otherwise(self, errors: &[(u16, &str)], schema: &Value) -> Self {
        let unsaid: Vec<_> =
            errors.iter().filter(|(status, _)| !self.answers.contains_key(&status.to_string())).copied().collect();
        self.errors(&unsaid, schema)
    }

    /// As it stands in the document.
    pub(super) fn into_json(mut self) -> Value {
        self.told.insert("responses".to_owned(), self.answers.into());
        if !self.parameters.is_empty() {
            self.told.insert("parameters".to_owned(), self.parameters.into());
        }
        self.told.into()
    }
}

/// The names in a path, each with an example.
pub(super) fn names_in(template: &str) -> Vec<Value> {
    // Behind the name of a topic of a namespace stands, in the same segment, what is done with it.
    let names = template.split('/').filter_map(|part| Some(part.strip_prefix('{')?.split_once('}')?.0));
    let parameter = |name: &str| {
        let (what, example) = match name {
            "subscriptionId" => ("Azure subscription of the resource; any name", "s"),
            "resourceGroupName" => ("Resource group of the resource; any name", "r"),
            "topicName" | "topic" => ("Name of the topic", "orders"),
            "domainName" | "domain" => ("Name of the domain", "shops"),
            "namespaceName" | "namespace" => ("Name of the namespace", "plant"),
            "domainTopicName" => ("Name of the domain topic", "berlin"),
            "eventSubscriptionName" => ("Name of the event subscription", "billing"),
            "replayId" => ("Id of the replay", "16"),
            "deadLetterKey" => ("Key of the dead letter, taken from the list", "2026~11~20~8~a.json~0"),
            "topicTypeName" => ("Name of the topic type", "Microsoft.EventGrid.Topics"),
            _ => ("Location of the topics", "local"),
        };
        let schema = json!({"type": "string", "minLength": 1});
        json!({"name": name, "in": "path", "required": true, "description": what, "schema": schema, "example": example})
    };
    names.map(parameter).collect()
}
