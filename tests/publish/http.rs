//! The publish endpoint: authentication, the order of the checks, and the responses.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use actix_web::{
    App, HttpServer,
    dev::ServerHandle,
    http::{Method, StatusCode, header::HeaderMap},
    test::{TestRequest, call_service, init_service, read_body},
    web,
};
use expect_test::{Expect, expect};
use gridhook::{
    journal,
    publish::{PublishLimits, Refusal, http},
};
use serde_json::Value;

use crate::support::publisher::{Endpoint, KEY, KEY2};

const EVENT: &str =
    r#"[{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}]"#;

const REPORT: &str = " Request '<guid>', 3/10/2021 9:02:56 PM (UTC).";

fn post(path: &str) -> TestRequest {
    TestRequest::post().uri(path).set_payload(EVENT)
}

pub(super) fn good() -> TestRequest {
    post("/topics/orders/api/events?api-version=2018-01-01").insert_header(("aeg-sas-key", KEY))
}

/// Status, id and body as they are sent.
async fn whole_response(
    endpoint: &Endpoint,
    request: TestRequest,
) -> (StatusCode, HeaderMap, String) {
    let app = App::new()
        .app_data(endpoint.publisher.clone())
        .configure(http::configure)
        .default_service(web::to(http::not_found));
    let response = call_service(&init_service(app).await, request.to_request()).await;
    let status = response.status();
    let headers = response.headers().clone();
    let id = headers
        .get("x-ms-request-id")
        .expect("every answer has an id")
        .to_str()
        .expect("it is text");
    assert_eq!(id.len(), 36);
    let body = read_body(response).await;
    (
        status,
        headers.clone(),
        String::from_utf8_lossy(&body).replace(id, "<guid>"),
    )
}

/// The relevant parts of a response, each on a line: status, headers, codes with the message. `…`
/// is the invitation to report.
pub(super) async fn response_summary(endpoint: &Endpoint, request: TestRequest) -> String {
    let (status, headers, body) = whole_response(endpoint, request).await;
    let mut shown = status.as_u16().to_string();
    for name in [
        "accept-encoding",
        "allow",
        "retry-after",
        "aeg-input-event-schema",
    ] {
        if let Some(value) = headers.get(name) {
            shown += &format!("\n{name}: {}", value.to_str().expect("it is text"));
        }
    }
    if body.is_empty() {
        return shown;
    }
    let body: Value = serde_json::from_str(&body).expect("an error is JSON");
    let (error, detail) = (&body["error"], &body["error"]["details"][0]);
    assert_eq!(error["message"], detail["message"]);
    let text = |value: &Value| value.as_str().expect("it is a string").to_owned();
    shown += &format!(
        "\n{} / {}: {}",
        text(&error["code"]),
        text(&detail["code"]),
        text(&error["message"])
    );
    shown.replace(REPORT, " …")
}

async fn check(request: TestRequest, expected: Expect) {
    let endpoint = Endpoint::new(PublishLimits::default());
    expected.assert_eq(&response_summary(&endpoint, request).await);
    let expected_events = u64::from(expected.data() == "200");
    assert_eq!(
        endpoint.stored(),
        expected_events,
        "what is refused leaves nothing behind"
    );
}

#[actix_web::test]
async fn an_error_has_azure_s_shape() {
    let endpoint = Endpoint::new(PublishLimits::default());
    let (status, headers, body) =
        whole_response(&endpoint, post("/topics/orders/api/events")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        headers.get("content-type").expect("it has one"),
        "application/json; charset=utf-8"
    );
    assert_eq!(
        headers.get("api-supported-versions").expect("it has one"),
        "2018-01-01"
    );
    expect![[r#"{"error":{"code":"Unauthorized","message":"Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key. Request '<guid>', 3/10/2021 9:02:56 PM (UTC).","details":[{"code":"Unauthorized","message":"Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key. Request '<guid>', 3/10/2021 9:02:56 PM (UTC)."}]}}"#]].assert_eq(&body);
}

#[actix_web::test]
async fn a_body_may_begin_with_a_byte_order_mark() {
    check(
        good().set_payload(format!("\u{feff}{EVENT}")),
        expect!["200"],
    )
    .await;
}

#[actix_web::test]
async fn an_event_is_taken_with_either_key() {
    check(good(), expect!["200"]).await;
    check(
        post("/topics/orders/api/events").insert_header(("AEG-SAS-KEY", KEY2)),
        expect!["200"],
    )
    .await;
    let encoded = KEY.replace('=', "%3D");
    check(
        post(&format!(
            "/topics/orders/api/events?api-version=2018-01-01&aeg-sas-key={encoded}"
        )),
        expect!["200"],
    )
    .await;
    check(
        post(&format!("/topics/orders/api/events?aeg-sas-key={KEY2}")),
        expect!["200"],
    )
    .await;
}

#[actix_web::test]
async fn a_path_has_no_case_and_may_end_with_a_slash() {
    let with = |path: &str| post(path).insert_header(("aeg-sas-key", KEY));
    check(with("/TOPICS/Orders/API/Events/"), expect!["200"]).await;
    check(with("/topics/orders/api/events?"), expect!["200"]).await;
    check(with("/topics/nobody/api/events?aeg-sas-key=secret"), expect![[r#"
        404
        NotFound / ResourceNotFound: No HTTP resource was found that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Ftopics%2Fnobody%2Fapi%2Fevents'. …"#]]).await;
    check(with("/topics/orders/api/event"), expect![[r#"
        404
        NotFound / ResourceNotFound: No HTTP resource was found that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Ftopics%2Forders%2Fapi%2Fevent'. …"#]]).await;
}

#[actix_web::test]
async fn without_the_right_key_nothing_is_taken() {
    let bare = || post("/topics/orders/api/events");
    check(bare(), expect![[r#"
        401
        Unauthorized / Unauthorized: Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key. …"#]]).await;
    check(
        bare().insert_header(("aeg-sas-key", "")),
        expect![[r#"
            400
            BadRequest / InvalidSas: Request must have a value for aeg-sas-key. …"#]],
    )
    .await;
    check(bare().insert_header(("aeg-sas-key", "wrong!")), expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The input is not a valid Base-64 string as it contains a non-base 64 character, more than two padding characters, or an illegal character among the padding characters. …"#]]).await;
    check(bare().insert_header(("aeg-sas-key", "d3Jvbmc=")), expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The key is not one of the topic's keys. …"#]]).await;
    check(bare().insert_header(("authorization", "Basic x")), expect![[r#"
        401
        Unauthorized / Unauthorized: Request has an unsupported Authorization scheme (must be SharedAccessSignature or Bearer). …"#]]).await;
}

#[actix_web::test]
async fn other_methods_are_answered() {
    let of = |method: Method| TestRequest::with_uri("/topics/clouds/api/events").method(method);
    check(
        of(Method::OPTIONS),
        expect![[r#"
            200
            allow: POST, OPTIONS
            aeg-input-event-schema: CloudEventV10"#]],
    )
    .await;
    check(of(Method::HEAD), expect![[r#"
        404
        NotFound / ResourceNotFound: No HTTP resource was found that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Ftopics%2Fclouds%2Fapi%2Fevents'. …"#]]).await;
    check(
        of(Method::GET),
        expect![[r#"
            405
            allow: OPTIONS, POST
            MethodNotAllowed / MethodNotAllowed: . …"#]],
    )
    .await;
    check(
        of(Method::DELETE),
        expect![[r#"
            405
            allow: OPTIONS, POST
            MethodNotAllowed / MethodNotAllowed: . …"#]],
    )
    .await;
}

#[actix_web::test]
async fn a_body_is_read_as_it_says_or_refused() {
    check(
        good().insert_header(("content-encoding", "identity")),
        expect!["200"],
    )
    .await;
    check(
        good().set_payload(""),
        expect![[r#"
            400
            BadRequest / InputJsonInvalid: Unexpected end when reading JSON. …"#]],
    )
    .await;
    check(good().set_payload(r#"[{"id":"1"}]"#), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured for 'EventGridEvent' schema and requires 'subject' property to be set. …"#]]).await;
    check(
        good().set_payload(vec![b' '; 1_536_001]),
        expect![[r#"
            413
            RequestEntityTooLarge / PayloadTooLarge: The maximum size (1536000) has been exceeded."#]],
    )
    .await;
    check(
        good().insert_header(("content-length", "1536001")),
        expect![[r#"
            413
            RequestEntityTooLarge / PayloadTooLarge: The maximum size (1536000) has been exceeded."#]],
    )
    .await;
    check(
        good().insert_header(("content-length", "10")),
        expect![[r#"
        400
        BadRequest / InputJsonInvalid: The request's body could not be read to its end. …"#]],
    )
    .await;
    check(
        good().insert_header(("content-length", "many")),
        expect![[r#"
            400
            BadRequest / InputJsonInvalid: The request's body could not be read to its end. …"#]],
    )
    .await;
}

#[actix_web::test]
async fn a_full_disk_and_a_journal_that_ended_are_answers() {
    let full = Endpoint::new(PublishLimits::default());
    full.fill();
    expect![[r#"
        503
        retry-after: 10
        ServiceUnavailable / ServiceUnavailable: The server cannot store events: its storage is full. Try again later. …"#]]
    .assert_eq(&response_summary(&full, good()).await);
    let closed = Endpoint::new(PublishLimits::default());
    closed.break_down();
    expect![[r#"
        503
        retry-after: 10
        ServiceUnavailable / ServiceUnavailable: The server is shutting down. Try again. …"#]]
    .assert_eq(&response_summary(&closed, good()).await);
}

#[test]
fn every_error_of_the_journal_has_its_answer() {
    let check = |error: journal::Error, expected: &str| {
        let refusal = Refusal::from(error);
        let (status, code) = refusal.status();
        assert_eq!(format!("{} {code}: {refusal}", status.as_u16()), expected);
    };
    let unsure = "503 ServiceUnavailable: The server could not confirm that the events are stored. \
        Try again.";
    check(journal::Error::Fenced, unsure);
    check(journal::Error::Unknown, unsure);
    check(
        journal::Error::Damaged("a checksum of a file".to_owned()),
        "500 InternalServerError: The server encountered an internal error.",
    );
}

#[actix_web::test]
async fn a_closed_server_sends_publishers_away() {
    let endpoint = Endpoint::new(PublishLimits::default());
    endpoint.publisher.close();
    expect![[r#"
        503
        retry-after: 10
        ServiceUnavailable / ServiceUnavailable: The server is shutting down. Try again. …"#]]
    .assert_eq(&response_summary(&endpoint, good()).await);
}

#[actix_web::test]
async fn without_room_for_bytes_a_publisher_gets_retry_after() {
    let endpoint = Endpoint::new(PublishLimits {
        admitted_bytes_max: 4 * 1024,
        ..PublishLimits::default()
    });
    assert_eq!(response_summary(&endpoint, good()).await, "200");
    let announced = good().insert_header(("content-length", "5000"));
    expect![[r#"
        503
        retry-after: 1
        ServiceUnavailable / ServiceUnavailable: The server is busy: too many bytes are being published. Try again. …"#]].assert_eq(&response_summary(&endpoint, announced).await);
}

/// The endpoint on a socket, for what only a socket can do.
fn serve(limits: PublishLimits) -> (Endpoint, SocketAddr, ServerHandle) {
    let endpoint = Endpoint::new(limits);
    let publisher = endpoint.publisher.clone();
    let server = HttpServer::new(move || {
        App::new()
            .app_data(publisher.clone())
            .configure(http::configure)
    })
    .workers(1)
    .client_disconnect_timeout(Duration::from_millis(50))
    .bind(("127.0.0.1", 0))
    .expect("loopback has a free port");
    let address = server.addrs()[0];
    let server = server.shutdown_timeout(0).disable_signals().run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    (endpoint, address, handle)
}

/// Sends `parts`, one after the other, and reads the response, or what there is of it after five
/// seconds.
async fn talk(address: SocketAddr, parts: Vec<String>) -> String {
    let talking = move || {
        let mut socket = TcpStream::connect(address).expect("the server listens");
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a timeout can be set");
        for part in parts {
            // The server may respond and close before it has read everything.
            if socket.write_all(part.as_bytes()).is_err() {
                break;
            }
        }
        let mut response = Vec::new();
        let mut buffer = [0; 4096];
        while !is_whole(&response)
            && let Ok(read @ 1..) = socket.read(&mut buffer)
        {
            response.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&response).into_owned()
    };
    web::block(talking)
        .await
        .expect("the client does not panic")
}

/// Whether a response has its head and as much of a body as that says.
fn is_whole(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| length.parse() == Ok(body.len()))
}

fn head(more: &str) -> String {
    format!(
        "POST /topics/orders/api/events HTTP/1.1\r\nHost: h\r\nConnection: close\r\naeg-sas-key: \
         {KEY}\r\n{more}\r\n\r\n"
    )
}

#[actix_web::test]
async fn a_chunked_body_is_read() {
    let (endpoint, address, server) = serve(PublishLimits::default());
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let (one, two) = EVENT.split_at(20);
    let parts = vec![
        head("Transfer-Encoding: chunked"),
        chunk(one),
        chunk(two),
        "0\r\n\r\n".to_owned(),
    ];
    let response = talk(address, parts).await;
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("content-length: 0\r\n"),
        "{response}"
    );
    assert_eq!(endpoint.stored(), 1);
    server.stop(false).await;
}

#[actix_web::test]
async fn a_body_that_never_ends_is_cut_off_at_the_limit() {
    let (endpoint, address, server) = serve(PublishLimits {
        request_bytes_max: 100_000,
        ..PublishLimits::default()
    });
    let mut parts = vec![head("Transfer-Encoding: chunked")];
    parts.extend(std::iter::repeat_n(
        format!("{:x}\r\n{}\r\n", 8_000, " ".repeat(8_000)),
        200,
    ));
    let response = talk(address, parts).await;
    assert!(
        response.starts_with("HTTP/1.1 413") && response.contains("The maximum size (100000)"),
        "{response}"
    );
    assert_eq!(endpoint.stored(), 0);
    server.stop(false).await;
}

#[actix_web::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let (endpoint, address, server) = serve(PublishLimits {
        body_timeout: Duration::from_millis(50),
        ..PublishLimits::default()
    });
    let response = talk(address, vec![head("Content-Length: 500"), "[".to_owned()]).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert_eq!(endpoint.stored(), 0);
    server.stop(false).await;
}

#[actix_web::test]
async fn a_body_that_stops_is_not_waited_for_to_its_deadline() {
    let window = Duration::from_millis(40);
    let limits = PublishLimits {
        body_bytes_per_second: 1_000,
        body_window: window,
        ..PublishLimits::default()
    };
    let (endpoint, address, server) = serve(limits);
    for parts in [
        vec![head("Content-Length: 500000"), "[".to_owned()],
        vec![head("Content-Length: 500000"), " ".repeat(499_999)],
        vec![head("Transfer-Encoding: chunked"), "2\r\n[{\r\n".to_owned()],
    ] {
        let response = talk(address, parts).await;
        assert!(
            response.starts_with("HTTP/1.1 408")
                && response.contains("at less than 1000 bytes a second"),
            "{response}"
        );
        assert_eq!(
            endpoint.publisher.bytes_in_flight().0,
            0,
            "its room is free again"
        );
    }
    server.stop(false).await;
    // Without a least, the deadline alone counts.
    let limits = PublishLimits {
        body_bytes_per_second: 0,
        body_timeout: 4 * window,
        ..limits
    };
    let (_endpoint, address, server) = serve(limits);
    let response = talk(address, vec![head("Content-Length: 500"), "[".to_owned()]).await;
    assert!(
        response.starts_with("HTTP/1.1 408") && response.contains("was not received within"),
        "{response}"
    );
    server.stop(false).await;
}

#[actix_web::test]
async fn a_slow_body_that_goes_on_is_read_to_its_end() {
    // A byte every few milliseconds is more than a hundred a second in each of the windows.
    let window = Duration::from_millis(500);
    let (endpoint, address, server) = serve(PublishLimits {
        body_bytes_per_second: 8,
        body_window: window,
        ..PublishLimits::default()
    });
    let body = format!("{}{EVENT}", " ".repeat(200));
    let sending = move || {
        let mut socket = TcpStream::connect(address).expect("the server listens");
        socket
            .write_all(head(&format!("Content-Length: {}", body.len())).as_bytes())
            .expect("the server reads");
        for byte in body.as_bytes() {
            socket.write_all(&[*byte]).expect("the server reads");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut response = String::new();
        socket
            .read_to_string(&mut response)
            .expect("it is answered");
        response
    };
    let response = web::block(sending)
        .await
        .expect("the client does not panic");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(endpoint.stored(), 1);
    server.stop(false).await;
}

#[actix_web::test]
async fn a_stranger_s_body_is_not_waited_for() {
    let (_endpoint, address, server) = serve(PublishLimits::default());
    let head =
        "POST /topics/orders/api/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
            .to_owned();
    for body in ["".to_owned(), " ".repeat(1_000_000)] {
        let response = talk(address, vec![head.clone(), body]).await;
        assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    }
    server.stop(false).await;
}

#[actix_web::test]
async fn a_stranger_s_endless_body_ends_with_the_connection() {
    let (_endpoint, address, server) = serve(PublishLimits::default());
    let talking = move || {
        let mut socket = TcpStream::connect(address).expect("the server listens");
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout can be set");
        let head = "POST /topics/orders/api/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \
            chunked\r\n\r\n1\r\n[\r\n";
        socket.write_all(head.as_bytes()).expect("the server reads");
        let mut response = String::new();
        let end = socket.read_to_string(&mut response);
        assert!(response.starts_with("HTTP/1.1 401"), "{response}");
        assert!(end.is_ok(), "the server closed the connection: {end:?}");
    };
    web::block(talking).await.expect("the client is content");
    server.stop(false).await;
}

#[actix_web::test]
async fn a_body_without_a_length_is_taken_for_the_largest() {
    let (_endpoint, address, server) = serve(PublishLimits {
        admitted_bytes_max: 1_000_000,
        ..PublishLimits::default()
    });
    let response = talk(address, vec![head("Transfer-Encoding: chunked")]).await;
    assert!(
        response.starts_with("HTTP/1.1 503") && response.contains("retry-after: 1\r\n"),
        "{response}"
    );
    server.stop(false).await;
}

#[actix_web::test]
async fn permits_come_back() {
    let (endpoint, address, server) = serve(PublishLimits {
        admitted_bytes_max: 2_000_000,
        ..PublishLimits::default()
    });
    for _ in 0..3 {
        // Each of them takes more than half of the room while it is read.
        let refused = talk(
            address,
            vec![
                head("Transfer-Encoding: chunked"),
                "2\r\n[]\r\n0\r\n\r\n".to_owned(),
            ],
        )
        .await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        let length = format!("Content-Length: {}", EVENT.len());
        let taken = talk(address, vec![head(&length), EVENT.to_owned()]).await;
        assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    }
    assert_eq!(endpoint.stored(), 3);
    server.stop(false).await;
}
