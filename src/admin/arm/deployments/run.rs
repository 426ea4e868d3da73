//! Runs a deployment: changes the resources of a template in their order, and evaluates its
//! outputs.

use std::collections::BTreeSet;

use actix_web::{ResponseError as _, http::StatusCode};
use serde_json::Value;
use tracing::{error, info};

use super::{expansion::TemplateExpander, left_out, resource::ResourceTarget};
use crate::{AdminError, AdminResult, arm::resource_groups, model::deployment::failed_resource};
use gridhook_declared::{Declared, DeclaredResource, PendingValue, hide_secrets};
use gridhook_engine::control::deployments::RunningDeployment;
use gridhook_record::deployment::{
    DeploymentMode, DeploymentProblem, DeploymentState, DeploymentStep, StepOperation,
};

/// 256 KiB: maximum size of the outputs of a deployment.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// How a deployment ends that does not succeed.
enum DeploymentEnd {
    Canceled,
    Failed(DeploymentProblem),
}

impl DeploymentEnd {
    fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::Failed(DeploymentProblem {
            code: code.to_owned(),
            message: message.into(),
        })
    }
}

impl From<AdminError> for DeploymentEnd {
    fn from(error: AdminError) -> Self {
        Self::failed(error.error_code(), error.to_string())
    }
}

pub(super) struct DeploymentRun {
    pub(super) expander: TemplateExpander,
    pub(super) running: RunningDeployment,
    /// The ids of the resources that were changed, in lower case.
    pub(super) done: BTreeSet<String>,
    pub(super) secrets: Vec<String>,
}

impl DeploymentRun {
    /// Runs the deployment, which begins with this expansion, to its end.
    pub(super) async fn run(mut self, first: Declared) {
        let result = self.deploy(first).await;
        let clock = self.expander.caller.control.clock.clone();
        let record = &mut self.running.record;
        record.ended = Some(clock.now());
        match result {
            Ok(()) => record.state = DeploymentState::Succeeded,
            Err(DeploymentEnd::Canceled) => record.state = DeploymentState::Canceled,
            Err(DeploymentEnd::Failed(mut problem)) => {
                problem.message = hide_secrets(problem.message, &self.secrets);
                record.state = DeploymentState::Failed;
                record.problem = Some(problem);
            }
        }
        let deployment = record.key();
        let state = record.state.name();
        match self.running.finish().await {
            Ok(()) => info!(deployment, state, "deployment ended"),
            Err(error) => error!(%error, deployment, state, "end of a deployment not stored"),
        }
    }

    async fn deploy(&mut self, first: Declared) -> Result<(), DeploymentEnd> {
        let mut declared = first;
        loop {
            let before = self.done.len();
            self.apply_resources(&declared).await?;
            let Some(pending) = declared.first_pending_resource().cloned() else {
                break;
            };
            let done = self.done.clone();
            declared = self
                .expander
                .expand_with_states(|declared, id| is_to_be_changed(declared, &done, id))
                .await?;
            let is_stuck = declared.first_pending_resource() == Some(&pending);
            if is_stuck && self.done.len() == before {
                return Err(missing_state(&pending));
            }
        }
        if self.running.record.mode == DeploymentMode::Complete {
            self.delete_others(&declared).await?;
        }
        self.evaluate_outputs().await
    }

    /// Deletes the resources of the group that the template does not have.
    async fn delete_others(&mut self, declared: &Declared) -> Result<(), DeploymentEnd> {
        let control = self.expander.caller.control.clone();
        let existing = resource_groups::resource_ids(&control, &self.running.record.scope);
        for id in undeclared_ids(declared, existing) {
            if self.running.is_canceled() {
                return Err(DeploymentEnd::Canceled);
            }
            self.begin_step(&id, StepOperation::Delete);
            let result = match ResourceTarget::deletion(&id) {
                Ok(target) => target.delete(&self.expander.caller, &id).await,
                Err(error) => Err(error),
            };
            self.end_step(result)?;
        }
        Ok(())
    }

    /// Changes the resources that are known and not changed yet.
    async fn apply_resources(&mut self, declared: &Declared) -> Result<(), DeploymentEnd> {
        self.secrets.clone_from(&declared.template.secrets);
        for resource in &declared.resources {
            let id = resource.control_path();
            if self.done.contains(&id.to_ascii_lowercase()) {
                continue;
            }
            if self.running.is_canceled() {
                return Err(DeploymentEnd::Canceled);
            }
            self.apply(resource, &id).await?;
            self.done.insert(id.to_ascii_lowercase());
        }
        Ok(())
    }

    async fn apply(&mut self, resource: &DeclaredResource, id: &str) -> Result<(), DeploymentEnd> {
        self.begin_step(id, StepOperation::Create);
        let result = match ResourceTarget::new(resource) {
            Ok(target) => target.apply(&self.expander.caller, id).await,
            Err(error) => Err(error),
        };
        self.end_step(result)
    }

    fn begin_step(&mut self, id: &str, operation: StepOperation) {
        self.running.record.steps.push(DeploymentStep {
            id: id.to_owned(),
            operation,
            state: DeploymentState::Running,
            started: self.expander.caller.control.clock.now(),
            ended: None,
            status: 0,
            problem: None,
        });
        self.running.show_progress();
    }

    fn end_step(&mut self, result: AdminResult<StatusCode>) -> Result<(), DeploymentEnd> {
        let ended = self.expander.caller.control.clock.now();
        let Some(step) = self.running.record.steps.last_mut() else {
            return Ok(());
        };
        step.ended = Some(ended);
        let outcome = match result {
            Ok(status) => {
                step.state = DeploymentState::Succeeded;
                step.status = status.as_u16();
                Ok(())
            }
            Err(error) => {
                step.state = DeploymentState::Failed;
                step.status = error.status_code().as_u16();
                step.problem = Some(DeploymentProblem {
                    code: error.error_code().to_owned(),
                    message: hide_secrets(error.to_string(), &self.secrets),
                });
                Err(DeploymentEnd::Failed(failed_resource()))
            }
        };
        self.running.show_progress();
        outcome
    }

    /// Evaluates the outputs with the states of the resources as they are now.
    async fn evaluate_outputs(&mut self) -> Result<(), DeploymentEnd> {
        self.expander.forget_states();
        let declared = self.expander.expand_with_states(|_, _| false).await?;
        self.secrets.clone_from(&declared.template.secrets);
        if let Some(pending) = declared.template.pending.first() {
            return Err(missing_state(pending));
        }
        self.running.record.left_out = left_out(&declared);
        let outputs = declared.template.outputs;
        let size = Value::Object(outputs.clone()).to_string().len();
        if size > OUTPUT_BYTES_MAX {
            let problem = format!(
                "The outputs have {size} bytes; expected at most {OUTPUT_BYTES_MAX}. The resources were \
                 deployed."
            );
            return Err(DeploymentEnd::failed(
                "DeploymentOutputEvaluationFailed",
                problem,
            ));
        }
        self.running.record.outputs = outputs;
        Ok(())
    }
}

/// Whether a resource is one that the deployment has yet to change: its state is read afterwards.
fn is_to_be_changed(declared: &Declared, done: &BTreeSet<String>, id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    if done.contains(&id) {
        return false;
    }
    let is_resource = |one: &DeclaredResource| one.control_path().eq_ignore_ascii_case(&id);
    let is_pending = |value: &PendingValue| value.what.eq_ignore_ascii_case(&id);
    declared.resources.iter().any(is_resource) || declared.template.pending.iter().any(is_pending)
}

/// The ids of existing resources that are neither in the template nor parents of what is in it.
pub(super) fn undeclared_ids(declared: &Declared, existing: Vec<String>) -> Vec<String> {
    let resources = declared
        .resources
        .iter()
        .map(DeclaredResource::control_path);
    let pending = declared.template.pending.iter();
    let ids: Vec<String> = resources
        .chain(pending.map(|one| one.what.clone()))
        .map(|id| id.to_ascii_lowercase())
        .collect();
    existing
        .into_iter()
        .filter(|id| !is_declared(id, &ids))
        .collect()
}

/// Whether `declared`, in lower case, has the id or what is below it.
fn is_declared(existing: &str, declared: &[String]) -> bool {
    let id = existing.to_ascii_lowercase();
    let below = format!("{id}/");
    declared
        .iter()
        .any(|declared| *declared == id || declared.starts_with(&below))
}

fn missing_state(PendingValue { what, needs, .. }: &PendingValue) -> DeploymentEnd {
    let action = needs.action.as_deref().unwrap_or("reference");
    DeploymentEnd::failed(
        "ResourceNotFound",
        format!(
            "{what} needs {action} of {}, which does not exist. The resources that do not need it \
             were deployed.",
            needs.id
        ),
    )
}
