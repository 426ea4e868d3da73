//! Requests with a response.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use gridhook::{
    deliver::{
        Destination, OutgoingRequest, WebhookClient,
        response::{BODY_BYTES_MAX, DRAINED_BYTES_MAX},
    },
    event::{Schema, Transformed, WallTime},
    policy::outcome::{Failure, Outcome, RequestResult},
};

use super::{AMPLE, BRIEF, options, outgoing, post_to, with_names};
use crate::{
    spec::fact,
    support::endpoint::{Endpoint, Step, respond},
};

#[actix_rt::test]
async fn a_request_carries_what_event_grid_sends_and_no_more() {
    let endpoint = Endpoint::start(vec![respond(200, "", "thanks")]);
    let client = WebhookClient::new(options());
    let response = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(
        (response.outcome, response.status),
        (Outcome::Delivered, Some(200))
    );
    assert_eq!(response.body, "thanks");
    assert_eq!(response.detail, "");
    let requests = endpoint.requests();
    let [request] = requests.as_slice() else {
        panic!("one request, not {requests:?}")
    };
    assert!(
        request.head.starts_with("POST /hook?code=1 HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    assert_eq!(
        request.header("host"),
        Some(endpoint.address().to_string().as_str())
    );
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("content-length"), Some("4"));
    for absent in [
        "accept",
        "accept-encoding",
        "transfer-encoding",
        "connection",
        "expect",
    ] {
        assert_eq!(request.header(absent), None, "{absent}");
    }
    assert_eq!(request.body, b"[{}]");
}

#[actix_rt::test]
async fn a_default_port_is_omitted_from_the_host_header() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let address = endpoint.address();
    let client = WebhookClient::new(with_names(move |_, _| Some(Ok(vec![address]))));
    for (url, host) in [
        ("http://h.test/", "h.test"),
        ("http://h.test:80/", "h.test"),
        ("http://h.test:443/", "h.test:443"),
    ] {
        post_to(&client, url, AMPLE).await;
        assert_eq!(
            endpoint
                .requests()
                .last()
                .and_then(|request| request.header("host")),
            Some(host),
            "{url}"
        );
    }
}

#[actix_rt::test]
async fn a_large_body_arrives_whole() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let client = WebhookClient::new(options());
    let destination = Destination::new(
        &endpoint.url(),
        "s",
        Schema::EventGrid,
        Schema::EventGrid,
        true,
    )
    .expect("good");
    let body: Bytes = (0..1_500_001_u32)
        .map(|place| place.to_le_bytes()[0])
        .collect();
    let outgoing = OutgoingRequest {
        body: body.clone(),
        ..OutgoingRequest::default()
    };
    let response = client
        .send_within_limit(&destination, outgoing, &AMPLE, WallTime(0))
        .await;
    assert_eq!(response.outcome, Outcome::Delivered, "{}", response.detail);
    assert!(endpoint.requests()[0].body == body);
}

#[actix_rt::test]
async fn a_status_maps_to_its_outcome() {
    let table = [
        (200, Outcome::Delivered),
        (204, Outcome::Delivered),
        (205, Outcome::Failed(Failure::GenericError)),
        (400, Outcome::Failed(Failure::BadRequest)),
        (401, Outcome::Failed(Failure::Unauthorized)),
        (403, Outcome::Failed(Failure::Forbidden)),
        (404, Outcome::Failed(Failure::NotFound)),
        (408, Outcome::Failed(Failure::TimedOut)),
        (410, Outcome::Failed(Failure::NotFound)),
        (413, Outcome::Failed(Failure::PayloadTooLarge)),
        (429, Outcome::Failed(Failure::Busy)),
        (500, Outcome::Failed(Failure::GenericError)),
        (503, Outcome::Failed(Failure::Busy)),
    ];
    let endpoint = Endpoint::start(
        table
            .iter()
            .map(|(status, _)| respond(*status, "", ""))
            .collect(),
    );
    let client = WebhookClient::new(options());
    let rows = BTreeMap::from([
        (404, "S000-134"),
        (401, "S000-139"),
        (400, "S000-140"),
        (503, "S000-142"),
        (413, "S000-143"),
        (403, "S000-154"),
    ]);
    for (status, outcome) in table {
        let response = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!((response.status, response.outcome), (Some(status), outcome));
        if let Some(id) = rows.get(&status) {
            fact(id, &response.outcome.to_string().into());
        }
    }
    assert_eq!(endpoint.connections(), 1);
}

#[actix_rt::test]
async fn redirects_are_failures_and_are_not_followed() {
    let elsewhere = Endpoint::start(vec![respond(200, "", "welcome, please log in")]);
    let location = format!("location: {}\r\n", elsewhere.url());
    let statuses = [301, 302, 303, 307, 308];
    let endpoint = Endpoint::start(
        statuses
            .map(|status| respond(status, &location, ""))
            .to_vec(),
    );
    let client = WebhookClient::new(options());
    for status in statuses {
        let response = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!(
            (response.status, response.outcome),
            (Some(status), Outcome::Failed(Failure::GenericError))
        );
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[actix_rt::test]
async fn a_compressed_body_is_kept_as_it_came() {
    let endpoint = Endpoint::start(vec![respond(
        200,
        "content-encoding: gzip\r\n",
        "not really gzip",
    )]);
    let client = WebhookClient::new(options());
    let response = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(
        (response.outcome, response.body),
        (Outcome::Delivered, Bytes::from_static(b"not really gzip"))
    );
}

#[actix_rt::test]
async fn a_body_is_kept_up_to_its_limit() {
    let long = "x".repeat(BODY_BYTES_MAX + 1);
    let longer = "x".repeat(DRAINED_BYTES_MAX + 1);
    let endless = b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let endpoint = Endpoint::start(vec![
        respond(200, "", &long[1..]),
        respond(200, "", &long),
        respond(200, "", &longer),
        vec![
            Step::Say(endless),
            Step::Forever(format!("400\r\n{}\r\n", "y".repeat(0x400)).into_bytes()),
        ],
        vec![
            Step::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec()),
            Step::Forever(vec![b'z'; 999]),
        ],
    ]);
    let client = WebhookClient::new(options());
    let fits = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(
        (fits.body.len(), fits.detail.as_str()),
        (BODY_BYTES_MAX, "")
    );
    let cut = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!((cut.body.len(), cut.detail.as_str()), (BODY_BYTES_MAX, ""));
    for (status, outcome) in [
        (200, Outcome::Delivered),
        (500, Outcome::Failed(Failure::GenericError)),
        (200, Outcome::Delivered),
    ] {
        let response = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!((response.status, response.outcome), (Some(status), outcome));
        assert_eq!(response.body.len(), BODY_BYTES_MAX);
        assert!(
            response.detail.contains("longer than 65536 bytes"),
            "{}",
            response.detail
        );
    }
    // The first connection carried three requests. Each too long body closed its own.
    assert_eq!(endpoint.connections(), 3);
}

#[actix_rt::test]
async fn retry_after_is_read_in_seconds_and_as_a_date() {
    // 784,111,777 s after the epoch is the date in the HTTP specification.
    let now = WallTime(784_111_687_000_000);
    let table = [
        ("120", Some(Duration::from_secs(120))),
        ("0", Some(Duration::ZERO)),
        (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            Some(Duration::from_secs(90)),
        ),
        (
            "Sunday, 06-Nov-94 08:49:37 GMT",
            Some(Duration::from_secs(90)),
        ),
        ("Sun, 06 Nov 1983 08:49:37 GMT", Some(Duration::ZERO)),
        (
            "99999999999999999999999",
            Some(Duration::from_secs(u32::MAX.into())),
        ),
        ("soon", None),
        ("-1", None),
        ("", None),
    ];
    let scripts = table
        .iter()
        .map(|(value, _)| respond(503, &format!("retry-after: {value}\r\n"), ""))
        .collect();
    let endpoint = Endpoint::start(scripts);
    let client = WebhookClient::new(options());
    let destination = Destination::new(
        &endpoint.url(),
        "s",
        Schema::EventGrid,
        Schema::EventGrid,
        false,
    )
    .expect("good");
    for (value, expected) in table {
        let outgoing = OutgoingRequest {
            body: Bytes::from_static(b"[]"),
            ..OutgoingRequest::default()
        };
        let response = client
            .send_within_limit(&destination, outgoing, &AMPLE, now)
            .await;
        assert_eq!(response.retry_after, expected, "{value:?}");
    }
}

#[actix_rt::test]
async fn a_post_and_another_method_have_the_same_head() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let client = WebhookClient::new(options());
    let destination = Destination::new(
        &endpoint.url(),
        "s",
        Schema::EventGrid,
        Schema::EventGrid,
        false,
    )
    .expect("good");
    for body in ["", "[]", "[0123456789]"] {
        // awc and its codec know the other one only.
        for method in [None, Some("PUT")] {
            let transformed = Transformed {
                method: method.map(str::to_owned),
                ..Transformed::default()
            };
            let outgoing = OutgoingRequest {
                transformed: Some(Arc::new(transformed)),
                ..outgoing(body)
            };
            client
                .send_within_limit(&destination, outgoing, &AMPLE, WallTime(0))
                .await;
        }
    }
    let heads: Vec<String> = endpoint
        .requests()
        .into_iter()
        .map(|request| without_date(&request.head))
        .collect();
    for pair in heads.chunks(2) {
        assert!(
            pair[1].starts_with("PUT /hook?code=1 HTTP/1.1\r\n"),
            "{}",
            pair[1]
        );
        assert_eq!(pair[0], pair[1].replacen("PUT", "POST", 1));
    }
    assert_eq!((heads.len(), endpoint.connections()), (6, 1));
}

/// The head without the digits of its date, whose second may be the next one.
fn without_date(head: &str) -> String {
    let lines = head.split("\r\n").map(|line| {
        if line.starts_with("date: ") {
            &line[..10]
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\r\n")
}

#[actix_rt::test]
async fn a_property_precedes_a_header_and_a_header_a_line() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let client = WebhookClient::new(options());
    let destination = Destination::new(
        &endpoint.url(),
        "s",
        Schema::EventGrid,
        Schema::EventGrid,
        false,
    )
    .expect("good");
    let outgoing = OutgoingRequest {
        lines: "a: line\r\nb: line\r\nc: line\r\n".to_owned(),
        headers: vec![
            ("b", "first".into()),
            ("b", "header".into()),
            ("d", "header".into()),
        ],
        properties: vec![
            ("C".to_owned(), "property".to_owned()),
            ("User-Agent".to_owned(), "property".to_owned()),
        ],
        ..outgoing("[]")
    };
    client
        .send_within_limit(&destination, outgoing, &AMPLE, WallTime(0))
        .await;
    let requests = endpoint.requests();
    let head = requests[0].head.to_lowercase();
    for (name, value) in [
        ("a", "line"),
        ("b", "header"),
        ("c", "property"),
        ("d", "header"),
        ("user-agent", "property"),
    ] {
        let values: Vec<_> = head
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .collect();
        assert_eq!(values, [value], "{name}");
    }
}

#[actix_rt::test]
async fn a_response_in_one_part_means_the_same_as_in_two() {
    let many = "x-a: b\r\n".repeat(40);
    let table = [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 6\r\n\r\nthanks",
        "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nconnection: keep-alive, Close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 205 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 304 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 302 No\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 600 What\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: \
         chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx-a: \u{1}\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx-a: \u{e9}\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx a: b\r\ncontent-length: 2\r\n\r\nok",
        &format!("HTTP/1.1 200 OK\r\n{many}content-length: 2\r\n\r\nok"),
    ];
    let client = WebhookClient::new(options());
    let mut reused = 0;
    for response in table {
        let (first, second) = response.as_bytes().split_at(15);
        let in_two = vec![
            Step::Say(first.to_vec()),
            Step::Pause(Duration::from_millis(5)),
            Step::Say(second.to_vec()),
        ];
        let mut seen = Vec::new();
        for script in [vec![Step::Say(response.as_bytes().to_vec())], in_two] {
            let endpoint = Endpoint::start(vec![script, respond(200, "", "")]);
            let result = post_to(&client, &endpoint.url(), BRIEF).await;
            post_to(&client, &endpoint.url(), AMPLE).await;
            let RequestResult {
                outcome,
                status,
                body,
                detail,
                retry_after,
                ..
            } = result;
            let detail = detail.replace(&endpoint.address().to_string(), "endpoint");
            seen.push((
                outcome,
                status,
                body,
                detail,
                retry_after,
                endpoint.connections(),
            ));
        }
        assert_eq!(seen[0], seen[1], "{response:?}");
        reused += usize::from(seen[0].5 == 1);
    }
    assert!(
        reused >= 5,
        "connections were reused after {reused} responses"
    );
}
