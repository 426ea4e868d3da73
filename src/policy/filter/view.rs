//! An event as filters see it: what was asked for once is not looked up again.
//!
//! Invariants:
//! - An event's JSON is not touched before somebody asks for what only stands there; the few strings that routing asks
//!   for have places of their own.
//! - Of the JSON only the objects on the way to a key are taken apart, one level at a time. What lies beside is skipped.
//! - Nothing here fails: what cannot be read is not there. Of a name that comes twice the last one counts, and case does
//!   not tell two names apart.

use std::{
    borrow::{Borrow, Cow},
    cell::OnceCell,
    collections::HashMap,
};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{
    key::Key,
    number::Number,
    text::{Text, folded},
};
use crate::event::{Event, Schema};

/// So many characters of what was seen are told.
const SEEN_MAX: usize = 200;

/// An event, and what was seen of it so far.
#[derive(Debug)]
pub struct View<'e> {
    event: &'e Event,
    id: OnceCell<Node<'e>>,
    domain_topic: OnceCell<Node<'e>>,
    event_type: OnceCell<Node<'e>>,
    subject: OnceCell<Node<'e>>,
    data_version: OnceCell<Node<'e>>,
    root: OnceCell<Node<'e>>,
}

/// A value of an event.
#[derive(Debug)]
pub(super) enum Value<'e> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text),
    /// The elements that a filter can compare: neither arrays nor objects.
    Array(Vec<Value<'e>>),
    Object(HashMap<Name, Node<'e>>),
    /// A string that stands for no characters.
    Unreadable,
}

/// A place in an event's JSON.
#[derive(Debug)]
pub(super) struct Node<'e> {
    /// Empty where the value did not come from JSON.
    json: &'e str,
    value: OnceCell<Value<'e>>,
}

/// The name of a member, without its case.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(String);

impl<'e> View<'e> {
    /// Nothing is seen yet.
    pub fn new(event: &'e Event) -> Self {
        Self {
            event,
            id: OnceCell::new(),
            domain_topic: OnceCell::new(),
            event_type: OnceCell::new(),
            subject: OnceCell::new(),
            data_version: OnceCell::new(),
            root: OnceCell::new(),
        }
    }

    /// Whether somebody asked for what only the event's JSON has.
    pub fn has_read_json(&self) -> bool {
        self.root.get().is_some()
    }

    /// The domain's topic; empty outside of domains.
    pub(super) fn domain_topic(&self) -> &Text {
        self.domain_topic_node().text().expect("it was made of a text")
    }

    /// The event type; empty where there is none.
    pub(super) fn event_type(&self) -> &Text {
        self.event_type_node().text().expect("it was made of a text")
    }

    /// The subject; empty where there is none.
    pub(super) fn subject(&self) -> &Text {
        self.subject_node().text().expect("it was made of a text")
    }

    pub(super) fn domain_topic_node(&self) -> &Node<'e> {
        self.domain_topic.get_or_init(|| Node::of_text(self.event.domain_topic().into_owned()))
    }

    pub(super) fn event_type_node(&self) -> &Node<'e> {
        self.event_type.get_or_init(|| Node::of_text(self.event.event_type().into_owned()))
    }

    pub(super) fn subject_node(&self) -> &Node<'e> {
        self.subject.get_or_init(|| Node::of_text(self.event.subject().into_owned()))
    }

    /// What the event has at `key`; [`None`] where it has nothing there.
    pub(super) fn find(&self, key: &Key) -> Option<&Node<'e>> {
        if let Some(node) = key.name().and_then(|name| self.at_hand(name)) {
            return Some(node);
        }
        let root =
            self.root.get_or_init(|| Node::new(std::str::from_utf8(self.event.wire_bytes()).unwrap_or_default()));
        let found = root.walk(key.path());
        match (self.event.schema, key.path()) {
            // Event Grid's `data` of a custom event is the whole object.
            (Schema::Custom, [data, rest @ ..]) if found.is_none() && data == "data" => root.walk(rest),
            (Schema::EventGrid | Schema::CloudEvents | Schema::Custom, _) => found,
        }
    }

    /// The string, number or boolean that the event has at `key`, as it is written.
    pub fn text(&self, key: &Key) -> Option<Cow<'_, str>> {
        match self.find(key)?.value() {
            Value::Text(text) => Some(Cow::Borrowed(text.as_str())),
            Value::Number(number) => Some(Cow::Borrowed(number.as_str())),
            Value::Bool(value) => Some(Cow::Owned(value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) | Value::Unreadable => None,
        }
    }

    /// A string that has a place of its own. An empty one may also be missing: the JSON tells.
    fn at_hand(&self, name: &str) -> Option<&Node<'e>> {
        let node = match (name, self.event.schema) {
            ("id", _) => self.id.get_or_init(|| Node::of_text(self.event.id().into_owned())),
            ("subject", _) => self.subject_node(),
            ("type", Schema::CloudEvents) | ("eventtype", Schema::EventGrid | Schema::Custom) => self.event_type_node(),
            ("dataversion", Schema::EventGrid | Schema::Custom) => {
                self.data_version.get_or_init(|| Node::of_text(self.event.data_version().into_owned()))
            }
            _ => return None,
        };
        node.text().is_some_and(|text| !text.as_str().is_empty()).then_some(node)
    }
}

impl<'e> Node<'e> {
    fn new(json: &'e str) -> Self {
        Self { json, value: OnceCell::new() }
    }

    fn of_text(text: String) -> Self {
        Self { json: "", value: OnceCell::from(Value::Text(Text::from(text))) }
    }

    fn text(&self) -> Option<&Text> {
        if let Value::Text(text) = self.value() { Some(text) } else { None }
    }

    pub(super) fn value(&self) -> &Value<'e> {
        self.value.get_or_init(|| read(self.json))
    }

    fn walk(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| match node.value() {
            Value::Object(members) => members.get(name.as_str()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Array(_) | Value::Unreadable => {
                None
            }
        })
    }

    /// The value as JSON, cut where it is long.
    pub(super) fn seen(&self) -> String {
        let json = match self.text() {
            Some(text) => serde_json::Value::from(text.as_str()).to_string(),
            None => self.json.to_owned(),
        };
        match json.char_indices().nth(SEEN_MAX) {
            Some((end, _)) => format!("{}...", &json[..end]),
            None => json,
        }
    }
}

/// Takes a value apart, one level deep.
fn read(json: &str) -> Value<'_> {
    let json = json.trim_start();
    let value = match json.as_bytes().first() {
        Some(b'{') => serde_json::from_str(json).map(Value::Object).ok(),
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(json).map(elements).ok(),
        Some(_) | None => scalar(json),
    };
    value.unwrap_or(Value::Unreadable)
}

fn elements(all: Vec<&RawValue>) -> Value<'_> {
    Value::Array(all.into_iter().filter_map(|element| scalar(element.get())).collect())
}

/// A value that is neither an array nor an object.
fn scalar(json: &str) -> Option<Value<'_>> {
    Some(match json.as_bytes().first()? {
        b'n' => Value::Null,
        b't' => Value::Bool(true),
        b'f' => Value::Bool(false),
        b'"' => Value::Text(Text::from(serde_json::from_str::<String>(json).ok()?)),
        b'-' | b'0'..=b'9' => Value::Number(Number::new(json)),
        _ => return None,
    })
}

impl<'de: 'e, 'e> Deserialize<'de> for Node<'e> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::new(<&RawValue>::deserialize(from)?.get()))
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(folded(&String::deserialize(from)?)))
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}
