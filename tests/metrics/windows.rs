//! Sums at recorded times, as windows need them.

use gridhook::metrics::windows::{WindowRule, Windows, WrappingSums};

const RULES: [WindowRule; 2] = [
    WindowRule {
        length: 60,
        spacing: 10,
    },
    WindowRule {
        length: 3_600,
        spacing: 900,
    },
];

/// The rise of a scope's sum since the beginning of a window, and how long that is ago.
fn rise(
    windows: &Windows<u8, [u32; 1]>,
    window: usize,
    scope: u8,
    sum: u32,
    now: u64,
) -> Option<(u32, u64)> {
    let start = windows.window_starts(now)[window]?;
    Some((
        sum - windows.recorded_sums(&scope).sums_at(start)[0],
        now - start.seconds,
    ))
}

#[test]
fn a_window_begins_at_the_newest_recorded_time_that_is_old_enough() {
    let mut windows = Windows::new(&RULES);
    assert_eq!(rise(&windows, 0, 1, 5, 1_000), None, "nothing is recorded");
    for step in 0..50_u64 {
        // Asked for more often than needed.
        for late in [0, 5] {
            windows.record_sums(1_000 + 10 * step + late, [(1, [100 + step as u32])]);
        }
    }
    // The last recorded time is 1490, with 149.
    assert_eq!(rise(&windows, 0, 1, 200, 1_495), Some((200 - 143, 65)));
    assert_eq!(rise(&windows, 0, 1, 200, 1_490), Some((200 - 143, 60)));
    assert_eq!(
        rise(&windows, 1, 1, 200, 1_495),
        Some((100, 495)),
        "a window that is not full begins at the first time"
    );
}

#[test]
fn a_scope_begins_at_nothing_unless_it_was_there_at_first() {
    let mut windows = Windows::new(&RULES);
    windows.record_sums(1_000, [(1, [70])]);
    assert_eq!(
        rise(&windows, 0, 2, 9, 1_005),
        Some((9, 5)),
        "it was created since"
    );
    windows.record_sums(1_010, [(1, [70]), (2, [9])]);
    assert_eq!(rise(&windows, 0, 1, 71, 1_015), Some((1, 15)));
    assert_eq!(rise(&windows, 0, 2, 12, 1_015), Some((12, 15)));
    windows.record_sums(1_020, [(2, [12])]);
    windows.record_sums(1_030, [(1, [3]), (2, [12])]);
    assert_eq!(
        rise(&windows, 0, 1, 3, 1_035),
        Some((3, 35)),
        "another one with its key, after it was forgotten"
    );
}

#[test]
fn a_clock_that_was_set_back_begins_anew() {
    let mut windows = Windows::new(&RULES);
    windows.record_sums(5_000, [(1, [10])]);
    windows.record_sums(5_010, [(1, [20])]);
    assert!(windows.is_due(4_000) && !windows.is_due(5_011));
    windows.record_sums(4_000, [(1, [30])]);
    assert_eq!(rise(&windows, 0, 1, 31, 4_001), Some((1, 1)));
}

#[test]
fn sums_that_wrapped_have_risen_by_their_difference() {
    let before = WrappingSums::new([u64::from(u32::MAX), 7, 0]);
    let sums = WrappingSums::new([u64::from(u32::MAX) + 5, 9, 0]);
    assert_eq!(sums.rises_since(before), [5, 2, 0]);
    assert_eq!(sums.rises_since(WrappingSums::default()), [4, 9, 0]);
}
