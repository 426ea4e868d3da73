//! What happens is told to those who listen: in order, or with how much they missed.

use gridhook::{
    event::{PartitionId, Seq, Timestamp},
    store::chunk::{Chunk, LogTail},
    subscription::{EventFeed, FeedEvent, FeedSubscriber},
};

use crate::policy::sealed;

/// As many events as that are published in one write.
fn published(first: u64) -> FeedEvent {
    let sealed = sealed(&[("a", 1); 5]).pop().expect("a chunk");
    let chunk = Chunk::decode(Seq(first), sealed.stamp(Timestamp(1), LogTail::default())).expect("sound");
    FeedEvent::Published(PartitionId(1), vec![chunk])
}

/// The first event of what is heard next, and how much was missed before it.
async fn next(subscriber: &mut FeedSubscriber) -> Option<(u64, u64)> {
    let (missed, heard) = subscriber.next().await?;
    let FeedEvent::Published(_, chunks) = &*heard else { panic!("{heard:?} is not what was told") };
    Some((missed, chunks[0].first.0))
}

#[actix_rt::test]
async fn who_keeps_up_misses_nothing_and_hears_nothing_of_before() {
    let feed = EventFeed::default();
    feed.publish(|| panic!("no subscriber"));
    let mut subscriber = feed.subscribe().expect("room");
    assert!(feed.has_subscribers());
    for first in 1..1_000 {
        feed.publish(|| published(first));
        assert_eq!(next(&mut subscriber).await, Some((0, first)));
    }
    drop(subscriber);
    assert!(!feed.has_subscribers());
}

#[actix_rt::test]
async fn who_is_slow_is_told_how_many_were_missed() {
    let feed = EventFeed::default();
    let (mut slow, mut quick) = (feed.subscribe().expect("room"), feed.subscribe().expect("room"));
    for first in 0..1_000 {
        feed.publish(|| published(first));
        assert_eq!(next(&mut quick).await, Some((0, first)));
    }
    let (missed, first) = next(&mut slow).await.expect("the oldest that is kept");
    // Each write has five events.
    assert_eq!((missed, 1_000 - first), (5 * first, 256));
    for later in first + 1..1_000 {
        assert_eq!(next(&mut slow).await, Some((0, later)));
    }
}

#[actix_rt::test]
async fn as_many_listen_as_may_and_none_when_it_is_over() {
    let feed = EventFeed::default();
    let mut subscribers: Vec<FeedSubscriber> = (0..32).map(|_| feed.subscribe().expect("room")).collect();
    assert!(feed.subscribe().is_none());
    drop(subscribers.pop());
    assert!(feed.subscribe().is_some());
    feed.close();
    assert_eq!(next(&mut subscribers[0]).await, None);
    assert!(feed.subscribe().is_none());
}
