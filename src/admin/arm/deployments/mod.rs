//! Deployments of templates to resource groups, on the engine that applies configuration files.
//!
//! A deployment changes the resources of its template one after the other, each as a PUT of it
//! would: under its lock, with its validation and with an audit record of its own. It ends at the
//! first error, and what was done stays. In the mode `Complete` it then deletes the topics, domains
//! and namespaces of its resource group that the template does not have.
//!
//! Nested deployments are part of the outer one: their resources are operations of it, and there
//! are no records of them.

mod error;
mod expansion;
mod preview;
mod resource;
mod run;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    http::{Method, StatusCode},
};
use tokio::sync::oneshot;
use tracing::Instrument as _;

pub(crate) use self::error::DeploymentError;
use self::{
    error::store_error,
    expansion::{ResourceCaller, TemplateExpander},
    preview::Preview,
    run::DeploymentRun,
};
use super::{Call, list::PageRequest, resource_groups};
use crate::{
    AdminError, AdminResult, Control, audit,
    model::{
        CheckResult, InvalidRequest,
        deployment::{
            DeploymentSpec, check_deployment_name, deployment_id, deployment_view, operation_views,
            status_view,
        },
        value_of,
    },
    request_id, respond_json, respond_nothing,
};
use gridhook_api::{
    account::ResourceGroup,
    deployment::{
        Deployment, DeploymentErrorView, ExportedTemplate, ResourceReference, WhatIfResult,
    },
    resource::Page,
};
use gridhook_declared::Declared;
use gridhook_engine::control::audit::record_intent;
use gridhook_record::{
    deployment::{
        DeploymentMode, DeploymentRecord, DeploymentState, DeploymentTemplate, LEFT_OUT_OUTPUT,
        LeftOutResource,
    },
    resource_group::ResourceGroupRecord,
    topic::ArmScope,
};

/// 1 MiB: maximum size of the body of a deployment.
pub(crate) const DEPLOYMENT_BYTES_MAX: usize = 1 << 20;

/// The setting that leaves out the resources of other services.
const LEAVE_OUT_SETTING: &str = "the setting deployments.ignore_foreign";

/// How long the response to a deployment waits for its end: clients that get the end at once do not
/// poll for it.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Seconds between two polls of the status of a deployment.
const POLL_SECONDS: &str = "1";

/// The resource group and the name in a path.
struct DeploymentPath {
    scope: ArmScope,
    name: String,
}

impl DeploymentPath {
    fn from_call(call: Call<'_>) -> AdminResult<Self> {
        Ok(Self {
            scope: call.path.arm_scope()?,
            name: call.path.name("deploymentName")?.to_owned(),
        })
    }

    /// The resource group, which must exist.
    fn group(&self, control: &Control) -> AdminResult<ResourceGroup> {
        resource_groups::require_group(control, &self.scope)
    }

    fn record(&self, control: &Control) -> AdminResult<Arc<DeploymentRecord>> {
        self.group(control)?;
        let record = control.registry.deployments().get(&self.scope, &self.name);
        Ok(record.ok_or_else(|| DeploymentError::NotFound(self.name.clone()))?)
    }
}

fn find_record(call: Call<'_>) -> AdminResult<Arc<DeploymentRecord>> {
    DeploymentPath::from_call(call)?.record(call.control)
}

fn view(call: Call<'_>, record: &DeploymentRecord) -> Deployment {
    deployment_view(record, call.permissions.is_administrator())
}

/// GET, and HEAD, which clients send to find out whether a deployment exists: they expect 204.
pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let record = find_record(call)?;
    if call.request()?.method() == Method::HEAD {
        return respond_nothing();
    }
    respond_json(&view(call, &record))
}

/// An Azure subscription has no deployments.
pub(super) async fn get_in_subscription(call: Call<'_>) -> AdminResult {
    let name = call.path.name("deploymentName")?;
    Err(DeploymentError::NotFound(name.to_owned()).into())
}

pub(super) async fn refuse_in_subscription(_: Call<'_>) -> AdminResult {
    Err(DeploymentError::SubscriptionScope.into())
}

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let scope = call.path.arm_scope()?;
    let (page, filter) = PageRequest::from_unfiltered_call(call)?;
    let state = read_state_filter(&filter)?;
    let mut records = call.control.registry.deployments().in_group(&scope);
    records.retain(|record| {
        state
            .as_ref()
            .is_none_or(|state| record.state.name().eq_ignore_ascii_case(state))
    });
    let keyed = records
        .into_iter()
        .map(|record| (record.key(), record))
        .collect();
    Ok(page.into_response(
        keyed,
        |record| &record.name,
        |record| value_of(&view(call, record)),
    ))
}

/// `provisioningState eq 'Running'`, the only filter that ARM has here.
fn read_state_filter(filter: &str) -> CheckResult<Option<String>> {
    if filter.trim().is_empty() {
        return Ok(None);
    }
    let state = filter
        .split_once(" eq ")
        .filter(|(key, _)| key.trim().eq_ignore_ascii_case("provisioningState"))
        .and_then(|(_, value)| value.trim().strip_prefix('\'')?.strip_suffix('\''));
    match state {
        Some(state) => Ok(Some(state.to_owned())),
        None => {
            let expected = "provisioningState eq 'STATE'";
            Err(InvalidRequest::unexpected("$filter", filter, expected))
        }
    }
}

/// A request to deploy, validate or preview a template.
struct DeploymentRequest {
    path: DeploymentPath,
    group: ResourceGroup,
    spec: DeploymentSpec,
    expander: TemplateExpander,
}

impl DeploymentRequest {
    fn from_call(call: Call<'_>) -> AdminResult<Self> {
        let path = DeploymentPath::from_call(call)?;
        check_deployment_name(&path.name)?;
        let spec = DeploymentSpec::parse(call.body)?;
        let group = path.group(call.control)?;
        let expander = TemplateExpander::new(
            ResourceCaller::from_call(call)?,
            &path.scope,
            &group,
            &path.name,
            spec.template.clone(),
            &spec.parameters,
        )?;
        Ok(Self {
            path,
            group,
            spec,
            expander,
        })
    }

    /// Compares the resources of the template with the existing ones, and refuses those that are
    /// refused.
    async fn preview(&mut self) -> AdminResult<(Declared, Vec<Preview>)> {
        let declared = self.expander.expand_with_states(|_, _| false).await?;
        let previews = preview::compare_resources(&self.expander.caller, &declared).await?;
        preview::check_previews(&self.path.name, &declared, &previews)?;
        Ok((declared, previews))
    }

    /// The record of the deployment as it begins.
    fn new_record(&self, control: &Control, declared: &Declared) -> DeploymentRecord {
        DeploymentRecord {
            scope: ArmScope {
                subscription: self.path.scope.subscription.clone(),
                // A group keeps the spelling of its name.
                resource_group: self.group.name.clone(),
            },
            name: self.path.name.clone(),
            correlation_id: request_id::new().to_string(),
            state: DeploymentState::Running,
            started: control.clock.now(),
            ended: None,
            tags: self.spec.tags.clone(),
            mode: self.spec.mode,
            debug_detail_level: self.spec.debug_detail_level.clone(),
            parameters: declared.template.parameters.clone(),
            outputs: serde_json::Map::new(),
            steps: Vec::new(),
            left_out: left_out(declared),
            problem: None,
        }
    }
}

/// The resources and outputs of a template that are left out.
fn left_out(declared: &Declared) -> Vec<LeftOutResource> {
    let resources = declared.template.foreign.iter();
    let resources = resources.map(|one| LeftOutResource {
        id: one.id.clone(),
        kind: one.kind.clone(),
        reason: one.reason.clone(),
    });
    let outputs = declared.template.unobtainable_outputs.iter();
    let outputs = outputs.map(|one| LeftOutResource {
        id: one.what.clone(),
        kind: LEFT_OUT_OUTPUT.to_owned(),
        reason: format!(
            "it needs the state of {}, which this server does not have",
            one.needs.id
        ),
    });
    resources.chain(outputs).collect()
}

/// PUT: deploys a template. The response waits a moment for the end.
pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let mut request = DeploymentRequest::from_call(call)?;
    let first = request.expander.expand_with_states(|_, _| false).await?;
    let record = request.new_record(control, &first);
    let existed = control
        .registry
        .deployments()
        .get(&record.scope, &record.name)
        .is_some();
    call.plan_audit(&view(call, &record));
    if existed {
        audit::expect_status(StatusCode::OK);
    }
    keep_group(control, &record.scope, &request.group).await?;
    let template = DeploymentTemplate {
        template: request.spec.template,
    };
    let running = control
        .registry
        .deployments()
        .begin(record.clone(), &template)
        .await
        .map_err(|error| store_error(error, &record.name))?;
    let run = DeploymentRun {
        expander: request.expander,
        running,
        done: BTreeSet::new(),
        secrets: Vec::new(),
    };
    let (ended, end) = oneshot::channel();
    let task = async move {
        run.run(first).await;
        ended.send(()).ok();
    };
    actix_web::rt::spawn(task.in_current_span());
    tokio::time::timeout(END_TIMEOUT, end).await.ok();
    let stored = control
        .registry
        .deployments()
        .get(&record.scope, &record.name)
        .filter(|stored| stored.state == DeploymentState::Succeeded);
    let mut response = if existed {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    if let Some(stored) = stored.filter(|stored| stored.correlation_id == record.correlation_id) {
        return Ok(response.json(view(call, &stored)));
    }
    // Clients read how it ends, and its error, at this address.
    let status = format!(
        "{}{}/operationStatuses/{}?{}",
        control.operators_url(call.request()?),
        deployment_id(&record.scope, &record.name),
        record.correlation_id,
        call.request()?.query_string()
    );
    Ok(response
        .insert_header(("Azure-AsyncOperation", status))
        .insert_header(("Retry-After", POLL_SECONDS))
        .json(view(call, &record)))
}

/// Stores a group that exists only because of its resources: it must not end before its
/// deployments.
async fn keep_group(control: &Control, scope: &ArmScope, group: &ResourceGroup) -> AdminResult<()> {
    let groups = control.registry.resource_groups();
    if groups.get(scope).is_none() {
        let record = ResourceGroupRecord {
            scope: scope.clone(),
            location: group.location.clone(),
            tags: group.tags.clone(),
        };
        groups.put_group(record).await?;
    }
    Ok(())
}

/// `GET …/operationStatuses/ID`: how far a deployment is.
pub(super) async fn status(call: Call<'_>) -> AdminResult {
    let record = find_record(call)?;
    let given = call.path.name("operationStatusId")?;
    if !record.correlation_id.eq_ignore_ascii_case(given) {
        return Err(DeploymentError::NotFound(record.name.clone()).into());
    }
    let mut response = HttpResponse::Ok();
    if record.is_running() {
        response.insert_header(("Retry-After", POLL_SECONDS));
    }
    Ok(response.json(status_view(&record)))
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let DeploymentPath { scope, name } = DeploymentPath::from_call(call)?;
    call.control
        .registry
        .deployments()
        .delete(&scope, &name)
        .await
        .map_err(|error| store_error(error, &name))?;
    respond_nothing()
}

pub(super) async fn cancel(call: Call<'_>) -> AdminResult {
    let path = DeploymentPath::from_call(call)?;
    let record = path.record(call.control)?;
    record_intent().await;
    if !call
        .control
        .registry
        .deployments()
        .cancel(&path.scope, &path.name)
    {
        return Err(DeploymentError::Ended {
            name: path.name,
            state: record.state.name(),
        }
        .into());
    }
    respond_nothing()
}

pub(super) async fn export_template(call: Call<'_>) -> AdminResult {
    let path = DeploymentPath::from_call(call)?;
    let record = path.record(call.control)?;
    let deployments = call.control.registry.deployments();
    let template = deployments.template(&record).await?;
    let DeploymentTemplate { template } = template.ok_or(DeploymentError::NotFound(path.name))?;
    respond_json(&ExportedTemplate { template })
}

pub(super) async fn operations(call: Call<'_>) -> AdminResult {
    let record = find_record(call)?;
    let views = operation_views(&record, call.control.clock.now());
    respond_json(&Page::whole(views))
}

pub(super) async fn operation(call: Call<'_>) -> AdminResult {
    let record = find_record(call)?;
    let given = call.path.name("operationId")?;
    let mut views = operation_views(&record, call.control.clock.now()).into_iter();
    let view = views.find(|view| view.operation_id.eq_ignore_ascii_case(given));
    let view = view.ok_or_else(|| DeploymentError::NoOperation {
        deployment: record.name.clone(),
        operation: given.to_owned(),
    })?;
    respond_json(&view)
}

/// `POST …/validate`. Clients expect what is wrong with the template in the body of a 400.
pub(super) async fn validate(call: Call<'_>) -> AdminResult {
    let mut request = DeploymentRequest::from_call(call)?;
    let (declared, _) = request.preview().await?;
    let mut record = request.new_record(call.control, &declared);
    record.state = DeploymentState::Succeeded;
    record.ended = Some(record.started);
    let mut view = view(call, &record);
    view.properties.outputs = None;
    view.properties.output_resources = None;
    let resources = declared.resources.iter();
    let resources = resources.map(|resource| ResourceReference {
        id: resource.control_path(),
    });
    view.properties.validated_resources = Some(resources.collect());
    respond_json(&view)
}

/// `POST …/whatIf`. The status is 200 even if the template is invalid, as in Azure.
pub(super) async fn what_if(call: Call<'_>) -> AdminResult {
    let mut request = DeploymentRequest::from_call(call)?;
    let result = preview_changes(call, &mut request).await;
    match result {
        Ok(response) => Ok(response),
        Err(AdminError::Deployment(error)) => respond_json(&failed_preview(&error)),
        Err(error) => Err(error),
    }
}

/// The result of a preview whose template is invalid.
fn failed_preview(error: &DeploymentError) -> WhatIfResult {
    let details = error.details().iter().map(|detail| DeploymentErrorView {
        code: detail.code.clone(),
        message: detail.message.clone(),
        target: None,
        details: Vec::new(),
    });
    WhatIfResult {
        status: "Failed".to_owned(),
        error: Some(DeploymentErrorView {
            code: error.code().to_owned(),
            message: error.to_string(),
            target: None,
            details: details.collect(),
        }),
        properties: None,
    }
}

async fn preview_changes(call: Call<'_>, request: &mut DeploymentRequest) -> AdminResult {
    let (declared, previews) = request.preview().await?;
    let existing = resource_groups::resource_ids(call.control, &request.path.scope);
    let only_ids = request.spec.is_preview_of_ids;
    let deletions = match request.spec.mode {
        DeploymentMode::Incremental => Vec::new(),
        DeploymentMode::Complete => run::undeclared_ids(&declared, existing.clone()),
    };
    let others = preview::OtherResources {
        deletions: preview::preview_deletions(&request.expander.caller, deletions, only_ids).await,
        existing,
    };
    let result = preview::preview_result(&declared, previews, others, only_ids);
    respond_json(&result)
}
