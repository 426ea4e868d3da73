//! Nineteen operators, each with a value of every kind.

use expect_test::expect;
use gridhook::policy::filter::number::{ExactNumber, rounding_problem};
use proptest::prelude::*;
use serde_json::json;

use super::{advanced, event_grid, filter, verdict, with_data};

proptest! {
    /// The shortest text of a double has up to 17 digits. Such a number is stored as it is.
    #[test]
    fn the_shortest_text_of_a_double_is_not_rounded(number in any::<f64>()) {
        prop_assume!(number.is_finite());
        let text = format!("{number:?}");
        prop_assert_eq!(rounding_problem(&text), None);
        let stored: ExactNumber = serde_json::from_str(&text).expect("a number");
        let given: f64 = serde_json::to_string(&stored).expect("JSON").parse().expect("a number");
        prop_assert_eq!(given, number);
        let long = format!("{number:.16e}");
        prop_assert_eq!(rounding_problem(&long), None);
    }
}

/// A line for each filter, a column for each value: `+` passes, `.` does not.
fn table(filters: &[serde_json::Value], values: &[&str]) -> String {
    let mut lines = vec![format!("{:29}{}", "", values.join("  "))];
    for given in filters {
        let mut line = format!("{:29}", given["operatorType"].as_str().expect("a name"));
        for value in values {
            let (data, on_arrays) = match value.strip_suffix('*') {
                Some(value) => (value, true),
                None => (*value, false),
            };
            let event = if data == "none" {
                with_data("{}")
            } else {
                with_data(&format!(r#"{{"k":{data}}}"#))
            };
            let filter = advanced(given, on_arrays);
            let sign = if filter.matches(&event) { '+' } else { '.' };
            line += &format!("{sign:width$}  ", width = value.chars().count());
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

#[test]
fn every_operator_on_numbers_matches_as_documented() {
    let many =
        |operator: &str| json!({"operatorType": operator, "key": "data.k", "values": [5, 1.5]});
    let one = |operator: &str| json!({"operatorType": operator, "key": "data.k", "value": 5});
    let ranges = |operator: &str| json!({"operatorType": operator, "key": "data.k", "values": [[1.0, 2.0], [5, 7]]});
    let filters = [
        many("NumberIn"),
        many("NumberNotIn"),
        one("NumberLessThan"),
        one("NumberGreaterThan"),
        one("NumberLessThanOrEquals"),
        one("NumberGreaterThanOrEquals"),
        ranges("NumberInRange"),
        ranges("NumberNotInRange"),
    ];
    let scalars = [
        "none", "null", "5", "5.00", "0.5e1", "1.5", "4.999", "7", "-5", "\"5\"", "true", "{}",
        "1e400",
    ];
    expect![[r#"
                                     none  null  5  5.00  0.5e1  1.5  4.999  7  -5  "5"  true  {}  1e400
        NumberIn                     .     .     +  +     +      +    .      .  .   .    .     .   .
        NumberNotIn                  +     +     .  .     .      .    +      +  +   .    .     .   +
        NumberLessThan               .     .     .  .     .      +    +      .  +   .    .     .   .
        NumberGreaterThan            .     .     .  .     .      .    .      +  .   .    .     .   +
        NumberLessThanOrEquals       .     .     +  +     +      +    +      .  +   .    .     .   .
        NumberGreaterThanOrEquals    .     .     +  +     +      .    .      +  .   .    .     .   +
        NumberInRange                .     .     +  +     +      +    .      +  .   .    .     .   .
        NumberNotInRange             +     +     .  .     .      .    +      .  +   .    .     .   +"#]]
    .assert_eq(&table(&filters, &scalars));
    // With a star the subscription asks for a look into arrays.
    let arrays = [
        "[5]",
        "[5]*",
        "[9,5]*",
        "[0,9]*",
        "[]*",
        "[\"5\"]*",
        "[null,5]*",
        "[[5]]*",
        "[{},9]*",
    ];
    expect![[r#"
                                     [5]  [5]*  [9,5]*  [0,9]*  []*  ["5"]*  [null,5]*  [[5]]*  [{},9]*
        NumberIn                     .    +     +       .       .    .       +          .       .
        NumberNotIn                  .    .     .       +       +    +       .          +       +
        NumberLessThan               .    .     .       +       .    .       .          .       .
        NumberGreaterThan            .    .     +       +       .    .       .          .       +
        NumberLessThanOrEquals       .    +     +       +       .    .       +          .       .
        NumberGreaterThanOrEquals    .    +     +       +       .    .       +          .       +
        NumberInRange                .    +     +       .       .    .       +          .       .
        NumberNotInRange             .    .     .       +       +    +       .          +       +"#]]
    .assert_eq(&table(&filters, &arrays));
}

#[test]
fn every_operator_on_strings_matches_as_documented() {
    let make =
        |operator: &&str| json!({"operatorType": operator, "key": "data.k", "values": ["Ab", "5"]});
    let filters: Vec<_> = [
        "StringContains",
        "StringBeginsWith",
        "StringEndsWith",
        "StringIn",
        "StringNotContains",
        "StringNotBeginsWith",
        "StringNotEndsWith",
        "StringNotIn",
    ]
    .iter()
    .map(make)
    .collect();
    let scalars = [
        "none", "null", "\"Ab\"", "\"aB\"", "\"xabx\"", "\"abx\"", "\"xab\"", "\"\"", "\"x\"", "5",
        "true",
    ];
    expect![[r#"
                                     none  null  "Ab"  "aB"  "xabx"  "abx"  "xab"  ""  "x"  5  true
        StringContains               .     .     +     +     +       +      +      .   .    .  .
        StringBeginsWith             .     .     +     +     .       +      .      .   .    .  .
        StringEndsWith               .     .     +     +     .       .      +      .   .    .  .
        StringIn                     .     .     +     +     .       .      .      .   .    .  .
        StringNotContains            .     .     .     .     .       .      .      +   +    .  .
        StringNotBeginsWith          .     .     .     .     +       .      +      +   +    .  .
        StringNotEndsWith            .     .     .     .     +       +      .      +   +    .  .
        StringNotIn                  +     +     .     .     +       +      +      +   +    .  ."#]]
    .assert_eq(&table(&filters, &scalars));
    let arrays = [
        "[\"ab\"]",
        "[\"ab\"]*",
        "[\"x\",\"ab\"]*",
        "[\"x\"]*",
        "[]*",
        "[5]*",
        "[null]*",
        "[{\"a\":\"ab\"}]*",
        "{\"a\":\"ab\"}",
    ];
    expect![[r#"
                                     ["ab"]  ["ab"]*  ["x","ab"]*  ["x"]*  []*  [5]*  [null]*  [{"a":"ab"}]*  {"a":"ab"}
        StringContains               .       +        +            .       .    .     .        .              .
        StringBeginsWith             .       +        +            .       .    .     .        .              .
        StringEndsWith               .       +        +            .       .    .     .        .              .
        StringIn                     .       +        +            .       .    .     .        .              .
        StringNotContains            .       .        .            +       +    +     +        +              .
        StringNotBeginsWith          .       .        .            +       +    +     +        +              .
        StringNotEndsWith            .       .        .            +       +    +     +        +              .
        StringNotIn                  .       .        .            +       +    +     +        +              ."#]]
    .assert_eq(&table(&filters, &arrays));
}

#[test]
fn booleans_and_nothing_have_operators_of_their_own() {
    let filters = [
        json!({"operatorType": "BoolEquals", "key": "data.k", "value": true}),
        json!({"operatorType": "IsNullOrUndefined", "key": "data.k"}),
        json!({"operatorType": "IsNotNull", "key": "data.k"}),
    ];
    let values = [
        "none",
        "null",
        "true",
        "false",
        "\"true\"",
        "1",
        "\"\"",
        "0",
        "{}",
        "[]",
        "[true]",
        "[false,true]*",
        "[false]*",
        "[null]*",
    ];
    expect![[r#"
                                     none  null  true  false  "true"  1  ""  0  {}  []  [true]  [false,true]*  [false]*  [null]*
        BoolEquals                   .     .     +     .      .       .  .   .  .   .   .       +              .         .
        IsNullOrUndefined            +     +     .     .      .       .  .   .  .   .   .       .              .         .
        IsNotNull                    .     .     +     +      +       +  +   +  +   +   +       +              +         +"#]].assert_eq(&table(&filters, &values));
}

#[test]
fn numbers_are_compared_by_their_digits() {
    let check = |operator: &str, bound: &str, value: &str, expected: bool| {
        let text =
            format!(r#"{{"operatorType": "{operator}", "key": "data.k", "value": {bound}}}"#);
        let given = serde_json::from_str(&text).expect("a filter");
        let event = with_data(&format!(r#"{{"k":{value}}}"#));
        assert_eq!(
            advanced(&given, false).matches(&event),
            expected,
            "{value} {operator} {bound}"
        );
    };
    // As floating point, the two would be the same number.
    check(
        "NumberGreaterThan",
        "9007199254740992",
        "9007199254740993",
        true,
    );
    check(
        "NumberLessThan",
        "18446744073709551615",
        "18446744073709551616",
        false,
    );
    check(
        "NumberLessThanOrEquals",
        "0.1",
        "0.1000000000000000055511151231257827",
        false,
    );
    check("NumberLessThanOrEquals", "0.1", "0.10", true);
    check("NumberLessThan", "-1", "-1.5", true);
    check("NumberGreaterThan", "-1.5", "-1", true);
    check("NumberLessThan", "0", "-0.0", false);
    check("NumberGreaterThanOrEquals", "0", "-0.0", true);
    check("NumberGreaterThan", "1e308", "1e99999999999999999999", true);
    check("NumberLessThan", "1e-308", "1e-99999999999999999999", true);
    check(
        "NumberGreaterThan",
        "-1e308",
        "-1e99999999999999999999",
        false,
    );
    check("NumberGreaterThan", "99", "100", true);
    check("NumberGreaterThan", "0.099", "0.1", true);
}

#[test]
fn case_counts_nowhere_but_in_a_subject_that_asks_for_it() {
    let check = |given: serde_json::Value, event: &str, expected: bool| {
        assert_eq!(
            filter(given.clone()).matches(&event_grid(event)),
            expected,
            "{given} {event}"
        );
    };
    let event = r#"{"id":"1","subject":"/ÄPFEL/ΟΔΟΣΑ.Jpg","data":{"Ort":"STRASSE/ΟΔΟΣΑ"},"eventType":"Order.Placed"}"#;
    check(
        json!({"includedEventTypes": ["x", "oRDER.pLACED"]}),
        event,
        true,
    );
    check(json!({"includedEventTypes": ["Order"]}), event, false);
    check(json!({"includedEventTypes": ["x", "all"]}), event, true);
    check(json!({"includedEventTypes": []}), event, true);
    check(json!({"subjectBeginsWith": "/äpfel"}), event, true);
    check(
        json!({"subjectBeginsWith": "/äpfel", "isSubjectCaseSensitive": true}),
        event,
        false,
    );
    check(
        json!({"subjectBeginsWith": "/ÄPFEL/", "isSubjectCaseSensitive": true}),
        event,
        true,
    );
    check(json!({"subjectEndsWith": "α.JPG"}), event, true);
    check(
        json!({"subjectEndsWith": "α.JPG", "isSubjectCaseSensitive": true}),
        event,
        false,
    );
    // .NET has one upper case for the three sigmas.
    check(json!({"subjectBeginsWith": "/äpfel/οδος"}), event, true);
    // A word that ends in a sigma, at the beginning of a longer one.
    check(json!({"subjectBeginsWith": "/äpfel/ΟΔΟΣ"}), event, true);
    let key = |operator: &str, value: &str| {
        json!({"isSubjectCaseSensitive": true,
            "advancedFilters": [{"operatorType": operator, "key": "DATA.ort", "values": [value]}]})
    };
    check(key("StringBeginsWith", "Strasse"), event, true);
    check(key("StringContains", "ΟΔΟΣ"), event, true);
    check(key("StringIn", "strasse/οδοσα"), event, true);
    check(key("StringNotEndsWith", "σα"), event, false);
}

#[test]
fn case_is_what_dotnet_takes_for_case() {
    let is = |value: &str, text: &str| {
        let given = advanced(
            &json!({"operatorType": "StringIn", "key": "data.k", "values": [value]}),
            false,
        );
        given.matches(&with_data(&json!({"k": text}).to_string()))
    };
    for same in [
        ["ς", "Σ"],
        ["σ", "ς"],
        ["ä", "Ä"],
        ["я", "Я"],
        ["ǆ", "ǅ"],
        ["µ", "Μ"],
        ["ᾳ", "ᾼ"],
        ["ᾀ", "ᾈ"],
        ["ÿ", "Ÿ"],
        ["𐐨", "𐐀"],
        ["ⅷ", "Ⅷ"],
        ["k", "K"],
    ] {
        assert!(is(same[0], same[1]) && is(same[1], same[0]), "{same:?}");
    }
    // Nothing becomes two characters, and nothing outside of ASCII becomes a letter of it.
    for other in [
        ["ß", "SS"],
        ["ß", "ẞ"],
        ["ı", "I"],
        ["İ", "i"],
        ["ſ", "s"],
        ["\u{212a}", "k"],
        ["\u{212b}", "å"],
        ["ﬁ", "FI"],
        ["e\u{301}", "é"],
    ] {
        assert!(
            !is(other[0], other[1]) && !is(other[1], other[0]),
            "{other:?}"
        );
    }
}

#[test]
fn parts_are_joined_by_and_values_by_or() {
    let given = filter(json!({
    "includedEventTypes": ["Made"], "subjectEndsWith": ".jpg",
    "advancedFilters": [
        {"operatorType": "StringIn", "key": "data.color", "values": ["red", "blue"]},
        {"operatorType": "NumberGreaterThan", "key": "data.total", "value": 100},
    ]}));
    let lines: Vec<String> = [
        r#"{"color":"BLUE","total":100.5}"#,
        r#"{"color":"green","total":101}"#,
        r#"{"color":"red","total":100}"#,
        r#"{"color":"red","total":"200"}"#,
        r#"{"color":"red","total":[200]}"#,
        r#"{"color":null,"total":200}"#,
        r#"{"total":200}"#,
        "",
        r#"{"color":"red","total":{"much":1}}"#,
    ]
    .iter()
    .map(|data| verdict(&given, &with_data(data)))
    .collect();
    expect![[r#"
        match
        advancedFilters[0] (StringIn data.color): the value is not what the operator asks for; "green"
        advancedFilters[1] (NumberGreaterThan data.total): the value is not what the operator asks for; 100
        advancedFilters[1] (NumberGreaterThan data.total): the value is not of the type that the operator compares; "200"
        advancedFilters[1] (NumberGreaterThan data.total): the value is an array, and enableAdvancedFilteringOnArrays is not true; [200]
        advancedFilters[0] (StringIn data.color): the value is null; null
        advancedFilters[0] (StringIn data.color): the event has nothing at this key; nothing
        advancedFilters[0] (StringIn data.color): the event has nothing at this key; nothing
        advancedFilters[1] (NumberGreaterThan data.total): the value is not of the type that the operator compares; {"much":1}"#]].assert_eq(&lines.join("\n"));
    let other =
        r#"{"id":"1","subject":"/a/b.png","data":{"color":"red","total":101},"eventType":"Made"}"#;
    expect![[r#"subjectEndsWith: the subject ends otherwise; "/a/b.png""#]]
        .assert_eq(&verdict(&given, &event_grid(other)));
    let other =
        r#"{"id":"1","subject":"/a/b.jpg","data":{"color":"red","total":101},"eventType":"Lost"}"#;
    expect![[r#"includedEventTypes: the event type is not among them; "Lost""#]]
        .assert_eq(&verdict(&given, &event_grid(other)));
    let other = r#"{"id":"1","topic":"/d/topics/South","subject":"/a/b.jpg","eventType":"Lost"}"#;
    expect![[r#"domainTopic: the event is for another topic of the domain; "South""#]].assert_eq(
        &verdict(&filter(json!({"domainTopic": "north"})), &event_grid(other)),
    );
    assert_eq!(
        verdict(&filter(json!({"domainTopic": "SOUTH"})), &event_grid(other)),
        "match"
    );
    let starts = filter(json!({"subjectBeginsWith": "/b"}));
    expect![[r#"subjectBeginsWith: the subject begins otherwise; "/a/b.jpg""#]]
        .assert_eq(&verdict(&starts, &with_data("")));
    let none = filter(
        json!({"advancedFilters": [{"operatorType": "IsNullOrUndefined", "key": "data.k"},
        {"operatorType": "StringNotIn", "key": "data.l", "values": ["x"]}]}),
    );
    expect![[r#"advancedFilters[0] (IsNullOrUndefined data.k): the event has a value at this key; "here""#]]
        .assert_eq(&verdict(&none, &with_data(r#"{"k":"here"}"#)));
    let long = format!(r#"{{"l":["x","{}"]}}"#, "ü".repeat(1000));
    let none = super::Filter {
        enable_advanced_filtering_on_arrays: true,
        ..none
    };
    let reported = verdict(&none, &with_data(&long));
    assert!(
        reported.starts_with(
            "advancedFilters[1] (StringNotIn data.l): the value is what the operator \
             excludes; [\"x\""
        ),
        "{reported}"
    );
    assert!(
        reported.ends_with("...") && reported.chars().count() < 300,
        "what is long is cut: {reported}"
    );
}
