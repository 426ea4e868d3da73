//! Faults besides kills: those of responses hold all the time, the others take turns.

use std::{cell::Cell, rc::Rc, time::Duration};

use humantime_serde::re::humantime::format_duration;
use serde_json::{Value, json};

use super::{FaultArgs, is_refusal};
use crate::cli::client::{ClientError, ServerClient};

/// How often it is asked whether it is over.
const LOOK: Duration = Duration::from_millis(50);

impl FaultArgs {
    /// Whether any is asked for.
    pub(super) fn any(&self) -> bool {
        !self.turns("").is_empty() || !self.lasting("", Duration::ZERO).is_empty()
    }

    /// Those that hold all the time.
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

    /// Those that take turns: where they are asked for, and how.
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

    /// Begins what holds all the time.
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

    /// Begins one of the others in its turn, until it is stopped.
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
                actix_rt::time::sleep(LOOK).await;
                waited += LOOK;
            }
            if stopped.get() {
                break;
            }
            match session.post::<Value>(path, body).await {
                Ok(_) => {}
                // The first time it is a mistake in a flag; later there may just be nobody to stall.
                Err(error) if is_refusal(&error) && body["actor"] == "random" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
