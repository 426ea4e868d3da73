//! Which events a subscription asks for: by event type and by subject.
//!
//! The parts of a filter are joined by *and*, the values within a part by *or*. A filter never fails: what an event lacks
//! does not match.

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// A subscription's filter, in Event Grid's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Filter {
    /// The event types let through, compared without case. [`None`], an empty list or `All` let every type through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included_event_types: Option<Vec<String>>,
    /// What the subject must begin with; nothing special in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_begins_with: String,
    /// What the subject must end with; nothing special in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_ends_with: String,
    /// Whether the subject is compared with its case.
    pub is_subject_case_sensitive: bool,
}

impl Filter {
    /// Whether `event` passes.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_type(&event.event_type()) && self.matches_subject(&event.subject())
    }

    /// The event types that can pass; [`None`] where every type can.
    pub fn event_types(&self) -> Option<&[String]> {
        let types = self.included_event_types.as_deref()?;
        let all = types.is_empty() || types.iter().any(|name| name.eq_ignore_ascii_case("All"));
        (!all).then_some(types)
    }

    fn matches_type(&self, event_type: &str) -> bool {
        self.event_types().is_none_or(|types| types.iter().any(|name| same(name, event_type)))
    }

    fn matches_subject(&self, subject: &str) -> bool {
        if self.is_subject_case_sensitive {
            return subject.starts_with(&self.subject_begins_with) && subject.ends_with(&self.subject_ends_with);
        }
        // Most filters have neither: no copy for them.
        if self.subject_begins_with.is_empty() && self.subject_ends_with.is_empty() {
            return true;
        }
        let subject = subject.to_lowercase();
        subject.starts_with(&self.subject_begins_with.to_lowercase())
            && subject.ends_with(&self.subject_ends_with.to_lowercase())
    }
}

/// Whether two strings differ in nothing but case.
fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (!a.is_ascii() && a.to_lowercase() == b.to_lowercase())
}
