//! Configuration files that declare topics and event subscriptions, as a list of resources in order
//! of creation.
//!
//! A file is either gridhook's own (TOML or JSON), with the keys of the control plane, or an ARM
//! template (JSON) as the Azure portal exports it or Bicep compiles it. Both become resources with
//! the bodies of their PUT requests. The control plane validates these.
//!
//! Not here: requests and changes. The caller compares each resource with the existing one.

mod error;
mod own;
mod template;

use std::{collections::BTreeSet, fs, path::Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

pub use self::{
    error::{DeclarationError, DeclaredError},
    template::{
        ForeignResource, ForeignResources, TemplateDetails, TemplateOptions, missing_type_reason,
    },
};
use gridhook_policy::filter::number;
pub use gridhook_template::{ParameterInput, PendingValue, StateKey, States};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    Topic,
    Domain,
    Namespace,
    NamespaceTopic,
    DomainTopic,
    Subscription,
}

/// An Azure subscription and a resource group in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceGroup {
    pub subscription: String,
    pub resource_group: String,
}

impl ResourceGroup {
    /// The path of the list of a resource type.
    pub fn list_path(&self, resource_type: &str) -> String {
        resource_path(self, &[resource_type.to_owned()])
    }
}

impl Default for ResourceGroup {
    fn default() -> Self {
        Self {
            subscription: "local".to_owned(),
            resource_group: "dev".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredResource {
    pub kind: ResourceKind,
    pub group: ResourceGroup,
    /// Alternating types and names: `topics`, `orders`, `eventSubscriptions`, `billing`.
    pub names: Vec<String>,
    /// The body of the PUT request of the resource.
    pub body: Value,
    /// Whether it is left as it is if it exists.
    pub only_if_not_exists: bool,
}

impl DeclaredResource {
    fn new(group: &ResourceGroup, names: &[&str], body: Value) -> Result<Self, DeclarationError> {
        if let Some(name) = names.iter().find(|name| name.contains(char::is_control)) {
            return Err(DeclarationError::ControlCharacter((*name).to_owned()));
        }
        let types = names.iter().step_by(2);
        let types: Vec<String> = types.map(|name| name.to_ascii_lowercase()).collect();
        let kind = match types.join("/").as_str() {
            "topics" => ResourceKind::Topic,
            "domains" => ResourceKind::Domain,
            "namespaces" => ResourceKind::Namespace,
            "namespaces/topics" => ResourceKind::NamespaceTopic,
            "domains/topics" => ResourceKind::DomainTopic,
            "topics/eventsubscriptions"
            | "domains/eventsubscriptions"
            | "domains/topics/eventsubscriptions"
            | "namespaces/topics/eventsubscriptions" => ResourceKind::Subscription,
            other => return Err(DeclarationError::Type(other.to_owned())),
        };
        let mut own_names = Vec::new();
        for (resource_type, name) in types.into_iter().zip(names.iter().skip(1).step_by(2)) {
            own_names.push(match resource_type.as_str() {
                "eventsubscriptions" => "eventSubscriptions".to_owned(),
                _ => resource_type,
            });
            own_names.push((*name).to_owned());
        }
        Ok(Self {
            kind,
            group: group.clone(),
            names: own_names,
            body,
            only_if_not_exists: false,
        })
    }

    /// The path of the resource in the control plane.
    pub fn control_path(&self) -> String {
        resource_path(&self.group, &self.names)
    }

    /// The path without the last type and name.
    pub fn parent_path(&self) -> Option<String> {
        (self.names.len() > 2)
            .then(|| resource_path(&self.group, &self.names[..self.names.len() - 2]))
    }

    /// The path of the domain, for an event subscription of a domain topic.
    pub fn domain_path(&self) -> Option<String> {
        let is_in_domain_topic = self.names.len() == 6 && self.names[0] == "domains";
        is_in_domain_topic.then(|| resource_path(&self.group, &self.names[..2]))
    }

    /// Kind and name of the resource for messages.
    pub fn display_name(&self) -> String {
        match self.kind {
            ResourceKind::Topic => format!("topic {}", self.names[1]),
            ResourceKind::Domain => format!("domain {}", self.names[1]),
            ResourceKind::Namespace => format!("namespace {}", self.names[1]),
            ResourceKind::DomainTopic | ResourceKind::NamespaceTopic => {
                format!(
                    "topic {} of {}/{}",
                    self.names[3], self.names[0], self.names[1]
                )
            }
            ResourceKind::Subscription => {
                let (parents, own) = self.names.split_at(self.names.len() - 2);
                let parents = parents.join("/");
                let topic = parents.strip_prefix("topics/").unwrap_or(&parents);
                format!("event subscription {} of {topic}", own[1])
            }
        }
    }
}

const TYPES: &str = "expected topics, domains, namespaces, the topics of these two, or \
    eventSubscriptions below topics or domains";

/// The characters to escape in a segment; the operator chose the names.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

fn resource_path(group: &ResourceGroup, names: &[String]) -> String {
    let segment = |name: &String| format!("/{}", utf8_percent_encode(name, SEGMENT));
    let [subscription, group] = [&group.subscription, &group.resource_group].map(segment);
    let names: String = names.iter().map(segment).collect();
    format!(
        "/subscriptions{subscription}/resourceGroups{group}/providers/Microsoft.EventGrid{names}"
    )
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// The resources, each after its parent.
    pub resources: Vec<DeclaredResource>,
    /// The resource groups of the resources, or the file's default if there are no resources.
    pub groups: BTreeSet<ResourceGroup>,
    /// Everything in a template that is not a resource.
    pub template: TemplateDetails,
}

impl Declared {
    /// The first resource whose values need the state of a resource that is not known.
    pub fn first_pending_resource(&self) -> Option<&PendingValue> {
        self.template
            .pending
            .iter()
            .find(|pending| pending.owner.as_ref() == Some(&pending.what))
    }
}

/// Reads a file. `group` is the default resource group; `options` are those of a template.
///
/// # Errors
/// If the file cannot be read or parsed: with the file, the position and the allowed values.
pub fn load_file(
    path: &Path,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Declared, DeclaredError> {
    read_path(path, group, options).map_err(|error| DeclaredError {
        file: path.display().to_string(),
        error,
    })
}

fn read_path(
    path: &Path,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Declared, DeclarationError> {
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    if let Some(other @ ("yaml" | "yml" | "bicep")) = extension.as_deref() {
        return Err(DeclarationError::Extension(other.to_owned()));
    }
    let is_json = extension.as_deref() == Some("json");
    read(&fs::read_to_string(path)?, is_json, group, options)
}

/// Reads a file all of whose resources are known without the state of others.
///
/// # Errors
/// If the file cannot be read or parsed, or a resource refers to the state of another one.
pub fn load_complete(
    path: &Path,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Declared, DeclaredError> {
    let declared = load_file(path, group, options)?;
    match declared.first_pending_resource() {
        None => Ok(declared),
        Some(pending) => Err(DeclaredError {
            file: path.display().to_string(),
            error: DeclarationError::Pending(Box::new(pending.clone())),
        }),
    }
}

/// A part of JSON as templates have it.
enum JsonPart {
    Comment,
    String,
    /// A key without quotes: `az` sends the template of a deployment below one.
    BareKey,
    Other,
}

/// The JSON without what templates may have besides: comments, line breaks in strings, and keys
/// without quotes. Spaces take the place of comments, so that an error names the right position.
fn to_strict_json(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (len, kind) = if next == '"' {
            (string_len(rest), JsonPart::String)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), JsonPart::Comment)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let len = comment.find("*/").map_or(rest.len(), |end| end + 4);
            (len, JsonPart::Comment)
        } else if next.is_ascii_alphabetic() {
            classify_word(rest)
        } else {
            (next.len_utf8(), JsonPart::Other)
        };
        let (part, behind) = rest.split_at(len);
        match kind {
            JsonPart::Comment => {
                json.extend(part.chars().map(|c| if c == '\n' { c } else { ' ' }));
            }
            JsonPart::String => push_string(&mut json, part),
            JsonPart::BareKey => json.extend(["\"", part, "\""]),
            JsonPart::Other => json.push_str(part),
        }
        rest = behind;
    }
    json
}

/// The length of the word that the text begins with, and whether it is a key.
fn classify_word(text: &str) -> (usize, JsonPart) {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let len = text.find(is_end).unwrap_or(text.len());
    let is_key = text[len..].trim_start().starts_with(':');
    let kind = if is_key {
        JsonPart::BareKey
    } else {
        JsonPart::Other
    };
    (len, kind)
}

/// Adds a string literal with its line breaks and tabs escaped.
fn push_string(json: &mut String, literal: &str) {
    for c in literal.chars() {
        match c {
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            other => json.push(other),
        }
    }
}

/// Reads JSON as templates have it: comments, line breaks in strings and keys without quotes are
/// allowed. A number that would be rounded is an error.
///
/// # Errors
/// What is wrong, and where.
pub fn read_json(text: &str) -> Result<Value, DeclarationError> {
    // Some editors, and PowerShell, begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    parse_exact_json(&to_strict_json(text))
}

/// Replaces the values of secure parameters in a text.
pub fn hide_secrets(text: String, secrets: &[String]) -> String {
    let in_json = |secret: &String| {
        let literal = Value::from(secret.as_str()).to_string();
        literal.trim_matches('"').to_owned()
    };
    let forms = secrets
        .iter()
        .flat_map(|secret| [secret.clone(), in_json(secret)]);
    forms.fold(text, |text, secret| text.replace(&secret, "(secure)"))
}

/// The length of the string literal that the text begins with.
fn string_len(text: &str) -> usize {
    let mut is_escaped = true;
    let end = text.char_indices().find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(end, _)| end + 1)
}

/// Reads JSON. A number that would be rounded is an error, because the result would differ from the
/// file.
fn parse_exact_json(text: &str) -> Result<Value, DeclarationError> {
    let value = serde_json::from_str(text)?;
    match number::first_rounded(text) {
        None => Ok(value),
        Some((at, problem)) => Err(DeclarationError::Number(
            format!("{at} {problem}").trim_start().to_owned(),
        )),
    }
}

/// Parses the text of a file.
///
/// # Errors
/// The error, and the allowed values.
pub fn read(
    text: &str,
    is_json: bool,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Declared, DeclarationError> {
    let value = if is_json {
        read_json(text)?
    } else {
        own::read_toml(text.strip_prefix('\u{feff}').unwrap_or(text))?
    };
    let is_template = value["resources"].is_array() || value["$schema"].is_string();
    if is_template {
        if is_parameter_file(&value) {
            return Err(DeclarationError::ParameterFile);
        }
        return read_template(&value, group, options);
    }
    if !options.parameters.is_empty() {
        return Err(DeclarationError::Parameters);
    }
    let (resources, group) = own::read(value, group)?;
    collect_resources(resources, group, TemplateDetails::default())
}

fn is_parameter_file(value: &Value) -> bool {
    let schema = value["$schema"].as_str().unwrap_or_default();
    // Deployments to a subscription have a schema of their own.
    let names_parameters = schema
        .to_ascii_lowercase()
        .contains("deploymentparameters.json");
    names_parameters && value.get("resources").is_none()
}

/// Reads a template.
///
/// # Errors
/// The error, and the allowed values.
pub fn read_template(
    value: &Value,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Declared, DeclarationError> {
    let (resources, details) = template::read(value, group, options)?;
    collect_resources(resources, group.clone(), details)
}

fn collect_resources(
    mut resources: Vec<DeclaredResource>,
    group: ResourceGroup,
    template: TemplateDetails,
) -> Result<Declared, DeclarationError> {
    resources.sort_by_key(|resource| resource.kind);
    let mut paths = BTreeSet::new();
    for resource in &resources {
        if !paths.insert(resource.control_path().to_ascii_lowercase()) {
            return Err(DeclarationError::Duplicate(resource.display_name()));
        }
    }
    let mut groups: BTreeSet<ResourceGroup> = resources
        .iter()
        .map(|resource| resource.group.clone())
        .collect();
    if groups.is_empty() {
        groups.insert(group);
    }
    Ok(Declared {
        resources,
        groups,
        template,
    })
}
