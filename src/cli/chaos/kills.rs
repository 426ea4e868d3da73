//! The schedule of kills, drawn from the seed.

use std::{cell::Cell, rc::Rc, time::Duration};

use serde_json::{Value, json};

use super::{KillMethod, VictimKind, is_refusal, name_of};
use crate::{
    cli::client::{ClientError, ServerClient},
    clock::Clock,
};

/// A schedule of kills.
pub(super) struct KillSchedule {
    pub(super) topic: String,
    pub(super) subscriptions: usize,
    pub(super) kinds: Vec<VictimKind>,
    pub(super) methods: Vec<KillMethod>,
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
        session: Rc<ServerClient>,
        count: Rc<KillCount>,
        stopped: Rc<Cell<bool>>,
    ) -> Result<(), ClientError> {
        let mut jitter = fastrand::Rng::with_seed(self.seed);
        let mut next = self.clock.now().after(self.every);
        while !self.every.is_zero() && !stopped.get() {
            actix_rt::time::sleep(next.since(self.clock.now())).await;
            // A late schedule does not catch up.
            next = next.after(self.every).max(self.clock.now());
            let body = self.draw(&mut jitter);
            match session.post::<Value>("/chaos/kill", &body).await {
                Ok(_) => count.killed.set(count.killed.get() + 1),
                Err(error) if is_refusal(&error) => count.missed.set(count.missed.get() + 1),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn draw(&self, jitter: &mut fastrand::Rng) -> Value {
        // Each kill draws all numbers, so that an unused one does not shift the following draws.
        let kind = self.kinds[jitter.usize(..self.kinds.len())];
        let method = self.methods[jitter.usize(..self.methods.len())];
        let subscription = name_of(jitter.usize(..self.subscriptions));
        let by = match method {
            KillMethod::Panic => "panic",
            KillMethod::Stop => "stop",
        };
        match kind {
            VictimKind::Subscription => {
                json!({"actor": "subscription", "topic": self.topic, "subscription": subscription, "by": by})
            }
            VictimKind::Topic => json!({"actor": "topic", "topic": self.topic, "by": by}),
            VictimKind::DeadLetter => json!({"actor": "deadLetter", "by": by}),
            VictimKind::Delivery => {
                json!({"actor": "delivery", "topic": self.topic, "subscription": subscription, "by": by})
            }
        }
    }
}
