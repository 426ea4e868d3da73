//! Connections: reused, not reused, stale, closed.

use std::time::Duration;

use gridhook::{
    deliver::{ClientOptions, Sockets, WebhookClient},
    policy::outcome::{Failure, Outcome},
};

use super::{AMPLE, BRIEF, eventually, options, post_to, with_names};
use crate::support::endpoint::{Endpoint, Script, Step, respond};

fn say(text: &str) -> Step {
    Step::Say(text.as_bytes().to_vec())
}

/// Sends requests one after another, and checks their statuses and the number of connections.
async fn check(scripts: Vec<Script>, statuses: &[u16], connections: usize) {
    let endpoint = Endpoint::start(scripts);
    let client = WebhookClient::new(options());
    for (number, status) in statuses.iter().enumerate() {
        let response = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!(
            response.status,
            Some(*status),
            "request {number}: {} {}",
            response.outcome,
            response.detail
        );
    }
    assert_eq!(endpoint.connections(), connections);
}

#[actix_rt::test]
async fn a_connection_is_reused_after_a_complete_response() {
    let chunked = vec![say(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    )];
    check(
        vec![
            respond(200, "", "body"),
            chunked,
            respond(204, "", ""),
            respond(500, "", "no"),
        ],
        &[200, 200, 204, 500, 500],
        1,
    )
    .await;
}

#[actix_rt::test]
async fn a_connection_is_not_reused_if_the_endpoint_says_so() {
    check(
        vec![respond(200, "connection: close\r\n", "body")],
        &[200, 200],
        2,
    )
    .await;
    check(
        vec![vec![say("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi")]],
        &[200, 200],
        2,
    )
    .await;
}

#[actix_rt::test]
async fn a_response_without_a_length_ends_its_connection() {
    let late = Step::Pause(Duration::from_millis(30));
    let first = vec![
        say("HTTP/1.1 200 OK\r\n\r\n"),
        late,
        say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ];
    check(vec![first, respond(500, "", "")], &[200, 500], 2).await;
}

#[actix_rt::test]
async fn interim_responses_are_skipped_and_the_connection_is_reused() {
    let late = || Step::Pause(Duration::from_millis(20));
    let last = || say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for interim in [
        "100 Continue",
        "102 Processing",
        "103 Early Hints\r\nlink: </a>; rel=preload",
        "199 Odd",
    ] {
        let head = format!("HTTP/1.1 {interim}\r\n\r\n");
        let bytes = Step::Trickle(head.clone().into_bytes(), Duration::from_millis(1));
        for script in [
            vec![say(&head), late(), last()],
            vec![bytes, last()],
            vec![say(&head.repeat(100)), last()],
            vec![
                say(&format!("{head}HTTP/1.1 2")),
                late(),
                say("00 OK\r\ncontent-length: 2\r\n\r\nok"),
            ],
        ] {
            check(vec![script, respond(503, "", "")], &[200, 503], 1).await;
        }
    }
    // An end of HTTP fails the request, and its connection is not reused.
    let switched = vec![
        say("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
        late(),
        last(),
    ];
    check(vec![switched, respond(503, "", "")], &[101, 503], 2).await;
}

#[actix_rt::test]
async fn a_body_of_up_to_64_kib_costs_no_connection_and_a_longer_one_does() {
    let body = |bytes: usize| respond(200, "", &"x".repeat(bytes));
    let client = WebhookClient::new(options());
    for (bytes, connections) in [(4_097, 1), (65_536, 1), (65_537, 2), (1 << 20, 2)] {
        let endpoint = Endpoint::start(vec![body(bytes), respond(204, "", "")]);
        let first = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!(
            (first.outcome, first.body.len()),
            (Outcome::Delivered, 4_096),
            "{bytes}"
        );
        assert_eq!(
            first.detail.contains("longer than 65536 bytes"),
            connections == 2,
            "{bytes}: {}",
            first.detail
        );
        assert_eq!(
            post_to(&client, &endpoint.url(), AMPLE).await.status,
            Some(204)
        );
        assert_eq!(endpoint.connections(), connections, "{bytes}");
    }
}

#[actix_rt::test]
async fn a_stale_connection_costs_no_attempt() {
    for end in [Step::Reset, Step::Close] {
        let endpoint = Endpoint::start(vec![respond(200, "", ""), vec![end], respond(202, "", "")]);
        let client = WebhookClient::new(options());
        assert_eq!(
            post_to(&client, &endpoint.url(), AMPLE).await.status,
            Some(200)
        );
        let second = post_to(&client, &endpoint.url(), AMPLE).await;
        assert_eq!(
            (second.outcome, second.status),
            (Outcome::Delivered, Some(202)),
            "{}",
            second.detail
        );
        assert_eq!((endpoint.requests().len(), endpoint.connections()), (3, 2));
    }
}

#[actix_rt::test]
async fn a_stale_request_is_repeated_once_on_a_new_connection() {
    let endpoint = Endpoint::start(vec![
        vec![
            Step::Pause(Duration::from_millis(30)),
            say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ],
        vec![
            Step::Pause(Duration::from_millis(30)),
            say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ],
        vec![Step::Reset],
    ]);
    let client = WebhookClient::new(options());
    // Two at once, so that two idle connections are left for the third request.
    futures_util::future::join(
        post_to(&client, &endpoint.url(), AMPLE),
        post_to(&client, &endpoint.url(), AMPLE),
    )
    .await;
    assert_eq!(endpoint.connections(), 2);
    let third = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(third.outcome, Outcome::Failed(Failure::SocketError));
    assert_eq!((endpoint.requests().len(), endpoint.connections()), (4, 3));
}

#[actix_rt::test]
async fn a_request_is_not_repeated_once_a_response_began() {
    let begun = vec![
        say("HTTP/1.1 20"),
        Step::Pause(Duration::from_millis(30)),
        Step::Reset,
    ];
    let endpoint = Endpoint::start(vec![respond(200, "", ""), begun]);
    let client = WebhookClient::new(options());
    post_to(&client, &endpoint.url(), AMPLE).await;
    let second = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(
        second.outcome,
        Outcome::Failed(Failure::SocketError),
        "{}",
        second.detail
    );
    assert_eq!(endpoint.requests().len(), 2);
}

#[actix_rt::test]
async fn a_timeout_on_a_reused_connection_is_not_repeated() {
    let endpoint = Endpoint::start(vec![respond(200, "", ""), vec![Step::Hang]]);
    let client = WebhookClient::new(options());
    post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(
        post_to(&client, &endpoint.url(), BRIEF).await.outcome,
        Outcome::Failed(Failure::TimedOut)
    );
    assert_eq!(endpoint.requests().len(), 2);
    assert!(
        eventually(|| endpoint.closed() == 1).await,
        "the connection is closed with the request"
    );
}

#[actix_rt::test]
async fn idle_connections_are_closed_without_another_call() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let client = WebhookClient::new(ClientOptions {
        keep_alive: Duration::from_millis(20),
        ..options()
    });
    post_to(&client, &endpoint.url(), AMPLE).await;
    assert!(
        eventually(|| endpoint.closed() == 1).await,
        "the endpoint sees the end"
    );
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.status,
        Some(200)
    );
    assert_eq!(endpoint.connections(), 2);
}

#[actix_rt::test]
async fn the_connection_that_was_used_last_is_reused() {
    let endpoint = Endpoint::start(vec![
        vec![
            Step::Pause(Duration::from_millis(30)),
            say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ],
        respond(200, "", ""),
    ]);
    let keep_alive = Duration::from_millis(500);
    let client = WebhookClient::new(ClientOptions {
        keep_alive,
        ..options()
    });
    let url = endpoint.url();
    futures_util::future::join(post_to(&client, &url, AMPLE), post_to(&client, &url, AMPLE)).await;
    assert_eq!((endpoint.connections(), client.close_idle()), (2, 2));
    // With requests that follow each other, the connection that the burst opened besides becomes
    // idle and is closed.
    let requests = async {
        while endpoint.closed() == 0 {
            post_to(&client, &url, AMPLE).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), requests)
        .await
        .expect("a connection is closed");
    assert_eq!(
        (
            endpoint.connections(),
            endpoint.closed(),
            client.close_idle()
        ),
        (2, 1, 1)
    );
}

#[actix_rt::test]
async fn idle_connections_do_not_accumulate() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let address = endpoint.address();
    let keep_alive = Duration::from_secs(3_600);
    let client = WebhookClient::new(ClientOptions {
        keep_alive,
        ..with_names(move |_, _| Some(Ok(vec![address])))
    });
    for number in 0..40 {
        post_to(&client, &format!("http://h{number}.test/"), AMPLE).await;
    }
    assert_eq!(client.close_idle(), 40);
    drop(client);
    assert!(
        eventually(|| endpoint.closed() == 40).await,
        "a client takes its connections with it"
    );

    let client = WebhookClient::new(ClientOptions {
        keep_alive: Duration::ZERO,
        ..with_names(move |_, _| Some(Ok(vec![address])))
    });
    for number in 0..40 {
        post_to(&client, &format!("http://h{number}.test/"), AMPLE).await;
        assert_eq!(client.close_idle(), 0);
    }
    assert!(eventually(|| endpoint.closed() == 80).await);
}

#[actix_rt::test]
async fn idle_connections_borrow_the_permits_of_requests_until_these_are_short() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let address = endpoint.address();
    let sockets = Sockets::new(16, 1);
    let keep_alive = Duration::from_secs(3_600);
    let names = with_names(move |_, _| Some(Ok(vec![address])));
    let client = WebhookClient::new(ClientOptions {
        keep_alive,
        sockets: sockets.clone(),
        ..names
    });
    for _ in 0..2 {
        for number in 0..5 {
            post_to(&client, &format!("http://h{number}.test/"), AMPLE).await;
        }
    }
    assert_eq!(
        (endpoint.connections(), client.close_idle()),
        (5, 5),
        "each connection is reused"
    );
    assert_eq!(
        (sockets.free_permits(), sockets.available_permits()),
        (12, 16)
    );
    let mut taken = Vec::new();
    for number in 0..16 {
        assert!(
            eventually(|| sockets.free_permits() > 0).await,
            "request {number} gets a permit"
        );
        taken.push(sockets.take_permit());
    }
    assert!(
        eventually(|| endpoint.closed() == 4).await,
        "one connection has a permit for idle ones"
    );
    assert_eq!(
        (
            client.close_idle(),
            sockets.free_permits(),
            sockets.available_permits()
        ),
        (1, 0, 0)
    );
    drop(taken);
    assert_eq!(
        (sockets.free_permits(), sockets.available_permits()),
        (16, 16)
    );
}

#[actix_rt::test]
async fn a_dropped_request_closes_its_connection() {
    let endpoint = Endpoint::start(vec![vec![Step::Hang]]);
    let client = WebhookClient::new(options());
    let url = endpoint.url();
    let mut post = Box::pin(post_to(&client, &url, AMPLE));
    let hangs = Box::pin(eventually(|| endpoint.requests().len() == 1));
    futures_util::future::select(&mut post, hangs).await;
    drop(post);
    assert!(eventually(|| endpoint.closed() == 1).await);
}
