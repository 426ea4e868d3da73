use gridhook::{
    dead_letter::totals::{DamagedTotals, DeadLetterTotals, FileInProgress, Outage},
    event::{Lane, Seq, Timestamp},
    journal::DeadLetterKey,
};
use proptest::prelude::*;

fn totals() -> impl Strategy<Value = DeadLetterTotals> {
    let file =
        (".{0,60}", any::<(u64, u64, u16)>()).prop_map(|(name, (due, seq, lane))| FileInProgress {
            name,
            last: DeadLetterKey {
                due: Timestamp(due),
                seq: Seq(seq),
                lane: Lane(lane),
            },
        });
    let counts = any::<[u64; 6]>();
    let outage = (any::<u64>(), ".{0,60}").prop_map(|(since, destination)| Outage {
        since: Timestamp(since),
        destination,
    });
    let options = (proptest::option::of(file), proptest::option::of(outage));
    (counts, options).prop_map(
        |([written, lost, files, bytes, redriven, purged], (in_progress, outage))| {
            DeadLetterTotals {
                written,
                lost,
                files,
                bytes,
                redriven,
                purged,
                in_progress,
                outage,
            }
        },
    )
}

proptest! {
    #[test]
    fn written_totals_are_read_back(totals in totals()) {
        prop_assert_eq!(DeadLetterTotals::decode(&totals.encode()), Ok(totals));
    }

    #[test]
    fn truncated_and_longer_records_are_damaged(totals in totals()) {
        let bytes = totals.encode();
        for cut in 0..bytes.len() {
            prop_assert_eq!(DeadLetterTotals::decode(&bytes[..cut]), Err(DamagedTotals));
        }
        prop_assert_eq!(DeadLetterTotals::decode(&[&bytes[..], &[0]].concat()), Err(DamagedTotals));
    }

    /// The previous version has no outage at its end.
    #[test]
    fn the_format_before_is_read(totals in totals()) {
        let totals = DeadLetterTotals { outage: None, ..totals };
        let mut bytes = totals.encode();
        prop_assert_eq!((bytes[0], bytes.pop()), (3, Some(0)));
        bytes[0] = 2;
        prop_assert_eq!(DeadLetterTotals::decode(&bytes), Ok(totals));
    }

    #[test]
    fn garbage_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        DeadLetterTotals::decode(&bytes).ok();
    }
}

#[test]
fn an_accepted_loss_excludes_redriven_and_purged_dead_letters() {
    let totals = DeadLetterTotals {
        written: 3,
        redriven: 2,
        purged: 1,
        ..DeadLetterTotals::default()
    };
    assert_eq!(totals.clone().accept_loss(6), totals);
    assert_eq!(totals.accept_loss(8).lost, 2);
}
