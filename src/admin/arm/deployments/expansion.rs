//! A template with the resource group that it is deployed to: expands it, and finds the states of
//! resources that its expressions need.

use std::sync::Arc;

use actix_web::{HttpRequest, body::MessageBody, http::Method, web};
use serde_json::Value;

use super::{DeploymentError, LEAVE_OUT_SETTING};
use crate::{
    AdminError, AdminResult, Control,
    arm::{
        operation::{Call, ChangeLock},
        path,
    },
    permissions::Permissions,
};
use gridhook_api::account::ResourceGroup as ResourceGroupView;
use gridhook_compute::ComputeError;
use gridhook_declared::{
    Declared, ForeignResources, ResourceGroup, StateKey, TemplateOptions, read_template,
};
use gridhook_record::topic::ArmScope;

/// Maximum bytes of an expansion: of the template, its parameters and its states, with room for the
/// values in between.
const EXPANSION_BYTES: usize = 16 << 20;

/// Maximum number of times that a template is expanded for one request: each state that it needs
/// may make an expression need another one.
pub(super) const EXPANSIONS_MAX: usize = 64;

pub(super) struct TemplateExpander {
    template: Arc<Value>,
    group: ResourceGroup,
    options: TemplateOptions,
    expansions: usize,
    /// The caller as whom resources are read and changed.
    pub(super) caller: ResourceCaller,
}

pub(super) struct ResourceCaller {
    pub(super) control: web::Data<Control>,
    pub(super) permissions: Permissions,
    /// The request for the deployment; handlers of reads take one.
    pub(super) request: HttpRequest,
}

impl ResourceCaller {
    /// The caller of a request.
    pub(super) fn from_call(call: Call<'_>) -> AdminResult<Self> {
        let request = call.request()?;
        let control = request
            .app_data::<web::Data<Control>>()
            .ok_or(AdminError::Broken("no control plane is set up"))?;
        Ok(Self {
            control: control.clone(),
            permissions: call.permissions.clone(),
            request: request.clone(),
        })
    }

    /// The call of a handler.
    pub(super) fn call<'a>(
        &'a self,
        path: &'a path::ArmPath,
        body: &'a [u8],
        lock: &'a ChangeLock,
    ) -> Call<'a> {
        Call {
            request: Some(&self.request),
            ..Call::new(&self.control, &self.permissions, path, body, lock)
        }
    }

    /// The response to a GET, or to a POST of an action, of a resource that exists.
    async fn fetch_state(&self, key: &StateKey) -> AdminResult<Option<Value>> {
        let (method, path) = match &key.action {
            None => (Method::GET, key.id.clone()),
            Some(action) => (Method::POST, format!("{}/{action}", key.id)),
        };
        let target = path::find_route(&path);
        let operation = target
            .as_ref()
            .and_then(|target| target.route.operation(&method));
        let (Some(target), Some(operation)) = (&target, operation) else {
            return Ok(None);
        };
        let lock = ChangeLock::default();
        match operation.handle_call(self.call(target, &[], &lock)).await {
            Ok(response) => {
                let body = response.into_body().try_into_bytes().ok();
                Ok(body.and_then(|body| serde_json::from_slice(&body).ok()))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl TemplateExpander {
    /// A template that is deployed to a resource group under a name.
    pub(super) fn new(
        caller: ResourceCaller,
        scope: &ArmScope,
        group: &ResourceGroupView,
        name: &str,
        template: Value,
        parameters: &Value,
    ) -> Result<Self, DeploymentError> {
        let control = &caller.control;
        let mut options = TemplateOptions::at_time(control.clock.now().0);
        options.deployment = name.to_owned();
        options.location.clone_from(&group.location);
        options.tags.clone_from(&group.tags);
        options.leave_out_option = LEAVE_OUT_SETTING;
        options.environment = Some(control.environment(&caller.request));
        if control.ignores_foreign {
            options.foreign = ForeignResources::LeftOut;
        }
        if !parameters.is_null() {
            options.add_parameters(parameters)?;
        }
        Ok(Self {
            template: Arc::new(template),
            group: ResourceGroup {
                subscription: scope.subscription.clone(),
                resource_group: group.name.clone(),
            },
            options,
            expansions: 0,
            caller,
        })
    }

    /// Expands the template with the known states, where it delays nobody else.
    pub(super) async fn expand(&mut self) -> AdminResult<Declared> {
        self.expansions += 1;
        if self.expansions > EXPANSIONS_MAX {
            return Err(DeploymentError::Steps.into());
        }
        let template = Arc::clone(&self.template);
        let group = self.group.clone();
        let options = self.options.clone();
        let work = async move |meter: gridhook_compute::Meter| {
            meter.reserve_bytes(EXPANSION_BYTES)?;
            Ok::<_, ComputeError>(read_template(&template, &group, &options))
        };
        let caller = &self.caller.permissions.caller;
        let expansion = self.caller.control.compute_for(caller, work).await??;
        Ok(expansion.map_err(DeploymentError::from)?)
    }

    /// Expands the template, with the states of existing resources that it needs. Those of
    /// `missing` are not read, because the deployment has yet to change them.
    pub(super) async fn expand_with_states(
        &mut self,
        is_missing: impl Fn(&Declared, &str) -> bool,
    ) -> AdminResult<Declared> {
        loop {
            let declared = self.expand().await?;
            let mut is_new = false;
            for pending in &declared.template.pending {
                let needs = &pending.needs;
                if self.options.states.contains_key(needs) || is_missing(&declared, &needs.id) {
                    continue;
                }
                if let Some(state) = self.caller.fetch_state(needs).await? {
                    self.options.states.insert(needs.clone(), state);
                    is_new = true;
                }
            }
            if !is_new {
                return Ok(declared);
            }
        }
    }

    /// Forgets the states, because resources have changed.
    pub(super) fn forget_states(&mut self) {
        self.options.states.clear();
    }
}
