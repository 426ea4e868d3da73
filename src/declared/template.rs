//! Templates of Azure Resource Manager, as the Azure portal exports them and Bicep compiles them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{DeclarationError, DeclaredResource, ResourceGroup};
use gridhook_template::{
    DeploymentContext, EvaluationError, Expansion, ParameterInput, PendingValue, States,
    TemplateResource, expand_template, parameters_of_file,
};

/// The options with which a template is read.
#[derive(Clone, Debug)]
pub struct TemplateOptions {
    pub parameters: BTreeMap<String, ParameterInput>,
    /// The treatment of resources that this server does not have.
    pub foreign: ForeignResources,
    /// The option that leaves foreign resources out, for errors.
    pub leave_out_option: &'static str,
    /// The known states of resources, for functions such as `reference`.
    pub states: States,
    /// The name of the deployment.
    pub deployment: String,
    /// The location of the resource group.
    pub location: String,
    /// The tags of the resource group.
    pub tags: BTreeMap<String, String>,
    /// The result of `environment()`; [`None`] if the server decides it.
    pub environment: Option<Value>,
    /// The current time, for `utcNow()`.
    pub now: jiff::Timestamp,
    /// The text from which the results of `newGuid()` are derived.
    pub seed: String,
}

impl Default for TemplateOptions {
    fn default() -> Self {
        Self {
            parameters: BTreeMap::new(),
            foreign: ForeignResources::Refused,
            leave_out_option: "--ignore-foreign",
            states: States::new(),
            deployment: "apply".to_owned(),
            location: "local".to_owned(),
            tags: BTreeMap::new(),
            environment: None,
            now: jiff::Timestamp::UNIX_EPOCH,
            seed: String::new(),
        }
    }
}

impl TemplateOptions {
    /// The options of a template that is read at a time, in microseconds since 1970. Results of
    /// `newGuid()` differ with it.
    pub fn at_time(now: u64) -> Self {
        let instant = i64::try_from(now)
            .ok()
            .and_then(|now| jiff::Timestamp::from_microsecond(now).ok());
        Self {
            now: instant.unwrap_or_default(),
            seed: now.to_string(),
            ..Self::default()
        }
    }

    /// Adds a parameter, unless one of this name is set. Names have no case.
    pub fn add_parameter(&mut self, name: String, value: ParameterInput) {
        let mut names = self.parameters.keys();
        if !names.any(|known| known.eq_ignore_ascii_case(&name)) {
            self.parameters.insert(name, value);
        }
    }

    /// Adds the parameters of a file; those that are there already take precedence.
    ///
    /// # Errors
    /// The text is no parameter file.
    pub fn add_parameter_file(&mut self, text: &str) -> Result<(), DeclarationError> {
        self.add_parameters(&super::read_json(text)?)
    }

    /// Adds the parameters of a deployment: an object for each, with its `value`. Those that are
    /// there already take precedence.
    ///
    /// # Errors
    /// One has no value.
    pub fn add_parameters(&mut self, parameters: &Value) -> Result<(), DeclarationError> {
        for (name, value) in parameters_of_file(parameters)? {
            self.add_parameter(name, value);
        }
        Ok(())
    }
}

/// The treatment of resources of a template that this server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignResources {
    Refused,
    /// Foreign resources are left out and listed.
    LeftOut,
}

/// A resource of a template that this server does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignResource {
    pub id: String,
    pub kind: String,
    /// Why the resource is left out.
    pub reason: String,
}

/// Everything in a template that is not a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateDetails {
    /// The resources that are left out.
    pub foreign: Vec<ForeignResource>,
    /// Resources and outputs that need the state of a resource.
    pub pending: Vec<PendingValue>,
    /// Outputs that need the state of a resource that is left out or of another service.
    pub unobtainable_outputs: Vec<PendingValue>,
    /// Types and values of the outputs.
    pub outputs: Map<String, Value>,
    /// Types and values of the parameters.
    pub parameters: Map<String, Value>,
    /// Values that must not be shown.
    pub secrets: Vec<String>,
}

/// The name of what needs a state before any resource does, in errors.
const PARAMETERS: &str = "the template";

const PROVIDER: &str = "Microsoft.EventGrid";

/// A part of the id of a deployment.
const DEPLOYMENTS: &str = "/providers/Microsoft.Resources/deployments/";

pub(super) fn read(
    template: &Value,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<(Vec<DeclaredResource>, TemplateDetails), DeclarationError> {
    let expansion = expand(template, group, options)?;
    let (resources, mut foreign) = declare_resources(&expansion)?;
    let pending = PendingValues::new(expansion.pending, &foreign);
    foreign.extend(pending.left_out_resources());
    let unobtainable_outputs = pending.unobtainable_outputs();
    let is_strict = options.foreign == ForeignResources::Refused;
    if is_strict && !foreign.is_empty() {
        return Err(foreign_error(&foreign, options.leave_out_option));
    }
    if let Some(resource) = pending.unobtainable_resource() {
        return Err(DeclarationError::Unobtainable(Box::new(resource.clone())));
    }
    if is_strict && let Some(output) = unobtainable_outputs.first() {
        return Err(DeclarationError::UnobtainableOutput {
            error: Box::new(DeclarationError::Unobtainable(Box::new(output.clone()))),
            option: options.leave_out_option,
        });
    }
    let details = TemplateDetails {
        foreign,
        pending: pending.obtainable(),
        unobtainable_outputs,
        outputs: expansion.outputs,
        parameters: expansion.parameters,
        secrets: expansion.secrets,
    };
    Ok((resources, details))
}

/// Evaluates the expressions of a template.
fn expand(
    template: &Value,
    group: &ResourceGroup,
    options: &TemplateOptions,
) -> Result<Expansion, DeclarationError> {
    let context = DeploymentContext {
        subscription: group.subscription.clone(),
        resource_group: group.resource_group.clone(),
        location: options.location.clone(),
        tags: options.tags.clone(),
        deployment: options.deployment.clone(),
        tenant: "00000000-0000-0000-0000-000000000000".to_owned(),
        environment: options.environment.clone(),
        now: options.now,
        seed: options.seed.clone(),
    };
    let parameters = exact_parameters(template, options)?;
    match expand_template(template, &parameters, &context, &options.states) {
        // A parameter's default value needs the environment.
        Err(EvaluationError::Unknown(needs)) => Ok(Expansion {
            pending: vec![PendingValue {
                what: PARAMETERS.to_owned(),
                owner: Some(PARAMETERS.to_owned()),
                needs,
            }],
            ..Expansion::default()
        }),
        expansion => Ok(expansion?),
    }
}

/// The resources that this server has, and the foreign ones.
fn declare_resources(
    expansion: &Expansion,
) -> Result<(Vec<DeclaredResource>, Vec<ForeignResource>), DeclarationError> {
    let mut foreign = Vec::new();
    for resource in &expansion.foreign {
        let reason = reason_of_provider(&resource.kind);
        foreign.push(foreign_resource(resource, reason));
    }
    let mut resources = Vec::new();
    for resource in &expansion.resources {
        if let Some(reason) = unsupported_reason(&resource.kind, resource.scope.as_deref()) {
            foreign.push(foreign_resource(resource, reason));
            continue;
        }
        let declared =
            declare_resource(resource).map_err(|error| error.with_location(&resource.name))?;
        resources.push(declared);
    }
    Ok((resources, foreign))
}

/// The values that need the state of a resource, and which of these states will not exist.
struct PendingValues {
    all: Vec<PendingValue>,
    /// The ids, in lower case, of what is left out.
    left_out: BTreeSet<String>,
}

impl PendingValues {
    fn new(all: Vec<PendingValue>, foreign: &[ForeignResource]) -> Self {
        let ids = foreign
            .iter()
            .map(|resource| resource.id.to_ascii_lowercase());
        let mut values = Self {
            all,
            left_out: ids.collect(),
        };
        // What needs the outputs of a deployment that is left out has no state, either.
        loop {
            let before = values.left_out.len();
            let more: Vec<String> = values
                .all
                .iter()
                .filter(|value| values.is_unobtainable(value))
                .filter_map(|value| Some(value.owner.as_ref()?.to_ascii_lowercase()))
                .collect();
            values.left_out.extend(more);
            if values.left_out.len() == before {
                return values;
            }
        }
    }

    fn is_unobtainable(&self, value: &PendingValue) -> bool {
        self.left_out.contains(&value.needs.id) || foreign_reason(&value.needs.id).is_some()
    }

    /// The resources that are left out, because their type is not supported or they are deployments
    /// that need such a state: a private endpoint is a deployment that needs the network.
    fn left_out_resources(&self) -> Vec<ForeignResource> {
        let resources = self.all.iter().filter(|value| is_resource(value));
        resources
            .filter_map(|value| self.left_out_resource(value))
            .collect()
    }

    fn left_out_resource(&self, value: &PendingValue) -> Option<ForeignResource> {
        let (kind, _) = kind_and_scope(&value.what);
        let reason = if value.what.contains(DEPLOYMENTS) {
            self.is_unobtainable(value).then(|| {
                format!(
                    "it needs the state of {}, which this server does not have",
                    value.needs.id
                )
            })
        } else {
            foreign_reason(&value.what).map(str::to_owned)
        };
        Some(ForeignResource {
            id: value.what.clone(),
            kind,
            reason: reason?,
        })
    }

    /// The first resource of Event Grid that needs a state that will not exist.
    fn unobtainable_resource(&self) -> Option<&PendingValue> {
        let resources = self.all.iter().filter(|value| is_resource(value));
        let mut resources = resources.filter(|value| self.is_unobtainable(value));
        resources.find(|value| self.left_out_resource(value).is_none())
    }

    /// The outputs of the template itself that need a state that will not exist.
    fn unobtainable_outputs(&self) -> Vec<PendingValue> {
        let outputs = self.all.iter().filter(|value| value.owner.is_none());
        outputs
            .filter(|value| self.is_unobtainable(value))
            .cloned()
            .collect()
    }

    fn obtainable(self) -> Vec<PendingValue> {
        let is_obtainable = |value: &&PendingValue| {
            !self.is_unobtainable(value) && self.left_out_resource(value).is_none()
        };
        self.all.iter().filter(is_obtainable).cloned().collect()
    }
}

/// Whether a value is a resource and not an output.
fn is_resource(value: &PendingValue) -> bool {
    value.owner.as_ref() == Some(&value.what)
}

/// The type of the resource with an id, and the id of what it extends.
fn kind_and_scope(id: &str) -> (String, Option<&str>) {
    let lower = id.to_ascii_lowercase();
    let Some(position) = lower.rfind("/providers/") else {
        return (String::new(), None);
    };
    let mut words = id[position + "/providers/".len()..].split('/');
    let provider = words.next().unwrap_or_default();
    let types: Vec<&str> = words.step_by(2).collect();
    let scope = id
        .get(..position)
        .filter(|_| lower[..position].contains("/providers/"));
    (format!("{provider}/{}", types.join("/")), scope)
}

/// Why this server has no resource with an id, if it has none.
fn foreign_reason(id: &str) -> Option<&'static str> {
    let (kind, scope) = kind_and_scope(id);
    let lower = kind.to_ascii_lowercase();
    match lower.split('/').next().unwrap_or_default() {
        "" => None,
        "microsoft.eventgrid" => unsupported_reason(&kind, scope),
        "microsoft.resources" if lower != "microsoft.resources/deploymentscripts" => None,
        _ => Some(reason_of_provider(&kind)),
    }
}

/// The parameters, with those of numbers and objects parsed. A number that would be rounded is an
/// error.
fn exact_parameters(
    template: &Value,
    options: &TemplateOptions,
) -> Result<BTreeMap<String, ParameterInput>, DeclarationError> {
    let declared_parameters = template["parameters"].as_object();
    let mut parameters = options.parameters.clone();
    for (name, input) in &mut parameters {
        let parameter = declared_parameters
            .into_iter()
            .flatten()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        let kind = parameter
            .and_then(|(_, declared)| declared["type"].as_str())
            .unwrap_or("string")
            .to_ascii_lowercase();
        if let ParameterInput::Text(text) = input
            && !["string", "securestring", "bool"].contains(&kind.as_str())
        {
            match super::parse_exact_json(text) {
                // The template's reader says what the text should be.
                Err(DeclarationError::Json(_)) if kind == "int" => {}
                result => {
                    let value = result.map_err(|error| {
                        error.with_location(format!("the parameter '{name}' ({kind})"))
                    })?;
                    *input = ParameterInput::Value(value);
                }
            }
        }
    }
    Ok(parameters)
}

fn foreign_error(all: &[ForeignResource], option: &'static str) -> DeclarationError {
    let kinds: BTreeSet<&str> = all.iter().map(|resource| resource.kind.as_str()).collect();
    DeclarationError::Foreign {
        first: Box::new(all[0].clone()),
        kinds: kinds.into_iter().map(str::to_owned).collect(),
        option,
    }
}

fn foreign_resource(resource: &TemplateResource, reason: &str) -> ForeignResource {
    ForeignResource {
        id: resource.id.clone(),
        kind: resource.kind.clone(),
        reason: reason.to_owned(),
    }
}

/// Why resources of a provider are foreign.
fn reason_of_provider(kind: &str) -> &'static str {
    let kind = kind.to_ascii_lowercase();
    if kind.ends_with("/eventsubscriptions") {
        return "services of Azure publish no events here";
    }
    if kind.starts_with("microsoft.authorization/locks") {
        return "there are no locks; --prune of apply and the roles of tokens decide what is \
            deleted";
    }
    if kind.starts_with("microsoft.authorization/") {
        return "tokens and auth.grants give roles";
    }
    // `Microsoft.Graph/applications@v1.0`: only types of extensions have a version.
    if kind.contains('@') {
        return "extensions of templates are not supported";
    }
    if kind == "microsoft.resources/resourcegroups" {
        return "every resource group can be used without being created";
    }
    if kind.starts_with("microsoft.network/privateendpoints") {
        return "the address that the server listens on decides who reaches it";
    }
    if kind.starts_with("microsoft.insights/") {
        return "metrics are at /metrics";
    }
    "it belongs to another service; a service that exists is named in delivery.resources"
}

/// Why this server lacks the type of Event Grid's resource or list at a path, if Azure has it.
pub fn missing_type_reason(path: &str) -> Option<&'static str> {
    let (kind, scope) = kind_and_scope(path);
    let provider = kind.split('/').next().unwrap_or_default();
    if !provider.eq_ignore_ascii_case(PROVIDER) {
        return None;
    }
    unsupported_reason(&kind, scope).filter(|reason| *reason != UNKNOWN_TYPE)
}

const UNKNOWN_TYPE: &str = "this server has no resources of this type";

/// Why a type of resources of Event Grid is not supported, if it is not.
fn unsupported_reason(kind: &str, scope: Option<&str>) -> Option<&'static str> {
    let kind = kind.to_ascii_lowercase();
    let kind = kind.strip_prefix("microsoft.eventgrid/").unwrap_or(&kind);
    let types: Vec<&str> = kind.split('/').collect();
    match types[..] {
        ["systemtopics", ..] => {
            Some("a system topic has the events of a service of Azure, which publishes none here")
        }
        ["eventsubscriptions"] if !has_source(scope) => Some(
            "its scope is not a topic: an Azure subscription, a resource group and the services of \
             Azure publish no events here",
        ),
        [
            "partnertopics"
            | "partnernamespaces"
            | "partnerregistrations"
            | "partnerconfigurations"
            | "partnerdestinations"
            | "verifiedpartners",
            ..,
        ] => Some("there are no partners"),
        [
            "namespaces",
            "cacertificates" | "clientgroups" | "clients" | "permissionbindings" | "topicspaces",
            ..,
        ] => Some("there is no MQTT broker"),
        [_, "privateendpointconnections" | "privatelinkresources", ..] => {
            Some("the address that the server listens on decides who reaches it")
        }
        [.., "eventsubscriptions"]
        | ["topics" | "domains" | "namespaces"]
        | ["domains" | "namespaces", "topics"] => None,
        _ => Some(UNKNOWN_TYPE),
    }
}

/// Whether a scope is within Event Grid.
fn has_source(scope: Option<&str>) -> bool {
    scope.is_some_and(|scope| scope.to_ascii_lowercase().contains("microsoft.eventgrid/"))
}

fn declare_resource(resource: &TemplateResource) -> Result<DeclaredResource, DeclarationError> {
    let group = ResourceGroup {
        subscription: resource.subscription.clone(),
        resource_group: resource.resource_group.clone(),
    };
    let (group, names) = types_and_names(
        &group,
        &resource.kind,
        &resource.name,
        resource.scope.as_deref(),
    )?;
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let declared = DeclaredResource::new(&group, &words, resource.body.clone())?;
    Ok(DeclaredResource {
        only_if_not_exists: resource.only_if_not_exists,
        ..declared
    })
}

/// Alternating types and names, with those of the resource that it extends.
fn types_and_names(
    group: &ResourceGroup,
    kind: &str,
    name: &str,
    scope: Option<&str>,
) -> Result<(ResourceGroup, Vec<String>), DeclarationError> {
    let types = kind.split('/').skip(1);
    let own = types
        .zip(name.split('/'))
        .flat_map(|(word, name)| [word.to_owned(), name.to_owned()]);
    let (group, above) = match scope {
        Some(scope) => parent_of_id(group, scope)?,
        None => (group.clone(), Vec::new()),
    };
    let names: Vec<String> = above.into_iter().chain(own).collect();
    // `topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/billing` has the same
    // meaning.
    let is_provider = |pair: &[String]| {
        pair[0].eq_ignore_ascii_case("providers") && pair[1].eq_ignore_ascii_case(PROVIDER)
    };
    let names = names
        .chunks(2)
        .filter(|pair| pair.len() < 2 || !is_provider(pair))
        .flatten()
        .cloned()
        .collect();
    Ok((group, names))
}

/// The parent that a resource id names. The id may begin at its provider.
fn parent_of_id(
    group: &ResourceGroup,
    id: &str,
) -> Result<(ResourceGroup, Vec<String>), DeclarationError> {
    let segments: Vec<&str> = id
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let is = |at: usize, word: &str| is_word_at(&segments, at, word);
    let to_strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if is(0, PROVIDER) && segments.len() % 2 == 1 {
        return Ok((group.clone(), to_strings(&segments[1..])));
    }
    let is_whole =
        is(0, "subscriptions") && is(2, "resourceGroups") && is(4, "providers") && is(5, PROVIDER);
    match segments.len() {
        count if is_whole && count % 2 == 0 && count > 6 => {
            let group = ResourceGroup {
                subscription: segments[1].to_owned(),
                resource_group: segments[3].to_owned(),
            };
            Ok((group, to_strings(&segments[6..])))
        }
        _ => Err(DeclarationError::Scope(id.to_owned())),
    }
}

/// Whether a path has a word at this place, in any case of its letters.
fn is_word_at(segments: &[&str], at: usize, word: &str) -> bool {
    segments
        .get(at)
        .is_some_and(|segment| segment.eq_ignore_ascii_case(word))
}
