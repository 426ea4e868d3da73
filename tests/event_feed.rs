//! The event feed delivers in order, and reports lost items.

use gridhook::{
    event::{
        PartitionId, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    subscription::event_feed::{EventFeed, FeedEvent, FeedSubscriber},
};

use crate::support::chunks::sealed;

/// Five events, published in one write.
fn published(first: u64) -> FeedEvent {
    let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
    let chunk = Chunk::decode(
        Seq(first),
        sealed.stamp_record(Timestamp(1), RunningTotals::default()),
    )
    .expect("sound");
    FeedEvent::Published(PartitionId(1), chunk)
}

/// The first event of the next item, and how many were lost before it.
async fn next(subscriber: &mut FeedSubscriber) -> Option<(u64, u64)> {
    let (missed, item) = subscriber.next().await?;
    let FeedEvent::Published(_, chunk) = &*item else {
        panic!("{item:?} is not a published event")
    };
    Some((missed, chunk.first.0))
}

#[actix_rt::test]
async fn a_fast_subscriber_gets_all_new_events() {
    let feed = EventFeed::default();
    feed.publish_item(|| panic!("no subscriber"));
    let mut subscriber = feed.subscribe().expect("room");
    assert!(feed.has_subscribers());
    for first in 1..1_000 {
        feed.publish_item(|| published(first));
        assert_eq!(next(&mut subscriber).await, Some((0, first)));
    }
    drop(subscriber);
    assert!(!feed.has_subscribers());
}

/// One event of 60 kB.
fn published_large(first: u64) -> FeedEvent {
    let sealed = sealed(&[("a", 60_000)]).pop().expect("a chunk");
    let chunk = Chunk::decode(
        Seq(first),
        sealed.stamp_record(Timestamp(1), RunningTotals::default()),
    )
    .expect("sound");
    FeedEvent::Published(PartitionId(1), chunk)
}

#[actix_rt::test]
async fn a_slow_subscriber_learns_how_many_events_it_lost() {
    let feed = EventFeed::default();
    let mut slow = feed.subscribe().expect("room");
    let mut quick = feed.subscribe().expect("room");
    for first in 0..1_000 {
        feed.publish_item(|| published_large(first));
        assert_eq!(next(&mut quick).await, Some((0, first)));
    }
    let (missed, first) = next(&mut slow).await.expect("the oldest that is kept");
    assert_eq!(missed, first, "each item has one event");
    // 8 MiB, with what an item needs beside its event.
    assert!(
        (50..=140).contains(&(1_000 - first)),
        "{} items are kept",
        1_000 - first
    );
    for later in first + 1..1_000 {
        assert_eq!(next(&mut slow).await, Some((0, later)));
    }
}

#[actix_rt::test]
async fn subscribers_are_limited_and_end_with_the_feed() {
    let feed = EventFeed::default();
    let mut subscribers: Vec<FeedSubscriber> =
        (0..32).map(|_| feed.subscribe().expect("room")).collect();
    assert!(feed.subscribe().is_none());
    drop(subscribers.pop());
    assert!(feed.subscribe().is_some());
    feed.close();
    assert_eq!(next(&mut subscribers[0]).await, None);
    assert!(feed.subscribe().is_none());
}
