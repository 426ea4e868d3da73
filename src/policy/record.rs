//! The records of a subscription (cursor, pending deliveries, dead letters, ledger) and the
//! commands of operators.
//!
//! The state machine returns changes of records as [`RecordChange`]s. The journal turns each into a
//! put or a delete, and returns the records at recovery. The state machine's memory is a view of
//! them.
//!
//! What it does not do: it defines no stored bytes. `gridhook_store` encodes the records.

mod change;
mod command;
mod counts;
mod cursor;
mod endpoint;
pub mod job;
pub mod lease;
mod ledger;
mod pending;
mod runs;

pub use self::{
    change::{RecordChange, RedrivePage, RedrivenEvent, WriteUrgency},
    command::{Command, CommandRefused, RetryRequest},
    counts::OutcomeCounts,
    cursor::{Counters, Cursor, FilteredOut, LaneCursor, OPEN_EVENTS_MAX},
    endpoint::{EndpointId, EndpointView, Health, HeldBy, OrderView, PaceRecord, Rate},
    ledger::{Excerpt, ExcerptKey, LEDGER_BLOCK, LedgerEntry, LedgerEvent, LedgerLine},
    pending::{
        ASKED, BLOCKING, DeadLetterRecord, DueKey, FetchedPending, HELD_BACK, PendingDelivery,
        Traffic, is_exempt,
    },
    runs::{SeqRun, SeqSet},
};
