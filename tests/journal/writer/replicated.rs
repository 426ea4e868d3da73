//! The tests of the writer over a replicated store, with a changelog in memory.

use std::{cell::RefCell, sync::Arc};

use gridhook::{
    clock::Clock,
    journal::replicated::{ReplicatedStore, ReplicationOptions},
    store::Store,
};

use super::START;
use crate::support::memory_changelog::MemoryChangelog;

thread_local! {
    /// The changelog of this thread's journals, if they have one.
    static LOG: RefCell<Option<MemoryChangelog>> = const { RefCell::new(None) };
}

/// The store as a journal of this thread has it.
pub(super) fn layered(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let Some(log) = LOG.with_borrow(Clone::clone) else {
        return store;
    };
    let (clock, _hand) = Clock::new_manual(START);
    let options = ReplicationOptions {
        record_bytes_max: 100,
        ..ReplicationOptions::default()
    };
    Arc::new(
        ReplicatedStore::take_shard(store, Arc::new(log), "node", clock, options)
            .expect("the log is whole"),
    )
}

macro_rules! replicated {
    ($($test:ident)+) => {$(
        #[test]
        fn $test() {
            LOG.set(Some(MemoryChangelog::default()));
            super::$test();
            LOG.set(None);
        }
    )+};
}

// Not those of a full disk: an owner whose local store is full gives the shard up.
replicated! {
    publishers_that_wait_together_share_a_sync_and_are_answered_after_it
    answers_and_calls_of_the_listener_come_in_the_order_of_the_queue
    a_group_of_outcomes_waits_for_company_and_an_urgent_one_does_not
    outcomes_behind_a_publish_are_written_although_they_wake_no_actor
    an_append_of_an_older_incarnation_is_fenced_and_not_written_also_in_the_group_of_the_opening
    a_missing_subscription_is_unknown
    after_a_failed_sync_the_process_ends_and_nothing_is_acknowledged
    the_floor_follows_the_slowest_and_carries_what_is_pending_or_a_dead_letter
    a_move_of_the_floor_carries_so_many_events_and_goes_on_at_once
    retained_events_stay_after_all_subscriptions_have_passed_them
    retention_trims_at_once_whatever_was_published
    a_partition_that_was_abandoned_is_gone_and_stays_gone
    a_subscription_that_ends_is_fenced_and_its_pending_events_are_canceled_bit_by_bit
    the_account_of_dead_letters_goes_with_its_subscription_and_stays_gone
    a_journal_is_found_again_after_a_crash
    a_journal_is_found_again_on_disk
}
