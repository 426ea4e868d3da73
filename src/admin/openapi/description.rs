//! The description of an operation in the table of routes, for the OpenAPI document. It is a
//! constant: the schemas of its types are built with the document.

use serde_json::{Value, json};
use utoipa::ToSchema;

use super::draft::{OperationBuilder, SchemaRegistry, error_reference, list_of};

/// Builds a schema, or returns a reference to one.
pub(crate) type SchemaFn = fn(&mut SchemaRegistry) -> Value;

/// Errors of an operation: status and meaning.
pub(crate) type Errors = &'static [(u16, &'static str)];

/// Errors of all operations of Azure Resource Manager.
pub(super) const ALWAYS: Errors = &[
    (400, "Invalid body or query"),
    (404, "No such resource"),
    (408, "Body not received in time"),
    (413, "Body too large"),
];

/// Errors of operations that read the store.
pub(crate) const READING: Errors = &[
    (500, "Damaged store"),
    (503, "Store temporarily unreadable"),
];

pub(crate) const CHANGING: Errors = &[
    (
        409,
        "Name taken under another scope, or a concurrent change",
    ),
    (500, "Unknown whether the change was made"),
    (503, "Store temporarily unwritable"),
];

/// An operation in the OpenAPI document.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    id: &'static str,
    summary: &'static str,
    body: Option<RequestBody>,
    header: Option<(&'static str, &'static str)>,
    queries: [&'static [Query]; 2],
    responses: [Option<Response>; 2],
    errors: [Errors; 2],
}

#[derive(Clone, Copy)]
struct RequestBody {
    is_required: bool,
    schema: SchemaFn,
    /// An example, as JSON text.
    example: &'static str,
}

#[derive(Clone, Copy)]
struct Response {
    status: u16,
    meaning: &'static str,
    content: Content,
}

#[derive(Clone, Copy)]
enum Content {
    None,
    Json(SchemaFn),
    List(SchemaFn),
    /// One content in several media types.
    Types(&'static [(&'static str, SchemaFn)]),
}

#[derive(Clone, Copy)]
pub(crate) struct Query(
    pub(crate) &'static str,
    pub(crate) QueryType,
    pub(crate) &'static str,
);

/// The type of a query parameter.
#[derive(Clone, Copy)]
pub(crate) enum QueryType {
    Text,
    NonEmptyText,
    Time,
    Flag,
    Number,
    NumberFrom(u64),
    NumberBetween(u64, u64),
    OneOf(&'static [&'static str]),
}

impl QueryType {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::NonEmptyText => json!({"type": "string", "minLength": 1}),
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Number => json!({"type": "integer"}),
            Self::NumberFrom(min) => json!({"type": "integer", "minimum": min}),
            Self::NumberBetween(min, max) => {
                json!({"type": "integer", "minimum": min, "maximum": max})
            }
            Self::OneOf(values) => json!({ "enum": values }),
        }
    }
}

const FILTER: Query = Query(
    "$filter",
    QueryType::Text,
    "Filter by name: `contains(name, 'text')`, `name eq 'text'`, `and`, `or`, `not`",
);

/// The parameters of pages of resources.
pub(crate) const TOP: Query = Query(
    "$top",
    QueryType::NumberBetween(1, 100),
    "Maximum items in a page",
);
pub(crate) const SKIP_TOKEN: Query = Query(
    "$skipToken",
    QueryType::Text,
    "Start of the page, taken from `nextLink`",
);

/// An object of any kind.
pub(crate) fn any_object(_: &mut SchemaRegistry) -> Value {
    json!({"type": "object"})
}

pub(crate) fn any_text(_: &mut SchemaRegistry) -> Value {
    json!({"type": "string"})
}

/// Describes an operation by its id, which is unique, and a summary.
pub(crate) const fn describe(id: &'static str, summary: &'static str) -> Description {
    Description {
        id,
        summary,
        body: None,
        header: None,
        queries: [&[]; 2],
        responses: [None; 2],
        errors: [&[]; 2],
    }
}

impl Description {
    /// Adds a JSON body with the schema of `T`.
    pub(crate) const fn takes<T: ToSchema>(self, is_required: bool, example: &'static str) -> Self {
        self.takes_json(is_required, SchemaRegistry::reference_to::<T>, example)
    }

    /// Adds a JSON body with a schema.
    pub(crate) const fn takes_json(
        mut self,
        is_required: bool,
        schema: SchemaFn,
        example: &'static str,
    ) -> Self {
        self.body = Some(RequestBody {
            is_required,
            schema,
            example,
        });
        self
    }

    /// Adds query parameters, at most two times.
    pub(crate) const fn with(mut self, queries: &'static [Query]) -> Self {
        let index = if self.queries[0].is_empty() { 0 } else { 1 };
        self.queries[index] = queries;
        self
    }

    pub(crate) const fn header(mut self, name: &'static str, meaning: &'static str) -> Self {
        self.header = Some((name, meaning));
        self
    }

    const fn responds(mut self, status: u16, meaning: &'static str, content: Content) -> Self {
        let index = if self.responses[0].is_none() { 0 } else { 1 };
        self.responses[index] = Some(Response {
            status,
            meaning,
            content,
        });
        self
    }

    /// Adds a JSON response with the schema of `T`.
    pub(crate) const fn returns<T: ToSchema>(self, status: u16, meaning: &'static str) -> Self {
        self.responds(
            status,
            meaning,
            Content::Json(SchemaRegistry::reference_to::<T>),
        )
    }

    /// Adds a JSON response with a schema.
    pub(crate) const fn returns_json(
        self,
        status: u16,
        meaning: &'static str,
        schema: SchemaFn,
    ) -> Self {
        self.responds(status, meaning, Content::Json(schema))
    }

    /// Adds a response that has one of several media types.
    pub(crate) const fn returns_types(
        self,
        meaning: &'static str,
        types: &'static [(&'static str, SchemaFn)],
    ) -> Self {
        self.responds(200, meaning, Content::Types(types))
    }

    /// Adds a response without a body.
    pub(crate) const fn returns_nothing(self, status: u16, meaning: &'static str) -> Self {
        self.responds(status, meaning, Content::None)
    }

    /// Adds a whole list as the response.
    pub(crate) const fn lists<T: ToSchema>(self) -> Self {
        self.lists_json(SchemaRegistry::reference_to::<T>)
    }

    /// Adds a whole list of items with a schema as the response.
    pub(crate) const fn lists_json(self, item: SchemaFn) -> Self {
        self.responds(200, "The whole list", Content::List(item))
    }

    /// Adds a page of a list as the response, and the parameters of pages.
    pub(crate) const fn pages<T: ToSchema>(self) -> Self {
        self.pages_json(SchemaRegistry::reference_to::<T>)
    }

    /// Adds a page of a list of items with a schema as the response, and the parameters of pages.
    pub(crate) const fn pages_json(self, item: SchemaFn) -> Self {
        self.with(&[FILTER, TOP, SKIP_TOKEN])
            .returns_page_json(item)
    }

    /// Adds a page of a list as the response.
    pub(crate) const fn returns_page<T: ToSchema>(self) -> Self {
        self.returns_page_json(SchemaRegistry::reference_to::<T>)
    }

    const fn returns_page_json(self, item: SchemaFn) -> Self {
        let meaning = "A page of the list, with the link to the next page";
        self.responds(200, meaning, Content::List(item))
    }

    /// Adds errors, at most two times.
    pub(crate) const fn fails(mut self, errors: Errors) -> Self {
        let index = if self.errors[0].is_empty() { 0 } else { 1 };
        self.errors[index] = errors;
        self
    }

    /// The operation for a route with this tag and suffix of ids. `named` changes the summary.
    pub(crate) fn draft(
        &self,
        tag: &str,
        id_suffix: &str,
        named: impl Fn(&str) -> String,
        schemas: &mut SchemaRegistry,
    ) -> OperationBuilder {
        let id = format!("{}{id_suffix}", self.id);
        let mut draft = OperationBuilder::new(tag, &id, &named(self.summary));
        for Query(name, kind, meaning) in self.queries.into_iter().flatten() {
            draft = draft.with_query(name, meaning, &kind.schema());
        }
        if let Some((name, meaning)) = self.header {
            draft = draft.with_header(name, meaning);
        }
        if let Some(body) = self.body {
            let example = serde_json::from_str(body.example).expect("an example is JSON");
            draft = draft.with_body(body.is_required, &(body.schema)(schemas), example);
        }
        for response in self.responses.into_iter().flatten() {
            let Response {
                status, meaning, ..
            } = response;
            draft = match response.content {
                Content::None => draft.with_empty_response(status, meaning),
                Content::Json(schema) => {
                    draft.with_json_response(status, meaning, &schema(schemas))
                }
                Content::List(item) => {
                    draft.with_json_response(status, meaning, &list_of(item(schemas)))
                }
                Content::Types(types) => {
                    let content = |(media_type, schema): &(&str, SchemaFn)| {
                        let schema = schema(schemas);
                        ((*media_type).to_owned(), json!({ "schema": schema }))
                    };
                    let contents = types.iter().map(content).collect();
                    draft.with_response(status, meaning, Value::Object(contents))
                }
            };
        }
        for errors in self.errors {
            draft = draft.with_errors(errors, &error_reference());
        }
        draft
    }
}
