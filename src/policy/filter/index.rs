//! Which of many filters an event may pass, without asking each of them.
//!
//! A filter stands behind up to four doors, one behind the other: its topic of the domain, its event types, the beginning
//! of its subject, and one key that must equal one of some values (`StringIn`, `NumberIn`, `BoolEquals`) or contain one of
//! some strings (`StringContains`). An event finds the filters whose doors it opens by looking up, and only those are asked.
//!
//! The strings that filters look for inside of texts are looked for in one pass for all filters ([`FilterIndex::view`]): an event
//! costs its length, whatever is asked of it.
//!
//! Invariants:
//! - Every filter that lets an event pass is among its candidates; a candidate may still stop it.
//! - The doors come in the order of what they cost: nothing is looked up in an event's JSON for a filter whose type or
//!   subject is another.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Filter,
    advanced::{AdvancedFilter, Operator},
    needles::Needles,
    number::ExactNumber,
    text::{FoldedText, folded},
    view::{EventView, JsonNode},
};
use crate::event::Event;

/// Many filters, by their places in a list.
#[derive(Debug, Default)]
pub struct FilterIndex {
    /// Of a topic, and of all topics of a domain.
    any_topic: TypeIndex,
    by_topic: HashMap<String, TypeIndex>,
    needles: Needles,
}

#[derive(Debug, Default)]
struct TypeIndex {
    any: SubjectIndex,
    by_type: HashMap<String, SubjectIndex>,
}

#[derive(Debug, Default)]
struct SubjectIndex {
    any: ValueIndex,
    by_prefix: HashMap<String, ValueIndex>,
    /// The lengths of the prefixes: as many look-ups, however many prefixes there are.
    lengths: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct ValueIndex {
    any: Vec<usize>,
    /// By the names of the key.
    by_key: HashMap<Vec<String>, KeyIndex>,
}

/// The filters that one key decides about.
#[derive(Debug, Default)]
struct KeyIndex {
    by_value: HashMap<Scalar, Vec<usize>>,
    by_part: HashMap<String, Vec<usize>>,
}

/// What a filter wants of a key.
enum RequiredValues {
    Equal(HashSet<Scalar>),
    Contained(HashSet<String>),
}

/// What a key must equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scalar {
    Bool(bool),
    Number(ExactNumber),
    Text(String),
}

impl FilterIndex {
    /// An index over these.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        Self::default().renewed(filters)
    }

    /// An index over these, with what is still good of this one.
    #[must_use]
    pub fn renewed<'f>(&self, filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let (mut index, mut strings) = (Self::default(), HashSet::new());
        for (place, filter) in filters.into_iter().enumerate() {
            strings.extend(
                filter.advanced_filters.iter().flat_map(|advanced| parts(&advanced.operator)).map(FoldedText::folded),
            );
            match &filter.domain_topic {
                None => index.any_topic.add(filter, place),
                Some(topic) => index.by_topic.entry(folded(topic)).or_default().add(filter, place),
            }
        }
        index.needles = self.needles.renewed(strings);
        index
    }

    /// The event, for these filters to look at.
    pub fn view<'e>(&'e self, event: &'e Event) -> EventView<'e> {
        EventView::with(event, &self.needles)
    }

    /// The places of the filters that may let the event pass, ascending.
    pub fn candidates(&self, view: &EventView<'_>) -> Vec<usize> {
        let mut found = Vec::new();
        self.any_topic.find(view, &mut found);
        if !self.by_topic.is_empty()
            && let Some(types) = self.by_topic.get(view.domain_topic().folded())
        {
            types.find(view, &mut found);
        }
        // An array may open a door twice.
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl TypeIndex {
    fn add(&mut self, filter: &Filter, place: usize) {
        let Some(types) = filter.event_types() else { return self.any.add(filter, place) };
        let types: BTreeSet<String> = types.iter().map(|name| folded(name)).collect();
        for name in types {
            self.by_type.entry(name).or_default().add(filter, place);
        }
    }

    fn find(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        self.any.find(view, found);
        if !self.by_type.is_empty()
            && let Some(subjects) = self.by_type.get(view.event_type().folded())
        {
            subjects.find(view, found);
        }
    }
}

impl SubjectIndex {
    fn add(&mut self, filter: &Filter, place: usize) {
        if filter.subject_begins_with.is_empty() {
            return self.any.add(filter, place);
        }
        // Also for a filter that minds the case: what it lets pass, this lets pass.
        let prefix = folded(&filter.subject_begins_with);
        self.lengths.insert(prefix.len());
        self.by_prefix.entry(prefix).or_default().add(filter, place);
    }

    fn find(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        self.any.find(view, found);
        if self.lengths.is_empty() {
            return;
        }
        let subject = view.subject().folded();
        for length in self.lengths.range(..=subject.len()) {
            if let Some(values) = subject.get(..*length).and_then(|prefix| self.by_prefix.get(prefix)) {
                values.find(view, found);
            }
        }
    }
}

impl ValueIndex {
    fn add(&mut self, filter: &Filter, place: usize) {
        // An equal value leaves fewer candidates than a part does, and what lies at the top of an event costs less than what
        // lies in its data.
        let doors = filter
            .advanced_filters
            .iter()
            .filter_map(|advanced| Some((advanced.key.path(), required_values(advanced)?)));
        let first = doors.min_by_key(|(path, wanted)| (matches!(wanted, RequiredValues::Contained(_)), path.len()));
        let Some((path, wanted)) = first else { return self.any.push(place) };
        let doors = self.by_key.entry(path.to_vec()).or_default();
        match wanted {
            RequiredValues::Equal(values) => {
                values.into_iter().for_each(|value| doors.by_value.entry(value).or_default().push(place));
            }
            RequiredValues::Contained(parts) => {
                parts.into_iter().for_each(|part| doors.by_part.entry(part).or_default().push(place));
            }
        }
    }

    fn find(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        found.extend(&self.any);
        for (path, doors) in &self.by_key {
            if let Some(node) = view.find_path(path) {
                doors.find(view, node, found);
            }
        }
    }
}

impl KeyIndex {
    fn find(&self, view: &EventView<'_>, node: &JsonNode<'_>, found: &mut Vec<usize>) {
        let value = node.value();
        if !self.by_value.is_empty() {
            let mut open = |scalar: Scalar| found.extend(self.by_value.get(&scalar).into_iter().flatten());
            let bools = value.bools().unwrap_or_default();
            [false, true].into_iter().filter(|it| bools[usize::from(*it)]).map(Scalar::Bool).for_each(&mut open);
            value.numbers().into_iter().flatten().cloned().map(Scalar::Number).for_each(&mut open);
            value.texts().into_iter().flatten().cloned().map(Scalar::Text).for_each(&mut open);
        }
        if !self.by_part.is_empty() {
            view.each_part(node, self.by_part.keys(), &mut |part| {
                found.extend(self.by_part.get(part).into_iter().flatten());
            });
        }
    }
}

/// The strings that an operator looks for inside of texts.
fn parts(operator: &Operator) -> &[FoldedText] {
    match operator {
        Operator::StringContains { values } | Operator::StringNotContains { values } => values,
        _ => &[],
    }
}

/// What the key must be; [`None`] where the operator asks for something else.
fn required_values(AdvancedFilter { operator, .. }: &AdvancedFilter) -> Option<RequiredValues> {
    match operator {
        Operator::StringIn { values } => {
            Some(RequiredValues::Equal(values.iter().map(|text| Scalar::Text(text.folded().to_owned())).collect()))
        }
        Operator::NumberIn { values } => {
            Some(RequiredValues::Equal(values.iter().cloned().map(Scalar::Number).collect()))
        }
        Operator::BoolEquals { value } => Some(RequiredValues::Equal(HashSet::from([Scalar::Bool(*value)]))),
        Operator::StringContains { values } => {
            Some(RequiredValues::Contained(values.iter().map(|text| text.folded().to_owned()).collect()))
        }
        Operator::NumberNotIn { .. }
        | Operator::NumberLessThan { .. }
        | Operator::NumberGreaterThan { .. }
        | Operator::NumberLessThanOrEquals { .. }
        | Operator::NumberGreaterThanOrEquals { .. }
        | Operator::NumberInRange { .. }
        | Operator::NumberNotInRange { .. }
        | Operator::StringBeginsWith { .. }
        | Operator::StringEndsWith { .. }
        | Operator::StringNotContains { .. }
        | Operator::StringNotBeginsWith { .. }
        | Operator::StringNotEndsWith { .. }
        | Operator::StringNotIn { .. }
        | Operator::IsNullOrUndefined
        | Operator::IsNotNull => None,
    }
}
