//! One narrow token cannot use up what all share: each caller has a share, and administrators have
//! a reserve.

use std::io::Read as _;

use serde_json::{Value, json};

use crate::{
    server::tokens::{RG, ask, token},
    support::{
        needs::many,
        server::{Server, SubscriptionSpec, subscription},
        sink::Sink,
    },
};

fn admin(server: &Server) -> String {
    std::fs::read_to_string(server.data_dir().join("admin-token"))
        .expect("a token")
        .trim()
        .to_owned()
}

#[test]
fn a_reader_of_tail_leaves_room_for_others_and_for_administrators() {
    let server = Server::start(&[]);
    let readers: Vec<String> = (0..5)
        .map(|number| token(&server, &[&format!("r{number}"), "--role", "read"]))
        .collect();
    let open = |token: &str| {
        let stream = std::net::TcpStream::connect(server.address()).expect("a connection");
        let request =
            format!("GET /tail HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
        std::io::Write::write_all(&mut &stream, request.as_bytes()).expect("it is sent");
        let mut status = [0; 12];
        (&stream).read_exact(&mut status).expect("a status");
        (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
    };
    let mut streams = Vec::new();
    let mut opened = |token: &str, count: usize| {
        let answers: Vec<_> = (0..count).map(|_| open(token)).collect();
        let is_open =
            |(status, stream): (String, std::net::TcpStream)| (status == "200").then_some(stream);
        let before = streams.len();
        streams.extend(answers.into_iter().filter_map(is_open));
        streams.len() - before
    };
    assert_eq!(opened(&readers[0], many(20, 200)), 8, "a quarter of 32");
    let others: usize = readers[1..].iter().map(|reader| opened(reader, 10)).sum();
    assert_eq!(others, 20, "an eighth is for administrators");
    assert_eq!(opened(&admin(&server), 6), 4);
}

#[test]
fn operations_of_one_token_do_not_push_those_of_others_out_of_the_audit_trail() {
    let mut server = Server::start(&[("JOURNAL__AUDIT_RECORDS", "40")]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "sub", &SubscriptionSpec::new(&sink.url("/")));
    let busy = token(
        &server,
        &["busy", "--role", "operate", "--scope", "topics/orders"],
    );
    let quiet = token(
        &server,
        &["quiet", "--role", "operate", "--scope", "topics/orders"],
    );
    let resume = format!("{}/resume", subscription("orders", "sub"));
    ask(&server, &quiet, "POST", &resume, "");
    let count = |server: &Server, operator: &str| {
        let trail = server.command("GET", "/audit?top=100", &Value::Null).json();
        trail["value"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|entry| entry["operator"] == operator)
            .count()
    };
    let of_admin = count(&server, "admin");
    for _ in 0..many(100, 2300) {
        ask(&server, &busy, "POST", &resume, "");
    }
    assert_eq!(
        (count(&server, "admin"), count(&server, "quiet")),
        (of_admin, 1)
    );
    server.terminate();
    server.restart();
    for _ in 0..60 {
        ask(&server, &busy, "POST", &resume, "");
    }
    assert_eq!(
        (count(&server, "admin"), count(&server, "quiet")),
        (of_admin, 1),
        "also after a restart"
    );
    for _ in 0..10 {
        server.command("PATCH", &format!("{RG}/topics/orders"), &json!({}));
    }
    assert_eq!(
        (count(&server, "admin"), count(&server, "quiet")),
        (of_admin + 10, 1)
    );
}

#[test]
fn a_scoped_token_cannot_create_all_resources_that_there_may_be() {
    let server = Server::start(&[
        ("LIMITS__TOPICS", "16"),
        ("LIMITS__SUBSCRIPTIONS_PER_TOPIC", "16"),
    ]);
    let sink = Sink::start();
    let teams: Vec<String> = ["a", "b"]
        .iter()
        .map(|team| {
            token(
                &server,
                &[
                    team,
                    "--role",
                    "admin",
                    "--scope",
                    &format!("topics/{team}*,namespaces/{team}*"),
                ],
            )
        })
        .collect();
    let created = |team: usize, name: &str, kind: &str| {
        let body = if kind == "namespaces" {
            r#"{"location": "local"}"#
        } else {
            "{}"
        };
        let create = |number: usize| {
            let path = format!("{RG}/{kind}/{name}-topic-{number:02}");
            let response = ask(&server, &teams[team], "PUT", &path, body);
            assert!([201, 409].contains(&response.status), "{}", response.text());
            response.status == 201
        };
        (0..16).filter(|number| create(*number)).count()
    };
    for kind in ["topics", "namespaces"] {
        assert_eq!(
            (created(0, "a", kind), created(1, "b", kind)),
            (8, 6),
            "{kind}: half, and all but an eighth"
        );
    }
    server.topic("of-admin", "EventGridSchema");
    let webhook = json!({"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}});
    let spec = json!({"properties": {"destination": webhook}});
    let subscribe = |number: &usize| {
        let path = subscription("a-topic-00", &format!("sub-{number}"));
        ask(&server, &teams[0], "PUT", &path, &spec.to_string()).status == 201
    };
    assert_eq!((0..16).filter(subscribe).count(), 8);
}
