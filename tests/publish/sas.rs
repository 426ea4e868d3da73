//! SAS tokens: the vectors of the client libraries, and invalid tokens.

use expect_test::{Expect, expect};
use gridhook::{
    event::WallTime,
    publish::auth::sas::{SasResource, check_sas_token},
    record::topic::AccessKeys,
};
use proptest::prelude::*;
use ring::hmac;

use crate::support::publisher::{KEY, KEY2};

/// The tokens that Python (with and without a time zone) and JavaScript make for [`KEY`].
pub(super) const VECTORS: [&str; 3] = [
    "r=http%3A%2F%2F127.0.0.1%3A18080%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&e=2030-01-02%2003%3A04%3A05%2B00%3A00&s=Cp7%2BXcAJV8fQOtYkSu4vrsU4eXW3X8FjO3tDQQOUfKc%3D",
    "r=http%3A%2F%2F127.0.0.1%3A18080%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&e=2030-01-02%2003%3A04%3A05&s=IKEfh7Z7PshzKQiMvQyH7ncr4TOrc5sJdMSyuYSXIwE%3D",
    "r=http%3A%2F%2F127.0.0.1%3A18080%2Fapi%2Fevents%3FapiVersion%3D2018-01-01&e=1%2F2%2F2030%203%3A04%3A05%20PM&s=YNf%2B9f7C%2FLgz5ueIueq%2BSgdyCPA8OeqqapXCoIPXNZg%3D",
];

const RESOURCE: &str = "http://127.0.0.1:18080/api/events";

/// 2030-01-02T03:04:05Z
const EXPIRY: u64 = 1_893_553_445;

/// The vector of JavaScript says 3 PM, twelve hours later.
const HALF_A_DAY: u64 = 12 * 3_600;

fn keys() -> AccessKeys {
    AccessKeys {
        key1: KEY.to_owned(),
        key2: KEY2.to_owned(),
    }
}

fn seconds(seconds: u64) -> WallTime {
    WallTime(seconds * 1_000_000)
}

fn verdict(token: &str, resource: &str, now: WallTime) -> String {
    let resources: Vec<_> = SasResource::parse(resource).into_iter().collect();
    match check_sas_token(token.as_bytes(), &[&keys()], &resources, now) {
        Ok(()) => "good".to_owned(),
        Err(problem) => format!("{problem:?}"),
    }
}

/// A token with these parts as they stand, signed with a key.
pub(crate) fn signed(key: &str, resource: &str, expiry: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let unsigned = format!("r={resource}&e={expiry}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key).expect("base64"));
    let signature = STANDARD.encode(hmac::sign(&key, unsigned.as_bytes()));
    let signature: String = url::form_urlencoded::byte_serialize(signature.as_bytes()).collect();
    format!("{unsigned}&s={signature}")
}

#[test]
fn the_tokens_of_the_client_libraries_are_good_until_they_expire() {
    for (vector, expiry) in VECTORS
        .into_iter()
        .zip([EXPIRY, EXPIRY, EXPIRY + HALF_A_DAY])
    {
        assert_eq!(
            verdict(vector, RESOURCE, seconds(expiry - 1)),
            "good",
            "{vector}"
        );
        assert_eq!(
            verdict(vector, RESOURCE, seconds(expiry)),
            "Token(Expired)",
            "{vector}"
        );
    }
}

#[test]
fn every_way_to_write_an_expiry_is_read() {
    let resource = "http%3a%2f%2f127.0.0.1%3a18080%2fapi%2fevents%3fapi-version%3d2018-01-01";
    let at = |expiry: &str| {
        let token = signed(KEY, resource, expiry);
        [EXPIRY - 1, EXPIRY].map(|now| verdict(&token, RESOURCE, seconds(now)))
    };
    for expiry in [
        // .NET, with and without an offset
        "1%2f2%2f2030+3%3a04%3a05+AM",
        "1%2f2%2f2030+3%3a04%3a05+AM+%2b00%3a00",
        "1%2F2%2F2030+5%3A04%3A05+AM+%2B02%3A00",
        "01%2F02%2F2030+03%3A04%3A05+am",
        // JavaScript where ICU puts a narrow no-break space
        "1%2F2%2F2030%203%3A04%3A05%E2%80%AFAM",
        "1%2F2%2F2030%2C%203%3A04%3A05%20AM",
        // ISO 8601
        "2030-01-02T03%3A04%3A05Z",
        "2030-01-02T03%3A04%3A05",
        "2030-01-02T03:04:05.000000",
        "2030-01-01T22%3A04%3A05-05%3A00",
        "2030-01-02T05:04:05+02:00",
        "2030-01-02+03%3A04%3A05%2B00%3A00",
    ] {
        assert_eq!(at(expiry), ["good", "Token(Expired)"], "{expiry}");
    }
    for expiry in [
        "9999-12-31T23%3A59%3A59.9999999Z",
        "9999-12-31T23%3A59%3A59",
        "12%2f31%2f9999+11%3a59%3a59+PM+%2b00%3a00",
        "12%2f31%2f9999+11%3a59%3a59+PM",
    ] {
        assert_eq!(at(expiry), ["good", "good"], "{expiry}");
    }
    for expiry in [
        "2030-01-02T03:04:05+24:00",
        "1%2f2%2f2030+3%3a04%3a05+AM+%2b25%3a00",
    ] {
        assert_eq!(at(expiry), ["Token(Format)", "Token(Format)"], "{expiry}");
    }
    for expiry in [
        "",
        "tomorrow",
        "1893553445",
        "13%2F40%2F2030+3%3A04%3A05+AM",
        "2030-01-02T03:04:05Z[UTC]",
        "%ff",
    ] {
        assert_eq!(at(expiry), ["Token(Format)", "Token(Format)"], "{expiry}");
    }
}

#[test]
fn both_keys_sign_and_no_other() {
    let resource = "http%3A%2F%2F127.0.0.1%3A18080";
    let expiry = "2030-01-02T03%3A04%3A05Z";
    assert_eq!(
        verdict(&signed(KEY2, resource, expiry), RESOURCE, seconds(0)),
        "good"
    );
    let other = signed("AAAA", resource, expiry);
    assert_eq!(verdict(&other, RESOURCE, seconds(0)), "Token(Signature)");
    // A topic whose keys are gone has none that an empty one would fit.
    let resources = [SasResource::parse(RESOURCE).expect("an address")];
    let none = AccessKeys {
        key1: String::new(),
        key2: String::new(),
    };
    assert!(
        check_sas_token(
            signed("", resource, expiry).as_bytes(),
            &[&none],
            &resources,
            seconds(0)
        )
        .is_err()
    );
}

#[test]
fn a_token_is_for_its_resource_and_what_lies_below_it() {
    let check = |resource: &str, expected: Expect| {
        let encoded: String = url::form_urlencoded::byte_serialize(resource.as_bytes()).collect();
        let token = signed(KEY, &encoded, "2030-01-02T03%3A04%3A05Z");
        expected.assert_eq(&verdict(
            &token,
            "http://h.example:81/topics/orders/api/events",
            seconds(0),
        ));
    };
    check(
        "http://h.example:81/topics/orders/api/events",
        expect!["good"],
    );
    check(
        "HTTP://H.Example:81/Topics/ORDERS/api/events/?x=1",
        expect!["good"],
    );
    check("http://h.example:81/topics/orders", expect!["good"]);
    check("http://h.example:81/topics/orders/", expect!["good"]);
    check("http://h.example:81", expect!["good"]);
    check("http://h.example:81/topics/ord", expect!["Resource"]);
    check(
        "http://h.example:81/topics/other/api/events",
        expect!["Resource"],
    );
    check(
        "http://h.example:81/topics/orders/api/events/more",
        expect!["Resource"],
    );
    check("http://h.example/topics/orders", expect!["Resource"]);
    check("https://h.example:81/topics/orders", expect!["Resource"]);
    check("http://other.example:81/topics/orders", expect!["Resource"]);
    check("orders", expect!["Token(Format)"]);
    check("", expect!["Token(Format)"]);
}

#[test]
fn an_invalid_token_is_refused() {
    for token in [
        "",
        "r=1",
        "r=1&e=2",
        "r=1&e=2&s=",
        "e=2&r=1&s=AAAA",
        "r=1&x=1&e=2&s=AAAA",
        "r=1&e=2&s=!",
        "r=1&e=2&s=%ff",
    ] {
        let verdict = verdict(token, RESOURCE, seconds(0));
        assert!(
            matches!(verdict.as_str(), "Token(Format)" | "Token(Signature)"),
            "{token}: {verdict}"
        );
    }
    let long = format!("{}{}", VECTORS[0], "A".repeat(10_000));
    assert_eq!(verdict(&long, RESOURCE, seconds(0)), "Token(Format)");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_token_with_a_character_changed_is_worth_nothing(
        which in 0usize..3,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let token = VECTORS[which].as_bytes();
        let mut changed = token.to_vec();
        let at = at.index(token.len());
        changed[at] = byte;
        let resources = [SasResource::parse(RESOURCE).expect("an address")];
        // Hexadecimal digits of another case are the same, and so is a space, which is what a plus
        // becomes in a form.
        let decoded = |token: &[u8]| -> Vec<u8> {
            percent_encoding::percent_decode(token).map(|byte| if byte == b' ' { b'+' } else { byte }).collect()
        };
        let same = decoded(&changed) == decoded(token);
        let good = check_sas_token(&changed, &[&keys()], &resources, seconds(0)).is_ok();
        prop_assert!(!good || same, "{}", String::from_utf8_lossy(&changed));
    }

    #[test]
    fn any_bytes_are_answered(token in prop::collection::vec(any::<u8>(), 0..200), parts in "[re=&s%+A-Za-z0-9/: ]{0,80}") {
        let resources = [SasResource::parse(RESOURCE).expect("an address")];
        prop_assert!(check_sas_token(&token, &[&keys()], &resources, seconds(0)).is_err());
        prop_assert!(check_sas_token(parts.as_bytes(), &[&keys()], &resources, seconds(0)).is_err());
        // Even if the signature is valid.
        let nonsense: String = url::form_urlencoded::byte_serialize(&token).collect();
        let nonsense = signed(KEY, &nonsense, &nonsense);
        prop_assert!(check_sas_token(nonsense.as_bytes(), &[&keys()], &resources, seconds(0)).is_err());
    }
}
