//! Events converted to other schemas: made on first use, and shared by all subscriptions.
//!
//! The events of a chunk share its forms, which are freed with the last of them. Unused forms are empty cells.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Schema;

/// One for each schema; the event's own stays empty.
type EventForm = [OnceLock<Bytes>; 3];

/// The converted forms of a chunk's events.
#[derive(Debug)]
pub struct EventForms {
    count: usize,
    rows: OnceLock<Box<[EventForm]>>,
}

impl EventForms {
    /// Empty forms for this many events.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { count, rows: OnceLock::new() })
    }

    /// The form of the event at `index` in `schema`, made by `make` if it is missing. Concurrent callers may both make
    /// it; one result is kept.
    pub(super) fn get<E>(
        &self,
        index: usize,
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let rows = self.rows.get_or_init(|| (0..self.count).map(|_| EventForm::default()).collect());
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
