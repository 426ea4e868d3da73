//! The schedule of kills, drawn from the seed.

use std::{cell::Cell, rc::Rc, time::Duration};

use serde_json::Value;

use super::{is_refusal, name_of};
use crate::client::{ClientResult, ServerClient};
use gridhook_api::chaos::{ActorKind, ChaosKill, ChaosKillMethod};
use gridhook_clock::Clock;

pub(super) struct KillSchedule {
    pub(super) topic: String,
    pub(super) subscriptions: usize,
    pub(super) actors: Vec<ActorKind>,
    pub(super) methods: Vec<ChaosKillMethod>,
    pub(super) every: Duration,
    pub(super) seed: u64,
    pub(super) clock: Clock,
}

/// The number of kills, and of kills without a target.
#[derive(Debug, Default)]
pub(super) struct KillCount {
    pub(super) killed: Cell<u64>,
    pub(super) missed: Cell<u64>,
}

impl KillSchedule {
    /// Kills until `stopped` is set. Fails if the server fails.
    pub(super) async fn run(
        self,
        server: Rc<ServerClient>,
        count: Rc<KillCount>,
        stopped: Rc<Cell<bool>>,
    ) -> ClientResult<()> {
        let mut jitter = fastrand::Rng::with_seed(self.seed);
        let mut next = self.clock.now().after(self.every);
        while !self.every.is_zero() && !stopped.get() {
            actix_rt::time::sleep(next.since(self.clock.now())).await;
            // A late schedule does not catch up.
            next = next.after(self.every).max(self.clock.now());
            let body = self.draw_victim(&mut jitter);
            match server.send_post::<Value>("/chaos/kill", &body).await {
                Ok(_) => count.killed.set(count.killed.get() + 1),
                Err(error) if is_refusal(&error) => count.missed.set(count.missed.get() + 1),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn draw_victim(&self, jitter: &mut fastrand::Rng) -> ChaosKill {
        // Each kill draws all numbers, so that an unused one does not shift the following draws.
        let actor = self.actors[jitter.usize(..self.actors.len())];
        let by = self.methods[jitter.usize(..self.methods.len())];
        let subscription = name_of(jitter.usize(..self.subscriptions));
        let has_topic = actor != ActorKind::DeadLetter;
        let has_subscription = matches!(actor, ActorKind::Subscription | ActorKind::Delivery);
        ChaosKill {
            actor,
            topic: has_topic.then(|| self.topic.clone()),
            subscription: has_subscription.then_some(subscription),
            by,
        }
    }
}
