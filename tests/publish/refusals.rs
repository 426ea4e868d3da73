//! Every response of the specification's table of errors, as a client sees it: status, codes, text.

use actix_web::{http::Method, test::TestRequest};
use expect_test::{Expect, expect};
use gridhook::{
    publish::{
        PublishLimits,
        auth::{AuthRules, RejectionCounts, host::ServerNames},
    },
    record::ingress::IngressSettings,
};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::{
    bearer::{Signer, bearer},
    http::{good, response_summary},
    sas::{VECTORS, signed},
};
use crate::support::publisher::{Endpoint, KEY};

const EVENT: &str =
    r#"[{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}]"#;

const CLOUD_EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#;

fn to(path: &str) -> TestRequest {
    TestRequest::post().uri(path).set_payload(EVENT)
}

fn bare() -> TestRequest {
    to("/topics/orders/api/events")
}

fn clouds(content_type: &str, body: &str) -> TestRequest {
    to("/topics/clouds/api/events")
        .insert_header(("aeg-sas-key", KEY))
        .insert_header(("content-type", content_type.to_owned()))
        .set_payload(body.to_owned())
}

/// A token for the topic `orders` as the test's client calls it.
fn token(expiry: &str) -> String {
    let resource: String =
        byte_serialize(b"http://localhost:8080/topics/orders/api/events?api-version=2018-01-01")
            .collect();
    signed(
        KEY,
        &resource,
        &byte_serialize(expiry.as_bytes()).collect::<String>(),
    )
}

async fn check(request: TestRequest, expected: Expect) {
    let endpoint = Endpoint::new(PublishLimits::default());
    expected.assert_eq(&response_summary(&endpoint, request).await);
    let taken = expected.data() == "200";
    assert_eq!(
        endpoint.stored(),
        u64::from(taken),
        "what is refused leaves nothing behind"
    );
}

#[actix_web::test]
async fn a_sas_token_comes_in_either_header() {
    let good = token("2030-01-02 03:04:05+00:00");
    check(
        bare().insert_header(("aeg-sas-token", good.clone())),
        expect!["200"],
    )
    .await;
    check(
        bare().insert_header(("authorization", format!("SharedAccessSignature {good}"))),
        expect!["200"],
    )
    .await;
    check(
        bare().insert_header(("Authorization", format!("sharedaccesssignature  {good}"))),
        expect!["200"],
    )
    .await;
    let by_label =
        to("http://orders.localhost/api/events").insert_header(("host", "orders.localhost"));
    let resource: String = byte_serialize(b"http://Orders.localhost/api/events").collect();
    let token = signed(KEY, &resource, "2030-01-02T03%3A04%3A05Z");
    check(
        by_label.insert_header(("aeg-sas-token", token)),
        expect!["200"],
    )
    .await;
}

#[actix_web::test]
async fn a_sas_token_may_name_the_public_address() {
    let names = ServerNames {
        public_url: Some("https://events.example.com/grid".parse().expect("a URL")),
        ..ServerNames::default()
    };
    let door = AuthRules {
        names,
        ..AuthRules::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), door, &IngressSettings::default());
    let resource: String =
        byte_serialize(b"https://events.example.com/grid/topics/orders/api/events").collect();
    let token = signed(KEY, &resource, "2030-01-02T03%3A04%3A05Z");
    assert_eq!(
        response_summary(&endpoint, bare().insert_header(("aeg-sas-token", token))).await,
        "200"
    );
}

#[actix_web::test]
async fn a_publisher_without_a_valid_credential_gets_the_reason() {
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
    check(bare().insert_header(("aeg-sas-key", "no base64!")), expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The input is not a valid Base-64 string as it contains a non-base 64 character, more than two padding characters, or an illegal character among the padding characters. …"#]]).await;
    check(
        bare().insert_header(("aeg-sas-token", token("3/10/2021 9:02:55 PM"))),
        expect![[r#"
        401
        Unauthorized / Unauthorized: The specified SAS token has expired for topic 'LOCALHOST:8080'. …"#]],
    )
    .await;
    check(bare().insert_header(("aeg-sas-token", VECTORS[0])), expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The SAS token is for another resource. …"#]]).await;
    let forged = token("2030-01-02T03:04:05Z").replace("2030", "2031");
    check(
        bare().insert_header(("aeg-sas-token", forged)),
        expect![[r#"
        401
        Unauthorized / Unauthorized: The specified SAS token signature is invalid for topic 'LOCALHOST:8080'. …"#]],
    )
    .await;
    check(
        bare().insert_header(("aeg-sas-token", "r=1&e=2")),
        expect![[r#"
        401
        Unauthorized / Unauthorized: The specified SAS token format is invalid for topic 'LOCALHOST:8080'. …"#]],
    )
    .await;
    check(
        bare().insert_header(("authorization", "SharedAccessSignature")),
        expect![[r#"
        401
        Unauthorized / Unauthorized: The specified SAS token format is invalid for topic 'LOCALHOST:8080'. …"#]],
    )
    .await;
    check(
        bare().insert_header(("authorization", "Bearer x")),
        expect![[r#"
        401
        Unauthorized / Unauthorized: Unable to read access token. …"#]],
    )
    .await;
    check(bare().insert_header(("authorization", "Basic x")), expect![[r#"
        401
        Unauthorized / Unauthorized: Request has an unsupported Authorization scheme (must be SharedAccessSignature or Bearer). …"#]]).await;
    // The first thing shown counts.
    let both = bare()
        .insert_header(("aeg-sas-key", "AAAA"))
        .insert_header(("aeg-sas-token", token("2030-01-02T03:04:05Z")));
    check(both, expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The key is not one of the topic's keys. …"#]]).await;
}

#[actix_web::test]
async fn access_tokens_come_in_where_there_is_an_issuer() {
    let signer = Signer::new();
    let door = || AuthRules {
        bearer: bearer(&signer),
        ..AuthRules::default()
    };
    let endpoint = Endpoint::with(
        PublishLimits::default(),
        door(),
        &IngressSettings::default(),
    );
    let sign = |exp: u64| {
        let claims =
            json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": exp});
        format!(
            "Bearer {}",
            signer.sign(Some("ec"), jsonwebtoken::Algorithm::ES256, &claims)
        )
    };
    assert_eq!(
        response_summary(
            &endpoint,
            bare().insert_header(("authorization", sign(1_615_410_177)))
        )
        .await,
        "200"
    );
    assert_eq!(
        response_summary(
            &endpoint,
            bare().insert_header(("authorization", "bearer swordfish"))
        )
        .await,
        "200"
    );
    expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: The access token has expired. …"#]].assert_eq(&response_summary(&endpoint, bare().insert_header(("authorization", sign(1_615_410_000)))).await);
    assert_eq!(
        endpoint.publisher.rejection_counts(),
        RejectionCounts {
            not_authorized: 1,
            ..RejectionCounts::default()
        }
    );

    // Where local authentication is disabled, they are all there is.
    let ingress = IngressSettings {
        disable_local_auth: true,
        ..IngressSettings::default()
    };
    let endpoint = Endpoint::with(PublishLimits::default(), door(), &ingress);
    assert_eq!(
        response_summary(
            &endpoint,
            bare().insert_header(("authorization", sign(1_615_410_177)))
        )
        .await,
        "200"
    );
    expect![[r#"
        401
        Unauthorized / Unauthorized: The request authorization key is not authorized for LOCALHOST:8080. This is due to the reason: Access keys and SAS tokens are disabled for the resource (disableLocalAuth). Use an access token. …"#]].assert_eq(&response_summary(&endpoint, good()).await);
    for local in [
        bare().insert_header(("aeg-sas-token", token("2030-01-02T03:04:05Z"))),
        bare().insert_header((
            "authorization",
            format!("SharedAccessSignature {}", token("2030-01-02T03:04:05Z")),
        )),
    ] {
        assert!(
            response_summary(&endpoint, local)
                .await
                .contains("disableLocalAuth")
        );
    }
    assert_eq!(
        endpoint.publisher.rejection_counts(),
        RejectionCounts {
            not_authorized: 3,
            ..RejectionCounts::default()
        }
    );
}

#[actix_web::test]
async fn the_error_for_an_event_names_the_rule_that_it_breaks() {
    let orders = |body: &str| good().set_payload(body.to_owned());
    for property in ["id", "eventType", "subject", "eventTime"] {
        let mut events: serde_json::Value = serde_json::from_str(EVENT).expect("it is JSON");
        events[0]
            .as_object_mut()
            .expect("an object")
            .remove(property);
        let endpoint = Endpoint::new(PublishLimits::default());
        assert_eq!(
            response_summary(&endpoint, orders(&events.to_string())).await,
            format!(
                "400\nBadRequest / InputJsonInvalid: This resource is configured for \
                 'EventGridEvent' schema and requires '{property}' property to be set. …"
            )
        );
    }
    let json = "application/json";
    check(clouds(json, r#"{"specversion":"1.0","id":"1","source":"/a"}"#), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured for 'CloudEventV10' schema and requires 'eventType' property to be set. …"#]]).await;
    check(orders(&EVENT.replace("\"id\"", "\"source\":\"x\",\"id\"")), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured to receive event in 'EventGridEvent' schema. Received unexpected property 'source' in JSON which does not conform to the expected schema. …"#]]).await;
    check(clouds(json, &format!("[{CLOUD_EVENT}]")), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured to receive event in 'CloudEventV10' schema. The JSON received does not conform to the expected schema. Token Expected: StartObject, Actual Token Received: StartArray. …"#]]).await;
    check(orders(CLOUD_EVENT), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured to receive event in 'EventGridEvent' schema. The JSON received does not conform to the expected schema. Token Expected: StartArray, Actual Token Received: StartObject. …"#]]).await;
    check(
        orders("[{"),
        expect![[r#"
        400
        BadRequest / InputJsonInvalid: Unexpected end when reading JSON. …"#]],
    )
    .await;
    check(orders("[]"), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured to receive event in 'EventGridEvent' schema. The JSON received does not conform to the expected schema. …"#]]).await;
    check(orders(&EVENT.replace("\"id\"", "\"topic\":\"/other\",\"id\"")), expect![[r#"
        401
        Unauthorized / Unauthorized: The 'topic' property of an event must be absent or '/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders'. …"#]]).await;
    check(clouds(json, "{}").insert_header(("ce-type", "T")), expect![[r#"
        400
        BadRequest / InvalidCloudEventHeader: ce-id header is missing for the cloud event. Please check required attributes at https://github.com/cloudevents/spec/blob/v1.0/spec.md#required-attributes …"#]]).await;
    check(clouds("application/cloudevents+json", CLOUD_EVENT).insert_header(("ce-id", "1")), expect![[r#"
        400
        BadRequest / InputJsonInvalid: Conflicting content mode: binary mode headers with structured mode content type. …"#]]).await;
    check(clouds("text/plain", CLOUD_EVENT), expect![[r#"
        415
        UnsupportedMediaType / InvalidContentType: The Content-Type header is either missing or it doesn't have a valid value. The content type header must either be application/cloudevents+json; charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8. …"#]]).await;
    check(
        clouds("text/plain", ""),
        expect![[r#"
        400
        BadRequest / InputJsonInvalid: Unexpected end when reading JSON. …"#]],
    )
    .await;
    check(clouds(json, CLOUD_EVENT), expect!["200"]).await;
    let binary = clouds(json, "{}")
        .insert_header(("ce-id", "1"))
        .insert_header(("ce-source", "/a"));
    check(
        binary
            .insert_header(("ce-type", "T"))
            .insert_header(("ce-specversion", "1.0")),
        expect!["200"],
    )
    .await;
    let custom = |body: &str| {
        to("/topics/custom/api/events")
            .insert_header(("aeg-sas-key", KEY))
            .set_payload(body.to_owned())
    };
    check(custom(r#"[{"ver":"1","any":"thing"}]"#), expect!["200"]).await;
    check(custom(r#"[{"any":"thing"}]"#), expect![[r#"
        400
        BadRequest / InputJsonInvalid: This resource is configured for 'CustomInputEvent' schema and requires 'ver' property to be set. …"#]]).await;
}

#[actix_web::test]
async fn accepted_data_is_kept_byte_for_byte() {
    let endpoint = Endpoint::new(PublishLimits::default());
    let data = r#"{ "n": 1.50, "big": 1e400, "u":"\u00e9" }"#;
    let binary = clouds("application/json", data)
        .insert_header(("ce-id", "%E2%82%AC"))
        .insert_header(("ce-type", "T"));
    let binary = binary
        .insert_header(("ce-source", "/a"))
        .insert_header(("ce-specversion", "1.0"));
    assert_eq!(response_summary(&endpoint, binary).await, "200");
    let events = endpoint.events();
    assert_eq!((events.len(), events[0].id().as_ref()), (1, "€"));
    assert!(
        String::from_utf8_lossy(&events[0].to_wire_bytes())
            .ends_with(&format!(r#","data":{data}}}"#))
    );
}

#[actix_web::test]
async fn a_body_that_is_too_large_is_refused_without_100_continue() {
    check(
        good().set_payload(vec![b' '; 1_536_001]),
        expect![[r#"
        413
        RequestEntityTooLarge / PayloadTooLarge: The maximum size (1536000) has been exceeded."#]],
    )
    .await;
    let padding = "x".repeat(1_049_600);
    check(
        good().set_payload(EVENT.replace("/s", &padding)),
        expect![[r#"
        413
        RequestEntityTooLarge / PayloadTooLarge: The maximum size (1049600) has been exceeded."#]],
    )
    .await;
    check(good().set_payload(format!("[{}0]", "0,".repeat(5_000))), expect![[r#"
        413
        RequestEntityTooLarge / PayloadTooLarge: The maximum number of events in a request (5000) has been exceeded."#]]).await;
}

#[actix_web::test]
async fn any_version_is_taken_that_is_written_like_one() {
    let with = |query: &str| {
        to(&format!("/topics/orders/api/events?{query}")).insert_header(("aeg-sas-key", KEY))
    };
    for good in [
        "",
        "api-version=",
        "API-Version=2018-01-01",
        "api-version=2023-06-01-PREVIEW",
        "api-version=2024-06-01",
        "api-version=2031-12-31",
        "api-version=2031-12-31-privatepreview2",
    ] {
        check(with(good), expect!["200"]).await;
    }
    check(with("api-version=2019-13-01"), expect![[r#"
        400
        BadRequest / UnsupportedApiVersion: The HTTP resource that matches the request URI 'http%3A%2F%2Flocalhost%3A8080%2Ftopics%2Forders%2Fapi%2Fevents' does not support the API version '2019-13-01'. Allowed is a date with an optional suffix, such as 2018-01-01 or 2023-06-01-preview, or no api-version. …"#]]).await;
    for bad in [
        "2019",
        "v1",
        "2019-01-01-",
        "2019-01-01preview",
        "2019-01-01-a-b",
        "2019-02-30",
        "20190101",
        "%2B019-01-01",
        "%C3%A9",
    ] {
        let refused = response_summary(
            &Endpoint::new(PublishLimits::default()),
            with(&format!("api-version={bad}")),
        )
        .await;
        assert!(
            refused.contains("UnsupportedApiVersion"),
            "{bad}: {refused}"
        );
    }
}

#[actix_web::test]
async fn a_topic_is_found_by_its_host_too() {
    let at = |host: &str, path: &str| {
        TestRequest::post()
            .uri(path)
            .insert_header(("host", host.to_owned()))
            .insert_header(("aeg-sas-key", KEY))
            .set_payload(EVENT)
    };
    check(
        at(
            "orders.westeurope-1.eventgrid.azure.net",
            "/api/events?api-version=2018-01-01",
        ),
        expect!["200"],
    )
    .await;
    check(at("ORDERS.localhost:8080", "/API/Events/"), expect!["200"]).await;
    check(at("nobody.localhost", "/api/events"), expect![[r#"
        404
        NotFound / ResourceNotFound: No HTTP resource was found that matches the request URI 'http%3A%2F%2Fnobody.localhost%2Fapi%2Fevents'. …"#]]).await;
    check(at("orders", "/api/events"), expect![[r#"
        404
        NotFound / ResourceNotFound: No HTTP resource was found that matches the request URI 'http%3A%2F%2Forders%2Fapi%2Fevents'. …"#]]).await;
    let options = at("orders.localhost", "/api/events").method(Method::OPTIONS);
    check(
        options,
        expect![[r#"
        200
        allow: POST, OPTIONS
        aeg-input-event-schema: EventGridEvent"#]],
    )
    .await;
    check(
        at("orders.localhost", "/api/events").method(Method::GET),
        expect![[r#"
        405
        allow: OPTIONS, POST
        MethodNotAllowed / MethodNotAllowed: . …"#]],
    )
    .await;
    let custom = at("custom.localhost", "/api/events").method(Method::OPTIONS);
    check(
        custom,
        expect![[r#"
        200
        allow: POST, OPTIONS
        aeg-input-event-schema: CustomInputEvent"#]],
    )
    .await;
}
