//! ARM templates, as the Azure portal exports them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    DeclaredResource, ResourceGroup, TYPES, exact_json,
    expression::{ExpressionScope, Parameter},
};

/// The ignored keys of a resource.
const PASSED_OVER: [&str; 5] = ["apiVersion", "dependsOn", "comments", "metadata", "name"];

/// The keys of a resource that its body has.
const BODY: [&str; 7] = ["location", "tags", "sku", "kind", "extendedLocation", "identity", "properties"];

/// The maximum depth of nested resources: a domain, its topic, an event subscription.
const LEVELS_MAX: usize = 4;

type Object = Map<String, Value>;

pub(super) fn read(
    template: Value,
    group: &ResourceGroup,
    given: &BTreeMap<String, String>,
) -> Result<Vec<DeclaredResource>, String> {
    let mut template = object("the template", template)?;
    let resources = template.remove("resources").unwrap_or(Value::Array(Vec::new()));
    let parameters = parameters(template.remove("parameters"), given)?;
    let variables = template.remove("variables").map_or(Ok(Object::new()), |value| object("variables", value))?;
    if template.get("functions").is_some_and(|functions| *functions != Value::Array(Vec::new())) {
        return Err("user-defined functions are not supported; remove them".to_owned());
    }
    for key in template.keys() {
        if !["$schema", "contentVersion", "apiProfile", "metadata", "outputs", "functions"].contains(&key.as_str()) {
            return Err(format!("unknown key {key} of a template; allowed are parameters, variables and resources"));
        }
    }
    let scope = ExpressionScope::new(parameters, variables.into_iter().collect(), group);
    scope.check_defaults()?;
    let mut all = Vec::new();
    add_all(&mut all, &scope, resources, &[], 0)?;
    Ok(all)
}

/// The given parameters, and the defaults of the others. Names are compared without case.
fn parameters(
    declared: Option<Value>,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Parameter>, String> {
    let declared = declared.map_or(Ok(Object::new()), |value| object("parameters", value))?;
    if let Some(unknown) = given.keys().find(|name| !declared.keys().any(|known| known.eq_ignore_ascii_case(name))) {
        let known: Vec<&str> = declared.keys().map(String::as_str).collect();
        return Err(format!("the template has no parameter '{unknown}'; it has {}", known.join(", ")));
    }
    let value = |(name, parameter): (String, Value)| {
        let text = given.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)).map(|(_, text)| text.clone());
        let kind = parameter["type"].as_str().unwrap_or_default().to_ascii_lowercase();
        let given = text.map(|text| match kind.as_str() {
            "string" | "securestring" => Ok(text.into()),
            _ => exact_json(&text)
                .map_err(|why| format!("the parameter '{name}' is a {kind}: {why}"))?
                .map_err(|problem| format!("the parameter '{name}': {problem}")),
        });
        let given = given.transpose()?.filter(|value| !value.is_null()).map(Parameter::Given);
        let default = parameter.get("defaultValue").filter(|value| !value.is_null()).cloned().map(Parameter::Default);
        let missing = || {
            format!("the parameter '{name}' has no default value; give it with --parameter {name}=VALUE, or a default")
        };
        let value = given.or(default).ok_or_else(missing)?;
        Ok((name, value))
    };
    declared.into_iter().map(value).collect()
}

fn add_all(
    all: &mut Vec<DeclaredResource>,
    scope: &ExpressionScope<'_>,
    resources: Value,
    above: &[String],
    level: usize,
) -> Result<(), String> {
    let Value::Array(resources) = resources else {
        return Err("resources is not a list; allowed is a list".to_owned());
    };
    if level == LEVELS_MAX {
        return Err(format!("resources are nested deeper than {LEVELS_MAX} levels"));
    }
    for (index, resource) in resources.into_iter().enumerate() {
        let what = format!("resource {}", index + 1);
        let resource = object(&what, resource)?;
        let name = resource.get("name").and_then(Value::as_str).unwrap_or(&what).to_owned();
        add(all, scope, resource, above, level).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn add(
    all: &mut Vec<DeclaredResource>,
    scope: &ExpressionScope<'_>,
    mut resource: Object,
    above: &[String],
    level: usize,
) -> Result<(), String> {
    let mut text = |key: &str| match resource.remove(key).map(|value| scope.value(value)).transpose()? {
        Some(Value::String(text)) => Ok::<_, String>(Some(text)),
        Some(other) => Err(format!("{key} is {other}; allowed is a string")),
        None => Ok(None),
    };
    let kind = text("type")?.ok_or("it has no type")?;
    let name = text("name")?.ok_or("it has no name")?;
    let hung = text("scope")?;
    let (group, names) = names(scope.group, above, &kind, &name, hung.as_deref())?;
    let below = resource.remove("resources");
    if resource.remove("condition").is_some_and(|condition| condition != Value::Bool(true)) {
        return Err("condition is not supported; remove it".to_owned());
    }
    let mut body = Object::new();
    for (key, value) in resource {
        match key.as_str() {
            known if BODY.contains(&known) => drop(body.insert(key, scope.value(value)?)),
            known if PASSED_OVER.contains(&known) => {}
            _ => return Err(format!("{key} is not supported in a resource; remove it")),
        }
    }
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push(DeclaredResource::new(&group, &words, Value::Object(body))?);
    below.map_or(Ok(()), |below| add_all(all, scope, below, &names, level + 1))
}

const PROVIDER: &str = "Microsoft.EventGrid";

/// Alternating types and names, with those of the parent.
fn names(
    group: &ResourceGroup,
    above: &[String],
    kind: &str,
    name: &str,
    scope: Option<&str>,
) -> Result<(ResourceGroup, Vec<String>), String> {
    let mut types: Vec<&str> = kind.split('/').collect();
    match types.first() {
        Some(first) if first.eq_ignore_ascii_case(PROVIDER) => drop(types.remove(0)),
        Some(first) if above.is_empty() || first.contains('.') => {
            return Err(format!("a resource of the type {kind} is not supported; {TYPES}, of {PROVIDER}"));
        }
        Some(_) | None => {}
    }
    let parts: Vec<&str> = name.split('/').collect();
    if types.len() != parts.len() {
        return Err(format!("its type {kind} has {} levels and its name {}", types.len(), parts.len()));
    }
    let own = types.iter().zip(&parts).flat_map(|(word, name)| [(*word).to_owned(), (*name).to_owned()]);
    let (group, hung) = match scope {
        Some(scope) => of_id(group, scope)?,
        None => (group.clone(), above.to_vec()),
    };
    let mut names: Vec<String> = hung.into_iter().chain(own).collect();
    // `topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/billing` has the same meaning.
    let is_provider =
        |pair: &[String]| pair[0].eq_ignore_ascii_case("providers") && pair[1].eq_ignore_ascii_case(PROVIDER);
    names = names.chunks(2).filter(|pair| pair.len() < 2 || !is_provider(pair)).flatten().cloned().collect();
    Ok((group, names))
}

/// The parent that a resource id names. The id may begin at its provider.
fn of_id(group: &ResourceGroup, id: &str) -> Result<(ResourceGroup, Vec<String>), String> {
    let segments: Vec<&str> = id.split('/').filter(|segment| !segment.is_empty()).collect();
    let is = |at: usize, word: &str| segments.get(at).is_some_and(|segment| segment.eq_ignore_ascii_case(word));
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if is(0, PROVIDER) && segments.len() % 2 == 1 {
        return Ok((group.clone(), owned(&segments[1..])));
    }
    let is_whole = is(0, "subscriptions") && is(2, "resourceGroups") && is(4, "providers") && is(5, PROVIDER);
    match segments.len() {
        count if is_whole && count % 2 == 0 && count > 6 => {
            let group = ResourceGroup { subscription: segments[1].to_owned(), resource_group: segments[3].to_owned() };
            Ok((group, owned(&segments[6..])))
        }
        _ => Err(format!("its scope is {id}; allowed is the resource id of a topic, a domain or a domain's topic")),
    }
}

fn object(what: &str, value: Value) -> Result<Object, String> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(format!("{what} is not an object; allowed is an object")),
    }
}
