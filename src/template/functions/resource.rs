//! Functions of the deployment and of resources: their ids and states.

use gridhook_escape::count_with_noun;
use serde_json::{Map, Value, json};

use super::{Arguments, Evaluated, EvaluationScope, Expression, Function, MANY, scoped_function};
use crate::{ENVIRONMENT_PATH, EvaluationError, StateKey, resources::SECURE_OUTPUTS};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    scoped_function("deployer", 0..=0, deployer),
    scoped_function("deployment", 0..=0, deployment),
    scoped_function("environment", 0..=0, environment),
    scoped_function("extensionResourceId", 3..=MANY, extension_resource_id),
    scoped_function("fail", 1..=1, |_, args| Err(args.invalid_call(args.text_argument(0)?))),
    scoped_function("parameters", 1..=1, |scope, args| scope.parameter_value(args.text_argument(0)?)),
    scoped_function("pickZones", 3..=5, |_, _| Ok(json!([]))),
    scoped_function("providers", 1..=2, providers),
    scoped_function("reference", 1..=3, reference),
    scoped_function("references", 1..=2, references),
    scoped_function("resourceGroup", 0..=0, resource_group),
    scoped_function("resourceId", 2..=MANY, resource_id),
    scoped_function("subscription", 0..=0, subscription),
    scoped_function("subscriptionResourceId", 2..=MANY, subscription_resource_id),
    scoped_function("tenant", 0..=0, tenant),
    scoped_function("tenantResourceId", 2..=MANY, |_, args| Ok(provider_path(args, 0)?.into())),
    scoped_function("variables", 1..=1, |scope, args| scope.variable_value(args.text_argument(0)?)),
];

fn deployer(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let tenant = &scope.shared.context.tenant;
    Ok(json!({"tenantId": tenant, "objectId": tenant}))
}

fn extension_resource_id(_: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let owner = args.text_argument(0)?;
    Ok(format!("{owner}{}", provider_path(args, 1)?).into())
}

fn deployment(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let frame = scope.frame;
    Ok(json!({"name": frame.deployment, "properties": {
        "template": frame.template, "templateHash": "", "mode": "Incremental", "provisioningState": "Accepted",
    }}))
}

fn environment(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    match &scope.shared.context.environment {
        Some(environment) => Ok(environment.clone()),
        None => read_state(scope, StateKey::get(ENVIRONMENT_PATH)),
    }
}

fn resource_group(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let frame = scope.frame;
    let context = scope.shared.context;
    Ok(json!({
        "id": format!("/subscriptions/{}/resourceGroups/{}", frame.subscription, frame.resource_group),
        "name": frame.resource_group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": context.location,
        "tags": context.tags,
        "properties": {"provisioningState": "Succeeded"},
    }))
}

fn subscription(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let id = &scope.frame.subscription;
    Ok(json!({
        "id": format!("/subscriptions/{id}"),
        "subscriptionId": id,
        "tenantId": scope.shared.context.tenant,
        "displayName": id,
    }))
}

fn tenant(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let id = &scope.shared.context.tenant;
    Ok(
        json!({"id": format!("/tenants/{id}"), "tenantId": id, "displayName": "gridhook", "countryCode": ""}),
    )
}

/// `/providers/TYPE/NAME…`, from the argument with the type on.
fn provider_path(args: &Arguments<'_>, at: usize) -> Result<String, EvaluationError> {
    let kind = args.text_argument(at)?;
    let names = args.text_arguments(at + 1)?;
    let mut words = kind.split('/');
    let provider = words.next().unwrap_or_default();
    let types: Vec<&str> = words.collect();
    if types.is_empty() || types.len() != names.len() {
        let problem = format!(
            "the type {kind} has {} below its provider, and its name {}",
            count_with_noun(types.len(), "level"),
            names.len()
        );
        return Err(args.invalid_call(problem));
    }
    let pairs: String = types
        .iter()
        .zip(names)
        .map(|(word, name)| format!("/{word}/{name}"))
        .collect();
    Ok(format!("/providers/{provider}{pairs}"))
}

/// The place of the type among arguments that may begin with an Azure subscription and a resource
/// group.
fn place_of_type(args: &Arguments<'_>, most: usize) -> Result<usize, EvaluationError> {
    let place = args
        .values
        .iter()
        .position(|value| value.as_str().is_some_and(|text| text.contains('/')));
    place
        .filter(|place| *place <= most)
        .ok_or_else(|| args.invalid_call("it has no type such as Microsoft.EventGrid/topics"))
}

/// `resourceId('Microsoft.EventGrid/topics', 'orders')`, with an optional Azure subscription and
/// resource group before.
fn resource_id(scope: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let at = place_of_type(args, 2)?;
    let own = [&scope.frame.subscription, &scope.frame.resource_group].map(String::as_str);
    let [subscription, group] = match at {
        0 => own,
        1 => [own[0], args.text_argument(0)?],
        _ => [args.text_argument(0)?, args.text_argument(1)?],
    };
    Ok(format!(
        "/subscriptions/{subscription}/resourceGroups/{group}{}",
        provider_path(args, at)?
    )
    .into())
}

fn subscription_resource_id(scope: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let at = place_of_type(args, 1)?;
    let subscription = if at == 0 {
        &scope.frame.subscription
    } else {
        args.text_argument(0)?
    };
    Ok(format!("/subscriptions/{subscription}{}", provider_path(args, at)?).into())
}

fn providers(_: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let kind = |name: &str| json!({"resourceType": name, "locations": ["local"], "apiVersions": ["2025-02-15"]});
    match args.len() {
        1 => Ok(json!({"namespace": args.text_argument(0)?, "resourceTypes": []})),
        _ => Ok(kind(args.text_argument(1)?)),
    }
}

/// The ids that a symbolic name, a name in the template or an id stands for.
fn ids_of(
    scope: &EvaluationScope<'_>,
    args: &Arguments<'_>,
) -> Result<Vec<String>, EvaluationError> {
    let id = args.text_argument(0)?;
    if id.starts_with('/') {
        return Ok(vec![id.to_owned()]);
    }
    if let Some(ids) = scope.frame.ids_of(id) {
        return Ok(ids);
    }
    let group = format!(
        "/subscriptions/{}/resourceGroups/{}",
        scope.frame.subscription, scope.frame.resource_group
    );
    match id.split_once('/') {
        // `Microsoft.EventGrid/topics/orders`
        Some((provider, _)) if provider.contains('.') => {
            Ok(vec![format!("{group}/providers/{id}")])
        }
        _ => Err(args.invalid_call(format!("the template has no resource '{id}'"))),
    }
}

fn read_state(scope: &EvaluationScope<'_>, key: StateKey) -> Evaluated {
    let state = scope.shared.states.borrow().get(&key).cloned();
    state.ok_or(EvaluationError::Unknown(key))
}

/// The properties of a resource, or the whole resource with `Full`.
fn reference(scope: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let ids = ids_of(scope, args)?;
    let [id] = &ids[..] else {
        return Err(args.invalid_call(format!(
            "'{}' is a loop; use references, or name one of its resources",
            args.text_argument(0)?
        )));
    };
    let is_whole = args.values.iter().skip(1).any(is_full);
    Ok(referred_part(
        read_state(scope, StateKey::get(id))?,
        is_whole,
    ))
}

fn references(scope: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let is_whole = args.values.iter().skip(1).any(is_full);
    let states = ids_of(scope, args)?.into_iter().map(|id| {
        Ok(referred_part(
            read_state(scope, StateKey::get(&id))?,
            is_whole,
        ))
    });
    states.collect()
}

fn is_full(argument: &Value) -> bool {
    argument
        .as_str()
        .is_some_and(|text| text.eq_ignore_ascii_case("full"))
}

fn referred_part(mut state: Value, is_whole: bool) -> Value {
    if is_whole {
        state
    } else {
        state
            .get_mut("properties")
            .map_or_else(|| Map::new().into(), Value::take)
    }
}

/// `listKeys(id, apiVersion)` and any other action whose name begins with `list`; [`None`] for
/// other functions.
pub(super) fn list_action(
    scope: &EvaluationScope<'_>,
    name: &str,
    arguments: &[Expression],
) -> Option<Evaluated> {
    let begin = name
        .get(..4)
        .filter(|begin| begin.eq_ignore_ascii_case("list"))?;
    let mut action = format!("{}{}", begin.to_ascii_lowercase(), &name[4..]);
    if action.eq_ignore_ascii_case(SECURE_OUTPUTS) {
        action = SECURE_OUTPUTS.to_owned();
    }
    Some(evaluate_action(scope, action, arguments))
}

fn evaluate_action(
    scope: &EvaluationScope<'_>,
    action: String,
    arguments: &[Expression],
) -> Evaluated {
    let values: Result<Vec<Value>, _> = arguments
        .iter()
        .map(|argument| scope.evaluate_expression(argument))
        .collect();
    let args = Arguments {
        scope,
        function: "list*",
        values: values?,
    };
    let [id] = &ids_of(scope, &args)?[..] else {
        return Err(args.invalid_call("the name is that of a loop"));
    };
    check_action(id, &action)?;
    read_state(
        scope,
        StateKey {
            id: id.to_ascii_lowercase(),
            action: Some(action),
        },
    )
}

/// The types, in lower case, that have `listKeys`, the only action whose name begins with `list`.
const TYPES_WITH_KEYS: [&str; 3] = ["topics", "domains", "namespaces"];

/// Refuses an action that resources of Event Grid do not have: as a state that is not known, it
/// would look as if the resource did not exist.
fn check_action(id: &str, action: &str) -> Result<(), EvaluationError> {
    let lower = id.to_ascii_lowercase();
    let (_, own) = lower.rsplit_once("/providers/").unwrap_or_default();
    let Some(own) = own.strip_prefix("microsoft.eventgrid/") else {
        return Ok(());
    };
    let kind: Vec<&str> = own.split('/').step_by(2).collect();
    let kind = kind.join("/");
    let has_keys = TYPES_WITH_KEYS.contains(&kind.as_str());
    if has_keys && action.eq_ignore_ascii_case("listKeys") {
        return Ok(());
    }
    let allowed = if has_keys {
        "listKeys"
    } else {
        "none that begins with list"
    };
    Err(EvaluationError::invalid(format!(
        "Microsoft.EventGrid/{kind} has no action {action}; expected {allowed}"
    )))
}
