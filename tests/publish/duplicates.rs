//! Duplicate detection at the endpoint: what identifies an event in each schema, and that a
//! duplicate is acknowledged.

use actix_web::test::TestRequest;
use gridhook::{
    publish::{PublishLimits, auth::AuthRules},
    record::ingress::IngressSettings,
};

use super::http::response_summary;
use crate::support::publisher::{Endpoint, KEY};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";
const JSON: &str = "application/json";

fn event_grid(id: &str, rest: &str) -> String {
    format!(
        r#"{{"id":"{id}","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"{rest}}}"#
    )
}

fn cloud(source: &str, id: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","type":"T","data":[{{"source":"no"}}],"source":"{source}","id":"{id}"}}"#
    )
}

#[actix_web::test]
async fn the_id_identifies_an_event_with_its_source_or_domain_topic() {
    let custom = |members: &str| format!(r#"[{{"myEventTypeField":"T","ver":"1"{members}}}]"#);
    let orders = "/topics/orders/api/events";
    let clouds = "/topics/clouds/api/events";
    let all = |events: &[String]| format!("[{}]", events.join(","));
    // The requests, and the number of events that are stored in the end.
    let rows: [(&str, &str, [String; 2], u64); 11] = [
        (
            orders,
            JSON,
            [
                all(&[event_grid("1", "")]),
                all(&[event_grid("1", r#","data":7"#)]),
            ],
            1,
        ),
        (
            orders,
            JSON,
            [
                all(&[event_grid("1", "")]),
                all(&[event_grid("\\u0031", "")]),
            ],
            1,
        ),
        (
            orders,
            JSON,
            [all(&[event_grid("a", "")]), all(&[event_grid("A", "")])],
            2,
        ),
        (
            orders,
            JSON,
            [
                all(&[event_grid("1", ""), event_grid("1", "")]),
                all(&[event_grid("2", "")]),
            ],
            2,
        ),
        (clouds, STRUCTURED, [cloud("/s", "1"), cloud("/s", "1")], 1),
        (clouds, STRUCTURED, [cloud("/s", "1"), cloud("/t", "1")], 2),
        (
            clouds,
            STRUCTURED,
            [cloud("/s", "11"), cloud("/s1", "1")],
            2,
        ),
        (
            clouds,
            BATCH,
            [
                all(&[cloud("/s", "1"), cloud("\\/s", "2")]),
                all(&[cloud("\\/s", "1"), cloud("/s", "2")]),
            ],
            2,
        ),
        (
            "/topics/custom/api/events",
            JSON,
            [
                custom(r#","eventId":"1""#),
                custom(r#","eventId":"1","x":1"#),
            ],
            1,
        ),
        (
            "/topics/custom/api/events",
            JSON,
            [custom(""), custom("")],
            2,
        ),
        (
            "/domains/shop/api/events",
            JSON,
            [
                all(&[
                    event_grid("1", r#","topic":"a""#),
                    event_grid("1", r#","topic":"b""#),
                ]),
                all(&[
                    event_grid("1", r#","topic":"a""#),
                    event_grid("1", r#","topic":"c""#),
                ]),
            ],
            3,
        ),
    ];
    let ingress = IngressSettings {
        duplicate_window_s: Some(20),
        ..IngressSettings::default()
    };
    for (path, content_type, bodies, stored) in rows {
        let endpoint = Endpoint::with(PublishLimits::default(), AuthRules::default(), &ingress);
        for body in &bodies {
            let request = TestRequest::post().uri(path).set_payload(body.clone());
            let request = request
                .insert_header(("content-type", content_type))
                .insert_header(("aeg-sas-key", KEY));
            assert_eq!(
                response_summary(&endpoint, request).await,
                "200",
                "{path} {body}"
            );
        }
        assert_eq!(endpoint.stored(), stored, "{path} {bodies:?}");
    }
}

#[actix_web::test]
async fn a_structured_and_a_binary_copy_are_duplicates() {
    let ingress = IngressSettings {
        duplicate_window_s: Some(20),
        ..IngressSettings::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), AuthRules::default(), &ingress);
    let post = || {
        TestRequest::post()
            .uri("/topics/clouds/api/events")
            .insert_header(("aeg-sas-key", KEY))
    };
    let structured = post()
        .insert_header(("content-type", STRUCTURED))
        .set_payload(cloud("/s", "1"));
    assert_eq!(response_summary(&endpoint, structured).await, "200");
    for (id, stored) in [("1", 1), ("2", 2)] {
        let mut binary = post()
            .insert_header(("content-type", JSON))
            .set_payload("{}");
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-type", "T"),
            ("ce-source", "/s"),
            ("ce-id", id),
        ] {
            binary = binary.insert_header((name, value));
        }
        assert_eq!(response_summary(&endpoint, binary).await, "200");
        assert_eq!(endpoint.stored(), stored);
    }
}
