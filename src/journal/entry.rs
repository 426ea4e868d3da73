//! The entries of a writer's queue.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::{
    DeadLetterWrite, Error, LogGuard, MetaChange, OpenedSubscription, Permit, PublishReceipt,
    SubscriptionOwner, id_lookups::KnownIds, queue::CallOnce,
};
use gridhook_event::{PartitionId, Seq, SubscriptionKey, chunk::SealedChunk};
use gridhook_policy::record::{RecordChange, WriteUrgency};
use gridhook_store::records::IdDigest;

/// What the writer needs to detect the duplicates of a request.
pub(super) struct DuplicateCheck {
    /// How long an id is known.
    pub(super) window: Duration,
    /// The id of each event, in order.
    pub(super) ids: Vec<IdDigest>,
    /// The result of the lookup; [`None`] if the writer looks the ids up itself.
    pub(super) known: Option<KnownIds>,
}

/// An entry of the writer's queue.
pub(super) enum WriterEntry {
    Publish {
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        check: Option<DuplicateCheck>,
        reply: oneshot::Sender<Result<PublishReceipt, Error>>,
        _permit: Option<Permit>,
    },
    Open {
        subscription_key: SubscriptionKey,
        reply: oneshot::Sender<Result<OpenedSubscription, Error>>,
    },
    Append {
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgency: WriteUrgency,
        done: CallOnce,
    },
    Meta {
        changes: Vec<MetaChange>,
        /// Whether it completes a change of another shard, so that it waits for space instead of
        /// being refused.
        completes: bool,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    WriteDeadLetters {
        subscription_key: SubscriptionKey,
        dead_letter_writes: DeadLetterWrite,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Keep {
        partition: PartitionId,
        from: Seq,
        reply: oneshot::Sender<Result<LogGuard, Error>>,
    },
    DivideBacklog {
        partition: PartitionId,
        parts: u32,
    },
    Close,
}

impl WriterEntry {
    /// How soon a group with this entry is written.
    pub(super) fn urgency(&self) -> WriteUrgency {
        match self {
            Self::Append { urgency, .. } => *urgency,
            Self::Publish { .. }
            | Self::Open { .. }
            | Self::Meta { .. }
            | Self::WriteDeadLetters { .. }
            | Self::Keep { .. }
            | Self::DivideBacklog { .. }
            | Self::Close => WriteUrgency::Now,
        }
    }
}
