//! The recent-events cache, as the lanes of a subscription read it.

use std::{collections::HashSet, sync::Arc};

use gridhook::{
    event::{
        Seq, SubscriptionId, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    subscription::recent_events::{
        MatchedChunk, Matches, ReadBounds, RecentBudget, RecentEvents, SubscriptionPositions,
    },
};

use crate::support::chunks::sealed;

const ONE: SubscriptionId = SubscriptionId(1);
const TWO: SubscriptionId = SubscriptionId(2);
const BYSTANDER: SubscriptionId = SubscriptionId(3);

/// No limit.
const ALL: ReadBounds = ReadBounds {
    events_max: 100,
    bytes_max: usize::MAX,
};

/// The subscriptions of each event of a chunk, by position.
fn matches<'a>(events: impl IntoIterator<Item = &'a [u32]>) -> Matches {
    let mut matches = Matches::default();
    events.into_iter().for_each(|places| matches.push(places));
    matches
}

/// Two chunks of five events each; the second, fourth and fifth of each match.
fn recent() -> RecentEvents {
    let recent = RecentEvents::new(Arc::new(RecentBudget::new(1 << 20)));
    for first in [11, 16] {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(
            Seq(first),
            sealed.stamp_record(Timestamp(1), RunningTotals::default()),
        )
        .expect("sound");
        recent.push(MatchedChunk {
            first: chunk.first,
            events: chunk.decode_events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::new(SubscriptionPositions::new([(ONE, 1)])),
            matches: matches([&[][..], &[0], &[], &[0], &[0]]),
        });
    }
    recent
}

fn read(from: u64, end: Option<u64>, events_max: usize) -> Option<(u64, u64, Vec<u64>)> {
    let found = recent().read(
        ONE,
        1,
        Seq(from),
        end.map(Seq),
        ReadBounds {
            events_max,
            bytes_max: usize::MAX,
        },
    )?;
    Some((
        found.upto.0,
        found.total,
        found.events.iter().map(|event| event.seq.0).collect(),
    ))
}

#[test]
fn a_lane_reads_to_its_end_and_the_live_lane_reads_everything() {
    assert_eq!(
        read(11, None, 100),
        Some((21, 10, vec![12, 14, 15, 17, 19, 20]))
    );
    assert_eq!(
        read(13, None, 1),
        Some((16, 3, vec![14, 15])),
        "whole chunks"
    );
    assert_eq!(read(11, Some(15), 100), Some((15, 4, vec![12, 14])));
    assert_eq!(read(14, Some(18), 100), Some((18, 4, vec![14, 15, 17])));
    assert_eq!(read(11, Some(16), 100), Some((16, 5, vec![12, 14, 15])));
    assert_eq!(read(16, Some(40), 100), Some((21, 5, vec![17, 19, 20])));
}

#[test]
fn events_not_in_the_cache_are_read_from_the_log() {
    assert_eq!(read(10, None, 100), None, "older");
    assert_eq!(read(21, None, 100), None, "nothing is there");
    assert_eq!(
        recent()
            .read(ONE, 2, Seq(11), None, ALL)
            .map(|found| found.upto),
        None,
        "matched for another version"
    );
}

/// A cache with chunks of five events, from sequence 1. In each, the second and the fourth event
/// match these subscriptions.
struct TestTopic {
    budget: Arc<RecentBudget>,
    recent: RecentEvents,
    known: Arc<SubscriptionPositions>,
    next: u64,
}

impl TestTopic {
    fn new() -> Self {
        let budget = Arc::new(RecentBudget::new(1 << 20));
        Self::beside(budget)
    }

    /// One of several topics that share a budget.
    fn beside(budget: Arc<RecentBudget>) -> Self {
        let known = Arc::new(SubscriptionPositions::new(
            [ONE, TWO, BYSTANDER].map(|subscription| (subscription, 1)),
        ));
        Self {
            recent: RecentEvents::new(Arc::clone(&budget)),
            budget,
            known,
            next: 1,
        }
    }

    fn push(&mut self, matching: &[SubscriptionId]) {
        let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
        let chunk = Chunk::decode(
            Seq(self.next),
            sealed.stamp_record(Timestamp(1), RunningTotals::default()),
        )
        .expect("sound");
        self.recent.push(MatchedChunk {
            first: chunk.first,
            events: chunk.decode_events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::clone(&self.known),
            matches: {
                let places: Vec<u32> = matching
                    .iter()
                    .map(|subscription| subscription.0 - 1)
                    .collect();
                matches([&[][..], &places, &[], &places, &[]])
            },
        });
        self.next += 5;
    }

    fn read(&self, subscription: SubscriptionId, from: u64) -> Option<(u64, u64, Vec<u64>)> {
        let found = self.recent.read(subscription, 1, Seq(from), None, ALL)?;
        Some((
            found.upto.0,
            found.total,
            found.events.iter().map(|event| event.seq.0).collect(),
        ))
    }
}

#[test]
fn events_are_dropped_when_all_matching_subscriptions_have_read_them() {
    let mut topic = TestTopic::new();
    topic.push(&[ONE, TWO]);
    let whole = topic.budget.used_bytes();
    assert_eq!(topic.read(ONE, 1), Some((6, 5, vec![2, 4])));
    assert_eq!(topic.budget.used_bytes(), whole, "Two has not read them");
    assert_eq!(topic.read(TWO, 1), Some((6, 5, vec![2, 4])));
    let gone = topic.budget.used_bytes();
    assert!(gone < whole / 2, "{gone} of {whole}");
    topic.push(&[]);
    assert_eq!(topic.budget.used_bytes(), gone, "no subscription matches");
    assert_eq!(
        topic.read(BYSTANDER, 1),
        Some((11, 10, Vec::new())),
        "a subscription without a match skips the range"
    );
    assert_eq!(topic.read(BYSTANDER, 4), Some((11, 7, Vec::new())));
    assert_eq!(topic.read(ONE, 1), None, "a second read needs the log");
    assert_eq!(topic.read(ONE, 5), None);
    assert_eq!(topic.read(ONE, 6), Some((11, 5, Vec::new())));
}

#[test]
fn dropped_ranges_are_skipped_around_an_unread_chunk() {
    let mut topic = TestTopic::new();
    topic.push(&[ONE]);
    topic.push(&[TWO]);
    topic.push(&[ONE]);
    let whole = topic.budget.used_bytes();
    assert_eq!(topic.read(ONE, 1), Some((16, 15, vec![2, 4, 12, 14])));
    let left = topic.budget.used_bytes();
    assert!(whole / 3 <= left && left < whole / 2, "{left} of {whole}");
    assert_eq!(topic.read(ONE, 1), None);
    assert_eq!(topic.read(TWO, 1), Some((16, 15, vec![7, 9])));
    assert!(topic.budget.used_bytes() < whole / 4);
    topic.push(&[ONE, TWO]);
    assert_eq!(
        topic.read(ONE, 11),
        None,
        "it has already read a part of the merged range"
    );
    assert_eq!(
        topic.read(TWO, 11),
        Some((21, 10, vec![17, 19])),
        "a subscription whose part comes earlier continues"
    );
    assert_eq!(topic.read(ONE, 16), Some((21, 5, vec![17, 19])));
    assert_eq!(topic.read(BYSTANDER, 1), Some((21, 20, Vec::new())));
    topic.recent.drop_passed(Seq(21));
    assert_eq!(topic.read(BYSTANDER, 1), None);
}

#[test]
fn a_lane_with_an_end_does_not_count_as_the_live_read() {
    let mut topic = TestTopic::new();
    topic.push(&[ONE]);
    let replay = || {
        topic
            .recent
            .read(ONE, 1, Seq(1), Some(Seq(6)), ALL)
            .map(|found| found.events.len())
    };
    assert_eq!((replay(), replay()), (Some(2), Some(2)));
    assert_eq!(topic.read(ONE, 1), Some((6, 5, vec![2, 4])));
    assert_eq!(replay(), None);
    topic.recent.drop_passed(Seq(6));
    assert_eq!(topic.budget.used_bytes(), 0);
}

/// A topic with a thousand subscriptions. `matching` of them get each event, and events are
/// published one by one.
fn publish_to_many(recent: &RecentEvents, matching: u32, events: u64) {
    let positions = Arc::new(SubscriptionPositions::new(
        (1..=1_000).map(|number| (SubscriptionId(number), 1)),
    ));
    for seq in 1..=events {
        let sealed = sealed(&[("a", 1)]).pop().expect("a chunk");
        let chunk = Chunk::decode(
            Seq(seq),
            sealed.stamp_record(Timestamp(1), RunningTotals::default()),
        )
        .expect("sound");
        recent.push(MatchedChunk {
            first: chunk.first,
            events: chunk.decode_events().expect("sound"),
            bytes: chunk.bytes_len(),
            matched_for: Arc::clone(&positions),
            matches: matches([&(0..matching).collect::<Vec<_>>()[..]]),
        });
    }
}

#[test]
fn match_sets_count_as_memory_and_a_thousand_cost_little_more_than_one() {
    let used = |matching| {
        let budget = Arc::new(RecentBudget::new(1 << 30));
        publish_to_many(&RecentEvents::new(Arc::clone(&budget)), matching, 1);
        let recent = RecentEvents::new(Arc::clone(&budget));
        publish_to_many(&recent, matching, 100);
        budget.used_bytes() / 100
    };
    let one = used(1);
    let all = used(1_000);
    assert!(
        one + 125 <= all,
        "a bit for each of a thousand is counted: {one} and {all} bytes an event"
    );
    assert!(all <= one + 512, "{one} and {all} bytes an event");
}

#[test]
fn each_event_goes_to_its_own_subscriptions() {
    let recent = RecentEvents::new(Arc::new(RecentBudget::new(1 << 20)));
    let positions = Arc::new(SubscriptionPositions::new(
        (0..200).map(|number| (SubscriptionId(number), 7)),
    ));
    // The sets of odd events fit into a word.
    let within = |event| if event % 2 == 0 { 200 } else { 64 };
    let sets = (0..20).map(|event| {
        (0..within(event))
            .filter(|place| (place * 7 + event) % (event + 1) == 0)
            .collect()
    });
    let sets: Vec<Vec<u32>> = sets.collect();
    let sealed = sealed(&[("a", 1); 20]).pop().expect("a chunk");
    let chunk = Chunk::decode(
        Seq(1),
        sealed.stamp_record(Timestamp(1), RunningTotals::default()),
    )
    .expect("sound");
    recent.push(MatchedChunk {
        first: chunk.first,
        events: chunk.decode_events().expect("sound"),
        bytes: chunk.bytes_len(),
        matched_for: positions,
        matches: matches(sets.iter().map(|places| &places[..])),
    });
    for place in 0..200 {
        let found = recent
            .read(SubscriptionId(place), 7, Seq(3), Some(Seq(19)), ALL)
            .expect("it is there");
        let expected: Vec<u64> = (3..19)
            .filter(|seq| sets[*seq as usize - 1].contains(&place))
            .collect();
        assert_eq!(
            found
                .events
                .iter()
                .map(|event| event.seq.0)
                .collect::<Vec<_>>(),
            expected,
            "{place}"
        );
    }
}

#[test]
fn nothing_is_kept_for_subscriptions_that_lag() {
    let mut topic = TestTopic::new();
    topic.push(&[ONE, TWO]);
    topic.push(&[TWO]);
    topic.push(&[ONE]);
    let whole = topic.budget.used_bytes();
    // One has read nothing, Two the first chunk.
    topic.recent.set_laggards(HashSet::from([ONE]), Seq(6));
    assert!(
        topic.budget.used_bytes() < whole / 2,
        "the events for Two are kept"
    );
    assert_eq!(topic.read(ONE, 1), None, "it reads the log");
    assert_eq!(topic.read(TWO, 6), Some((16, 10, vec![7, 9])));
    assert_eq!(topic.read(BYSTANDER, 1), Some((16, 15, Vec::new())));
    let before = topic.budget.used_bytes();
    topic.push(&[ONE]);
    assert!(
        topic.budget.used_bytes() < before + 100,
        "nothing is kept for it"
    );
    topic.push(&[ONE, TWO]);
    assert_eq!(
        topic.read(TWO, 16),
        Some((26, 10, vec![22, 24])),
        "events are dropped once Two has read them"
    );
    assert!(topic.budget.used_bytes() < before + 100);
    // It has caught up.
    topic.recent.set_laggards(HashSet::new(), Seq(26));
    topic.push(&[ONE]);
    assert_eq!(topic.read(ONE, 26), Some((31, 5, vec![27, 29])));
}

#[test]
fn the_largest_cache_makes_room_and_others_keep_their_events() {
    let budget = Arc::new(RecentBudget::new(100_000));
    let mut much = TestTopic::beside(Arc::clone(&budget));
    let mut little = TestTopic::beside(Arc::clone(&budget));
    while budget.used_bytes() < 90_000 {
        much.push(&[ONE]);
    }
    little.push(&[ONE]);
    for _ in 0..1_000 {
        much.push(&[ONE]);
        little.push(&[ONE]);
        let from = little.next - 10;
        assert_eq!(
            little.read(ONE, from).map(|(upto, ..)| upto),
            Some(little.next),
            "its own is in memory"
        );
        little.push(&[ONE]);
        assert!(budget.used_bytes() <= 100_000, "{}", budget.used_bytes());
    }
    assert_eq!(much.read(ONE, 1), None, "the oldest of much went");
    assert!(
        much.read(ONE, much.next - 5).is_some(),
        "and its newest is there"
    );
}

#[test]
fn a_subscription_without_a_match_skips_what_the_memory_limit_dropped() {
    let mut topic = TestTopic::beside(Arc::new(RecentBudget::new(50_000)));
    for _ in 0..1_000 {
        topic.push(&[ONE]);
    }
    assert!(topic.budget.used_bytes() <= 50_000);
    assert_eq!(topic.read(ONE, 1), None, "it matches, so it reads the log");
    assert_eq!(topic.read(BYSTANDER, 1), Some((5_001, 5_000, Vec::new())));
    // One reads the newest events here, whatever was dropped before them.
    assert_eq!(topic.read(ONE, 4_996), Some((5_001, 5, vec![4_997, 4_999])));
}

#[test]
fn a_subscription_behind_its_last_match_passes_the_rest_and_not_more() {
    let mut topic = TestTopic::new();
    topic.push(&[ONE]);
    topic.push(&[TWO]);
    topic.push(&[TWO]);
    let part = |from, end: u64| {
        let found = topic.recent.read(ONE, 1, Seq(from), Some(Seq(end)), ALL)?;
        Some((found.upto.0, found.events.len()))
    };
    assert_eq!(part(6, 16), Some((16, 0)));
    assert_eq!(part(6, 40), Some((16, 0)), "to the end of the cache");
    assert_eq!(part(6, 9), Some((9, 0)), "to its own end");
    assert_eq!(part(9, 9), None);
    assert_eq!(part(16, 40), None, "nothing is there");
    assert_eq!(
        part(5, 16),
        Some((16, 0)),
        "from within the chunk of its match, which it has passed"
    );
    assert_eq!(part(3, 16), Some((16, 1)));
    // Other subscriptions: what was before is not known for them.
    topic.known = Arc::new(SubscriptionPositions::new([(ONE, 2), (TWO, 1)]));
    topic.push(&[TWO]);
    let newer = |topic: &TestTopic, from| {
        topic
            .recent
            .read(ONE, 2, Seq(from), None, ALL)
            .map(|found| found.upto.0)
    };
    assert_eq!((newer(&topic, 12), newer(&topic, 16)), (None, Some(21)));
    // Behind a gap nothing before it counts.
    topic.next += 5;
    topic.push(&[TWO]);
    assert_eq!((newer(&topic, 16), newer(&topic, 26)), (None, Some(31)));
}
