//! The floors of destinations other than webhooks: each client alone sends to the same service what
//! the server sends, byte for byte or in the same form, in requests of the same size.

use std::rc::Rc;

use async_nats::{ConnectOptions, jetstream};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use rskafka::client::{
    ClientBuilder, Credentials, SaslConfig,
    partition::{Compression, UnknownTopicHandling},
};

use super::{
    floor::{awc_client, serve},
    load::{Shape, body},
};
use crate::support::{azurite, kafka::PASSWORD, nats, server::SCOPE};

/// Records of a request, as many as the server sends.
pub(crate) const KAFKA_BATCH: usize = 500;

/// An event in the form of its delivery: a body of one without the brackets of the array, and what
/// the server adds.
fn event() -> String {
    let body = body(Shape::ONE);
    let event = body.trim_start_matches('[').trim_end_matches(']');
    let event = event.replace(
        r#""subject""#,
        &format!(r#""topic":"{SCOPE}/orders","subject""#),
    );
    event.replace(r#""dataVersion""#, r#""metadataVersion":"1","dataVersion""#)
}

/// rskafka alone, with records that the server sent before.
pub(super) async fn kafka(address: &str, topic: &str) {
    let login = SaslConfig::Plain(Credentials::new("gridhook".to_owned(), PASSWORD.to_owned()));
    let client = ClientBuilder::new(vec![address.to_owned()])
        .sasl_config(login)
        .build()
        .await
        .expect("a client");
    let partition = client
        .partition_client(topic, 0, UnknownTopicHandling::Retry)
        .await
        .expect("a partition");
    let mut sent = Vec::new();
    serve(async |events| {
        if sent.is_empty() {
            (sent, _) = partition
                .fetch_records(0, 1..1_000_000, 1_000)
                .await
                .expect("what the server sent");
            assert!(!sent.is_empty(), "the server sent nothing");
        }
        let mut left = events as usize;
        while left > 0 {
            let count = left.min(KAFKA_BATCH);
            let records = sent
                .iter()
                .cycle()
                .take(count)
                .map(|sent| sent.record.clone())
                .collect();
            partition
                .produce(records, Compression::NoCompression)
                .await
                .expect("a broker that answers");
            left -= count;
        }
    })
    .await;
}

/// async-nats alone: each message is acknowledged by a majority before the next one of its sender.
pub(super) async fn nats(urls: &str, stream: &str, at_a_time: usize, bytes: usize) {
    let options =
        ConnectOptions::with_user_and_password("gridhook".to_owned(), nats::PASSWORD.to_owned());
    let addresses: Vec<&str> = urls.split(',').collect();
    let context = jetstream::new(options.connect(addresses).await.expect("a client"));
    let message = Bytes::from(vec![b'x'; bytes]);
    serve(async |messages| {
        let each = messages.div_ceil(at_a_time as u64);
        let senders = (0..at_a_time as u64).map(|sender| {
            let context = context.clone();
            let stream = stream.to_owned();
            let message = message.clone();
            let count = messages.saturating_sub(sender * each).min(each);
            actix_rt::spawn(async move {
                for _ in 0..count {
                    let sent = context
                        .publish(stream.clone(), message.clone())
                        .await
                        .expect("a message that leaves");
                    sent.await.expect("an acknowledgement");
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.expect("a sender does not panic");
        }
    })
    .await;
}

/// awc and the signature of each request.
pub(super) async fn queue(base: &str, name: &str, at_a_time: usize) {
    let event = event();
    let url = Rc::new(format!("{base}/{name}/messages"));
    serve(async |events| {
        // The service has closed the connections of the run before.
        let client = awc_client();
        let each = events.div_ceil(at_a_time as u64);
        let senders = (0..at_a_time as u64).map(|sender| {
            let client = client.clone();
            let url = Rc::clone(&url);
            let event = event.clone();
            let count = events.saturating_sub(sender * each).min(each);
            let path = format!("{name}/messages");
            actix_rt::spawn(async move {
                for _ in 0..count {
                    let text = BASE64_STANDARD.encode(&event);
                    let body =
                        format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
                    let mut request = client
                        .post(&*url)
                        .insert_header(("content-type", "application/xml"));
                    for header in azurite::sign_post(&path, body.len()) {
                        request = request.insert_header(header);
                    }
                    let mut response = request
                        .send_body(body)
                        .await
                        .expect("a service that answers");
                    assert_eq!(response.status().as_u16(), 201);
                    response.body().await.expect("an answer's end");
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.expect("a sender does not panic");
        }
    })
    .await;
}
