//! Allowed addresses of publishers.

use std::net::SocketAddr;

use actix_web::{http::header::HeaderValue, test::TestRequest};
use expect_test::{Expect, expect};
use gridhook::{
    publish::{
        PublishLimits,
        auth::{AuthRules, RejectionCounts},
    },
    record::ingress::{IngressSettings, IpRule, PublicNetworkAccess},
};
use serde_json::json;

use super::http::{good, response_summary};
use crate::support::publisher::Endpoint;

fn rules(masks: &[&str]) -> IngressSettings {
    let rule =
        |mask: &&str| serde_json::from_value::<IpRule>(json!({"ipMask": mask})).expect("a rule");
    IngressSettings {
        inbound_ip_rules: masks.iter().map(rule).collect(),
        ..IngressSettings::default()
    }
}

fn from(address: &str) -> TestRequest {
    let address = SocketAddr::new(address.parse().expect("an address"), 40_000);
    good().peer_addr(address)
}

async fn check(endpoint: &Endpoint, request: TestRequest, expected: Expect) {
    expected.assert_eq(&response_summary(endpoint, request).await);
}

const TAKEN: &str = "200";

#[actix_web::test]
async fn a_rule_lets_its_addresses_in_and_no_others() {
    let ingress = rules(&[
        "10.1.0.0/16",
        "203.0.113.7",
        "2001:db8::/32",
        "::ffff:198.51.100.7",
        "::ffff:192.0.2.0/120",
    ]);
    let endpoint = Endpoint::with(PublishLimits::default(), AuthRules::default(), &ingress);
    for address in [
        "10.1.2.3",
        "203.0.113.7",
        "::ffff:10.1.2.3",
        "2001:db8::1",
        // As the rules with IPv4-mapped addresses have them, and as sockets name them.
        "198.51.100.7",
        "::ffff:192.0.2.9",
    ] {
        assert_eq!(
            response_summary(&endpoint, from(address)).await,
            TAKEN,
            "{address}"
        );
    }
    check(&endpoint, from("10.2.0.1"), expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client 10.2.0.1 is rejected due to IpAddress filtering rules. …"#]]).await;
    check(&endpoint, from("203.0.113.8"), expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client 203.0.113.8 is rejected due to IpAddress filtering rules. …"#]]).await;
    // No client's header decides where it comes from, …
    check(&endpoint, from("10.2.0.1").insert_header(("x-forwarded-for", "10.1.2.3")), expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client 10.2.0.1 is rejected due to IpAddress filtering rules. …"#]]).await;
    // … and a client that is not admitted is not asked for a key.
    let bare = TestRequest::post().uri("/topics/orders/api/events");
    check(&endpoint, bare, expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client (unknown) is rejected due to IpAddress filtering rules. …"#]]).await;
    assert_eq!(
        endpoint.publisher.rejection_counts(),
        RejectionCounts {
            address: 4,
            ..RejectionCounts::default()
        }
    );
    assert_eq!(endpoint.stored(), 6);
}

#[actix_web::test]
async fn a_trusted_proxy_names_the_client() {
    let door = AuthRules {
        trusted_proxies: vec!["192.168.0.0/24".parse().expect("a network")],
        ..AuthRules::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), door, &rules(&["10.1.0.0/16"]));
    let through =
        |forwarded: &str| from("192.168.0.1").insert_header(("x-forwarded-for", forwarded));
    for forwarded in [
        "10.1.2.3",
        "10.2.0.1, 10.1.2.3",
        "nonsense, 10.1.2.3 , 192.168.0.2",
        "10.1.2.3:51234",
        "[::ffff:10.1.2.3]:443",
        "10.1.2.3, [::ffff:192.168.0.2]",
    ] {
        assert_eq!(
            response_summary(&endpoint, through(forwarded)).await,
            TAKEN,
            "{forwarded}"
        );
    }
    for forwarded in [
        "10.2.0.1",
        "10.1.2.3, 10.2.0.1",
        "10.1.2.3, nonsense",
        "",
        "10.1.2.3,",
        "10.2.0.1:51234",
    ] {
        assert!(
            response_summary(&endpoint, through(forwarded))
                .await
                .starts_with("403"),
            "{forwarded}"
        );
    }
    let standard = |forwarded: &str| from("192.168.0.1").insert_header(("forwarded", forwarded));
    for forwarded in [
        "for=10.1.2.3",
        "for=unknown, FOR=10.1.2.3;proto=https, for=\"[::ffff:192.168.0.2]\"",
        "proto=https;for=\"10.1.2.3:51234\"",
    ] {
        assert_eq!(
            response_summary(&endpoint, standard(forwarded)).await,
            TAKEN,
            "{forwarded}"
        );
    }
    for forwarded in [
        "for=10.2.0.1",
        "for=10.1.2.3, for=10.2.0.1",
        "for=10.1.2.3, for=unknown",
        "for=10.1.2.3, for=_hidden",
        "for=10.1.2.3, proto=https",
        "for=10.1.2.3;for=10.1.2.4",
        "",
    ] {
        assert!(
            response_summary(&endpoint, standard(forwarded))
                .await
                .starts_with("403"),
            "{forwarded}"
        );
    }
    // The quote of a client must not hide what the proxy has appended.
    let quoted = "for=10.1.2.3;by=\", for=10.2.0.1";
    assert!(
        !response_summary(&endpoint, standard(quoted))
            .await
            .starts_with("200")
    );
    // A client can send the header that its proxy does not write.
    let both =
        |client: &str| through("10.1.2.3").insert_header(("forwarded", format!("for={client}")));
    assert_eq!(response_summary(&endpoint, both("10.1.2.3")).await, TAKEN);
    assert!(
        response_summary(&endpoint, both("10.1.2.4"))
            .await
            .starts_with("403")
    );
    check(&endpoint, from("192.168.0.1"), expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client (unknown) is rejected due to IpAddress filtering rules. …"#]]).await;
}

#[actix_web::test]
async fn behind_a_proxy_the_public_network_stays_closed() {
    let ingress = IngressSettings {
        public_network_access: PublicNetworkAccess::Disabled,
        ..rules(&[])
    };
    let trusted = AuthRules {
        trusted_proxies: vec!["10.0.0.1/32".parse().expect("a network")],
        ..AuthRules::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), trusted, &ingress);
    let with = |name: &'static str, value: &str| from("10.0.0.1").insert_header((name, value));
    for inside in ["10.0.0.9", "10.0.0.9:51234", "[fd00::1]:443"] {
        assert_eq!(
            response_summary(&endpoint, with("x-forwarded-for", inside)).await,
            TAKEN,
            "{inside}"
        );
    }
    assert_eq!(
        response_summary(&endpoint, with("forwarded", "for=\"[fd00::1]:443\"")).await,
        TAKEN
    );
    for outside in [
        "203.0.113.9",
        "203.0.113.9:51234",
        "[2001:db8::1]:443",
        "unknown",
        "",
        "203.0.113.9, _hidden",
    ] {
        assert!(
            response_summary(&endpoint, with("x-forwarded-for", outside))
                .await
                .starts_with("403"),
            "{outside}"
        );
    }
    for outside in [
        "for=203.0.113.9",
        "for=unknown",
        "for=\"[2001:db8::1]:443\"",
        "proto=https",
    ] {
        assert!(
            response_summary(&endpoint, with("forwarded", outside))
                .await
                .starts_with("403"),
            "{outside}"
        );
    }
    assert!(
        response_summary(&endpoint, from("10.0.0.1"))
            .await
            .starts_with("403")
    );
    let unreadable = HeaderValue::from_bytes(b"203.0.113.9\xff").expect("a value");
    assert!(
        response_summary(
            &endpoint,
            from("10.0.0.1").insert_header(("x-forwarded-for", unreadable))
        )
        .await
        .starts_with("403")
    );
}

#[actix_web::test]
async fn without_the_public_network_private_addresses_come_in() {
    let ingress = IngressSettings {
        public_network_access: PublicNetworkAccess::Disabled,
        ..rules(&["203.0.113.7"])
    };
    let endpoint = Endpoint::with(PublishLimits::default(), AuthRules::default(), &ingress);
    for address in [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "::1",
        "fd00::1",
        "fe80::1",
    ] {
        assert_eq!(
            response_summary(&endpoint, from(address)).await,
            TAKEN,
            "{address}"
        );
    }
    check(&endpoint, from("203.0.113.7"), expect![[r#"
        403
        Forbidden / Forbidden: Publishing to orders by client 203.0.113.7 is rejected as public network access is disabled for the resource. …"#]]).await;
}
