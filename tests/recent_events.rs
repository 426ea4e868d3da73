//! The newest events of a topic, as the lanes of a subscription read them.

use std::{collections::HashSet, sync::Arc};

use gridhook::{
    event::{Seq, SubscriptionId, Timestamp},
    store::chunk::{Chunk, LogTail},
    subscription::{MatchedChunk, Matches, RecentBudget, RecentEvents, SubscriptionPositions},
};

use crate::policy::sealed;

const ONE: SubscriptionId = SubscriptionId(1);
const TWO: SubscriptionId = SubscriptionId(2);
const BYSTANDER: SubscriptionId = SubscriptionId(3);

/// As much as there is.
const ALL: (usize, usize) = (100, usize::MAX);

/// Who gets each event of a chunk, by place.
fn matches<'a>(events: impl IntoIterator<Item = &'a [u32]>) -> Matches {
    let mut matches = Matches::default();
    events.into_iter().for_each(|places| matches.push(places.to_vec()));
    matches
}

/// Two chunks of five events each; the second, fourth and fifth of each match.
fn tail() -> RecentEvents {
    let tail = RecentEvents::new(Arc::new(RecentBudget::new(1 << 20)));
    for first in [11, 16] {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(Seq(first), sealed.stamp(Timestamp(1), LogTail::default())).expect("sound");
        tail.push(MatchedChunk {
            first: chunk.first,
            events: chunk.events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::new(SubscriptionPositions::new([(ONE, 1)])),
            matches: matches([&[][..], &[0], &[], &[0], &[0]]),
        });
    }
    tail
}

fn read(from: u64, end: Option<u64>, events_max: usize) -> Option<(u64, u64, Vec<u64>)> {
    let found = tail().read(ONE, 1, Seq(from), end.map(Seq), (events_max, usize::MAX))?;
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
    assert_eq!(tail().read(ONE, 2, Seq(11), None, ALL).map(|found| found.upto), None, "matched for another version");
}

/// A tail of chunks of five events, from place 1, where each matches these subscriptions' second and fourth.
struct Story {
    budget: Arc<RecentBudget>,
    tail: RecentEvents,
    known: Arc<SubscriptionPositions>,
    next: u64,
}

impl Story {
    fn new() -> Self {
        let budget = Arc::new(RecentBudget::new(1 << 20));
        Self::beside(budget)
    }

    /// One of several topics that share a budget.
    fn beside(budget: Arc<RecentBudget>) -> Self {
        let known = Arc::new(SubscriptionPositions::new([ONE, TWO, BYSTANDER].map(|subscription| (subscription, 1))));
        Self { tail: RecentEvents::new(Arc::clone(&budget)), budget, known, next: 1 }
    }

    fn push(&mut self, matching: &[SubscriptionId]) {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(Seq(self.next), sealed.stamp(Timestamp(1), LogTail::default())).expect("sound");
        self.tail.push(MatchedChunk {
            first: chunk.first,
            events: chunk.events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::clone(&self.known),
            matches: {
                let places: Vec<u32> = matching.iter().map(|subscription| subscription.0 - 1).collect();
                matches([&[][..], &places, &[], &places, &[]])
            },
        });
        self.next += 5;
    }

    fn read(&self, subscription: SubscriptionId, from: u64) -> Option<(u64, u64, Vec<u64>)> {
        let found = self.tail.read(subscription, 1, Seq(from), None, ALL)?;
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
    let gone = story.budget.used();
    assert!(gone < whole / 2, "{gone} of {whole}");
    story.push(&[]);
    assert_eq!(story.budget.used(), gone, "nobody's");
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
    let left = story.budget.used();
    assert!(whole / 3 <= left && left < whole / 2, "{left} of {whole}");
    assert_eq!(story.read(ONE, 1), None);
    assert_eq!(story.read(TWO, 1), Some((16, 15, vec![7, 9])));
    assert!(story.budget.used() < whole / 4);
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
    let replay = || story.tail.read(ONE, 1, Seq(1), Some(Seq(6)), ALL).map(|found| found.events.len());
    assert_eq!((replay(), replay()), (Some(2), Some(2)));
    assert_eq!(story.read(ONE, 1), Some((6, 5, vec![2, 4])));
    assert_eq!(replay(), None);
    story.tail.pass(Seq(6));
    assert_eq!(story.budget.used(), 0);
}

/// A topic with a thousand subscriptions; `matching` of them get each of its events, which are published one by one.
fn publish_to_many(tail: &RecentEvents, matching: u32, events: u64) {
    let roster = Arc::new(SubscriptionPositions::new((1..=1_000).map(|number| (SubscriptionId(number), 1))));
    for seq in 1..=events {
        let sealed = sealed(&[("a", 1)]).pop().expect("a chunk");
        let chunk = Chunk::decode(Seq(seq), sealed.stamp(Timestamp(1), LogTail::default())).expect("sound");
        tail.push(MatchedChunk {
            first: chunk.first,
            events: chunk.events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::clone(&roster),
            matches: matches([&(0..matching).collect::<Vec<_>>()[..]]),
        });
    }
}

#[test]
fn who_gets_an_event_is_counted_and_a_thousand_cost_little_more_than_one() {
    let used = |matching| {
        let budget = Arc::new(RecentBudget::new(1 << 30));
        publish_to_many(&RecentEvents::new(Arc::clone(&budget)), matching, 1);
        let tail = RecentEvents::new(Arc::clone(&budget));
        publish_to_many(&tail, matching, 100);
        budget.used() / 100
    };
    let (one, all) = (used(1), used(1_000));
    assert!(one + 125 <= all, "a bit for each of a thousand is counted: {one} and {all} bytes an event");
    assert!(all <= one + 512, "{one} and {all} bytes an event");
}

#[test]
fn events_that_differ_in_who_gets_them_go_to_these_and_no_others() {
    let tail = RecentEvents::new(Arc::new(RecentBudget::new(1 << 20)));
    let roster = Arc::new(SubscriptionPositions::new((0..200).map(|number| (SubscriptionId(number), 7))));
    let sets: Vec<Vec<u32>> =
        (0..20).map(|event| (0..200).filter(|place| (place * 7 + event) % (event + 1) == 0).collect()).collect();
    let sealed = sealed(&[("a", 1); 20]).pop().expect("a chunk");
    let chunk = Chunk::decode(Seq(1), sealed.stamp(Timestamp(1), LogTail::default())).expect("sound");
    tail.push(MatchedChunk {
        first: chunk.first,
        events: chunk.events().expect("sound"),
        bytes: chunk.bytes_len(),
        matched_for: roster,
        matches: matches(sets.iter().map(|places| &places[..])),
    });
    for place in 0..200 {
        let found = tail.read(SubscriptionId(place), 7, Seq(3), Some(Seq(19)), ALL).expect("it is there");
        let expected: Vec<u64> = (3..19).filter(|seq| sets[*seq as usize - 1].contains(&place)).collect();
        assert_eq!(found.events.iter().map(|event| event.seq.0).collect::<Vec<_>>(), expected, "{place}");
    }
}

#[test]
fn nothing_is_kept_for_subscriptions_that_lag() {
    let mut story = Story::new();
    story.push(&[ONE, TWO]);
    story.push(&[TWO]);
    story.push(&[ONE]);
    let whole = story.budget.used();
    // One has read nothing, and two the first chunk.
    story.tail.lag(HashSet::from([ONE]), Seq(6));
    assert!(story.budget.used() < whole / 2, "what two needs is left");
    assert_eq!(story.read(ONE, 1), None, "it reads the log");
    assert_eq!(story.read(TWO, 6), Some((16, 10, vec![7, 9])));
    assert_eq!(story.read(BYSTANDER, 1), Some((16, 15, Vec::new())));
    let before = story.budget.used();
    story.push(&[ONE]);
    assert!(story.budget.used() < before + 100, "nothing is kept for it");
    story.push(&[ONE, TWO]);
    assert_eq!(story.read(TWO, 16), Some((26, 10, vec![22, 24])), "with the one that keeps up the events go");
    assert!(story.budget.used() < before + 100);
    // It has caught up.
    story.tail.lag(HashSet::new(), Seq(26));
    story.push(&[ONE]);
    assert_eq!(story.read(ONE, 26), Some((31, 5, vec![27, 29])));
}

#[test]
fn a_topic_that_keeps_much_makes_room_and_its_neighbours_keep_theirs() {
    let budget = Arc::new(RecentBudget::new(100_000));
    let (mut much, mut little) = (Story::beside(Arc::clone(&budget)), Story::beside(Arc::clone(&budget)));
    while budget.used() < 90_000 {
        much.push(&[ONE]);
    }
    little.push(&[ONE]);
    for _ in 0..1_000 {
        much.push(&[ONE]);
        little.push(&[ONE]);
        let from = little.next - 10;
        assert_eq!(little.read(ONE, from).map(|(upto, ..)| upto), Some(little.next), "its own is in memory");
        little.push(&[ONE]);
        assert!(budget.used() <= 100_000, "{}", budget.used());
    }
    assert_eq!(much.read(ONE, 1), None, "the oldest of much went");
    assert!(much.read(ONE, much.next - 5).is_some(), "and its newest is there");
}
