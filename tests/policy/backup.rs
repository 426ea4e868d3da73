//! When backups are due, and which are kept.

use std::time::Duration;

use gridhook::{
    event::Timestamp,
    policy::backup::{BackupAge, BackupRetention, BackupSchedule, SCHEDULE_FORMS},
};
use proptest::prelude::*;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

fn schedule(text: &str) -> BackupSchedule {
    text.parse()
        .unwrap_or_else(|allowed| panic!("{text} is refused; expected {allowed}"))
}

#[test]
fn a_backup_is_due_after_the_interval_or_at_the_time_of_day() {
    // The schedule, the newest backup, the start of the server, and when the next one is due.
    let cases = [
        ("6h", None, 100, 100),
        ("6h", Some(100), 500, 100 + 6 * HOUR),
        // Missed while the server was off: due in the past, so at once.
        ("6h", Some(100), 9 * DAY, 100 + 6 * HOUR),
        ("03:00", None, DAY, DAY + 3 * HOUR),
        ("03:00", Some(DAY + 3 * HOUR), 2 * DAY, 2 * DAY + 3 * HOUR),
        ("03:00", Some(DAY + 3 * HOUR - 1), 2 * DAY, DAY + 3 * HOUR),
        (
            "6h from 03:30",
            Some(DAY + 4 * HOUR),
            DAY,
            DAY + 9 * HOUR + HOUR / 2,
        ),
        ("2d from 00:00", Some(DAY), DAY, 2 * DAY),
        ("2d from 00:00", Some(2 * DAY + 5), DAY, 4 * DAY),
        ("1s", Some(10), 0, 11),
    ];
    for (text, last, started, due) in cases {
        let found = schedule(text).next_due(last.map(at), at(started));
        assert_eq!(
            found,
            at(due),
            "{text} after {last:?}, started at {started}"
        );
    }
    assert_eq!(schedule("6h from 03:30").to_string(), "6h from 03:30");
    assert_eq!(schedule("03:00").to_string(), "1day from 03:00");
    assert_eq!(schedule("1d").retry_time(at(5)), at(605));
    assert_eq!(schedule("30s").retry_time(at(5)), at(35));
    let wrong = [
        "",
        "6",
        "soon",
        "0s",
        "400d",
        "24:00",
        "03:60",
        "3:00",
        "7h from 03:00",
        "36h from 03:00",
        "6h from",
    ];
    for text in wrong {
        assert_eq!(
            text.parse::<BackupSchedule>(),
            Err(SCHEDULE_FORMS),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn the_newest_ones_the_young_ones_and_the_last_sound_one_are_kept(
        ages in prop::collection::vec((0_u64..100, any::<bool>()), 0..20),
        count in 1_usize..6,
        age in 0_u64..100,
    ) {
        let now = 1_000;
        let mut all: Vec<_> = ages.iter().map(|(age, sound)| BackupAge { made: at(now - age), sound: *sound }).collect();
        all.sort_by_key(|backup| backup.made);
        let retention = BackupRetention { count, age: Duration::from_secs(age) };
        let keeps = retention.mark_kept(&all, at(now));
        prop_assert_eq!(keeps.len(), all.len());
        let last_sound = (0..all.len()).rev().find(|backup| all[*backup].sound);
        for (backup, kept) in keeps.iter().enumerate() {
            let newer = all.len() - 1 - backup;
            let young = at(now).since(all[backup].made) < retention.age;
            prop_assert_eq!(*kept, newer < count || young || last_sound == Some(backup));
        }
    }
}
