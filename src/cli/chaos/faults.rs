//! Faults other than kills. Response faults last for the whole run; the others take turns.

use std::{cell::Cell, rc::Rc, time::Duration};

use humantime_serde::re::humantime::format_duration;
use serde_json::{Value, json};

use super::{FaultArgs, is_refusal};
use crate::cli::client::{ClientError, ServerClient};

/// The interval to check for the end of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl FaultArgs {
    /// Whether any fault is enabled.
    pub(super) fn any(&self) -> bool {
        !self.turns("").is_empty() || !self.lasting("", Duration::ZERO).is_empty()
    }

    /// The bodies of the faults that last for the whole run.
    fn lasting(&self, topic: &str, duration: Duration) -> Vec<Value> {
        let duration = format_duration(duration).to_string();
        let one = |fault: &str, rate: Option<f64>| {
            rate.map(|rate| json!({"fault": fault, "rate": rate, "topic": topic, "duration": duration}))
        };
        let mut delayed = one("delay", self.delay_responses);
        if let Some(delayed) = &mut delayed {
            delayed["delay"] = self.delay.clone().into();
        }
        [one("drop", self.drop_responses), one("corrupt", self.corrupt_responses), delayed]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The paths and bodies of the faults that take turns.
    fn turns(&self, topic: &str) -> Vec<(&'static str, Value)> {
        let half = format_duration(self.fault_every / 2).to_string();
        let journal = |time: &String| ("/chaos/stall", json!({"actor": "journal", "duration": time}));
        let actors = |time: &String| ("/chaos/stall", json!({"actor": "random", "topic": topic, "duration": time}));
        let writes = |count: &u64| ("/chaos/writes", json!({"fail": count, "duration": half}));
        let clock = |step: &String| ("/chaos/clock", json!({"step": step, "duration": half}));
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
        for body in self.lasting(topic, duration) {
            session.post::<Value>("/chaos/responses", &body).await?;
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
        let turns = self.turns(&topic);
        for (path, body) in turns.iter().cycle() {
            let mut waited = Duration::ZERO;
            while waited < self.fault_every && !stopped.get() {
                actix_rt::time::sleep(POLL_INTERVAL).await;
                waited += POLL_INTERVAL;
            }
            if stopped.get() {
                break;
            }
            match session.post::<Value>(path, body).await {
                Ok(_) => {}
                // At that moment there may be no actor to stall.
                Err(error) if is_refusal(&error) && body["actor"] == "random" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
