//! Brokers that break Kafka's protocol, or refuse a login: what the operator reads of it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use serde_json::json;

use crate::support::server::{Server, SubscriptionSpec};

/// The keys of requests.
const METADATA: i16 = 3;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;

/// Responses of a broker without length and correlation id, by the key of the request.
type Script = &'static [(i16, &'static [u8])];

/// The credentials in the settings.
type Credentials = &'static [(&'static str, &'static str)];

/// A broker that has these requests in versions 0 to 4.
const VERSIONS: (i16, &[u8]) = (
    API_VERSIONS,
    &[
        0, 0, 0, 0, 0, 3, 0, 3, 0, 0, 0, 4, 0, 17, 0, 0, 0, 4, 0, 36, 0, 0, 0, 4,
    ],
);

/// The broker has the mechanism.
const MECHANISM: (i16, &[u8]) = (SASL_HANDSHAKE, &[0, 0, 0, 0, 0, 0]);

/// The next request, without its length.
fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

/// Answers requests as the script says, until one is not in it: that one ends the connection.
fn serve(mut stream: TcpStream, script: Script) {
    while let Some(request) = read_frame(&mut stream) {
        let key = i16::from_be_bytes([request[0], request[1]]);
        let Some((_, body)) = script.iter().find(|(of, _)| *of == key) else {
            return;
        };
        let mut response = (body.len() as u32 + 4).to_be_bytes().to_vec();
        response.extend(&request[4..8]);
        response.extend(*body);
        if stream.write_all(&response).is_err() {
            return;
        }
    }
}

fn start_broker(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.expect("a connection"), script);
        }
    });
    address
}

/// A broker with a topic of one partition, whatever its name.
pub(crate) fn start_broker_with_topic() -> SocketAddr {
    const TOPIC: (i16, &[u8]) = (
        METADATA,
        &[
            0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b't', 0, 0, 0,
            0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    );
    start_broker(&[VERSIONS, TOPIC])
}

/// Answers the first request with these bytes as they are.
fn start_raw_broker(response: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            read_frame(&mut stream);
            // The client may be gone already.
            stream.write_all(response).ok();
            read_frame(&mut stream);
        }
    });
    address
}

/// Why a topic at this broker cannot be a destination.
fn refusal(broker: SocketAddr, credentials: &[(&str, &str)]) -> String {
    let url = format!("kafka://{broker}");
    let names = credentials
        .iter()
        .map(|(name, value)| (format!("DELIVERY__RESOURCES__SERVICE__{name}"), *value));
    let names: Vec<(String, &str)> = names.collect();
    let mut settings = vec![("DELIVERY__RESOURCES__SERVICE__URL", url.as_str())];
    settings.extend(names.iter().map(|(name, value)| (name.as_str(), *value)));
    let server = Server::start(&settings);
    server.topic("orders", "EventGridSchema");
    let destination = json!({"destination": {"endpointType": "Kafka",
        "properties": {"resourceId": "service", "topicName": "orders"}}});
    let response = server.put_subscription(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    assert_eq!(response.status, 400, "{}", response.text());
    response.text().replace(&broker.to_string(), "BROKER")
}

const PLAIN: Credentials = &[
    ("USERNAME", "gridhook"),
    ("PASSWORD", "pass-that-nobody-sees"),
];
const BEARER: Credentials = &[("TOKEN", "token-that-nobody-sees")];

#[test]
fn a_broker_that_breaks_the_protocol_is_reported_with_what_it_did() {
    const CASES: &[(Script, &str)] = &[
        (
            &[(API_VERSIONS, &[0, 0, 0, 0])],
            "BROKER: the response to ApiVersions is malformed",
        ),
        // A negative length of a string, and an array that claims more than there is.
        (
            &[
                VERSIONS,
                (METADATA, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xf0]),
            ],
            "the response to Metadata is malformed",
        ),
        (
            &[VERSIONS, (METADATA, &[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff])],
            "the response to Metadata is malformed",
        ),
        (
            &[(API_VERSIONS, &[0, 0, 0, 0, 0, 0])],
            "BROKER: the broker has no version of Metadata that this client has",
        ),
        (
            &[(API_VERSIONS, &[0, 0, 0, 0, 0, 1, 0, 3, 0, 9, 0, 12])],
            "the broker has no version of Metadata that this client has",
        ),
        (&[VERSIONS], "BROKER: the connection has ended"),
        (&[], "BROKER: the connection has ended"),
    ];
    for (script, expected) in CASES {
        let refusal = refusal(start_broker(script), &[]);
        assert!(
            refusal.contains(expected),
            "{refusal}\nexpected: {expected}"
        );
    }
    const RAW: &[(&[u8], &str)] = &[
        (
            &[0x7f, 0, 0, 0],
            "the broker sent a response of 2130706432 bytes; at most 16777216 are read",
        ),
        (&[0xff, 0xff, 0xff, 0xff], "at most 16777216 are read"),
        (
            &[0, 0, 0, 4, 0, 0, 0, 9],
            "the broker sent a response to no request (9)",
        ),
    ];
    for (response, expected) in RAW {
        let refusal = refusal(start_raw_broker(response), &[]);
        assert!(
            refusal.contains(expected),
            "{refusal}\nexpected: {expected}"
        );
    }
}

#[test]
fn a_refused_login_is_reported_with_the_message_of_the_broker_and_without_the_secret() {
    const CASES: &[(Script, Credentials, &str)] = &[
        (
            &[
                VERSIONS,
                (
                    SASL_HANDSHAKE,
                    b"\x00\x21\x00\x00\x00\x02\x00\x0dSCRAM-SHA-256\x00\x06GSSAPI",
                ),
            ],
            PLAIN,
            "UnsupportedSaslMechanism: PLAIN is not among SCRAM-SHA-256, GSSAPI",
        ),
        (
            &[
                VERSIONS,
                MECHANISM,
                (
                    SASL_AUTHENTICATE,
                    b"\x00\x3a\x00\x0bbad account\x00\x00\x00\x00",
                ),
            ],
            PLAIN,
            "SaslAuthenticationFailed: bad account",
        ),
        (
            &[
                VERSIONS,
                MECHANISM,
                (
                    SASL_AUTHENTICATE,
                    b"\x00\x00\xff\xff\x00\x00\x00\x1a{\"status\":\"invalid_token\"}",
                ),
            ],
            BEARER,
            "OAUTHBEARER: {",
        ),
    ];
    for (script, credentials, expected) in CASES {
        let refusal = refusal(start_broker(script), credentials);
        assert!(
            refusal.contains("the credentials of delivery.resources.service are refused"),
            "{refusal}"
        );
        assert!(
            refusal.contains(expected),
            "{refusal}\nexpected: {expected}"
        );
        assert!(!refusal.contains("nobody-sees"), "{refusal}");
    }
}
