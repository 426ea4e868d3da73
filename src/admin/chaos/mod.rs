//! Parts broken on purpose, so that an operator (or a test) sees the server recover.
//!
//! Only where the settings switch it on, and only with the admin token; elsewhere these paths do not exist. Each act is
//! logged before it is done: a server that dies of one has said why. What goes on ends by itself ([`injector`]).

mod body;
pub mod injector;

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde::Serialize;
use tracing::warn;

pub(super) use self::body::{ClockBody, KillBody, PoisonBody, ResponsesBody, StallBody, WritesBody};
use self::{
    body::{ActorKind, KillMethod, StallTarget, VictimKind},
    injector::{ActiveFaults, ChaosTargets, Fault},
};
use super::{
    AdminError, Control,
    arm::read_body,
    model::{InvalidRequest, parse, read, value_of},
};
use crate::{
    chaos::{ActorFault, Inject},
    control::registry::{ChaosVictim, FaultRule, ResponseFault, TaskKill},
};

/// A poisoned event is forgotten after so long, where nothing is said of it.
const POISON_MOST: Duration = Duration::from_secs(600);

/// Whom an act befalls.
enum Victim {
    Actor(ChaosVictim),
    /// The dead-letter actor of any store.
    DeadLetters,
}

/// `GET /chaos`: what is on, and how often what was done.
pub(super) async fn report(control: web::Data<Control>) -> HttpResponse {
    HttpResponse::Ok().json(control.queue.report())
}

/// `DELETE /chaos`: everything ends. Answers how it is then.
pub(super) async fn end(control: web::Data<Control>) -> HttpResponse {
    warn!("chaos: everything ends");
    control.queue.end_all(&control.registry);
    HttpResponse::Ok().json(control.queue.report())
}

/// `POST /chaos/kill`. The answer says who was killed.
pub(super) async fn kill(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: KillBody = read(parse(&read_body(payload).await?)?)?;
    let KillBody { actor, topic, subscription, by } = &body;
    warn!(?actor, topic, subscription, ?by, "chaos: an actor is killed on purpose");
    if let ActorKind::Delivery = actor {
        let (topic, subscription) = body::names(topic.as_deref(), subscription.as_deref())?;
        let by = match by {
            KillMethod::Panic => TaskKill::Panic,
            KillMethod::Stop => TaskKill::Stop,
        };
        control.registry.kill_delivery(topic, subscription, by)?;
        control.queue.count(|acts| &mut acts.deliveries_killed);
        return Ok(HttpResponse::Ok().json(body));
    }
    let whom = control.choose_victim(*actor, topic.as_deref(), subscription.as_deref())?;
    let ordeal = match by {
        KillMethod::Panic => ActorFault::Panic,
        KillMethod::Stop => ActorFault::Stop,
    };
    control.befall(&whom, ordeal)?;
    control.queue.count(|acts| match &whom {
        Victim::Actor(ChaosVictim::Topic(_)) => &mut acts.topics_killed,
        Victim::Actor(ChaosVictim::Subscription(..)) => &mut acts.subscriptions_killed,
        Victim::DeadLetters => &mut acts.dead_letters_killed,
    });
    let (actor, topic, subscription) = whom.into_parts();
    Ok(HttpResponse::Ok().json(KillBody { actor, topic, subscription, by: *by }))
}

/// `POST /chaos/stall`: an actor, or the journal, does nothing for a while.
pub(super) async fn stall(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: StallBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::stall_time(&body.duration)?;
    warn!(?body, "chaos: a part stalls on purpose");
    let actor = match body.actor {
        StallTarget::Journal => {
            let on = start_fault(&control, Fault::StallJournal, &body, most, |_, tools| tools.faults.stall(true))?;
            control.queue.count(|acts| &mut acts.journal_stalls);
            return Ok(HttpResponse::Ok().json(on));
        }
        StallTarget::Topic => ActorKind::Topic,
        StallTarget::Subscription => ActorKind::Subscription,
        StallTarget::DeadLetter => ActorKind::DeadLetter,
        StallTarget::Random => ActorKind::Random,
    };
    let whom = control.choose_victim(actor, body.topic.as_deref(), body.subscription.as_deref())?;
    let (stalled, pause) = injector::pause(most);
    control.befall(&whom, ActorFault::Stall(pause))?;
    control.queue.count(|acts| &mut acts.actors_stalled);
    let (actor, topic, subscription) = whom.into_parts();
    let actor = match actor {
        ActorKind::Topic => StallTarget::Topic,
        ActorKind::Subscription | ActorKind::Delivery | ActorKind::Random => StallTarget::Subscription,
        ActorKind::DeadLetter => StallTarget::DeadLetter,
    };
    let body = StallBody { actor, topic, subscription, duration: body.duration };
    Ok(HttpResponse::Ok().json(start_fault(&control, Fault::Stall(stalled), &body, most, |_, _| {})?))
}

/// `POST /chaos/writes`: the journal's next writes fail, as on a full disk.
pub(super) async fn writes(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: WritesBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    body::check_writes(body.fail)?;
    warn!(?body, "chaos: writes of the journal fail on purpose");
    let on = start_fault(&control, Fault::FailWrites, &body, most, |_, tools| tools.faults.fail(body.fail))?;
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/responses`: answers of endpoints are dropped, delayed or corrupted.
pub(super) async fn responses(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: ResponsesBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    let rate = body::rate(body.rate)?;
    let mischief = match (body.fault, &body.delay) {
        (VictimKind::Delay, Some(delay)) => ResponseFault::Delay(body::delay(delay)?),
        (VictimKind::Delay, None) => {
            return Err(InvalidRequest::new("delay", "is missing; allowed is a duration such as \"2s\"").into());
        }
        (VictimKind::Drop | VictimKind::Corrupt, Some(_)) => {
            return Err(InvalidRequest::new("delay", "is given and the fault is another; leave it out").into());
        }
        (VictimKind::Drop, None) => ResponseFault::Drop,
        (VictimKind::Corrupt, None) => ResponseFault::Corrupt,
    };
    if let (None, Some(_)) = (&body.topic, &body.subscription) {
        return Err(InvalidRequest::new("topic", "is missing; the event subscription is one of a topic").into());
    }
    let whose = control.registry.fault_target(body.topic.as_deref(), body.subscription.as_deref())?;
    warn!(?body, "chaos: responses of endpoints are disturbed on purpose");
    let rule = FaultRule { faults: mischief, owner: whose, rate };
    let on = start_fault(&control, Fault::Responses, &body, most, |number, tools| {
        tools.response_faults.begin(number, rule)
    })?;
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/clock`: the wall clock is set, and set right again.
pub(super) async fn clock(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: ClockBody = read(parse(&read_body(payload).await?)?)?;
    let most = body::time(&body.duration)?;
    let (back, by) = body::step(&body.step)?;
    warn!(?body, "chaos: the wall clock is set wrong on purpose");
    let on = start_fault(&control, Fault::Clock, &body, most, |_, tools| match back {
        true => tools.skew.behind(by),
        false => tools.skew.ahead(by),
    })?;
    control.queue.count(|acts| &mut acts.clock_steps);
    Ok(HttpResponse::Ok().json(on))
}

/// `POST /chaos/poison`. The answer repeats what was done.
pub(super) async fn poison(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: PoisonBody = read(parse(&read_body(payload).await?)?)?;
    let PoisonBody { topic, subscription, event_id, times, duration } = &body;
    if *times == 0 {
        return Err(InvalidRequest::new("times", "is 0; allowed is 1 or more").into());
    }
    let most = duration.as_deref().map_or(Ok(POISON_MOST), body::time)?;
    warn!(topic, subscription, event_id, times, "chaos: an event kills on purpose whoever takes it in hand");
    control.registry.poison(topic, subscription, event_id, *times)?;
    let poison = Fault::Poison { topic: topic.clone(), subscription: subscription.clone() };
    start_fault(&control, poison, &body, most, |_, _| {})?;
    control.queue.count(|acts| &mut acts.events_poisoned);
    Ok(HttpResponse::Ok().json(body))
}

impl Victim {
    fn into_parts(self) -> (ActorKind, Option<String>, Option<String>) {
        match self {
            Self::Actor(ChaosVictim::Topic(topic)) => (ActorKind::Topic, Some(topic), None),
            Self::Actor(ChaosVictim::Subscription(topic, name)) => (ActorKind::Subscription, Some(topic), Some(name)),
            Self::DeadLetters => (ActorKind::DeadLetter, None, None),
        }
    }
}

/// Lets a fault go on, and ends it when its time is over.
fn start_fault(
    control: &web::Data<Control>,
    fault: Fault,
    what: &impl Serialize,
    most: Duration,
    switch: impl FnOnce(u64, &ChaosTargets),
) -> Result<ActiveFaults, AdminError> {
    let until = (control.clock.now(), most);
    let on = control.queue.start(&control.registry, fault, value_of(what), until, switch)?;
    let (control, number) = (web::Data::clone(control), on.number());
    actix_web::rt::spawn(async move {
        tokio::time::sleep(most).await;
        control.queue.end(&control.registry, number);
    });
    Ok(on)
}

impl Control {
    /// Who is meant; where it is anybody, one of those that live.
    fn choose_victim(
        &self,
        actor: ActorKind,
        topic: Option<&str>,
        subscription: Option<&str>,
    ) -> Result<Victim, AdminError> {
        body::check_names(actor, topic, subscription)?;
        let named = |name: Option<&str>| name.unwrap_or_default().to_owned();
        Ok(match actor {
            ActorKind::Topic => Victim::Actor(ChaosVictim::Topic(named(topic))),
            ActorKind::Subscription => Victim::Actor(ChaosVictim::Subscription(named(topic), named(subscription))),
            ActorKind::DeadLetter => Victim::DeadLetters,
            ActorKind::Delivery | ActorKind::Random => {
                let mut living: Vec<Victim> =
                    self.registry.running_actors(topic)?.into_iter().map(Victim::Actor).collect();
                living.extend(topic.is_none().then_some(Victim::DeadLetters));
                if living.is_empty() {
                    return Err(AdminError::Refused("no actor of this topic runs at present".to_owned()));
                }
                living.swap_remove(fastrand::usize(..living.len()))
            }
        })
    }

    fn befall(&self, whom: &Victim, ordeal: ActorFault) -> Result<(), AdminError> {
        match whom {
            Victim::Actor(victim) => Ok(self.registry.inject(victim, ordeal)?),
            Victim::DeadLetters => {
                let undertaker = fastrand::choice(&self.queue.targets.dead_letters);
                let told = undertaker
                    .is_some_and(|one| (one.inject)(Inject { fault: ordeal, mark: one.history.intended_stop() }));
                if told {
                    Ok(())
                } else {
                    Err(AdminError::Refused("the dead-letter actor does not run at present".to_owned()))
                }
            }
        }
    }
}
