//! Parameters: values, defaults, types, limits and files.

use gridhook::template::{ParameterInput, States, parameters_of_file};
use serde_json::{Value, json};

use super::{expand_with, expanded};

#[test]
fn a_definition_that_is_no_object_is_refused() {
    for (definition, kind) in [(json!("text"), "a string"), (json!([]), "an array")] {
        let declared = json!({"$ref": "#/definitions/a", "type": "string"});
        let template = json!({"definitions": {"a": definition}, "parameters": {"p": declared}, "resources": []});
        let error = expand_with(&template, &json!({"p": "x"}), &States::new());
        assert_eq!(
            error.expect_err("a refusal").to_string(),
            format!("the definition #/definitions/a is {kind}; expected an object")
        );
    }
}

fn check(declared: Value, value: Value) -> Result<(), String> {
    let template = json!({"definitions": {
            "color": {"type": "string", "allowedValues": ["red", "green"]},
            "shape": {"type": "object", "discriminator": {"propertyName": "kind", "mapping": {
                "circle": {"type": "object", "properties": {"kind": {"type": "string"}, "radius": {"type": "int"}}},
                "dot": {"$ref": "#/definitions/dot"}}}},
            "dot": {"type": "object", "properties": {"kind": {"type": "string"}}, "additionalProperties": false},
        }, "parameters": {"p": declared}, "resources": []});
    expand_with(&template, &json!({"p": value}), &States::new())
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Declarations of a parameter, each with a good value, a bad one and a part of the error. A null
/// is no good value.
fn declarations() -> Vec<(Value, Value, Value, &'static str)> {
    vec![
        (
            json!({"type": "string"}),
            json!("a"),
            json!(1),
            "the value is a number; expected a string",
        ),
        (
            json!({"type": "int"}),
            json!(1),
            json!("1"),
            "expected a whole number",
        ),
        (
            json!({"type": "bool"}),
            json!(true),
            json!("true"),
            "expected a boolean",
        ),
        (
            json!({"type": "array"}),
            json!([]),
            json!({}),
            "expected an array",
        ),
        (
            json!({"type": "object"}),
            json!({}),
            json!([]),
            "expected an object",
        ),
        (
            json!({"type": "securestring"}),
            json!("x"),
            json!(["swordfish"]),
            "expected a string",
        ),
        (
            json!({"type": "what"}),
            json!(null),
            json!(1),
            "the type what is not known",
        ),
        (
            json!({"type": "string", "allowedValues": ["a", "b"]}),
            json!("A"),
            json!("c"),
            "expected one of \"a\", \"b\"",
        ),
        (
            json!({"type": "array", "allowedValues": ["a", "b"]}),
            json!(["b"]),
            json!(["c"]),
            "expected one of \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3}),
            json!("ab"),
            json!("a"),
            "the length is 1; expected 2 to 3",
        ),
        (
            json!({"type": "array", "minLength": 1}),
            json!([1]),
            json!([]),
            "the length is 0; expected 1 or more",
        ),
        (
            json!({"type": "int", "minValue": 1, "maxValue": 5}),
            json!(5),
            json!(6),
            "expected 1 to 5",
        ),
        (
            json!({"type": "int", "minValue": 1}),
            json!(1),
            json!(0),
            "expected 1 or more",
        ),
        (
            json!({"type": "int", "maxValue": 1}),
            json!(1),
            json!(2),
            "expected at most 1",
        ),
        (
            json!({"$ref": "#/definitions/color"}),
            json!("green"),
            json!("blue"),
            "expected one of \"red\", \"green\"",
        ),
        (
            json!({"type": "array", "items": {"$ref": "#/definitions/color"}}),
            json!(["red"]),
            json!(["blue"]),
            "element 0: the value is not allowed",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "int"}, "b": {"type": "int", "nullable": true}}}),
            json!({"a": 1}),
            json!({"b": 1}),
            "the property 'a' is missing",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "int"}}}),
            json!({"a": 1, "z": 1}),
            json!({"a": "1"}),
            "a: the value is a string",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "int"}}),
            json!({"x": 1}),
            json!({"x": "a"}),
            "x: the value is a string",
        ),
        (
            json!({"$ref": "#/definitions/shape"}),
            json!({"kind": "circle", "radius": 1}),
            json!({"kind": "circle"}),
            "the property 'radius' is missing",
        ),
        (
            json!({"$ref": "#/definitions/shape"}),
            json!({"kind": "dot"}),
            json!({"kind": "dot", "x": 1}),
            "the property 'x' is not allowed",
        ),
        (
            json!({"$ref": "#/definitions/shape"}),
            json!({"kind": "dot"}),
            json!({"kind": "line"}),
            "expected one of circle, dot",
        ),
        (
            json!({"$ref": "#/definitions/none"}),
            json!(null),
            json!(1),
            "the definition #/definitions/none does not exist",
        ),
    ]
}

#[test]
fn values_have_the_type_and_the_limits_of_their_declaration() {
    for (declared, good, bad, part) in declarations() {
        if !good.is_null() {
            assert_eq!(check(declared.clone(), good), Ok(()), "{declared}");
        }
        let error = check(declared.clone(), bad).expect_err("a refusal");
        assert!(
            error.contains(part) && error.contains('p') && !error.contains("swordfish"),
            "{declared}: {error}"
        );
    }
}

#[test]
fn a_missing_parameter_has_its_default_or_is_named() {
    assert_eq!(
        check(json!({"type": "string", "nullable": true}), Value::Null),
        Ok(())
    );
    let error = check(json!({"type": "string"}), Value::Null).expect_err("a refusal");
    assert!(
        error.contains("'p' has no default value; give it with --parameter p=VALUE"),
        "{error}"
    );
    let template = json!({"parameters": {"A": {"type": "string"}}, "resources": []});
    let error = expand_with(&template, &json!({"b": "x"}), &States::new())
        .expect_err("a refusal")
        .to_string();
    assert_eq!(error, "the template has no parameter 'b'; it has A");
    assert_eq!(
        expanded(&template, &json!({"a": "x"})).parameters["A"],
        json!({"type": "string", "value": "x"})
    );
    // A default value is checked, too, also where no resource uses it.
    let template = json!({"parameters": {"a": {"type": "int", "defaultValue": "[length('abc')]", "maxValue": 2}}, "resources": []});
    let error = expand_with(&template, &json!({}), &States::new())
        .expect_err("a refusal")
        .to_string();
    assert_eq!(
        error,
        "the default value of the parameter 'a': the number is out of range; expected at most 2"
    );
}

#[test]
fn secure_parameters_are_not_shown() {
    let template = json!({"parameters": {"a": {"type": "securestring"}, "b": {"type": "secureObject"}}, "resources": []});
    let expansion = expanded(&template, &json!({"a": "swordfish", "b": {"c": ["trout"]}}));
    assert_eq!(expansion.parameters["a"], json!({"type": "securestring"}));
    assert_eq!(expansion.parameters["b"], json!({"type": "secureObject"}));
    assert_eq!(expansion.secrets, ["swordfish", "trout"]);
}

#[test]
fn a_parameter_file_has_a_value_for_each_parameter() {
    let file = json!({"$schema": "…/deploymentParameters.json#", "contentVersion": "1.0.0.0", "parameters": {"a": {"value": 1}}});
    let read = parameters_of_file(&file).expect("parameters");
    assert_eq!(read["a"], ParameterInput::Value(json!(1)));
    assert_eq!(
        parameters_of_file(&json!({"a": {"value": "x"}})).expect("parameters")["a"],
        ParameterInput::Value(json!("x"))
    );
    for (file, part) in [
        (
            json!({"parameters": {"a": {"reference": {"keyVault": {}}}}}),
            "'a' refers to a key vault",
        ),
        (
            json!({"parameters": {"a": 1}}),
            "'a' has no value; expected {\"value\": …}",
        ),
        (json!([]), "the parameters are an array; expected an object"),
    ] {
        let error = parameters_of_file(&file)
            .expect_err("a refusal")
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}
