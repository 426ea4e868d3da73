//! An index over many filters: which of them an event may match, without evaluating each.
//!
//! The index has up to four levels: the domain topic, the event type, the beginning of the subject,
//! and one key that must equal one of some values (`StringIn`, `NumberIn`, `BoolEquals`) or contain
//! one of some strings (`StringContains`). Look-ups find the filters that agree on all levels, and
//! only those are evaluated.
//!
//! Substrings are searched in one pass for all filters ([`FilterIndex::view_event`]), so the cost
//! of an event depends on its length and not on the number of filters.
//!
//! Invariants:
//! - Each filter that matches an event is among its candidates. A candidate may still reject it.
//! - Levels are ordered by cost: an event's JSON is not read for a filter of another type or
//!   subject.
//!
//! What it does not do: it does not decide. [`Filter::matches_view`] does.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Filter,
    advanced::{AdvancedFilter, Operator},
    needles::{BUILD_COST, Found, Needles},
    number::ExactNumber,
    text::{FoldedText, fold_case, with_folded},
    view::{EventView, JsonNode},
};
use gridhook_event::Event;

/// Many filters, identified by their index in a list.
#[derive(Debug, Default)]
pub struct FilterIndex {
    /// Filters of a topic, and of all topics of a domain.
    any_topic: TypeIndex,
    by_topic: HashMap<String, TypeIndex>,
    needles: Needles,
    /// The keys whose texts are searched.
    searched: BTreeSet<Vec<String>>,
}

/// A search that costs less is made at once.
const SCANNED_AT_ONCE: usize = 256 * 1024;

/// A search of strings in the texts of an event that is made in parts, because there are many
/// strings or long texts.
#[derive(Debug)]
pub struct TextScan {
    texts: Vec<ScannedTexts>,
    /// The index in `texts` of those that are searched.
    current: usize,
}

/// The texts at a key, and what was found in them so far.
#[derive(Debug)]
struct ScannedTexts {
    path: Vec<String>,
    texts: Vec<String>,
    found: Found,
}

#[derive(Debug, Default)]
struct TypeIndex {
    any: SubjectIndex,
    /// By the bytes of the case-folded type.
    by_type: HashMap<Vec<u8>, SubjectIndex>,
}

#[derive(Debug, Default)]
struct SubjectIndex {
    any: ValueIndex,
    by_prefix: HashMap<Vec<u8>, ValueIndex>,
    /// The lengths of the prefixes: one look-up for each length, however many prefixes there are.
    lengths: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct ValueIndex {
    any: Vec<usize>,
    /// By the names of the key.
    by_key: HashMap<Vec<String>, KeyIndex>,
}

/// The filters indexed by one key.
#[derive(Debug, Default)]
struct KeyIndex {
    by_value: HashMap<Scalar, Vec<usize>>,
    by_part: HashMap<String, Vec<usize>>,
}

/// The values that a filter requires at a key.
enum RequiredValues {
    Equal(HashSet<Scalar>),
    Contained(HashSet<String>),
}

/// A value to compare for equality.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scalar {
    Bool(bool),
    Number(ExactNumber),
    Text(String),
}

impl FilterIndex {
    /// Numbers the filters from 0, in the order of `filters`.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        Self::default().rebuild(filters)
    }

    /// Builds an index, reusing the automata of this one where possible.
    #[must_use]
    pub fn rebuild<'f>(&self, filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let mut index = Self::default();
        let mut strings = HashSet::new();
        for (position, filter) in filters.into_iter().enumerate() {
            for advanced in &filter.advanced_filters {
                let parts = searched_parts(&advanced.operator);
                strings.extend(parts.iter().map(FoldedText::as_folded));
                if !parts.is_empty() && !index.searched.contains(advanced.key.folded_names()) {
                    index.searched.insert(advanced.key.folded_names().to_vec());
                }
            }
            match &filter.domain_topic {
                None => index.any_topic.add(filter, position),
                Some(topic) => index
                    .by_topic
                    .entry(fold_case(topic))
                    .or_default()
                    .add(filter, position),
            }
        }
        index.needles = self.needles.rebuild(strings);
        index
    }

    /// Begins the search of strings in the event, if it is to be made in parts.
    pub fn begin_scan(&self, event: &Event) -> Option<TextScan> {
        let cost = self.needles.block_count() * event.wire_len()
            + BUILD_COST * self.needles.unbuilt_bytes();
        if cost <= SCANNED_AT_ONCE {
            return None;
        }
        let view = EventView::new(event);
        let texts = self.searched.iter().filter_map(|path| {
            let texts = view.searched_texts(path)?.to_vec();
            Some(ScannedTexts {
                path: path.clone(),
                texts,
                found: Found::default(),
            })
        });
        Some(TextScan {
            texts: texts.collect(),
            current: 0,
        })
    }

    /// Makes the next part of a search. Returns its cost in bytes of text; [`None`] at the end.
    pub fn advance_scan(&self, scan: &mut TextScan) -> Option<usize> {
        loop {
            let ScannedTexts { texts, found, .. } = scan.texts.get_mut(scan.current)?;
            if let Some(cost) = self.needles.find_more(texts, found) {
                return Some(cost);
            }
            scan.current += 1;
        }
    }

    /// A view of the event for these filters.
    pub fn view_event<'e>(&'e self, event: &'e Event) -> EventView<'e> {
        EventView::with_needles(event, &self.needles)
    }

    /// As [`FilterIndex::view_event`], with the result of a search.
    pub fn searched_view<'e>(&'e self, event: &'e Event, scan: Option<&TextScan>) -> EventView<'e> {
        let view = self.view_event(event);
        for ScannedTexts { path, found, .. } in scan.iter().flat_map(|scan| &scan.texts) {
            view.set_found(path, found);
        }
        view
    }

    /// The indexes of the filters that may match the event, ascending.
    pub fn find_candidates(&self, view: &EventView<'_>) -> Vec<usize> {
        let mut candidates = Vec::new();
        self.any_topic.find_candidates(view, &mut candidates);
        if !self.by_topic.is_empty()
            && let Some(types) = self.by_topic.get(view.domain_topic().as_folded())
        {
            types.find_candidates(view, &mut candidates);
        }
        // A filter is found once for each of its values that the event has.
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }
}

impl TypeIndex {
    fn add(&mut self, filter: &Filter, position: usize) {
        let Some(types) = filter.event_types() else {
            return self.any.add(filter, position);
        };
        let types: BTreeSet<Vec<u8>> = types.iter().map(|name| fold_case(name).into()).collect();
        for name in types {
            self.by_type.entry(name).or_default().add(filter, position);
        }
    }

    fn find_candidates(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        self.any.find_candidates(view, found);
        if self.by_type.is_empty() {
            return;
        }
        let (literal, _) = view.event().type_and_subject_literals();
        if let Some(subjects) = with_folded(
            literal,
            || view.event_type().as_folded(),
            |name| self.by_type.get(name),
        ) {
            subjects.find_candidates(view, found);
        }
    }
}

impl SubjectIndex {
    fn add(&mut self, filter: &Filter, position: usize) {
        if filter.subject_begins_with.is_empty() {
            return self.any.add(filter, position);
        }
        // Compared without case even for a case-sensitive filter: the result is a superset.
        let prefix: Vec<u8> = fold_case(&filter.subject_begins_with).into();
        self.lengths.insert(prefix.len());
        self.by_prefix
            .entry(prefix)
            .or_default()
            .add(filter, position);
    }

    fn find_candidates(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        self.any.find_candidates(view, found);
        if self.lengths.is_empty() {
            return;
        }
        let (_, literal) = view.event().type_and_subject_literals();
        with_folded(
            literal,
            || view.subject().as_folded(),
            |subject| {
                for length in self.lengths.range(..=subject.len()) {
                    if let Some(values) = subject
                        .get(..*length)
                        .and_then(|prefix| self.by_prefix.get(prefix))
                    {
                        values.find_candidates(view, found);
                    }
                }
            },
        );
    }
}

impl ValueIndex {
    fn add(&mut self, filter: &Filter, position: usize) {
        // Equality leaves fewer candidates than a substring, and the top of an event is cheaper to
        // read than its data.
        let required_values = filter
            .advanced_filters
            .iter()
            .filter_map(|advanced| Some((advanced.key.folded_names(), required_values(advanced)?)));
        let first = required_values.min_by_key(|(path, wanted)| {
            (matches!(wanted, RequiredValues::Contained(_)), path.len())
        });
        let Some((path, wanted)) = first else {
            return self.any.push(position);
        };
        let filters = self.by_key.entry(path.to_vec()).or_default();
        match wanted {
            RequiredValues::Equal(values) => {
                values
                    .into_iter()
                    .for_each(|value| filters.by_value.entry(value).or_default().push(position));
            }
            RequiredValues::Contained(parts) => {
                parts
                    .into_iter()
                    .for_each(|part| filters.by_part.entry(part).or_default().push(position));
            }
        }
    }

    fn find_candidates(&self, view: &EventView<'_>, found: &mut Vec<usize>) {
        found.extend(&self.any);
        for (path, filters) in &self.by_key {
            if let Some(node) = view.find_path(path) {
                filters.find_candidates(view, node, found);
            }
        }
    }
}

impl KeyIndex {
    fn find_candidates(&self, view: &EventView<'_>, node: &JsonNode<'_>, found: &mut Vec<usize>) {
        let value = node.value();
        if !self.by_value.is_empty() {
            let mut find =
                |scalar: Scalar| found.extend(self.by_value.get(&scalar).into_iter().flatten());
            let bools = value.bools().unwrap_or_default();
            [false, true]
                .into_iter()
                .filter(|it| bools[usize::from(*it)])
                .map(Scalar::Bool)
                .for_each(&mut find);
            value
                .numbers()
                .into_iter()
                .flatten()
                .cloned()
                .map(Scalar::Number)
                .for_each(&mut find);
            value
                .texts()
                .into_iter()
                .flatten()
                .cloned()
                .map(Scalar::Text)
                .for_each(&mut find);
        }
        if !self.by_part.is_empty() {
            view.for_each_part(node, self.by_part.keys(), &mut |part| {
                found.extend(self.by_part.get(part).into_iter().flatten());
            });
        }
    }
}

/// The substrings that an operator searches.
fn searched_parts(operator: &Operator) -> &[FoldedText] {
    match operator {
        Operator::StringContains { values } | Operator::StringNotContains { values } => values,
        _ => &[],
    }
}

/// The values that a filter requires; [`None`] if its operator requires none.
fn required_values(AdvancedFilter { operator, .. }: &AdvancedFilter) -> Option<RequiredValues> {
    match operator {
        Operator::StringIn { values } => Some(RequiredValues::Equal(
            values
                .iter()
                .map(|text| Scalar::Text(text.as_folded().to_owned()))
                .collect(),
        )),
        Operator::NumberIn { values } => Some(RequiredValues::Equal(
            values.iter().cloned().map(Scalar::Number).collect(),
        )),
        Operator::BoolEquals { value } => {
            Some(RequiredValues::Equal(HashSet::from([Scalar::Bool(*value)])))
        }
        Operator::StringContains { values } => Some(RequiredValues::Contained(
            values
                .iter()
                .map(|text| text.as_folded().to_owned())
                .collect(),
        )),
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
