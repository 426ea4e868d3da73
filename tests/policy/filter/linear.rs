//! The cost of filters is linear in the size of an event, for any number of filters and values.

use std::fmt::Write as _;

use gridhook::{
    clock::Clock,
    policy::filter::{Filter, index::FilterIndex},
};
use serde_json::json;

use super::{advanced, filter, with_data};

/// The number of subscriptions, each with the maximum number of values.
const FILTERS: usize = 200;

/// Events are about so long: the largest that there may be.
const LONG: usize = 1_000_000;

/// How long it takes to match, in milliseconds, and how many match.
fn match_all(filters: &[Filter], data: &str) -> (u128, usize) {
    let index = FilterIndex::new(filters);
    let event = with_data(data);
    let clock = Clock::system();
    // The first event builds the caches.
    index.find_candidates(&index.view_event(&event));
    let before = clock.now();
    let view = index.view_event(&event);
    let matched = index
        .find_candidates(&view)
        .into_iter()
        .filter(|place| filters[*place].matches_view(&view))
        .count();
    (clock.now().since(before).as_millis(), matched)
}

/// Filters of which each has 25 values of its own, all of one letter or nearly.
fn filters(operator: &str) -> Vec<Filter> {
    let value = |number: usize| format!("{}{number}b", "a".repeat(200));
    let values = |of: usize| {
        (0..25)
            .map(|number| value(of * 25 + number))
            .collect::<Vec<_>>()
    };
    let one = |of| {
        advanced(
            &json!({"operatorType": operator, "key": "data.k", "values": values(of)}),
            true,
        )
    };
    (0..FILTERS).map(one).collect()
}

/// Five thousand searches of a megabyte take half a minute and more one by one, and far more in a
/// build that is not optimised.
const ENOUGH_MS: u128 = 3_000;

#[test]
fn five_thousand_strings_are_looked_for_in_one_pass() {
    let text = format!(r#"{{"k":"{}"}}"#, "a".repeat(LONG));
    let array = format!(r#"{{"k":[{}"a"]}}"#, r#""aa","#.repeat(LONG / 5));
    for data in [&text, &array] {
        for (operator, expected) in [("StringContains", 0), ("StringNotContains", FILTERS)] {
            let (took, matched) = match_all(&filters(operator), data);
            assert_eq!(matched, expected, "{operator}");
            assert!(took < ENOUGH_MS, "{operator}: {took} ms");
        }
    }
}

#[test]
fn strings_that_lie_in_each_other_cost_no_more() {
    // At each place of the text two hundred of them end.
    let nested: Vec<Filter> = (1..=FILTERS)
        .map(|length| {
            filter(json!({"advancedFilters": [
            {"operatorType": "StringContains", "key": "data.k", "values": ["a".repeat(length)]}]}))
        })
        .collect();
    let (took, matched) = match_all(&nested, &format!(r#"{{"k":"{}"}}"#, "a".repeat(LONG)));
    assert_eq!(matched, FILTERS);
    assert!(took < ENOUGH_MS, "{took} ms");
}

#[test]
fn the_elements_of_an_array_are_looked_up_and_not_gone_through() {
    let mut texts = String::new();
    let mut numbers = String::new();
    for number in 0..LONG / 10 {
        write!(texts, "\"x{number:06}\",").expect("a string takes it");
        write!(numbers, "1{number:07},").expect("a string takes it");
    }
    let data = |list: &str| format!(r#"{{"k":[{}]}}"#, list.trim_end_matches(','));
    for operator in [
        "StringIn",
        "StringNotIn",
        "StringBeginsWith",
        "StringNotBeginsWith",
        "StringEndsWith",
        "StringNotEndsWith",
    ] {
        let (took, matched) = match_all(&filters(operator), &data(&texts));
        assert_eq!(
            matched,
            if operator.contains("Not") { FILTERS } else { 0 },
            "{operator}"
        );
        assert!(took < ENOUGH_MS, "{operator}: {took} ms");
    }
    let values: Vec<u32> = (0..25).collect();
    let ranges: Vec<[u32; 2]> = values.iter().map(|from| [*from, from + 1]).collect();
    for (operator, values) in [
        ("NumberIn", json!(values)),
        ("NumberNotIn", json!(values)),
        ("NumberInRange", json!(ranges)),
        ("NumberNotInRange", json!(ranges)),
    ] {
        let of = advanced(
            &json!({"operatorType": operator, "key": "data.k", "values": values}),
            true,
        );
        let (took, matched) = match_all(&vec![of; FILTERS], &data(&numbers));
        assert_eq!(
            matched,
            if operator.contains("Not") { FILTERS } else { 0 },
            "{operator}"
        );
        assert!(took < ENOUGH_MS, "{operator}: {took} ms");
    }
}

#[test]
fn one_filter_by_itself_looks_for_all_its_strings_at_once() {
    let all = &filters("StringContains")[..20];
    let event = with_data(&format!(r#"{{"k":"{}"}}"#, "a".repeat(LONG)));
    let clock = Clock::system();
    let before = clock.now();
    assert!(!all.iter().any(|filter| filter.matches(&event)));
    let took = clock.now().since(before).as_millis();
    assert!(took < 2 * ENOUGH_MS, "{took} ms");
    let last = with_data(&format!(r#"{{"k":"{}24B"}}"#, "A".repeat(LONG)));
    assert!(all[0].matches(&last));
}

#[test]
fn an_index_that_is_changed_finds_what_a_new_one_finds() {
    let of = |text: &str| {
        filter(json!({"advancedFilters": [
        {"operatorType": "StringContains", "key": "data.k", "values": [text]}]}))
    };
    let text = |number: usize| format!("{}{number}.", "x".repeat(300));
    let event = with_data(&format!(
        r#"{{"k":"{}{}{}{}"}}"#,
        text(3),
        text(250),
        text(499),
        text(777)
    ));
    let mut index = FilterIndex::default();
    // Several blocks; some filters go, others come.
    for range in [0..500, 0..501, 100..501, 400..800, 0..4, 3..4] {
        let filters: Vec<Filter> = range.clone().map(|number| of(&text(number))).collect();
        index = index.rebuild(&filters);
        let found: Vec<usize> = index
            .find_candidates(&index.view_event(&event))
            .into_iter()
            .map(|place| place + range.start)
            .collect();
        let expected: Vec<usize> = [3, 250, 499, 777]
            .into_iter()
            .filter(|number| range.contains(number))
            .collect();
        assert_eq!(found, expected, "{range:?}");
    }
}

#[test]
fn deep_keys_read_an_event_no_more_often_than_flat_ones() {
    const DEPTH: usize = 2_000;
    let text = "x".repeat(LONG / 2);
    let inner = format!(r#"{{"k":"value","text":"{text}"}}"#);
    let data = format!("{}{inner}{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
    let event = with_data(&data);
    let one = |depth: usize| {
        let key = format!("data{}.k", ".a".repeat(depth));
        advanced(
            &json!({"operatorType": "StringIn", "key": key, "values": ["value"]}),
            true,
        )
    };
    // The deepest first, the shallowest first, and one alone.
    let depths: Vec<usize> = (0..20)
        .map(|number| number * DEPTH / 20)
        .chain([DEPTH])
        .collect();
    let backwards = depths.iter().rev().copied().collect();
    for order in [depths, backwards, vec![DEPTH]] {
        let filters: Vec<Filter> = order.iter().map(|depth| one(*depth)).collect();
        let index = FilterIndex::new(&filters);
        let view = index.view_event(&event);
        let matched: Vec<usize> = order
            .into_iter()
            .zip(&filters)
            .filter(|(_, of)| of.matches_view(&view))
            .map(|(depth, _)| depth)
            .collect();
        assert_eq!(matched, [DEPTH]);
        let read = view.bytes_read();
        let length = event.wire_len();
        assert!(
            (length / 2..2 * length).contains(&read),
            "{read} bytes read of {length}"
        );
    }
}
