//! Events from a file or a pipe, cut into request bodies.
//!
//! The input is read as it comes, so it may be longer than memory: a JSON array, one JSON object, or objects one after
//! another (JSON lines). An event's own bytes are passed on as they stand; nothing of it is read but where it ends. Of a
//! dead letter everything is passed on but what it was given when it was put aside.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufRead, BufReader, Read},
};

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer as _, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use crate::dead_letter::file;

/// What one request may have.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// The most events.
    pub events: usize,
    /// The most bytes; an event that has more goes alone.
    pub bytes: usize,
}

/// What stands in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputForm {
    /// Events.
    Events,
    /// Dead letters: events with what became of them.
    DeadLetters,
    /// Dead letters of a topic with a custom schema: envelopes with events in them.
    CustomDeadLetters,
}

/// The body of one request: an array of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub events: usize,
    /// The array.
    pub body: Bytes,
}

/// The input cannot be read to its end; every event before the place was handed on.
#[derive(Debug, thiserror::Error)]
pub enum BatchesError {
    /// It is not what it should be.
    #[error("event {event}: {error}; allowed is a JSON array, a JSON object, or one object after another")]
    Json {
        /// Which event, counted from 1.
        event: usize,
        /// Where in the input, and what.
        error: serde_json::Error,
    },
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Reads `input` to its end and gives each batch to `send`, until that returns false.
pub fn read(
    input: impl Read,
    form: InputForm,
    limits: RequestLimits,
    send: impl FnMut(Batch) -> bool,
) -> Result<(), BatchesError> {
    let mut input = BufReader::new(input);
    let array = loop {
        match input.fill_buf()?.first() {
            Some(byte) if byte.is_ascii_whitespace() => input.consume(1),
            first => break first == Some(&b'['),
        }
    };
    let mut cutter = BatchReader { form, limits, send, body: Vec::new(), events: 0, seen: 0, open: true };
    let read = if array {
        let mut input = Deserializer::from_reader(input);
        input.deserialize_seq(&mut cutter).and_then(|()| input.end())
    } else {
        let events = Deserializer::from_reader(input).into_iter::<Box<RawValue>>();
        cutter.take_all(events)
    };
    cutter.flush();
    match read {
        // The input was left where nobody wanted more of it.
        Ok(()) => Ok(()),
        Err(_) if !cutter.open => Ok(()),
        Err(error) if error.is_io() => Err(BatchesError::Io(error.into())),
        Err(error) => Err(BatchesError::Json { event: cutter.seen + 1, error }),
    }
}

struct BatchReader<S> {
    form: InputForm,
    limits: RequestLimits,
    send: S,
    body: Vec<u8>,
    events: usize,
    seen: usize,
    open: bool,
}

impl<S: FnMut(Batch) -> bool> BatchReader<S> {
    fn take_all(&mut self, events: impl Iterator<Item = serde_json::Result<Box<RawValue>>>) -> serde_json::Result<()> {
        for event in events {
            self.take(&event?)?;
        }
        Ok(())
    }

    /// Takes one event; an error where it is none, or nobody wants more.
    fn take(&mut self, event: &RawValue) -> serde_json::Result<()> {
        if !event.get().starts_with('{') {
            return Err(serde::de::Error::custom("this is not an object"));
        }
        let text = match self.form {
            InputForm::Events => Cow::Borrowed(event.get()),
            InputForm::DeadLetters => Cow::Owned(file::event_of(event.get(), false)?),
            InputForm::CustomDeadLetters => Cow::Owned(file::event_of(event.get(), true)?),
        };
        self.seen += 1;
        // Two brackets, and a comma before all but the first.
        if self.events == self.limits.events || self.body.len() + text.len() + 2 > self.limits.bytes {
            self.flush();
        }
        if !self.open {
            return Err(serde::de::Error::custom("stopped"));
        }
        self.body.push(if self.events == 0 { b'[' } else { b',' });
        self.body.extend_from_slice(text.as_bytes());
        self.events += 1;
        Ok(())
    }

    fn flush(&mut self) {
        if self.events == 0 || !self.open {
            return;
        }
        self.body.push(b']');
        let body = Bytes::from(std::mem::take(&mut self.body));
        self.open = (self.send)(Batch { events: std::mem::take(&mut self.events), body });
    }
}

impl<'de, S: FnMut(Batch) -> bool> Visitor<'de> for &mut BatchReader<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(NextElement(self))?.is_some() {}
        Ok(())
    }
}

/// Takes the next event of an array as soon as it is read.
struct NextElement<'a, S>(&'a mut BatchReader<S>);

impl<'de, S: FnMut(Batch) -> bool> DeserializeSeed<'de> for NextElement<'_, S> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let event: Box<RawValue> = serde::Deserialize::deserialize(from)?;
        self.0.take(&event).map_err(serde::de::Error::custom)
    }
}
