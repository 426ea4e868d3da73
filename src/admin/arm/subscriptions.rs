//! Event subscriptions: made, read, changed, deleted.

use std::sync::Arc;

use actix_web::HttpResponse;
use serde::Serialize;
use tokio::sync::MutexGuard;
use tracing::info;

use super::{List, TopicPath, no_subscription, topic};
use crate::{
    admin::{
        Control, Error,
        model::subscription::{self, Form, View},
    },
    event::Name,
    subscription::record::SubscriptionRecord,
    topic::record::TopicRecord,
};

pub(super) fn list(control: &Control, path: &TopicPath, form: Form) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let record = topic.record();
    let all = control.registry.all_provisioned(&topic);
    let value = all.iter().map(|subscription| View::provisioned(subscription, &record, form)).collect();
    Ok(HttpResponse::Ok().json(List { value }))
}

pub(super) fn get(control: &Control, path: &TopicPath, form: Form, name: &str) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let subscription = control.registry.provisioned(&topic, name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(View::provisioned(&subscription, &topic.record(), form)))
}

pub(super) async fn put(
    control: &Control,
    path: &TopicPath,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<HttpResponse, Error> {
    let turn = control.turn(&path.name).await;
    let topic = topic(control, path)?;
    let record = topic.record();
    // What exists keeps the name that it was made with.
    let existing = control.registry.provisioned(&topic, name);
    let name = existing.map_or_else(|| Name::new(name), |existing| existing.record.name.clone());
    let ranges = control.editions.ranges(&record.edition)?;
    let wished = subscription::put(&name, &record, ranges, body)?;
    save(control, turn, &record, form, wished, None).await
}

pub(super) async fn patch(
    control: &Control,
    path: &TopicPath,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<HttpResponse, Error> {
    let turn = control.turn(&path.name).await;
    let topic = topic(control, path)?;
    let record = topic.record();
    let existing = control.registry.provisioned(&topic, name).ok_or_else(|| no_subscription(path, name))?.record;
    let ranges = control.editions.ranges(&record.edition)?;
    let wished = subscription::patch(&existing, &record, ranges, body)?;
    save(control, turn, &record, form, wished, Some(existing)).await
}

/// An endpoint takes as long as it likes to answer its handshake: others have their turn meanwhile, and a change that was
/// made from `basis` must find it as it was.
async fn save(
    control: &Control,
    turn: MutexGuard<'_, ()>,
    topic: &TopicRecord,
    form: Form,
    wished: SubscriptionRecord,
    basis: Option<Arc<SubscriptionRecord>>,
) -> Result<HttpResponse, Error> {
    let name = topic.name.as_str();
    if control.registry.must_ask(name, &wished) {
        drop(turn);
        let saved = control.registry.validate(name, wished, basis).await?;
        return Ok(HttpResponse::Created().json(View::provisioned(&saved, topic, form)));
    }
    let saved = control.registry.put_subscription(name, wished).await?;
    info!(topic = %topic.name, subscription = %saved.name, version = saved.version, "event subscription saved");
    Ok(HttpResponse::Created().json(View::new(&saved, topic, form)))
}

pub(super) async fn delete(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    let _turn = control.turn(&path.name).await;
    topic(control, path)?;
    if control.registry.delete_subscription(&path.name, name).await? {
        info!(topic = path.name, subscription = name, "event subscription deleted");
    }
    Ok(HttpResponse::NoContent().finish())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FullUrl<'a> {
    endpoint_url: &'a str,
}

pub(super) fn full_url(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let subscription = control.registry.provisioned(&topic, name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(FullUrl { endpoint_url: &subscription.record.webhook.endpoint_url }))
}

/// The only call that tells the secrets among them.
pub(super) fn delivery_attributes(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let subscription = control.registry.provisioned(&topic, name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(List { value: subscription.record.webhook.delivery_properties.iter().collect() }))
}
