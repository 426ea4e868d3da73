//! The responses of an endpoint to the handshake.

use std::num::NonZeroU32;

use expect_test::expect;
use gridhook::{
    event::{Schema, Timestamp},
    policy::validation::{
        Handshake, ValidationResponse, ValidationResult, is_over, judge_code, judge_permission,
        parse_rate,
    },
};

const CODE: &str = "512D38B6-C7B8-40C8-89FE-F46F9E9622B6";

fn describe(verdict: &ValidationResult) -> String {
    match verdict {
        ValidationResult::Granted(None) => "granted".to_owned(),
        ValidationResult::Granted(Some(rate)) => format!("granted, {rate} a minute"),
        ValidationResult::Manual => "manual".to_owned(),
        ValidationResult::Refused(cause) => format!("{}: {cause}", cause.code()),
    }
}

#[test]
fn only_the_code_that_was_sent_is_a_yes_and_another_one_is_a_no() {
    let judge = |status: u16, body: String| {
        let received = ValidationResponse {
            status,
            body: body.clone().into(),
            ..ValidationResponse::default()
        };
        format!(
            "{status} {body}\n    {}",
            describe(&judge_code(CODE, &received))
        )
    };
    let lines = [
        judge(200, format!(r#"{{"validationResponse":"{CODE}"}}"#)),
        judge(
            200,
            format!(r#" {{"other": 1, "ValidationResponse": "{CODE}"}} "#),
        ),
        judge(
            200,
            format!(r#"{{"validationResponse":"{}"}}"#, CODE.to_lowercase()),
        ),
        judge(
            200,
            format!("\u{feff}{{\"validationResponse\":\"{CODE}\"}}"),
        )
        .replace('\u{feff}', "(BOM)"),
        judge(200, r#"{"validationResponse":null}"#.to_owned()),
        judge(200, String::new()),
        judge(200, "OK".to_owned()),
        judge(200, "[]".to_owned()),
        judge(202, format!(r#"{{"validationResponse":"{CODE}"}}"#)),
        judge(204, String::new()),
        judge(302, String::new()),
        judge(404, String::new()),
    ];
    expect![[r#"
        200 {"validationResponse":"512D38B6-C7B8-40C8-89FE-F46F9E9622B6"}
            granted
        200  {"other": 1, "ValidationResponse": "512D38B6-C7B8-40C8-89FE-F46F9E9622B6"} 
            granted
        200 {"validationResponse":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}
            WrongValidationResponse: validationResponse is not the validationCode that was sent
        200 (BOM){"validationResponse":"512D38B6-C7B8-40C8-89FE-F46F9E9622B6"}
            granted
        200 {"validationResponse":null}
            WrongValidationResponse: validationResponse is not the validationCode that was sent
        200 
            manual
        200 OK
            manual
        200 []
            manual
        202 {"validationResponse":"512D38B6-C7B8-40C8-89FE-F46F9E9622B6"}
            UnexpectedStatus: the endpoint returned 202; expected 200 with {"validationResponse": the validationCode} as its body
        204 
            UnexpectedStatus: the endpoint returned 204; expected 200 with {"validationResponse": the validationCode} as its body
        302 
            UnexpectedStatus: the endpoint returned 302; expected 200 with {"validationResponse": the validationCode} as its body
        404 
            UnexpectedStatus: the endpoint returned 404; expected 200 with {"validationResponse": the validationCode} as its body"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_permission_is_for_an_origin_and_a_rate_and_its_status_does_not_matter() {
    let judge = |status: u16, origin: Option<&str>, rate: Option<&str>| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let received = ValidationResponse {
            status,
            allowed_origin: text(origin),
            allowed_rate: text(rate),
            ..ValidationResponse::default()
        };
        format!(
            "{status} {origin:?} {rate:?}: {}",
            describe(&judge_permission("eventgrid.azure.net", &received))
        )
    };
    let lines = [
        judge(200, Some("eventgrid.azure.net"), Some("120")),
        judge(200, Some("EventGrid.Azure.Net"), Some("*")),
        judge(200, Some("*"), None),
        judge(404, Some("*"), Some(" 60 ")),
        judge(200, Some("elsewhere.example"), Some("*")),
        judge(200, Some(""), Some("*")),
        judge(200, Some("*"), Some("0")),
        judge(200, Some("*"), Some("fast\u{1b}")),
        judge(200, None, None),
        judge(204, None, Some("*")),
        judge(405, None, None),
        judge(500, None, None),
    ];
    expect![[r#"
        200 Some("eventgrid.azure.net") Some("120"): granted, 120 a minute
        200 Some("EventGrid.Azure.Net") Some("*"): granted
        200 Some("*") None: granted
        404 Some("*") Some(" 60 "): granted, 60 a minute
        200 Some("elsewhere.example") Some("*"): OriginNotAllowed: WebHook-Allowed-Origin is "elsewhere.example"; expected the origin that was asked for, or *
        200 Some("") Some("*"): OriginNotAllowed: WebHook-Allowed-Origin is ""; expected the origin that was asked for, or *
        200 Some("*") Some("0"): RateNotUnderstood: WebHook-Allowed-Rate is "0"; expected a whole number of requests per minute, 1 or more, or *
        200 Some("*") Some("fast\u{1b}"): RateNotUnderstood: WebHook-Allowed-Rate is "fast\u{1b}"; expected a whole number of requests per minute, 1 or more, or *
        200 None None: manual
        204 None Some("*"): manual
        405 None None: UnexpectedStatus: the endpoint returned 405; expected a response to OPTIONS with WebHook-Allowed-Origin, or 2xx without it for manual validation
        500 None None: UnexpectedStatus: the endpoint returned 500; expected a response to OPTIONS with WebHook-Allowed-Origin, or 2xx without it for manual validation"#]]
    .assert_eq(&lines.join("\n"));
    assert_eq!(parse_rate(Some("7")), Ok(NonZeroU32::new(7)));
    assert_eq!(parse_rate(Some("99999999999")), Ok(Some(NonZeroU32::MAX)));
}

#[test]
fn a_long_header_is_not_repeated_whole() {
    let received = ValidationResponse {
        status: 200,
        allowed_origin: Some("x".repeat(4_000)),
        ..ValidationResponse::default()
    };
    let ValidationResult::Refused(cause) = judge_permission("eventgrid.azure.net", &received)
    else {
        panic!("it is refused")
    };
    assert!(cause.to_string().len() < 300, "{cause}");
}

#[test]
fn the_handshake_is_that_of_the_delivery_schema_and_the_manual_way_ends_on_the_moment() {
    let methods = [Schema::EventGrid, Schema::Custom, Schema::CloudEvents]
        .map(|schema| Handshake::for_schema(schema).http_method());
    assert_eq!(methods, ["POST", "POST", "OPTIONS"]);
    let until = Timestamp(1_000);
    assert_eq!(
        [999, 1_000, 1_001].map(|now| is_over(until, Timestamp(now))),
        [false, true, true]
    );
}
