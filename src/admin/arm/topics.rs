//! Topics: made, read, changed, deleted; and their keys.

use actix_web::HttpResponse;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tracing::info;

use super::{List, TopicPath, topic};
use crate::{
    admin::{
        Control, Error,
        auth::secret,
        model::{
            subscription,
            topic::{Key, View, Wish},
        },
    },
    topic::{
        record::{Keys, Scope, TopicRecord},
        registry::Topic,
    },
};

/// As many as Azure's keys have: 256 bits.
const KEY_BYTES: usize = 32;

/// Scopes are compared as ARM does, without case.
pub(super) fn lives_in(record: &TopicRecord, scope: &Scope) -> bool {
    is_in(record, &scope.subscription, Some(&scope.resource_group))
}

fn is_in(record: &TopicRecord, subscription: &str, resource_group: Option<&str>) -> bool {
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    same(&record.scope.subscription, subscription)
        && resource_group.is_none_or(|resource_group| same(&record.scope.resource_group, resource_group))
}

pub(super) fn list(control: &Control, subscription: &str, resource_group: Option<&str>) -> HttpResponse {
    let value = control
        .registry
        .topics()
        .iter()
        .map(|topic| topic.record())
        .filter(|record| is_in(record, subscription, resource_group))
        .map(|record| View::new(&record, &control.public_url))
        .collect();
    HttpResponse::Ok().json(List { value })
}

pub(super) fn get(control: &Control, path: &TopicPath) -> Result<HttpResponse, Error> {
    let record = topic(control, path)?.record();
    Ok(HttpResponse::Ok().json(View::new(&record, &control.public_url)))
}

pub(super) async fn put(control: &Control, path: TopicPath, body: &[u8]) -> Result<HttpResponse, Error> {
    let wish = Wish::put(&path.name, body)?;
    let _turn = control.turn(&path.name).await;
    let record = match control.registry.topic(&path.name) {
        Some(topic) => {
            let existing = topic.record();
            if !lives_in(&existing, &path.scope) {
                return Err(Error::Conflict(format!(
                    "The name '{}' is taken: names of topics are unique in the server, and {} exists.",
                    path.name,
                    existing.resource_id()
                )));
            }
            update(control, &topic, wish)?
        }
        None => wish.create(&path.name, path.scope, new_keys()?, &control.editions)?,
    };
    save(control, record).await
}

pub(super) async fn patch(control: &Control, path: &TopicPath, body: &[u8]) -> Result<HttpResponse, Error> {
    let _turn = control.turn(&path.name).await;
    let topic = topic(control, path)?;
    let wish = Wish::patch(&topic.record(), body)?;
    save(control, update(control, &topic, wish)?).await
}

/// Another edition has other ranges: it is refused as long as a subscription asks for more than it allows.
fn update(control: &Control, topic: &Topic, wish: Wish) -> Result<TopicRecord, Error> {
    let existing = topic.record();
    let record = wish.update(&existing, &control.editions)?;
    if record.edition != existing.edition {
        let ranges = control.editions.ranges(&record.edition)?;
        let wished = control.registry.all_provisioned(topic).into_iter().map(|wished| wished.record);
        for subscription in topic.subscriptions().into_iter().chain(wished) {
            subscription::fits(&subscription, ranges)?;
        }
    }
    Ok(record)
}

async fn save(control: &Control, record: TopicRecord) -> Result<HttpResponse, Error> {
    let saved = control.registry.put_topic(record).await?.record();
    info!(topic = %saved.name, edition = saved.edition, "topic saved");
    Ok(HttpResponse::Created().json(View::new(&saved, &control.public_url)))
}

pub(super) async fn delete(control: &Control, path: &TopicPath) -> Result<HttpResponse, Error> {
    let _turn = control.turn(&path.name).await;
    // What lives under another scope is not this resource: as gone as it can be.
    if topic(control, path).is_ok() && control.registry.delete_topic(&path.name).await? {
        info!(topic = path.name, "topic deleted");
    }
    Ok(HttpResponse::NoContent().finish())
}

#[derive(Serialize)]
struct SharedAccessKeys<'a> {
    key1: &'a str,
    key2: &'a str,
}

fn told(keys: &Keys) -> HttpResponse {
    HttpResponse::Ok().json(SharedAccessKeys { key1: &keys.key1, key2: &keys.key2 })
}

pub(super) fn list_keys(control: &Control, path: &TopicPath) -> Result<HttpResponse, Error> {
    Ok(told(&topic(control, path)?.record().keys))
}

pub(super) async fn regenerate_key(control: &Control, path: &TopicPath, body: &[u8]) -> Result<HttpResponse, Error> {
    let key = Key::read(body)?;
    let _turn = control.turn(&path.name).await;
    let mut record = TopicRecord::clone(&topic(control, path)?.record());
    match key {
        Key::Key1 => record.keys.key1 = secret(KEY_BYTES, &STANDARD)?,
        Key::Key2 => record.keys.key2 = secret(KEY_BYTES, &STANDARD)?,
    }
    let saved = control.registry.put_topic(record).await?.record();
    info!(topic = %saved.name, ?key, "access key made anew");
    Ok(told(&saved.keys))
}

fn new_keys() -> Result<Keys, Error> {
    Ok(Keys { key1: secret(KEY_BYTES, &STANDARD)?, key2: secret(KEY_BYTES, &STANDARD)? })
}
