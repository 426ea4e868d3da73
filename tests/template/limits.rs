//! Templates that would cost too much are refused early.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{evaluate, expand_with};

fn error(template: &Value) -> String {
    let start = Instant::now();
    let error = expand_with(template, &json!({}), &Default::default())
        .expect_err("a refusal")
        .to_string();
    // Seconds even without optimisation. Without a limit it takes hours.
    assert!(start.elapsed() < Duration::from_secs(60), "{error}");
    error
}

#[test]
fn depth_size_calls_loops_and_resources_are_bounded() {
    let deep = format!("{}1{}", "add(1, ".repeat(100), ")".repeat(100));
    assert!(
        evaluate(&deep)
            .expect_err("deep")
            .contains("nested deeper than 64 levels")
    );
    let deep = (0..300).fold(json!("x"), |value, _| json!([value]));
    let variables = json!({"variables": {"deep": deep}, "resources": [], "outputs": {"o": {"value": "[variables('deep')]"}}});
    assert!(error(&variables).contains("nested deeper than 150 levels"));

    let mut doubled = serde_json::Map::from_iter([("v0".to_owned(), json!("x".repeat(1 << 20)))]);
    for index in 1..10 {
        let before = index - 1;
        let text = format!("[concat(variables('v{before}'), variables('v{before}'))]");
        doubled.insert(format!("v{index}"), text.into());
    }
    let doubled = json!({"variables": doubled, "resources": [], "outputs": {"o": {"value": "[variables('v9')]"}}});
    assert!(error(&doubled).contains("make more than 16 MiB in total"));
    assert!(
        evaluate("padLeft('a', 1000000000)")
            .expect_err("large")
            .contains("16 MiB")
    );
    assert!(
        evaluate("replace(padLeft('', 1000000, 'a'), 'a', padLeft('', 1000000))")
            .expect_err("large")
            .contains("16 MiB")
    );
    assert!(
        evaluate("join(range(0, 10000), padLeft('', 100000))")
            .expect_err("large")
            .contains("16 MiB")
    );
    assert!(
        evaluate("range(0, 10001)")
            .expect_err("large")
            .contains("expected 0 to 10000")
    );

    let literal = "x".repeat(100_000);
    assert!(
        evaluate(&format!("map(range(0, 10000), lambda('a', '{literal}'))"))
            .expect_err("large")
            .contains("16 MiB")
    );
    let looped = (0..3).fold(json!("x"), |input, level| {
        json!({"copy": [{"name": format!("l{level}"), "count": 800, "input": input}]})
    });
    for output in [
        json!({"value": looped}),
        json!({"copy": {"count": 800, "input": looped}}),
    ] {
        let nested_loops = json!({"resources": [], "outputs": {"o": output}});
        assert!(error(&nested_loops).contains("16 MiB"));
    }
    let topics = json!({"resources": [{"type": "Microsoft.EventGrid/topics",
        "name": "[format('t{0}', copyIndex())]", "copy": {"name": "topics", "count": 800},
        "tags": {"text": literal}}]});
    assert!(error(&topics).contains("16 MiB"));

    let nested = "map(range(0, 10000), lambda('a', length(map(range(0, 10000), lambda('b', 1)))))";
    assert!(evaluate(nested).is_err());

    let own = json!({"parameters": {"a": {"type": "string", "defaultValue": "[parameters('b')]"},
        "b": {"type": "string", "defaultValue": "[parameters('a')]"}}, "resources": []});
    assert!(error(&own).contains("refers to itself"), "{}", error(&own));

    let many = |count: Value| {
        json!({"resources": [{"type": "Microsoft.EventGrid/topics", "name": "[format('t{0}', \
            copyIndex())]",
        "copy": {"name": "topics", "count": count}}]})
    };
    assert!(error(&many(json!(801))).contains("the count of a loop is 801; expected 0 to 800"));
    assert!(error(&many(json!(-1))).contains("expected 0 to 800"));
    let twice =
        json!({"resources": [many(json!(800))["resources"][0], many(json!(1))["resources"][0]]});
    assert!(error(&twice).contains("more than 800 resources"));

    let inner = (0..7).fold(json!({"resources": []}), |template, level| {
        json!({"resources": [{"type": "Microsoft.Resources/deployments", "name": format!("d{level}"),
            "properties": {"expressionEvaluationOptions": {"scope": "inner"}, "template": template}}]})
    });
    assert!(error(&inner).contains("deployments are nested deeper than 5 levels"));
    let recursive = json!({"functions": [{"namespace": "a", "members": {"f": {"parameters": [],
        "output": {"type": "int", "value": "[a.f()]"}}}}], "resources": [], "outputs": {"o": {"value": "[a.f()]"}}});
    assert!(
        error(&recursive).contains("nested deeper"),
        "{}",
        error(&recursive)
    );
    let cyclic = json!({"definitions": {"a": {"$ref": "#/definitions/a"}},
        "parameters": {"p": {"$ref": "#/definitions/a"}}, "resources": []});
    assert!(error(&cyclic).contains("refer to each other"));
}
