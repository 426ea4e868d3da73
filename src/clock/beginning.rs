//! The start of a process's clock, after that of an earlier process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::follower::absolute_distance;
use gridhook_event::Timestamp;

/// Limits of trust in the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockLimits {
    /// A larger jump between two processes is reported and pauses expiry.
    pub jump_max: Duration,
    /// How long expiry is paused without a confirmation.
    pub expiry_pause_max: Duration,
}

/// The boot of the machine in which a process ran, and the uptime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineBoot {
    /// The id of the boot, if the system has one.
    pub boot: Option<String>,
    /// The uptime, including sleep.
    pub up: Duration,
}

impl MachineBoot {
    pub(super) fn current_boot(boot: Option<&str>) -> Self {
        // If the system has no boot id, no two boots count as the same.
        let uptime_text = std::fs::read_to_string("/proc/uptime").ok();
        let up = uptime_text.and_then(|text| text.split(' ').next()?.parse().ok());
        let up = up.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            boot: boot.filter(|_| up.is_some()).map(str::to_owned),
            up: up.unwrap_or_default(),
        }
    }

    /// The time since `then`, if the machine kept running.
    fn time_since(&self, then: &Self) -> Option<Duration> {
        let same = self.boot.is_some() && self.boot == then.boot;
        same.then(|| self.up.checked_sub(then.up)).flatten()
    }
}

/// The last stored clock of an earlier process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRecord {
    /// The time of its clock.
    #[serde(alias = "told")]
    pub reported: Timestamp,
    /// The boot in which it ran.
    pub machine: MachineBoot,
    /// Why expiry was paused, if it was.
    #[serde(rename = "held", alias = "unconfirmed")]
    pub unconfirmed: Option<UnconfirmedJump>,
}

impl ClockRecord {
    /// The clock of a process on another machine, by which nothing may have expired. No wall clock
    /// undoes that: which of the two is right is not known.
    pub fn on_other_machine(
        reported: Timestamp,
        expiry_is_paused: bool,
        limits: ClockLimits,
    ) -> Self {
        let machine = MachineBoot {
            boot: None,
            up: Duration::ZERO,
        };
        let jump = expiry_is_paused.then(|| UnconfirmedJump {
            before: Timestamp(0),
            machine: machine.clone(),
            rest: limits.expiry_pause_max,
        });
        Self {
            reported,
            machine,
            unconfirmed: jump,
        }
    }

    /// The clock to continue. `saved`, which this node has written while it owned the shard, is
    /// older than that of an owner on another machine; beside one that this node has reported
    /// itself, it has more fields.
    pub fn latest_record(
        saved: Option<Self>,
        owner: Option<OwnerClock>,
        limits: ClockLimits,
    ) -> Option<Self> {
        let Some(OwnerClock {
            time,
            expiry_is_paused,
            is_here,
        }) = owner
        else {
            return saved;
        };
        let of_owner = || Self::on_other_machine(time, expiry_is_paused, limits);
        Some(saved.filter(|_| is_here).unwrap_or_else(of_owner))
    }
}

/// The clock of the last owner of a shard, as its node has reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerClock {
    pub time: Timestamp,
    /// Whether nothing expired by it.
    pub expiry_is_paused: bool,
    /// Whether an earlier process of this node reported it.
    pub is_here: bool,
}

/// A jump ahead that is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnconfirmedJump {
    /// The time of the clock before the jump.
    pub before: Timestamp,
    pub machine: MachineBoot,
    /// How long expiry remains paused without a confirmation.
    pub rest: Duration,
}

impl UnconfirmedJump {
    pub(super) fn after(&self, elapsed: Duration) -> Self {
        Self {
            rest: self.rest.saturating_sub(elapsed),
            ..self.clone()
        }
    }
}

/// The start of a process's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The time it starts with.
    pub reported: Timestamp,
    /// What an operator should know.
    pub jump: Option<ClockJump>,
    /// Whether expiry is paused, and why.
    pub unconfirmed: Option<UnconfirmedJump>,
}

/// The wall clock differs from what an earlier process leads to expect by more than
/// [`ClockLimits::jump_max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// Later by this much: it was set, or the server was off for this long. Expiry is paused.
    Ahead(Duration),
    /// Earlier by this much: the clock continues from its last time, and approaches the wall clock.
    Behind(Duration),
    /// It returned to its time before the jump that paused expiry.
    Undone,
}

/// Starts the clock after an earlier process, if there was one, with the wall clock at `wall`.
pub fn begin_reading(
    past: Option<&ClockRecord>,
    wall: Timestamp,
    here: &MachineBoot,
    limits: ClockLimits,
) -> Beginning {
    let Some(ClockRecord {
        reported,
        machine,
        unconfirmed,
    }) = past
    else {
        return Beginning {
            reported: wall,
            jump: None,
            unconfirmed: None,
        };
    };
    let expected_wall = |reported: &Timestamp, then: &MachineBoot| {
        reported.after(here.time_since(then).unwrap_or_default())
    };
    if let Some(UnconfirmedJump {
        before, machine, ..
    }) = unconfirmed
        && absolute_distance(wall, expected_wall(before, machine)) <= limits.jump_max
    {
        return Beginning {
            reported: wall,
            jump: Some(ClockJump::Undone),
            unconfirmed: None,
        };
    }
    let expected_wall = expected_wall(reported, machine);
    if wall < expected_wall {
        let behind = expected_wall.since(wall);
        let jump = (behind > limits.jump_max).then_some(ClockJump::Behind(behind));
        return Beginning {
            reported: expected_wall,
            jump,
            unconfirmed: unconfirmed.clone(),
        };
    }
    let ahead = wall.since(expected_wall);
    if ahead <= limits.jump_max {
        return Beginning {
            reported: wall,
            jump: None,
            unconfirmed: unconfirmed.clone(),
        };
    }
    // Of several jumps, returning from the first ends the pause.
    let (before, machine) = match unconfirmed {
        Some(UnconfirmedJump {
            before, machine, ..
        }) => (*before, machine.clone()),
        None => (expected_wall, here.clone()),
    };
    let unconfirmed = Some(UnconfirmedJump {
        before,
        machine,
        rest: limits.expiry_pause_max,
    });
    Beginning {
        reported: wall,
        jump: Some(ClockJump::Ahead(ahead)),
        unconfirmed,
    }
}
