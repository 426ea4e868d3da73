//! Waits for the thread that trims logs.

use std::time::Duration;

use gridhook::journal::Journal;

/// Waits until the lookups of the trim thread are done.
pub(crate) fn wait_for_looks(journal: &Journal) {
    for _ in 0..10_000 {
        if journal.trimming_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the looks at logs do not end");
}
