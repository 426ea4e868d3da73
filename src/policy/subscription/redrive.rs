//! Redrives: dead letters that are sent again. They return to the lane of their job one page at a
//! time.
//!
//! Invariants:
//! - A dead letter becomes a pending delivery in the same write that removes it from the dead
//!   letters. It is always in exactly one of the two.
//! - It starts again without attempts, and with its full time to live. If it fails, it becomes a
//!   dead letter again, and the same redrive does not send it a second time.
//! - The pending deliveries of a canceled redrive become dead letters again.

use std::collections::{BTreeMap, BTreeSet};

use super::{jobs::Jobs, settlement::Settlement};
use crate::{
    SendItem,
    outcome::{Outcome, Reason},
    record::{
        CommandRefused, DueKey, LedgerEntry, LedgerEvent, PendingDelivery, RecordChange,
        RedrivePage, SeqSet,
        job::{JobKind, JobRefused, JobState},
    },
};
use gridhook_event::{Lane, Seq, Timestamp};

impl Jobs {
    /// Why this redrive cannot take a page of dead letters.
    pub(super) fn refuses_dead_letters(&self, lane: Lane) -> Option<CommandRefused> {
        let refusal = match self.find_job(lane) {
            None => JobRefused::Unknown(lane),
            Some(job) => match (job.kind, job.state) {
                (JobKind::Redrive { .. }, JobState::Running) => return None,
                (JobKind::Redrive { .. }, state) => JobRefused::Is(lane, state),
                (JobKind::Replay { .. }, _) => JobRefused::Unknown(lane),
            },
        };
        Some(CommandRefused::Job(refusal))
    }
}

/// Makes a page of dead letters pending.
pub(super) fn redrive_dead_letters(settlement: &mut Settlement, page: RedrivePage, now: Timestamp) {
    let lane = page.lane;
    if settlement.jobs.refuses_dead_letters(lane).is_some() {
        return;
    }
    let dead_letters = page.dead_letters.len() as u64;
    if let Some(job) = settlement.jobs.job_mut(lane) {
        job.kind = JobKind::Redrive {
            drained: page.drained,
        };
    }
    let seqs: Vec<_> = page
        .dead_letters
        .iter()
        .map(|dead_letter| dead_letter.seq)
        .collect();
    let mut waiting_seqs: BTreeMap<Lane, BTreeSet<Seq>> = BTreeMap::new();
    for (_, seq, of) in page
        .dead_letters
        .iter()
        .filter_map(|dead_letter| dead_letter.waited)
    {
        waiting_seqs.entry(of).or_default().insert(seq);
    }
    for (of, seqs) in waiting_seqs {
        let runs = seqs.into_iter().collect::<SeqSet>().into_runs();
        settlement.pending_write.push_entry(
            of,
            0,
            LedgerEntry {
                at: now,
                runs,
                what: LedgerEvent::Redriven { into: lane },
            },
        );
    }
    settlement
        .pending_write
        .push_change(RecordChange::Redrive(Box::new(page)));
    settlement.update_counters(lane, |counters| {
        counters.passed += dead_letters;
        counters.matched += dead_letters;
        counters.pending += dead_letters;
    });
    for seq in seqs {
        let last = Outcome::Aborted.into();
        let status = None;
        let pending = PendingDelivery {
            attempts: 0,
            due: now,
            last,
            status,
            tried: now,
            received: Some(now),
        };
        settlement.pending_write.push_change(RecordChange::Defer {
            lane,
            seq,
            pending,
            was_due: None,
        });
        settlement
            .queues
            .lane_queue_mut(lane)
            .window_mut()
            .insert(DueKey {
                due: now,
                lane,
                seq,
            });
    }
    settlement.pending_write.write_cursor_now();
}

/// Returns deliveries of a canceled redrive to the dead letters, if there is a destination. The
/// result is the others.
pub(super) fn give_back(
    settlement: &mut Settlement,
    lane: Lane,
    items: Vec<SendItem>,
    now: Timestamp,
) -> Vec<SendItem> {
    let redrives = settlement
        .jobs
        .find_job(lane)
        .is_some_and(|job| matches!(job.kind, JobKind::Redrive { .. }));
    if !redrives || !settlement.settings.dead_letter {
        return items;
    }
    let mut back = Vec::with_capacity(items.len());
    for item in items {
        if settlement.end_undelivered(item, Reason::RedriveCanceled, None, now) {
            back.push(item.seq);
        }
    }
    back.sort_unstable();
    settlement.pending_write.reserve_ended(back.len());
    let runs = back.into_iter().collect::<SeqSet>().into_runs();
    if !runs.is_empty() {
        settlement.pending_write.push_entry(
            lane,
            0,
            LedgerEntry {
                at: now,
                runs,
                what: LedgerEvent::GivenUp {
                    reason: Reason::RedriveCanceled,
                    dead_lettered: true,
                },
            },
        );
    }
    Vec::new()
}
