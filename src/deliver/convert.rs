//! An event in the schema that its subscription asked for.
//!
//! Which conversions exist is said by [`Schema::deliveries`]; the conversions themselves are [`Event::delivered`].

use bytes::Bytes;

use super::request::RequestError;
use crate::event::{Event, Schema};

/// Checks that events in schema `from` can be delivered in schema `to`.
pub(super) fn check(from: Schema, to: Schema) -> Result<(), RequestError> {
    if from.deliveries().contains(&to) { Ok(()) } else { Err(RequestError::Schema { from, to }) }
}

/// The bytes of `event` as a subscriber with `schema` receives them.
///
/// # Errors
/// Where there is no conversion to that schema, or the event is not what its own schema says.
pub fn delivered(event: &Event, schema: Schema) -> Result<Bytes, RequestError> {
    check(event.schema, schema)?;
    event.delivered(schema).map_err(|error| RequestError::Unreadable { seq: event.seq, detail: error.to_string() })
}
