//! The report of a check.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use gridhook_escape::count_with_noun;

/// The maximum number of findings in a report. Further ones are only counted.
const FINDINGS_MAX: usize = 100;

/// A problem that can be repaired without loss, because another intact record has the same
/// information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Repair {
    /// A due record without a pending delivery for that time. It is deleted.
    StrayDue,
    /// A pending delivery without a due record. The record is added.
    MissingDue,
    /// A cursor whose due time of the first pending delivery is missing or too late. It is set.
    NextDue,
    /// A cursor with a wrong count of pending deliveries, whose counters add up with the counted
    /// value. It is set.
    Pending,
    DeadLettered,
    /// A dead letter whose event is not pinned. The pin is added.
    MissingPin,
    /// A pin without a dead letter, while no dead letter is missing. It is deleted.
    StrayPin,
    /// A carried event that is not needed. It is deleted.
    StrayCarried,
}

impl Repair {
    /// All problems that can be repaired.
    pub const ALL: [Self; 8] = [
        Self::StrayDue,
        Self::MissingDue,
        Self::NextDue,
        Self::Pending,
        Self::DeadLettered,
        Self::MissingPin,
        Self::StrayPin,
        Self::StrayCarried,
    ];

    /// Whether the repair deletes a record. That is done only if nothing else is wrong.
    fn deletes_record(self) -> bool {
        match self {
            Self::StrayDue | Self::StrayPin | Self::StrayCarried => true,
            Self::MissingDue
            | Self::NextDue
            | Self::Pending
            | Self::DeadLettered
            | Self::MissingPin => false,
        }
    }
}

/// A problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub problem: String,
    /// How the problem can be repaired without loss, if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
}

impl Finding {
    fn with_shard(self, shard: usize) -> Self {
        Self {
            problem: format!("shard {shard}: {}", self.problem),
            ..self
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckReport {
    /// Numbers of checked records, by kind.
    pub counts: BTreeMap<String, u64>,
    /// The first problems; empty for a sound store.
    pub findings: Vec<Finding>,
    /// The number of further problems.
    pub omitted: u64,
    /// The first harmless leftovers. A running server removes them when it reads them.
    pub leftovers: Vec<Finding>,
    /// The number of further leftovers.
    pub leftovers_omitted: u64,
    /// Whether any problem is beyond repair.
    #[serde(skip)]
    beyond_repair: bool,
    /// The number of repaired records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<u64>,
}

impl CheckReport {
    /// Whether no problem was found. Harmless leftovers are none.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds the report of a shard, whose findings name it.
    pub fn add_shard(&mut self, shard: usize, report: Self) {
        // Each field by name: a new one does not compile without a rule.
        let Self {
            counts,
            findings,
            omitted,
            leftovers,
            leftovers_omitted,
            beyond_repair,
            repaired,
        } = report;
        for (kind, count) in counts {
            *self.counts.entry(kind).or_default() += count;
        }
        let of_shard = |finding: Finding| finding.with_shard(shard);
        self.findings.extend(findings.into_iter().map(of_shard));
        self.omitted += omitted;
        self.leftovers.extend(leftovers.into_iter().map(of_shard));
        self.leftovers_omitted += leftovers_omitted;
        self.beyond_repair |= beyond_repair;
        if let Some(repaired) = repaired {
            *self.repaired.get_or_insert_default() += repaired;
        }
    }

    pub(super) fn is_beyond_repair(&self) -> bool {
        self.beyond_repair
    }

    /// Removes the repairs that delete records.
    pub(super) fn keep_leftovers(&mut self) {
        for finding in self.findings.iter_mut().chain(&mut self.leftovers) {
            finding.repair = finding.repair.filter(|repair| !repair.deletes_record());
        }
    }

    pub(super) fn add_count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what.to_owned()).or_default() += by;
    }

    /// Reports a problem that cannot be repaired.
    pub(super) fn add_problem(&mut self, what: String) {
        self.beyond_repair = true;
        add(
            &mut self.findings,
            &mut self.omitted,
            Finding {
                problem: what,
                repair: None,
            },
        );
    }

    /// Reports a problem that can be repaired.
    pub(super) fn add_repairable(&mut self, repair: Repair, what: String) {
        add(
            &mut self.findings,
            &mut self.omitted,
            Finding {
                problem: what,
                repair: Some(repair),
            },
        );
    }

    pub(super) fn add_leftover(&mut self, repair: Repair, what: String) {
        add(
            &mut self.leftovers,
            &mut self.leftovers_omitted,
            Finding {
                problem: what,
                repair: Some(repair),
            },
        );
    }
}

fn add(found: &mut Vec<Finding>, omitted: &mut u64, finding: Finding) {
    if found.len() < FINDINGS_MAX {
        found.push(finding);
    } else {
        *omitted += 1;
    }
}

/// A number of records with the name of their kind, which is a plural.
fn format_kind_count(count: u64, kind: &str) -> String {
    match kind.strip_suffix("ies") {
        _ if count != 1 => format!("{count} {kind}"),
        Some(stem) => format!("{count} {stem}y"),
        None => format!("{count} {}", kind.trim_end_matches('s')),
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(kind, count)| format_kind_count(*count, kind))
            .collect();
        writeln!(f, "{}", counts.join(", "))?;
        for Finding { problem, repair } in &self.findings {
            writeln!(
                f,
                "wrong: {problem}{}",
                if repair.is_some() {
                    " (--repair can repair it)"
                } else {
                    ""
                }
            )?;
        }
        for Finding { problem, .. } in &self.leftovers {
            writeln!(f, "left over: {problem}")?;
        }
        if self.leftovers_omitted > 0 {
            writeln!(f, "left over: {} more", self.leftovers_omitted)?;
        }
        if let Some(repaired) = self.repaired {
            writeln!(f, "{} repaired", count_with_noun(repaired, "record"))?;
        }
        match (self.findings.len(), self.omitted) {
            (0, _) => f.write_str("the store is sound"),
            (listed, 0) => write!(
                f,
                "the store is not sound: {}",
                count_with_noun(listed as u64, "problem")
            ),
            (listed, omitted) => write!(
                f,
                "the store is not sound: {listed} problems, and {omitted} more"
            ),
        }
    }
}
