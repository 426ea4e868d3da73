//! The stored record of a named token, and what tokens permit: roles, each for the whole server or
//! for a part of it.
//!
//! A part is written as a scope:
//! - `topics/orders`, `domains/shop/topics/eu`,
//!   `namespaces/plant/topics/line-1/eventSubscriptions/audit`: a resource and everything below it.
//!   `*` stands for any characters of a segment; a final `/*` may be written and changes nothing.
//! - `labels/team=shop`: resources with the tag or the label `team=shop`, and everything below
//!   them.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use gridhook_event::{Timestamp, WallTime};

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TokenRole {
    /// Publish events.
    Publish,
    /// Receive and settle events of pull delivery.
    Consume,
    /// See event subscriptions, change the address of their webhooks, test their filters, redrive
    /// their dead letters.
    Portal,
    /// Read everything except secrets.
    Read,
    /// Also operate event subscriptions: hold, replay, redrive, probe, test publish.
    Operate,
    /// Everything: also publish, consume, change resources and read secrets.
    Admin,
}

/// Why a role or a scope is refused: what is given, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrant {
    #[error("is \"{0}\"; expected publish, consume, portal, read, operate or admin")]
    Role(String),
    #[error(
        "is \"{}\"; expected a path that begins with topics, domains or namespaces, such as \
         topics/orders or topics/orders-*, or a label such as labels/team=shop",
        .0.escape_debug()
    )]
    Scope(String),
    #[error(
        "is \"{}\", which has a control character; expected one without",
        .0.escape_debug()
    )]
    ControlCharacter(String),
    #[error(
        "is \"{0}\", which no resource can be in; expected topics/TOPIC, domains/DOMAIN, \
         domains/DOMAIN/topics/TOPIC, namespaces/NAMESPACE and namespaces/NAMESPACE/topics/TOPIC, \
         and below each topic or domain eventSubscriptions/NAME"
    )]
    EmptyScope(String),
    #[error(
        "is \"{0}\", and a label can be given to any resource; expected a path such as \
         topics/orders"
    )]
    Label(String),
}

impl TokenRole {
    pub const ALL: [Self; 6] = [
        Self::Publish,
        Self::Consume,
        Self::Portal,
        Self::Read,
        Self::Operate,
        Self::Admin,
    ];

    /// The name in settings, flags and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consume => "consume",
            Self::Portal => "portal",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for TokenRole {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, InvalidGrant> {
        let known_role = Self::ALL.into_iter().find(|role| role.name() == text);
        known_role.ok_or_else(|| InvalidGrant::Role(text.to_owned()))
    }
}

/// The resource that a request concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopedResource {
    /// The segments of its path, such as `topics`, `orders`.
    pub path: Vec<String>,
    /// Its tags and labels, and those of the resources above it, as `name=value`.
    pub labels: Vec<String>,
}

impl ScopedResource {
    /// Adds tags as labels.
    pub fn add_tags(&mut self, tags: &BTreeMap<String, String>) {
        self.labels
            .extend(tags.iter().map(|(name, value)| format!("{name}={value}")));
    }
}

/// A part of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Resources whose paths begin with these patterns, in lower case.
    Path(Vec<String>),
    /// Resources with this label.
    Label(String),
}

/// The segments that a path may begin with.
const ROOTS: [&str; 3] = ["topics", "domains", "namespaces"];

impl Scope {
    /// Whether the resource is in this part.
    fn covers_resource(&self, resource: &ScopedResource) -> bool {
        match self {
            Self::Path(patterns) => {
                let fits = |(pattern, segment): (&String, &String)| {
                    matches_pattern(pattern, &segment.to_ascii_lowercase())
                };
                patterns.len() <= resource.path.len()
                    && patterns.iter().zip(&resource.path).all(fits)
            }
            Self::Label(label) => resource.labels.contains(label),
        }
    }

    /// Whether a resource can be in this part.
    fn may_cover(&self) -> bool {
        let Self::Path(patterns) = self else {
            return true;
        };
        let keywords: Vec<&String> = patterns.iter().step_by(2).collect();
        PATHS.iter().any(|path| matches_beginning(&keywords, path))
    }
}

/// Whether a path begins with words that match these patterns.
fn matches_beginning(patterns: &[&String], path: &[&str]) -> bool {
    let mut words = patterns.iter().zip(path);
    patterns.len() <= path.len() && words.all(|(pattern, word)| matches_pattern(pattern, word))
}

/// Whether a segment matches a pattern, in which `*` stands for any characters.
fn matches_pattern(pattern: &str, segment: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == segment;
    };
    let Some(mut left) = segment.strip_prefix(begin) else {
        return false;
    };
    let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*').filter(|part| !part.is_empty()) {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

/// The keywords of the paths of resources, which have a name behind each.
const PATHS: [&[&str]; 4] = [
    &["topics", "eventsubscriptions"],
    &["domains", "eventsubscriptions"],
    &["domains", "topics", "eventsubscriptions"],
    &["namespaces", "topics", "eventsubscriptions"],
];

impl Scope {
    /// Parses a scope of the store, where an older server may have accepted any character and paths
    /// that cover nothing.
    fn from_stored(text: &str) -> Result<Self, InvalidGrant> {
        let refuse = || Err(InvalidGrant::Scope(text.to_owned()));
        if let Some(label) = text.strip_prefix("labels/") {
            let is_label = label
                .split_once('=')
                .is_some_and(|(name, _)| !name.is_empty());
            return if is_label {
                Ok(Self::Label(label.to_owned()))
            } else {
                refuse()
            };
        }
        let path = text.strip_suffix("/*").unwrap_or(text).to_ascii_lowercase();
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let is_path = ROOTS.contains(&segments[0].as_str())
            && segments.iter().all(|segment| !segment.is_empty());
        if is_path {
            Ok(Self::Path(segments))
        } else {
            refuse()
        }
    }
}

impl FromStr for Scope {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, InvalidGrant> {
        if text.chars().any(char::is_control) {
            return Err(InvalidGrant::ControlCharacter(text.to_owned()));
        }
        let scope = Self::from_stored(text)?;
        if scope.may_cover() {
            return Ok(scope);
        }
        Err(InvalidGrant::EmptyScope(text.to_owned()))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(segments) => f.write_str(&segments.join("/")),
            Self::Label(label) => write!(f, "labels/{label}"),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = InvalidGrant;

    fn try_from(text: String) -> Result<Self, InvalidGrant> {
        Self::from_stored(&text)
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// The event subscriptions that may use something of the operator's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserScopes(Vec<Scope>);

impl UserScopes {
    /// Parses scopes. A label is none: a caller that may change a resource can give it any label.
    ///
    /// # Errors
    /// If one is not a path.
    pub fn parse<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidGrant> {
        scopes
            .into_iter()
            .map(parse_path_scope)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether the event subscription is among them.
    pub fn covers_subscription(&self, subscription: &ScopedResource) -> bool {
        self.0
            .iter()
            .any(|scope| scope.covers_resource(subscription))
    }
}

fn parse_path_scope(text: &str) -> Result<Scope, InvalidGrant> {
    match text.parse()? {
        Scope::Label(_) => Err(InvalidGrant::Label(text.to_owned())),
        scope @ Scope::Path(_) => Ok(scope),
    }
}

/// A role in a part of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: TokenRole,
    /// The parts; empty for the whole server.
    pub scopes: Vec<Scope>,
}

impl Grant {
    /// A role in the whole server.
    pub fn for_server(role: TokenRole) -> Self {
        Self {
            role,
            scopes: Vec::new(),
        }
    }

    /// Whether it covers the resource, or the whole server if there is none.
    pub fn covers_resource(&self, resource: Option<&ScopedResource>) -> bool {
        self.scopes.is_empty()
            || resource.is_some_and(|of| self.scopes.iter().any(|scope| scope.covers_resource(of)))
    }
}

/// A named token. The token itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRecord {
    /// Its name, unique in the server, compared without case.
    pub name: String,
    /// SHA-256 of the token, in hexadecimal.
    pub digest: String,
    pub roles: Vec<TokenRole>,
    /// The parts of the server that it is limited to; empty for the whole server.
    pub scopes: Vec<Scope>,
    /// Time of its creation.
    pub created: Timestamp,
    /// Name of the operator who created it.
    pub created_by: String,
    /// Time at which it ends.
    pub expires: Option<Timestamp>,
    /// Time of a recent use.
    pub last_used: Option<Timestamp>,
}

impl TokenRecord {
    pub fn is_expired(&self, wall: WallTime) -> bool {
        self.expires
            .is_some_and(|expires| expires <= wall.to_timestamp())
    }

    /// The key under which it is registered.
    pub fn key(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// The roles with their scopes.
    pub fn grants(&self) -> Vec<Grant> {
        self.roles
            .iter()
            .map(|role| Grant {
                role: *role,
                scopes: self.scopes.clone(),
            })
            .collect()
    }
}
