//! Which of many filters an event may pass, without asking each of them.
//!
//! A filter stands behind up to four doors, one behind the other: its topic of the domain, its event types, the beginning
//! of its subject, and one key that must equal one of some values (`StringIn`, `NumberIn`, `BoolEquals`). An event finds
//! the filters whose doors it opens by looking up, and only those are asked.
//!
//! Invariants:
//! - Every filter that lets an event pass is among its candidates; a candidate may still stop it.
//! - The doors come in the order of what they cost: nothing is looked up in an event's JSON for a filter whose type or
//!   subject is another.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Filter,
    advanced::{Advanced, Operator},
    key::Key,
    number::Number,
    text::folded,
    view::{Node, Value, View},
};

/// Many filters, by their places in a list.
#[derive(Debug, Default)]
pub struct Index {
    /// Of a topic, and of all topics of a domain.
    any_topic: Types,
    by_topic: HashMap<String, Types>,
}

#[derive(Debug, Default)]
struct Types {
    any: Subjects,
    by_type: HashMap<String, Subjects>,
}

#[derive(Debug, Default)]
struct Subjects {
    any: Values,
    by_prefix: HashMap<String, Values>,
    /// The lengths of the prefixes: as many look-ups, however many prefixes there are.
    lengths: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Values {
    any: Vec<usize>,
    by_key: HashMap<Key, HashMap<Scalar, Vec<usize>>>,
}

/// What a key must equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scalar {
    Bool(bool),
    Number(Number),
    Text(String),
}

impl Index {
    /// An index over these.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let mut index = Self::default();
        for (place, filter) in filters.into_iter().enumerate() {
            match &filter.domain_topic {
                None => index.any_topic.add(filter, place),
                Some(topic) => index.by_topic.entry(folded(topic)).or_default().add(filter, place),
            }
        }
        index
    }

    /// The places of the filters that may let the event pass, ascending.
    pub fn candidates(&self, view: &View<'_>) -> Vec<usize> {
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

impl Types {
    fn add(&mut self, filter: &Filter, place: usize) {
        let Some(types) = filter.event_types() else { return self.any.add(filter, place) };
        let types: BTreeSet<String> = types.iter().map(|name| folded(name)).collect();
        for name in types {
            self.by_type.entry(name).or_default().add(filter, place);
        }
    }

    fn find(&self, view: &View<'_>, found: &mut Vec<usize>) {
        self.any.find(view, found);
        if !self.by_type.is_empty()
            && let Some(subjects) = self.by_type.get(view.event_type().folded())
        {
            subjects.find(view, found);
        }
    }
}

impl Subjects {
    fn add(&mut self, filter: &Filter, place: usize) {
        if filter.subject_begins_with.is_empty() {
            return self.any.add(filter, place);
        }
        // Also for a filter that minds the case: what it lets pass, this lets pass.
        let prefix = folded(&filter.subject_begins_with);
        self.lengths.insert(prefix.len());
        self.by_prefix.entry(prefix).or_default().add(filter, place);
    }

    fn find(&self, view: &View<'_>, found: &mut Vec<usize>) {
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

impl Values {
    fn add(&mut self, filter: &Filter, place: usize) {
        // What lies at the top of an event costs less than what lies in its data.
        let doors = filter.advanced_filters.iter().filter_map(|advanced| Some((&advanced.key, wanted(advanced)?)));
        let Some((key, values)) = doors.min_by_key(|(key, _)| key.path().len()) else {
            return self.any.push(place);
        };
        let by_value = self.by_key.entry(key.clone()).or_default();
        for value in values {
            by_value.entry(value).or_default().push(place);
        }
    }

    fn find(&self, view: &View<'_>, found: &mut Vec<usize>) {
        found.extend(&self.any);
        for (key, by_value) in &self.by_key {
            let mut open = |value: &Value<'_>| {
                let places = scalar(value).and_then(|scalar| by_value.get(&scalar));
                found.extend(places.into_iter().flatten());
            };
            match view.find(key).map(Node::value) {
                Some(Value::Array(elements)) => elements.iter().for_each(open),
                Some(value) => open(value),
                None => {}
            }
        }
    }
}

/// The values of which the key must have one; [`None`] where the operator asks for something else.
fn wanted(Advanced { operator, .. }: &Advanced) -> Option<HashSet<Scalar>> {
    match operator {
        Operator::StringIn { values } => {
            Some(values.iter().map(|text| Scalar::Text(text.folded().to_owned())).collect())
        }
        Operator::NumberIn { values } => Some(values.iter().cloned().map(Scalar::Number).collect()),
        Operator::BoolEquals { value } => Some(HashSet::from([Scalar::Bool(*value)])),
        Operator::NumberNotIn { .. }
        | Operator::NumberLessThan { .. }
        | Operator::NumberGreaterThan { .. }
        | Operator::NumberLessThanOrEquals { .. }
        | Operator::NumberGreaterThanOrEquals { .. }
        | Operator::NumberInRange { .. }
        | Operator::NumberNotInRange { .. }
        | Operator::StringContains { .. }
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

fn scalar(value: &Value<'_>) -> Option<Scalar> {
    match value {
        Value::Bool(value) => Some(Scalar::Bool(*value)),
        Value::Number(number) => Some(Scalar::Number(number.clone())),
        Value::Text(text) => Some(Scalar::Text(text.folded().to_owned())),
        Value::Null | Value::Array(_) | Value::Object(_) | Value::Unreadable => None,
    }
}
