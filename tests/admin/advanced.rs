//! `advancedFilters`: how the control plane reads and returns them.

use expect_test::expect;
use gridhook::admin::model::subscription::subscription_view;
use gridhook::{
    admin::model::subscription::{PathForm, read_patch, read_put},
    event::{Name, Schema},
    record::subscription::SubscriptionRecord,
};
use serde_json::{Value, json};

use super::{ranges, topic_record};

fn take(schema: Schema, filter: &Value) -> Result<SubscriptionRecord, String> {
    let destination =
        json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9000/"}});
    let body = json!({"properties": {"destination": destination, "filter": filter}}).to_string();
    read_put(
        &Name::new("to-shop"),
        &topic_record(schema),
        None,
        &ranges(),
        body.as_bytes(),
    )
    .map_err(|error| error.to_string())
}

fn one(filter: Value) -> Value {
    json!({"advancedFilters": [filter]})
}

/// All nineteen, as Azure's SDK writes them.
fn all() -> Value {
    let many = |name: &str| json!({"operatorType": name, "key": "data.k", "values": ["a"]});
    let numbers = |name: &str, values: Value| json!({"operatorType": name, "key": "data.k", "values": values});
    let number = |name: &str| json!({"operatorType": name, "key": "data.k", "value": 5.0});
    json!([
        numbers("NumberIn", json!([5, 1.5])),
        numbers("NumberNotIn", json!([-0.25])),
        number("NumberLessThan"),
        number("NumberGreaterThan"),
        number("NumberLessThanOrEquals"),
        number("NumberGreaterThanOrEquals"),
        numbers("NumberInRange", json!([[1.0, 2.0], [5, 7]])),
        numbers("NumberNotInRange", json!([[9007199254740993_u64, 18446744073709551615_u64]])),
        {"operatorType": "BoolEquals", "key": "Data.Flag", "value": true},
        many("StringContains"),
        many("StringBeginsWith"),
        many("StringEndsWith"),
        many("StringIn"),
        many("StringNotContains"),
        many("StringNotBeginsWith"),
        many("StringNotEndsWith"),
        many("StringNotIn"),
        {"operatorType": "IsNullOrUndefined", "key": "subject"},
        {"operatorType": "IsNotNull", "key": "data.z"},
    ])
}

#[test]
fn numbers_are_kept_exactly_or_refused() {
    let taken = |number: &str| {
        let body = format!(
            r#"{{"properties": {{"destination": {{"endpointType": "WebHook", "properties": {{"endpointUrl": "http://127.0.0.1:9000/"}}}},
            "filter": {{"advancedFilters": [{{"operatorType": "NumberIn", "key": "data.k", "values": [1, {number}]}}]}}}}}}"#
        );
        read_put(
            &Name::new("to-shop"),
            &topic_record(Schema::EventGrid),
            None,
            &ranges(),
            body.as_bytes(),
        )
        .map(|_| ())
        .map_err(|error| error.to_string())
    };
    for exact in [
        "18446744073709551615",
        "-9223372036854775808",
        "0.1",
        "1e4",
        "5.00",
        "1e22",
        "1234567890.1234567",
    ] {
        assert_eq!(taken(exact), Ok(()), "{exact}");
    }
    for rounded in [
        "18446744073709551617",
        "-9223372036854775809",
        "0.12345678901234567890",
        "100000000000000000000001",
    ] {
        assert_eq!(
            taken(rounded),
            Err(format!(
                "properties.filter.advancedFilters[0].values[1] is {rounded}, which would be \
                 rounded; expected an integer of 64 bits or a number of 17 digits"
            ))
        );
    }
}

#[test]
fn all_nineteen_operators_are_accepted_stored_and_returned_as_given() {
    let filter = json!({"advancedFilters": all(), "enableAdvancedFilteringOnArrays": true});
    let record = take(Schema::EventGrid, &filter).expect("it is taken");
    assert_eq!(record.filter.advanced_filters.len(), 19);
    let kept = serde_json::to_vec(&record).expect("it is JSON");
    let again: SubscriptionRecord =
        serde_json::from_slice(&kept).expect("the store reads what it wrote");
    assert_eq!(again.filter, record.filter);
    let topic = topic_record(Schema::EventGrid);
    let reported = serde_json::to_value(subscription_view(&record, &topic, PathForm::Nested))
        .expect("it is JSON");
    assert_eq!(reported["properties"]["filter"]["advancedFilters"], all());
    assert_eq!(
        reported["properties"]["filter"]["enableAdvancedFilteringOnArrays"],
        true
    );
    let same = take(Schema::EventGrid, &reported["properties"]["filter"])
        .expect("the response can be put");
    assert_eq!(same.filter, record.filter);
    let patched =
        read_patch(&record, &topic, &ranges(), br#"{"labels": ["x"]}"#).expect("it is taken");
    assert_eq!(patched.filter, record.filter);
    let body =
        br#"{"filter": {"advancedFilters": null, "enableAdvancedFilteringOnArrays": false}}"#;
    let patched = read_patch(&record, &topic, &ranges(), body).expect("it is taken");
    assert!(
        patched.filter.advanced_filters.is_empty()
            && !patched.filter.enable_advanced_filtering_on_arrays
    );
}

#[test]
fn twenty_five_filters_with_twenty_five_values_in_all_are_taken_and_no_more() {
    let filters = |count: usize| json!({"advancedFilters": vec![json!({"operatorType": "IsNotNull", "key": "data.z"}); count]});
    let values = |count: usize| {
        let texts: Vec<String> = (0..count - 10).map(|number| number.to_string()).collect();
        let numbers: Vec<usize> = (0..7).collect();
        json!({"advancedFilters": [
            {"operatorType": "StringIn", "key": "data.a", "values": texts},
            {"operatorType": "NumberNotIn", "key": "data.b", "values": numbers},
            {"operatorType": "BoolEquals", "key": "data.c", "value": false},
            {"operatorType": "NumberLessThan", "key": "data.c", "value": 1},
            {"operatorType": "NumberInRange", "key": "data.c", "values": [[1, 2]]}]})
    };
    let text = |length: usize| {
        one(json!({"operatorType": "StringIn", "key": "data.a", "values": ["ä".repeat(length)]}))
    };
    for good in [filters(25), values(25), text(512)] {
        take(Schema::EventGrid, &good).expect("it is taken");
    }
    let refused = [filters(26), values(26), text(513)]
        .map(|bad| take(Schema::EventGrid, &bad).expect_err("too much"));
    expect![[r#"
        properties.filter.advancedFilters has 26 filters; expected at most 25
        properties.filter.advancedFilters has 26 values in all its filters together; expected at most 25
        properties.filter.advancedFilters[0].values[0] has 513 characters; expected at most 512"#]]
    .assert_eq(&refused.join("\n"));
}

#[test]
fn a_filter_that_is_none_is_refused_with_what_its_operator_takes() {
    let grid = [
        json!("IsNotNull"),
        json!({"key": "data.k"}),
        json!({"operatorType": 5, "key": "data.k"}),
        json!({"operatorType": "StringLike\n", "key": "data.k", "values": ["a"]}),
        json!({"operatorType": "StringIn", "values": ["a"]}),
        json!({"operatorType": "StringIn", "key": "source", "values": ["a"]}),
        json!({"operatorType": "StringIn", "key": "data..k", "values": ["a"]}),
        json!({"operatorType": "StringIn", "key": "data.k"}),
        json!({"operatorType": "StringIn", "key": "data.k", "values": []}),
        json!({"operatorType": "StringIn", "key": "data.k", "values": "a"}),
        json!({"operatorType": "StringIn", "key": "data.k", "values": ["a", 5]}),
        json!({"operatorType": "StringIn", "key": "data.k", "value": "a"}),
        json!({"operatorType": "StringIn", "key": "data.k", "values": ["a"], "value": "a"}),
        json!({"operatorType": "NumberIn", "key": "data.k", "values": ["5"]}),
        json!({"operatorType": "NumberLessThan", "key": "data.k", "values": [5]}),
        json!({"operatorType": "NumberLessThan", "key": "data.k", "value": "5"}),
        json!({"operatorType": "NumberInRange", "key": "data.k", "values": [1, 2]}),
        json!({"operatorType": "NumberInRange", "key": "data.k", "values": [[1, 2, 3]]}),
        json!({"operatorType": "NumberInRange", "key": "data.k", "values": [[2, 1]]}),
        json!({"operatorType": "BoolEquals", "key": "data.k", "value": "true"}),
        json!({"operatorType": "BoolEquals", "key": "data.k"}),
        json!({"operatorType": "IsNotNull", "key": "data.k", "value": 1}),
        json!({"operatorType": "IsNotNull", "key": "data.k", "colour": "red"}),
    ];
    let mut lines: Vec<String> = grid
        .into_iter()
        .map(|bad| take(Schema::EventGrid, &one(bad)).expect_err("it is none"))
        .collect();
    let cloud = one(json!({"operatorType": "IsNotNull", "key": "source.x"}));
    lines.push(take(Schema::CloudEvents, &cloud).expect_err("it is none"));
    expect![[r#"
        properties.filter.advancedFilters[0] is not an object with operatorType and key
        properties.filter.advancedFilters[0].operatorType is missing; expected one of BoolEquals, IsNotNull, IsNullOrUndefined, NumberGreaterThan, NumberGreaterThanOrEquals, NumberIn, NumberInRange, NumberLessThan, NumberLessThanOrEquals, NumberNotIn, NumberNotInRange, StringBeginsWith, StringContains, StringEndsWith, StringIn, StringNotBeginsWith, StringNotContains, StringNotEndsWith, StringNotIn
        properties.filter.advancedFilters[0].operatorType is 5; expected one of BoolEquals, IsNotNull, IsNullOrUndefined, NumberGreaterThan, NumberGreaterThanOrEquals, NumberIn, NumberInRange, NumberLessThan, NumberLessThanOrEquals, NumberNotIn, NumberNotInRange, StringBeginsWith, StringContains, StringEndsWith, StringIn, StringNotBeginsWith, StringNotContains, StringNotEndsWith, StringNotIn
        properties.filter.advancedFilters[0].operatorType is "StringLike\n"; expected one of BoolEquals, IsNotNull, IsNullOrUndefined, NumberGreaterThan, NumberGreaterThanOrEquals, NumberIn, NumberInRange, NumberLessThan, NumberLessThanOrEquals, NumberNotIn, NumberNotInRange, StringBeginsWith, StringContains, StringEndsWith, StringIn, StringNotBeginsWith, StringNotContains, StringNotEndsWith, StringNotIn
        properties.filter.advancedFilters[0].key is missing; expected the name of a property, such as data.total
        properties.filter.advancedFilters[0].key is "source"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema
        properties.filter.advancedFilters[0].key is "data..k", in which a name is empty; expected names joined by single dots, such as data.order.total
        properties.filter.advancedFilters[0].values is missing or empty; StringIn takes strings, at least one
        properties.filter.advancedFilters[0].values is missing or empty; StringIn takes strings, at least one
        properties.filter.advancedFilters[0].values is "a"; StringIn takes a list of strings
        properties.filter.advancedFilters[0].values[1] is 5; StringIn takes strings
        properties.filter.advancedFilters[0].values is missing or empty; StringIn takes strings, at least one
        properties.filter.advancedFilters[0].value is no member of StringIn; leave it out
        properties.filter.advancedFilters[0].values[0] is "5"; NumberIn takes numbers
        properties.filter.advancedFilters[0].value is missing; NumberLessThan takes a number
        properties.filter.advancedFilters[0].value is "5"; NumberLessThan takes a number
        properties.filter.advancedFilters[0].values[0] is 1; NumberInRange takes pairs of numbers, such as [[1, 5], [10, 20]]
        properties.filter.advancedFilters[0].values[0] is [1,2,3]; NumberInRange takes pairs of numbers, such as [[1, 5], [10, 20]]
        properties.filter.advancedFilters[0].values[0] is [2,1], an empty range; expected a range with the smaller end first
        properties.filter.advancedFilters[0].value is "true"; BoolEquals takes true or false
        properties.filter.advancedFilters[0].value is missing; BoolEquals takes true or false
        properties.filter.advancedFilters[0].value is no member of IsNotNull; leave it out
        properties.filter.advancedFilters[0].colour is no member of IsNotNull; leave it out
        properties.filter.advancedFilters[0].key is "source.x"; expected an attribute (id, source, type, subject, ...), an extension, data or data.<path> for events in CloudEventSchemaV1_0"#]].assert_eq(&lines.join("\n"));
    let nulls =
        json!({"operatorType": "IsNotNull", "key": "data.k", "value": null, "values": null});
    take(Schema::EventGrid, &one(nulls)).expect("a null says that a member is left out");
}
