//! Saves the clock for the next process in `DATA/clock`, and logs steps of the wall clock.
//!
//! The file is replaced as a whole, so a process that is killed leaves the clock that it saved last.
//! It is not synced. After a power cut it is some seconds old or, at worst, unreadable; then the
//! next process trusts the wall clock, as the first one does.

use std::{
    cell::Cell,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use gridhook_clock::{Clock, ClockJump, ClockLimits, ClockRecord, OwnerClock, Skew};
use gridhook_config::Config;

/// The name of the file in the data folder.
const FILE: &str = "clock";

/// The boot id of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

pub(super) struct Timekeeper {
    clock: Clock,
    path: PathBuf,
    boot: Option<String>,
    /// Whether expiry was paused at the last look.
    was_paused: Cell<bool>,
}

/// The clock of this process, which continues the saved one, or that of the `owner` before this
/// one: the nodes of a cluster have clocks of their own, and the times that one has set are those
/// of the next one.
pub(super) fn start_clock(
    config: &Config,
    skew: Skew,
    owner: Option<OwnerClock>,
) -> (Clock, Timekeeper) {
    let path = config.server.data_dir.join(FILE);
    let boot = fs::read_to_string(BOOT)
        .ok()
        .map(|boot| boot.trim().to_owned());
    let limits = ClockLimits {
        jump_max: config.clock.jump_max,
        expiry_pause_max: config.clock.expiry_pause_max,
    };
    let past = ClockRecord::latest_record(read(&path), owner, limits);
    let (clock, jump) = Clock::resume_after(skew, past.as_ref(), boot.as_deref(), limits);
    let time = clock.now();
    let wall = clock.wall_time();
    let rounded = |by: Duration| {
        humantime_serde::re::humantime::format_duration(Duration::from_secs(by.as_secs()))
            .to_string()
    };
    match jump {
        None => {}
        Some(ClockJump::Ahead(by)) => tracing::warn!(
            by = rounded(by),
            %wall,
            expiry_pause_max = rounded(limits.expiry_pause_max),
            "the wall clock is ahead of the last run: the clock was set, or the server was off. \
             Events are delivered, and nothing expires until `gridhook clock confirm` or the end \
             of clock.expiry_pause_max"
        ),
        Some(ClockJump::Behind(by)) => tracing::warn!(
            by = rounded(by),
            %wall,
            %time,
            "the wall clock is behind the last run: time continues from the last run and slowly \
             approaches the wall clock. After `gridhook clock confirm` the server begins again \
             by the wall clock"
        ),
        Some(ClockJump::Undone) => {
            tracing::warn!(%wall, "the step of the wall clock was undone: events expire again")
        }
    }
    if jump.is_none() && clock.expiry_is_paused() {
        tracing::warn!(
            %wall,
            "the wall clock is not confirmed: nothing expires until `gridhook clock confirm` or \
             the end of clock.expiry_pause_max"
        );
    }
    let was_paused = Cell::new(clock.expiry_is_paused());
    let timekeeper = Timekeeper {
        clock: clock.clone(),
        path,
        boot,
        was_paused,
    };
    (clock, timekeeper)
}

fn read(path: &Path) -> Option<ClockRecord> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the saved clock cannot be read");
            return None;
        }
    };
    let read = serde_json::from_slice(&text);
    read.inspect_err(
        |error| tracing::warn!(%error, path = %path.display(), "the saved clock cannot be parsed"),
    )
    .ok()
}

impl Timekeeper {
    /// Saves the clock, and logs what has happened to it. Called every few seconds.
    pub(super) fn observe_clock(&self) {
        // This reads the time, which detects a step.
        self.save_clock();
        if let Some(step) = self.clock.take_step() {
            tracing::warn!(
                wall = %step.wall,
                expected = %step.expected,
                "the wall clock was set: time follows slowly, and at once after \
                 `gridhook clock confirm`"
            );
        }
        let is_paused = self.clock.expiry_is_paused();
        if self.was_paused.replace(is_paused) && !is_paused {
            tracing::info!("the wall clock is trusted: events expire again");
        }
    }

    /// Returns once an operator has confirmed a wall clock that is behind.
    pub(super) async fn confirmed_back(&self) {
        self.clock.wait_until_set_back().await;
    }

    /// Saves the clock for the next process.
    pub(super) fn save_clock(&self) {
        let Some(past) = self.clock.to_record(self.boot.as_deref()) else {
            return;
        };
        let text = serde_json::to_vec(&past).expect("numbers and texts are JSON");
        let draft = self.path.with_extension("new");
        let result = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &self.path));
        if let Err(error) = result {
            tracing::debug!(%error, path = %self.path.display(), "the clock was not saved");
        }
    }
}
