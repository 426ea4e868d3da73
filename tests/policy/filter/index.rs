//! Many filters at once are the same as each of them alone, and cost less.

use gridhook::{
    event::Event,
    policy::filter::{Filter, index::FilterIndex, view::EventView},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{event_grid, filter, verdict, with_data};

fn alone(filters: &[Filter], event: &Event) -> Vec<usize> {
    (0..filters.len())
        .filter(|place| filters[*place].matches(event))
        .collect()
}

fn candidates(filters: &[Filter], event: &Event) -> Vec<usize> {
    FilterIndex::new(filters).find_candidates(&EventView::new(event))
}

fn by_index(index: &FilterIndex, filters: &[Filter], event: &Event) -> Vec<usize> {
    let view = index.view_event(event);
    index
        .find_candidates(&view)
        .into_iter()
        .filter(|place| filters[*place].matches_view(&view))
        .collect()
}

/// Few values, so that they meet.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        (0..4).prop_map(|value| json!(value)),
        Just(json!(1.0)),
        Just(json!(0.5)),
        prop::sample::select(vec!["", "a", "A", "ab", "b", "ä", "Ä", "1", "true"])
            .prop_map(|text| json!(text)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => scalar(),
        1 => prop::collection::vec(prop_oneof![4 => scalar(), 1 => Just(json!({"a": 1})), 1 => Just(json!([1]))], 0..4)
            .prop_map(Value::from),
        1 => Just(json!({"x": "a"})),
    ]
}

const KEYS: [&str; 7] = [
    "data.x",
    "data.y",
    "DATA.X",
    "data.deep.z",
    "subject",
    "eventType",
    "data",
];

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&KEYS[..])
}

fn texts() -> impl Strategy<Value = Value> {
    prop::collection::vec(
        prop::sample::select(vec!["", "a", "AB", "b", "ä", "/b", "Made", "ad"]),
        1..4,
    )
    .prop_map(Value::from)
}

fn operator() -> impl Strategy<Value = Value> {
    let strings = [
        "StringContains",
        "StringBeginsWith",
        "StringEndsWith",
        "StringIn",
        "StringIn",
        "StringNotContains",
        "StringNotBeginsWith",
        "StringNotEndsWith",
        "StringNotIn",
    ];
    let bounds = [
        "NumberLessThan",
        "NumberGreaterThan",
        "NumberLessThanOrEquals",
        "NumberGreaterThanOrEquals",
    ];
    let numbers = || {
        prop::collection::vec(
            prop_oneof![(0..4).prop_map(|n| json!(n)), Just(json!(0.5))],
            1..4,
        )
    };
    prop_oneof![
        4 => (key(), prop::sample::select(strings.to_vec()), texts())
            .prop_map(|(key, name, values)| json!({"key": key, "operatorType": name, "values": values})),
        2 => (key(), prop::sample::select(vec!["NumberIn", "NumberNotIn"]), numbers())
            .prop_map(|(key, name, values)| json!({"key": key, "operatorType": name, "values": values})),
        1 => (key(), prop::sample::select(bounds.to_vec()), 0..4)
            .prop_map(|(key, name, value)| json!({"key": key, "operatorType": name, "value": value})),
        1 => (key(), prop::sample::select(vec!["NumberInRange", "NumberNotInRange"]), 0..4, 0..3)
            .prop_map(|(key, name, least, more)| {
                json!({"key": key, "operatorType": name, "values": [[least, least + more]]})
            }),
        1 => (key(), any::<bool>()).prop_map(|(key, value)| json!({"key": key, "operatorType": "BoolEquals", "value": value})),
        1 => (key(), prop::sample::select(vec!["IsNullOrUndefined", "IsNotNull"]))
            .prop_map(|(key, name)| json!({"key": key, "operatorType": name})),
    ]
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let types = prop::collection::vec(
        prop::sample::select(vec!["Made", "MADE", "Lost", "Ärger", "All"]),
        0..3,
    );
    let part = || prop::sample::select(vec!["", "", "/", "/a", "/A", "/ä/", "b"]);
    let topic = prop::option::of(prop::sample::select(vec!["north", "NORTH", "south", "ä"]));
    let asked = (
        prop::option::of(types),
        part(),
        part(),
        any::<bool>(),
        prop::collection::vec(operator(), 0..3),
    );
    (topic, asked, any::<bool>()).prop_map(|(topic, (types, begins, ends, case, advanced), arrays)| {
        filter(json!({"includedEventTypes": types, "subjectBeginsWith": begins, "subjectEndsWith": ends,
            "isSubjectCaseSensitive": case, "advancedFilters": advanced,
            "enableAdvancedFilteringOnArrays": arrays, "domainTopic": topic}))
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let types = prop::sample::select(vec!["Made", "made", "LOST", "ärger", "Other"]);
    let subjects = prop::sample::select(vec!["", "/", "/a/b", "/A/b", "/Ä/B", "/ä/", "b", "x"]);
    let data = prop_oneof![
        4 => (prop::option::of(value()), prop::option::of(value()), prop::option::of(value())).prop_map(|(x, y, z)| {
            let mut data = json!({});
            for (name, value) in [("X", x), ("y", y), ("deep", z.map(|z| json!({"z": z})))] {
                if let Some(value) = value {
                    data[name] = value;
                }
            }
            data
        }),
        1 => value(),
    ];
    let topics = prop::option::of(prop::sample::select(vec![
        "north", "North", "south", "Ä", "west",
    ]));
    (topics, types, subjects, prop::option::of(data)).prop_map(
        |(topic, event_type, subject, data)| {
            let mut event = json!({"id": "1", "subject": subject, "eventType": event_type});
            if let Some(topic) = topic {
                event["topic"] = format!("/d/topics/{topic}").into();
            }
            if let Some(data) = data {
                event["data"] = data;
            }
            event_grid(&event.to_string())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_exactly_what_each_filter_alone_lets_pass(
        filters in prop::collection::vec(any_filter(), 1..40),
        events in prop::collection::vec(any_event(), 1..8),
    ) {
        let index = FilterIndex::new(&filters);
        for event in &events {
            prop_assert_eq!(by_index(&index, &filters, event), alone(&filters, event), "{:?}", event);
            // Also where the strings of the index are not known.
            let view = EventView::new(event);
            let found: Vec<usize> =
                index.find_candidates(&view).into_iter().filter(|place| filters[*place].matches_view(&view)).collect();
            prop_assert_eq!(found, alone(&filters, event), "{:?}", event);
        }
    }
}

#[test]
fn only_candidates_among_thousands_of_filters_are_evaluated() {
    let filters: Vec<Filter> = (0..6000)
        .map(|number| match number % 3 {
            0 => filter(json!({"includedEventTypes": [format!("Type{number}")]})),
            1 => filter(json!({"subjectBeginsWith": format!("/tenants/{number}/")})),
            _ => filter(json!({"advancedFilters": [
                {"operatorType": "NumberGreaterThan", "key": "data.total", "value": 10},
                {"operatorType": "StringIn", "key": "data.tenant", "values": [format!("t{number}"), "everybody"]}]})),
        })
        .collect();
    let check = |event: &str, expected: &[usize]| {
        let event = event_grid(event);
        assert_eq!(candidates(&filters, &event), expected);
        assert_eq!(
            by_index(&FilterIndex::new(&filters), &filters, &event),
            alone(&filters, &event)
        );
    };
    check(
        r#"{"id":"1","subject":"/tenants/4000/x","eventType":"TYPE3000","data":{"tenant":"T5"}}"#,
        &[5, 3000, 4000],
    );
    check(
        r#"{"id":"1","subject":"/tenants/4001/x","eventType":"None","data":{"tenant":["t8","T5","t8"],"total":11}}"#,
        &[5, 8],
    );
    check(r#"{"id":"1","subject":"","eventType":"None"}"#, &[]);
}

/// The value of `data` cannot be read: a filter on it does not match, and a filter that would read
/// it is detected.
const BROKEN: &str = r#"{"id":"1","subject":"/a/b","eventType":"Made","data":{"x":}}"#;

#[test]
fn data_is_not_read_where_no_candidate_asks_for_it() {
    let exists = json!([{"operatorType": "IsNullOrUndefined", "key": "topic"}]);
    let reads = filter(json!({"advancedFilters": exists}));
    let whole = with_data("");
    assert!(
        !reads.matches(&whole),
        "where the JSON can be read there is a topic"
    );
    assert!(
        reads.matches(&event_grid(BROKEN)),
        "where it cannot, a filter that reads it finds none"
    );
    let view_of = |filters: &[Filter]| {
        let event = event_grid(BROKEN);
        let view = EventView::new(&event);
        let index = FilterIndex::new(filters);
        let matched = index
            .find_candidates(&view)
            .into_iter()
            .filter(|place| filters[*place].matches_view(&view))
            .count();
        (matched, view.bytes_read() > 0)
    };
    let in_data = json!([{"operatorType": "StringIn", "key": "data.x", "values": ["y"]}]);
    let at_hand = json!([{"operatorType": "StringIn", "key": "subject", "values": ["/A/B"]},
        {"operatorType": "StringBeginsWith", "key": "id", "values": ["1"]}]);
    let quiet = [
        filter(json!({})),
        filter(
            json!({"includedEventTypes": ["Made"], "subjectBeginsWith": "/a", "subjectEndsWith": "B"}),
        ),
        filter(json!({"advancedFilters": at_hand})),
        filter(json!({"includedEventTypes": ["Other"], "advancedFilters": in_data})),
        filter(json!({"subjectBeginsWith": "/b", "advancedFilters": in_data})),
        filter(
            json!({"subjectEndsWith": "c", "advancedFilters": [{"operatorType": "IsNotNull", "key": "data.x"}]}),
        ),
    ];
    assert_eq!(view_of(&quiet), (3, false));
    let loud = [filter(
        json!({"includedEventTypes": ["made"], "advancedFilters": in_data}),
    )];
    assert_eq!(view_of(&loud), (0, true));
}

/// An event's strings are compared as they are stored where that is enough, and decoded otherwise.
#[test]
fn strings_are_compared_as_they_are_meant_and_not_as_they_are_written() {
    let long = "x".repeat(200);
    let events = [
        (r"Made", "/a/b"),
        (r"\u004dade", r"\/a\/b"),
        (r"MADE", "/A/B"),
        (r"Mad\\u0065", r"/a\\b"),
        ("Gemächt", "/ä"),
        ("GEMÄCHT", "/Ä"),
        (&long, &long),
    ]
    .map(|(kind, subject)| {
        event_grid(&format!(
            r#"{{"id":"1","subject":"{subject}","eventType":"{kind}"}}"#
        ))
    });
    let rows = [
        (json!({"includedEventTypes": ["Made"]}), vec![0, 1, 2]),
        (json!({"includedEventTypes": [r"Mad\u0065"]}), vec![3]),
        (json!({"includedEventTypes": [r"\u004dade"]}), vec![]),
        (json!({"includedEventTypes": ["gemächt"]}), vec![4, 5]),
        (
            json!({"includedEventTypes": [long.to_uppercase()], "subjectBeginsWith": long}),
            vec![6],
        ),
        (json!({"subjectBeginsWith": "/a/"}), vec![0, 1, 2]),
        (
            json!({"subjectBeginsWith": "/a/", "isSubjectCaseSensitive": true}),
            vec![0, 1],
        ),
        (json!({"subjectBeginsWith": r"\/a"}), vec![]),
        (json!({"subjectBeginsWith": r"/a\b"}), vec![3]),
        (json!({"subjectBeginsWith": r"/a\\b"}), vec![]),
        (json!({"subjectBeginsWith": "/ä"}), vec![4, 5]),
        (
            json!({"subjectBeginsWith": "/a", "subjectEndsWith": "b"}),
            vec![0, 1, 2, 3],
        ),
        (
            json!({"includedEventTypes": ["Made"], "subjectBeginsWith": "/b"}),
            vec![],
        ),
        (json!({}), vec![0, 1, 2, 3, 4, 5, 6]),
    ];
    let filters: Vec<Filter> = rows
        .iter()
        .map(|(value, _)| filter(value.clone()))
        .collect();
    let index = FilterIndex::new(&filters);
    for (place, (value, expected)) in rows.iter().enumerate() {
        let of = |matches: &dyn Fn(&Event) -> bool| -> Vec<usize> {
            (0..events.len())
                .filter(|event| matches(&events[*event]))
                .collect()
        };
        assert_eq!(
            of(&|event| filters[place].matches(event)),
            *expected,
            "{value}"
        );
        assert_eq!(
            of(&|event| verdict(&filters[place], event) == "match"),
            *expected,
            "explained: {value}"
        );
        assert_eq!(
            of(&|event| by_index(&index, &filters, event).contains(&place)),
            *expected,
            "by index: {value}"
        );
    }
}

#[test]
fn a_search_of_many_strings_in_a_long_text_is_made_in_parts_and_finds_the_same() {
    let text = |number: usize| format!("{}{number}", "needle ".repeat(40));
    let of_subscription = |number: usize| {
        let values: Vec<String> = (0..25).map(|value| text(25 * number + value)).collect();
        let operator = if number.is_multiple_of(3) {
            "StringNotContains"
        } else {
            "StringContains"
        };
        let key = ["data.text", "subject", "data.list"][number % 3];
        filter(json!({
            "enableAdvancedFilteringOnArrays": true,
            "advancedFilters": [{"operatorType": operator, "key": key, "values": values}],
        }))
    };
    let filters: Vec<Filter> = (0..60).map(of_subscription).collect();
    let index = FilterIndex::new(&filters);
    let long = format!(
        "{} {} {}",
        "hay ".repeat(100_000),
        text(7 * 25 + 3),
        text(12 * 25)
    );
    let event = with_data(&json!({"text": long, "list": [text(20 * 25), 3, text(1)]}).to_string());
    let mut scan = index.begin_scan(&event).expect("it costs much");
    let mut parts = 0;
    let mut most = 0;
    while let Some(cost) = index.advance_scan(&mut scan) {
        (parts, most) = (parts + 1, most.max(cost));
    }
    assert!(
        parts >= 12 && most < 2 * long.len() + 2 * 1024 * 1024,
        "{parts} parts, {most} bytes"
    );
    let view = index.searched_view(&event, Some(&scan));
    let found: Vec<usize> = index
        .find_candidates(&view)
        .into_iter()
        .filter(|place| filters[*place].matches_view(&view))
        .collect();
    assert_eq!(found, alone(&filters, &event));
    assert!(
        index
            .begin_scan(&with_data(r#"{"text": "short"}"#))
            .is_none(),
        "the automata are there"
    );
}
