//! Events in other schemas than their own: made once, when first asked for, however many subscriptions ask.
//!
//! Whoever holds the events of a chunk shares its forms, and they go with the last of them. Without an asker they are
//! nothing but an empty cell.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Schema;

/// One for each schema; the event's own stays empty.
type EventForm = [OnceLock<Bytes>; 3];

/// The forms of a chunk's events.
#[derive(Debug)]
pub struct EventForms {
    count: usize,
    rows: OnceLock<Box<[EventForm]>>,
}

impl EventForms {
    /// Of so many events, none of which anybody has asked for.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { count, rows: OnceLock::new() })
    }

    /// The form of the event at `index` in `schema`, or what `make` makes of it. Where two ask at once, both make one and
    /// one is kept.
    pub(super) fn get<E>(
        &self,
        index: usize,
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let rows = self.rows.get_or_init(|| (0..self.count).map(|_| EventForm::default()).collect());
        let place = match schema {
            Schema::EventGrid => 0,
            Schema::CloudEvents => 1,
            Schema::Custom => 2,
        };
        let Some(cell) = rows.get(index).map(|row| &row[place]) else { return make() };
        if let Some(made) = cell.get() {
            return Ok(made.clone());
        }
        let made = make()?;
        Ok(cell.get_or_init(|| made).clone())
    }
}
