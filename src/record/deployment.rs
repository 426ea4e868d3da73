//! The stored record of a deployment of a template. The template itself is a record of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{resource_group, topic::ArmScope};
use gridhook_event::Timestamp;

/// How far a deployment, or the change of one of its resources, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeploymentState {
    Running,
    /// All of it is done.
    Succeeded,
    /// It stopped at an error.
    Failed,
    Canceled,
}

impl DeploymentState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

/// What a deployment does with resources of its group that are not in the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeploymentMode {
    #[default]
    Incremental,
    Complete,
}

impl DeploymentMode {
    /// The name in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incremental => "Incremental",
            Self::Complete => "Complete",
        }
    }
}

/// What a deployment does with a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepOperation {
    /// It is created or changed.
    #[default]
    Create,
    Delete,
}

impl StepOperation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Delete => "Delete",
        }
    }
}

/// A deployment. No value of a secure parameter or output is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentRecord {
    /// Its Azure subscription and resource group.
    pub scope: ArmScope,
    pub name: String,
    /// The id of this run; a deployment of the same name has another one.
    pub correlation_id: String,
    pub state: DeploymentState,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// `tags`, stored and returned.
    pub tags: BTreeMap<String, String>,
    /// How it treats resources that are not in the template.
    #[serde(default)]
    pub mode: DeploymentMode,
    /// `debugSetting.detailLevel`, stored and returned.
    pub debug_detail_level: Option<String>,
    /// Types and values of the parameters.
    pub parameters: Map<String, Value>,
    /// Types and values of the outputs.
    pub outputs: Map<String, Value>,
    /// The changes of resources, in their order.
    pub steps: Vec<DeploymentStep>,
    /// The resources of the template that are left out.
    pub left_out: Vec<LeftOutResource>,
    pub problem: Option<DeploymentProblem>,
}

impl DeploymentRecord {
    pub fn key(&self) -> String {
        key(&self.scope, &self.name)
    }

    pub fn is_running(&self) -> bool {
        self.state == DeploymentState::Running
    }
}

/// The template of a deployment, as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentTemplate {
    pub template: Value,
}

/// The key of the record of a deployment; names are compared without case.
pub fn key(scope: &ArmScope, name: &str) -> String {
    format!("{}/{}", resource_group::key(scope), name.to_lowercase())
}

/// The change of a resource by a deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentStep {
    pub id: String,
    /// What is done with it.
    #[serde(default)]
    pub operation: StepOperation,
    pub state: DeploymentState,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// HTTP status of the response to its PUT or DELETE; 200 if nothing had to be changed.
    pub status: u16,
    pub problem: Option<DeploymentProblem>,
}

/// The kind of an output that is left out.
pub const LEFT_OUT_OUTPUT: &str = "output";

/// A resource or an output of the template that is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOutResource {
    /// The id of a resource, or the name of an output.
    pub id: String,
    /// The type of a resource, or [`LEFT_OUT_OUTPUT`].
    pub kind: String,
    /// Why it is left out.
    pub reason: String,
}

/// Why a deployment or the change of a resource failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentProblem {
    pub code: String,
    pub message: String,
}
