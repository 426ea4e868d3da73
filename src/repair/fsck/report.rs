//! What a look at a store found, and how it is told.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// More findings than this say nothing new: they are counted.
const FINDINGS_MAX: usize = 100;

/// What can be mended without losing anything: each says the same thing as another record that is there and whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Repair {
    /// A place in the order of falling due for nothing that is owed, or not for that time: it is taken away.
    StrayDue,
    /// An owed event has no place in that order: it is given the one that it names.
    MissingDue,
    /// A cursor does not say when the first owed event falls due, or too late: it says so.
    NextDue,
    /// A cursor counts other events as pending than are owed, and adds up with these: it counts these.
    Pending,
    /// The same of dead letters.
    DeadLettered,
    /// A dead letter's event is not pinned: it is.
    MissingPin,
    /// An event is pinned for no dead letter, and none is missing: it is not pinned any more.
    StrayPin,
    /// An event is held and nobody asks for it: it goes.
    StrayHeld,
}

impl Repair {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::StrayDue,
        Self::MissingDue,
        Self::NextDue,
        Self::Pending,
        Self::DeadLettered,
        Self::MissingPin,
        Self::StrayPin,
        Self::StrayHeld,
    ];

    /// Whether something goes: only where nothing else is wrong.
    fn takes_away(self) -> bool {
        match self {
            Self::StrayDue | Self::StrayPin | Self::StrayHeld => true,
            Self::MissingDue | Self::NextDue | Self::Pending | Self::DeadLettered | Self::MissingPin => false,
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// In a sentence.
    pub problem: String,
    /// How it can be mended without losing anything, if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
}

/// What was found.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckReport {
    /// Partitions, chunks and events of the log, cursors, owed, held, dead-letter and ledger records.
    pub counts: BTreeMap<String, u64>,
    /// What is wrong, the first of it; empty for a sound store.
    pub findings: Vec<Finding>,
    /// How much more is wrong.
    pub omitted: u64,
    /// What is left over and harms nothing, the first of it: a server takes it away when it meets it.
    pub leftovers: Vec<Finding>,
    /// How much more is left over.
    pub leftovers_omitted: u64,
    /// Whether something is wrong that cannot be mended.
    #[serde(skip)]
    beyond_mending: bool,
    /// How many records were mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<u64>,
}

impl CheckReport {
    /// Whether the store is what its rules say.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// How much of what was found can be mended, of what is told.
    pub fn mendable(&self) -> usize {
        self.findings.iter().chain(&self.leftovers).filter(|finding| finding.repair.is_some()).count()
    }

    pub(super) fn is_beyond_mending(&self) -> bool {
        self.beyond_mending
    }

    /// What would be taken away is not.
    pub(super) fn keep_leftovers(&mut self) {
        for finding in self.findings.iter_mut().chain(&mut self.leftovers) {
            finding.repair = finding.repair.filter(|mend| !mend.takes_away());
        }
    }

    pub(super) fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what.to_owned()).or_default() += by;
    }

    /// Something is wrong that only a backup mends.
    pub(super) fn wrong(&mut self, what: String) {
        self.beyond_mending = true;
        add(&mut self.findings, &mut self.omitted, Finding { problem: what, repair: None });
    }

    /// Something is wrong and can be mended.
    pub(super) fn mendable_wrong(&mut self, mend: Repair, what: String) {
        add(&mut self.findings, &mut self.omitted, Finding { problem: what, repair: Some(mend) });
    }

    /// Something is left over.
    pub(super) fn left_over(&mut self, mend: Repair, what: String) {
        add(&mut self.leftovers, &mut self.leftovers_omitted, Finding { problem: what, repair: Some(mend) });
    }
}

fn add(found: &mut Vec<Finding>, omitted: &mut u64, finding: Finding) {
    if found.len() < FINDINGS_MAX {
        found.push(finding);
    } else {
        *omitted += 1;
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        writeln!(f, "{}", counts.join(", "))?;
        for Finding { problem, repair } in &self.findings {
            writeln!(f, "wrong: {problem}{}", if repair.is_some() { " (--repair mends it)" } else { "" })?;
        }
        for Finding { problem, .. } in &self.leftovers {
            writeln!(f, "left over: {problem}")?;
        }
        if self.leftovers_omitted > 0 {
            writeln!(f, "left over: {} more", self.leftovers_omitted)?;
        }
        if let Some(repaired) = self.repaired {
            writeln!(f, "{repaired} records mended")?;
        }
        match (self.findings.len(), self.omitted) {
            (0, _) => f.write_str("the store is sound"),
            (1, 0) => f.write_str("the store is not sound: 1 complaint"),
            (told, 0) => write!(f, "the store is not sound: {told} complaints"),
            (told, omitted) => write!(f, "the store is not sound: {told} complaints, and {omitted} more"),
        }
    }
}
