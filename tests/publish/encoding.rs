//! Compressed requests: accepted and refused encodings, and the memory that a bomb may reserve.

use std::io::Write;

use actix_web::test::TestRequest;
use expect_test::{Expect, expect};
use flate2::{Compression, write::GzEncoder};
use gridhook::publish::PublishLimits;
use proptest::prelude::*;

use super::http::{good, response_summary};
use crate::support::publisher::Endpoint;

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 0).expect("memory")
}

fn events(count: usize) -> Vec<u8> {
    let event = r#"{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}"#;
    format!("[{}]", vec![event; count].join(",")).into_bytes()
}

fn encoded(encoding: &'static str, body: Vec<u8>) -> TestRequest {
    good()
        .insert_header(("content-encoding", encoding))
        .set_payload(body)
}

async fn check(request: TestRequest, stored: u64, expected: Expect) {
    let endpoint = Endpoint::new(PublishLimits::default());
    expected.assert_eq(&response_summary(&endpoint, request).await);
    assert_eq!(endpoint.stored(), stored);
    if stored == 0 {
        assert_eq!(
            endpoint.publisher.bytes_in_flight().0,
            0,
            "what was reserved is free again"
        );
    }
}

#[actix_web::test]
async fn gzip_and_zstd_are_decoded() {
    check(encoded("gzip", gzip(&events(100))), 100, expect!["200"]).await;
    check(encoded("GZIP", gzip(&events(1))), 1, expect!["200"]).await;
    check(encoded("x-gzip", gzip(&events(1))), 1, expect!["200"]).await;
    check(encoded("zstd", zstd(&events(100))), 100, expect!["200"]).await;
    let front = events(2);
    let back = events(2);
    let front = &front[..50];
    let back = &back[50..];
    check(
        encoded("gzip", [gzip(front), gzip(back)].concat()),
        2,
        expect!["200"],
    )
    .await;
    check(
        encoded("zstd", [zstd(front), zstd(back)].concat()),
        2,
        expect!["200"],
    )
    .await;
    let endpoint = Endpoint::new(PublishLimits::default());
    assert_eq!(
        response_summary(&endpoint, encoded("gzip", gzip(&events(1)))).await,
        "200"
    );
    let plain = Endpoint::new(PublishLimits::default());
    assert_eq!(
        response_summary(&plain, good().set_payload(events(1))).await,
        "200"
    );
    let text = |endpoint: &Endpoint| format!("{:?}", endpoint.events());
    assert_eq!(text(&endpoint), text(&plain));
}

#[actix_web::test]
async fn an_unknown_encoding_is_refused_with_those_that_are_known() {
    for encoding in ["br", "deflate", "gzip, gzip", "gzip, identity", "gzip zstd"] {
        check(encoded(encoding, gzip(&events(1))), 0, expect![[r#"
            415
            accept-encoding: gzip, zstd
            UnsupportedMediaType / InvalidContentEncoding: The Content-Encoding header must be absent, 'identity', 'gzip' or 'zstd', and name one encoding only. …"#]]).await;
    }
    let twice =
        encoded("gzip", gzip(&gzip(&events(1)))).append_header(("content-encoding", "gzip"));
    assert!(
        response_summary(&Endpoint::new(PublishLimits::default()), twice)
            .await
            .starts_with("415")
    );
}

#[actix_web::test]
async fn a_body_that_is_not_what_its_headers_say_is_refused() {
    check(encoded("gzip", events(1)), 0, expect![[r#"
        400
        BadRequest / InvalidContentEncoding: The body could not be decoded as gzip, which its Content-Encoding header names. …"#]]).await;
    check(encoded("zstd", gzip(&events(1))), 0, expect![[r#"
        400
        BadRequest / InvalidContentEncoding: The body could not be decoded as zstd, which its Content-Encoding header names. …"#]]).await;
    check(encoded("gzip", Vec::new()), 0, expect![[r#"
        400
        BadRequest / InvalidContentEncoding: The body could not be decoded as gzip, which its Content-Encoding header names. …"#]]).await;
}

#[actix_web::test]
async fn the_size_of_a_request_is_its_decoded_size() {
    let limits = PublishLimits {
        request_bytes_max: 1_000,
        ..PublishLimits::default()
    };
    let mut body = events(1);
    body.resize(1_000, b' ');
    for encode in [gzip, zstd] {
        let encoding = if encode(b"").starts_with(&[0x1f]) {
            "gzip"
        } else {
            "zstd"
        };
        let endpoint = Endpoint::new(limits);
        assert_eq!(
            response_summary(&endpoint, encoded(encoding, encode(&body))).await,
            "200"
        );
        let mut longer = body.clone();
        longer.push(b' ');
        assert!(
            response_summary(&endpoint, encoded(encoding, encode(&longer)))
                .await
                .starts_with("413")
        );
    }
}

#[actix_web::test]
async fn a_bomb_reserves_no_more_than_the_largest_request() {
    let bomb = vec![b' '; 256 << 20];
    for (encoding, body) in [("gzip", gzip(&bomb)), ("zstd", zstd(&bomb))] {
        assert!(body.len() < 1 << 20, "{encoding}: {}", body.len());
        // Room for one decoded request and its compressed form. What goes beyond is refused with
        // 503 instead.
        let room = PublishLimits::default().request_bytes_max + body.len() + 1;
        let limits = PublishLimits {
            admitted_bytes_max: room,
            ..PublishLimits::default()
        };
        let endpoint = Endpoint::new(limits);
        let refused = response_summary(&endpoint, encoded(encoding, body)).await;
        assert!(refused.starts_with("413"), "{encoding}: {refused}");
        assert_eq!(endpoint.publisher.bytes_in_flight().0, 0);
    }
}

/// A frame whose window is larger than RFC 9659 allows would make the decoder allocate that window.
#[actix_web::test]
async fn a_zstd_window_beyond_8_mb_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory");
    encoder.window_log(24).expect("a window");
    encoder.write_all(&events(1)).expect("memory");
    let body = encoder.finish().expect("memory");
    assert!(
        response_summary(
            &Endpoint::new(PublishLimits::default()),
            encoded("zstd", body)
        )
        .await
        .starts_with("400")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A body that was cut or changed is refused, or is the same events: both formats have a
    /// checksum or are JSON.
    #[test]
    fn a_damaged_body_stores_all_of_its_events_or_none(is_gzip: bool, cut: bool, at: prop::sample::Index, bit in 0_u8..8) {
        let mut body = if is_gzip { gzip(&events(3)) } else { zstd(&events(3)) };
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] ^= 1 << bit }
        let stored = actix_web::rt::System::new().block_on(async {
            let endpoint = Endpoint::new(PublishLimits::default());
            let encoding = if is_gzip { "gzip" } else { "zstd" };
            let answered = response_summary(&endpoint, encoded(encoding, body)).await;
            (endpoint.stored(), answered)
        });
        prop_assert!(matches!(&stored, (3, answered) if answered == "200") || stored.0 == 0 && stored.1.starts_with('4'), "{stored:?}");
    }
}
