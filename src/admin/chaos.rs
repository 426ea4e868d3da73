//! Parts broken on purpose, so that an operator (or a test) sees the server recover.
//!
//! Only where the settings switch it on, and only with the admin token; elsewhere these paths do not exist. Each act is
//! logged before it is done: a server that dies of one has said why.

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;

use super::{
    Control, Error,
    arm::read_body,
    model::{Invalid, parse, read},
};
use crate::topic::registry::{By, Kill, Victim};

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ChaosActor)]
enum Actor {
    Topic,
    Subscription,
    Delivery,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ChaosMeans)]
enum Means {
    Panic,
    Stop,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosKill)]
pub(super) struct KillBody {
    actor: Actor,
    topic: String,
    subscription: Option<String>,
    by: Means,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = ChaosPoison)]
pub(super) struct PoisonBody {
    topic: String,
    subscription: String,
    event_id: String,
    times: u32,
}

/// `POST /chaos/kill`. The answer repeats what was done.
pub(super) async fn kill(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: KillBody = read(parse(&read_body(payload).await?)?)?;
    let KillBody { actor, topic, subscription, by } = &body;
    let what = match (actor, subscription) {
        (Actor::Topic, None) => Victim::Topic,
        (Actor::Topic, Some(_)) => {
            return Err(Invalid::new("subscription", "is given and the actor is a topic's; leave it out").into());
        }
        (Actor::Subscription | Actor::Delivery, None) => {
            return Err(Invalid::new("subscription", "is missing; the actor is one subscription's").into());
        }
        (Actor::Subscription, Some(_)) => Victim::Subscription,
        (Actor::Delivery, Some(_)) => Victim::Delivery,
    };
    let how = match by {
        Means::Panic => By::Panic,
        Means::Stop => By::Stop,
    };
    warn!(?actor, topic, subscription, ?by, "chaos: an actor is killed on purpose");
    control.registry.kill(Kill { topic: topic.clone(), subscription: subscription.clone(), what, by: how })?;
    Ok(HttpResponse::Ok().json(body))
}

/// `POST /chaos/poison`. The answer repeats what was done.
pub(super) async fn poison(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: PoisonBody = read(parse(&read_body(payload).await?)?)?;
    let PoisonBody { topic, subscription, event_id, times } = &body;
    if *times == 0 {
        return Err(Invalid::new("times", "is 0; allowed is 1 or more").into());
    }
    warn!(topic, subscription, event_id, times, "chaos: an event kills on purpose whoever takes it in hand");
    control.registry.poison(topic, subscription, event_id, *times)?;
    Ok(HttpResponse::Ok().json(body))
}
