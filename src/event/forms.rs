//! Events converted to other schemas: made on first use, and shared by all subscriptions.
//!
//! The events of a chunk share its forms, which are freed with the last of them. Unused forms are empty cells.

use std::sync::OnceLock;

use bytes::Bytes;

use super::Schema;

/// One for each schema; the event's own stays empty.
type EventForm = [OnceLock<Bytes>; 3];

/// The converted forms of a chunk's events.
#[derive(Debug, Default)]
pub(super) struct EventForms(OnceLock<Box<[EventForm]>>);

impl EventForms {
    /// The form in `schema` of the event at `index` of `count`, made by `make` if it is missing. Concurrent callers may
    /// both make it; one result is kept.
    pub(super) fn get<E>(
        &self,
        (index, count): (usize, usize),
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let rows = self.0.get_or_init(|| (0..count).map(|_| EventForm::default()).collect());
        let column = match schema {
            Schema::EventGrid => 0,
            Schema::CloudEvents => 1,
            Schema::Custom => 2,
        };
        let Some(cell) = rows.get(index).map(|row| &row[column]) else { return make() };
        if let Some(made) = cell.get() {
            return Ok(made.clone());
        }
        let made = make()?;
        Ok(cell.get_or_init(|| made).clone())
    }
}
