//! Faults other than kills. Response faults last for the whole run; the others take turns.

use std::{cell::Cell, rc::Rc, time::Duration};

use humantime_serde::re::humantime::format_duration;
use serde_json::{Value, json};

use super::{FaultArgs, is_refusal};
use crate::client::{ClientResult, ServerClient};
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
        let mut faults = Vec::new();
        for (fault, rate) in [
            (ChaosResponseFault::Drop, self.drop_responses),
            (ChaosResponseFault::Corrupt, self.corrupt_responses),
            (ChaosResponseFault::Delay, self.delay_responses),
        ] {
            let Some(rate) = rate else { continue };
            let is_delay = fault == ChaosResponseFault::Delay;
            faults.push(ChaosResponses {
                fault,
                rate,
                delay: is_delay.then(|| format_duration(self.delay).to_string()),
                topic: Some(topic.to_owned()),
                subscription: None,
                duration: duration.clone(),
            });
        }
        faults
    }

    /// The paths and bodies of the faults that take turns.
    fn alternating_faults(&self, topic: &str) -> Vec<(&'static str, Value)> {
        let half = format_duration(self.fault_every / 2).to_string();
        let mut faults = Vec::new();
        for (actor, topic, time) in [
            (ChaosStallTarget::Journal, None, self.stall_journal),
            (ChaosStallTarget::Random, Some(topic), self.stall_actors),
        ] {
            let Some(time) = time else { continue };
            let stall = ChaosStall {
                actor,
                topic: topic.map(str::to_owned),
                subscription: None,
                duration: format_duration(time).to_string(),
            };
            faults.push(("/chaos/stall", json!(stall)));
        }
        if let Some(fail) = self.fail_writes {
            let duration = half.clone();
            faults.push(("/chaos/writes", json!(ChaosWrites { fail, duration })));
        }
        if let Some(step) = self.skew_clock.clone() {
            let duration = half;
            faults.push(("/chaos/clock", json!(ChaosClock { step, duration })));
        }
        faults
    }

    /// Starts the faults that last for the whole run.
    pub(super) async fn start(
        &self,
        server: &ServerClient,
        topic: &str,
        duration: Duration,
    ) -> ClientResult<()> {
        for body in self.lasting_faults(topic, duration) {
            server.send_post::<Value>("/chaos/responses", &body).await?;
        }
        Ok(())
    }

    /// Starts the other faults in turn until `stopped` is set.
    pub(super) async fn run(
        self,
        server: Rc<ServerClient>,
        topic: String,
        stopped: Rc<Cell<bool>>,
    ) -> ClientResult<()> {
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
            match server.send_post::<Value>(path, body).await {
                Ok(_) => {}
                // At that moment there may be no actor to stall.
                Err(error) if is_refusal(&error) && body["actor"] == "random" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
