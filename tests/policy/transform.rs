//! Transformations: their results, their refusals, and the limit of their cost.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use gridhook::{
    event::{Event, EventRanges, Lane, Schema, Seq, TextRange, Timestamp, Transformed},
    policy::{
        SendItem, SubscriptionSettings,
        batch::{self, BatchLimits, ReadyEvent},
        outcome::{Failure, LastOutcome, Reason},
        property::PropertyGroup,
        transform::{Program, RESULT_BYTES_MAX, SOURCE_BYTES_MAX, Transform},
    },
};
use proptest::prelude::*;

use super::{
    driver::{Driver, answers, status},
    plain,
};

const WIRE: &str = r#"{"id":"7","eventType":"Made","subject":"/a b/ü","data":{"n":3,"name":"O\"K","list":[1,2,null]}}"#;

fn event(wire: &str) -> Event {
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    let chunk = Bytes::copy_from_slice(wire.as_bytes());
    Event::new(
        Seq(7),
        Timestamp(0),
        Schema::EventGrid,
        chunk,
        whole,
        EventRanges::default(),
    )
}

fn body_transform(body: &str) -> Transform {
    Transform {
        body: Some(body.to_owned()),
        ..Transform::default()
    }
}

fn applied(transform: &Transform) -> Result<Transformed, String> {
    let program =
        Program::new(transform, false, Schema::EventGrid).map_err(|error| error.to_string())?;
    program
        .apply(&event(WIRE), Schema::EventGrid)
        .map_err(|error| error.to_string())
}

fn body(expression: &str) -> String {
    match applied(&body_transform(expression)) {
        Ok(made) => {
            String::from_utf8(made.body.expect("there is an expression").to_vec()).expect("UTF-8")
        }
        Err(error) => error,
    }
}

#[test]
fn a_body_is_the_json_that_its_expression_makes() {
    for (expression, expected) in [
        ("{text: subject, n: data.n}", r#"{"n":3,"text":"/a b/ü"}"#),
        (
            "@",
            r#"{"data":{"list":[1,2,null],"n":3,"name":"O\"K"},"eventType":"Made","id":"7","subject":"/a b/ü"}"#,
        ),
        ("join(' ', ['no', id, data.name])", r#""no 7 O\"K""#),
        ("data.list[?@ > `1`]", "[2]"),
        ("data.list[].[@, 'x']", r#"[[1,"x"],[2,"x"]]"#),
        ("not_null(data.missing, 'none')", r#""none""#),
        ("data.missing", "null"),
        ("sort_by(data.list[?@], &@) | [-1]", "2"),
        (
            "join(', ', data.list)",
            "transform.body: line 1, column 5: argument 2 of join is an array; expected an array \
             of strings",
        ),
    ] {
        assert_eq!(body(expression), expected, "{expression}");
    }
}

#[test]
fn numbers_are_exact() {
    let of = |data: &str, expression: &str| {
        let program = Program::new(&body_transform(expression), false, Schema::EventGrid)
            .expect("it is sound");
        match program.apply(&event(&format!(r#"{{"data":{data}}}"#)), Schema::EventGrid) {
            Ok(made) => String::from_utf8(made.body.expect("there is an expression").to_vec())
                .expect("UTF-8"),
            Err(error) => error.to_string(),
        }
    };
    let large = "[9007199254740992,9007199254740993,123456789012345678901234567890]";
    for (data, expression, expected) in [
        (large, "data", large),
        (
            large,
            "data[?@ == `9007199254740993`]",
            "[9007199254740993]",
        ),
        (
            large,
            "data[?@ > `9007199254740992`]",
            "[9007199254740993,123456789012345678901234567890]",
        ),
        (large, "data[?@ == `123456789012345678901234567891`]", "[]"),
        (large, "max(data)", "123456789012345678901234567890"),
        (large, "sort(data)[0]", "9007199254740992"),
        (large, "sum(data)", "123456789012363693299744049875"),
        (large, "contains(data, `9007199254740994`)", "false"),
        (large, "to_string(data[1])", "\"9007199254740993\""),
        (
            "[1,2,3]",
            "[sum(data), avg(data), abs(`-3`), ceil(`3`), floor(`3`)]",
            "[6,2,3,3,3]",
        ),
        (
            "[1,2]",
            "[avg(data), sum(data[]), ceil(`1.5`), floor(`-1.5`), ceil(`-0.5`)]",
            "[1.5,3,2,-2,0]",
        ),
        ("[1.5,1.5]", "[sum(data), avg(data)]", "[3,1.5]"),
        (
            "[]",
            "[avg(data), sum(data), max(data), min(data)]",
            "[null,0,null,null]",
        ),
        (
            "[9007199254740993]",
            "[ceil(data[0]), floor(data[0]), abs(data[0])]",
            "[9007199254740993,9007199254740993,9007199254740993]",
        ),
        (
            "[9007199254740993.5,-9007199254740993.5]",
            "[ceil(data[0]), floor(data[1])]",
            "[9007199254740994,-9007199254740994]",
        ),
        (
            "[1e400,-1E+400,12.50,1.0]",
            "data",
            "[1e400,-1E+400,12.50,1.0]",
        ),
        (
            "[1e400,2]",
            "[max(data), sort(data), ceil(data[0]), data[0] > data[1]]",
            "[1e400,[2,1e400],1e400,true]",
        ),
        (
            "[1e400]",
            "sum(data)",
            "transform.body: line 1, column 4: the result of sum is not a number that JSON can \
             have",
        ),
        (
            "[1.0,1]",
            "[data[0] == data[1], data[?@ == `1`]]",
            "[true,[1.0,1]]",
        ),
        (
            r#"["18446744073709551617","1e400","x","01"]"#,
            "map(&to_number(@), data)",
            "[18446744073709551617,1e400,null,null]",
        ),
        (
            r#"{"a\u0062":"\ud83d\ude00\"","c":[ ]}"#,
            "data",
            "{\"ab\":\"😀\\\"\",\"c\":[]}",
        ),
    ] {
        assert_eq!(of(data, expression), expected, "{expression} of {data}");
    }
    let headers = BTreeMap::from([("x-sum".to_owned(), "sum(data.list[?@])".to_owned())]);
    let path = Some("[abs(`-7`), avg(data.list[?@])]".to_owned());
    let made = applied(&Transform {
        headers,
        path_suffix: path,
        ..Transform::default()
    })
    .expect("it can be sent");
    assert_eq!(
        (made.path_suffix.as_deref(), &*made.headers[0].1),
        (Some("/7/1.5"), "3")
    );
}

#[test]
fn a_path_and_headers_take_values_without_leaving_their_place() {
    let parts = |path: &str, header: &str| {
        let headers = BTreeMap::from([("x-order".to_owned(), header.to_owned())]);
        applied(&Transform {
            path_suffix: Some(path.to_owned()),
            headers,
            ..Transform::default()
        })
    };
    let made = parts("['orders', subject, data.n]", "data.name").expect("it can be sent");
    assert_eq!(
        made.path_suffix.as_deref(),
        Some("/orders/%2Fa%20b%2F%C3%BC/3")
    );
    assert_eq!(
        (made.headers, made.body),
        (vec![("x-order".to_owned(), "O\"K".to_owned())], None)
    );
    let header = BTreeMap::from([("headers.headers.aeg-x".to_owned(), "id".to_owned())]);
    let made = applied(&Transform {
        headers: header,
        ..Transform::default()
    });
    assert_eq!(
        made.expect("it can be sent").headers,
        [("headers.headers.aeg-x".to_owned(), "7".to_owned())],
        "only the name that the subscription gives was checked"
    );
    assert_eq!(
        parts("'?a=../#'", "data.n")
            .expect("it is encoded")
            .path_suffix
            .as_deref(),
        Some("/%3Fa%3D..%2F%23")
    );
    let dots = "transform.pathSuffix: the result has a segment . or .., which would leave the path \
        of the endpoint";
    for (path, header, expected) in [
        ("['..', 'x']", "'1'", dots),
        ("'.'", "'1'", dots),
        (
            "data",
            "'1'",
            "transform.pathSuffix: the result is not a string, a number or a boolean, or a list of \
             these",
        ),
    ] {
        assert_eq!(parts(path, header).expect_err("it is refused"), expected);
    }
}

#[test]
fn a_header_is_left_out_where_a_delivery_property_is() {
    let value = |header: &str| {
        let headers = BTreeMap::from([("x-order".to_owned(), header.to_owned())]);
        let made = applied(&Transform {
            headers,
            ..Transform::default()
        })
        .expect("it can be sent");
        made.headers.into_iter().next().map(|(_, value)| value)
    };
    for missing in [
        "data.missing",
        "`null`",
        "''",
        "data.list",
        "data",
        "`\"a\\nb\"`",
    ] {
        assert_eq!(value(missing), None, "{missing}");
    }
    assert_eq!(value(&format!("'{}'", "x".repeat(4097))), None);
    // It is percent-encoded in the request.
    assert_eq!(value("subject").as_deref(), Some("/a b/ü"));
    assert_eq!(value("data.n").as_deref(), Some("3"));
}

#[test]
fn a_batch_is_measured_by_what_is_sent() {
    let text = "x".repeat(500);
    let program = Program::new(
        &body_transform(&format!("[id, '{text}']")),
        true,
        Schema::EventGrid,
    )
    .expect("it is sound");
    let transformed = program.transform(event(WIRE), Schema::EventGrid);
    let body = transformed
        .transformed()
        .expect("it is made")
        .body
        .clone()
        .expect("a body");
    assert_eq!(
        (
            transformed.delivered_len(Schema::EventGrid),
            body.len() > 500
        ),
        (body.len(), true)
    );
    assert_eq!(transformed.memory_len(), WIRE.len() + body.len());
    let short = program.transform(event(WIRE), Schema::EventGrid);
    let ready = |event: Event| ReadyEvent {
        item: SendItem {
            lane: Lane::LIVE,
            seq: event.seq,
            appended: event.appended,
            attempts: 0,
            due: None,
            since: None,
        },
        event,
        last: None,
        group: PropertyGroup::default(),
        order: None,
    };
    let queue: VecDeque<ReadyEvent> = [transformed, short.clone(), short]
        .into_iter()
        .map(ready)
        .collect();
    let limits = BatchLimits {
        events_max: 10,
        bytes_preferred: 1100,
        schema: Schema::EventGrid,
    };
    assert_eq!(
        batch::pick_batch(&queue, limits),
        [0, 1],
        "two results fit, and five events would"
    );
}

#[test]
fn a_program_that_cannot_run_is_refused_with_its_place() {
    let named = |name: &str| Transform {
        headers: BTreeMap::from([(name.to_owned(), "id".to_owned())]),
        ..Transform::default()
    };
    let by_get = Transform {
        method: Some("GET".to_owned()),
        ..Transform::default()
    };
    for (transform, batched, expected) in [
        (
            Transform::default(),
            false,
            "transform is empty; expected an expression in body, pathSuffix or headers, or \
             a method",
        ),
        (
            body_transform("data.\n  list["),
            false,
            "body line 2, column 8: ",
        ),
        (
            body_transform("shout(id)"),
            false,
            "body line 1, column 6: the function shout is unknown",
        ),
        (
            body_transform("[&id]"),
            false,
            "body line 1, column 2: & is allowed only in arguments of map, sort_by, min_by and \
             max_by",
        ),
        (
            body_transform("join(id, data.list)"),
            false,
            "body line 1, column 5: the first argument of join is not a literal",
        ),
        (
            body_transform("data[::0]"),
            false,
            "body line 1, column 9: the step of the slice is 0; expected 1 to 1000000, or \
             negative",
        ),
        (
            body_transform(&"x".repeat(SOURCE_BYTES_MAX + 1)),
            false,
            "body has 16385 bytes; expected at most 16384",
        ),
        (
            body_transform(&"!".repeat(513)),
            false,
            "body has 513 of the characters !([{|&.*<>=; expected at most 512",
        ),
        (
            by_get,
            false,
            r#"method is "GET"; expected one of PATCH, POST, PUT"#,
        ),
        (
            named("aeg-x"),
            false,
            r#"headers is "aeg-x", which is not allowed: names that begin with aeg- are Event Grid's own"#,
        ),
        (
            named("x"),
            true,
            "headers is set, but a request may have several events; expected it with a \
             maxEventsPerBatch of 1",
        ),
    ] {
        let error = Program::new(&transform, batched, Schema::EventGrid)
            .expect_err("it is refused")
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn time_memory_and_output_of_a_program_are_bounded() {
    let doubled = ["[@, @]"; 60].join(" | ");
    let flattened = ["[@, @][]"; 60].join(" | ");
    let texts = ["join('', [@, @])"; 60].join(" | ");
    let escaped = format!("{}data{}", "to_string(".repeat(60), ")".repeat(60));
    let mapped = format!("{}data{}", "map(&[@, @, @], ".repeat(30), ")".repeat(30));
    for expression in [doubled, flattened, texts, escaped, mapped] {
        let error = Program::new(&body_transform(&expression), false, Schema::EventGrid)
            .expect_err("it is refused");
        assert!(
            error.problem.starts_with("could make too much of an event"),
            "{error}"
        );
    }
    // Deep, and nothing worse: the recursion has room.
    for deep in [
        "!".repeat(511) + "id",
        format!("{}id{}", "(".repeat(500), ")".repeat(500)),
        ["@"; 512].join("|"),
    ] {
        let program =
            Program::new(&body_transform(&deep), false, Schema::EventGrid).expect("it is sound");
        program
            .apply(&event(WIRE), Schema::EventGrid)
            .expect("it is within the bounds");
    }
    // The largest event can be sent whole, and not thirty-two times.
    let wire = format!(r#"{{"data":"{}"}}"#, "x".repeat(RESULT_BYTES_MAX - 100));
    let of_largest = |expression: &str| {
        let program = Program::new(&body_transform(expression), false, Schema::EventGrid)
            .expect("it is sound");
        program
            .apply(&event(&wire), Schema::EventGrid)
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        of_largest("@")
            .expect("it is within the bounds")
            .body
            .expect("a body"),
        wire
    );
    let twice = of_largest("[@, @]").expect_err("the result is too large");
    assert_eq!(
        twice,
        format!(
            "transform.body: the result has {} bytes; expected at most 1048576",
            2 * wire.len() + 3
        )
    );
    let often = of_largest(&format!("length([{}])", ["@"; 40].join(",")))
        .expect_err("it could be too large");
    assert!(
        often.contains("bytes of this event; expected at most 33554432"),
        "{often}"
    );
}

/// Expressions of all kinds of nodes.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("@".to_owned()),
        Just("data".to_owned()),
        Just("data.a".to_owned()),
        Just("`[1, {\"a\": \"\\u0001\"}]`".to_owned()),
        Just("'text'".to_owned()),
        Just("[-1]".to_owned()),
        Just("[::2]".to_owned()),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} | {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| format!("{{key: {a}, \"other\": {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[*].[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("map(&{b}, to_array({a}))")),
            inner.clone().prop_map(|a| format!("({a})[]")),
            inner.clone().prop_map(|a| format!("values({{key: {a}}})")),
            inner.clone().prop_map(|a| format!("to_string({a})")),
            inner.prop_map(|a| format!("join('glue', to_array(to_string({a})))")),
        ]
    })
}

proptest! {
    #[test]
    fn no_result_exceeds_the_bound_and_every_result_is_the_same_each_time(
        expression in expressions(),
        data in r#"(\[(0|\{\}|\[\]|"\\u0001"|\{"a":\[0,0,0\]\}){1}(,(0|\{\}|\[\]|""|\{"a":1\})){0,20}\]|\{"a":[0-9]{1,9}\}|null)"#,
    ) {
        let wire = format!(r#"{{"data":{data}}}"#);
        if let Ok(program) = Program::new(&body_transform(&expression), false, Schema::EventGrid) {
            let [once, again] = [(); 2].map(|()| program.apply(&event(&wire), Schema::EventGrid));
            prop_assert_eq!(&once, &again);
            if let Ok(made) = once {
                let bound = program.output_bytes_max(wire.len());
                let body = made.body.expect("there is an \
                    expression");
                prop_assert!(body.len() as f64 <= bound, "{} of {}: {} > {}", expression, wire, body.len(), bound);
            }
        }
    }
}

#[test]
fn an_event_that_cannot_be_transformed_is_given_up_without_a_request() {
    let program =
        Program::new(&body_transform("id"), true, Schema::EventGrid).expect("it is sound");
    let batch = BatchLimits {
        events_max: 10,
        ..plain().batch
    };
    let settings = SubscriptionSettings {
        transform: Some(Arc::new(program)),
        batch,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(200)]));
    // These events are no JSON.
    driver.publish(&[("yes", 10); 3]);
    assert_eq!(driver.run(), ["0s TransformationFailed"; 3].join(" · "));
    assert!(driver.order.is_empty(), "nothing is sent");
    let failure = Failure::TransformationFailed;
    for dead in driver.disk.dead.values() {
        assert_eq!(
            (dead.reason, dead.attempts),
            (Reason::Undeliverable(failure), 1)
        );
        assert_eq!(dead.outcome, LastOutcome::from(failure));
    }
    assert_eq!(driver.disk.dead.len(), 3);
}
