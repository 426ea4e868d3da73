//! Events converted to other schemas: made on first use, and shared by all subscriptions.
//!
//! The events of a chunk share its forms, which are freed with the last of them. Unused forms are
//! empty cells.

use std::sync::OnceLock;

use bytes::Bytes;

use super::Schema;

/// The converted forms of one event, one for each schema; the event's own stays empty.
#[derive(Debug, Default)]
pub(super) struct EventForm([OnceLock<Bytes>; 3]);

/// The converted forms of a chunk's events.
#[derive(Debug, Default)]
pub(super) struct EventForms(OnceLock<Box<[EventForm]>>);

impl EventForms {
    /// The forms of the event at `index` of `count`.
    pub(super) fn form_of_event(&self, index: usize, count: usize) -> &EventForm {
        &self
            .0
            .get_or_init(|| (0..count).map(|_| EventForm::default()).collect())[index]
    }
}

impl EventForm {
    /// The form in `schema`, made by `make` if it is missing. Concurrent callers may both make it;
    /// one result is kept.
    pub(super) fn get_or_convert<E>(
        &self,
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let cell = match schema {
            Schema::EventGrid => &self.0[0],
            Schema::CloudEvents => &self.0[1],
            Schema::Custom => &self.0[2],
        };
        if let Some(made) = cell.get() {
            return Ok(made.clone());
        }
        let made = make()?;
        Ok(cell.get_or_init(|| made).clone())
    }
}
