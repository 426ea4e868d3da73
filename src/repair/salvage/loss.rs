//! The report of a salvage.

use std::fmt;

use serde::Serialize;

use gridhook_escape::count_with_noun;
use gridhook_store::damage::LogGap;

/// The maximum number of listed entries of each kind. Further ones are only counted.
const LISTED_MAX: usize = 1000;

/// An event that a subscription will not receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LostEvent {
    pub subscription: u32,
    pub partition: u32,
    pub sequence: u64,
    /// Whether the event waited as a dead letter. Otherwise its delivery was pending.
    pub was_dead_letter: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LossReport {
    /// The last acknowledged change; [`None`] if the watermark is lost too.
    pub acknowledged: Option<u64>,
    /// The last recovered change. Some changes before it may be missing.
    pub recovered: u64,
    pub events: Vec<LogGap>,
    /// Events that a subscription will not receive although the log has them.
    pub pending_deliveries: Vec<LostEvent>,
    /// Descriptions of other records that were lost or created.
    pub records: Vec<String>,
    /// The number of entries that are not listed.
    pub omitted: u64,
}

impl LossReport {
    pub(super) fn add_gap(&mut self, gap: LogGap) {
        add(&mut self.events, &mut self.omitted, gap);
    }

    pub(super) fn add_event(&mut self, event: LostEvent) {
        add(&mut self.pending_deliveries, &mut self.omitted, event);
    }

    pub(super) fn add_record(&mut self, what: String) {
        add(&mut self.records, &mut self.omitted, what);
    }
}

fn add<T>(to: &mut Vec<T>, omitted: &mut u64, what: T) {
    if to.len() < LISTED_MAX {
        to.push(what);
    } else {
        *omitted += 1;
    }
}

impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last_sequence = self.recovered;
        match self.acknowledged {
            Some(acknowledged) if acknowledged > last_sequence => {
                let missing = acknowledged - last_sequence;
                let missing = count_with_noun(missing, "change");
                writeln!(
                    f,
                    "missing: {missing}, {} to {acknowledged}",
                    last_sequence + 1
                )?;
            }
            Some(_) => writeln!(
                f,
                "the last acknowledged change was recovered; earlier ones may be missing"
            )?,
            None => writeln!(
                f,
                "missing: the watermark, and an unknown number of changes after {last_sequence}"
            )?,
        }
        for LogGap {
            partition,
            first,
            count,
        } in &self.events
        {
            let last = first + count - 1;
            writeln!(
                f,
                "missing: {}, {first} to {last} of partition {partition}",
                count_with_noun(*count, "event")
            )?;
        }
        for LostEvent {
            subscription,
            partition,
            sequence,
            was_dead_letter,
        } in &self.pending_deliveries
        {
            let was = if *was_dead_letter {
                "a dead letter"
            } else {
                "pending"
            };
            writeln!(
                f,
                "missing: event {sequence} of partition {partition}, {was} for subscription \
                 {subscription}"
            )?;
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
