//! An event as filters read it, with a cache of the values read.
//!
//! Invariants:
//! - An event's JSON is not read until a filter needs a value from it. The few strings needed for
//!   routing are stored separately.
//! - The JSON is scanned once for the positions of members. Only objects on the way to a key are
//!   parsed, and each value is parsed once. The cost of many and deep keys grows with the event's
//!   length, not with depth times length.
//! - Reading never fails: an unreadable value counts as missing. Of duplicate names the last one
//!   counts, and names are compared without case.

use std::{
    borrow::{Borrow, Cow},
    cell::OnceCell,
    collections::HashMap,
    ops::Range,
    rc::Rc,
};

use serde_json::value::RawValue;

use super::{
    key::FilterKey,
    needles::{Found, Needles},
    number::ExactNumber,
    outline::Outline,
    text::{FoldedText, fold_case},
};
use gridhook_event::{Event, Schema};

/// Maximum characters of a value in an explanation.
const SEEN_MAX: usize = 200;

/// Minimum bytes to compare before strings are searched in one pass. Below, building the automaton
/// costs more than it saves.
const ONE_PASS: usize = 32 * 1024;

/// An event with the values read so far.
#[derive(Debug)]
pub struct EventView<'e> {
    event: &'e Event,
    /// All strings that the filters of this view may search, if they are known.
    needles: Option<&'e Needles>,
    id: OnceCell<JsonNode<'e>>,
    domain_topic: OnceCell<JsonNode<'e>>,
    event_type: OnceCell<JsonNode<'e>>,
    /// As published, for filters that fold nothing.
    event_type_text: OnceCell<Cow<'e, str>>,
    subject: OnceCell<JsonNode<'e>>,
    subject_text: OnceCell<Cow<'e, str>>,
    data_version: OnceCell<JsonNode<'e>>,
    root: OnceCell<JsonNode<'e>>,
}

#[derive(Debug)]
pub(super) enum EventValue<'e> {
    Null,
    Bool(bool),
    Number(ExactNumber),
    Text(FoldedText),
    Array(Elements),
    Object(HashMap<FoldedName, JsonNode<'e>>),
    /// A string with invalid escapes.
    Unreadable,
}

/// The elements of an array that filters can compare: neither arrays nor objects. They are sorted
/// for binary search.
#[derive(Debug, Default)]
pub(super) struct Elements {
    numbers: Vec<ExactNumber>,
    /// Case-folded, as filters compare them.
    texts: Vec<String>,
    /// The bytes of `texts`, reversed and sorted, for suffixes.
    backwards: OnceCell<Vec<Vec<u8>>>,
    /// Whether `false` and `true` are among them.
    bools: [bool; 2],
}

/// A value's position in the event's JSON.
#[derive(Debug)]
pub(super) struct JsonNode<'e> {
    /// Empty if the value did not come from JSON.
    json: &'e str,
    /// The range of its members, if any.
    members: Range<usize>,
    outline: Option<Rc<Outline<'e>>>,
    value: OnceCell<EventValue<'e>>,
    /// The view's search strings found in it.
    found: OnceCell<Found>,
}

/// The case-folded name of a member.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FoldedName(String);

impl<'e> EventView<'e> {
    /// Parses nothing: each part of the event is parsed when a filter first needs it.
    pub fn new(event: &'e Event) -> Self {
        Self {
            event,
            needles: None,
            id: OnceCell::new(),
            domain_topic: OnceCell::new(),
            event_type: OnceCell::new(),
            event_type_text: OnceCell::new(),
            subject: OnceCell::new(),
            subject_text: OnceCell::new(),
            data_version: OnceCell::new(),
            root: OnceCell::new(),
        }
    }

    /// As [`EventView::new`], for filters that search only these strings: each text is searched
    /// once for all of them.
    pub(super) fn with_needles(event: &'e Event, needles: &'e Needles) -> Self {
        Self {
            needles: Some(needles),
            ..Self::new(event)
        }
    }

    /// Takes over what was found in the texts at a key.
    pub(super) fn set_found(&self, path: &[String], found: &Found) {
        if let Some(node) = self.find_path(path) {
            // Two keys may name the same text.
            node.found.set(found.clone()).ok();
        }
    }

    /// The texts at a key, as filters search them.
    pub(super) fn searched_texts(&self, path: &[String]) -> Option<&[String]> {
        self.find_path(path)?.value().texts()
    }

    pub(super) fn event(&self) -> &'e Event {
        self.event
    }

    /// Bytes of the event's JSON that were read; zero until a value is needed.
    pub fn bytes_read(&self) -> usize {
        // If there is no outline, the attempt has read everything.
        let Some(root) = self.root.get() else {
            return 0;
        };
        match &root.outline {
            Some(outline) => outline.read(),
            None => root.json.len(),
        }
    }

    /// The domain topic; empty outside of domains.
    pub(super) fn domain_topic(&self) -> &FoldedText {
        self.domain_topic_node()
            .folded_text()
            .expect("it was made of a text")
    }

    /// The event type, folded once however many filters compare it.
    pub(super) fn event_type(&self) -> &FoldedText {
        self.event_type_node()
            .folded_text()
            .expect("it was made of a text")
    }

    pub(super) fn subject(&self) -> &FoldedText {
        self.subject_node()
            .folded_text()
            .expect("it was made of a text")
    }

    /// The event type as it was published.
    pub(super) fn event_type_text(&self) -> &str {
        self.event_type_text.get_or_init(|| self.event.event_type())
    }

    /// The subject as it was published.
    pub(super) fn subject_text(&self) -> &str {
        self.subject_text.get_or_init(|| self.event.subject())
    }

    pub(super) fn domain_topic_node(&self) -> &JsonNode<'e> {
        self.domain_topic
            .get_or_init(|| JsonNode::from_text(self.event.domain_topic().into_owned()))
    }

    pub(super) fn event_type_node(&self) -> &JsonNode<'e> {
        self.event_type
            .get_or_init(|| JsonNode::from_text(self.event.event_type().into_owned()))
    }

    pub(super) fn subject_node(&self) -> &JsonNode<'e> {
        self.subject
            .get_or_init(|| JsonNode::from_text(self.event.subject().into_owned()))
    }

    /// The event's value at `key`; [`None`] if there is none.
    pub(super) fn find_value(&self, key: &FilterKey) -> Option<&JsonNode<'e>> {
        self.find_path(key.folded_names())
    }

    /// As [`EventView::find_value`], for the folded names of a key.
    pub(super) fn find_path(&self, path: &[String]) -> Option<&JsonNode<'e>> {
        if let [name] = path
            && let Some(node) = self.stored_string_node(name)
        {
            return Some(node);
        }
        let root = self.root.get_or_init(|| {
            JsonNode::root_of_event(
                std::str::from_utf8(self.event.wire_bytes()).unwrap_or_default(),
            )
        });
        let descendant = root.find_descendant(path);
        match (self.event.schema, path) {
            // For a custom event, Event Grid's `data` is the whole object.
            (Schema::Custom, [data, rest @ ..]) if descendant.is_none() && data == "data" => {
                root.find_descendant(rest)
            }
            // Names of attributes before CloudEvents 1.0. An extension of that name takes
            // precedence.
            (Schema::CloudEvents, [name]) if descendant.is_none() => match name.as_str() {
                "eventid" => self.find_path(&["id".to_owned()]),
                "eventtype" => self.find_path(&["type".to_owned()]),
                "eventtypeversion" => root.find_descendant(&["dataschema".to_owned()]),
                _ => None,
            },
            (Schema::EventGrid | Schema::CloudEvents | Schema::Custom, _) => descendant,
        }
    }

    /// Whether any of these strings is in a text, or in any text of an array; [`None`] for other
    /// types.
    pub(super) fn contains(&self, node: &JsonNode<'_>, strings: &[FoldedText]) -> Option<bool> {
        let texts = node.value().texts()?;
        if let Some(is_found) = self.find_with_needles(node, texts, strings) {
            return Some(is_found);
        }
        let text_bytes: usize = texts.iter().map(String::len).sum();
        let mut strings = strings.iter().map(FoldedText::as_folded);
        if text_bytes * strings.len() < ONE_PASS {
            return Some(strings.any(|string| texts.iter().any(|text| text.contains(string))));
        }
        let needles = Needles::new(strings);
        let matches = needles.search_texts(texts);
        Some(needles.matching_strings(&matches).next().is_some())
    }

    /// As [`Self::contains`]; [`None`] without a shared search, or if it does not look for one of
    /// the strings.
    fn find_with_needles(
        &self,
        node: &JsonNode<'_>,
        texts: &[String],
        strings: &[FoldedText],
    ) -> Option<bool> {
        let needles = self.needles?;
        let matches = node.found.get_or_init(|| needles.search_texts(texts));
        for string in strings {
            if needles.contains_match(matches, string.as_folded())? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Calls `each` with those of `parts` that are in a text, or in any text of an array, and
    /// perhaps with other strings found there.
    pub(super) fn for_each_part<'p>(
        &self,
        node: &JsonNode<'_>,
        parts: impl Iterator<Item = &'p String>,
        each: &mut dyn FnMut(&str),
    ) {
        let Some(texts) = node.value().texts() else {
            return;
        };
        match self.needles {
            Some(needles) => needles
                .matching_strings(node.found.get_or_init(|| needles.search_texts(texts)))
                .for_each(each),
            None => {
                parts
                    .filter(|part| texts.iter().any(|text| text.contains(*part)))
                    .for_each(|part| each(part));
            }
        }
    }

    /// The string, number or boolean at `key`, as written.
    pub fn scalar_text(&self, key: &FilterKey) -> Option<Cow<'_, str>> {
        match self.find_value(key)?.value() {
            EventValue::Text(text) => Some(Cow::Borrowed(text.as_str())),
            EventValue::Number(number) => Some(Cow::Borrowed(number.as_str())),
            EventValue::Bool(value) => Some(Cow::Owned(value.to_string())),
            EventValue::Null
            | EventValue::Array(_)
            | EventValue::Object(_)
            | EventValue::Unreadable => None,
        }
    }

    /// A string that is stored separately. If it is empty it may be missing, which only the JSON
    /// tells.
    fn stored_string_node(&self, name: &str) -> Option<&JsonNode<'e>> {
        let node = match (name, self.event.schema) {
            ("id", _) => self
                .id
                .get_or_init(|| JsonNode::from_text(self.event.id().into_owned())),
            ("subject", _) => self.subject_node(),
            ("type", Schema::CloudEvents) | ("eventtype", Schema::EventGrid | Schema::Custom) => {
                self.event_type_node()
            }
            ("dataversion", Schema::EventGrid | Schema::Custom) => self
                .data_version
                .get_or_init(|| JsonNode::from_text(self.event.data_version().into_owned())),
            _ => return None,
        };
        node.folded_text()
            .is_some_and(|text| !text.as_str().is_empty())
            .then_some(node)
    }
}

impl<'e> JsonNode<'e> {
    fn new(json: &'e str, members: Range<usize>, outline: Option<Rc<Outline<'e>>>) -> Self {
        Self {
            json,
            members,
            outline,
            value: OnceCell::new(),
            found: OnceCell::new(),
        }
    }

    fn root_of_event(json: &'e str) -> Self {
        let outline = Outline::from_object(json).map(Rc::new);
        Self::new(
            json.trim_start(),
            outline
                .as_ref()
                .map_or(0..0, |outline| outline.all_members()),
            outline,
        )
    }

    fn from_text(text: String) -> Self {
        Self {
            value: OnceCell::from(EventValue::Text(FoldedText::from(text))),
            ..Self::new("", 0..0, None)
        }
    }

    fn folded_text(&self) -> Option<&FoldedText> {
        if let EventValue::Text(text) = self.value() {
            Some(text)
        } else {
            None
        }
    }

    pub(super) fn value(&self) -> &EventValue<'e> {
        self.value
            .get_or_init(|| self.read().unwrap_or(EventValue::Unreadable))
    }

    /// Parses the value, one level deep.
    fn read(&self) -> Option<EventValue<'e>> {
        let outline = self.outline.as_ref()?;
        if self.json.starts_with('{') {
            let mut object = HashMap::new();
            for (name, json, members) in outline.iter_members(self.members.clone()) {
                let name: String = serde_json::from_str(name).ok()?;
                let value = JsonNode::new(json, members, Some(Rc::clone(outline)));
                object.insert(FoldedName(fold_case(&name)), value);
            }
            return Some(EventValue::Object(object));
        }
        outline.count_read(self.json.len());
        if self.json.starts_with('[') {
            serde_json::from_str::<Vec<&RawValue>>(self.json)
                .map(array_value)
                .ok()
        } else {
            parse_scalar(self.json)
        }
    }

    fn find_descendant(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| match node.value() {
            EventValue::Object(members) => members.get(name.as_str()),
            EventValue::Null
            | EventValue::Bool(_)
            | EventValue::Number(_)
            | EventValue::Text(_)
            | EventValue::Array(_)
            | EventValue::Unreadable => None,
        })
    }

    /// The value as JSON, truncated.
    pub(super) fn to_truncated_json(&self) -> String {
        let json = match self.folded_text() {
            Some(text) => serde_json::Value::from(text.as_str()).to_string(),
            None => self.json.to_owned(),
        };
        match json.char_indices().nth(SEEN_MAX) {
            Some((end, _)) => format!("{}...", &json[..end]),
            None => json,
        }
    }
}

fn array_value(all: Vec<&RawValue>) -> EventValue<'_> {
    let mut elements = Elements::default();
    for element in all {
        match parse_scalar(element.get()) {
            Some(EventValue::Number(number)) => elements.numbers.push(number),
            Some(EventValue::Text(text)) => elements.texts.push(text.into_folded()),
            Some(EventValue::Bool(value)) => elements.bools[usize::from(value)] = true,
            Some(
                EventValue::Null
                | EventValue::Array(_)
                | EventValue::Object(_)
                | EventValue::Unreadable,
            )
            | None => {}
        }
    }
    elements.numbers.sort_unstable();
    elements.numbers.dedup();
    elements.texts.sort_unstable();
    elements.texts.dedup();
    EventValue::Array(elements)
}

impl EventValue<'_> {
    /// The numbers to compare, sorted; [`None`] for other types.
    pub(super) fn numbers(&self) -> Option<&[ExactNumber]> {
        match self {
            Self::Number(number) => Some(std::slice::from_ref(number)),
            Self::Array(elements) => Some(&elements.numbers),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::Object(_) | Self::Unreadable => None,
        }
    }

    /// The case-folded texts to compare, sorted; [`None`] for other types.
    pub(super) fn texts(&self) -> Option<&[String]> {
        match self {
            Self::Text(text) => Some(text.folded_alone()),
            Self::Array(elements) => Some(&elements.texts),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Object(_) | Self::Unreadable => {
                None
            }
        }
    }

    /// Whether `false` and `true` are present; [`None`] for other types.
    pub(super) fn bools(&self) -> Option<[bool; 2]> {
        match self {
            Self::Bool(value) => Some([!value, *value]),
            Self::Array(elements) => Some(elements.bools),
            Self::Null | Self::Number(_) | Self::Text(_) | Self::Object(_) | Self::Unreadable => {
                None
            }
        }
    }

    /// Whether a text ends with this; [`None`] for other types.
    pub(super) fn ends_with(&self, suffix: &str) -> Option<bool> {
        let Self::Array(elements) = self else {
            return self
                .texts()
                .map(|texts| texts.iter().any(|text| text.ends_with(suffix)));
        };
        let backwards = elements.backwards.get_or_init(|| {
            let mut all: Vec<Vec<u8>> = elements
                .texts
                .iter()
                .map(|text| text.bytes().rev().collect())
                .collect();
            all.sort_unstable();
            all
        });
        let suffix: Vec<u8> = suffix.bytes().rev().collect();
        let first = backwards.partition_point(|text| *text < suffix);
        Some(
            backwards
                .get(first)
                .is_some_and(|text| text.starts_with(&suffix)),
        )
    }
}

/// Parses a value that is neither an array nor an object.
fn parse_scalar(json: &str) -> Option<EventValue<'_>> {
    Some(match json.as_bytes().first()? {
        b'n' => EventValue::Null,
        b't' => EventValue::Bool(true),
        b'f' => EventValue::Bool(false),
        b'"' => EventValue::Text(FoldedText::from(serde_json::from_str::<String>(json).ok()?)),
        b'-' | b'0'..=b'9' => EventValue::Number(ExactNumber::new(json)),
        _ => return None,
    })
}

impl Borrow<str> for FoldedName {
    fn borrow(&self) -> &str {
        &self.0
    }
}
