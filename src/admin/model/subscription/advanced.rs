//! Reads `advancedFilters`: nineteen operators, their members, and their limits.
//!
//! An error about a member describes what the operator takes, because operators with `value` and
//! with `values` are easily confused.

use serde_json::{Map, Value};

use super::check::check_length;
use crate::model::{CheckResult, EditionRanges, InvalidRequest, canonical_name, refuse_value};
use gridhook_event::Schema;
use gridhook_policy::filter::{
    advanced::{AdvancedFilter, Operator},
    key::FilterKey,
    number::ExactNumber,
    text::FoldedText,
};

/// The values of `operatorType`, as in Azure, each with the member of its operator and how it is
/// read.
macro_rules! operators {
    ($($name:ident $({ $member:ident: $read:ident })?,)*) => {
        const OPERATORS: &[&str] = &[$(stringify!($name)),*];

        impl AdvancedFilterReader {
            fn read_operator(&mut self, name: &str) -> CheckResult<Operator> {
                Ok(match name {
                    $(stringify!($name) => {
                        Operator::$name $({ $member: self.$read(name)? })?
                    })*
                    _ => {
                        let at = self.member_path("operatorType");
                        return Err(InvalidRequest::unexpected(at, name, allowed_operators()));
                    }
                })
            }
        }
    };
}

operators! {
    BoolEquals { value: read_boolean },
    IsNotNull,
    IsNullOrUndefined,
    NumberGreaterThan { value: read_number },
    NumberGreaterThanOrEquals { value: read_number },
    NumberIn { values: read_numbers },
    NumberInRange { values: read_ranges },
    NumberLessThan { value: read_number },
    NumberLessThanOrEquals { value: read_number },
    NumberNotIn { values: read_numbers },
    NumberNotInRange { values: read_ranges },
    StringBeginsWith { values: read_texts },
    StringContains { values: read_texts },
    StringEndsWith { values: read_texts },
    StringIn { values: read_texts },
    StringNotBeginsWith { values: read_texts },
    StringNotContains { values: read_texts },
    StringNotEndsWith { values: read_texts },
    StringNotIn { values: read_texts },
}

fn allowed_operators() -> String {
    format!("one of {}", OPERATORS.join(", "))
}

/// Reads the filters at `at`, for events in `schema`.
pub(super) fn read(
    at: &str,
    given: Vec<Value>,
    schema: Schema,
    ranges: &EditionRanges,
) -> CheckResult<Vec<AdvancedFilter>> {
    let most = ranges.advanced_filters_max;
    if given.len() > most {
        return refuse_value(
            at,
            format!("has {} filters; expected at most {most}", given.len()),
        );
    }
    let read = given.into_iter().enumerate().map(|(index, filter)| {
        let Value::Object(members) = filter else {
            return refuse_value(
                format!("{at}[{index}]"),
                "is not an object with operatorType and key",
            );
        };
        AdvancedFilterReader {
            at: format!("{at}[{index}]"),
            text_max: ranges.filter_text_max,
            members,
        }
        .read_filter(schema)
    });
    let filters = read.collect::<Result<Vec<_>, _>>()?;
    let values: usize = filters
        .iter()
        .map(|filter| filter.operator.values_len())
        .sum();
    let most = ranges.advanced_values_max;
    if values > most {
        return refuse_value(
            at,
            format!("has {values} values in all its filters together; expected at most {most}"),
        );
    }
    Ok(filters)
}

/// Reads one filter, member by member.
struct AdvancedFilterReader {
    at: String,
    text_max: usize,
    members: Map<String, Value>,
}

impl AdvancedFilterReader {
    fn read_filter(mut self, schema: Schema) -> CheckResult<AdvancedFilter> {
        let name = self.string_member("operatorType", &allowed_operators())?;
        let name = canonical_name(&name, OPERATORS).to_owned();
        let key = FilterKey::from(
            self.string_member("key", "the name of a property, such as data.total")?,
        );
        key.check_schema(schema)
            .map_err(|error| InvalidRequest::new(self.member_path("key"), error.to_string()))?;
        let operator = self.read_operator(&name)?;
        // Some clients write an omitted member as null.
        match self.members.iter().find(|(_, value)| !value.is_null()) {
            Some((member, _)) => refuse_value(
                self.member_path(member),
                format!("is no member of {name}; leave it out"),
            ),
            None => Ok(AdvancedFilter { key, operator }),
        }
    }

    fn member_path(&self, member: &str) -> String {
        format!("{}.{member}", self.at)
    }

    /// A string member that every filter has.
    fn string_member(&mut self, member: &str, allowed: &str) -> CheckResult<String> {
        let text = match self.members.remove(member) {
            Some(Value::String(text)) => text,
            Some(Value::Null) | None => {
                return refuse_value(
                    self.member_path(member),
                    format!("is missing; expected {allowed}"),
                );
            }
            Some(other) => {
                return refuse_value(
                    self.member_path(member),
                    format!("is {other}; expected {allowed}"),
                );
            }
        };
        check_length(&self.member_path(member), &text, self.text_max)?;
        Ok(text)
    }

    fn read_number(&mut self, name: &str) -> CheckResult<ExactNumber> {
        match self.read_value(name, "a number")? {
            Value::Number(number) => Ok(ExactNumber::from(&number)),
            other => Err(wrong_type(
                self.member_path("value"),
                &other,
                name,
                "a number",
            )),
        }
    }

    fn read_boolean(&mut self, name: &str) -> CheckResult<bool> {
        match self.read_value(name, "true or false")? {
            Value::Bool(value) => Ok(value),
            other => Err(wrong_type(
                self.member_path("value"),
                &other,
                name,
                "true or false",
            )),
        }
    }

    fn read_numbers(&mut self, name: &str) -> CheckResult<Vec<ExactNumber>> {
        let mut numbers = Vec::new();
        for (at, value) in self.read_values(name, "numbers")? {
            match value {
                Value::Number(number) => numbers.push(ExactNumber::from(&number)),
                other => return Err(wrong_type(at, &other, name, "numbers")),
            }
        }
        Ok(numbers)
    }

    fn read_texts(&mut self, name: &str) -> CheckResult<Vec<FoldedText>> {
        let max = self.text_max;
        let mut texts = Vec::new();
        for (at, value) in self.read_values(name, "strings")? {
            let Value::String(text) = value else {
                return Err(wrong_type(at, &value, name, "strings"));
            };
            check_length(&at, &text, max)?;
            texts.push(FoldedText::from(text));
        }
        Ok(texts)
    }

    fn read_ranges(&mut self, name: &str) -> CheckResult<Vec<(ExactNumber, ExactNumber)>> {
        const PAIRS: &str = "pairs of numbers, such as [[1, 5], [10, 20]]";
        let mut ranges = Vec::new();
        for (at, value) in self.read_values(name, PAIRS)? {
            let ends = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let [Value::Number(least), Value::Number(most)] = ends else {
                return Err(wrong_type(at, &value, name, PAIRS));
            };
            let least = ExactNumber::from(least);
            let most = ExactNumber::from(most);
            if least > most {
                let expectation = "expected a range with the smaller end first";
                return refuse_value(at, format!("is {value}, an empty range; {expectation}"));
            }
            ranges.push((least, most));
        }
        Ok(ranges)
    }

    /// The value of an operator with one value.
    fn read_value(&mut self, name: &str, takes: &str) -> CheckResult<Value> {
        let value = self
            .members
            .remove("value")
            .filter(|value| !value.is_null());
        value.ok_or_else(|| {
            InvalidRequest::new(
                self.member_path("value"),
                format!("is missing; {name} takes {takes}"),
            )
        })
    }

    /// The values of an operator with several values, each with its path.
    fn read_values(
        &mut self,
        name: &str,
        takes: &str,
    ) -> CheckResult<impl Iterator<Item = (String, Value)> + use<>> {
        let at = self.member_path("values");
        let values = match self.members.remove("values") {
            Some(Value::Array(values)) => values,
            Some(Value::Null) | None => Vec::new(),
            Some(other) => return Err(wrong_type(at, &other, name, &format!("a list of {takes}"))),
        };
        if values.is_empty() {
            return refuse_value(
                at,
                format!("is missing or empty; {name} takes {takes}, at least one"),
            );
        }
        Ok(values
            .into_iter()
            .enumerate()
            .map(move |(index, value)| (format!("{at}[{index}]"), value)))
    }
}

fn wrong_type(at: String, given: &Value, name: &str, takes: &str) -> InvalidRequest {
    InvalidRequest::new(at, format!("is {given}; {name} takes {takes}"))
}
