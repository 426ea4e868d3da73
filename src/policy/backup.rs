//! When a scheduled backup is due, and which backups are kept.

use std::{fmt, str::FromStr, time::Duration};

use gridhook_event::Timestamp;

const DAY: Duration = Duration::from_secs(86_400);

/// The forms of a schedule.
pub const SCHEDULE_FORMS: &str = "an interval from 1s to 365d (\"6h\"), a time of day in UTC \
    (\"03:00\"), or an interval that divides a day or is a number of days, with a time of day \
    (\"6h from 03:00\")";

/// A retry after a failure comes no later than this, however long the interval is.
const RETRY_MAX: Duration = Duration::from_secs(600);

/// When backups are made. Its text is an interval, a time of day, or both (`6h from 02:00`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSchedule {
    interval: Duration,
    /// The time of day from which intervals count; [`None`]: the last backup.
    offset: Option<Duration>,
}

impl FromStr for BackupSchedule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (interval, time) = match text.split_once(" from ") {
            Some((interval, time)) => (interval, Some(time)),
            None if text.contains(':') => ("1d", Some(text)),
            None => (text, None),
        };
        let offset = time
            .map(|time| time_of_day(time).ok_or(SCHEDULE_FORMS))
            .transpose()?;
        let interval = humantime::parse_duration(interval.trim()).map_err(|_| SCHEDULE_FORMS)?;
        if interval < Duration::from_secs(1) || interval > DAY * 365 {
            return Err(SCHEDULE_FORMS);
        }
        let short = interval.min(DAY).as_micros();
        let long = interval.max(DAY).as_micros();
        if offset.is_some() && long % short != 0 {
            return Err(SCHEDULE_FORMS);
        }
        Ok(Self { interval, offset })
    }
}

fn time_of_day(text: &str) -> Option<Duration> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |part: &str| part.parse::<u8>().ok().filter(|_| part.len() == 2);
    let hour = number(hour)?;
    let minute = number(minute)?;
    (hour < 24 && minute < 60)
        .then(|| Duration::from_secs(u64::from(hour) * 3_600 + u64::from(minute) * 60))
}

impl fmt::Display for BackupSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.interval).fmt(f)?;
        let Some(offset) = self.offset else {
            return Ok(());
        };
        let minutes = offset.as_secs() / 60;
        write!(f, " from {:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl BackupSchedule {
    /// The time between two backups.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// When the next backup is due. `last` is the newest backup; without one, intervals count from
    /// `started`, and a schedule without a time of day is due at once.
    pub fn next_due(&self, last: Option<Timestamp>, started: Timestamp) -> Timestamp {
        match (self.offset, last) {
            (None, None) => started,
            (None, Some(last)) => last.after(self.interval),
            (Some(offset), last) => {
                let after = last.unwrap_or(started).before(offset).0;
                let interval = u64::try_from(self.interval.as_micros()).unwrap_or(u64::MAX);
                Timestamp((after / interval + 1).saturating_mul(interval)).after(offset)
            }
        }
    }

    /// When a backup that failed at `failed` is tried again.
    pub fn retry_time(&self, failed: Timestamp) -> Timestamp {
        failed.after(self.interval.min(RETRY_MAX))
    }
}

/// Which backups are kept: those that either limit keeps, and the newest sound one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupRetention {
    /// The newest ones that are kept, however old they are.
    pub count: usize,
    /// How long further ones are kept.
    pub age: Duration,
}

/// What retention must know of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupAge {
    /// When the backup was made.
    pub made: Timestamp,
    /// Whether its store was sound.
    pub sound: bool,
}

impl BackupRetention {
    /// Whether each of `all` is kept; they are ordered from the oldest to the newest. The newest
    /// sound one always is.
    pub fn mark_kept(&self, all: &[BackupAge], now: Timestamp) -> Vec<bool> {
        let newest_sound = all.iter().rposition(|backup| backup.sound);
        let first = all.len().saturating_sub(self.count);
        let keeps = |(at, backup): (usize, &BackupAge)| {
            at >= first || Some(at) == newest_sound || backup.made.after(self.age) > now
        };
        all.iter().enumerate().map(keeps).collect()
    }
}
