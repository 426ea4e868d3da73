//! Changes a resource of a template, as a request for it would.

use crate::AdminResult;
use std::sync::Arc;

use actix_web::{
    HttpResponse,
    body::MessageBody,
    http::{Method, StatusCode},
};

use super::expansion::ResourceCaller;
use crate::{
    AdminError,
    arm::{
        concerned_shards, current_body, lock_key,
        operation::{Call, ChangeLock, Input, Operation},
        path::{self, ArmPath},
    },
    audit,
};
use gridhook_api::what_if::Difference;
use gridhook_declared::DeclaredResource;

/// What a PUT of a resource did.
pub(super) struct AppliedResource {
    /// The status of its response; 200 if nothing had to be changed.
    pub(super) status: StatusCode,
}

/// A resource of a template and the operation that changes it.
pub(super) struct ResourceTarget {
    path: ArmPath,
    operation: &'static Operation,
    body: String,
}

impl ResourceTarget {
    pub(super) fn new(resource: &DeclaredResource) -> AdminResult<Self> {
        let path = resource.control_path();
        let unknown = || AdminError::NoSuchPath(path.clone());
        let target = path::find_route(&path).ok_or_else(unknown)?;
        let operation = target.route.operation(&Method::PUT).ok_or_else(unknown)?;
        Ok(Self {
            path: target,
            operation,
            body: resource.body.to_string(),
        })
    }

    /// The changes that the PUT would make.
    pub(super) async fn difference(&self, caller: &ResourceCaller) -> AdminResult<Difference> {
        let lock = ChangeLock::default();
        self.operation
            .compute_difference(self.input(caller, &lock))
            .await
    }

    /// The body of the resource's GET.
    pub(super) async fn current(&self, caller: &ResourceCaller) -> Option<serde_json::Value> {
        let lock = ChangeLock::default();
        let body = self.show(caller, self.input(caller, &lock)).await?;
        serde_json::from_slice(&body).ok()
    }

    async fn show(
        &self,
        caller: &ResourceCaller,
        input: Input<'_>,
    ) -> Option<actix_web::web::Bytes> {
        let get = self.path.route.operation(&Method::GET);
        let call = Call {
            request: &caller.request,
            input,
        };
        current_body(get, call).await
    }

    fn input<'a>(&'a self, caller: &'a ResourceCaller, lock: &'a ChangeLock) -> Input<'a> {
        caller.input(&self.path, self.body.as_bytes(), lock)
    }

    /// Changes the resource, unless it is already as declared. The audit trail has a record of the
    /// change, as of a request.
    pub(super) async fn apply(
        &self,
        caller: &ResourceCaller,
        id: &str,
    ) -> AdminResult<AppliedResource> {
        let lock = ChangeLock::default();
        if let Some(key) = lock_key(&self.path) {
            lock.hold_lock(caller.control.lock_topic(&key).await);
        }
        let input = self.input(caller, &lock);
        match self.operation.compute_difference(input).await {
            Ok(difference) if difference.exists && difference.changes.is_empty() => {
                return Ok(AppliedResource {
                    status: StatusCode::OK,
                });
            }
            Ok(_) => {}
            // A domain topic that its first event subscription creates does not exist before.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let before = self.show(caller, input).await;
        let input = Input {
            before: before.as_deref(),
            ..input
        };
        let operation = audit::begin_part(
            &caller.control,
            &caller.request,
            &caller.permissions,
            Method::PUT,
            id,
        );
        let Some(operation) = operation else {
            let response = self.operation.put_resource(input).await?;
            self.wait_until_followed(caller).await?;
            return applied(response);
        };
        let result = Arc::clone(&operation)
            .execute(self.operation.put_resource(input))
            .await;
        let status = match &result {
            Ok(response) => response.status(),
            Err(error) => actix_web::ResponseError::status_code(error),
        };
        audit::finish_operation(operation, &caller.request, status).await;
        let response = result?;
        self.wait_until_followed(caller).await?;
        applied(response)
    }

    async fn wait_until_followed(&self, caller: &ResourceCaller) -> Result<(), AdminError> {
        let concerned = concerned_shards(&caller.control, &self.path);
        caller.control.wait_until_followed(concerned).await
    }
}

fn applied(response: HttpResponse<impl MessageBody>) -> AdminResult<AppliedResource> {
    Ok(AppliedResource {
        status: response.status(),
    })
}
