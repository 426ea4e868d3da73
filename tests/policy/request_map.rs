//! The map of requests in flight behaves as a tree does.

use std::collections::BTreeMap;

use gridhook::event::{RequestId, RequestMap};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_map_of_requests_has_what_a_tree_has(acts in prop::collection::vec((0_u64..200, 0_u8..4), 0..400)) {
        let mut map = RequestMap::default();
        let mut tree = BTreeMap::new();
        let mut next = 0;
        for (number, act) in acts {
            let id = RequestId(number);
            match act {
                0 => prop_assert_eq!(map.remove(id), tree.remove(&id)),
                1 => {
                    map.insert(id, number);
                    tree.insert(id, number);
                }
                // As in use: in the order of the numbers.
                _ => {
                    next += 1;
                    map.insert(RequestId(next), next);
                    tree.insert(RequestId(next), next);
                }
            }
            prop_assert_eq!(map.get(id), tree.get(&id));
            prop_assert_eq!(map.get_mut(id).copied(), tree.get(&id).copied());
            prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert_eq!(map.first(), tree.values().next());
        }
        prop_assert!(map.values().eq(tree.values()));
        prop_assert!(map.iter_mut().map(|(id, _)| id).eq(tree.keys().copied()));
    }
}
