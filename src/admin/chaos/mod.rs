//! Parts broken on purpose, so that an operator (or a test) sees the server recover.
//!
//! Only where the settings switch it on, and only with the admin token; elsewhere these paths do not exist. Each act is
//! logged before it is done: a server that dies of one has said why. What goes on ends by itself ([`desk`]).

mod body;
pub mod desk;

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde::Serialize;
use tracing::warn;

pub(super) use self::body::{ClockBody, KillBody, PoisonBody, ResponsesBody, StallBody, WritesBody};
use self::{
    body::{Actor, Kind, Means, Stalled},
    desk::{Fault, On, Tools},
};
use super::{
    Control, Error,
    arm::read_body,
    model::{Invalid, parse, read, value_of},
};
use crate::{
    chaos::{Ordeal, Suffer},
    topic::registry::{By, Mischief, Rule, Victim},
};

/// A poisoned event is forgotten after so long, where nothing is said of it.
const POISON_MOST: Duration = Duration::from_secs(600);

/// Whom an act befalls.
enum Whom {
    Actor(Victim),
    /// The dead-letter actor of any store.
    DeadLetters,
}

/// `GET /chaos`: what is on, and how often what was done.
pub(super) async fn report(control: web::Data<Control>) -> HttpResponse {
    HttpResponse::Ok().json(control.desk.report())
}

/// `DELETE /chaos`: everything ends. Answers how it is then.
pub(super) async fn end(control: web::Data<Control>) -> HttpResponse {
    warn!("chaos: everything ends");
    control.desk.end_all(&control.registry);
    HttpResponse::Ok().json(control.desk.report())
}

/// `POST /chaos/kill`. The answer says who was killed.
pub(super) async fn kill(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: KillBody = read(parse(&read_body(payload).await?)?)?;
    let KillBody { actor, topic, subscription, by } = &body;
    warn!(?actor, topic, subscription, ?by, "chaos: an actor is killed on purpose");
    if let Actor::Delivery = actor {
        let (topic, subscription) = body::names(topic.as_deref(), subscription.as_deref())?;
        let by = match by {
            Means::Panic => By::Panic,
            Means::Stop => By::Stop,
        };
        control.registry.kill_delivery(topic, subscription, by)?;
        control.desk.count(|acts| &mut acts.deliveries_killed);
        return Ok(HttpResponse::Ok().json(body));
    }
    let whom = control.whom(*actor, topic.as_deref(), subscription.as_deref())?;
    let ordeal = match by {
        Means::Panic => Ordeal::Panic,
        Means::Stop => Ordeal::Stop,
    };
    control.befall(&whom, ordeal)?;
    control.desk.count(|acts| match &whom {
        Whom::Actor(Victim::Topic(_)) => &mut acts.topics_killed,
        Whom::Actor(Victim::Subscription(..)) => &mut acts.subscriptions_killed,
        Whom::DeadLetters => &mut acts.dead_letters_killed,
    });
    let (actor, topic, subscription) = whom.told();
    Ok(HttpResponse::Ok().json(KillBody { actor, topic, subscription, by: *by }))
}

/// `POST /chaos/stall`: an actor, or the journal, does nothing for a while.
pub(super) async fn stall(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: StallBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::stall_time(&body.duration)?;
    warn!(?body, "chaos: a part stalls on purpose");
    let actor = match body.actor {
        Stalled::Journal => {
            let on = begin(&control, Fault::StallJournal, &body, most, |_, tools| tools.faults.stall(true))?;
            control.desk.count(|acts| &mut acts.journal_stalls);
            return Ok(HttpResponse::Ok().json(on));
        }
        Stalled::Topic => Actor::Topic,
        Stalled::Subscription => Actor::Subscription,
        Stalled::DeadLetter => Actor::DeadLetter,
        Stalled::Random => Actor::Random,
    };
    let whom = control.whom(actor, body.topic.as_deref(), body.subscription.as_deref())?;
    let (stalled, pause) = desk::pause(most);
    control.befall(&whom, Ordeal::Stall(pause))?;
    control.desk.count(|acts| &mut acts.actors_stalled);
    let (actor, topic, subscription) = whom.told();
    let actor = match actor {
        Actor::Topic => Stalled::Topic,
        Actor::Subscription | Actor::Delivery | Actor::Random => Stalled::Subscription,
        Actor::DeadLetter => Stalled::DeadLetter,
    };
    let body = StallBody { actor, topic, subscription, duration: body.duration };
    Ok(HttpResponse::Ok().json(begin(&control, Fault::Stall(stalled), &body, most, |_, _| {})?))
}

/// `POST /chaos/writes`: the journal's next writes fail, as on a full disk.
pub(super) async fn writes(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: WritesBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    body::check_writes(body.fail)?;
    warn!(?body, "chaos: writes of the journal fail on purpose");
    let on = begin(&control, Fault::FailWrites, &body, most, |_, tools| tools.faults.fail(body.fail))?;
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/responses`: answers of endpoints are dropped, delayed or corrupted.
pub(super) async fn responses(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: ResponsesBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    let rate = body::rate(body.rate)?;
    let mischief = match (body.fault, &body.delay) {
        (Kind::Delay, Some(delay)) => Mischief::Delay(body::delay(delay)?),
        (Kind::Delay, None) => {
            return Err(Invalid::new("delay", "is missing; allowed is a duration such as \"2s\"").into());
        }
        (Kind::Drop | Kind::Corrupt, Some(_)) => {
            return Err(Invalid::new("delay", "is given and the fault is another; leave it out").into());
        }
        (Kind::Drop, None) => Mischief::Drop,
        (Kind::Corrupt, None) => Mischief::Corrupt,
    };
    if let (None, Some(_)) = (&body.topic, &body.subscription) {
        return Err(Invalid::new("topic", "is missing; the event subscription is one of a topic").into());
    }
    let whose = control.registry.whose(body.topic.as_deref(), body.subscription.as_deref())?;
    warn!(?body, "chaos: responses of endpoints are disturbed on purpose");
    let rule = Rule { mischief, whose, rate };
    let on = begin(&control, Fault::Responses, &body, most, |number, tools| tools.disturbance.begin(number, rule))?;
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/clock`: the wall clock is set, and set right again.
pub(super) async fn clock(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: ClockBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    let (back, by) = body::step(&body.step)?;
    warn!(?body, "chaos: the wall clock is set wrong on purpose");
    let on = begin(&control, Fault::Clock, &body, most, |_, tools| match back {
        true => tools.skew.behind(by),
        false => tools.skew.ahead(by),
    })?;
    control.desk.count(|acts| &mut acts.clock_steps);
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/poison`. The answer repeats what was done.
pub(super) async fn poison(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, Error> {
    let body: PoisonBody = read(parse(&read_body(payload).await?)?)?;
    let PoisonBody { topic, subscription, event_id, times, duration } = &body;
    if *times == 0 {
        return Err(Invalid::new("times", "is 0; allowed is 1 or more").into());
    }
    let most = duration.as_deref().map_or(Ok(POISON_MOST), body::time)?;
    warn!(topic, subscription, event_id, times, "chaos: an event kills on purpose whoever takes it in hand");
    control.registry.poison(topic, subscription, event_id, *times)?;
    let poison = Fault::Poison { topic: topic.clone(), subscription: subscription.clone() };
    begin(&control, poison, &body, most, |_, _| {})?;
    control.desk.count(|acts| &mut acts.events_poisoned);
    Ok(HttpResponse::Ok().json(body))
}

impl Whom {
    fn told(self) -> (Actor, Option<String>, Option<String>) {
        match self {
            Self::Actor(Victim::Topic(topic)) => (Actor::Topic, Some(topic), None),
            Self::Actor(Victim::Subscription(topic, name)) => (Actor::Subscription, Some(topic), Some(name)),
            Self::DeadLetters => (Actor::DeadLetter, None, None),
        }
    }
}

/// Lets a fault go on, and ends it when its time is over.
fn begin(
    control: &web::Data<Control>,
    fault: Fault,
    what: &impl Serialize,
    most: Duration,
    switch: impl FnOnce(u64, &Tools),
) -> Result<On, Error> {
    let until = (control.clock.now(), most);
    let on = control.desk.begin(&control.registry, fault, value_of(what), until, switch)?;
    let (control, number) = (web::Data::clone(control), on.number());
    actix_web::rt::spawn(async move {
        tokio::time::sleep(most).await;
        control.desk.end(&control.registry, number);
    });
    Ok(on)
}

impl Control {
    /// Who is meant; where it is anybody, one of those that live.
    fn whom(&self, actor: Actor, topic: Option<&str>, subscription: Option<&str>) -> Result<Whom, Error> {
        body::check_names(actor, topic, subscription)?;
        let named = |name: Option<&str>| name.unwrap_or_default().to_owned();
        Ok(match actor {
            Actor::Topic => Whom::Actor(Victim::Topic(named(topic))),
            Actor::Subscription => Whom::Actor(Victim::Subscription(named(topic), named(subscription))),
            Actor::DeadLetter => Whom::DeadLetters,
            Actor::Delivery | Actor::Random => {
                let mut living: Vec<Whom> = self.registry.living(topic)?.into_iter().map(Whom::Actor).collect();
                living.extend(topic.is_none().then_some(Whom::DeadLetters));
                if living.is_empty() {
                    return Err(Error::Refused("no actor of this topic runs at present".to_owned()));
                }
                living.swap_remove(fastrand::usize(..living.len()))
            }
        })
    }

    fn befall(&self, whom: &Whom, ordeal: Ordeal) -> Result<(), Error> {
        match whom {
            Whom::Actor(victim) => Ok(self.registry.suffer(victim, ordeal)?),
            Whom::DeadLetters => {
                let undertaker = fastrand::choice(&self.desk.tools.dead_letters);
                let told = undertaker.is_some_and(|one| (one.suffer)(Suffer { ordeal, mark: one.chart.mark() }));
                if told {
                    Ok(())
                } else {
                    Err(Error::Refused("the dead-letter actor does not run at present".to_owned()))
                }
            }
        }
    }
}
