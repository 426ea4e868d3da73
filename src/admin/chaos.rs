//! Parts broken on purpose, so that an operator (or a test) sees the server recover.
//!
//! Only where the settings switch it on, and only with the admin token; elsewhere these paths do not exist. Each act is
//! logged before it is done: a server that dies of one has said why.

use actix_web::{HttpRequest, HttpResponse, http::Method, web};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    Control, Error,
    arm::read_body,
    model::{Invalid, parse, read},
};
use crate::topic::registry::{By, Kill, Victim};

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Actor {
    Topic,
    Subscription,
    Delivery,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Means {
    Panic,
    Stop,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct KillBody {
    actor: Actor,
    topic: String,
    subscription: Option<String>,
    by: Means,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PoisonBody {
    topic: String,
    subscription: String,
    event_id: String,
    times: u32,
}

/// `POST /chaos/kill` and `POST /chaos/poison`. The answer repeats what was done.
pub(super) async fn act(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> Result<HttpResponse, Error> {
    let act = request.match_info().query("act").to_owned();
    if !matches!(act.as_str(), "kill" | "poison") {
        return Err(Error::NoSuchPath(request.path().to_owned()));
    }
    if request.method() != Method::POST {
        return Err(Error::Method { method: request.method().to_string(), allowed: "POST" });
    }
    let body = parse(&read_body(payload).await?)?;
    if act == "kill" { kill(&control, read(body)?) } else { poison(&control, read(body)?) }
}

fn kill(control: &Control, body: KillBody) -> Result<HttpResponse, Error> {
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

fn poison(control: &Control, body: PoisonBody) -> Result<HttpResponse, Error> {
    let PoisonBody { topic, subscription, event_id, times } = &body;
    if *times == 0 {
        return Err(Invalid::new("times", "is 0; allowed is 1 or more").into());
    }
    warn!(topic, subscription, event_id, times, "chaos: an event kills on purpose whoever takes it in hand");
    control.registry.poison(topic, subscription, event_id, *times)?;
    Ok(HttpResponse::Ok().json(body))
}
