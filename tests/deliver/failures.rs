//! Requests without a response, or with one that is not HTTP.

use std::time::{Duration, Instant};

use gridhook::{
    deliver::{RequestTimeouts, WebhookClient},
    policy::outcome::{Failure, Outcome, RequestResult},
};

use super::{AMPLE, BRIEF, options, post_large, post_to, with_names};
use crate::{
    spec::fact,
    support::{
        endpoint::{Endpoint, Script, Step, respond},
        port::ReservedPort,
    },
};

fn say(text: &str) -> Step {
    Step::Say(text.as_bytes().to_vec())
}

/// Sends one request to an endpoint with this script and checks its result.
async fn check(
    script: Script,
    outcome: Outcome,
    status: Option<u16>,
    detail: &str,
) -> RequestResult {
    let endpoint = Endpoint::start(vec![script]);
    let client = WebhookClient::new(options());
    // Only tests of the timeout itself use a short one.
    let waits = if outcome == Outcome::Failed(Failure::TimedOut) {
        BRIEF
    } else {
        AMPLE
    };
    let start = Instant::now();
    let response = post_to(&client, &endpoint.url(), waits).await;
    assert_eq!(
        (response.outcome, response.status),
        (outcome, status),
        "{}",
        response.detail
    );
    assert!(response.detail.contains(detail), "{}", response.detail);
    assert!(
        start.elapsed() < AMPLE.response,
        "it took {:?}",
        start.elapsed()
    );
    assert_eq!(
        endpoint.requests().len(),
        1,
        "a first request on a connection is never repeated"
    );
    response
}

#[actix_rt::test]
async fn silence_in_any_phase_is_a_timeout() {
    let _rows = crate::spec::shows(&[
        "S000-021, S002-007, S003-041: Event Grid waits 30 seconds for a response after delivering \
         a message.",
        "S000-022, S002-008, S003-042: If the endpoint has not responded after 30 seconds, the \
         message is queued for retry.",
    ]);
    let pause = Duration::from_millis(20);
    let slow_head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
    let silent = check(
        vec![Step::Hang],
        Outcome::Failed(Failure::TimedOut),
        None,
        "no response within 500ms",
    )
    .await;
    fact("S000-141", &silent.outcome.to_string().into());
    let slower = Step::Trickle(slow_head, Duration::from_millis(50));
    check(
        vec![slower],
        Outcome::Failed(Failure::TimedOut),
        None,
        "no response within",
    )
    .await;
    let interim = Step::Trickle(
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".to_vec(),
        pause,
    );
    check(
        vec![interim, Step::Hang],
        Outcome::Failed(Failure::TimedOut),
        None,
        "no response within",
    )
    .await;
}

#[actix_rt::test]
async fn a_status_decides_whatever_the_body_does_and_a_slow_body_costs_the_connection() {
    let check = async |script: Script, status: u16, outcome: Outcome| {
        let endpoint = Endpoint::start(vec![script, respond(204, "", "")]);
        let client = WebhookClient::new(options());
        let start = Instant::now();
        let response = post_to(&client, &endpoint.url(), BRIEF).await;
        let took = start.elapsed();
        assert_eq!(
            (response.outcome, response.status),
            (outcome, Some(status)),
            "{}",
            response.detail
        );
        assert!(
            response.detail.contains("did not end in time") && response.body.starts_with(b"abc"),
            "{response:?}"
        );
        assert_eq!(
            post_to(&client, &endpoint.url(), AMPLE).await.status,
            Some(204)
        );
        assert_eq!(endpoint.connections(), 2);
        took
    };
    let mut quickest = Duration::MAX;
    for (status, outcome) in [
        (200, Outcome::Delivered),
        (503, Outcome::Failed(Failure::Busy)),
        (400, Outcome::Failed(Failure::BadRequest)),
    ] {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 100000\r\n\r\nabc");
        let chunked =
            format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
        let trickle = Step::Trickle(vec![b'x'; 1_000], Duration::from_millis(20));
        for script in [
            vec![say(&head), Step::Hang],
            vec![say(&head), trickle],
            vec![say(&chunked), Step::Hang],
        ] {
            quickest = quickest.min(check(script, status, outcome).await);
        }
    }
    // The quickest one counts, because a loaded machine may stall in some.
    assert!(
        quickest < Duration::from_secs(2),
        "longer than the request's own wait: {quickest:?}"
    );
}

#[actix_rt::test]
async fn a_body_is_read_for_two_seconds_of_a_long_wait() {
    let head = say("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc");
    let endpoint = Endpoint::start(vec![vec![head, Step::Hang]]);
    let start = Instant::now();
    let waits = RequestTimeouts {
        response: Duration::from_secs(60),
    };
    let response = post_to(&WebhookClient::new(options()), &endpoint.url(), waits).await;
    assert_eq!(response.outcome, Outcome::Delivered, "{}", response.detail);
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[actix_rt::test]
async fn a_large_request_that_is_not_read_is_a_timeout() {
    let endpoint = Endpoint::start_impatient(vec![vec![Step::Pause(AMPLE.response)]]);
    let response = post_large(&endpoint.url(), BRIEF).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::TimedOut));
    assert!(
        response.detail.contains("not fully sent"),
        "{}",
        response.detail
    );
}

#[actix_rt::test]
async fn a_rejection_is_read_while_the_request_is_still_being_written() {
    let patient = Step::Pause(Duration::from_millis(300));
    for end in [patient, Step::Close, Step::Reset] {
        let refusal = [
            respond(413, "", "too much"),
            vec![Step::Pause(Duration::from_millis(200)), end],
        ]
        .concat();
        let endpoint = Endpoint::start_impatient(vec![refusal]);
        let response = post_large(&endpoint.url(), AMPLE).await;
        assert_eq!(
            (response.outcome, response.status),
            (Outcome::Failed(Failure::PayloadTooLarge), Some(413)),
            "{}",
            response.detail
        );
        assert_eq!(response.body, "too much");
    }
}

#[actix_rt::test]
async fn a_name_service_that_hangs_is_a_timeout_that_says_so() {
    let client = WebhookClient::new(with_names(|_, _| None));
    let response = post_to(&client, "http://slow.test/", BRIEF).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::TimedOut));
    assert!(
        response.detail.contains("no address for slow.test within"),
        "{}",
        response.detail
    );
}

#[actix_rt::test]
async fn a_connection_that_ends_before_an_answer_is_a_socket_error() {
    check(
        vec![Step::Close],
        Outcome::Failed(Failure::SocketError),
        None,
        "closed without a response",
    )
    .await;
    check(
        vec![Step::Reset],
        Outcome::Failed(Failure::SocketError),
        None,
        "broke before the response",
    )
    .await;
    check(
        vec![say("HTTP/1.1 20"), Step::Close],
        Outcome::Failed(Failure::SocketError),
        None,
        "broke before the response",
    )
    .await;
}

#[actix_rt::test]
async fn a_refused_connection_is_a_socket_error_with_its_address() {
    let port = ReservedPort::new();
    let gone = port.address;
    let client = WebhookClient::new(options());
    let response = post_to(&client, &format!("http://{gone}/"), AMPLE).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::SocketError));
    fact("S000-149", &response.outcome.to_string().into());
    assert!(
        response
            .detail
            .contains(&format!("no connection to {gone}: Connection refused")),
        "{}",
        response.detail
    );
}

#[actix_rt::test]
async fn a_body_that_breaks_off_after_a_success_is_a_success() {
    let head = say("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc");
    check(
        vec![head.clone(), Step::Close],
        Outcome::Delivered,
        Some(200),
        "",
    )
    .await;
    let pause = Step::Pause(Duration::from_millis(20));
    check(
        vec![head, pause, Step::Reset],
        Outcome::Delivered,
        Some(200),
        "broke off",
    )
    .await;
}

#[actix_rt::test]
async fn a_response_that_is_not_http_is_reported_as_such() {
    check(
        vec![say("SSH-2.0-OpenSSH_9.6\r\n\r\n"), Step::Hang],
        Outcome::Failed(Failure::GenericError),
        None,
        "not valid HTTP",
    )
    .await;
    check(
        vec![say("HTTP/1.1 9999 X\r\n\r\n"), Step::Hang],
        Outcome::Failed(Failure::GenericError),
        None,
        "not valid HTTP",
    )
    .await;
    let endless = vec![say("HTTP/1.1 200 "), Step::Forever(vec![b'x'; 4_096])];
    check(
        endless,
        Outcome::Failed(Failure::GenericError),
        None,
        "not valid HTTP",
    )
    .await;
}

#[actix_rt::test]
async fn a_status_without_a_body_does_not_wait_for_one() {
    for (status, outcome) in [
        (204, Outcome::Delivered),
        (304, Outcome::Failed(Failure::GenericError)),
    ] {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 5\r\n\r\n");
        check(vec![say(&head), Step::Hang], outcome, Some(status), "").await;
    }
}

#[actix_rt::test]
async fn hundreds_of_hanging_requests_do_not_delay_another_endpoint() {
    let dead = Endpoint::start(vec![vec![Step::Hang]]);
    let alive = Endpoint::start(vec![respond(200, "", "")]);
    let client = WebhookClient::new(options());
    let url = dead.url();
    let hanging = futures_util::future::join_all((0..150).map(|_| post_to(&client, &url, AMPLE)));
    let others = async {
        assert!(
            super::eventually(|| dead.requests().len() == 150).await,
            "all hang at once"
        );
        for _ in 0..10 {
            let response = post_to(&client, &alive.url(), AMPLE).await;
            assert_eq!(response.outcome, Outcome::Delivered);
        }
    };
    futures_util::future::select(Box::pin(hanging), Box::pin(others)).await;
    assert_eq!(alive.requests().len(), 10);
}
