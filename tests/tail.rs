//! The newest events of a topic, as the lanes of a subscription read them.

use std::{collections::HashMap, sync::Arc};

use gridhook::{
    event::{Seq, SubscriptionId, Timestamp},
    journal::chunk::{Chunk, Running},
    subscription::{Budget, Matched, Tail},
};

use crate::policy::sealed;

const ONE: SubscriptionId = SubscriptionId(1);
const TWO: SubscriptionId = SubscriptionId(2);
const BYSTANDER: SubscriptionId = SubscriptionId(3);

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

/// A tail of chunks of five events, from place 1, where each matches these subscriptions' second and fourth.
struct Story {
    budget: Arc<Budget>,
    tail: Tail,
    known: Arc<HashMap<SubscriptionId, u32>>,
    next: u64,
}

impl Story {
    fn new() -> Self {
        let budget = Arc::new(Budget::new(1 << 20));
        let known = Arc::new([ONE, TWO, BYSTANDER].map(|subscription| (subscription, 1)).into());
        Self { tail: Tail::new(Arc::clone(&budget)), budget, known, next: 1 }
    }

    fn push(&mut self, matching: &[SubscriptionId]) {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(Seq(self.next), sealed.stamp(Timestamp(1), Running::default())).expect("sound");
        self.tail.push(Matched {
            first: chunk.first,
            events: chunk.events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::clone(&self.known),
            matches: matching.iter().map(|subscription| (*subscription, vec![1, 3])).collect(),
        });
        self.next += 5;
    }

    fn read(&self, subscription: SubscriptionId, from: u64) -> Option<(u64, u64, Vec<u64>)> {
        let found = self.tail.read(subscription, 1, Seq(from), None, 100)?;
        Some((found.upto.0, found.total, found.events.iter().map(|event| event.seq.0).collect()))
    }
}

#[test]
fn events_go_when_everybody_has_read_them_whose_they_are() {
    let mut story = Story::new();
    story.push(&[ONE, TWO]);
    let whole = story.budget.used();
    assert_eq!(story.read(ONE, 1), Some((6, 5, vec![2, 4])));
    assert_eq!(story.budget.used(), whole, "two has not read them");
    assert_eq!(story.read(TWO, 1), Some((6, 5, vec![2, 4])));
    assert_eq!(story.budget.used(), 0);
    story.push(&[]);
    assert_eq!(story.budget.used(), 0, "nobody's");
    assert_eq!(story.read(BYSTANDER, 1), Some((11, 10, Vec::new())), "who has no part passes all the same");
    assert_eq!(story.read(BYSTANDER, 4), Some((11, 7, Vec::new())));
    assert_eq!(story.read(ONE, 1), None, "who reads again reads the log");
    assert_eq!(story.read(ONE, 5), None);
    assert_eq!(story.read(ONE, 6), Some((11, 5, Vec::new())));
}

#[test]
fn what_has_gone_is_passed_on_both_sides_of_what_a_laggard_has_not_read() {
    let mut story = Story::new();
    story.push(&[ONE]);
    story.push(&[TWO]);
    story.push(&[ONE]);
    let whole = story.budget.used();
    assert_eq!(story.read(ONE, 1), Some((16, 15, vec![2, 4, 12, 14])));
    assert_eq!(story.budget.used(), whole / 3);
    assert_eq!(story.read(ONE, 1), None);
    assert_eq!(story.read(TWO, 1), Some((16, 15, vec![7, 9])));
    assert_eq!(story.budget.used(), 0);
    story.push(&[ONE, TWO]);
    assert_eq!(story.read(ONE, 11), None, "of what is one stretch now it has read a part already");
    assert_eq!(story.read(TWO, 11), Some((21, 10, vec![17, 19])), "and who had its part before does not begin again");
    assert_eq!(story.read(ONE, 16), Some((21, 5, vec![17, 19])));
    assert_eq!(story.read(BYSTANDER, 1), Some((21, 20, Vec::new())));
    story.tail.pass(Seq(21));
    assert_eq!(story.read(BYSTANDER, 1), None);
}

#[test]
fn a_lane_with_an_end_reads_beside_the_live_one() {
    let mut story = Story::new();
    story.push(&[ONE]);
    let replay = || story.tail.read(ONE, 1, Seq(1), Some(Seq(6)), 100).map(|found| found.events.len());
    assert_eq!((replay(), replay()), (Some(2), Some(2)));
    assert_eq!(story.read(ONE, 1), Some((6, 5, vec![2, 4])));
    assert_eq!((replay(), story.budget.used()), (None, 0));
}
