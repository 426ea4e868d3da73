//! Event subscriptions: made, read, changed, deleted.

use actix_web::HttpResponse;
use serde::Serialize;
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
    let value = topic.subscriptions().iter().map(|subscription| View::new(subscription, &record, form)).collect();
    Ok(HttpResponse::Ok().json(List { value }))
}

pub(super) fn get(control: &Control, path: &TopicPath, form: Form, name: &str) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(View::new(&subscription, &topic.record(), form)))
}

pub(super) async fn put(
    control: &Control,
    path: &TopicPath,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<HttpResponse, Error> {
    let _turn = control.turn(&path.name).await;
    let topic = topic(control, path)?;
    let record = topic.record();
    // What exists keeps the name that it was made with.
    let name = topic.subscription(name).map_or_else(|| Name::new(name), |existing| existing.name.clone());
    let ranges = control.editions.ranges(&record.edition)?;
    let wished = subscription::put(&name, &record, ranges, body)?;
    save(control, &record, form, wished).await
}

pub(super) async fn patch(
    control: &Control,
    path: &TopicPath,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<HttpResponse, Error> {
    let _turn = control.turn(&path.name).await;
    let topic = topic(control, path)?;
    let record = topic.record();
    let existing = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let ranges = control.editions.ranges(&record.edition)?;
    let wished = subscription::patch(&existing, &record, ranges, body)?;
    save(control, &record, form, wished).await
}

async fn save(
    control: &Control,
    topic: &TopicRecord,
    form: Form,
    wished: SubscriptionRecord,
) -> Result<HttpResponse, Error> {
    let saved = control.registry.put_subscription(topic.name.as_str(), wished).await?;
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
    let subscription = topic(control, path)?.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(FullUrl { endpoint_url: &subscription.webhook.endpoint_url }))
}

/// None yet, as for every subscription: the mappings are refused when it is put.
pub(super) fn delivery_attributes(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    topic(control, path)?.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    Ok(HttpResponse::Ok().json(List::<()> { value: Vec::new() }))
}
