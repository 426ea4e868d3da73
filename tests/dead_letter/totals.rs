use gridhook::{
    dead_letter::totals::{Damaged, InProgress, Totals},
    event::{Lane, Seq, Timestamp},
    journal::DeadKey,
};
use proptest::prelude::*;

fn totals() -> impl Strategy<Value = Totals> {
    let file = (".{0,60}", any::<(u64, u64, u16)>()).prop_map(|(name, (due, seq, lane))| InProgress {
        name,
        last: DeadKey { due: Timestamp(due), seq: Seq(seq), lane: Lane(lane) },
    });
    let counts = any::<[u64; 6]>();
    (counts, proptest::option::of(file)).prop_map(|([written, lost, files, bytes, redriven, purged], in_progress)| {
        Totals { written, lost, files, bytes, redriven, purged, in_progress }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(totals in totals()) {
        prop_assert_eq!(Totals::decode(&totals.encode()), Ok(totals));
    }

    #[test]
    fn what_is_cut_or_longer_is_damaged(totals in totals()) {
        let bytes = totals.encode();
        for cut in 0..bytes.len() {
            prop_assert_eq!(Totals::decode(&bytes[..cut]), Err(Damaged));
        }
        prop_assert_eq!(Totals::decode(&[&bytes[..], &[0]].concat()), Err(Damaged));
    }

    #[test]
    fn garbage_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        Totals::decode(&bytes).ok();
    }
}
