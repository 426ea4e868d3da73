//! Responses that are odd, of which the status line alone decides what becomes of the events.

use std::time::Duration;

use gridhook::{
    deliver::{RequestTimeouts, WebhookClient, response_head::HEAD_BYTES_MAX},
    policy::outcome::{Failure, Outcome},
};

use super::{AMPLE, BRIEF, options, post_large, post_to};
use crate::support::endpoint::{Endpoint, Script, Step, respond};

const PAUSE: Step = Step::Pause(Duration::from_millis(5));

fn say(text: &str) -> Step {
    Step::Say(text.as_bytes().to_vec())
}

fn fields(count: usize) -> String {
    (0..count)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect()
}

/// The expected outcome of a response.
struct Expected {
    outcome: Outcome,
    status: u16,
    body: &'static str,
    /// Whether the next request has the same connection.
    keeps: bool,
}

fn kept(body: &'static str) -> Expected {
    Expected {
        outcome: Outcome::Delivered,
        status: 200,
        body,
        keeps: true,
    }
}

fn closed(body: &'static str) -> Expected {
    Expected {
        keeps: false,
        ..kept(body)
    }
}

/// Responses that arrive whole, or in two parts, and after which the endpoint keeps its connection
/// open.
fn whole_responses() -> Vec<(&'static str, String, Expected)> {
    let ok = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok");
    let after = |interim: String| interim + &ok("");
    let busy = Expected {
        outcome: Outcome::Failed(Failure::Busy),
        status: 503,
        ..kept("")
    };
    vec![
        ("a folded field", ok("x: a\r\n b\r\n\tc\r\n"), kept("ok")),
        (
            "a folded length",
            "HTTP/1.1 200 OK\r\ncontent-length:\r\n 2\r\n\r\nok".to_owned(),
            kept("ok"),
        ),
        (
            "a fold before any field",
            "HTTP/1.1 200 OK\r\n x\r\ncontent-length: 0\r\n\r\n".to_owned(),
            closed(""),
        ),
        ("97 fields", ok(&fields(96)), kept("ok")),
        ("100 fields", ok(&fields(99)), kept("ok")),
        ("2000 fields", ok(&fields(1_999)), kept("ok")),
        (
            "fields of 128 KiB",
            ok(&format!("x: {}\r\n", "y".repeat(HEAD_BYTES_MAX))),
            closed(""),
        ),
        (
            "an offer of h2c",
            ok("connection: Upgrade\r\nupgrade: h2,h2c\r\n"),
            kept("ok"),
        ),
        (
            "an offer of a websocket",
            ok("connection: keep-alive, upgrade\r\nupgrade: websocket\r\n"),
            kept("ok"),
        ),
        (
            "an offer, and the end",
            ok("connection: upgrade, close\r\n"),
            closed("ok"),
        ),
        (
            "HTTP/1.0 with a length",
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
            closed("ok"),
        ),
        (
            "HTTP/1.0 with no body",
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            closed(""),
        ),
        (
            "HTTP/1.1 without a length",
            "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
            closed(""),
        ),
        (
            "17 interim responses",
            after("HTTP/1.1 100 Continue\r\n\r\n".repeat(17)),
            kept("ok"),
        ),
        (
            "1000 interim responses",
            after("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1_000)),
            kept("ok"),
        ),
        (
            "an interim response of 100 fields",
            after(format!("HTTP/1.1 103 Hints\r\n{}\r\n", fields(100))),
            kept("ok"),
        ),
        (
            "a folded interim response",
            after("HTTP/1.1 103 Hints\r\nx: a\r\n b\r\n\r\n".to_owned()),
            kept("ok"),
        ),
        ("bytes behind the response", ok("") + "more", closed("ok")),
        (
            "another response behind it",
            ok("") + "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
            closed("ok"),
        ),
        (
            "an empty line before it",
            "\r\n".to_owned() + &ok(""),
            kept("ok"),
        ),
        (
            "line ends without CR",
            "HTTP/1.1 200 OK\ncontent-length: 2\n\nok".to_owned(),
            kept("ok"),
        ),
        (
            "no reason",
            "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok".to_owned(),
            kept("ok"),
        ),
        ("a field without a colon", ok("x\r\n"), closed("")),
        ("a field without a name", ok(": x\r\n"), closed("")),
        ("a zero byte", ok("x: a\0b\r\n"), closed("")),
        ("two lengths", ok("content-length: 1\r\n"), closed("")),
        (
            "the same length twice",
            ok("content-length: 2\r\n"),
            kept("ok"),
        ),
        (
            "a negative length",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_owned(),
            closed(""),
        ),
        (
            "an unknown encoding",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nx".to_owned(),
            closed(""),
        ),
        (
            "a failure with a fold",
            "HTTP/1.1 503 No\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n".to_owned(),
            busy,
        ),
    ]
}

#[actix_rt::test]
async fn the_status_line_decides_whatever_the_fields_are() {
    let client = WebhookClient::new(options());
    for (
        name,
        response,
        Expected {
            outcome,
            status,
            body,
            keeps,
        },
    ) in whole_responses()
    {
        let (first, second) = response.as_bytes().split_at(response.len() / 2);
        let parts = vec![Step::Say(first.to_vec()), PAUSE, Step::Say(second.to_vec())];
        for script in [vec![say(&response)], parts] {
            let endpoint = Endpoint::start(vec![script, respond(202, "", "")]);
            let result = post_to(&client, &endpoint.url(), AMPLE).await;
            assert_eq!(
                (result.outcome, result.status),
                (outcome, Some(status)),
                "{name}: {}",
                result.detail
            );
            assert_eq!(
                (&result.body[..], &*result.detail),
                (body.as_bytes(), ""),
                "{name}"
            );
            // The rest of a response may follow its request a moment later.
            actix_rt::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(
                post_to(&client, &endpoint.url(), AMPLE).await.status,
                Some(202),
                "{name}"
            );
            assert_eq!(endpoint.connections(), if keeps { 1 } else { 2 }, "{name}");
        }
    }
}

#[actix_rt::test]
async fn the_status_line_decides_however_the_response_ends() {
    let ok = || say("HTTP/1.1 200 OK\r\n");
    let table: Vec<(&str, Script, RequestTimeouts)> = vec![
        ("the head breaks off", vec![ok(), Step::Close], AMPLE),
        (
            "the head breaks off in a field",
            vec![ok(), say("content-len"), Step::Close],
            AMPLE,
        ),
        ("a reset in the head", vec![ok(), PAUSE, Step::Reset], AMPLE),
        ("the head stops", vec![ok(), say("x: "), Step::Hang], BRIEF),
        (
            "the fields do not end",
            vec![ok(), Step::Forever(b"x: a\r\n".repeat(500))],
            AMPLE,
        ),
        (
            "a field does not end",
            vec![ok(), say("x: "), Step::Forever(vec![b'x'; 4_096])],
            AMPLE,
        ),
        (
            "a half-closed connection",
            vec![
                ok(),
                say("content-length: 0\r\n\r\n"),
                Step::EndWriting,
                Step::Hang,
            ],
            AMPLE,
        ),
        (
            "a half-closed connection in the head",
            vec![ok(), Step::EndWriting, Step::Hang],
            AMPLE,
        ),
        (
            "a body of half its length",
            vec![
                ok(),
                say("content-length: 9\r\n\r\nabc"),
                Step::EndWriting,
                Step::Hang,
            ],
            AMPLE,
        ),
        (
            "HTTP/1.0 until the end",
            vec![say("HTTP/1.0 200 OK\r\n\r\nok"), Step::Close],
            AMPLE,
        ),
    ];
    for (name, script, waits) in table {
        let endpoint = Endpoint::start(vec![script, respond(202, "", "")]);
        let client = WebhookClient::new(options());
        let result = post_to(&client, &endpoint.url(), waits).await;
        assert_eq!(
            (result.outcome, result.status),
            (Outcome::Delivered, Some(200)),
            "{name}: {}",
            result.detail
        );
        assert_eq!(
            post_to(&client, &endpoint.url(), AMPLE).await.status,
            Some(202),
            "{name}"
        );
        assert_eq!(endpoint.connections(), 2, "{name}");
    }
}

#[actix_rt::test]
async fn a_wait_in_a_head_that_stops_is_read_as_far_as_it_came() {
    let head = say("HTTP/1.1 503 No\r\nretry-after: 7\r\nx: ");
    let endpoint = Endpoint::start(vec![vec![head, Step::Hang]]);
    let result = post_to(&WebhookClient::new(options()), &endpoint.url(), BRIEF).await;
    assert_eq!(
        (result.status, result.retry_after),
        (Some(503), Some(Duration::from_secs(7))),
        "{}",
        result.detail
    );
}

#[actix_rt::test]
async fn without_a_final_status_line_there_is_no_decision() {
    let endless = Step::Forever(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(500));
    let table: Vec<(&str, Script, Option<u16>)> = vec![
        (
            "half a status line",
            vec![say("HTTP/1.1 200"), Step::Close],
            None,
        ),
        (
            "only an interim response",
            vec![say("HTTP/1.1 100 Continue\r\n\r\n"), Step::Close],
            None,
        ),
        ("interim responses without end", vec![endless], Some(100)),
        (
            "another protocol",
            vec![say(
                "HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            )],
            Some(101),
        ),
        (
            "a version of 2",
            vec![say("HTTP/2 200\r\ncontent-length: 0\r\n\r\n"), Step::Close],
            None,
        ),
    ];
    for (name, script, status) in table {
        let endpoint = Endpoint::start(vec![script]);
        let result = post_to(&WebhookClient::new(options()), &endpoint.url(), AMPLE).await;
        assert_ne!(result.outcome, Outcome::Delivered, "{name}");
        assert_eq!(result.status, status, "{name}: {}", result.detail);
    }
}

#[actix_rt::test]
async fn a_success_before_the_request_was_read_counts() {
    let pause = Step::Pause(Duration::from_millis(50));
    for (end, waits) in [
        (Step::Close, AMPLE),
        (Step::Reset, AMPLE),
        (Step::Pause(AMPLE.response), BRIEF),
    ] {
        let early = [respond(200, "", "ok"), vec![pause.clone(), end.clone()]].concat();
        let endpoint = Endpoint::start_impatient(vec![early]);
        let result = post_large(&endpoint.url(), waits).await;
        assert_eq!(
            (result.outcome, result.status),
            (Outcome::Delivered, Some(200)),
            "{end:?}: {}",
            result.detail
        );
    }
    // The endpoint that reads on gets everything.
    let patient = [
        vec![say("HTTP/1.1 200 OK\r\n"), pause],
        vec![Step::Read(16 << 20), say("content-length: 0\r\n\r\n")],
    ];
    let endpoint = Endpoint::start_impatient(vec![patient.concat()]);
    let result = post_large(&endpoint.url(), AMPLE).await;
    assert_eq!((result.outcome, &*result.detail), (Outcome::Delivered, ""));
}
