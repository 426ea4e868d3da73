//! Every function, with examples of the forms that its documentation has.

use std::collections::BTreeSet;

use gridhook::template::{Expression, StateKey, States, function_names, parse_expression};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{evaluate, expand_with};

/// Expressions and their values as JSON.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &str)] = &[
    // Strings
    ("base64('one, two, three')", r#""b25lLCB0d28sIHRocmVl""#),
    ("base64ToString('b25lLCB0d28sIHRocmVl')", r#""one, two, three""#),
    ("base64ToJson(base64('{\"one\": \"a\", \"two\": 2}')).two", "2"),
    ("buildUri(createObject('scheme', 'https', 'host', 'a.b', 'port', 8080, 'path', '/c/d', 'query', '?e=f'))", r#""https://a.b:8080/c/d?e=f""#),
    ("buildUri(createObject('scheme', 'https', 'host', 'a.b', 'port', null()))", r#""https://a.b/""#),
    ("buildUri(parseUri('http://[::1]:80/a/?b=c&d'))", r#""http://[::1]:80/a/?b=c&d""#),
    ("buildUri(parseUri('https://h//a/??b'))", r#""https://h//a/??b""#),
    ("concat('prefix', '-', 5, '-', true())", r#""prefix-5-True""#),
    ("concat(createArray(1, 2), createArray(3))", "[1, 2, 3]"),
    ("contains('OneTwoThree', 'e')", "true"),
    ("contains('OneTwoThree', 'z')", "false"),
    ("contains(createObject('one', 1), 'ONE')", "true"),
    ("contains(createArray('one', 'two'), 'two')", "true"),
    ("contains(createArray(1, 2), 3)", "false"),
    ("dataUri('Hello')", r#""data:text/plain;charset=utf8;base64,SGVsbG8=""#),
    ("dataUriToString('data:;base64,SGVsbG8sIFdvcmxkIQ==')", r#""Hello, World!""#),
    ("dataUriToString('data:text/plain,a%20b')", r#""a b""#),
    ("distinct(createArray('a', 'b', 'a', 1, 1))", r#"["a", "b", 1]"#),
    ("empty('')", "true"),
    ("empty(createArray())", "true"),
    ("empty(createObject('a', 1))", "false"),
    ("empty(null())", "true"),
    ("endsWith('abcdef', 'EF')", "true"),
    ("endsWith('abcdef', 'e')", "false"),
    ("first('One Two Three')", r#""O""#),
    ("first(createArray('one', 'two'))", r#""one""#),
    ("first('')", r#""""#),
    ("format('{0}, {1}. Formatted number: {2:D4}', 'Hello', 'User', 17)", r#""Hello, User. Formatted number: 0017""#),
    ("format('{{0}} {0} {1}', 'a', null())", r#""{0} a ""#),
    ("format('{0,4}|{0,-4}|{1:X2}', 'ab', 171)", r#""  ab|ab  |AB""#),
    ("format('{0:N0} {1:N0} {2:N1} {3:N}', 8175133, -999, 1000, 0)", r#""8,175,133 -999 1,000.0 0.00""#),
    ("format('{0:000}-{1:00}-{2:0}', 7, 123, -4)", r#""007-123--4""#),
    ("guid('a', 'b', 'c')", r#""a98fa280-e03f-5afa-8d8e-92d0a9c201e8""#),
    ("indexOf('test', 't')", "0"),
    ("indexOf('abcdef', 'CD')", "2"),
    ("indexOf('abcdef', 'z')", "-1"),
    ("indexOf(createArray('one', 'two'), 'two')", "1"),
    ("join(createArray('one', 'two', 'three'), ',')", r#""one,two,three""#),
    ("join(createArray(1, 2), ', ')", r#""1, 2""#),
    ("json('{\"a\": [1, null]}')", r#"{"a": [1, null]}"#),
    ("json('true')", "true"),
    // What Newtonsoft.Json reads beside JSON.
    ("json('{''a'': ''it\\''s \"b\"'', c_1: [1e3, true, ''x'',], } // end')", r#"{"a": "it's \"b\"", "c_1": [1000.0, true, "x"]}"#),
    ("json('/* a */ [\"one\ttwo\", 1, /* b **/ -2.5]')", r#"["one\ttwo", 1, -2.5]"#),
    ("last('One Two Three')", r#""e""#),
    ("last(createArray('one', 'two'))", r#""two""#),
    ("lastIndexOf('test', 't')", "3"),
    ("lastIndexOf('abcdef', 'AB')", "0"),
    ("length('One Two Three')", "13"),
    ("like('orders-eu-1', 'ORDERS-*')", "true"),
    ("like('orders-eu-1', '*-eu-*')", "true"),
    ("like('orders-eu-1', '*eu')", "false"),
    ("like('aba', 'ab*ba')", "false"),
    ("like('a', 'A')", "true"),
    ("length(createArray(1, 2))", "2"),
    ("length(createObject('a', 1))", "1"),
    ("length(newGuid())", "36"),
    ("padLeft('123', 10, '0')", r#""0000000123""#),
    ("padLeft(7, 3)", r#""  7""#),
    ("parseUri('https://a.b:8080/c/d?e=f#g')", r#"{"scheme": "https", "host": "a.b", "port": 8080, "path": "/c/d", "query": "?e=f"}"#),
    ("parseUri('https://u:p@[::1]')", r#"{"scheme": "https", "host": "[::1]", "port": null, "path": "/", "query": ""}"#),
    ("replace('123-123-1234', '-', '')", r#""1231231234""#),
    ("skip('one two three', 4)", r#""two three""#),
    ("skip(createArray('one', 'two', 'three'), 2)", r#"["three"]"#),
    ("split('one,two;three', ',')", r#"["one", "two;three"]"#),
    ("split('one,two;three', createArray(',', ';'))", r#"["one", "two", "three"]"#),
    ("startsWith('abcdef', 'AB')", "true"),
    ("string(createArray('a', 1))", r#""[\"a\",1]""#),
    ("string(17)", r#""17""#),
    ("substring('one two three', 4, 3)", r#""two""#),
    ("substring('abc', 1)", r#""bc""#),
    ("take('one two three', 2)", r#""on""#),
    ("take(createArray('one', 'two'), 5)", r#"["one", "two"]"#),
    ("toLower('One TWO')", r#""one two""#),
    ("toUpper('One two')", r#""ONE TWO""#),
    ("trim('  one ')", r#""one""#),
    ("uniqueString('/subscriptions/00000000-0000-0000-0000-000000000000', 'resource-id')", r#""cwvxuqg24sifi""#),
    ("uri('http://contoso.org/firstpath', 'myscript.sh')", r#""http://contoso.org/myscript.sh""#),
    ("uri('http://contoso.org/firstpath/', 'myscript.sh')", r#""http://contoso.org/firstpath/myscript.sh""#),
    ("uri('http://contoso.org/firstpath/azuredeploy.json', '/myscript.sh')", r#""http://contoso.org/myscript.sh""#),
    ("uri('http://contoso.org', 'x')", r#""http://contoso.org/x""#),
    ("uriComponent('http://contoso.com/a b')", r#""http%3A%2F%2Fcontoso.com%2Fa%20b""#),
    ("uriComponentToString('a%20b%2F')", r#""a b/""#),
    // Arrays and objects
    ("array('efgh')", r#"["efgh"]"#),
    ("array(createArray(1))", "[1]"),
    ("coalesce(null(), 'a', fail('not evaluated'))", r#""a""#),
    ("coalesce(null(), null())", "null"),
    ("createArray('a', 1, createObject())", r#"["a", 1, {}]"#),
    ("createObject('intProp', 1, 'arrayProp', createArray('a'), 'nullProp', null())", r#"{"intProp": 1, "arrayProp": ["a"], "nullProp": null}"#),
    ("flatten(createArray(createArray(1), createArray(2, 3)))", "[1, 2, 3]"),
    ("intersection(createArray('one', 'two', 'three'), createArray('two', 'three'))", r#"["two", "three"]"#),
    ("intersection(json('{\"one\": \"a\", \"two\": \"b\"}'), \
        json('{\"one\": \"a\", \"two\": \"z\"}'))", r#"{"one": "a"}"#),
    ("items(createObject('b', 1, 'A', 2))", r#"[{"key": "A", "value": 2}, {"key": "b", "value": 1}]"#),
    ("objectKeys(createObject('a', 1, 'b', 2))", r#"["a", "b"]"#),
    ("range(5, 3)", "[5, 6, 7]"),
    ("shallowMerge(createArray(createObject('a', createObject('x', 1)), createObject('a', \
        createObject('y', 2))))", r#"{"a": {"y": 2}}"#),
    ("tryGet(createObject('a', createObject('b', 7)), 'a', 'B')", "7"),
    ("tryGet(createObject('a', 1), 'z', 'y')", "null"),
    ("tryGet(createArray('x', 'y'), 1)", r#""y""#),
    ("tryGet(null(), 'a')", "null"),
    ("indexFromEnd(createArray(1, 2, 3), 1)", "3"),
    ("tryIndexFromEnd(createArray(1, 2, 3), 9)", "null"),
    ("union(createArray('one', 'two'), createArray('two', 'four'))", r#"["one", "two", "four"]"#),
    ("union(json('{\"a\": {\"x\": 1}, \"b\": 1}'), json('{\"a\": {\"y\": 2}, \"b\": 2}'))", r#"{"a": {"x": 1, "y": 2}, "b": 2}"#),
    // Lambdas
    ("filter(createArray(1, 2, 3), lambda('x', greater(lambdaVariables('x'), 1)))", "[2, 3]"),
    ("filter(createArray('a', 'b'), lambda('x', 'i', equals(lambdaVariables('i'), 1)))", r#"["b"]"#),
    ("map(range(0, 3), lambda('i', mul(lambdaVariables('i'), 2)))", "[0, 2, 4]"),
    ("map(createArray(1), lambda('x', map(createArray(10), lambda('y', add(lambdaVariables('x'), \
        lambdaVariables('y'))))))", "[[11]]"),
    ("reduce(createArray(5, 3, 2), 0, lambda('cur', 'next', add(lambdaVariables('cur'), \
        lambdaVariables('next'))))", "10"),
    ("sort(createArray(3, 1, 2), lambda('a', 'b', less(lambdaVariables('a'), \
        lambdaVariables('b'))))", "[1, 2, 3]"),
    ("toObject(createArray('a', 'b'), lambda('x', lambdaVariables('x')), lambda('x', \
        length(lambdaVariables('x'))))", r#"{"a": 1, "b": 1}"#),
    ("toObject(createArray('a'), lambda('x', concat('k', lambdaVariables('x'))))", r#"{"ka": "a"}"#),
    ("groupBy(createArray('aa', 'ab', 'b'), lambda('x', first(lambdaVariables('x'))))", r#"{"a": ["aa", "ab"], "b": ["b"]}"#),
    ("mapValues(createObject('a', 1), lambda('v', add(lambdaVariables('v'), 1)))", r#"{"a": 2}"#),
    // Numbers, booleans and comparisons
    ("add(5, 3)", "8"),
    ("sub(7, 3)", "4"),
    ("mul(5, 3)", "15"),
    ("div(8, 3)", "2"),
    ("mod(7, 3)", "1"),
    ("int('4')", "4"),
    ("float('1.5')", "1.5"),
    ("max(0, 3, 2)", "3"),
    ("max(createArray(0, 3, 5, 4))", "5"),
    ("min(createArray(4, 3))", "3"),
    ("and(true(), false())", "false"),
    ("and(false(), fail('not evaluated'))", "false"),
    ("or(bool('true'), fail('not evaluated'))", "true"),
    ("not(bool(0))", "true"),
    ("bool('True')", "true"),
    ("if(equals('a', 'a'), 'yes', fail('not evaluated'))", r#""yes""#),
    ("if(equals('a', 'A'), fail('not evaluated'), 'no')", r#""no""#),
    ("equals(createArray(1, 'a'), createArray(1, 'a'))", "true"),
    ("greater(2, 1)", "true"),
    ("greaterOrEquals('A', 'a')", "false"),
    ("less(1, 2)", "true"),
    ("lessOrEquals(2, 2)", "true"),
    ("null()", "null"),
    // Times
    ("utcNow()", r#""20261129T123456Z""#),
    ("utcNow('u')", r#""2026-11-29 12:34:56Z""#),
    ("utcNow('yyyy-MM-dd HH:mm:ss.fff')", r#""2026-11-29 12:34:56.789""#),
    ("utcNow('d')", r#""11/29/2026""#),
    ("utcNow('D')", r#""Sunday, November 29, 2026""#),
    ("utcNow('o')", r#""2026-11-29T12:34:56.7890000Z""#),
    ("utcNow('O')", r#""2026-11-29T12:34:56.7890000Z""#),
    ("utcNow('s')", r#""2026-11-29T12:34:56""#),
    ("utcNow('R')", r#""Sun, 29 Nov 2026 12:34:56 GMT""#),
    ("utcNow('r')", r#""Sun, 29 Nov 2026 12:34:56 GMT""#),
    ("dateTimeAdd('2020-04-07 14:53:14Z', 'P3Y')", r#""2023-04-07T14:53:14Z""#),
    ("dateTimeAdd('2020-04-07T14:53:14Z', '-P9D', 'yyyy-MM-dd')", r#""2020-03-29""#),
    ("dateTimeAdd(utcNow(), 'PT1H')", r#""2026-11-29T13:34:56Z""#),
    ("dateTimeFromEpoch(1683040573)", r#""2023-05-02T15:16:13Z""#),
    ("dateTimeToEpoch('2023-05-02T15:16:13Z')", "1683040573"),
    // The deployment and its resources
    ("resourceGroup().id", r#""/subscriptions/s-1/resourceGroups/rg""#),
    ("resourceGroup().location", r#""westus2""#),
    ("resourceGroup().tags.team", r#""shop""#),
    ("subscription().subscriptionId", r#""s-1""#),
    ("tenant().tenantId", r#""00000000-0000-0000-0000-000000000000""#),
    ("deployer().tenantId", r#""00000000-0000-0000-0000-000000000000""#),
    ("deployment().name", r#""main""#),
    ("environment().suffixes.storage", r#""storage.gridhook.invalid""#),
    ("pickZones('Microsoft.Compute', 'virtualMachines', 'westus2')", "[]"),
    ("providers('Microsoft.EventGrid', 'topics').apiVersions[0]", r#""2025-02-15""#),
    ("resourceId('Microsoft.EventGrid/topics', 'orders')", r#""/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders""#),
    ("resourceId('s-2', 'other', 'Microsoft.EventGrid/topics/eventSubscriptions', 'orders', \
        'a')", r#""/subscriptions/s-2/resourceGroups/other/providers/Microsoft.EventGrid/topics/orders/eventSubscriptions/a""#),
    ("resourceId('other', 'Microsoft.EventGrid/topics', 'orders')", r#""/subscriptions/s-1/resourceGroups/other/providers/Microsoft.EventGrid/topics/orders""#),
    ("subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'x')", r#""/subscriptions/s-1/providers/Microsoft.Authorization/roleDefinitions/x""#),
    ("tenantResourceId('Microsoft.Authorization/roleDefinitions', 'x')", r#""/providers/Microsoft.Authorization/roleDefinitions/x""#),
    ("extensionResourceId(resourceId('Microsoft.EventGrid/topics', 'orders'), \
        'Microsoft.Authorization/locks', 'l')", r#""/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders/providers/Microsoft.Authorization/locks/l""#),
    // Access to values
    ("createObject('a', createArray('x', 'y')).A[1]", r#""y""#),
    ("createObject('a b', 1)['a b']", "1"),
    ("split('a/b', '/')[add(0, 1)]", r#""b""#),
    ("concat('it''s')", r#""it's""#),
];

/// Functions with tests of their own, because they need a template around them.
const ELSEWHERE: [&str; 8] = [
    "copyIndex",
    "fail",
    "false",
    "lambda",
    "parameters",
    "variables",
    "reference",
    "references",
];

#[test]
fn every_function_returns_what_its_documentation_says() {
    let mut called = BTreeSet::new();
    for (expression, expected) in EXAMPLES {
        let expected: Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(evaluate(expression).as_ref(), Ok(&expected), "{expression}");
        add_calls(
            &parse_expression(expression).expect("an expression"),
            &mut called,
        );
    }
    let is_tested = |name: &&str| {
        called.contains(&name.to_lowercase()) || ELSEWHERE.contains(name) || *name == "list*"
    };
    let missing: Vec<&str> = function_names()
        .into_iter()
        .filter(|name| !is_tested(name))
        .collect();
    assert!(missing.is_empty(), "no example calls {missing:?}");
}

#[test]
fn the_manual_lists_every_function() {
    let chapter = include_str!("../../src/manual/subscriptions.md");
    let missing: Vec<&str> = function_names()
        .into_iter()
        .filter(|name| !chapter.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn add_calls(expression: &Expression, called: &mut BTreeSet<String>) {
    match expression {
        Expression::Call {
            function,
            arguments,
        } => {
            called.insert(function.to_lowercase());
            arguments
                .iter()
                .for_each(|argument| add_calls(argument, called));
        }
        Expression::Property(base, _) => add_calls(base, called),
        Expression::Element(base, index) => [base, index]
            .iter()
            .for_each(|part| add_calls(part, called)),
        Expression::Text(_) | Expression::Number(_) => {}
    }
}

#[test]
fn errors_name_the_function_and_what_is_allowed_and_no_value() {
    for (expression, part) in [
        (
            "toLower(5)",
            "toLower: the argument 1 is a number; expected a string",
        ),
        (
            "padLeft('a', 'b')",
            "padLeft: the argument 2 is a string; expected a whole number",
        ),
        ("add(1)", "add has 1 argument; expected 2"),
        ("div(1, 0)", "div: the result is no whole number of 64 bits"),
        (
            "format('{1}', 'a')",
            "format: the pattern has {1}, and there is 1 value",
        ),
        (
            "frobnicate('a')",
            "the function frobnicate is not known; expected one of add, and, array",
        ),
        (
            "toLogicalZone('a')",
            "the function toLogicalZone is not supported: there are no zones",
        ),
        (
            "contoso.name('a')",
            "the template has no function contoso.name",
        ),
        (
            "createObject('a', 1).b",
            "the object has no property 'b'; it has a",
        ),
        (
            "createArray(1)[1]",
            "the index 1 is outside of an array of 1",
        ),
        (
            "createObject().b",
            "the object has no property 'b'; it has none",
        ),
        (
            "format('{0:Q}', 1)",
            "format: the format 'Q' is not supported for a number; expected D, N, X or zeros",
        ),
        ("fail('stop here')", "fail: stop here"),
        ("json('{secret')", "json: the argument is not JSON"),
        ("json('''a')", "json: the argument is not JSON"),
        ("json('[a:]')", "json: the argument is not JSON"),
        ("json('[1 /* 2]')", "json: the argument is not JSON"),
        ("json('[1/**/2]')", "json: the argument is not JSON"),
        ("json('[,]')", "json: the argument is not JSON"),
        ("json('{,}')", "json: the argument is not JSON"),
        ("json('[1,,]')", "json: the argument is not JSON"),
        (
            "parseUri('/p?next=https://x/')",
            "parseUri: the argument is not a URI; expected, for example,",
        ),
        (
            "parseUri('https://h:+80/')",
            "parseUri: the argument is not a URI; expected, for example,",
        ),
        (
            "buildUri(createObject('scheme', 'https'))",
            "buildUri: the object needs a scheme and a host",
        ),
        (
            "parseUri('a.b/c')",
            "parseUri: the argument is not a URI; expected, for example,",
        ),
        (
            "extensions('k8s').config",
            "the function extensions is not supported: there are no extensions of templates",
        ),
        (
            "list(resourceId('Microsoft.EventGrid/topics', 'orders'), '2025-02-15')",
            "Microsoft.EventGrid/topics has no action list; expected listKeys",
        ),
        (
            "listKeys(resourceId('Microsoft.EventGrid/domains/topics', 'a', 'b'), '2025-02-15')",
            "Microsoft.EventGrid/domains/topics has no action listKeys; expected none",
        ),
        ("copyIndex()", "copyIndex: there is no loop around it"),
        ("parameters('none')", "there is no parameter 'none'"),
        ("variables('none')", "there is no variable 'none'"),
        ("utcNow('QQ')", "'QQ' is not supported in a format"),
        (
            "utcNow('M')",
            "the format 'M' is not supported; expected one of d, D, o",
        ),
        ("concat('a'", "a comma or a closing bracket is missing"),
        ("concat('a') b", "'b' follows its end"),
        ("'a", "a string has no closing quote"),
        (
            "reference('orders')",
            "the template has no resource 'orders'",
        ),
        ("map(createArray(1), 'x')", "an argument is no lambda"),
        ("false().x", "'.x' follows a boolean; expected an object"),
    ] {
        let error = evaluate(expression).expect_err(expression);
        assert!(error.contains(part), "{expression}: {error}");
        assert!(
            error.starts_with("the output result: the expression ["),
            "{error}"
        );
    }
}

#[test]
fn states_of_resources_are_used_or_named() {
    let id = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders";
    let outputs = [
        (
            "endpoint",
            "reference(resourceId('Microsoft.EventGrid/topics', 'orders')).endpoint",
        ),
        (
            "location",
            "reference('Microsoft.EventGrid/topics/orders', '2022-06-15', 'Full').location",
        ),
        (
            "key",
            "listKeys(resourceId('Microsoft.EventGrid/topics', 'orders'), '2022-06-15').key1",
        ),
    ];
    let outputs: serde_json::Map<String, Value> = outputs
        .into_iter()
        .map(|(name, expression)| {
            (
                name.to_owned(),
                json!({"type": "string", "value": format!("[{expression}]")}),
            )
        })
        .collect();
    let template = json!({"resources": [], "outputs": outputs});
    let pending = expand_with(&template, &json!({}), &States::new())
        .expect("a template")
        .pending;
    let get = StateKey::get(id);
    let keys = StateKey {
        action: Some("listKeys".to_owned()),
        ..get.clone()
    };
    assert_eq!(
        pending.iter().map(|one| &one.needs).collect::<Vec<_>>(),
        [&get, &keys, &get]
    );
    let topic = json!({"location": "local", "properties": {"endpoint": "http://here/"}});
    let states = States::from([(get, topic), (keys, json!({"key1": "a", "key2": "b"}))]);
    let done = expand_with(&template, &json!({}), &states).expect("a template");
    assert!(done.pending.is_empty(), "{:?}", done.pending);
    let value = |name: &str| done.outputs[name]["value"].clone();
    assert_eq!(
        [value("endpoint"), value("location"), value("key")],
        ["http://here/", "local", "a"]
    );
}

/// A text as a literal of an expression.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

proptest! {
    #[test]
    fn base64_and_uri_components_return_what_was_encoded(text in ".*") {
        for (encode, decode) in [("base64", "base64ToString"), ("uriComponent", "uriComponentToString"), ("dataUri", "dataUriToString")] {
            let expression = format!("{decode}({encode}({}))", literal(&text));
            prop_assert_eq!(evaluate(&expression), Ok(Value::from(text.as_str())));
        }
    }

    #[test]
    fn a_split_text_is_joined_again(text in "[a-c,]{0,40}") {
        let expression = format!("join(split({}, ','), ',')", literal(&text));
        prop_assert_eq!(evaluate(&expression), Ok(Value::from(text.as_str())));
    }

    #[test]
    fn take_and_skip_are_the_two_parts_of_a_text(text in ".{0,20}", count in 0_usize..30) {
        let text_literal = literal(&text);
        let expression = format!("concat(take({text_literal}, {count}), skip({text_literal}, \
            {count}))");
        prop_assert_eq!(evaluate(&expression), Ok(Value::from(text.as_str())));
    }

    #[test]
    fn json_is_read_as_string_wrote_it(numbers in prop::collection::vec(any::<i64>(), 0..6), text in ".{0,10}") {
        let list: Vec<String> = numbers.iter().map(i64::to_string).chain([literal(&text)]).collect();
        let expression = format!("json(string(createArray({})))", list.join(", "));
        let expected: Vec<Value> = numbers.into_iter().map(Value::from).chain([Value::from(text.as_str())]).collect();
        prop_assert_eq!(evaluate(&expression), Ok(Value::from(expected)));
    }

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[a-z0-9'(),.\\[\\] ]{0,60}") {
        drop(evaluate(&text));
    }

    #[test]
    fn unique_strings_and_guids_have_their_form(text in ".{1,60}") {
        let unique = evaluate(&format!("uniqueString({})", literal(&text))).expect("a string");
        let unique = unique.as_str().expect("a string").to_owned();
        prop_assert!(unique.len() == 13 && unique.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b)));
        let guid = evaluate(&format!("guid({})", literal(&text))).expect("a string");
        prop_assert!(guid.as_str().is_some_and(|guid| guid.len() == 36 && guid.as_bytes()[14] == b'5'));
    }
}
