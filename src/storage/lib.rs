//! Opens the store and the destinations of dead letters and backups that the settings describe, for
//! the server and the offline commands.

pub mod destination;

use gridhook_config as config;
use gridhook_dead_letter::{DeadLetterTotals, redrive};
use gridhook_record::check::check_record;
use gridhook_repair::fsck::{self, RecordDecoders, RecordError};
use gridhook_store::{keys::MetaKind, rocks::RocksOptions};

/// How the dead-letter actor's totals are read.
pub fn record_decoders() -> RecordDecoders {
    RecordDecoders {
        name: DeadLetterTotals::name,
        handled: count_handled,
        readable: check_readable,
    }
}

/// How many dead letters were handled, if the totals can be read.
fn count_handled(totals: &[u8]) -> Option<u64> {
    DeadLetterTotals::decode(totals).ok()?.handled_count()
}

/// Checks that a record of this kind can be read.
///
/// # Errors
/// The record cannot be read.
pub fn check_readable(kind: MetaKind, value: &[u8]) -> Result<(), RecordError> {
    match kind {
        MetaKind::Format
        | MetaKind::Floor
        | MetaKind::Job
        | MetaKind::Secret
        | MetaKind::Loss
        | MetaKind::Applied => fsck::check_record(kind, value),
        MetaKind::DeadLetters => Ok(DeadLetterTotals::decode(value).map(drop)?),
        MetaKind::Redrive => Ok(redrive::check_record(value)?),
        MetaKind::Topic
        | MetaKind::Subscription
        | MetaKind::Numbers
        | MetaKind::Proposal
        | MetaKind::DomainTopic
        | MetaKind::Filter
        | MetaKind::Namespace
        | MetaKind::Followed
        | MetaKind::Token
        | MetaKind::Audit
        | MetaKind::ResourceGroup
        | MetaKind::Deployment
        | MetaKind::DeploymentTemplate
        | MetaKind::Session => Ok(check_record(kind, value)?),
    }
}

/// The options to open the store with, for the server and the offline commands.
pub fn store_options(journal: &config::Journal) -> RocksOptions {
    RocksOptions {
        ledger_bytes: journal.ledger_bytes,
        excerpts_bytes: journal.excerpts_bytes,
        cache_bytes: journal.block_cache_bytes,
        buffers_bytes: journal.write_buffer_bytes,
        wal_bytes: journal.max_total_wal_bytes,
        ..RocksOptions::default()
    }
}
