//! Deployments of templates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The body of a deployment, of its validation and of its preview.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeploymentBody {
    /// Location, not used in a resource group
    pub location: Option<String>,
    /// Names and values to keep with the deployment; default none
    pub tags: Option<BTreeMap<String, String>>,
    /// Template, parameters and mode
    pub properties: DeploymentBodyProperties,
}

/// What is deployed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentBodyProperties {
    /// Mode: `Incremental`, the default, keeps resources that are not in the template; `Complete`
    /// deletes the topics, domains and namespaces of the resource group that are not in it
    pub mode: Option<String>,
    /// Template of Azure Resource Manager
    #[schema(value_type = Option<Object>)]
    pub template: Option<Value>,
    /// Parameters of the template: an object with `value` for each
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// What of requests is kept for debugging; stored and returned
    pub debug_setting: Option<DebugSetting>,
    /// What is validated; no effect
    pub validation_level: Option<String>,
    /// Scope of expressions, which only nested deployments have; no effect
    #[schema(value_type = Option<Object>)]
    pub expression_evaluation_options: Option<Value>,
    /// Whether a preview shows whole resources or their ids only
    pub what_if_settings: Option<WhatIfSettings>,
    /// Address of a template; refused
    #[schema(value_type = Option<Object>)]
    pub template_link: Option<Value>,
    /// Address of a file of parameters; refused
    #[schema(value_type = Option<Object>)]
    pub parameters_link: Option<Value>,
    /// Deployment to repeat after an error; refused
    #[schema(value_type = Option<Object>)]
    pub on_error_deployment: Option<Value>,
    /// Settings of extensions, of which there are none; refused
    #[schema(value_type = Option<Object>)]
    pub extension_configs: Option<Value>,
}

/// What of requests is kept for debugging.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DebugSetting {
    /// Level such as `none`
    pub detail_level: Option<String>,
}

/// Form of a preview.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfSettings {
    /// `FullResourcePayloads`, the default, or `ResourceIdOnly`
    pub result_format: Option<String>,
}

/// A deployment.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Deployment {
    /// Resource id of the deployment
    pub id: String,
    /// Last part of the resource id
    pub name: String,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type")]
    pub kind: String,
    /// Names and values that the request set; empty if there are none
    pub tags: BTreeMap<String, String>,
    /// State, outputs and resources of the deployment
    pub properties: DeploymentProperties,
}

/// The properties of a deployment.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentProperties {
    /// `Running`, `Succeeded`, `Failed` or `Canceled`
    pub provisioning_state: String,
    /// Identifies this run of the deployment; each run has another
    pub correlation_id: String,
    /// Time of the last change of the state
    #[schema(format = DateTime)]
    pub timestamp: String,
    /// How long it ran, as ISO 8601 has it
    pub duration: String,
    /// Mode: `Incremental` or `Complete`
    pub mode: String,
    /// What of requests is kept for debugging, as given
    pub debug_setting: Option<DebugSetting>,
    /// Types and values of the parameters; those of a secure type have no value
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// Types and values of the outputs. Those of a secure type have no value, and without the role
    /// admin none has
    #[schema(value_type = Option<Object>)]
    pub outputs: Option<Map<String, Value>>,
    /// Resource providers of the deployed resources
    pub providers: Vec<DeploymentProvider>,
    /// Dependencies between resources, not listed
    #[schema(value_type = Vec<Object>)]
    pub dependencies: Vec<Value>,
    /// Ids of the resources that the template deployed
    pub output_resources: Option<Vec<ResourceReference>>,
    /// Ids of the resources that a validation or preview checked
    pub validated_resources: Option<Vec<ResourceReference>>,
    /// Resources of other services, and outputs that need them, which are left out
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DeploymentDiagnostic>,
    /// Error of the deployment, if it failed
    pub error: Option<DeploymentErrorView>,
}

/// A resource provider of deployed resources.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentProvider {
    /// Name of the provider, such as `Microsoft.EventGrid`
    pub namespace: String,
    /// Resource types of the provider that the template has
    pub resource_types: Vec<DeploymentResourceType>,
}

/// A type of deployed resources.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentResourceType {
    /// Resource type without the resource provider
    pub resource_type: String,
    /// Locations that the template names for resources of this type
    pub locations: Vec<String>,
}

/// A resource by its id.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ResourceReference {
    /// Resource id, as Azure Resource Manager writes it
    pub id: String,
}

/// Something that an operator should know of a deployment.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeploymentDiagnostic {
    /// Level, always `Warning`
    pub level: String,
    /// Code: `ForeignResource`, or `ForeignReference` for an output
    pub code: String,
    /// What happened, and what to do about it
    pub message: String,
    /// Resource id of the resource that is left out
    pub target: String,
}

/// Why a deployment or an operation of it failed.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeploymentErrorView {
    /// Code for programs, such as `InvalidTemplate`
    pub code: String,
    /// What happened, and what to do about it
    pub message: String,
    /// Resource id that the error concerns
    pub target: Option<String>,
    /// Errors of single resources; empty if there are none
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub details: Vec<DeploymentErrorView>,
}

/// The change of a resource by a deployment.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentOperation {
    /// Resource id of the operation
    pub id: String,
    /// Id of the operation in its deployment
    pub operation_id: String,
    /// Resource, action and result of the step
    pub properties: DeploymentOperationProperties,
}

/// What was done with a resource.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentOperationProperties {
    /// Kind of the operation: `Create`, or `Delete` in the mode `Complete`
    pub provisioning_operation: String,
    /// `Running`, `Succeeded`, `Failed` or `Canceled`
    pub provisioning_state: String,
    /// Time of the last change of the state
    #[schema(format = DateTime)]
    pub timestamp: String,
    /// How long it took, as ISO 8601 has it
    pub duration: String,
    /// Status of the PUT or DELETE of the resource: `OK` if nothing had to be changed
    pub status_code: String,
    /// How the operation ended, with its error
    pub status_message: Option<DeploymentStatusMessage>,
    /// Resource that the operation changes
    pub target_resource: DeploymentTarget,
}

/// How an operation ended.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeploymentStatusMessage {
    /// State, the same as that of the operation
    pub status: String,
    /// Error of the operation, if it failed
    pub error: DeploymentErrorView,
}

/// The resource of an operation.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTarget {
    /// Resource id, as Azure Resource Manager writes it
    pub id: String,
    /// Resource type, with the resource provider before it
    pub resource_type: String,
    /// Last part of the resource id
    pub resource_name: String,
}

/// How far a deployment is.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeploymentStatus {
    /// `Running`, `Succeeded`, `Failed` or `Canceled`
    pub status: String,
    /// Error of the deployment, if it failed
    pub error: Option<DeploymentErrorView>,
}

/// The template of a deployment.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ExportedTemplate {
    /// Template as it was deployed
    #[schema(value_type = Object)]
    pub template: Value,
}

/// What a deployment would change.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WhatIfResult {
    /// `Succeeded`, or `Failed` if the template is invalid
    pub status: String,
    /// What is wrong with the template
    pub error: Option<DeploymentErrorView>,
    /// Changes that the deployment would make
    pub properties: Option<WhatIfResultProperties>,
}

/// The changes that a deployment would make.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WhatIfResultProperties {
    /// The changes, each of a resource
    pub changes: Vec<WhatIfChange>,
}

/// What a deployment would do with a resource.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfChange {
    /// Resource id, as Azure Resource Manager writes it
    pub resource_id: String,
    /// `Create`, `Modify`, `Delete`, `NoChange`, `Ignore`, or `Unsupported` if it is left out
    pub change_type: String,
    /// Why it is left out, or cannot be compared
    pub unsupported_reason: Option<String>,
    /// Resource as it is now, if there is one
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Resource as the deployment would leave it, if it would
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
    /// Differences between `before` and `after`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delta: Vec<WhatIfPropertyChange>,
}

/// What a deployment would do with a property.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfPropertyChange {
    /// Keys joined by dots
    pub path: String,
    /// `Create`, `Delete` or `Modify`
    pub property_change_type: String,
    /// Present value of the property, if it has one
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Value that the deployment would give the property, if any
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}
