//! Delivery properties: the allowed ones.

use expect_test::expect;
use gridhook::{
    event::Schema,
    policy::property::{NAME_BYTES_MAX, PropertyError, VALUE_BYTES_MAX, check_name, check_value},
};

#[test]
fn property_names_are_valid_http_headers_and_not_reserved() {
    for name in [
        "Authorization",
        "X-My_Header.1",
        "x",
        "Prefer",
        "ce-id",
        "aegis",
        "User-Agent",
        &"n".repeat(NAME_BYTES_MAX),
    ] {
        assert_eq!(check_name(name, Schema::EventGrid), Ok(()), "{name}");
    }
    let reserved = [
        "aeg-anything",
        "AEG-Event-Type",
        "Host",
        "content-length",
        "Content-Type",
        "Transfer-Encoding",
        "CONNECTION",
        "te",
        "Trailer",
        "Upgrade",
        "Keep-Alive",
        "Proxy-Authorization",
        "proxy-connection",
        "Expect",
        "WebHook-Request-Origin",
    ];
    for name in reserved {
        let refused = check_name(name, Schema::EventGrid);
        assert!(
            matches!(refused, Err(PropertyError::Reserved { .. })),
            "{name}: {refused:?}"
        );
    }
    assert!(check_name("CE-Subject", Schema::CloudEvents).is_err());
    let malformed = [
        "",
        "a b",
        "a:b",
        "a\r\nb",
        "naïve",
        "a\0",
        &"n".repeat(NAME_BYTES_MAX + 1),
    ];
    for name in malformed {
        assert_eq!(
            check_name(name, Schema::EventGrid),
            Err(PropertyError::Name(name.to_owned()))
        );
    }
    let message = [
        check_name("aeg-x", Schema::EventGrid),
        check_name("ce-x", Schema::CloudEvents),
        check_name("webhook-x", Schema::EventGrid),
        check_name("Host", Schema::EventGrid),
        check_name("a\r\nb", Schema::EventGrid),
    ]
    .map(|refused| refused.expect_err("it is refused").to_string());
    expect![[r#"
        is "aeg-x", which is not allowed: names that begin with aeg- are Event Grid's own
        is "ce-x", which is not allowed: names that begin with ce- are attributes of a CloudEvent
        is "webhook-x", which is not allowed: names that begin with WebHook- are for the handshake with the endpoint
        is "Host", which is not allowed: it says how the request is transferred, which is decided for each request
        is "a\r\nb"; expected 1 to 128 letters, digits and any of !#$%&'*+-.^_`|~"#]]
    .assert_eq(&message.join("\n"));
}

#[test]
fn values_are_printable_and_not_too_long() {
    for value in [
        "x",
        "Bearer a.b+c/d==",
        "a  b",
        &"v".repeat(VALUE_BYTES_MAX),
    ] {
        assert_eq!(check_value(value), Ok(()), "{value}");
    }
    for value in ["a\r\nb: c", "a\tb", "a\0", "ü", "\u{7f}", " a", "a "] {
        assert_eq!(
            check_value(value),
            Err(PropertyError::Characters),
            "{value:?}"
        );
    }
    let longest = (1..=VALUE_BYTES_MAX + 8)
        .filter(|bytes| check_value(&"v".repeat(*bytes)).is_ok())
        .max();
    crate::spec::fact("S000-219", &serde_json::json!({"maxBytes": longest}));
    assert_eq!(check_value(""), Err(PropertyError::Length(0)));
    assert_eq!(
        check_value(&"v".repeat(VALUE_BYTES_MAX + 1)),
        Err(PropertyError::Length(VALUE_BYTES_MAX + 1))
    );
}
