//! What a file declares is made so: at the start, before anybody is served. What is so already is not touched, so that a
//! start asks no endpoint that agreed before; what the file does not speak of stays as it is.

use tracing::info;

use super::{
    AdminError, Control,
    arm::{self, path},
    auth::AdminCaller,
    model::subscription::PathForm,
};
use crate::declared::{Declared, DeclaredResource};

/// A resource could not be made as it is declared; those before it were.
#[derive(Debug, thiserror::Error)]
#[error("the {resource}: {error}")]
pub struct ApplyError {
    resource: String,
    error: Box<AdminError>,
}

/// Makes what is declared, in its order.
pub async fn declare(control: &Control, declared: &Declared) -> Result<(), ApplyError> {
    let (mut made, mut changed) = (0, 0);
    for resource in &declared.resources {
        let undone = |error: AdminError| ApplyError { resource: resource.display_name(), error: Box::new(error) };
        match put(control, resource).await.map_err(undone)? {
            Applied::Made => made += 1,
            Applied::Changed => changed += 1,
            Applied::Nothing => {}
        }
    }
    let unchanged = declared.resources.len() - made - changed;
    info!(made, changed, unchanged, "what is declared is there");
    Ok(())
}

enum Applied {
    Made,
    Changed,
    Nothing,
}

async fn put(control: &Control, resource: &DeclaredResource) -> Result<Applied, AdminError> {
    let (path, body) = (resource.path(), resource.body.to_string());
    let unknown = || AdminError::NoSuchPath(path.clone());
    let target = path::parse(&path).ok_or_else(unknown)?;
    let difference = arm::difference(control, target.clone(), body.as_bytes())?;
    if difference.exists && difference.changes.is_empty() {
        return Ok(Applied::Nothing);
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
    Ok(if difference.exists { Applied::Changed } else { Applied::Made })
}
