//! Makes jobs consistent: a job in an older cursor that has ended since is removed, each job has a
//! lane, and each lane of jobs a job.

use super::Salvage;
use crate::fsck::CheckStop;
use gridhook_event::{Lane, SubscriptionKey};
use gridhook_policy::record::Cursor;
use gridhook_store::{Family, keys};

impl Salvage<'_> {
    pub(super) fn salvage_jobs(&mut self) -> Result<(), CheckStop> {
        let mut cursors = std::mem::take(&mut self.cursors);
        for (of, cursor) in &mut cursors {
            self.jobs_of(*of, cursor)?;
        }
        self.cursors = cursors;
        Ok(())
    }

    fn jobs_of(&mut self, of: SubscriptionKey, cursor: &mut Cursor) -> Result<(), CheckStop> {
        let mut orphan_lanes = Vec::new();
        for job in &cursor.jobs {
            if self
                .store
                .get(Family::Meta, &keys::ended_job(of, job.lane))?
                .is_some()
            {
                orphan_lanes.push(job.lane);
            }
        }
        cursor.jobs.retain(|job| !orphan_lanes.contains(&job.lane));
        let jobs = &cursor.jobs;
        cursor
            .lanes
            .retain(|lane| !lane.lane.is_job() || jobs.iter().any(|job| job.lane == lane.lane));
        // A job's number that is in use must not be assigned again soon.
        let last_lane = self.last_ended(of)?;
        let begun = last_lane.map_or(0, |Lane(lane)| {
            lane.saturating_sub(Lane::FIRST_JOB.0).saturating_add(1)
        });
        cursor.jobs_begun = cursor.jobs_begun.max(begun);
        Ok(())
    }

    fn last_ended(&self, of: SubscriptionKey) -> Result<Option<Lane>, CheckStop> {
        let range = keys::ended_jobs_of(of);
        let last = self.store.last(Family::Meta, &range.start, &range.end)?;
        let digits = last.and_then(|(key, _)| {
            Some(
                std::str::from_utf8(key.get(range.start.len()..)?)
                    .ok()?
                    .to_owned(),
            )
        });
        Ok(digits.and_then(|digits| digits.parse().ok()).map(Lane))
    }
}
