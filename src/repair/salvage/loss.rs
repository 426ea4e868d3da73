//! What is missing, and how it is told.

use std::fmt;

use serde::Serialize;

use crate::store::damage::LogGap;

/// More of a kind than this is counted.
const TOLD_MAX: usize = 1000;

/// An event that a subscription will not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LostEvent {
    /// Which subscription.
    pub subscription: u32,
    /// In which partition.
    pub partition: u32,
    /// Which event.
    pub sequence: u64,
    /// Whether it waited as a dead letter; if not, it was owed.
    pub was_dead_letter: bool,
}

/// What is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LossReport {
    /// Everything up to this change was acknowledged; [`None`] where the watermark is lost too.
    pub acknowledged: Option<u64>,
    /// What is there ends with this change; some before it may have been skipped.
    pub recovered: u64,
    /// Events that are in no log any more.
    pub events: Vec<LogGap>,
    /// Events that a subscription will not get, beside those.
    pub pending_deliveries: Vec<LostEvent>,
    /// What else was lost or made anew, in sentences.
    pub records: Vec<String>,
    /// What is not told, of all of these.
    pub omitted: u64,
}

impl LossReport {
    pub(super) fn event(&mut self, gap: LogGap) {
        add(&mut self.events, &mut self.omitted, gap);
    }

    pub(super) fn obligation(&mut self, gone: LostEvent) {
        add(&mut self.pending_deliveries, &mut self.omitted, gone);
    }

    pub(super) fn record(&mut self, what: String) {
        add(&mut self.records, &mut self.omitted, what);
    }
}

fn add<T>(to: &mut Vec<T>, omitted: &mut u64, what: T) {
    if to.len() < TOLD_MAX {
        to.push(what);
    } else {
        *omitted += 1;
    }
}

impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recovered = self.recovered;
        match self.acknowledged {
            Some(acknowledged) if acknowledged > recovered => {
                let missing = acknowledged - recovered;
                writeln!(f, "missing: changes {} to {acknowledged}, {missing} of them", recovered + 1)?;
            }
            Some(_) => writeln!(f, "the last change is there; missing is what was skipped before it")?,
            None => {
                writeln!(f, "missing: the watermark; how much is missing behind change {recovered} cannot be told")?
            }
        }
        for LogGap { partition, first, count } in &self.events {
            let last = first + count - 1;
            writeln!(f, "missing: events {first} to {last} of partition {partition}, {count} of them")?;
        }
        for LostEvent { subscription, partition, sequence, was_dead_letter } in &self.pending_deliveries {
            let was = if *was_dead_letter { "put aside as a dead letter" } else { "owed" };
            writeln!(f, "missing: event {sequence} of partition {partition}, {was} for subscription {subscription}")?;
        }
        for what in &self.records {
            writeln!(f, "{what}")?;
        }
        if self.omitted > 0 {
            writeln!(f, "missing: {} more", self.omitted)?;
        }
        Ok(())
    }
}
