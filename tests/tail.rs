//! The newest events of a topic, as the lanes of a subscription read them.

use std::{collections::HashMap, sync::Arc};

use gridhook::{
    event::{Seq, SubscriptionId, Timestamp},
    journal::chunk::{Chunk, Running},
    subscription::{Budget, Matched, Tail},
};

use crate::policy::sealed;

const ONE: SubscriptionId = SubscriptionId(1);

/// Two chunks of five events each; the second, fourth and fifth of each match.
fn tail() -> Tail {
    let tail = Tail::new(Arc::new(Budget::new(1 << 20)));
    for first in [11, 16] {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(Seq(first), sealed.stamp(Timestamp(1), Running::default())).expect("sound");
        tail.push(Matched {
            first: chunk.first,
            events: chunk.events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::new(HashMap::from([(ONE, 1)])),
            matches: HashMap::from([(ONE, vec![1, 3, 4])]),
        });
    }
    tail
}

fn read(from: u64, end: Option<u64>, events_max: usize) -> Option<(u64, u64, Vec<u64>)> {
    let found = tail().read(ONE, 1, Seq(from), end.map(Seq), events_max)?;
    Some((found.upto.0, found.total, found.events.iter().map(|event| event.seq.0).collect()))
}

#[test]
fn a_lane_reads_up_to_its_end_and_the_live_one_all_there_is() {
    assert_eq!(read(11, None, 100), Some((21, 10, vec![12, 14, 15, 17, 19, 20])));
    assert_eq!(read(13, None, 1), Some((16, 3, vec![14, 15])), "whole chunks");
    assert_eq!(read(11, Some(15), 100), Some((15, 4, vec![12, 14])));
    assert_eq!(read(14, Some(18), 100), Some((18, 4, vec![14, 15, 17])));
    assert_eq!(read(11, Some(16), 100), Some((16, 5, vec![12, 14, 15])));
    assert_eq!(read(16, Some(40), 100), Some((21, 5, vec![17, 19, 20])));
}

#[test]
fn what_is_not_in_the_tail_is_read_from_the_log() {
    assert_eq!(read(10, None, 100), None, "older");
    assert_eq!(read(21, None, 100), None, "nothing is there");
    assert_eq!(tail().read(ONE, 2, Seq(11), None, 100).map(|found| found.upto), None, "matched for another version");
}
