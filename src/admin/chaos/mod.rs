//! Fault injection, so that an operator or a test sees the server recover.
//!
//! The paths exist only with `chaos.enabled`. They need the role `read` for the report, `operate`
//! to end faults and `admin` to inject them. Each fault is logged before it is injected, so that
//! the log of a server that crashes has the cause. Every fault ends by itself ([`injector`]).

mod body;
pub mod injector;

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde::Serialize;
use tracing::warn;

use self::injector::{ChaosTargets, Fault};

use super::{AdminError, Control, arm::read_json, model::value_of};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::chaos::{
    ActiveFault, ActorKind, ChaosClock, ChaosKill, ChaosKillMethod, ChaosPoison,
    ChaosResponseFault, ChaosResponses, ChaosStall, ChaosStallTarget, ChaosWrites,
};
use gridhook_chaos::{
    ActorFault, Inject,
    response_faults::{FaultRule, ResponseFault},
};
use gridhook_engine::control::registry::{ChaosVictim, TaskKill};
use gridhook_store::faults::STALL_MAX;

/// Default duration of a poison event.
const POISON_DURATION: Duration = Duration::from_secs(600);

#[derive(Clone)]
enum Victim {
    Actor(ChaosVictim),
    /// The dead-letter actor of any store.
    DeadLetters,
}

/// `GET /chaos`: the active faults, and counts of injected ones.
pub(super) async fn get_report(control: web::Data<Control>) -> HttpResponse {
    HttpResponse::Ok().json(control.fault_injector.active_report())
}

/// `DELETE /chaos`: ends all faults. The response is the new report.
pub(super) async fn end_all(control: web::Data<Control>) -> HttpResponse {
    warn!("chaos: all faults end");
    control.fault_injector.end_all(&control.registry);
    HttpResponse::Ok().json(control.fault_injector.active_report())
}

/// `POST /chaos/kill`. The response names the killed actor.
pub(super) async fn kill_actor(payload: web::Payload, control: web::Data<Control>) -> AdminResult {
    let body: ChaosKill = read_json(payload).await?;
    let ChaosKill {
        actor,
        topic,
        subscription,
        by,
    } = &body;
    warn!(?actor, topic, subscription, ?by, "chaos: killing an actor");
    if let ActorKind::Delivery = actor {
        let (topic, subscription) = body::actor_names(topic.as_deref(), subscription.as_deref())?;
        let by = match by {
            ChaosKillMethod::Panic => TaskKill::Panic,
            ChaosKillMethod::Stop => TaskKill::Stop,
        };
        control.registry.kill_delivery(topic, subscription, by)?;
        control
            .fault_injector
            .count_fault(|counters| &mut counters.deliveries_killed);
        return respond_json(&body);
    }
    let victim = control.choose_victim(*actor, topic.as_deref(), subscription.as_deref())?;
    let fault = match by {
        ChaosKillMethod::Panic => ActorFault::Panic,
        ChaosKillMethod::Stop => ActorFault::Stop,
    };
    control.inject_fault(&victim, fault)?;
    control
        .fault_injector
        .count_fault(|counters| match &victim {
            Victim::Actor(ChaosVictim::Topic(_)) => &mut counters.topics_killed,
            Victim::Actor(ChaosVictim::Subscription(..)) => &mut counters.subscriptions_killed,
            Victim::DeadLetters => &mut counters.dead_letters_killed,
        });
    let (actor, topic, subscription) = victim.into_parts();
    respond_json(&ChaosKill {
        actor,
        topic,
        subscription,
        by: *by,
    })
}

/// `POST /chaos/stall`: stalls an actor or the journal.
pub(super) async fn stall_actor(payload: web::Payload, control: web::Data<Control>) -> AdminResult {
    let body: ChaosStall = read_json(payload).await?;
    let duration = body::bounded_duration("duration", &body.duration, STALL_MAX)?;
    warn!(?body, "chaos: stalling an actor or the journal");
    let actor = match body.actor {
        ChaosStallTarget::Journal => {
            let active = start_fault(
                &control,
                Fault::StallJournal,
                &body,
                duration,
                |_, targets| {
                    targets.faults.set_stalled(true);
                    Ok(())
                },
            )?;
            control
                .fault_injector
                .count_fault(|counters| &mut counters.journal_stalls);
            return respond_json(&active);
        }
        ChaosStallTarget::Topic => ActorKind::Topic,
        ChaosStallTarget::Subscription => ActorKind::Subscription,
        ChaosStallTarget::DeadLetter => ActorKind::DeadLetter,
        ChaosStallTarget::Random => ActorKind::Random,
    };
    let victim =
        control.choose_victim(actor, body.topic.as_deref(), body.subscription.as_deref())?;
    let (stalled, pause) = injector::pause_actor(duration);
    let (actor, topic, subscription) = victim.clone().into_parts();
    let actor = match actor {
        ActorKind::Topic => ChaosStallTarget::Topic,
        ActorKind::Subscription | ActorKind::Delivery | ActorKind::Random => {
            ChaosStallTarget::Subscription
        }
        ActorKind::DeadLetter => ChaosStallTarget::DeadLetter,
    };
    let body = ChaosStall {
        actor,
        topic,
        subscription,
        duration: body.duration,
    };
    let inject = |_, _: &ChaosTargets| control.inject_fault(&victim, ActorFault::Stall(pause));
    let active = start_fault(&control, Fault::Stall(stalled), &body, duration, inject)?;
    control
        .fault_injector
        .count_fault(|counters| &mut counters.actors_stalled);
    respond_json(&active)
}

/// `POST /chaos/writes`: fails the next writes of the journal, as a full disk does.
pub(super) async fn fail_writes(payload: web::Payload, control: web::Data<Control>) -> AdminResult {
    let body: ChaosWrites = read_json(payload).await?;
    let duration = body::fault_duration(&body.duration)?;
    body::check_writes(body.fail)?;
    warn!(?body, "chaos: failing writes of the journal");
    let active = start_fault(
        &control,
        Fault::FailWrites,
        &body,
        duration,
        |_, targets| {
            targets.faults.fail_writes(body.fail);
            Ok(())
        },
    )?;
    respond_json(&active)
}

/// `POST /chaos/responses`: drops, delays or corrupts responses of endpoints.
pub(super) async fn disturb_responses(
    payload: web::Payload,
    control: web::Data<Control>,
) -> AdminResult {
    let body: ChaosResponses = read_json(payload).await?;
    let duration = body::fault_duration(&body.duration)?;
    let rate = body::response_share(body.rate)?;
    let fault = match (body.fault, &body.delay) {
        (ChaosResponseFault::Delay, Some(delay)) => {
            ResponseFault::Delay(body::bounded_duration("delay", delay, body::DELAY_MAX)?)
        }
        (ChaosResponseFault::Delay, None) => {
            return refuse_value("delay", "is missing; expected a duration such as \"2s\"");
        }
        (ChaosResponseFault::Drop | ChaosResponseFault::Corrupt, Some(_)) => {
            return refuse_value("delay", "is given and the fault is another; leave it out");
        }
        (ChaosResponseFault::Drop, None) => ResponseFault::Drop,
        (ChaosResponseFault::Corrupt, None) => ResponseFault::Corrupt,
    };
    if let (None, Some(_)) = (&body.topic, &body.subscription) {
        return refuse_value(
            "topic",
            "is missing; the event subscription is one of a topic",
        );
    }
    let owner = control
        .registry
        .fault_target(body.topic.as_deref(), body.subscription.as_deref())?;
    warn!(?body, "chaos: injecting faults into responses of endpoints");
    let rule = FaultRule {
        faults: fault,
        owner,
        rate,
    };
    let active = start_fault(
        &control,
        Fault::Responses,
        &body,
        duration,
        |number, targets| {
            targets.response_faults.begin_rule(number, rule);
            Ok(())
        },
    )?;
    respond_json(&active)
}

/// `POST /chaos/clock`: steps the wall clock, and steps it back at the end.
pub(super) async fn step_clock(payload: web::Payload, control: web::Data<Control>) -> AdminResult {
    let body: ChaosClock = read_json(payload).await?;
    let duration = body::fault_duration(&body.duration)?;
    let (is_back, by) = body::clock_step(&body.step)?;
    warn!(?body, "chaos: stepping the wall clock");
    let active = start_fault(&control, Fault::Clock, &body, duration, |_, targets| {
        if is_back {
            targets.skew.set_behind(by)
        } else {
            targets.skew.set_ahead(by)
        }
        Ok(())
    })?;
    control
        .fault_injector
        .count_fault(|counters| &mut counters.clock_steps);
    respond_json(&active)
}

/// `POST /chaos/poison`. The response repeats the request.
pub(super) async fn poison_event(
    payload: web::Payload,
    control: web::Data<Control>,
) -> AdminResult {
    let body: ChaosPoison = read_json(payload).await?;
    let ChaosPoison {
        topic,
        subscription,
        event_id,
        times,
        duration,
    } = &body;
    if *times == 0 {
        return refuse_value("times", "is 0; expected 1 or more");
    }
    let duration = duration
        .as_deref()
        .map_or(Ok(POISON_DURATION), body::fault_duration)?;
    warn!(
        topic,
        subscription, event_id, times, "chaos: an event ends each actor that processes it"
    );
    let fault = Fault::Poison {
        topic: topic.clone(),
        subscription: subscription.clone(),
    };
    start_fault(&control, fault, &body, duration, |_, _| {
        Ok(control
            .registry
            .poison_event(topic, subscription, event_id, *times)?)
    })?;
    control
        .fault_injector
        .count_fault(|counters| &mut counters.events_poisoned);
    respond_json(&body)
}

impl Victim {
    fn into_parts(self) -> (ActorKind, Option<String>, Option<String>) {
        match self {
            Self::Actor(ChaosVictim::Topic(topic)) => (ActorKind::Topic, Some(topic), None),
            Self::Actor(ChaosVictim::Subscription(topic, name)) => {
                (ActorKind::Subscription, Some(topic), Some(name))
            }
            Self::DeadLetters => (ActorKind::DeadLetter, None, None),
        }
    }
}

/// Starts a fault, and ends it after its duration.
fn start_fault(
    control: &web::Data<Control>,
    fault: Fault,
    what: &impl Serialize,
    duration: Duration,
    switch: impl FnOnce(u64, &ChaosTargets) -> AdminResult<()>,
) -> AdminResult<ActiveFault> {
    let now = control.clock.now();
    let active = control.fault_injector.start(
        &control.registry,
        fault,
        value_of(what),
        now,
        duration,
        switch,
    )?;
    let control = web::Data::clone(control);
    let number = active.number;
    actix_web::rt::spawn(async move {
        tokio::time::sleep(duration).await;
        control.fault_injector.end_fault(&control.registry, number);
    });
    Ok(active)
}

impl Control {
    /// The target of a fault; a running actor for `random`.
    fn choose_victim(
        &self,
        actor: ActorKind,
        topic: Option<&str>,
        subscription: Option<&str>,
    ) -> AdminResult<Victim> {
        body::check_names(actor, topic, subscription)?;
        let name_or_empty = |name: Option<&str>| name.unwrap_or_default().to_owned();
        Ok(match actor {
            ActorKind::Topic => Victim::Actor(ChaosVictim::Topic(name_or_empty(topic))),
            ActorKind::Subscription => Victim::Actor(ChaosVictim::Subscription(
                name_or_empty(topic),
                name_or_empty(subscription),
            )),
            ActorKind::DeadLetter => Victim::DeadLetters,
            ActorKind::Delivery | ActorKind::Random => {
                let mut running: Vec<Victim> = self
                    .registry
                    .running_actors(topic)?
                    .into_iter()
                    .map(Victim::Actor)
                    .collect();
                running.extend(topic.is_none().then_some(Victim::DeadLetters));
                if running.is_empty() {
                    return Err(AdminError::Refused(
                        "No actor of this topic runs at present.".to_owned(),
                    ));
                }
                running.swap_remove(fastrand::usize(..running.len()))
            }
        })
    }

    fn inject_fault(&self, victim: &Victim, fault: ActorFault) -> AdminResult<()> {
        match victim {
            Victim::Actor(actor) => Ok(self.registry.inject_fault(actor, fault)?),
            Victim::DeadLetters => {
                let dead_letters = fastrand::choice(&self.fault_injector.targets.dead_letters);
                let is_injected = dead_letters.is_some_and(|one| {
                    (one.inject)(Inject {
                        fault,
                        mark: one.history.intended_stop(),
                    })
                });
                if is_injected {
                    Ok(())
                } else {
                    Err(AdminError::Refused(
                        "The dead-letter actor does not run at present.".to_owned(),
                    ))
                }
            }
        }
    }
}
