//! Valid events and tokens with changes: an accepted event is whole, a refusal has a known code.
//! `make fuzz` runs the long form.

use actix_web::web::Bytes;
use gridhook::record::token::{ScopedResource, TokenRole};
use gridhook::{
    control::catalogue::Catalogue,
    deliver::convert::convert_event,
    event::{Event, Schema, WallTime},
    publish::{
        PublishLimits, Refusal,
        auth::sas,
        schema::{self, EventTarget, Nonconforming, RequestContent},
    },
    record::{ingress::SchemaValidation, topic::AccessKeys},
};
use jsonwebtoken::Algorithm;
use proptest::{prelude::*, sample::Index};
use serde_json::{json, value::RawValue};

use super::{
    bearer::{Signer, bearer},
    decode, read,
    sas::VECTORS,
    shown,
};
use crate::support::{
    fuzz::{cases, changed, changes},
    publisher::{KEY, KEY2, domain, topic},
};

/// Replacements for another value.
const VALUES: [&str; 26] = [
    "null",
    "true",
    "0",
    "-0",
    "1e400",
    "-1e-400",
    "18446744073709551616",
    "0.1e1",
    "\"\"",
    "\"a\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\\"\"",
    "\"\r\"",
    "\"\u{0}\"",
    "[]",
    "{}",
    "[[]]",
    "{\"a\":{}}",
    "{\"id\":1}",
    "\"2026-11-20T17:18:13Z\"",
    "\"1.0\"",
    "\"/subscriptions/s\"",
    "nul",
    "\"\u{10ffff}\"",
];

/// Pieces of JSON, and text that resembles it.
const PIECES: [&str; 42] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "\n",
    "\t",
    "\u{b}",
    "\"a\"",
    "\"\"",
    "\"a\":",
    "\"\\u00e9\"",
    "\"\\u00g9\"",
    "\"\\u00e\"",
    "\"\\x\"",
    "\"\\/\"",
    "\"",
    "\\",
    "0",
    "-0",
    "-",
    "1",
    "01",
    "1.",
    ".5",
    "1.5e3",
    "1e",
    "1E+2",
    "1e-",
    "true",
    "false",
    "null",
    "tru",
    "nulll",
];

/// Characters that are allowed in a string, and others.
const ODD: [&str; 12] = [
    "", "\"", "\\", "\\\"", "\\\\", "\\u12aF", "\\u12", "\\b", "\u{0}", "\u{1f}", "\u{7f}", "\n",
];

const NAMES: [&str; 16] = [
    "id",
    "ID",
    "eventType",
    "eventTime",
    "subject",
    "data",
    "data_base64",
    "dataVersion",
    "metadataVersion",
    "topic",
    "source",
    "specversion",
    "type",
    "time",
    "",
    "\\u0069d",
];

/// The members of a valid event.
fn members(schema: Schema) -> Vec<(String, String)> {
    let grid = [
        ("id", "\"1\""),
        ("eventType", "\"T\""),
        ("subject", "\"/a\""),
        ("eventTime", "\"2026-11-20T17:18:13Z\""),
        ("dataVersion", "\"1\""),
        ("data", "{ \"a\" : 1.0 }"),
    ];
    let cloud = [
        ("specversion", "\"1.0\""),
        ("id", "\"1\""),
        ("source", "\"/a\""),
        ("type", "\"T\""),
        ("time", "\"2026-11-20T17:18:13Z\""),
        ("data", "[ 1, 2 ]"),
    ];
    let custom = [
        ("eventId", "\"1\""),
        ("myEventTypeField", "\"T\""),
        ("when", "\"2026-11-20T17:18:13Z\""),
        ("ver", "\"1\""),
        ("path", "\"/a\""),
        ("more", "{ \"a\" : 1.0 }"),
    ];
    let members = match schema {
        Schema::EventGrid => grid,
        Schema::CloudEvents => cloud,
        Schema::Custom => custom,
    };
    members
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

#[derive(Clone, Debug)]
enum Twist {
    Value(Index, Index),
    Name(Index, Index),
    Remove(Index),
    Repeat(Index),
}

fn twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        4 => (any::<Index>(), any::<Index>()).prop_map(|(at, value)| Twist::Value(at, value)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(at, name)| Twist::Name(at, name)),
        1 => any::<Index>().prop_map(Twist::Remove),
        1 => any::<Index>().prop_map(Twist::Repeat),
    ]
}

fn twisted(schema: Schema, twists: &[Twist]) -> String {
    let mut members = members(schema);
    for twist in twists {
        let count = members.len();
        match twist {
            _ if count == 0 => {}
            Twist::Value(at, value) => {
                members[at.index(count)].1 = VALUES[value.index(VALUES.len())].to_owned()
            }
            Twist::Name(at, name) => {
                members[at.index(count)].0 = NAMES[name.index(NAMES.len())].to_owned()
            }
            Twist::Remove(at) => drop(members.remove(at.index(count))),
            Twist::Repeat(at) => members.push(members[at.index(count)].clone()),
        }
    }
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn take(schema: Schema, body: &[u8]) -> Result<Vec<Event>, Refusal> {
    let content_type = match schema {
        Schema::EventGrid | Schema::Custom => "application/json",
        Schema::CloudEvents => "application/cloudevents-batch+json",
    };
    read(schema, content_type, body, &PublishLimits::default())
}

fn read_for(
    target: &EventTarget,
    content_type: &str,
    body: &[u8],
    limits: &PublishLimits,
) -> Result<Vec<Event>, Refusal> {
    let content = RequestContent {
        content_type: Some(content_type),
        attributes: Vec::new(),
    };
    schema::read_events(target, &content, &Bytes::copy_from_slice(body), limits).map(decode)
}

/// Reads an event in binary mode with this data.
fn read_binary(data: &[u8]) -> Result<Vec<Event>, Refusal> {
    let target = EventTarget::for_topic(&topic("orders", Schema::CloudEvents));
    let attributes: [(&str, &[u8]); 4] = [
        ("specversion", b"1.0"),
        ("id", b"1"),
        ("source", b"/a"),
        ("type", b"T"),
    ];
    let content = RequestContent {
        content_type: Some("application/json"),
        attributes: attributes.to_vec(),
    };
    let body = Bytes::copy_from_slice(data);
    schema::read_events(&target, &content, &body, &PublishLimits::default()).map(decode)
}

/// The readers of events of a schema: a topic, a domain, and topics that note or refuse data of
/// another form.
fn targets_of_one_pass(schema: Schema) -> Vec<EventTarget> {
    let wanted = json!({"type": "object", "required": ["a"]});
    let types = json!({
        "kind": "Inline",
        "inlineEventTypes": {"T": {"versions": {"1": {"schema": wanted}}}, "a": {"versions": {"1": {"schema": wanted}}}},
    });
    let checking = |mode| {
        let mut record = topic("orders", schema);
        record.ingress.schema_validation = mode;
        record.azure_properties.event_type_info =
            Some(serde_json::from_value(types.clone()).expect("event types"));
        EventTarget::for_topic(&record)
            .with_catalogue(Catalogue::from_topic(&record).map(Into::into))
    };
    let plain = [topic("orders", schema), domain("shop", schema)];
    let plain = plain.iter().map(EventTarget::for_topic);
    plain
        .chain([
            checking(SchemaValidation::Warn),
            checking(SchemaValidation::Refuse),
        ])
        .collect()
}

/// The results of the checks of data.
fn shown_checks(checked: Result<Option<Nonconforming>, Refusal>) -> String {
    format!("{checked:?}")
}

/// One pass over a body accepts no more than two looks, and makes the same of it.
fn compare_passes(schema: Schema, content_type: &str, body: &[u8]) -> Result<(), TestCaseError> {
    // A body that may have too large an event is not read in one pass. No event is as large as the
    // whole body with its end.
    let body = [body, b" "].concat();
    let few = PublishLimits {
        event_bytes_max: body.len() - 1,
        ..PublishLimits::default()
    };
    for target in targets_of_one_pass(schema) {
        let [one_pass, two_looks] = [&PublishLimits::default(), &few].map(|limits| {
            let read = read_for(&target, content_type, &body, limits);
            let is_read = read.is_ok();
            (
                shown(read),
                is_read.then(|| shown_checks(target.take_checks().check_all())),
            )
        });
        prop_assert_eq!(one_pass, two_looks);
    }
    Ok(())
}

/// Checks the outcome of a body: it is refused with a status and a code of the table, or is whole,
/// bounded, and read again as it is.
fn check(schema: Schema, body: &[u8]) -> Result<(), TestCaseError> {
    if body.starts_with(b"[") {
        match schema {
            Schema::EventGrid => {
                let of_domain = String::from_utf8_lossy(body)
                    .replace("\"subject\":", "\"topic\":\"d\",\"subject\":");
                compare_passes(schema, "application/json", body)?;
                compare_passes(schema, "application/json", of_domain.as_bytes())?;
            }
            Schema::CloudEvents => {
                compare_passes(schema, "application/cloudevents-batch+json", body)?;
                // One event: an array of one without its brackets.
                let event = body.strip_suffix(b"]").unwrap_or(body);
                let event = [&event[1..], b" "].concat();
                compare_passes(schema, "application/cloudevents+json", &event)?;
            }
            Schema::Custom => {}
        }
    }
    let events = match take(schema, body) {
        Ok(events) => events,
        Err(refusal) => {
            let (status, code) = refusal.status();
            prop_assert!(
                matches!(
                    (status.as_u16(), code),
                    (400, "InputJsonInvalid") | (401, "Unauthorized") | (413, "PayloadTooLarge")
                ),
                "{status} {code}"
            );
            prop_assert!(refusal.to_string().len() < 1_000, "{refusal}");
            return Ok(());
        }
    };
    let bytes: usize = events.iter().map(|event| event.to_wire_bytes().len()).sum();
    prop_assert!(
        bytes <= body.len() + 512 * events.len(),
        "{bytes} bytes of {}",
        body.len()
    );
    let wires: Vec<_> = events
        .iter()
        .map(|event| String::from_utf8_lossy(&event.to_wire_bytes()).into_owned())
        .collect();
    let again = take(schema, format!("[{}]", wires.join(",")).as_bytes())
        .expect("what was taken is taken again");
    prop_assert_eq!(
        again
            .iter()
            .map(|event| event.to_wire_bytes())
            .collect::<Vec<_>>(),
        events
            .iter()
            .map(|event| event.to_wire_bytes())
            .collect::<Vec<_>>()
    );
    for event in &events {
        for delivery in schema.delivery_schemas() {
            let form = convert_event(event, *delivery).expect("what was taken can be delivered");
            prop_assert!(
                serde_json::from_slice::<serde::de::IgnoredAny>(&form).is_ok(),
                "{}",
                String::from_utf8_lossy(&form)
            );
        }
    }
    Ok(())
}

fn schema() -> impl Strategy<Value = Schema> {
    prop::sample::select(&[Schema::EventGrid, Schema::CloudEvents, Schema::Custom][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2_000)))]

    #[test]
    fn events_with_members_changed_are_taken_whole_or_refused(
        schema in schema(),
        twists in prop::collection::vec(prop::collection::vec(twist(), 0..4), 1..4),
        bytes in changes(2),
    ) {
        let events: Vec<String> = twists.iter().map(|twists| twisted(schema, twists)).collect();
        let body = format!("[{}]", events.join(","));
        check(schema, body.as_bytes())?;
        check(schema, &changed(body.as_bytes(), &bytes))?;
    }

    #[test]
    fn data_of_pieces_of_json_is_taken_if_it_is_json(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 1..8)) {
        let data = pieces.concat();
        let body = format!(r#"[{{"data":{data},"id":"1","subject":"/a","eventType":"T","eventTime":"2026-11-20T17:18:13Z"}}]"#);
        let is_data = serde_json::from_str::<&RawValue>(&data).is_ok();
        let is_body = serde_json::from_str::<&RawValue>(&body).is_ok();
        // A member behind the data is not data. In a CloudEvent it may be an extension.
        let has_member = is_body && !is_data;
        let is_json = is_body && is_data;
        check(Schema::EventGrid, body.as_bytes())?;
        prop_assert_eq!(take(Schema::EventGrid, body.as_bytes()).is_ok(), is_json, "{}", data);
        let body = format!(r#"[{{"data":{data},"specversion":"1.0","id":"1","source":"/a","type":"T"}}]"#);
        check(Schema::CloudEvents, body.as_bytes())?;
        let is_taken = take(Schema::CloudEvents, body.as_bytes()).is_ok();
        prop_assert!(is_taken == is_json || has_member, "{}", data);
        let read = read_binary(data.as_bytes());
        prop_assert_eq!(read.is_ok(), is_data, "{}", data);
    }

    #[test]
    fn a_string_ends_at_its_quote(before in 0usize..300, after in 0usize..80, odd in prop::sample::select(&ODD[..])) {
        let data = format!("\"{}{odd}{}\"", "é".repeat(before / 2) + &"a".repeat(before % 2), "b".repeat(after));
        let body = format!(r#"[{{"id":"1","subject":"/a","eventType":"T","eventTime":"2026-11-20T17:18:13Z","data":{data}}}]"#);
        let is_json = serde_json::from_str::<&RawValue>(&data).is_ok();
        check(Schema::EventGrid, body.as_bytes())?;
        prop_assert_eq!(take(Schema::EventGrid, body.as_bytes()).is_ok(), is_json, "{}", data);
    }

    #[test]
    fn a_sas_token_that_was_changed_is_good_for_nothing_new(which in 0usize..3, changes in changes(4)) {
        let token = VECTORS[which];
        let changed = changed(token.as_bytes(), &changes);
        let keys = AccessKeys { key1: KEY.to_owned(), key2: KEY2.to_owned() };
        let resources: Vec<_> = sas::SasResource::parse("http://127.0.0.1:18080/api/events").into_iter().collect();
        if sas::check_sas_token(&changed, &[&keys], &resources, WallTime(0)).is_ok() {
            let signed = |token: &str| token.trim().split_once("&s=").map(|(signed, _)| signed.to_owned());
            let changed = String::from_utf8(changed).expect("a good token is text");
            prop_assert_eq!(signed(&changed), signed(token), "what is signed is as it was");
        }
    }
}

#[test]
fn an_access_token_that_was_changed_is_good_for_nothing_new() {
    let signer = Signer::new();
    let now = 1_615_410_176;
    let bearer = bearer(&signer);
    let claims =
        json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": now + 300});
    let tokens = [
        (Some("ec"), Algorithm::ES256),
        (Some("rsa"), Algorithm::RS256),
    ]
    .map(|(kid, algorithm)| signer.sign(kid, algorithm, &claims));
    let anything = ScopedResource::default();
    let check = |token: &[u8]| {
        bearer.authenticate_token(
            token,
            None,
            TokenRole::Publish,
            &anything,
            WallTime(now * 1_000_000),
        )
    };
    for token in &tokens {
        assert!(check(token.as_bytes()).is_ok());
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases(500)));
    let changed_tokens = (0..tokens.len(), changes(3))
        .prop_map(|(which, changes)| (which, changed(tokens[which].as_bytes(), &changes)));
    let checked = runner.run(&changed_tokens, |(which, changed)| {
        if check(&changed).is_ok() {
            let signed = |token: &[u8]| {
                token
                    .rsplitn(2, |byte| *byte == b'.')
                    .last()
                    .map(<[u8]>::to_vec)
            };
            prop_assert_eq!(
                signed(&changed),
                signed(tokens[which].as_bytes()),
                "what is signed is as it was"
            );
        }
        Ok(())
    });
    checked.expect("no token is made so");
}
