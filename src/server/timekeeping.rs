//! What the next process is to know of time: noted in `DATA/clock` while this one runs. And what an operator hears of a wall
//! clock that was set.
//!
//! The file is written in place and not synced: after a power cut it is some seconds old or, at worst, not readable, and then
//! the next process believes the wall clock, as the first one does.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    clock::{Clock, ClockJump, ClockLimits, ClockRecord, Skew},
    config::Config,
};

/// The name of the file in the data folder.
const FILE: &str = "clock";

/// How often the clocks are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Each so many looks, what the clock tells is noted.
const NOTED: u32 = 5;

/// Where the system says which start of the machine this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Notes what the clock tells.
pub(super) struct Timekeeper {
    clock: Clock,
    path: PathBuf,
    boot: Option<String>,
}

/// The clock of this process, which goes on after the last one on this data folder.
pub(super) fn begin(config: &Config, skew: Skew) -> (Clock, Timekeeper) {
    let path = config.server.data_dir.join(FILE);
    let boot = fs::read_to_string(BOOT).ok().map(|boot| boot.trim().to_owned());
    let limits = ClockLimits { jump_max: config.clock.jump_max, hold_wait: config.clock.hold_wait };
    let (clock, jump) = Clock::resumed(skew, read(&path).as_ref(), boot.as_deref(), limits);
    let (time, wall) = (clock.now(), clock.wall());
    let tell =
        |by: Duration| humantime_serde::re::humantime::format_duration(Duration::from_secs(by.as_secs())).to_string();
    match jump {
        None => {}
        Some(ClockJump::Ahead(by)) => tracing::warn!(
            by = tell(by),
            %wall,
            hold_wait = tell(limits.hold_wait),
            "the wall clock is ahead of the last run: it was set, or the server was off. Events are delivered and nothing \
             expires until `gridhook clock confirm`, or for clock.hold_wait"
        ),
        Some(ClockJump::Behind(by)) => tracing::warn!(
            by = tell(by),
            %wall,
            %time,
            "the wall clock is behind the last run: time goes on from where it was and draws near slowly. After \
             `gridhook clock confirm` the next start begins by the wall clock"
        ),
        Some(ClockJump::Undone) => tracing::warn!(%wall, "the wall clock is back where it was: events expire again"),
    }
    if jump.is_none() && clock.holds_expiry() {
        tracing::warn!(
            %wall,
            "the wall clock is not confirmed yet: nothing expires until `gridhook clock confirm`, or for clock.hold_wait"
        );
    }
    (clock.clone(), Timekeeper { clock, path, boot })
}

fn read(path: &Path) -> Option<ClockRecord> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "what the last run knew of time cannot be read");
            return None;
        }
    };
    let read = serde_json::from_slice(&text);
    read.inspect_err(
        |error| tracing::warn!(%error, path = %path.display(), "what the last run knew of time is not understood"),
    )
    .ok()
}

impl Timekeeper {
    /// Looks after the clock until the server ends.
    pub(super) async fn run(self: std::rc::Rc<Self>) {
        let mut held = self.clock.holds_expiry();
        for look in 0_u32.. {
            if look % NOTED == 0 {
                self.note();
            }
            tokio::time::sleep(LOOK).await;
            // A step shows when the time is asked for.
            self.clock.now();
            if let Some(step) = self.clock.take_step() {
                tracing::warn!(
                    wall = %step.wall,
                    expected = %step.expected,
                    "the wall clock was set; time follows it slowly, and at once after a restart"
                );
            }
            if std::mem::replace(&mut held, self.clock.holds_expiry()) && !held {
                tracing::info!("the wall clock is believed: events expire again");
            }
        }
    }

    /// Notes what the next process is to know.
    pub(super) fn note(&self) {
        let Some(past) = self.clock.past(self.boot.as_deref()) else { return };
        let text = serde_json::to_vec(&past).expect("numbers and texts are JSON");
        if let Err(error) = fs::write(&self.path, text) {
            tracing::debug!(%error, path = %self.path.display(), "the time is not noted");
        }
    }
}
