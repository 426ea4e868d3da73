//! What a file declares is made so: at the start, before anybody is served. What is so already is not touched, so that a
//! start asks no endpoint that agreed before; what the file does not speak of stays as it is.

use tracing::info;

use super::{
    Control, Error,
    arm::{self, path},
    auth::Caller,
    model::subscription::Form,
};
use crate::declared::{Declared, Resource};

/// A resource could not be made as it is declared; those before it were.
#[derive(Debug, thiserror::Error)]
#[error("the {resource}: {error}")]
pub struct Undone {
    resource: String,
    error: Box<Error>,
}

/// Makes what is declared, in its order.
pub async fn declare(control: &Control, declared: &Declared) -> Result<(), Undone> {
    let (mut made, mut changed) = (0, 0);
    for resource in &declared.resources {
        let undone = |error: Error| Undone { resource: resource.told(), error: Box::new(error) };
        match put(control, resource).await.map_err(undone)? {
            Done::Made => made += 1,
            Done::Changed => changed += 1,
            Done::Nothing => {}
        }
    }
    let unchanged = declared.resources.len() - made - changed;
    info!(made, changed, unchanged, "what is declared is there");
    Ok(())
}

enum Done {
    Made,
    Changed,
    Nothing,
}

async fn put(control: &Control, resource: &Resource) -> Result<Done, Error> {
    let (path, body) = (resource.path(), resource.body.to_string());
    let unknown = || Error::NoSuchPath(path.clone());
    let target = path::parse(&path).ok_or_else(unknown)?;
    let difference = arm::difference(control, target.clone(), body.as_bytes())?;
    if difference.exists && difference.changes.is_empty() {
        return Ok(Done::Nothing);
    }
    match target {
        path::Target::Namespace(namespace, _) => {
            arm::namespaces::put(control, &Caller::Declared, namespace, body.as_bytes()).await?
        }
        path::Target::Topic(topic, _) if topic.namespace.is_some() => {
            arm::namespace_topics::put(control, &Caller::Declared, topic, body.as_bytes()).await?
        }
        path::Target::Topic(topic, _) => arm::topics::put(control, &Caller::Declared, topic, body.as_bytes()).await?,
        path::Target::DomainTopic(topic) => {
            arm::domain_topics::put(control, &Caller::Declared, &topic, body.as_bytes()).await?
        }
        path::Target::Subscription(topic, _, name, _) => {
            arm::subscriptions::put(control, &Caller::Declared, &topic, Form::Nested, &name, body.as_bytes()).await?
        }
        _ => return Err(unknown()),
    };
    Ok(if difference.exists { Done::Changed } else { Done::Made })
}
