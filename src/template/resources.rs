//! Expands the resources of a template: loops, conditions, child resources and nested deployments.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    DeploymentContext, EvaluationError, Expansion, PendingValue, StateKey, States,
    TemplateResource,
    evaluate::{EvaluationScope, Frame, Local, Parameter, Shared, check_all_known, missing_output},
    find_entry, kind_of,
    parameters::{self, ParameterInput},
};

/// Maximum number of resources of a template with its nested ones, as in Azure.
pub const RESOURCES_MAX: usize = 800;

/// Maximum depth of child resources and of nested deployments.
pub(crate) const LEVELS_MAX: usize = 5;

/// The provider whose resources are evaluated.
const PROVIDER: &str = "Microsoft.EventGrid";

pub(crate) const DEPLOYMENTS: &str = "Microsoft.Resources/deployments";

/// The keys of a resource that its body has.
const BODY: [&str; 7] = [
    "location",
    "tags",
    "sku",
    "kind",
    "extendedLocation",
    "identity",
    "properties",
];

/// The keys of a resource that are for the deployment.
const OF_DEPLOYMENT: [&str; 18] = [
    "apiVersion",
    "dependsOn",
    "comments",
    "metadata",
    "name",
    "type",
    "scope",
    "condition",
    "copy",
    "resources",
    "existing",
    "asserts",
    "@options",
    "plan",
    "zones",
    "managedBy",
    "extension",
    "import",
];

/// The keys of a template.
const TEMPLATE: [&str; 14] = [
    "$schema",
    "contentVersion",
    "languageVersion",
    "apiProfile",
    "metadata",
    "parameters",
    "variables",
    "functions",
    "resources",
    "outputs",
    "definitions",
    "asserts",
    "extensions",
    "imports",
];

/// Expands a template with these parameters.
///
/// # Errors
/// The template or a parameter is invalid.
pub fn expand_template(
    template: &Value,
    inputs: &BTreeMap<String, ParameterInput>,
    context: &DeploymentContext,
    states: &States,
) -> Result<Expansion, EvaluationError> {
    let shared = Shared::new(context, states);
    let place = Place {
        subscription: context.subscription.clone(),
        resource_group: context.resource_group.clone(),
        deployment: context.deployment.clone(),
        deployment_id: None,
        level: 0,
    };
    let mut expander = Expander {
        shared: &shared,
        expansion: Expansion::default(),
        count: 0,
    };
    let result = expander.expand_nested(template, inputs, place)?;
    let mut expansion = expander.expansion;
    expansion.outputs = result.outputs;
    expansion.parameters = result.parameters;
    Ok(expansion)
}

/// The place of a deployment: its Azure subscription and resource group, and the deployments around
/// it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    deployment: String,
    /// The id of a nested deployment.
    deployment_id: Option<String>,
    level: usize,
}

impl Place {
    pub(crate) fn resource_group_id(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}",
            self.subscription, self.resource_group
        )
    }
}

/// The action of a deployment that returns its secure outputs. Bicep calls it for them.
pub(super) const SECURE_OUTPUTS: &str = "listOutputsWithSecureValues";

/// The outputs and parameters of a template.
#[derive(Default)]
struct TemplateResult {
    outputs: Map<String, Value>,
    /// The values of outputs of a secure type.
    secure_outputs: Map<String, Value>,
    parameters: Map<String, Value>,
}

impl TemplateResult {
    /// The values that a secure output belongs to, or those of the others.
    fn outputs_of(&mut self, output: &Value) -> &mut Map<String, Value> {
        if parameters::is_secure(output) {
            &mut self.secure_outputs
        } else {
            &mut self.outputs
        }
    }
}

/// A resource with its loops unrolled and its name known.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    pub(crate) resource: &'a Map<String, Value>,
    pub(crate) local: Local,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) scope: Option<String>,
}

pub(crate) struct Expander<'a> {
    shared: &'a Shared<'a>,
    expansion: Expansion,
    /// The number of resources so far.
    pub(crate) count: usize,
}

/// The beginning of a name that may be a long expression.
pub(crate) fn shorten_name(name: &str) -> String {
    name.chars().take(100).collect()
}

pub(crate) fn require_object<'a>(
    what: &str,
    value: &'a Value,
) -> Result<&'a Map<String, Value>, EvaluationError> {
    value.as_object().ok_or_else(|| {
        EvaluationError::invalid(format!("{what} is {}; expected an object", kind_of(value)))
    })
}

/// The object below a key; a missing one is empty.
fn object_below(
    template: &Map<String, Value>,
    key: &str,
) -> Result<Map<String, Value>, EvaluationError> {
    match template.get(key) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(value) => require_object(key, value).cloned(),
    }
}

impl Expander<'_> {
    /// Adds a resource of an extension. It has no name or id; its symbolic name stands for them.
    pub(crate) fn add_of_extension(&mut self, symbol: &str, kind: String, place: &Place) {
        self.expansion.foreign.push(TemplateResource {
            id: symbol.to_owned(),
            kind,
            name: symbol.to_owned(),
            scope: None,
            subscription: place.subscription.clone(),
            resource_group: place.resource_group.clone(),
            body: Value::Null,
            only_if_not_exists: false,
        });
    }

    fn expand_nested(
        &mut self,
        template: &Value,
        inputs: &BTreeMap<String, ParameterInput>,
        place: Place,
    ) -> Result<TemplateResult, EvaluationError> {
        let whole = require_object("the template", template)?;
        if let Some(key) = whole.keys().find(|key| !TEMPLATE.contains(&key.as_str())) {
            let problem = format!(
                "unknown key {key} of a template; expected one of {}",
                TEMPLATE.join(", ")
            );
            return Err(EvaluationError::invalid(problem));
        }
        let declarations = object_below(whole, "parameters")?;
        let definitions = whole.get("definitions").cloned().unwrap_or_default();
        let frame = Frame {
            parameters: parameters::resolve_parameters(&declarations, &definitions, inputs)?,
            variables: object_below(whole, "variables")?,
            functions: collect_functions(whole)?,
            extensions: collect_extensions(whole)?,
            deployment: place.deployment.clone(),
            subscription: place.subscription.clone(),
            resource_group: place.resource_group.clone(),
            template: json!({"contentVersion": whole.get("contentVersion"), "metadata": whole.get("metadata")}),
            ..Frame::default()
        };
        let scope = EvaluationScope {
            shared: self.shared,
            frame: &frame,
            local: &Local::default(),
        };
        let mut result = TemplateResult::default();
        self.check_parameters(&scope, &declarations, &definitions, &mut result)?;
        self.expand_resources(&scope, whole.get("resources"), &place)?;
        self.evaluate_outputs(
            &scope,
            &object_below(whole, "outputs")?,
            &place,
            &mut result,
        )?;
        Ok(result)
    }

    /// Evaluates and checks all parameters, also those that no resource uses.
    fn check_parameters(
        &mut self,
        scope: &EvaluationScope<'_>,
        declared: &Map<String, Value>,
        definitions: &Value,
        result: &mut TemplateResult,
    ) -> Result<(), EvaluationError> {
        for (name, parameter) in declared {
            let is_default = matches!(
                scope.frame.parameters.get(name),
                Some(Parameter::Default(_))
            );
            let what = if is_default {
                "the default value of the parameter"
            } else {
                "the parameter"
            };
            let value = scope.parameter_value(name)?;
            parameters::check_value(parameter, definitions, &value)
                .map_err(|error| error.with_location(format!("{what} '{name}'")))?;
            let kind = parameter["type"].as_str().unwrap_or("object");
            if parameters::is_secure(parameter) {
                add_secrets(&value, &mut self.expansion.secrets);
                result
                    .parameters
                    .insert(name.clone(), json!({"type": kind}));
            } else {
                result
                    .parameters
                    .insert(name.clone(), json!({"type": kind, "value": value}));
            }
        }
        Ok(())
    }

    /// Expands the resources of a template: first the names of all of them, then their bodies.
    fn expand_resources(
        &mut self,
        scope: &EvaluationScope<'_>,
        resources: Option<&Value>,
        place: &Place,
    ) -> Result<(), EvaluationError> {
        let mut items = Vec::new();
        self.name_all(scope, resources, place, None, &mut items)?;
        // A deployment may need the outputs of one that stands behind it.
        while !items.is_empty() {
            let before = items.len();
            let mut waiting = Vec::new();
            for item in items {
                match self.expand_resource(scope, &item, place) {
                    Ok(()) => {}
                    Err(EvaluationError::Unknown(needs)) => waiting.push((item, needs)),
                    Err(error) => return Err(error.with_location(shorten_name(&item.name))),
                }
            }
            if waiting.len() == before {
                let pending = waiting.into_iter().map(|(item, needs)| PendingValue {
                    what: item.id.clone(),
                    owner: Some(item.id),
                    needs,
                });
                self.expansion.pending.extend(pending);
                return Ok(());
            }
            items = waiting.into_iter().map(|(item, _)| item).collect();
        }
        Ok(())
    }

    fn expand_resource(
        &mut self,
        outer: &EvaluationScope<'_>,
        item: &Item<'_>,
        place: &Place,
    ) -> Result<(), EvaluationError> {
        let scope = &EvaluationScope {
            local: &item.local,
            ..*outer
        };
        if item.kind.eq_ignore_ascii_case(DEPLOYMENTS) {
            return self.expand_deployment(scope, item, place);
        }
        let place = self.place_of(scope, item.resource, place)?;
        let mut whole = TemplateResource {
            id: item.id.clone(),
            kind: item.kind.clone(),
            name: item.name.clone(),
            scope: item.scope.clone(),
            subscription: place.subscription,
            resource_group: place.resource_group,
            body: Value::Null,
            only_if_not_exists: is_only_if_not_exists(item.resource),
        };
        let provider = item.kind.split('/').next().unwrap_or_default();
        if !provider.eq_ignore_ascii_case(PROVIDER) {
            self.expansion.foreign.push(whole);
            return Ok(());
        }
        let mut body = Map::new();
        // A key that is null is absent.
        for (key, value) in item.resource.iter().filter(|(_, value)| !value.is_null()) {
            if BODY.contains(&key.as_str()) {
                let value = scope
                    .evaluate_value(value)
                    .map_err(|error| error.with_location(key))?;
                body.insert(key.clone(), value);
            } else if !OF_DEPLOYMENT.contains(&key.as_str()) {
                let problem = format!(
                    "{key} is not supported in a resource; expected one of {}",
                    BODY.join(", ")
                );
                return Err(EvaluationError::invalid(problem));
            }
        }
        whole.body = Value::Object(body);
        check_all_known(&whole.body)?;
        remove_nulls(&mut whole.body);
        if !scope.local.copies.is_empty() {
            self.shared.count_value(&whole.body)?;
        }
        self.expansion.resources.push(whole);
        Ok(())
    }

    /// Expands a nested deployment. Its outputs become its state.
    fn expand_deployment(
        &mut self,
        scope: &EvaluationScope<'_>,
        item: &Item<'_>,
        place: &Place,
    ) -> Result<(), EvaluationError> {
        let mut place = self.place_of(scope, item.resource, place)?;
        place.level += 1;
        place.deployment.clone_from(&item.name);
        place.deployment_id = Some(item.id.clone());
        if place.level > LEVELS_MAX {
            return Err(EvaluationError::invalid(format!(
                "deployments are nested deeper than {LEVELS_MAX} levels"
            )));
        }
        let properties = item.resource.get("properties").unwrap_or(&Value::Null);
        let Some(template) = properties.get("template") else {
            let problem = "the deployment has no template; a template at another address \
                (templateLink) is not supported, put it inline";
            return Err(EvaluationError::invalid(problem));
        };
        let mode = scope.evaluate_value(&properties["mode"])?;
        if mode
            .as_str()
            .is_some_and(|mode| mode.eq_ignore_ascii_case("Complete"))
        {
            let problem = "mode is Complete; expected Incremental, because only the outermost \
                deployment deletes resources";
            return Err(EvaluationError::invalid(problem));
        }
        let is_inner = properties["expressionEvaluationOptions"]["scope"]
            .as_str()
            .is_some_and(|scope| scope.eq_ignore_ascii_case("inner"));
        let lengths = self.current_lengths();
        let result = if is_inner {
            let deployment_parameters =
                scope.evaluate_value(properties.get("parameters").unwrap_or(&json!({})))?;
            self.expand_nested(
                template,
                &parameters::parameters_of_file(&deployment_parameters)?,
                place,
            )
        } else {
            self.expand_with_outer_scope(scope, template, &place)
        };
        let result = result.inspect_err(|_| self.truncate_to(&lengths))?;
        let state = json!({"id": item.id, "name": item.name, "type": DEPLOYMENTS, "properties": {
            "provisioningState": "Succeeded", "outputs": result.outputs, "mode": "Incremental",
        }});
        let mut states = self.shared.states.borrow_mut();
        states.insert(StateKey::get(&item.id), state);
        let secure_key = StateKey {
            action: Some(SECURE_OUTPUTS.to_owned()),
            ..StateKey::get(&item.id)
        };
        states.insert(secure_key, result.secure_outputs.into());
        Ok(())
    }

    /// Expands a nested template whose expressions have the scope of the template around it.
    fn expand_with_outer_scope(
        &mut self,
        scope: &EvaluationScope<'_>,
        template: &Value,
        place: &Place,
    ) -> Result<TemplateResult, EvaluationError> {
        let whole = require_object("the template", template)?;
        let mut result = TemplateResult::default();
        self.expand_resources(scope, whole.get("resources"), place)?;
        self.evaluate_outputs(scope, &object_below(whole, "outputs")?, place, &mut result)?;
        Ok(result)
    }

    /// The lengths of the lists, to undo what a deployment added that is expanded again.
    fn current_lengths(&self) -> [usize; 4] {
        let Expansion {
            resources,
            foreign,
            pending,
            ..
        } = &self.expansion;
        [resources.len(), foreign.len(), pending.len(), self.count]
    }

    fn truncate_to(&mut self, [resources, foreign, pending, count]: &[usize; 4]) {
        self.expansion.resources.truncate(*resources);
        self.expansion.foreign.truncate(*foreign);
        self.expansion.pending.truncate(*pending);
        self.count = *count;
    }

    fn evaluate_outputs(
        &mut self,
        scope: &EvaluationScope<'_>,
        outputs: &Map<String, Value>,
        place: &Place,
        result: &mut TemplateResult,
    ) -> Result<(), EvaluationError> {
        for (name, output) in outputs {
            let outcome = output_value(scope, output).and_then(|value| {
                value.as_ref().map_or(Ok(()), check_all_known)?;
                Ok(value)
            });
            let value = match outcome {
                Ok(Some(value)) => value,
                Ok(None) => continue,
                Err(EvaluationError::Unknown(needs)) => {
                    let of = if place.level > 0 {
                        format!(" of the deployment {}", place.deployment)
                    } else {
                        String::new()
                    };
                    // The other outputs of a nested deployment can be read.
                    if place.level > 0 {
                        let missing = missing_output(&needs);
                        let outputs = result.outputs_of(output);
                        outputs.insert(name.clone(), missing);
                    }
                    self.expansion.pending.push(PendingValue {
                        what: format!("the output {name}{of}"),
                        owner: place.deployment_id.clone(),
                        needs,
                    });
                    continue;
                }
                Err(error) => return Err(error.with_location(format!("the output {name}"))),
            };
            let kind = output["type"].as_str().unwrap_or("object");
            if parameters::is_secure(output) {
                add_secrets(&value, &mut self.expansion.secrets);
                result.outputs.insert(name.clone(), json!({"type": kind}));
                result.secure_outputs.insert(name.clone(), value);
            } else {
                result
                    .outputs
                    .insert(name.clone(), json!({"type": kind, "value": value}));
            }
        }
        Ok(())
    }
}

/// The value of an output, unless its condition is false.
fn output_value(
    scope: &EvaluationScope<'_>,
    output: &Value,
) -> Result<Option<Value>, EvaluationError> {
    if let Some(condition) = output.get("condition")
        && scope.evaluate_value(condition)? == Value::Bool(false)
    {
        return Ok(None);
    }
    let Some(copy) = output.get("copy") else {
        return scope.evaluate_value(&output["value"]).map(Some);
    };
    let count = scope.evaluate_count(&copy["count"])?;
    scope.expand_loop("", count, &copy["input"]).map(Some)
}

/// The functions of a template, by namespace and name in lower case.
fn collect_functions(
    template: &Map<String, Value>,
) -> Result<BTreeMap<String, Value>, EvaluationError> {
    let mut functions = BTreeMap::new();
    let empty = Vec::new();
    let namespaces = template.get("functions").and_then(Value::as_array);
    for namespace in namespaces.unwrap_or(&empty) {
        let prefix = namespace["namespace"].as_str().unwrap_or_default();
        let what = "the members of a namespace of functions";
        for (name, function) in require_object(what, &namespace["members"])? {
            let name = format!("{prefix}.{name}").to_ascii_lowercase();
            functions.insert(name, function.clone());
        }
    }
    Ok(functions)
}

/// The name of each extension by its alias. Older versions of Bicep call them imports.
fn collect_extensions(
    template: &Map<String, Value>,
) -> Result<BTreeMap<String, String>, EvaluationError> {
    let mut extensions = BTreeMap::new();
    for (section, key) in [("extensions", "name"), ("imports", "provider")] {
        for (alias, extension) in object_below(template, section)? {
            let name = extension[key].as_str().unwrap_or_default().to_owned();
            extensions.insert(alias, name);
        }
    }
    Ok(extensions)
}

/// Whether a resource belongs to an extension such as Kubernetes: not to Azure itself, which also
/// is an extension.
pub(crate) fn is_of_extension(scope: &EvaluationScope<'_>, resource: &Map<String, Value>) -> bool {
    let alias = resource.get("extension").or_else(|| resource.get("import"));
    let Some(alias) = alias.and_then(Value::as_str) else {
        return false;
    };
    let name = scope.frame.extensions.get(alias);
    name.is_none_or(|name| !name.eq_ignore_ascii_case("AzureResourceManager"))
}

/// Adds every text in a secure value.
fn add_secrets(value: &Value, secrets: &mut Vec<String>) {
    match value {
        Value::String(text) if !text.is_empty() => secrets.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|item| add_secrets(item, secrets)),
        Value::Object(object) => object.values().for_each(|item| add_secrets(item, secrets)),
        _ => {}
    }
}

/// Whether the options of a resource leave it as it is if it exists. Bicep writes an empty list.
fn is_only_if_not_exists(resource: &Map<String, Value>) -> bool {
    let options = resource.get("@options").and_then(Value::as_object);
    let option = options.and_then(|options| find_entry(options, "onlyIfNotExists"));
    option.is_some_and(|option| !matches!(option, Value::Null | Value::Bool(false)))
}

/// Removes the properties without a value: a property that is null is absent in ARM.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(remove_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
