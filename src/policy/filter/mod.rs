//! Filters of subscriptions: by event type, subject, values at keys of the event and, in a domain,
//! topic.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`advanced`] | operators on values at keys |
//! | [`key`] | keys of an event |
//! | [`view`] | an event that is parsed only as far as filters need it |
//! | `outline` | positions of members in the event's JSON |
//! | [`number`], [`text`] | comparison of values |
//! | `needles` | search of many strings in one pass |
//! | [`index`] | evaluation of many filters at once |
//!
//! Invariants: the parts of a filter are joined by *and*, the values within a part by *or*.
//! Evaluation never fails; a missing value does not match, except for the operators that allow it.

pub mod advanced;
pub mod index;
pub mod key;
mod needles;
pub mod number;
mod outline;
pub mod text;
pub mod view;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::{
    advanced::AdvancedFilter,
    text::{begins_with, ends_with, equal_ignoring_case},
    view::{EventView, JsonNode},
};
use gridhook_event::Event;

/// A subscription's filter, in Event Grid's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Filter {
    /// Matching event types, compared without case. [`None`], an empty list or `All` matches every
    /// type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included_event_types: Option<Vec<String>>,
    /// Required beginning of the subject, without wildcards.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_begins_with: String,
    /// Required end of the subject, without wildcards.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_ends_with: String,
    /// Whether the subject is compared case-sensitively.
    pub is_subject_case_sensitive: bool,
    /// Further conditions; all of them must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advanced_filters: Vec<AdvancedFilter>,
    /// Whether advanced filters search arrays.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_advanced_filtering_on_arrays: bool,
    /// The topic of a domain, compared without case; [`None`] for all topics of a domain, and
    /// outside of domains. It is derived from the subscription's resource id and cannot be set by
    /// clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_topic: Option<String>,
}

/// The result of a filter for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterResult {
    /// Every condition holds.
    Match,
    /// The event is filtered out.
    Stopped {
        /// The first condition that does not hold, by its ARM name; `domainTopic` if the
        /// subscription belongs to another topic of the domain.
        clause: String,
        /// What about the value stopped it, as a phrase for operators.
        why: &'static str,
        /// The value that was compared, as JSON, if there was one.
        seen: Option<String>,
    },
}

/// A condition of a filter.
#[derive(Clone, Copy, Debug)]
enum FilterClause<'f> {
    DomainTopic,
    EventTypes,
    SubjectBeginsWith,
    SubjectEndsWith,
    Advanced(usize, &'f AdvancedFilter),
}

impl fmt::Display for FilterClause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DomainTopic => f.write_str("domainTopic"),
            Self::EventTypes => f.write_str("includedEventTypes"),
            Self::SubjectBeginsWith => f.write_str("subjectBeginsWith"),
            Self::SubjectEndsWith => f.write_str("subjectEndsWith"),
            Self::Advanced(index, AdvancedFilter { key, operator }) => {
                write!(
                    f,
                    "advancedFilters[{index}] ({} {})",
                    operator.name(),
                    key.as_str()
                )
            }
        }
    }
}

impl Filter {
    /// Looks at the stored strings first, and parses the event's `data` only if they do not decide.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_as_stored(event) || self.first_mismatch(&EventView::new(event)).is_none()
    }

    /// Whether the event's strings as stored show that the event matches, without decoding them:
    /// the usual case. A text without a backslash begins a JSON string literal only if it begins
    /// the decoded string.
    fn matches_as_stored(&self, event: &Event) -> bool {
        let is_simple = self.domain_topic.is_none()
            && self.subject_ends_with.is_empty()
            && self.advanced_filters.is_empty();
        if !is_simple {
            return false;
        }
        let (event_type, subject) = event.type_and_subject_literals();
        let is_plain = |text: &str| !text.contains('\\');
        let is_type = |name: &String| name.as_bytes() == event_type && is_plain(name);
        self.event_types()
            .is_none_or(|types| types.iter().any(is_type))
            && subject.starts_with(self.subject_begins_with.as_bytes())
            && is_plain(&self.subject_begins_with)
    }

    /// As [`Filter::matches`], for a view, which several filters can share.
    pub fn matches_view(&self, view: &EventView<'_>) -> bool {
        self.matches_as_stored(view.event()) || self.first_mismatch(view).is_none()
    }

    /// As [`Filter::matches`], for a view of `event` that is made when the first filter needs it.
    pub fn matches_lazy_view<'v>(
        &self,
        event: &Event,
        view: impl FnOnce() -> &'v EventView<'v>,
    ) -> bool {
        self.matches_as_stored(event) || self.first_mismatch(view()).is_none()
    }

    /// Whether `event` matches, and if not, why.
    pub fn explain_mismatch(&self, event: &Event) -> FilterResult {
        let view = EventView::new(event);
        let Some((clause, why)) = self.first_mismatch(&view) else {
            return FilterResult::Match;
        };
        let value = match clause {
            FilterClause::DomainTopic => Some(view.domain_topic_node().to_truncated_json()),
            FilterClause::EventTypes => Some(view.event_type_node().to_truncated_json()),
            FilterClause::SubjectBeginsWith | FilterClause::SubjectEndsWith => {
                Some(view.subject_node().to_truncated_json())
            }
            FilterClause::Advanced(_, advanced) => view
                .find_value(&advanced.key)
                .map(JsonNode::to_truncated_json),
        };
        FilterResult::Stopped {
            clause: clause.to_string(),
            why,
            seen: value,
        }
    }

    /// The event types that can match; [`None`] if all can.
    pub fn event_types(&self) -> Option<&[String]> {
        let types = self.included_event_types.as_deref()?;
        let all = types.is_empty() || types.iter().any(|name| name.eq_ignore_ascii_case("All"));
        (!all).then_some(types)
    }

    /// The first condition that does not hold, and why. Cheap conditions are checked first.
    fn first_mismatch(&self, view: &EventView<'_>) -> Option<(FilterClause<'_>, &'static str)> {
        if !self
            .domain_topic
            .as_ref()
            .is_none_or(|topic| equal_ignoring_case(topic, view.domain_topic().as_str()))
        {
            return Some((
                FilterClause::DomainTopic,
                "the event is for another topic of the domain",
            ));
        }
        if !self.event_types().is_none_or(|types| {
            types
                .iter()
                .any(|name| equal_ignoring_case(name, view.event_type_text()))
        }) {
            return Some((FilterClause::EventTypes, "the event type is not among them"));
        }
        if !self.subject_fits(
            view,
            &self.subject_begins_with,
            |subject, part| subject.starts_with(part),
            begins_with,
        ) {
            return Some((
                FilterClause::SubjectBeginsWith,
                "the subject begins otherwise",
            ));
        }
        if !self.subject_fits(
            view,
            &self.subject_ends_with,
            |subject, part| subject.ends_with(part),
            ends_with,
        ) {
            return Some((FilterClause::SubjectEndsWith, "the subject ends otherwise"));
        }
        self.advanced_filters
            .iter()
            .enumerate()
            .find_map(|(index, advanced)| {
                let why = advanced.mismatch(view, self.enable_advanced_filtering_on_arrays)?;
                Some((FilterClause::Advanced(index, advanced), why.describe()))
            })
    }

    /// Most filters have no condition on the subject, so it is not read for them.
    fn subject_fits(
        &self,
        view: &EventView<'_>,
        part: &str,
        with_case: fn(&str, &str) -> bool,
        without_case: fn(&str, &str) -> bool,
    ) -> bool {
        match (part.is_empty(), self.is_subject_case_sensitive) {
            (true, _) => true,
            (false, true) => with_case(view.subject_text(), part),
            (false, false) => without_case(view.subject_text(), part),
        }
    }
}
