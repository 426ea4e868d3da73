//! An operation of an operator, whose record is in the batch of the first change that it makes.
//!
//! The task that executes the operation carries it, so that no function between the request and the
//! journal has it as a parameter.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{AuditTrail, put};
use gridhook_clock::Clock;
use gridhook_journal as journal;
use gridhook_journal::MetaChange;
use gridhook_record::audit::{AuditRecord, ValueChange};

/// Status of the record of a command whose outcome is not known, or not yet.
const STATUS_OF_INTENT: u16 = 102;

tokio::task_local! {
    /// The operation that the task executes for an operator.
    static OPERATION: Arc<AuditedOperation>;
}

/// An operation of an operator, whose record is in the batch of the first change that it makes.
pub struct AuditedOperation {
    trail: Arc<AuditTrail>,
    clock: Clock,
    state: Mutex<OperationState>,
}

struct OperationState {
    /// The record as expected, and at the end as it is.
    record: AuditRecord,
    /// The number of the record, once a change was written or could not be.
    number: Option<u64>,
    /// The record in the store, with the change that it is of.
    stored: Option<AuditRecord>,
    /// Whether the store has the record of the intent.
    has_intent: bool,
}

/// The record of an operation in a batch that is being written.
pub(super) struct PlannedRecord {
    operation: Arc<AuditedOperation>,
    record: AuditRecord,
    pub(super) changes: Vec<MetaChange>,
}

impl AuditedOperation {
    /// An operation with the record that a change has if it succeeds.
    pub fn new(trail: Arc<AuditTrail>, clock: Clock, record: AuditRecord) -> Arc<Self> {
        Arc::new(Self {
            trail,
            clock,
            state: Mutex::new(OperationState {
                record,
                number: None,
                stored: None,
                has_intent: false,
            }),
        })
    }

    /// The operation that this task executes.
    pub fn current() -> Option<Arc<Self>> {
        OPERATION.try_with(Arc::clone).ok()
    }

    pub fn execute<T>(self: Arc<Self>, part: impl Future<Output = T>) -> impl Future<Output = T> {
        OPERATION.scope(self, part)
    }

    /// Sets the status of the response, as far as it is known.
    pub fn set_status(&self, status: u16) {
        self.state.lock().record.status = status;
    }

    /// Sets what the operation changes, as far as it is known.
    pub fn set_changes(&self, changes: Vec<ValueChange>) {
        self.state.lock().record.changes = changes;
    }

    /// Whether a change was written, with the record.
    pub fn is_stored(&self) -> bool {
        self.state.lock().stored.is_some()
    }

    /// Stores the record, unless the store has it as it is now. It is durable when this returns. A
    /// failure is logged, because the operation is done by now.
    pub async fn finish(&self) {
        let changes = self.final_changes();
        if changes.is_empty() {
            return;
        }
        let result = self.trail.journal.write_meta_changes(changes.clone()).await;
        self.trail.note_written(changes, result.is_ok());
        if let Err(error) = result {
            self.log_missing(&error);
        }
    }

    /// Stores the record before the operation does what is in no batch with it.
    pub(super) async fn record_intent(&self) {
        let intent = {
            let mut state = self.state.lock();
            if state.number.is_some() || self.trail.limits.records == 0 {
                return;
            }
            state.record.at = self.clock.now();
            let record = AuditRecord {
                status: STATUS_OF_INTENT,
                ..state.record.clone()
            };
            // Removes no other record: it may be of a command that is refused.
            let mut index = self.trail.index.lock();
            let number = index.next;
            index.push(number, &record);
            state.number = Some(number);
            state.has_intent = true;
            put(number, &record)
        };
        if let Err(error) = self.trail.journal.write_meta_changes(vec![intent]).await {
            self.log_missing(&error);
        }
    }

    /// Removes the record of the intent: another shard did what was asked for.
    pub async fn withdraw(&self) {
        let deletion = {
            let state = self.state.lock();
            let mut index = self.trail.index.lock();
            let number = state.number.filter(|_| state.has_intent);
            let position = number.and_then(|number| index.position(number));
            position.and_then(|position| index.remove(position))
        };
        if let Some(deletion) = deletion {
            let changes = vec![deletion];
            let result = self.trail.journal.write_meta_changes(changes.clone()).await;
            self.trail.note_written(changes, result.is_ok());
        }
    }

    fn log_missing(&self, error: &journal::Error) {
        let AuditRecord {
            operator,
            method,
            path,
            ..
        } = &self.state.lock().record;
        tracing::error!(%error, operator, method, path, "audit record not stored");
    }

    /// The record for the batch of a change; [`None`] if an earlier change of the operation had it.
    pub(super) fn plan_record(self: Arc<Self>) -> Option<PlannedRecord> {
        let (record, changes) = {
            let mut state = self.state.lock();
            if state.stored.is_some() || self.trail.limits.records == 0 {
                return None;
            }
            state.record.at = self.clock.now();
            let mut index = self.trail.index.lock();
            let changes = match state.number {
                Some(number) => vec![put(number, &state.record)],
                None => {
                    state.number = Some(index.next);
                    index.add(&state.record, self.trail.limits)
                }
            };
            (state.record.clone(), changes)
        };
        Some(PlannedRecord {
            operation: self,
            record,
            changes,
        })
    }

    /// The changes that are written when the operation ends.
    fn final_changes(&self) -> Vec<MetaChange> {
        let mut state = self.state.lock();
        let mut index = self.trail.index.lock();
        if self.trail.limits.records == 0 {
            return Vec::new();
        }
        let is_intent = state.has_intent && state.stored.is_none();
        if state.stored.is_none() && !is_intent {
            state.record.at = self.clock.now();
        }
        let changes = match state.number {
            Some(_) if state.stored.as_ref() == Some(&state.record) => Vec::new(),
            Some(number) if is_intent => {
                index.complete(number, &mut state.record, self.trail.limits)
            }
            Some(number) if index.position(number).is_some() => vec![put(number, &state.record)],
            // The record was trimmed meanwhile.
            Some(_) => Vec::new(),
            None => {
                if !index.admit(&mut state.record) {
                    return Vec::new();
                }
                index.add(&state.record, self.trail.limits)
            }
        };
        if let Some(events) = &self.trail.system_events {
            events.report_operation(&state.record);
        }
        changes
    }
}

impl PlannedRecord {
    pub(super) fn note_written(self, is_written: bool) {
        if is_written {
            self.operation.state.lock().stored = Some(self.record);
        }
        self.operation.trail.note_written(self.changes, is_written);
    }
}
