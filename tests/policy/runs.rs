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
                prop_assert_eq!(set.insert(seq), tree.insert(seq));
            } else {
                prop_assert_eq!(set.remove(seq), tree.remove(&seq));
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            prop_assert!((0..25).all(|seq| set.contains(Seq(seq)) == tree.contains(&Seq(seq))));
            // Runs that touch are one, whatever the order of the changes.
            prop_assert_eq!(&set, &tree.iter().copied().collect::<SeqSet>());
            prop_assert_eq!(set.event_count(), tree.len() as u64);
        }
    }

    #[test]
    fn parts_of_a_set_of_runs_are_those_of_a_tree(
        events in prop::collection::btree_set(1_u64..60, 0..60),
        others in prop::collection::btree_set(1_u64..60, 0..60),
        start in 0_u64..61,
        length in 0_u64..61,
    ) {
        let tree: BTreeSet<Seq> = events.into_iter().map(Seq).collect();
        let others: BTreeSet<Seq> = others.into_iter().map(Seq).collect();
        let set: SeqSet = tree.iter().copied().collect();
        let start = Seq(start);
        let end = start.plus(length);
        let between: SeqSet = tree.range(start..end).copied().collect();
        prop_assert_eq!(set.between(start, end), between);
        let mut earlier = set.clone();
        let later = earlier.split_off(start);
        prop_assert_eq!(&earlier, &tree.range(..start).copied().collect());
        prop_assert_eq!(&later, &tree.range(start..).copied().collect());
        earlier.add_all(later);
        prop_assert_eq!(&earlier, &set);
        earlier.add_all(others.iter().copied().collect());
        prop_assert_eq!(&earlier, &tree.union(&others).copied().collect());
    }
}
