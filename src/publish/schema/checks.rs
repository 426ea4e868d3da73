//! Checks of the data of events against the schemas of their types, after the events were read.
//!
//! What a check costs is known before. A request whose checks cost little is checked at once, any
//! other on the threads that compute, event by event.

use std::sync::Arc;

use bytes::Bytes;

use crate::Refusal;
use gridhook_compute::Meter;
use gridhook_engine::control::catalogue::DeclaredSchema;
use gridhook_event::Schema;

/// Maximum steps of checks that are made at once. They take some 100 µs, as much as it costs to
/// compute elsewhere.
const QUICK_STEPS: f64 = 10_000.0;

/// The check of an event's data.
#[derive(Clone, Debug)]
pub(super) struct DataCheck {
    /// The index of the event in its request.
    pub(super) event: u32,
    /// The schema of the event's type.
    pub(super) declared: Arc<DeclaredSchema>,
    /// The data, if the event has any.
    pub(super) data: Option<Bytes>,
}

/// The checks of a request.
#[derive(Debug)]
pub struct DataChecks {
    schema: Schema,
    /// Whether an event that does not match is refused.
    refuses: bool,
    checks: Vec<DataCheck>,
    nonconforming: Option<Nonconforming>,
}

/// Events that are stored although their data does not match the schema of their type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonconforming {
    pub events: u64,
    /// Why the first of these events does not match.
    pub first: String,
}

impl DataCheck {
    fn count_steps(&self) -> f64 {
        self.declared
            .check_steps_max(self.data.as_ref().map_or(0, Bytes::len))
    }

    fn find_violation(&self) -> Option<String> {
        // The data is a part of a body that was read as text.
        let data = self
            .data
            .as_ref()
            .map(|data| std::str::from_utf8(data).unwrap_or_default());
        self.declared.find_violation(data)
    }
}

impl DataChecks {
    pub(super) fn new(schema: Schema, refuses: bool, checks: Vec<DataCheck>) -> Self {
        Self {
            schema,
            refuses,
            checks,
            nonconforming: None,
        }
    }

    /// Whether the checks cost so little that they are made at once.
    pub fn are_quick(&self) -> bool {
        self.checks.iter().map(DataCheck::count_steps).sum::<f64>() <= QUICK_STEPS
    }

    /// Makes all checks. Returns the events that do not match and are stored.
    ///
    /// # Errors
    /// The refusal of the first event that does not match.
    pub fn check_all(mut self) -> Result<Option<Nonconforming>, Refusal> {
        for check in std::mem::take(&mut self.checks) {
            self.record_violation(&check, check.find_violation())?;
        }
        Ok(self.nonconforming)
    }

    /// Makes all checks in slices of processor time. Events for which there is no time count as
    /// events that do not match.
    ///
    /// # Errors
    /// The refusal.
    pub async fn check_in_slices(mut self, meter: Meter) -> Result<Option<Nonconforming>, Refusal> {
        for check in std::mem::take(&mut self.checks) {
            let violation = match meter.pause_if_used_up().await {
                Ok(()) => check.find_violation(),
                Err(error) => Some(format!(
                    "the data of all events of the request could not be checked: {error}"
                )),
            };
            self.record_violation(&check, violation)?;
        }
        Ok(self.nonconforming)
    }

    fn record_violation(
        &mut self,
        check: &DataCheck,
        violation: Option<String>,
    ) -> Result<(), Refusal> {
        let Some(why) = violation else { return Ok(()) };
        let why = format!("Event {}: {why}", check.event);
        if self.refuses {
            return Err(Refusal::Nonconforming {
                schema: self.schema,
                why,
            });
        }
        self.nonconforming
            .get_or_insert(Nonconforming {
                events: 0,
                first: why,
            })
            .events += 1;
        Ok(())
    }
}
