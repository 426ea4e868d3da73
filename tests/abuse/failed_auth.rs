//! Wrong keys: their refusals wait, for longer each time, and right keys never do.

use std::time::Duration;

use gridhook::{
    clock::Clock,
    event::Timestamp,
    publish::auth::failed_auth::{FailedAuthLimiter, FailedAuthLimits, counted_as},
};

use crate::support::{
    http::Client,
    load,
    server::{Server, events_path},
};

fn seconds(seconds: u64) -> Timestamp {
    Timestamp(1_000_000 * seconds)
}

fn patience() -> FailedAuthLimits {
    FailedAuthLimits {
        free: 3,
        addresses_max: 4,
        waiting_max: 2,
        ..FailedAuthLimits::default()
    }
}

#[actix_rt::test]
async fn each_failure_beyond_the_free_ones_waits_twice_as_long_up_to_a_bound() {
    let strangers = FailedAuthLimiter::new(
        FailedAuthLimits {
            waiting_max: 100,
            ..patience()
        },
        Vec::new(),
    );
    let address = "203.0.113.7".parse().expect("an address");
    let waits: Vec<u128> = (0..12)
        .map(|_| {
            strangers
                .record_failure(address, seconds(1))
                .wait
                .as_millis()
        })
        .collect();
    assert_eq!(
        waits,
        [0, 0, 0, 50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]
    );
    let other = "203.0.113.8".parse().expect("an address");
    assert_eq!(
        strangers.record_failure(other, seconds(1)).wait,
        Duration::ZERO,
        "another address begins anew"
    );
    assert_eq!(
        strangers.record_failure(address, seconds(60)).failures,
        13,
        "it is remembered for a minute"
    );
    assert_eq!(
        strangers.record_failure(address, seconds(120)).failures,
        1,
        "and no longer"
    );
}

#[actix_rt::test]
async fn the_table_and_what_waits_have_bounds() {
    let strangers = FailedAuthLimiter::new(patience(), Vec::new());
    for host in 0..100u8 {
        strangers.record_failure([203, 0, 113, host].into(), seconds(u64::from(host) / 10));
    }
    assert_eq!(strangers.tracked_addresses(), 4);
    let address = [203, 0, 113, 99].into();
    let held: Vec<_> = (0..6)
        .map(|_| strangers.record_failure(address, seconds(10)))
        .collect();
    let waiting = held.iter().filter(|held| !held.wait.is_zero()).count();
    assert_eq!(waiting, 2, "further ones go at once: {held:?}");
    drop(held);
    assert!(
        !strangers
            .record_failure(address, seconds(10))
            .wait
            .is_zero(),
        "their room is free again"
    );
}

#[test]
fn an_address_of_ipv6_is_counted_by_its_network() {
    let counted = |text: &str| counted_as(text.parse().expect(text)).to_string();
    assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(counted("::ffff:203.0.113.7"), "203.0.113.7");
}

#[test]
fn wrong_keys_and_tokens_wait_while_right_ones_do_not() {
    let server = Server::start(&[
        ("LIMITS__FAILED_KEYS", "3"),
        ("LIMITS__FAILED_KEYS_DELAY", "400ms"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let clock = Clock::system();
    let at = server.address();
    let timed = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let begun = clock.now();
        let status = Client::new(at)
            .ask(method, path, headers, body)
            .expect("a response")
            .status;
        (status, clock.now().since(begun))
    };
    let wrong = |path: &str, method: &str| {
        let answers: Vec<_> = (0..8)
            .map(|_| {
                timed(
                    method,
                    path,
                    &[("authorization", "Bearer wrong"), ("aeg-sas-key", "wrong")],
                    b"[]",
                )
            })
            .collect();
        assert!(
            answers.iter().all(|(status, _)| *status == 401),
            "{answers:?}"
        );
        answers.iter().map(|(_, took)| *took).sum::<Duration>()
    };
    let took = wrong(&events_path("orders"), "POST");
    assert!(
        took >= Duration::from_millis(50 + 100 + 200 + 400 + 400),
        "publishers' refusals took {took:?}"
    );
    // Both listeners share the failed-authentication limiter.
    let took = wrong("/providers/Microsoft.EventGrid/operations", "GET");
    assert!(
        took >= Duration::from_millis(8 * 400),
        "operators' refusals took {took:?}"
    );

    let body = load::body(&["1".to_owned()], "/a");
    let right: Vec<_> = (0..9)
        .map(|_| {
            timed(
                "POST",
                &events_path("orders"),
                &[("aeg-sas-key", &key)],
                &body,
            )
        })
        .collect();
    assert!(right.iter().all(|(status, _)| *status == 200), "{right:?}");
    let quickest = right.iter().map(|(_, took)| *took).min().expect("nine");
    assert!(
        quickest < Duration::from_millis(300),
        "a right key from the same address waits for nothing: {right:?}"
    );
    assert!(
        server
            .logs()
            .contains("refusals to this address are delayed"),
        "the operator is warned"
    );
}
