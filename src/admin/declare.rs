//! Applies the configuration file `server.apply` at the start, before requests are served. Unchanged resources are not
//! written, so that their endpoints are not validated again. Resources that the file does not declare are kept.

use tracing::info;

use super::{
    AdminError, Control,
    arm::{self, path},
    auth::AdminCaller,
    model::subscription::PathForm,
};
use crate::declared::{Declared, DeclaredResource};

/// A resource could not be applied; those before it in the file were.
#[derive(Debug, thiserror::Error)]
#[error("the {resource}: {error}")]
pub struct ApplyError {
    resource: String,
    error: Box<AdminError>,
}

/// Applies the declared resources in their order.
pub async fn declare(control: &Control, declared: &Declared) -> Result<(), ApplyError> {
    let (mut created, mut changed) = (0, 0);
    for resource in &declared.resources {
        let failed = |error: AdminError| ApplyError { resource: resource.display_name(), error: Box::new(error) };
        match put(control, resource).await.map_err(failed)? {
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

async fn put(control: &Control, resource: &DeclaredResource) -> Result<Applied, AdminError> {
    let (path, body) = (resource.path(), resource.body.to_string());
    let unknown = || AdminError::NoSuchPath(path.clone());
    let target = path::parse(&path).ok_or_else(unknown)?;
    let difference = arm::difference(control, target.clone(), body.as_bytes())?;
    if difference.exists && difference.changes.is_empty() {
        return Ok(Applied::Unchanged);
    }
    match target {
        path::ResourcePath::Namespace(namespace, _) => {
            arm::namespaces::put(control, &AdminCaller::Declared, namespace, body.as_bytes()).await?
        }
        path::ResourcePath::Topic(topic, _) if topic.namespace.is_some() => {
            arm::namespace_topics::put(control, &AdminCaller::Declared, topic, body.as_bytes()).await?
        }
        path::ResourcePath::Topic(topic, _) => {
            arm::topics::put(control, &AdminCaller::Declared, topic, body.as_bytes()).await?
        }
        path::ResourcePath::DomainTopic(topic) => {
            arm::domain_topics::put(control, &AdminCaller::Declared, &topic, body.as_bytes()).await?
        }
        path::ResourcePath::Subscription(topic, _, name, _) => {
            arm::subscriptions::put(control, &AdminCaller::Declared, &topic, PathForm::Nested, &name, body.as_bytes())
                .await?
        }
        _ => return Err(unknown()),
    };
    Ok(if difference.exists { Applied::Changed } else { Applied::Created })
}
