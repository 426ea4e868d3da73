//! The stream of `GET /tail`.

use std::{future::poll_fn, pin::Pin, time::Duration};

use actix_web::{body::MessageBody, test::TestRequest};
use gridhook::{
    admin::ChaosMode,
    event::{
        PartitionId, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    subscription::event_feed::FeedEvent,
};
use tokio::time::{sleep, timeout};

use super::control::{ControlFixture, TOKEN};
use crate::support::chunks::sealed;

/// Longer than the interval of empty lines, shorter than the silence after which the command ends.
const LONG: Duration = Duration::from_secs(20);

#[actix_web::test]
async fn an_empty_line_is_sent_while_the_filter_lets_no_event_through() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let request = TestRequest::with_uri("/tail?type=Nothing.HasThisType")
        .insert_header(("Authorization", format!("Bearer {TOKEN}")));
    let response = control.respond(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let mut lines = response.into_body();
    let publish = async {
        for first in 1.. {
            let sealed = sealed(&[("a", 1)]).pop().expect("a chunk");
            let record = sealed.stamp_record(Timestamp(1), RunningTotals::default());
            let chunk = Chunk::decode(Seq(first), record).expect("sound");
            let item = || FeedEvent::Published(PartitionId(1), chunk);
            control.registry.feed().publish_item(item);
            sleep(Duration::from_millis(500)).await;
        }
    };
    let line = timeout(LONG, poll_fn(|cx| Pin::new(&mut lines).poll_next(cx)));
    let line = tokio::select! {
        line = line => line,
        () = publish => unreachable!("it has no end"),
    };
    let line = line.expect("in time").expect("it is open").expect("a line");
    assert_eq!(&line[..], b"\n");
}
