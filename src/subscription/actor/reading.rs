//! What the actor reads: the log, due keys, pending deliveries and positions. Each result is
//! reported to the shared state, unless it is in memory.

use std::{rc::Rc, sync::Arc, time::Duration};

use super::SubscriptionActor;
use crate::{
    read_budget::{GrantRequest, ReadGrant},
    recent_events::ReadBounds,
    shared_state::SharedStateMessage,
    transformation::ReadTransformation,
};
use gridhook_compute::{ComputeCaller, ComputeError};
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::{LogPosition, PendingResult};
use gridhook_policy::{
    Input,
    record::{DueKey, Traffic},
    retry_window,
};

/// Target size of a slice of the log. Two slices fill a batch of the largest preferred size.
const SLICE_BYTES: usize = 512 * 1024;

/// Maximum bytes of pending events per fetch, approximately.
const FETCH_BYTES: usize = 1024 * 1024;

/// The pause before a transformation is tried again that found the threads busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Events taken from the recent-events cache per read, unless a batch is larger.
const RECENT_EVENTS: usize = 256;

impl SubscriptionActor {
    pub(super) fn find_position(&self, before: Timestamp) {
        let position = self.context.journal.reader_pool().find_position(
            self.shared.subscription_key.partition,
            self.log_end(),
            before,
        );
        self.await_report(async move {
            let LogPosition { at, appended } = position.await?;
            Ok(SharedStateMessage::Input(Input::Position {
                before,
                at,
                appended,
            }))
        });
    }

    pub(super) fn read_due(&self, traffic: Traffic, from: DueKey) {
        let reads = self.context.journal.reader_pool().clone();
        let subscription_key = self.shared.subscription_key;
        self.await_report(async move {
            let (keys, all) = reads
                .read_due(subscription_key, traffic, from, retry_window::WINDOW)
                .await?;
            Ok(SharedStateMessage::Input(Input::DueRead {
                traffic,
                keys,
                all,
            }))
        });
    }

    pub(super) fn read_pending(&self, keys: Vec<(Lane, Seq)>) {
        let reads = self.context.journal.reader_pool();
        let records = reads.read_pending(self.shared.subscription_key, keys);
        self.await_report(async {
            let records = records.await?;
            Ok(SharedStateMessage::Input(Input::PendingRead(records)))
        });
    }

    pub(super) fn fetch_events(&self, keys: Vec<(Lane, Seq)>) {
        let reads = self.context.journal.reader_pool().clone();
        let subscription_key = self.shared.subscription_key;
        let fetch = move |grant: ReadGrant| {
            let bytes = grant.bytes();
            let shrink = move |bytes| grant.shrink_to(bytes);
            reads.fetch_within(subscription_key, keys.clone(), bytes, shrink)
        };
        self.await_grant(FETCH_BYTES, fetch, |(fetched, grant)| {
            SharedStateMessage::Read(Input::Fetched(fetched), grant)
        });
    }

    /// Reads from the recent-events cache at once, or else from the log in a task.
    pub(super) fn read_log(&self, lane: Lane, from: Seq, end: Option<Seq>) -> Option<Input> {
        let record = &self.plan.record;
        let events_max = RECENT_EVENTS.max(self.plan.settings.batch.events_max as usize);
        let bounds = ReadBounds {
            events_max,
            bytes_max: SLICE_BYTES,
        };
        // When the budget is used up, this subscription waits for a grant like those that lag.
        if self.member.has_room()
            && let Some(slice) = self
                .recent
                .read(record.number, record.version, from, end, bounds)
        {
            let input = Input::Read {
                lane,
                from,
                upto: slice.upto,
                total: slice.total,
                events: slice.events,
            };
            return self.transform_read(input, None).map(|(input, _)| input);
        }
        let partition = self.shared.subscription_key.partition;
        let end = end.unwrap_or_else(|| self.log_end());
        let reads = self.context.journal.reader_pool().clone();
        let read = move |grant: ReadGrant| {
            let bytes = grant.bytes();
            reads.log_within(partition, from..end, bytes, move |bytes| {
                grant.shrink_to(bytes)
            })
        };
        self.await_grant(SLICE_BYTES, read, move |(slice, grant)| {
            SharedStateMessage::Slice(lane, from, slice, grant)
        });
        None
    }

    /// Passes on what was read, unless its events have a costly transformation. It is then reported
    /// to the shared state once they are transformed.
    pub(super) fn transform_read(
        &self,
        input: Input,
        grant: Option<ReadGrant>,
    ) -> Option<(Input, Option<ReadGrant>)> {
        let settings = &self.plan.settings;
        let Some(program) = &settings.transform else {
            return Some((input, grant));
        };
        let transformation = ReadTransformation {
            program: Arc::clone(program),
            schema: settings.batch.schema,
            bytes_max: self.member.share_bytes().min(SLICE_BYTES),
        };
        if !transformation.is_costly(&input) {
            return Some((input, grant));
        }
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        let compute = self.context.compute.clone();
        actix_rt::spawn(async move {
            let input = loop {
                let input_copy = input.clone();
                let work = transformation.clone();
                let caller = ComputeCaller::Subscription(shared.subscription_key);
                match compute
                    .run(caller, |meter| work.transform_events(input_copy, meter))
                    .await
                {
                    Ok(input) => break input,
                    Err(ComputeError::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
                    // The core tries it again, and a panic is then noted with its event.
                    Err(_) => break input,
                }
            };
            shared.report_result(incarnation, SharedStateMessage::Transformed(input, grant));
        });
        None
    }

    /// The end of the log, or its first position if the topic was deleted.
    pub(super) fn log_end(&self) -> Seq {
        self.context
            .journal
            .log_end(self.shared.subscription_key.partition)
            .map_or(Seq::FIRST, |end| end.next)
    }

    /// Reports a result to the shared state when it arrives. The shared state drops it if this
    /// incarnation has ended.
    pub(super) fn await_report(
        &self,
        read: impl Future<Output = Result<SharedStateMessage, journal::Error>> + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        actix_rt::spawn(async move {
            let report = read.await.unwrap_or_else(SharedStateMessage::Failed);
            shared.report_result(incarnation, report);
        });
    }

    /// Reads once the budget grants it, and reports the result to the shared state. A result that
    /// is larger than its grant is read again with a grant of that size.
    pub(super) fn await_grant<T: 'static>(
        &self,
        bytes_max: usize,
        read: impl Fn(ReadGrant) -> PendingResult<Result<T, usize>> + 'static,
        report: impl FnOnce(T) -> SharedStateMessage + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        let member = Rc::downgrade(&self.member);
        actix_rt::spawn(async move {
            let mut request = GrantRequest::Share(bytes_max);
            let report = loop {
                // The actor has ended.
                let Some(member) = member.upgrade() else {
                    return;
                };
                let grant = member.wait_for_grant(request);
                drop(member);
                let Some(grant) = grant.await else { return };
                match read(grant).await {
                    Ok(Ok(result)) => break report(result),
                    Ok(Err(bytes)) => request = GrantRequest::Exactly(bytes),
                    Err(error) => break SharedStateMessage::Failed(error),
                }
            };
            shared.report_result(incarnation, report);
        });
    }
}
