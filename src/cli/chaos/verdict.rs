//! The verdict of a run, as text or JSON.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use super::ledger::LedgerSummary;
use crate::{
    format::{count_with_noun, group_thousands},
    output::TextTable,
};
use gridhook_api::supervision::RecoveryView;

/// The recovery times of actors, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct RecoveryTimes {
    count: u64,
    p50: Option<f64>,
    p99: Option<f64>,
    longest: Option<f64>,
}

impl From<RecoveryView> for RecoveryTimes {
    fn from(
        RecoveryView {
            count,
            p50,
            p99,
            longest,
            last: _,
        }: RecoveryView,
    ) -> Self {
        Self {
            count,
            p50,
            p99,
            longest,
        }
    }
}

/// The requests of the load generator.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishedCount {
    /// Number of acknowledged requests.
    pub requests: u64,
    /// Number of requests that were refused with 503 or 429.
    pub refused: u64,
    /// Number of requests without a response, whose events may or may not be stored.
    pub unknown: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChaosVerdict {
    pub(super) topic: String,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) subscriptions: usize,
    pub(super) requests: PublishedCount,
    pub(super) acknowledged: u64,
    pub(super) expected: u64,
    pub(super) arrived: u64,
    pub(super) lost: u64,
    /// Some of the lost events: `subscription/event`.
    pub(super) lost_events: Vec<String>,
    pub(super) repeated: u64,
    pub(super) repeated_allowed: u64,
    pub(super) damaged: u64,
    pub(super) refused_but_arrived: u64,
    /// Whether nothing was pending in the server at the end.
    pub(super) settled: bool,
    pub(super) restarts: RecoveryTimes,
    pub(super) injected: BTreeMap<String, u64>,
    /// Kills without a target: the actor was restarting, or no request was in flight.
    pub(super) missed: u64,
    pub(super) ok: bool,
}

impl ChaosVerdict {
    /// Adds the totals and computes the verdict.
    pub(super) fn judge_totals(mut self, sum: LedgerSummary) -> Self {
        let LedgerSummary {
            acknowledged,
            arrived,
            lost,
            named,
            repeated,
            damaged,
            refused_but_arrived,
        } = sum;
        let names = named
            .into_iter()
            .map(|(subscription, event)| format!("{}/{event}", super::name_of(subscription)));
        self.lost_events = names.collect();
        self.acknowledged = acknowledged;
        self.expected = acknowledged * self.subscriptions as u64;
        (self.arrived, self.lost, self.repeated, self.damaged) = (arrived, lost, repeated, damaged);
        self.refused_but_arrived = refused_but_arrived;
        self.ok =
            acknowledged > 0 && lost == 0 && damaged == 0 && repeated <= self.repeated_allowed;
        self
    }

    /// Whether no event was lost or damaged, and no more were repeated than the faults explain.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    fn failure_reason(&self) -> String {
        let mut wrong = Vec::new();
        if self.acknowledged == 0 {
            wrong.push("no event was acknowledged".to_owned());
        }
        if self.lost > 0 {
            let some = self.lost_events.join(", ");
            let waiting = if self.settled {
                ""
            } else {
                "; deliveries are still pending, raise --settle to wait longer"
            };
            wrong.push(format!(
                "{} did not arrive ({some}{}){waiting}",
                count_with_noun(self.lost, "event"),
                self.ellipsis()
            ));
        }
        if self.damaged > 0 {
            wrong.push(format!(
                "{} arrived damaged",
                count_with_noun(self.damaged, "event")
            ));
        }
        if self.repeated > self.repeated_allowed {
            let more = count_with_noun(self.repeated - self.repeated_allowed, "more event");
            wrong.push(format!("{more} repeated than the faults explain"));
        }
        match wrong.as_slice() {
            [] if self.repeated > 0 => {
                "no event was lost; repeated events are explained by the injected faults".to_owned()
            }
            [] => "no event was lost or repeated".to_owned(),
            wrong => wrong.join("; "),
        }
    }

    fn ellipsis(&self) -> &'static str {
        if self.lost as usize > self.lost_events.len() {
            ", …"
        } else {
            ""
        }
    }
}

impl fmt::Display for ChaosVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.acknowledged as f64 / self.seconds.max(0.001);
        let time = Duration::from_secs_f64((self.seconds * 10.0).round() / 10.0);
        writeln!(
            f,
            "{time:?}, {} events/s, {}, seed {}\n",
            group_thousands(rate.round() as u64),
            count_with_noun(self.subscriptions as u64, "subscription"),
            self.seed
        )?;
        let PublishedCount {
            requests,
            refused,
            unknown,
        } = self.requests;
        let RecoveryTimes {
            count,
            p50,
            p99,
            longest,
        } = self.restarts;
        let millis = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.1}ms"));
        let faults = self.injected.iter().filter(|(_, count)| **count > 0);
        let faults: Vec<String> = faults
            .map(|(name, count)| format!("{name} {}", group_thousands(*count)))
            .collect();
        let mut table = TextTable::new(["acknowledged", &group_thousands(self.acknowledged), ""]);
        let mut line = |name: &str, count: u64, more: String| {
            table.add_row([name.to_owned(), group_thousands(count), more])
        };
        line(
            "requests",
            requests,
            format!(
                "{} refused, {} without a response",
                group_thousands(refused),
                group_thousands(unknown)
            ),
        );
        line(
            "arrived",
            self.arrived,
            format!("of {}", group_thousands(self.expected)),
        );
        line("lost", self.lost, String::new());
        line(
            "repeated",
            self.repeated,
            format!("allowed {}", group_thousands(self.repeated_allowed)),
        );
        line("damaged", self.damaged, String::new());
        line(
            "restarts",
            count,
            format!(
                "p50 {}, p99 {}, longest {}",
                millis(p50),
                millis(p99),
                millis(longest)
            ),
        );
        line("injected", self.fault_count(), faults.join(", "));
        line("missed", self.missed, "kills without a target".to_owned());
        writeln!(f, "{table}\n")?;
        write!(
            f,
            "{}: {}",
            if self.ok { "passed" } else { "FAILED" },
            self.failure_reason()
        )
    }
}

impl ChaosVerdict {
    /// The number of injected faults; counters of affected events are not faults.
    fn fault_count(&self) -> u64 {
        self.injected
            .iter()
            .filter(|(name, _)| !name.ends_with(".events"))
            .map(|(_, count)| count)
            .sum()
    }
}
