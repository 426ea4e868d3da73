//! Changes a resource of a template, as a request for it would.

use std::sync::Arc;

use actix_web::http::{Method, StatusCode};

use super::expansion::ResourceCaller;
use crate::{
    AdminError, AdminResult,
    arm::{
        concerned_shards, current_body, lock_key,
        operation::{ArmOperation, Call, ChangeLock},
        path::{self, ArmPath},
        subscriptions, topics,
    },
    audit,
};
use gridhook_api::what_if::Difference;
use gridhook_declared::DeclaredResource;
use gridhook_record::topic::TopicRecord;

/// A resource of a template and the operation that changes it.
pub(super) struct ResourceTarget {
    path: ArmPath,
    operation: &'static ArmOperation,
    body: String,
    /// Whether the resource is left as it is if it exists.
    only_if_not_exists: bool,
}

impl ResourceTarget {
    /// The PUT of a resource.
    pub(super) fn new(resource: &DeclaredResource) -> AdminResult<Self> {
        let body = resource.body.to_string();
        let target = Self::with_method(&resource.control_path(), &Method::PUT, body)?;
        Ok(Self {
            only_if_not_exists: resource.only_if_not_exists,
            ..target
        })
    }

    /// The DELETE of the resource with an id.
    pub(super) fn deletion(id: &str) -> AdminResult<Self> {
        Self::with_method(id, &Method::DELETE, String::new())
    }

    fn with_method(id: &str, method: &Method, body: String) -> AdminResult<Self> {
        let unknown = || AdminError::NoSuchPath(id.to_owned());
        let path = path::find_route(id).ok_or_else(unknown)?;
        let operation = path.route.operation(method).ok_or_else(unknown)?;
        Ok(Self {
            path,
            operation,
            body,
            only_if_not_exists: false,
        })
    }

    /// The changes that the deployment would make.
    pub(super) async fn difference(&self, caller: &ResourceCaller) -> AdminResult<Difference> {
        let lock = ChangeLock::default();
        self.compute_difference(self.call(caller, &lock)).await
    }

    async fn compute_difference(&self, call: Call<'_>) -> AdminResult<Difference> {
        // A PUT that is not made need not be valid.
        if self.only_if_not_exists && self.show(call).await.is_some() {
            return Ok(Difference {
                exists: true,
                ..Difference::default()
            });
        }
        let mut difference = self.operation.compute_difference(call).await?;
        if self.only_if_not_exists && difference.exists {
            difference.changes.clear();
        }
        Ok(difference)
    }

    /// The record that the PUT of a topic or domain would make, if it would.
    pub(super) fn planned_topic(&self, caller: &ResourceCaller) -> Option<TopicRecord> {
        let lock = ChangeLock::default();
        let (_, record) = topics::planned_change(self.call(caller, &lock)).ok()?;
        Some(record)
    }

    /// Checks an event subscription whose topic or domain does not exist yet.
    pub(super) fn check_subscription(
        &self,
        caller: &ResourceCaller,
        topic: &TopicRecord,
    ) -> AdminResult<()> {
        let lock = ChangeLock::default();
        subscriptions::check_planned(self.call(caller, &lock), topic)
    }

    /// The body of the resource's GET.
    pub(super) async fn current(&self, caller: &ResourceCaller) -> Option<serde_json::Value> {
        let lock = ChangeLock::default();
        let body = self.show(self.call(caller, &lock)).await?;
        serde_json::from_slice(&body).ok()
    }

    async fn show(&self, call: Call<'_>) -> Option<actix_web::web::Bytes> {
        current_body(self.path.route.operation(&Method::GET), call).await
    }

    fn call<'a>(&'a self, caller: &'a ResourceCaller, lock: &'a ChangeLock) -> Call<'a> {
        caller.call(&self.path, self.body.as_bytes(), lock)
    }

    /// Takes the lock of changes of the resource.
    async fn take_lock(&self, caller: &ResourceCaller) -> ChangeLock {
        let lock = ChangeLock::default();
        if let Some(key) = lock_key(&self.path) {
            lock.hold_lock(caller.control.lock_topic(&key).await);
        }
        lock
    }

    /// Changes the resource, unless it is already as declared, and returns the status. The audit
    /// trail has a record of the change, as of a request.
    pub(super) async fn apply(&self, caller: &ResourceCaller, id: &str) -> AdminResult<StatusCode> {
        let lock = self.take_lock(caller).await;
        let call = self.call(caller, &lock);
        match self.compute_difference(call).await {
            Ok(difference) if difference.exists && difference.changes.is_empty() => {
                return Ok(StatusCode::OK);
            }
            Ok(_) => {}
            // A domain topic that its first event subscription creates does not exist before.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let before = self.show(call).await;
        let call = Call {
            before: before.as_deref(),
            ..call
        };
        let change = self.operation.handle_call(call);
        let status = self.record_change(caller, Method::PUT, id, change).await?;
        let concerned = concerned_shards(&caller.control, &self.path);
        caller.control.wait_until_followed(concerned).await?;
        Ok(status)
    }

    /// Deletes the resource, and returns the status. The audit trail has a record of it, as of a
    /// request.
    pub(super) async fn delete(
        &self,
        caller: &ResourceCaller,
        id: &str,
    ) -> AdminResult<StatusCode> {
        let lock = self.take_lock(caller).await;
        let call = self.call(caller, &lock);
        let before = self.show(call).await;
        let deletion = async {
            audit::set_changes(|| audit::recorded_changes(before.as_deref(), None));
            self.operation.handle_call(call).await
        };
        let concerned = concerned_shards(&caller.control, &self.path);
        let status = self
            .record_change(caller, Method::DELETE, id, deletion)
            .await?;
        caller.control.wait_until_followed(concerned).await?;
        Ok(status)
    }

    /// Makes a change with an audit record.
    async fn record_change(
        &self,
        caller: &ResourceCaller,
        method: Method,
        id: &str,
        change: impl Future<Output = AdminResult>,
    ) -> AdminResult<StatusCode> {
        let operation = audit::begin_operation(
            &caller.control,
            &caller.request,
            Some(&caller.permissions),
            &method,
            id,
        );
        let Some(operation) = operation else {
            return Ok(change.await?.status());
        };
        let result = Arc::clone(&operation).execute(change).await;
        let result = result.map(|response| response.status());
        let status = match &result {
            Ok(status) => *status,
            Err(error) => actix_web::ResponseError::status_code(error),
        };
        audit::finish_operation(operation, &caller.request, status).await;
        result
    }
}
