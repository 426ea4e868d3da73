//! Why a file, a template or its parameters cannot be used.

use std::io;

use gridhook_template::{EvaluationError, PendingValue};

use super::{ForeignResource, TYPES};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {error}")]
pub struct DeclaredError {
    pub(super) file: String,
    #[source]
    pub(super) error: DeclarationError,
}

/// An invalid declaration: the text says what is wrong, and what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("a .{0} file is not supported; expected TOML (.toml) or JSON (.json)")]
    Extension(String),
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{}", .0.to_string().trim_end())]
    Toml(#[from] toml::de::Error),
    /// A number that would be rounded, or is none.
    #[error("{0}")]
    Number(String),
    #[error(
        "{} needs the state of {}, which only exists while the server runs; use gridhook apply",
        .0.what,
        .0.needs.id
    )]
    Pending(Box<PendingValue>),
    #[error("it is a parameter file; expected a template, and this file with --parameters @FILE")]
    ParameterFile,
    #[error("only an ARM template has parameters")]
    Parameters,
    #[error("the {0} is declared twice")]
    Duplicate(String),
    #[error("the name {0:?} has a control character; expected a name without")]
    ControlCharacter(String),
    #[error("a resource of the type {0} is not supported; {TYPES}")]
    Type(String),
    /// A resource or a parameter is invalid.
    #[error("{at}: {error}")]
    Part { at: String, error: Box<Self> },
    #[error("{0} is not a string; expected a name")]
    NoName(&'static str),
    #[error("{0} is not a table; expected a table")]
    NoTable(String),
    #[error("unknown key {0}; expected one of {FILE_KEYS}")]
    FileKey(String),
    #[error("unknown key {key}; did you mean {similar}?")]
    SimilarKey { key: String, similar: &'static str },
    #[error("unknown key {key}; expected one of {}", .allowed.join(", "))]
    Key {
        key: String,
        allowed: Vec<&'static str>,
    },
    #[error("both {0} and destination are set; expected one of them")]
    TwoDestinations(String),
    #[error(transparent)]
    Template(#[from] EvaluationError),
    #[error("its scope is {0}; expected the resource id of a topic, a domain or a domain's topic")]
    Scope(String),
    /// The first of the resources that this server does not have.
    #[error(
        "{}: a resource of the type {} is not supported: {}; {TYPES}, of Microsoft.EventGrid.{} \
         With {option} such resources are left out",
        .first.id.rsplit('/').next().unwrap_or_default(),
        .first.kind,
        .first.reason,
        list_kinds(.kinds)
    )]
    Foreign {
        first: Box<ForeignResource>,
        /// The types of all such resources, each once.
        kinds: Vec<String>,
        /// The option that leaves such resources out.
        option: &'static str,
    },
    #[error(
        "{} needs {} of {}, a resource that this server does not have; replace the expression by a \
         parameter",
        .0.what,
        .0.needs.action.as_deref().unwrap_or("reference"),
        .0.needs.id
    )]
    Unobtainable(Box<PendingValue>),
    #[error("{error}. With {option} such outputs are left out")]
    UnobtainableOutput {
        error: Box<Self>,
        option: &'static str,
    },
}

/// The keys of a file of gridhook's own.
const FILE_KEYS: &str = "topics, domains, namespaces, subscription or resourceGroup";

impl DeclarationError {
    /// Puts where the error is before its text.
    pub(super) fn with_location(self, at: impl Into<String>) -> Self {
        Self::Part {
            at: at.into(),
            error: Box::new(self),
        }
    }
}

fn list_kinds(kinds: &[String]) -> String {
    if kinds.len() > 1 {
        format!(" All such types: {}.", kinds.join(", "))
    } else {
        String::new()
    }
}
