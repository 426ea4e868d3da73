//! Requests that timed out, and late responses.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use gridhook::{
    deliver::{ClientOptions, Destination, LateRequest, OutgoingRequest, WebhookClient},
    event::{Schema, WallTime},
    policy::outcome::{Failure, Outcome, RequestResult},
};

use super::{AMPLE, eventually, options, outgoing, post_to, with_names};
use crate::support::endpoint::{Endpoint, Gate, Script, Step, respond};

/// A time limit that is reached, and in which a request is sent completely also on a busy machine.
const WAIT: Duration = Duration::from_millis(500);

fn say(text: &str) -> Step {
    Step::Say(text.as_bytes().to_vec())
}

fn destination(url: &str) -> Destination {
    Destination::new(url, "sub", Schema::EventGrid, Schema::EventGrid, false).expect("a good URL")
}

async fn call<'a>(
    client: &'a WebhookClient,
    destination: &'a Destination,
) -> (RequestResult, Option<LateRequest<'a>>) {
    client
        .begin_request(destination, outgoing("[{}]"), WallTime(0))
        .wait_for_response(WAIT)
        .await
}

/// The result of a late request to an endpoint that does `before` within the time limit and `after`
/// behind it; [`None`] if there is no late request.
async fn check(before: Script, after: Script, expected: Option<bool>) {
    let gate = Gate::default();
    let endpoint = Endpoint::start(vec![
        [before, vec![Step::Gate(gate.clone())], after].concat(),
    ]);
    let client = WebhookClient::new(options());
    let destination = destination(&endpoint.url());
    let (response, late_request) = call(&client, &destination).await;
    assert_eq!(
        (response.outcome, response.status),
        (Outcome::Failed(Failure::TimedOut), None),
        "{}",
        response.detail
    );
    gate.open();
    let taken = match late_request {
        Some(late_request) => Some(late_request.wait_for_success(AMPLE.response).await),
        None => None,
    };
    assert_eq!(taken, expected);
    assert_eq!(client.late_requests(), 0, "its place is free again");
    assert!(
        eventually(|| endpoint.closed() == 1).await,
        "its connection is closed"
    );
    assert_eq!(endpoint.requests().len(), 1, "it is not sent again");
}

#[actix_rt::test]
async fn a_late_success_counts_and_a_late_failure_does_not() {
    let interim = say("HTTP/1.1 100 Continue\r\n\r\n");
    let mut cases = vec![
        (
            vec![],
            vec![say("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Step::Hang],
            false,
        ),
        (vec![interim.clone()], respond(200, "", ""), true),
        (vec![interim], vec![Step::Close], false),
        (vec![], vec![say("what?\r\n\r\n")], false),
        (vec![], vec![Step::Close], false),
        (vec![], vec![Step::Reset], false),
    ];
    for (status, taken) in [
        (200, true),
        (204, true),
        (205, false),
        (302, false),
        (404, false),
        (503, false),
    ] {
        cases.push((vec![], respond(status, "", ""), taken));
    }
    join_all(
        cases
            .into_iter()
            .map(|(before, after, taken)| check(before, after, Some(taken))),
    )
    .await;
}

#[actix_rt::test]
async fn the_body_of_a_late_response_is_not_read() {
    let endless = say("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
    check(
        vec![],
        vec![endless, Step::Forever(vec![b'x'; 999])],
        Some(true),
    )
    .await;
    check(
        vec![],
        vec![
            say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"),
            Step::Hang,
        ],
        Some(true),
    )
    .await;
}

#[actix_rt::test]
async fn a_response_with_an_unfinished_body_is_not_late() {
    for (status, outcome) in [
        (202, Outcome::Delivered),
        (503, Outcome::Failed(Failure::Busy)),
    ] {
        let head = say(&format!(
            "HTTP/1.1 {status} X\r\ncontent-length: 10\r\n\r\n"
        ));
        let endpoint = Endpoint::start(vec![vec![head, Step::Hang]]);
        let client = WebhookClient::new(options());
        let to = destination(&endpoint.url());
        let (response, late_request) = call(&client, &to).await;
        assert_eq!(
            (response.outcome, response.status),
            (outcome, Some(status)),
            "{}",
            response.detail
        );
        assert!(late_request.is_none());
    }
}

#[actix_rt::test]
async fn silence_ends_with_the_late_timeout() {
    let endpoint = Endpoint::start(vec![vec![Step::Hang]]);
    let client = WebhookClient::new(options());
    let destination = destination(&endpoint.url());
    let start = Instant::now();
    let (_, late_request) = call(&client, &destination).await;
    let late_request = late_request.expect("it was sent completely");
    assert_eq!(client.late_requests(), 1);
    assert!(!late_request.wait_for_success(2 * WAIT).await);
    assert!(
        (2 * WAIT..AMPLE.response).contains(&start.elapsed()),
        "counted from when it left"
    );
    assert!(eventually(|| endpoint.closed() == 1).await);
}

#[actix_rt::test]
async fn an_incompletely_sent_request_is_aborted_at_the_timeout() {
    let endpoint = Endpoint::start_impatient(vec![vec![Step::Pause(AMPLE.response)]]);
    let client = WebhookClient::new(options());
    let to = destination(&endpoint.url());
    let large = OutgoingRequest {
        body: Bytes::from(vec![b' '; 16 << 20]),
        ..OutgoingRequest::default()
    };
    let (response, late_request) = client
        .begin_request(&to, large, WallTime(0))
        .wait_for_response(WAIT)
        .await;
    assert!(
        response.detail.contains("not fully sent"),
        "{}",
        response.detail
    );
    assert!(late_request.is_none());

    let client = WebhookClient::new(with_names(|_, _| None));
    let to = destination("http://nobody.knows.test/");
    let (response, late_request) = call(&client, &to).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::TimedOut));
    assert!(late_request.is_none());
}

#[actix_rt::test]
async fn a_reused_connection_that_breaks_after_the_timeout_is_not_replaced() {
    for end in [Step::Close, Step::Reset] {
        let gate = Gate::default();
        let breaking = vec![Step::Gate(gate.clone()), end];
        let endpoint = Endpoint::start(vec![respond(200, "", ""), breaking, respond(200, "", "")]);
        let client = WebhookClient::new(options());
        post_to(&client, &endpoint.url(), AMPLE).await;
        let destination = destination(&endpoint.url());
        let (_, late_request) = call(&client, &destination).await;
        gate.open();
        assert!(
            !late_request
                .expect("it was sent completely")
                .wait_for_success(AMPLE.response)
                .await
        );
        assert_eq!((endpoint.requests().len(), endpoint.connections()), (2, 1));
    }
}

#[actix_rt::test]
async fn late_requests_are_limited_and_the_newest_is_aborted() {
    let endpoint = Endpoint::start(vec![vec![Step::Hang]]);
    let client = WebhookClient::new(ClientOptions {
        late_requests_max: 2,
        ..options()
    });
    let destination = destination(&endpoint.url());
    let mut late_request = Vec::new();
    for _ in 0..3 {
        late_request.push(call(&client, &destination).await.1);
    }
    assert_eq!(
        late_request.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert!(eventually(|| endpoint.closed() == 1).await, "the third");
    late_request.clear();
    assert_eq!(client.late_requests(), 0);
    assert!(
        eventually(|| endpoint.closed() == 3).await,
        "who is forgotten is closed"
    );
}
