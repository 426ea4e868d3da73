//! Which lane has which part of the log, and what goes unsent.
//!
//! When an endpoint may be called again, what is too old by then is cut off as the expiry lane; when it has come back from a
//! suspension, what gathered meanwhile is cut off as the backlog lane, and the live lane goes on behind it. A held
//! subscription sends nothing, nor does one whose clients do not come, and time goes on all the same: a timer asks for it.
//! What gathered until the server starts is a backlog as well.
//!
//! Invariants:
//! - How old a place of the log is only the journal knows: it is asked ([`Effect::FindPosition`]), once at a time, and
//!   while it is asked no first attempt leaves, so that what is too old is not sent first.
//! - There are four lanes at most beside those of jobs, which nothing here concerns. An expiry lane takes in what follows it; anything else has to wait until it is finished.
//!   A backlog lane that is unfinished at the next return takes in what follows it, which is the case where nothing was
//!   read from the live lane since; otherwise what gathered stays live. It is what came after the last return, not the
//!   backlog of the day: the live share works it off in order, and has all of the limit when the backlog lane is finished.
//! - While the endpoint is healthy and the server runs nothing is divided, nor after an operator's hold: nothing has failed,
//!   and order is kept.
//! - What is given up here is never in a request, so neither limit nor pace is asked; what it costs is bounded for each write.

use std::time::Duration;

use super::{Subscription, lane_mut};
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Effect,
        batch::BatchLimits,
        lane::{self, LaneReader},
        record::{Health, LedgerEvent},
    },
};

/// While it is held, the log is looked at for what is too old no more often than this: each look is a search on the disk,
/// and nobody waits for an event to be given up to the second.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// What is known of what is too old.
#[derive(Debug)]
pub(super) struct ExpiryScan {
    /// The journal is to be asked as soon as it is of use.
    wanted: bool,
    /// The journal was asked from when on events are young enough.
    asked: Option<Timestamp>,
    /// When to ask while it is held.
    due: Option<Timestamp>,
    /// More is too old than the expiry lane could take in.
    again: bool,
    was_open: bool,
    was_healthy: bool,
}

impl ExpiryScan {
    /// Nothing is known yet.
    pub(super) fn recover(health: Health) -> Self {
        let was_healthy = matches!(health, Health::Healthy { .. });
        Self { wanted: true, asked: None, due: None, again: false, was_open: false, was_healthy }
    }

    /// It is looked at anew.
    pub(super) fn renew(&mut self) {
        (self.wanted, self.due) = (true, None);
    }
}

impl Subscription {
    /// Sees what has opened, and asks what is too old where that is of use now.
    pub(super) fn assign_lanes(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        let open = self.endpoint.is_open(now);
        self.aging.wanted |= open && !self.aging.was_open;
        self.aging.was_open = open;
        let healthy = matches!(self.endpoint.health(), Health::Healthy { .. });
        let returned = healthy && !self.aging.was_healthy;
        self.aging.was_healthy = healthy;
        if returned {
            self.part_with_backlog();
        }
        if self.endpoint.is_closed() || !(open || self.ages_unsent()) {
            return;
        }
        let behind = self.is_behind();
        if self.expiry_held {
            // Nobody says when it ends: it is looked again now and then, where nothing else would look.
            let looks = self.aging.due.filter(|due| *due > now).unwrap_or_else(|| now.after(LOOK_WAIT));
            self.aging.due = Some(looks).filter(|_| behind && self.ages_unsent());
            return;
        }
        if !self.ages_unsent() || !behind {
            self.aging.due = None;
        } else if self.aging.due.is_none() {
            // What comes from now on is young enough until then.
            self.aging.due = Some(now.after(self.settings.time_to_live));
        } else if self.aging.due.is_some_and(|due| due <= now) {
            self.aging.renew();
        }
        if !behind {
            self.aging.wanted = false;
        }
        if self.aging.wanted && self.aging.asked.is_none() {
            self.aging.wanted = false;
            let before = now.before(self.settings.time_to_live).after(Duration::from_micros(1));
            // What is older than the subscription is as old as the subscription.
            let before = if before > self.settings.since { before } else { Timestamp::default() };
            self.aging.asked = Some(before);
            effects.push(Effect::FindPosition { before });
        }
    }

    /// Whether events may grow too old without anybody looking at them: nothing is sent, or nobody asks for it.
    fn ages_unsent(&self) -> bool {
        self.endpoint.held().is_some() || self.is_pulled()
    }

    /// When to look for what is too old if nothing happens before.
    pub(super) fn ages(&self) -> Option<Timestamp> {
        self.aging.due.filter(|_| self.ages_unsent() && !self.endpoint.is_closed() && self.aging.asked.is_none())
    }

    /// Whether the journal was asked and has not answered: nothing is read meanwhile, or what is owed would be there before
    /// what is fresh, and be the probe every time.
    pub(super) fn is_looking(&self) -> bool {
        self.aging.asked.is_some()
    }

    /// Whether no first attempt may leave now, because it is not settled which lane it is of.
    pub(super) fn is_dividing(&self) -> bool {
        self.is_looking() || self.gathered.moves_events()
    }

    /// Everything below `at` was appended before `before`, and what is there when it says.
    pub(super) fn on_position(&mut self, before: Timestamp, at: Seq, appended: Option<Timestamp>, now: Timestamp) {
        if self.aging.asked != Some(before) {
            return;
        }
        self.aging.asked = None;
        self.end = self.end.max(at);
        let next = appended.map(|appended| self.settings.expires(appended));
        self.aging.due = next.map(|next| next.max(now.after(LOOK_WAIT)));
        self.aging.again |= !self.cut_off(at, Lane::EXPIRY);
    }

    /// The backlog of the topic is too large: what is unread below `below` goes.
    pub(super) fn on_overflow(&mut self, below: Seq) {
        // What cannot be taken in now is asked for again as long as the backlog is too large.
        self.cut_off(below.min(self.end), Lane::OVERFLOW);
    }

    /// Cuts off what is unread below `below`, as the lane `into`. False where that was not possible for all of it.
    fn cut_off(&mut self, below: Seq, into: Lane) -> bool {
        let mut all = true;
        let mut sent: Vec<(Seq, Lane)> =
            self.lanes.iter().filter(|lane| is_own(lane.lane())).map(|lane| (lane.read(), lane.lane())).collect();
        sent.sort_unstable();
        for (read, from) in sent {
            let follows = lane_mut(&mut self.lanes, into).map(|lane| lane.end() == Some(read));
            let Some(lane) = lane_mut(&mut self.lanes, from) else { continue };
            if read >= below || lane.end().is_some_and(|end| end <= read) {
                continue;
            }
            // What follows in it lies behind a gap.
            self.gathered.close_lane(from);
            match follows {
                Some(false) => all = false,
                Some(true) => {
                    let cut = lane.cut(below, into);
                    if let Some(lane) = lane_mut(&mut self.lanes, into) {
                        lane.extend(cut);
                    }
                }
                None => {
                    let cut = lane.cut(below, into);
                    self.lanes.push(cut);
                }
            }
            self.gathered.cursor();
        }
        all
    }

    /// The endpoint has come back: what gathered meanwhile must not stand before what comes from now on, nor before what
    /// came since it was away.
    pub(super) fn part_with_backlog(&mut self) {
        let least = u64::from(self.settings.backlog_min.max(1));
        let follows = lane_mut(&mut self.lanes, Lane::BACKLOG).map(|lane| lane.end());
        let Some(live) = lane_mut(&mut self.lanes, Lane::LIVE) else { return };
        let end = self.away.min(self.end);
        if end.0.saturating_sub(live.read().0) < least || follows.is_some_and(|end| end != Some(live.read())) {
            return;
        }
        let cut = live.cut(end, Lane::BACKLOG);
        self.gathered.close_lane(Lane::LIVE);
        match lane_mut(&mut self.lanes, Lane::BACKLOG) {
            Some(backlog) => backlog.extend(cut),
            None => self.lanes.push(cut),
        }
        self.gathered.move_events();
    }

    /// Gives up what is ready in the lanes that are not sent, and reads on in them.
    pub(super) fn give_up_ranges(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        if self.endpoint.is_closed() {
            return;
        }
        for index in 0..self.lanes.len() {
            let name = self.lanes[index].lane();
            let Some(reason) = lane::gives_up(name) else { continue };
            let events_max = self.gathered.may_give_up().min(self.lanes[index].ready());
            if events_max > 0 {
                let mut gone = Vec::with_capacity(events_max);
                let events_max = u32::try_from(events_max).unwrap_or(u32::MAX);
                let limits = BatchLimits { events_max, bytes_preferred: u64::MAX, ..self.settings.batch };
                for ready in self.take(index, limits, now) {
                    if self.abandon(ready.item, reason, None, now) {
                        gone.push(ready.item.seq);
                    }
                }
                let why = LedgerEvent::GivenUp { reason, put_aside: self.dead_letters(reason) };
                self.gathered.give_up(name, why, gone);
            }
            let lane = &mut self.lanes[index];
            if lane.ready() == 0
                && !self.gathered.is_ahead()
                && let Some((from, end)) = lane.next_read(self.end)
            {
                effects.push(Effect::ReadLog { lane: name, from, end });
            }
        }
    }

    /// A lane that has passed all it ever will is no more.
    pub(super) fn drop_finished(&mut self) {
        let finished: Vec<Lane> = self.lanes.iter().filter(|lane| lane.is_finished()).map(LaneReader::lane).collect();
        self.lanes.retain(|lane| !lane.is_finished());
        if !finished.is_empty() {
            finished.into_iter().for_each(|lane| self.gathered.close_lane(lane));
            self.gathered.cursor();
            let expires = self.lanes.iter().any(|lane| lane.lane() == Lane::EXPIRY);
            self.aging.wanted |= !expires && std::mem::take(&mut self.aging.again);
        }
    }

    /// Whether there is anything unread that is to be sent, but for jobs.
    pub(super) fn is_behind(&self) -> bool {
        self.lanes.iter().any(|lane| is_own(lane.lane()) && lane.is_behind(self.end))
    }
}

/// Whether the events of `lane` are sent.
pub(super) fn is_sent(lane: Lane) -> bool {
    lane::gives_up(lane).is_none()
}

/// Whether they are, and not for a job.
pub(super) fn is_own(lane: Lane) -> bool {
    is_sent(lane) && !lane.is_job()
}
