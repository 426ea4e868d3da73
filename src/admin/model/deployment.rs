//! Deployments of templates: reads their bodies and builds their views.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{BODY, CheckResult, InvalidRequest, check_tags, drop_read_only, read, topic::LOCATION};
use crate::model::refuse_value;
use gridhook_api::deployment::{
    DebugSetting, Deployment, DeploymentBody, DeploymentBodyProperties, DeploymentDiagnostic,
    DeploymentErrorView, DeploymentOperation, DeploymentOperationProperties, DeploymentProperties,
    DeploymentProvider, DeploymentResourceType, DeploymentStatus, DeploymentStatusMessage,
    DeploymentTarget, ResourceReference,
};
use gridhook_declared::read_json;
use gridhook_event::Timestamp;
use gridhook_record::{
    deployment::{
        DeploymentMode, DeploymentProblem, DeploymentRecord, DeploymentState, DeploymentStep,
        LEFT_OUT_OUTPUT, LeftOutResource, StepOperation,
    },
    topic::ArmScope,
};

/// Maximum length of the name of a deployment, as in Azure.
pub const DEPLOYMENT_NAME_CHARS_MAX: usize = 64;

/// The code of the error of a deployment with a resource that failed.
const FAILED: &str = "DeploymentFailed";

/// The body of the PUT of a deployment.
#[derive(Clone, Debug)]
pub struct DeploymentSpec {
    pub template: Value,
    pub parameters: Value,
    pub tags: BTreeMap<String, String>,
    pub mode: DeploymentMode,
    pub debug_detail_level: Option<String>,
    /// Whether a preview shows the ids of resources only.
    pub is_preview_of_ids: bool,
}

impl DeploymentSpec {
    /// Reads a body, which may have what templates may have: comments and line breaks in strings.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(body: &[u8]) -> CheckResult<Self> {
        let text = std::str::from_utf8(body)
            .map_err(|_| InvalidRequest::new(BODY, "is not JSON: it is not UTF-8"))?;
        let mut value =
            read_json(text).map_err(|error| InvalidRequest::new(BODY, error.to_string()))?;
        if !value.is_object() {
            return refuse_value(BODY, "is not a JSON object; expected a JSON object");
        }
        drop_read_only(&mut value, &["id", "name", "type"]);
        let DeploymentBody {
            tags, properties, ..
        } = read(value)?;
        let tags = tags.unwrap_or_default();
        check_tags(&tags)?;
        refuse_unsupported(&properties)?;
        let mode = read_mode(properties.mode.as_deref())?;
        let Some(template) = properties.template.filter(|template| !template.is_null()) else {
            return refuse_value(
                "properties.template",
                "is missing; expected a template of Azure Resource Manager",
            );
        };
        let format = properties
            .what_if_settings
            .and_then(|settings| settings.result_format);
        Ok(Self {
            template,
            parameters: properties.parameters.unwrap_or_default(),
            tags,
            mode,
            debug_detail_level: properties.debug_setting.and_then(|one| one.detail_level),
            is_preview_of_ids: format
                .is_some_and(|format| format.eq_ignore_ascii_case("ResourceIdOnly")),
        })
    }
}

/// Refuses by name what this server does not have.
fn refuse_unsupported(properties: &DeploymentBodyProperties) -> CheckResult {
    let refuse = |key: &str, problem: &str| refuse_value(format!("properties.{key}"), problem);
    let is_set = |value: &Option<Value>| {
        let is_empty = |value: &Value| value.is_null() || *value == serde_json::json!({});
        value.as_ref().is_some_and(|value| !is_empty(value))
    };
    if is_set(&properties.template_link) {
        let problem = "is not supported: the server fetches no templates; put the template into \
            properties.template";
        return refuse("templateLink", problem);
    }
    if is_set(&properties.parameters_link) {
        let problem = "is not supported: the server fetches no parameters; put them into \
            properties.parameters";
        return refuse("parametersLink", problem);
    }
    if is_set(&properties.on_error_deployment) {
        let problem = "is not supported; deploy the template to return to yourself";
        return refuse("onErrorDeployment", problem);
    }
    if is_set(&properties.extension_configs) {
        return refuse(
            "extensionConfigs",
            "is not supported: there are no extensions",
        );
    }
    Ok(())
}

fn read_mode(mode: Option<&str>) -> CheckResult<DeploymentMode> {
    let Some(mode) = mode else {
        return Ok(DeploymentMode::Incremental);
    };
    let all = [DeploymentMode::Incremental, DeploymentMode::Complete];
    let known = all
        .into_iter()
        .find(|known| known.name().eq_ignore_ascii_case(mode));
    known.ok_or_else(|| {
        InvalidRequest::unexpected("properties.mode", mode, "Incremental or Complete")
    })
}

pub(crate) fn check_deployment_name(name: &str) -> CheckResult {
    let is_legal = (1..=DEPLOYMENT_NAME_CHARS_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.()".contains(&byte));
    if is_legal {
        return Ok(());
    }
    let expected = format!("1 to {DEPLOYMENT_NAME_CHARS_MAX} letters, digits and -_.()");
    Err(InvalidRequest::unexpected(
        "the name of the deployment",
        name,
        expected,
    ))
}

/// The resource id of a deployment.
pub fn deployment_id(scope: &ArmScope, name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Resources/deployments/{name}",
        scope.subscription, scope.resource_group
    )
}

pub fn deployment_view(record: &DeploymentRecord, shows_outputs: bool) -> Deployment {
    let is_done = record.state == DeploymentState::Succeeded;
    let outputs = record.outputs.clone().into_iter();
    let outputs = outputs.map(|(name, mut output)| {
        if let Some(output) = output.as_object_mut().filter(|_| !shows_outputs) {
            output.remove("value");
        }
        (name, output)
    });
    let changed = record
        .steps
        .iter()
        .filter(|step| step.operation == StepOperation::Create)
        .filter(|step| step.state == DeploymentState::Succeeded);
    let resources: Vec<&str> = changed.map(|step| step.id.as_str()).collect();
    let references = resources.iter().map(|id| ResourceReference {
        id: (*id).to_owned(),
    });
    let ended = record.ended.unwrap_or(record.started);
    Deployment {
        id: deployment_id(&record.scope, &record.name),
        name: record.name.clone(),
        kind: "Microsoft.Resources/deployments".to_owned(),
        tags: record.tags.clone(),
        properties: DeploymentProperties {
            provisioning_state: record.state.name().to_owned(),
            correlation_id: record.correlation_id.clone(),
            timestamp: ended.to_string(),
            duration: format_duration(ended.since(record.started)),
            mode: record.mode.name().to_owned(),
            debug_setting: record.debug_detail_level.clone().map(|level| DebugSetting {
                detail_level: Some(level),
            }),
            parameters: record.parameters.clone(),
            outputs: is_done.then(|| outputs.collect()),
            providers: providers(&resources),
            dependencies: Vec::new(),
            output_resources: is_done.then(|| references.collect()),
            validated_resources: None,
            diagnostics: record.left_out.iter().map(diagnostic_view).collect(),
            error: deployment_error(record),
        },
    }
}

fn diagnostic_view(one: &LeftOutResource) -> DeploymentDiagnostic {
    DeploymentDiagnostic {
        level: "Warning".to_owned(),
        code: if one.kind == LEFT_OUT_OUTPUT {
            "ForeignReference"
        } else {
            "ForeignResource"
        }
        .to_owned(),
        message: format!(
            "The {} is left out (deployments.ignore_foreign): {}.",
            one.kind, one.reason
        ),
        target: one.id.clone(),
    }
}

/// The types of these resources.
fn providers(ids: &[&str]) -> Vec<DeploymentProvider> {
    let types: BTreeSet<String> = ids.iter().map(|id| resource_type(id)).collect();
    let own = types
        .iter()
        .filter_map(|kind| kind.strip_prefix("Microsoft.EventGrid/"));
    let resource_types: Vec<DeploymentResourceType> = own
        .map(|kind| DeploymentResourceType {
            resource_type: kind.to_owned(),
            locations: vec![LOCATION.to_owned()],
        })
        .collect();
    if resource_types.is_empty() {
        return Vec::new();
    }
    vec![DeploymentProvider {
        namespace: "Microsoft.EventGrid".to_owned(),
        resource_types,
    }]
}

/// The type of a resource of Event Grid, such as `Microsoft.EventGrid/topics/eventSubscriptions`.
pub fn resource_type(id: &str) -> String {
    let provider = id.rsplit_once("/providers/").map_or("", |(_, rest)| rest);
    let mut segments = provider.split('/');
    let namespace = segments.next().unwrap_or_default();
    let types: Vec<&str> = segments.step_by(2).collect();
    format!("{namespace}/{}", types.join("/"))
}

/// A duration as ISO 8601 has it, such as `PT1.5S`.
fn format_duration(duration: Duration) -> String {
    format!("PT{}S", duration.as_secs_f64())
}

fn error_view(problem: &DeploymentProblem, target: Option<&str>) -> DeploymentErrorView {
    DeploymentErrorView {
        code: problem.code.clone(),
        message: problem.message.clone(),
        target: target.map(str::to_owned),
        details: Vec::new(),
    }
}

/// Why a deployment failed, with the error of its resource.
fn deployment_error(record: &DeploymentRecord) -> Option<DeploymentErrorView> {
    let problem = record.problem.as_ref()?;
    let failed = record
        .steps
        .iter()
        .filter_map(|step| Some(error_view(step.problem.as_ref()?, Some(&step.id))));
    let details: Vec<DeploymentErrorView> = failed.collect();
    let target = deployment_id(&record.scope, &record.name);
    Some(DeploymentErrorView {
        details,
        ..error_view(problem, Some(&target))
    })
}

/// The problem of a deployment one of whose resources failed.
pub fn failed_resource() -> DeploymentProblem {
    let message = "At least one resource deployment operation failed. Please list deployment \
        operations for details. The resources before it were deployed.";
    DeploymentProblem {
        code: FAILED.to_owned(),
        message: message.to_owned(),
    }
}

/// The state of a deployment, for clients that wait for it.
pub fn status_view(record: &DeploymentRecord) -> DeploymentStatus {
    DeploymentStatus {
        status: record.state.name().to_owned(),
        error: deployment_error(record),
    }
}

/// The operations of a deployment, the last one first as in Azure.
pub fn operation_views(record: &DeploymentRecord, now: Timestamp) -> Vec<DeploymentOperation> {
    let numbered = record.steps.iter().enumerate().rev();
    numbered
        .map(|(index, step)| operation_view(record, index, step, now))
        .collect()
}

pub fn operation_id(index: usize) -> String {
    format!("{:016X}", index + 1)
}

fn operation_view(
    record: &DeploymentRecord,
    index: usize,
    step: &DeploymentStep,
    now: Timestamp,
) -> DeploymentOperation {
    let operation_id = operation_id(index);
    let ended = step.ended.unwrap_or(now);
    let status = step.state.name().to_owned();
    let status_message = step
        .problem
        .as_ref()
        .map(|problem| DeploymentStatusMessage {
            status: status.clone(),
            error: error_view(problem, Some(&step.id)),
        });
    DeploymentOperation {
        id: format!(
            "{}/operations/{operation_id}",
            deployment_id(&record.scope, &record.name)
        ),
        operation_id,
        properties: DeploymentOperationProperties {
            provisioning_operation: step.operation.name().to_owned(),
            provisioning_state: status,
            timestamp: ended.to_string(),
            duration: format_duration(ended.since(step.started)),
            status_code: status_name(step.status),
            status_message,
            target_resource: DeploymentTarget {
                id: step.id.clone(),
                resource_type: resource_type(&step.id),
                resource_name: resource_name(&step.id),
            },
        },
    }
}

/// The name of an HTTP status, as Azure writes it.
fn status_name(status: u16) -> String {
    let name = match status {
        0 => "",
        200 => "OK",
        201 => "Created",
        204 => "NoContent",
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        500 => "InternalServerError",
        503 => "ServiceUnavailable",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// The names of the levels of a resource, joined with slashes.
fn resource_name(id: &str) -> String {
    let provider = id.rsplit_once("/providers/").map_or("", |(_, rest)| rest);
    let names: Vec<&str> = provider.split('/').skip(2).step_by(2).collect();
    names.join("/")
}
