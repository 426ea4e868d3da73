//! Events are checked against the schemas of their types: what does not match, in each schema, and
//! which schemas are taken.

use actix_web::web::Bytes;
use gridhook::{
    control::catalogue::{self, Catalogue},
    event::Schema,
    publish::{
        PublishLimits, Refusal,
        schema::{self, EventTarget, RequestContent},
    },
    record::{azure_properties::EventTypeInfo, ingress::SchemaValidation},
};
use serde_json::{Value, json};

use crate::support::publisher::{mapping, topic};

/// Event types with these versions of the type `T`.
fn types(versions: &Value) -> EventTypeInfo {
    let types = json!({"kind": "Inline", "inlineEventTypes": {"T": {"versions": versions}}});
    serde_json::from_value(types).expect("event types")
}

fn check(schema: &Value) -> Result<(), String> {
    catalogue::validate_event_types(&types(&json!({"1": {"schema": schema}})))
        .map_err(|error| error.to_string())
}

/// Publishes a body to a topic with these versions of `T`.
fn publish(
    schema: Schema,
    mode: SchemaValidation,
    versions: &Value,
    body: &str,
) -> Result<(), Refusal> {
    let mut record = topic("orders", schema);
    record.ingress.mapping = (schema == Schema::Custom).then(mapping);
    record.ingress.schema_validation = mode;
    record.azure_properties.event_type_info = Some(types(versions));
    let target = EventTarget::for_topic(&record)
        .with_catalogue(Catalogue::from_topic(&record).map(Into::into));
    let content_type = Some(match schema {
        Schema::CloudEvents => "application/cloudevents-batch+json",
        Schema::EventGrid | Schema::Custom => "application/json",
    });
    let content = RequestContent {
        content_type,
        attributes: Vec::new(),
    };
    schema::read(
        &target,
        &content,
        &Bytes::copy_from_slice(body.as_bytes()),
        &PublishLimits::default(),
    )?;
    target.take_checks().check_all().map(|_| ())
}

fn event_grid(kind: &str, version: &str, data: &str) -> String {
    format!(
        r#"{{"id":"1","subject":"/s","eventType":"{kind}","eventTime":"2026-11-20T10:00:00Z","dataVersion":"{version}","data":{data}}}"#
    )
}

fn cloud(rest: &str) -> String {
    format!(r#"[{{"specversion":"1.0","type":"T","source":"/s","id":"1"{rest}}}]"#)
}

#[test]
fn an_event_that_does_not_match_is_refused_with_its_index_the_pointer_and_the_rule() {
    let total = |kind: &str| json!({"type": "object", "required": ["total"], "properties": {"total": {"type": kind}}});
    let versions = json!({
        "9": {"schema": total("string")},
        "10": {"schema": total("number")},
        "2.1": {"schema": {"properties": {"lines": {"items": {"properties": {"sku": {"pattern": "^[a-z]+$"}}}}}}},
    });
    let one = |version: &str, data: &str| format!("[{}]", event_grid("T", version, data));
    let custom =
        |total: &str| format!(r#"[{{"myEventTypeField":"T","ver":"10","total":{total}}}]"#);
    let rows: [(Schema, String, Option<[&str; 2]>); 17] = [
        (Schema::EventGrid, one("10", r#"{"total":1}"#), None),
        (
            Schema::EventGrid,
            one("10", r#"{"total":"x"}"#),
            Some(["/total", "/properties/total/type"]),
        ),
        (Schema::EventGrid, one("10", "{}"), Some(["", "/required"])),
        (Schema::EventGrid, one("10", "null"), Some(["", "/type"])),
        (Schema::EventGrid, one("9", r#"{"total":"x"}"#), None),
        (
            Schema::EventGrid,
            one("9", r#"{"total":1}"#),
            Some(["/total", "/properties/total/type"]),
        ),
        // Another version is checked as the newest, which is 10, not 9.
        (
            Schema::EventGrid,
            one("11", r#"{"total":"x"}"#),
            Some(["/total", "/properties/total/type"]),
        ),
        (
            Schema::EventGrid,
            one("2.1", r#"{"lines":[{"sku":"a"},{"sku":"A"}]}"#),
            Some(["/lines/1/sku", "/pattern"]),
        ),
        // The type is compared as it is meant, not as it is written.
        (
            Schema::EventGrid,
            format!("[{}]", event_grid("\\u0054", "10", "{}")),
            Some(["", "/required"]),
        ),
        (
            Schema::EventGrid,
            format!("[{}]", event_grid("Other", "10", "{}")),
            None,
        ),
        (Schema::CloudEvents, cloud(r#","data":{"total":1}"#), None),
        (
            Schema::CloudEvents,
            cloud(r#","data":{"total":"x"}"#),
            Some(["/total", "/properties/total/type"]),
        ),
        (Schema::CloudEvents, cloud(""), Some(["", "/type"])),
        (
            Schema::CloudEvents,
            cloud(r#","data":{"total":"x"},"dataschema":"https://example.com/t/9""#),
            None,
        ),
        (Schema::CloudEvents, cloud(r#","data_base64":"AAAA""#), None),
        (Schema::Custom, custom("1"), None),
        (
            Schema::Custom,
            custom("\"secret value\""),
            Some(["/total", "/properties/total/type"]),
        ),
    ];
    for (schema, body, expected) in rows {
        for mode in [SchemaValidation::Off, SchemaValidation::Warn] {
            publish(schema, mode, &versions, &body)
                .unwrap_or_else(|error| panic!("{mode:?} {body}: {error}"));
        }
        let result = publish(schema, SchemaValidation::Refuse, &versions, &body);
        let Some([pointer, rule]) = expected else {
            result.unwrap_or_else(|error| panic!("{body}: {error}"));
            continue;
        };
        let refusal = result.expect_err(&body);
        let text = refusal.to_string();
        assert_eq!(refusal.status().0.as_u16(), 400, "{body}");
        assert!(
            text.contains("Event 0: ") && text.contains(&format!("at \"{pointer}\", rule \"")),
            "{body}: {text}"
        );
        assert!(
            text.contains(&format!("{rule}\": ")) && !text.contains("secret value"),
            "{body}: {text}"
        );
    }
    let third = [("T", r#"{"total":1}"#), ("Other", "7"), ("T", "{}")]
        .map(|(kind, data)| event_grid(kind, "10", data));
    let refusal = publish(
        Schema::EventGrid,
        SchemaValidation::Refuse,
        &versions,
        &format!("[{}]", third.join(",")),
    );
    assert!(
        refusal
            .expect_err("the third")
            .to_string()
            .contains("Event 2: ")
    );
}

#[test]
fn a_schema_is_bounded_and_stands_alone() {
    let doubled = |levels: usize| {
        let mut schemas = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
            schemas.insert(format!("a{level}"), json!({"allOf": [next, next]}));
        }
        schemas.insert(format!("a{levels}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/a0", "$defs": schemas})
    };
    let nested = |levels: usize| (0..levels).fold(json!({}), |schema, _| json!({"not": schema}));
    let accepted = [
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/t", "type": "object"}),
        json!({"$defs": {"a/b": {"type": "object"}}, "$ref": "#/$defs/a~1b"}),
        json!({"properties": {"$ref": {"type": "string"}, "const": {"$ref": "#/$defs/n"}}, "$defs": {"n": true}}),
        json!({"enum": [{"$ref": "https://example.com"}]}),
        doubled(4),
        nested(30),
        json!(true),
    ];
    for schema in accepted {
        check(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    }
    let many: serde_json::Map<String, Value> = (0..201)
        .map(|n| (format!("p{n}"), json!({"pattern": "a"})))
        .collect();
    let refused = [
        (
            json!({"type": 5}),
            "is not a JSON Schema of draft 2020-12 at \"/type\"",
        ),
        (
            json!({"$ref": "https://example.com/s.json"}),
            "refers to \"https://example.com/s.json\", and nothing is fetched",
        ),
        (json!({"$ref": "file:///etc/passwd"}), "nothing is fetched"),
        (json!({"$ref": "other.json"}), "nothing is fetched"),
        (json!({"$ref": "#/$defs/none"}), "does not exist"),
        (
            json!({"$ref": "#name"}),
            "expected references into the schema itself",
        ),
        (json!({"$dynamicRef": "#a"}), "has $dynamicRef"),
        (
            json!({"items": {"$id": "https://example.com/i"}}),
            "inside; expected $id at the top",
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            "expected \"https://json-schema.org/draft/2020-12",
        ),
        (json!({"$ref": "#"}), "refers to itself by \"#\""),
        (
            json!({"properties": {"child": {"$ref": "#"}}}),
            "refers to itself",
        ),
        (
            json!({"properties": {"default": {"items": {"$ref": "#/properties/default"}}}}),
            "refers to itself",
        ),
        (
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "refers to itself",
        ),
        // Each level doubles the work for an event.
        (doubled(16), "is too large"),
        (nested(70), "is nested deeper than 64 levels"),
        (json!({"pattern": "(?=a)b"}), "pattern"),
        (json!({"pattern": "(a)\\1"}), "pattern"),
        (json!({"pattern": "\\w{500}{500}"}), "pattern"),
        (
            json!({"properties": many}),
            "has too many patterns: expected at most 200",
        ),
    ];
    for (schema, expected) in refused {
        let error = check(&schema).expect_err(expected);
        assert!(
            error.starts_with("T.versions.1.schema ") && error.contains(expected),
            "{schema}: {error}"
        );
    }
    let examples = json!({"1": {"schema": {"required": ["a"]}, "examples": [{"a": 1}, {"b": 1}]}});
    let error = catalogue::validate_event_types(&types(&examples))
        .expect_err("the second")
        .to_string();
    assert!(
        error.starts_with(
            "T.versions.1.examples[1] does not match the schema at \"\", rule \"/required\""
        ),
        "{error}"
    );
}

/// `{"allOf": [{"allOf": […]}]}`, each with `unevaluatedProperties`.
fn unevaluated(levels: usize) -> Value {
    (0..levels).fold(
        json!({}),
        |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
    )
}

#[test]
fn a_schema_whose_cost_has_no_bound_is_refused_by_name() {
    let all_of =
        |count: usize| json!({"items": {"allOf": vec![json!({"type": "integer"}); count]}});
    let any_of = |levels: usize| {
        (0..levels).fold(
            json!({}),
            |inner, _| json!({"anyOf": [inner.clone(), inner]}),
        )
    };
    let any_of_one =
        |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"anyOf": [inner]}));
    let pattern = "[ab]{700}[cd]|[ab]{701}[de]";
    let groups = format!("{}a{{9}}{}", "(".repeat(70), ")".repeat(70));
    for (schema, expected) in [
        // Each level evaluates the levels below it again.
        (unevaluated(26), "unevaluatedProperties"),
        (
            json!({"properties": {"a": unevaluated(12)}}),
            "unevaluatedProperties",
        ),
        (all_of(9000), "for items; expected at most 64000000"),
        (any_of_one(26), "for anyOf"),
        (
            json!({"pattern": pattern}),
            "has the pattern \"[ab]{700}[cd]|[ab]{701}[de]\" with 1403 positions",
        ),
        (
            json!({"patternProperties": {"(a{40}){40}": {}}}),
            "with 1600 positions",
        ),
        (json!({"pattern": groups}), "positions"),
    ] {
        let error = check(&schema).expect_err(expected);
        assert!(
            error.starts_with("T.versions.1.schema ") && error.contains(expected),
            "{error}"
        );
    }
    let usual = json!({
        "type": "object",
        "required": ["id", "lines"],
        "properties": {
            "id": {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
            "lines": {"items": {"oneOf": [
                {"properties": {"sku": {"type": "string", "maxLength": 40}}, "required": ["sku"]},
                {"properties": {"note": {"enum": ["a", "b"]}}, "unevaluatedProperties": false},
            ]}, "uniqueItems": true},
        },
        "allOf": [{"if": {"required": ["a"]}, "then": {"required": ["b"]}}],
        "unevaluatedProperties": false,
    });
    for schema in [usual, unevaluated(4), all_of(100), any_of(4)] {
        assert_eq!(check(&schema), Ok(()), "{schema}");
    }
}

#[test]
fn data_that_could_take_too_many_steps_is_not_checked_and_does_not_match() {
    let versions = json!({"1": {"schema": {"pattern": "^(ab?){300}$"}}});
    let body = |bytes: usize| {
        format!(
            "[{}]",
            event_grid("T", "1", &format!("\"{}\"", "a".repeat(bytes)))
        )
    };
    assert!(
        publish(
            Schema::EventGrid,
            SchemaValidation::Refuse,
            &versions,
            &body(300)
        )
        .is_ok()
    );
    let refused = publish(
        Schema::EventGrid,
        SchemaValidation::Refuse,
        &versions,
        &body(500_000),
    )
    .expect_err("too much");
    assert!(
        refused
            .to_string()
            .contains("steps for 500002 bytes; expected at most 64000000"),
        "{refused}"
    );
    // A schema that was stored before such schemas were refused matches nothing, and takes no time.
    let stored = json!({"1": {"schema": unevaluated(40)}});
    let refused = publish(
        Schema::EventGrid,
        SchemaValidation::Refuse,
        &stored,
        &body(1),
    )
    .expect_err("no bound");
    assert!(
        refused.to_string().contains("could take inf steps"),
        "{refused}"
    );
}

#[test]
fn a_pattern_runs_in_linear_time_and_deep_data_is_refused() {
    let versions = json!({"1": {"schema": {"properties": {"a": {"pattern": "^(a+)+$"}}}}});
    // A backtracking engine would need 2^10000 steps.
    let text = format!("{}!", "a".repeat(10_000));
    let body = format!(
        "[{}]",
        event_grid("T", "1", &format!(r#"{{"a":"{text}"}}"#))
    );
    let refusal = publish(
        Schema::EventGrid,
        SchemaValidation::Refuse,
        &versions,
        &body,
    )
    .expect_err("no match");
    assert!(refusal.to_string().contains("/pattern"), "{refusal}");
    let mut record = topic("orders", Schema::EventGrid);
    record.ingress.schema_validation = SchemaValidation::Refuse;
    record.azure_properties.event_type_info = Some(types(&versions));
    let catalogue = Catalogue::from_topic(&record).expect("it checks");
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let declared = catalogue.find_schema("T", "1").expect("it is declared");
    assert!(
        declared
            .find_violation(Some(&deep))
            .expect("refused")
            .contains("cannot be read")
    );
}
