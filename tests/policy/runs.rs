//! A set of events in the form of runs, against a tree of them.

use std::collections::BTreeSet;

use gridhook::{event::Seq, policy::record::SeqSet};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_set_of_runs_has_the_events_of_a_tree(changes in prop::collection::vec((any::<bool>(), 1_u64..24), 0..200)) {
        let mut set = SeqSet::default();
        let mut tree = BTreeSet::new();
        for (adds, seq) in changes {
            let seq = Seq(seq);
            if adds {
                set.insert(seq);
                tree.insert(seq);
            } else {
                prop_assert_eq!(set.remove(seq), tree.remove(&seq));
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            prop_assert!((0..25).all(|seq| set.contains(Seq(seq)) == tree.contains(&Seq(seq))));
            // Runs that touch are one, whatever the order of the changes.
            prop_assert_eq!(&set, &tree.iter().copied().collect::<SeqSet>());
        }
    }
}
