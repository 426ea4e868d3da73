//! Faults other than kills. Response faults last for the whole run; the others take turns.

use std::{cell::Cell, rc::Rc, time::Duration};

use humantime_serde::re::humantime::format_duration;
use serde_json::{Value, json};

use super::{FaultArgs, is_refusal};
use crate::client::{ClientError, ServerClient};
use gridhook_api::chaos::{
    ChaosClock, ChaosResponseFault, ChaosResponses, ChaosStall, ChaosStallTarget, ChaosWrites,
};

/// The interval to check for the end of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl FaultArgs {
    /// Whether any fault is enabled.
    pub(super) fn has_any(&self) -> bool {
        !self.alternating_faults("").is_empty()
            || !self.lasting_faults("", Duration::ZERO).is_empty()
    }

    /// The bodies of the faults that last for the whole run.
    fn lasting_faults(&self, topic: &str, duration: Duration) -> Vec<ChaosResponses> {
        let duration = format_duration(duration).to_string();
        let fault_body = |fault: ChaosResponseFault, rate: Option<f64>| {
            let delay = (fault == ChaosResponseFault::Delay)
                .then(|| format_duration(self.delay).to_string());
            let topic = Some(topic.to_owned());
            let duration = duration.clone();
            rate.map(|rate| ChaosResponses {
                fault,
                rate,
                delay,
                topic,
                subscription: None,
                duration,
            })
        };
        let drop = fault_body(ChaosResponseFault::Drop, self.drop_responses);
        let corrupt = fault_body(ChaosResponseFault::Corrupt, self.corrupt_responses);
        let delay = fault_body(ChaosResponseFault::Delay, self.delay_responses);
        [drop, corrupt, delay].into_iter().flatten().collect()
    }

    /// The paths and bodies of the faults that take turns.
    fn alternating_faults(&self, topic: &str) -> Vec<(&'static str, Value)> {
        let half = format_duration(self.fault_every / 2).to_string();
        let stall = |actor: ChaosStallTarget, topic: Option<&str>, time: &Duration| {
            let topic = topic.map(str::to_owned);
            let duration = format_duration(*time).to_string();
            (
                "/chaos/stall",
                json!(ChaosStall {
                    actor,
                    topic,
                    subscription: None,
                    duration
                }),
            )
        };
        let journal = |time: &Duration| stall(ChaosStallTarget::Journal, None, time);
        let actors = |time: &Duration| stall(ChaosStallTarget::Random, Some(topic), time);
        let writes = |fail: &u64| {
            (
                "/chaos/writes",
                json!(ChaosWrites {
                    fail: *fail,
                    duration: half.clone()
                }),
            )
        };
        let clock = |step: &String| {
            (
                "/chaos/clock",
                json!(ChaosClock {
                    step: step.clone(),
                    duration: half.clone()
                }),
            )
        };
        [
            self.stall_journal.as_ref().map(journal),
            self.stall_actors.as_ref().map(actors),
            self.fail_writes.as_ref().map(writes),
            self.skew_clock.as_ref().map(clock),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Starts the faults that last for the whole run.
    pub(super) async fn start(
        &self,
        session: &ServerClient,
        topic: &str,
        duration: Duration,
    ) -> Result<(), ClientError> {
        for body in self.lasting_faults(topic, duration) {
            session
                .send_post::<Value>("/chaos/responses", &body)
                .await?;
        }
        Ok(())
    }

    /// Starts the other faults in turn until `stopped` is set.
    pub(super) async fn run(
        self,
        session: Rc<ServerClient>,
        topic: String,
        stopped: Rc<Cell<bool>>,
    ) -> Result<(), ClientError> {
        let turns = self.alternating_faults(&topic);
        for (path, body) in turns.iter().cycle() {
            let mut elapsed = Duration::ZERO;
            while elapsed < self.fault_every && !stopped.get() {
                actix_rt::time::sleep(POLL_INTERVAL).await;
                elapsed += POLL_INTERVAL;
            }
            if stopped.get() {
                break;
            }
            match session.send_post::<Value>(path, body).await {
                Ok(_) => {}
                // At that moment there may be no actor to stall.
                Err(error) if is_refusal(&error) && body["actor"] == "random" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
