//! Which addresses may be called. The tests resolve names themselves, so that no network is needed.

use std::{io, net::SocketAddr};

use gridhook::{
    deliver::{AddressRules, ClientOptions, WebhookClient},
    policy::outcome::{Failure, Outcome},
};
use url::Url;

use super::{AMPLE, options, post_to, with_names};
use crate::{
    spec::fact,
    support::{
        endpoint::{Endpoint, respond},
        port::ReservedPort,
    },
};

/// One address of every refused network.
const FORBIDDEN: [&str; 33] = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fd00::1",
    "fe80::1",
    "ff02::1",
];

#[test]
fn private_and_reserved_addresses_are_refused_and_public_ones_are_not() {
    let rules = AddressRules::default();
    for address in FORBIDDEN {
        assert!(
            rules
                .check_address(address.parse().expect(address))
                .is_err(),
            "{address}"
        );
    }
    for address in [
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "8.8.8.8",
        "2606:4700::1111",
        "2a00::1",
        "::ffff:8.8.8.8",
    ] {
        assert_eq!(
            rules.check_address(address.parse().expect(address)),
            Ok(()),
            "{address}"
        );
    }
}

#[test]
fn every_spelling_of_a_loopback_address_is_refused() {
    let rules = AddressRules {
        allow_http: true,
        ..AddressRules::default()
    };
    for url in [
        "http://127.1/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://[::ffff:7f00:1]/",
        "http://[::1]/",
        "http://\u{2460}27.0.0.1/",
        "http://127.0.0.1./",
    ] {
        let url = Url::parse(url).expect(url);
        assert!(rules.check_url(&url).is_err(), "{url}");
    }
}

#[test]
fn http_must_be_allowed_by_the_operator() {
    let url = Url::parse("http://example.com/").expect("a URL");
    assert!(AddressRules::default().check_url(&url).is_err());
    assert_eq!(AddressRules::loopback().check_url(&url), Ok(()));
}

#[test]
fn a_network_is_allowed_by_its_prefix() {
    let network: ipnet::IpNet = "10.1.0.0/16".parse().expect("a network");
    let rules = AddressRules {
        allow_http: false,
        test_endpoint: false,
        allow_networks: vec![network],
        own: Vec::new(),
    };
    assert_eq!(network.to_string(), "10.1.0.0/16");
    assert_eq!(
        rules.check_address("10.1.255.255".parse().expect("an address")),
        Ok(())
    );
    assert!(
        rules
            .check_address("10.2.0.0".parse().expect("an address"))
            .is_err()
    );
}

#[actix_rt::test]
async fn a_literal_address_is_checked_without_a_lookup() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let strict = AddressRules {
        allow_http: true,
        ..AddressRules::default()
    };
    let client = WebhookClient::new(ClientOptions {
        rules: strict,
        ..options()
    });
    let response = post_to(&client, &endpoint.url(), AMPLE).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::SocketError));
    assert!(
        response.detail.contains("127.0.0.1 is private or reserved"),
        "{}",
        response.detail
    );
    assert_eq!(endpoint.connections(), 0);
}

#[actix_rt::test]
async fn a_name_with_one_forbidden_address_is_refused_whole() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let allowed = endpoint.address();
    let metadata: SocketAddr = "169.254.169.254:80".parse().expect("an address");
    for found in [
        vec![metadata],
        vec![allowed, metadata],
        vec![metadata, allowed],
    ] {
        let client = WebhookClient::new(with_names(move |_, _| Some(Ok(found.clone()))));
        let response = post_to(&client, "http://mixed.test/", AMPLE).await;
        assert_eq!(response.outcome, Outcome::Failed(Failure::SocketError));
        assert!(
            response
                .detail
                .contains("mixed.test resolves to 169.254.169.254"),
            "{}",
            response.detail
        );
    }
    assert_eq!(endpoint.connections(), 0);
}

#[actix_rt::test]
async fn a_name_is_resolved_once_per_connection() {
    let endpoint = Endpoint::start(vec![respond(200, "connection: close\r\n", "")]);
    let good = endpoint.address();
    let bad = "10.0.0.1:80".parse().expect("an address");
    let client = WebhookClient::new(with_names(move |_, lookups| {
        Some(Ok(vec![if lookups == 1 { good } else { bad }]))
    }));
    assert_eq!(
        post_to(&client, "http://rebinding.test/", AMPLE)
            .await
            .outcome,
        Outcome::Delivered
    );
    let second = post_to(&client, "http://rebinding.test/", AMPLE).await;
    assert!(
        second.detail.contains("resolves to 10.0.0.1"),
        "{}",
        second.detail
    );
}

#[actix_rt::test]
async fn the_second_address_is_called_if_the_first_refuses() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let port = ReservedPort::new();
    let free = port.address;
    let good = endpoint.address();
    let client = WebhookClient::new(with_names(move |_, _| Some(Ok(vec![free, good]))));
    assert_eq!(
        post_to(&client, "http://two.test/", AMPLE).await.outcome,
        Outcome::Delivered
    );
}

#[actix_rt::test]
async fn a_name_without_an_address_is_a_resolution_error() {
    let unknown = WebhookClient::new(with_names(|_, _| {
        Some(Err(io::Error::other("no such host")))
    }));
    let response = post_to(&unknown, "http://nowhere.test/", AMPLE).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::ResolutionError));
    fact("S000-150", &response.outcome.to_string().into());
    assert!(
        response
            .detail
            .contains("cannot resolve the name nowhere.test: no such host"),
        "{}",
        response.detail
    );
    let empty = WebhookClient::new(with_names(|_, _| Some(Ok(Vec::new()))));
    assert_eq!(
        post_to(&empty, "http://nowhere.test/", AMPLE).await.outcome,
        Outcome::Failed(Failure::ResolutionError)
    );
}
