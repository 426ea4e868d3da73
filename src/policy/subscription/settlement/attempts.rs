//! The consequences of an attempt for the events of its request.

use std::collections::BTreeMap;

use super::Settlement;
use crate::{
    SendItem,
    batch::LastAttempt,
    outcome::{EventResult, Failure, Outcome, Reason, RequestResult},
    record::{LedgerEntry, LedgerEvent, RecordChange, SeqRun, SeqSet},
    retry::{self, Jitter, RetryDecision},
    subscription::jobs,
};
use gridhook_event::{Seq, Timestamp};

impl Settlement {
    /// Settles events of a request that have the same result.
    pub(in crate::subscription) fn settle_events(
        &mut self,
        items: &[SendItem],
        attempt: Attempt,
        result: &RequestResult,
        now: Timestamp,
        jitter: Jitter,
    ) {
        if result.outcome == Outcome::Delivered {
            self.note_attempt(items, result, None, now);
            for item in items {
                self.mark_delivered(*item);
            }
            return;
        }
        self.totals.outcomes_mut().count_failure(result.outcome);
        if items
            .first()
            .is_some_and(|item| self.jobs.is_canceling(item.lane))
        {
            self.note_attempt(items, result, None, now);
            return jobs::cancel_deliveries(self, items.to_vec(), now);
        }
        let decisions = self.decide_retries(items, attempt, result, now, jitter);
        let mut items_by_due: BTreeMap<Option<Timestamp>, Vec<SendItem>> = BTreeMap::new();
        for (item, (_, decision)) in items.iter().zip(&decisions) {
            let due = match decision {
                RetryDecision::Again(due) => Some(*due),
                RetryDecision::Never(_) => None,
            };
            items_by_due.entry(due).or_default().push(*item);
        }
        for (due, items) in items_by_due {
            self.note_attempt(&items, result, due, now);
        }
        let last = LastAttempt {
            outcome: result.outcome.into(),
            status: result.status,
            tried: attempt.sent,
        };
        for (item, decision) in decisions {
            match decision {
                RetryDecision::Again(due) => self.defer_event(item, due, last),
                RetryDecision::Never(reason) => self.give_up(item, reason, Some(last), now),
            }
        }
    }

    /// Decides what follows for each event of a failed attempt. The items have the attempts that
    /// count.
    fn decide_retries(
        &self,
        items: &[SendItem],
        attempt: Attempt,
        result: &RequestResult,
        now: Timestamp,
        jitter: Jitter,
    ) -> Vec<(SendItem, RetryDecision)> {
        let edition = &self.settings.edition;
        let terms = edition
            .rules_for(self.settings.destination)
            .terms_for(self.settings.dead_letter);
        let Attempt {
            sent,
            is_counted,
            is_too_large,
        } = attempt;
        let attempts_max = if is_counted {
            self.settings.attempts_max
        } else {
            u32::MAX
        };
        // All events of a request have the same number of attempts. The times of their first
        // attempts may differ.
        let mut decisions = Vec::with_capacity(items.len());
        for item in items {
            let failure = retry::FailedAttempt {
                number: item.attempts + 1,
                first: first_sent(item, sent),
                sent,
                ended: now,
            };
            // A batch that was merely too large is not an attempt at its events.
            let decision = if is_too_large {
                RetryDecision::Again(now)
            } else {
                retry::judge_failure(edition, terms, attempts_max, failure, result, jitter)
            };
            let attempts = item.attempts + u32::from(is_counted && !is_too_large);
            decisions.push((SendItem { attempts, ..*item }, decision));
        }
        decisions
    }

    /// Gives up an event that cannot be transformed: every further attempt would fail in the same
    /// way. It counts as an attempt, so that the history has the error.
    pub(in crate::subscription) fn fail_transformation(
        &mut self,
        item: SendItem,
        detail: String,
        now: Timestamp,
    ) {
        let failure = Failure::TransformationFailed;
        let result = RequestResult {
            detail,
            ..RequestResult::from_outcome(failure)
        };
        self.note_attempt(&[item], &result, None, now);
        self.totals.outcomes_mut().count_failure(failure.into());
        let last = LastAttempt {
            outcome: failure.into(),
            status: None,
            tried: now,
        };
        let item = SendItem {
            attempts: item.attempts + 1,
            ..item
        };
        self.give_up(item, Reason::Undeliverable(failure), Some(last), now);
    }

    pub(in crate::subscription) fn note_attempt(
        &mut self,
        items: &[SendItem],
        result: &RequestResult,
        next: Option<Timestamp>,
        now: Timestamp,
    ) {
        let Some(first) = items.first() else { return };
        let runs = match items {
            [item] => vec![SeqRun::single(item.seq)],
            items => runs_of(items.iter().map(|item| item.seq).collect()),
        };
        let RequestResult {
            outcome,
            status,
            latency,
            ..
        } = *result;
        let mut excerpt = None;
        if outcome != Outcome::Delivered
            && let Some(stored) = self.excerpts.store_excerpt(result, now)
        {
            excerpt = Some(stored.key.hash);
            if let Some(excerpt) = stored.unwritten {
                self.pending_write.push_change(RecordChange::StoreExcerpt {
                    key: stored.key,
                    excerpt,
                });
            }
        }
        let what = LedgerEvent::Attempted {
            outcome,
            status,
            latency,
            next,
            excerpt,
        };
        self.pending_write.push_entry(
            first.lane,
            first.attempts + 1,
            LedgerEntry {
                at: now,
                runs,
                what,
            },
        );
    }
}

/// What a request was for its events.
#[derive(Clone, Copy, Debug)]
pub(in crate::subscription) struct Attempt {
    pub(in crate::subscription) sent: Timestamp,
    /// Whether it uses one of their attempts.
    pub(in crate::subscription) is_counted: bool,
    /// Whether a smaller batch may be accepted.
    pub(in crate::subscription) is_too_large: bool,
}

/// The events of a request that a service accepted in part, by their results.
pub(in crate::subscription) fn group_by_result<'a>(
    items: &[SendItem],
    results: &'a [EventResult],
) -> Vec<(Vec<SendItem>, &'a EventResult)> {
    let mut groups: Vec<(Vec<SendItem>, &EventResult)> = Vec::new();
    for item in items {
        // Each event has one.
        let Some(result) = results.iter().find(|result| result.seq == item.seq) else {
            continue;
        };
        let is_same =
            |other: &EventResult| (other.outcome, other.status) == (result.outcome, result.status);
        match groups.iter_mut().find(|(_, other)| is_same(other)) {
            Some((group, _)) => group.push(*item),
            None => groups.push((vec![*item], result)),
        }
    }
    groups
}

/// Whether a smaller batch may be accepted.
pub(in crate::subscription) fn is_too_large(result: &RequestResult, events: usize) -> bool {
    result.outcome == Outcome::Failed(Failure::PayloadTooLarge) && events > 1
}

/// When the first attempt was sent, given that the present one was sent at `sent`.
fn first_sent(item: &SendItem, sent: Timestamp) -> Timestamp {
    item.since.filter(|_| item.attempts > 0).unwrap_or(sent)
}

/// The runs of these events.
pub(in crate::subscription) fn runs_of(mut seqs: Vec<Seq>) -> Vec<SeqRun> {
    seqs.sort_unstable();
    seqs.into_iter().collect::<SeqSet>().into_runs()
}
