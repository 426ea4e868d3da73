//! Splits events from a file or a pipe into request bodies.
//!
//! The input is a JSON array, one JSON object, or JSON lines. It is streamed, so it may be larger
//! than memory. The bytes of an event are passed on unchanged. From a dead letter, the properties
//! added by dead-lettering are removed.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufRead, BufReader, Cursor, Read},
};

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer as _, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use gridhook_dead_letter::file;

#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    pub events: usize,
    /// Maximum bytes; a larger event is sent alone.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputForm {
    Events,
    /// Dead letters: events with dead-letter properties.
    DeadLetters,
    /// Dead letters of a topic with a custom schema: envelopes that contain events.
    CustomDeadLetters,
}

/// The body of one request: an array of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub events: usize,
    pub body: Bytes,
}

/// The input cannot be read to its end. All events before the error were sent.
#[derive(Debug, thiserror::Error)]
pub enum BatchesError {
    /// The input is not valid.
    #[error(
        "event {event}: {error}; expected a JSON array, a JSON object, or one object after \
         another"
    )]
    Json {
        /// The number of the event, from 1.
        event: usize,
        /// The error of the input, and its position.
        error: serde_json::Error,
    },
    /// The input cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Reads `input` to its end and passes each batch to `send`, until `send` returns false.
pub fn read(
    input: impl Read,
    form: InputForm,
    limits: RequestLimits,
    send: impl FnMut(Batch) -> bool,
) -> Result<(), BatchesError> {
    let mut input = skip_byte_order_mark(input)?;
    let array = loop {
        match input.fill_buf()?.first() {
            Some(byte) if byte.is_ascii_whitespace() => input.consume(1),
            first => break first == Some(&b'['),
        }
    };
    let mut reader = BatchReader {
        form,
        limits,
        send,
        body: Vec::new(),
        events: 0,
        seen: 0,
        open: true,
    };
    let read = if array {
        let mut input = Deserializer::from_reader(input);
        input
            .deserialize_seq(&mut reader)
            .and_then(|()| input.end())
    } else {
        let events = Deserializer::from_reader(input).into_iter::<Box<RawValue>>();
        reader.take_all(events)
    };
    reader.flush();
    match read {
        // `send` returned false.
        Ok(()) => Ok(()),
        Err(_) if !reader.open => Ok(()),
        Err(error) if error.is_io() => Err(BatchesError::Io(error.into())),
        Err(error) => Err(BatchesError::Json {
            event: reader.seen + 1,
            error,
        }),
    }
}

/// The input without the byte order mark that some editors, and PowerShell, begin a file with.
fn skip_byte_order_mark(mut input: impl Read) -> io::Result<impl BufRead> {
    let mut start = Vec::new();
    input
        .by_ref()
        .take(BYTE_ORDER_MARK.len() as u64)
        .read_to_end(&mut start)?;
    if start == BYTE_ORDER_MARK {
        start.clear();
    }
    Ok(BufReader::new(Cursor::new(start).chain(input)))
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

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
    fn take_all(
        &mut self,
        events: impl Iterator<Item = serde_json::Result<Box<RawValue>>>,
    ) -> serde_json::Result<()> {
        for event in events {
            self.add_event(&event?)?;
        }
        Ok(())
    }

    /// Adds one event. Fails if it is not an object, or if `send` returned false.
    fn add_event(&mut self, event: &RawValue) -> serde_json::Result<()> {
        if !event.get().starts_with('{') {
            return Err(serde::de::Error::custom("an event must be a JSON object"));
        }
        let text = match self.form {
            InputForm::Events => Cow::Borrowed(event.get()),
            InputForm::DeadLetters => Cow::Owned(file::event_of(event.get(), false)?),
            InputForm::CustomDeadLetters => Cow::Owned(file::event_of(event.get(), true)?),
        };
        self.seen += 1;
        // 2 bytes for the brackets, or for a comma and the closing bracket.
        if self.events == self.limits.events || self.body.len() + text.len() + 2 > self.limits.bytes
        {
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
        self.open = (self.send)(Batch {
            events: std::mem::take(&mut self.events),
            body,
        });
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

/// Adds the next event of an array as soon as it is parsed.
struct NextElement<'a, S>(&'a mut BatchReader<S>);

impl<'de, S: FnMut(Batch) -> bool> DeserializeSeed<'de> for NextElement<'_, S> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let event: Box<RawValue> = serde::Deserialize::deserialize(from)?;
        self.0.add_event(&event).map_err(serde::de::Error::custom)
    }
}
