//! Topics and event subscriptions as a file declares them: what is to be there, in the order in which it is to be made.
//!
//! A file is one of two kinds: gridhook's own (TOML or JSON), whose keys are those of the control plane, or a template of
//! Azure's Resource Manager (JSON) as the portal exports it. Either becomes a list of resources with the bodies that a PUT
//! of each takes; whether those are allowed is the control plane's to say.
//!
//! Absent on purpose: asking and changing. Whoever applies a file compares each resource with what there is.

mod expression;
mod own;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::policy::filter::number;

/// Why a file declares nothing.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {what}")]
pub struct DeclaredError {
    file: String,
    what: String,
}

/// What is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    /// A topic.
    Topic,
    /// A domain.
    Domain,
    /// A namespace.
    Namespace,
    /// A topic of a namespace.
    NamespaceTopic,
    /// A topic of a domain.
    DomainTopic,
    /// An event subscription.
    Subscription,
}

/// An Azure subscription and a resource group in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceGroup {
    /// The Azure subscription.
    pub subscription: String,
    /// The resource group.
    pub resource_group: String,
}

impl Default for ResourceGroup {
    fn default() -> Self {
        Self { subscription: "local".to_owned(), resource_group: "dev".to_owned() }
    }
}

/// A resource that is to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredResource {
    /// What it is.
    pub kind: ResourceKind,
    /// Where it lives.
    pub place: ResourceGroup,
    /// Types and names, one after another: `topics`, `orders`, `eventSubscriptions`, `billing`.
    pub names: Vec<String>,
    /// What a PUT says of it.
    pub body: Value,
}

impl DeclaredResource {
    fn new(place: &ResourceGroup, names: &[&str], body: Value) -> Result<Self, String> {
        let types: Vec<String> = names.iter().step_by(2).map(|word| word.to_ascii_lowercase()).collect();
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        let (kind, types): (_, &[&str]) = match types[..] {
            ["topics"] => (ResourceKind::Topic, &["topics"]),
            ["domains"] => (ResourceKind::Domain, &["domains"]),
            ["namespaces"] => (ResourceKind::Namespace, &["namespaces"]),
            ["namespaces", "topics"] => (ResourceKind::NamespaceTopic, &["namespaces", "topics"]),
            ["namespaces", "topics", "eventsubscriptions"] => {
                (ResourceKind::Subscription, &["namespaces", "topics", "eventSubscriptions"])
            }
            ["domains", "topics"] => (ResourceKind::DomainTopic, &["domains", "topics"]),
            ["topics", "eventsubscriptions"] => (ResourceKind::Subscription, &["topics", "eventSubscriptions"]),
            ["domains", "eventsubscriptions"] => (ResourceKind::Subscription, &["domains", "eventSubscriptions"]),
            ["domains", "topics", "eventsubscriptions"] => {
                (ResourceKind::Subscription, &["domains", "topics", "eventSubscriptions"])
            }
            _ => return Err(format!("a resource of the type {} is not supported; {TYPES}", types.join("/"))),
        };
        let names = types.iter().zip(names.iter().skip(1).step_by(2));
        let names = names.flat_map(|(word, name)| [(*word).to_owned(), (*name).to_owned()]).collect();
        Ok(Self { kind, place: place.clone(), names, body })
    }

    /// Its path at the control plane.
    pub fn path(&self) -> String {
        path(&self.place, &self.names)
    }

    /// The path of what it hangs on: of a topic of a domain the domain, of an event subscription its topic.
    pub fn parent(&self) -> Option<String> {
        (self.names.len() > 2).then(|| path(&self.place, &self.names[..self.names.len() - 2]))
    }

    /// What it is and what it is called, for people.
    pub fn display_name(&self) -> String {
        match self.kind {
            ResourceKind::Topic => format!("topic {}", self.names[1]),
            ResourceKind::Domain => format!("domain {}", self.names[1]),
            ResourceKind::Namespace => format!("namespace {}", self.names[1]),
            ResourceKind::DomainTopic | ResourceKind::NamespaceTopic => {
                format!("topic {} of {}/{}", self.names[3], self.names[0], self.names[1])
            }
            ResourceKind::Subscription => {
                let of = self.names[..self.names.len() - 2].join("/");
                let of = of.strip_prefix("topics/").unwrap_or(&of);
                format!("event subscription {} of {of}", self.names[self.names.len() - 1])
            }
        }
    }
}

const TYPES: &str =
    "allowed are topics, domains, namespaces, the topics of these two, and eventSubscriptions below topics and domains";

/// The names in it are an operator's.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn path(place: &ResourceGroup, names: &[String]) -> String {
    let segment = |name: &String| format!("/{}", utf8_percent_encode(name, SEGMENT));
    let [subscription, group] = [&place.subscription, &place.resource_group].map(segment);
    let names: String = names.iter().map(segment).collect();
    format!("/subscriptions{subscription}/resourceGroups{group}/providers/Microsoft.EventGrid{names}")
}

/// Everything that a file declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// Topics and domains first, what hangs on them later.
    pub resources: Vec<DeclaredResource>,
    /// The places that it speaks of: the resources' own, or where there are none, the one that holds for the file.
    pub places: BTreeSet<ResourceGroup>,
}

/// Reads a file. `place` holds where the file names no other; `parameters` are those of a template.
///
/// # Errors
/// Where the file cannot be read, or says what is not understood: with the file, the place in it and what is allowed.
pub fn load(
    path: &Path,
    place: &ResourceGroup,
    parameters: &BTreeMap<String, String>,
) -> Result<Declared, DeclaredError> {
    let error = |what: String| DeclaredError { file: path.display().to_string(), what };
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    if let Some(other @ ("yaml" | "yml" | "bicep")) = extension.as_deref() {
        return Err(error(format!("a .{other} file is not supported; allowed are TOML (.toml) and JSON (.json)")));
    }
    let text = fs::read_to_string(path).map_err(|why| error(format!("it cannot be read: {why}")))?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    read(&text, is_json, place, parameters).map_err(error)
}

/// Reads JSON. A number that would be rounded is an error with its place: what is declared is what is made.
fn exact_json(text: &str) -> Result<Result<Value, String>, serde_json::Error> {
    let value = serde_json::from_str(text)?;
    Ok(match number::first_rounded(text) {
        None => Ok(value),
        Some((at, problem)) => Err(format!("{at} {problem}").trim_start().to_owned()),
    })
}

/// Reads the text of a file.
///
/// # Errors
/// What is wrong, and what is allowed.
pub fn read(
    text: &str,
    is_json: bool,
    place: &ResourceGroup,
    parameters: &BTreeMap<String, String>,
) -> Result<Declared, String> {
    let value = match is_json {
        true => exact_json(text).map_err(|why| format!("it is not JSON: {why}"))??,
        false => own::read_toml(text)?,
    };
    let is_template = value["resources"].is_array() || value["$schema"].is_string();
    let (mut resources, place) = match is_template {
        true => (template::read(value, place, parameters)?, place.clone()),
        false if !parameters.is_empty() => return Err("only a template of ARM has parameters".to_owned()),
        false => own::read(value, place)?,
    };
    resources.sort_by_key(|resource| resource.kind);
    let mut seen = BTreeSet::new();
    if let Some(twice) = resources.iter().find(|resource| !seen.insert(resource.path().to_ascii_lowercase())) {
        return Err(format!("the {} is there twice", twice.display_name()));
    }
    let mut places: BTreeSet<ResourceGroup> = resources.iter().map(|resource| resource.place.clone()).collect();
    if places.is_empty() {
        places.insert(place);
    }
    Ok(Declared { resources, places })
}
