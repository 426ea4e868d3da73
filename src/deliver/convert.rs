//! Converts an event to the delivery schema of its subscription.
//!
//! [`Schema::delivery_schemas`] lists the conversions, [`Event::to_delivered_bytes`] performs them.

use bytes::Bytes;

use super::request::RequestError;
use gridhook_event::{DeliveredBytes, Event, Schema};

/// Checks that events in schema `from` can be delivered in schema `to`.
pub(super) fn check_conversion(from: Schema, to: Schema) -> Result<(), RequestError> {
    if from.delivery_schemas().contains(&to) {
        Ok(())
    } else {
        Err(RequestError::Schema { from, to })
    }
}

/// The bytes of `event` in `schema`.
///
/// # Errors
/// If there is no conversion to that schema, or the event does not match its own schema.
pub fn convert_event(event: &Event, schema: Schema) -> Result<Bytes, RequestError> {
    check_conversion(event.schema, schema)?;
    event
        .to_delivered_bytes(schema)
        .map_err(|error| unreadable_event(event, &error))
}

/// Like [`convert_event`], but borrows the bytes of an event that is delivered as it is stored.
///
/// # Errors
/// The errors of [`convert_event`].
pub fn delivered_bytes(event: &Event, schema: Schema) -> Result<DeliveredBytes<'_>, RequestError> {
    check_conversion(event.schema, schema)?;
    event
        .delivered_bytes(schema)
        .map_err(|error| unreadable_event(event, &error))
}

fn unreadable_event(event: &Event, error: &serde_json::Error) -> RequestError {
    RequestError::Unreadable {
        seq: event.seq,
        detail: error.to_string(),
    }
}
