//! Applies the configuration file `server.apply` at the start, before requests are served.
//! Unchanged resources are not written, so that their endpoints are not validated again. Resources
//! that the file does not declare are kept.

use actix_web::http::Method;
use tracing::info;

use super::{
    AdminError, Control,
    arm::{Call, ChangeLock, current_body, path},
    auth::AdminCaller,
    permissions::Permissions,
};
use crate::AdminResult;
use gridhook_declared::{Declared, DeclaredResource};
use gridhook_record::token::{Grant, TokenRole};

/// A resource could not be applied; those before it in the file were.
#[derive(Debug, thiserror::Error)]
#[error("the {resource}: {error}")]
pub struct ApplyError {
    resource: String,
    error: Box<AdminError>,
}

/// Applies the declared resources in their order.
pub async fn apply_declared(control: &Control, declared: &Declared) -> Result<(), ApplyError> {
    let mut created = 0;
    let mut changed = 0;
    for resource in &declared.resources {
        let applied = put_resource(control, resource)
            .await
            .map_err(|error| ApplyError {
                resource: resource.display_name(),
                error: Box::new(error),
            })?;
        match applied {
            Applied::Created => created += 1,
            Applied::Changed => changed += 1,
            Applied::Unchanged => {}
        }
    }
    let unchanged = declared.resources.len() - created - changed;
    info!(created, changed, unchanged, "configuration file applied");
    Ok(())
}

enum Applied {
    Created,
    Changed,
    Unchanged,
}

async fn put_resource(control: &Control, resource: &DeclaredResource) -> AdminResult<Applied> {
    let path = resource.control_path();
    let body = resource.body.to_string();
    let no_such_path = || AdminError::NoSuchPath(path.clone());
    let target = path::find_route(&path).ok_or_else(no_such_path)?;
    let operation = target
        .route
        .operation(&Method::PUT)
        .ok_or_else(no_such_path)?;
    // No request is served yet, so no other change needs the lock.
    let lock = &ChangeLock::default();
    let permissions = &Permissions::new(
        AdminCaller::Declared,
        vec![Grant::for_server(TokenRole::Admin)],
    );
    let call = Call::new(control, permissions, &target, body.as_bytes(), lock);
    // A PUT that is not made need not be valid.
    let get = target.route.operation(&Method::GET);
    if resource.only_if_not_exists && current_body(get, call).await.is_some() {
        return Ok(Applied::Unchanged);
    }
    let difference = operation.compute_difference(call).await?;
    let is_left = difference.changes.is_empty() || resource.only_if_not_exists;
    if difference.exists && is_left {
        return Ok(Applied::Unchanged);
    }
    operation.handle_call(call).await?;
    Ok(if difference.exists {
        Applied::Changed
    } else {
        Applied::Created
    })
}
