//! Advanced filters: an operator on what an event has at a key.
//!
//! - The values of a filter are joined by *or*; a `Not` operator stops an event where any of them fits.
//! - What is missing, or null, passes where the operator says so: `StringNotIn`, `NumberNotIn`, `NumberNotInRange` and
//!   `IsNullOrUndefined`. The other `Not` operators on strings do not let it pass.
//! - Types are strict: a string operator never matches a number, and a `Not` operator is no exception.
//! - An array is looked into where the subscription asks for it (`enableAdvancedFilteringOnArrays`), and otherwise never
//!   matches: an operator fits where any element does, elements of other types are nothing. `IsNotNull` asks whether there
//!   is a value, of whatever type.

use serde::{Deserialize, Serialize};

use super::{
    key::Key,
    number::Number,
    text::Text,
    view::{Node, Value},
};

/// One advanced filter, in ARM's own form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advanced {
    /// Where it looks.
    pub key: Key,
    /// What it asks for.
    #[serde(flatten)]
    pub operator: Operator,
}

/// What is asked for. Ranges have both their ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operatorType")]
#[expect(missing_docs, reason = "Event Grid's names say it all, and `values` and `value` are what they compare with")]
pub enum Operator {
    NumberIn { values: Vec<Number> },
    NumberNotIn { values: Vec<Number> },
    NumberLessThan { value: Number },
    NumberGreaterThan { value: Number },
    NumberLessThanOrEquals { value: Number },
    NumberGreaterThanOrEquals { value: Number },
    NumberInRange { values: Vec<(Number, Number)> },
    NumberNotInRange { values: Vec<(Number, Number)> },
    BoolEquals { value: bool },
    StringContains { values: Vec<Text> },
    StringBeginsWith { values: Vec<Text> },
    StringEndsWith { values: Vec<Text> },
    StringIn { values: Vec<Text> },
    StringNotContains { values: Vec<Text> },
    StringNotBeginsWith { values: Vec<Text> },
    StringNotEndsWith { values: Vec<Text> },
    StringNotIn { values: Vec<Text> },
    IsNullOrUndefined,
    IsNotNull,
}

/// Why an advanced filter stops an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Missing,
    Null,
    Present,
    Array,
    OtherType,
    NoneFits,
    OneFits,
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Missing => "the event has nothing at this key",
            Self::Null => "the value is null",
            Self::Present => "the event has a value at this key",
            Self::Array => "the value is an array, and enableAdvancedFilteringOnArrays is not true",
            Self::OtherType => "the value is not of the type that the operator compares",
            Self::NoneFits => "the value is not what the operator asks for",
            Self::OneFits => "the value is what the operator excludes",
        }
    }
}

impl Advanced {
    /// Why it stops an event that has `node` at its key; [`None`] where it lets it pass.
    pub(super) fn stop(&self, node: Option<&Node<'_>>, on_arrays: bool) -> Option<Why> {
        let absent = match node.map(Node::value) {
            None => Some(Why::Missing),
            Some(Value::Null) => Some(Why::Null),
            Some(_) => None,
        };
        let Some(node) = node.filter(|_| absent.is_none()) else {
            return absent.filter(|_| !self.operator.takes_absent());
        };
        let fits = match (&self.operator, node.value()) {
            (Operator::IsNullOrUndefined, _) => return Some(Why::Present),
            (Operator::IsNotNull, _) => return None,
            (_, Value::Array(_)) if !on_arrays => return Some(Why::Array),
            (operator, Value::Array(elements)) => elements.iter().any(|value| operator.fits(value) == Some(true)),
            (operator, value) => match operator.fits(value) {
                Some(fits) => fits,
                None => return Some(Why::OtherType),
            },
        };
        match (fits, self.operator.excludes()) {
            (true, false) | (false, true) => None,
            (true, true) => Some(Why::OneFits),
            (false, false) => Some(Why::NoneFits),
        }
    }
}

impl Operator {
    /// Its name, as in ARM.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NumberIn { .. } => "NumberIn",
            Self::NumberNotIn { .. } => "NumberNotIn",
            Self::NumberLessThan { .. } => "NumberLessThan",
            Self::NumberGreaterThan { .. } => "NumberGreaterThan",
            Self::NumberLessThanOrEquals { .. } => "NumberLessThanOrEquals",
            Self::NumberGreaterThanOrEquals { .. } => "NumberGreaterThanOrEquals",
            Self::NumberInRange { .. } => "NumberInRange",
            Self::NumberNotInRange { .. } => "NumberNotInRange",
            Self::BoolEquals { .. } => "BoolEquals",
            Self::StringContains { .. } => "StringContains",
            Self::StringBeginsWith { .. } => "StringBeginsWith",
            Self::StringEndsWith { .. } => "StringEndsWith",
            Self::StringIn { .. } => "StringIn",
            Self::StringNotContains { .. } => "StringNotContains",
            Self::StringNotBeginsWith { .. } => "StringNotBeginsWith",
            Self::StringNotEndsWith { .. } => "StringNotEndsWith",
            Self::StringNotIn { .. } => "StringNotIn",
            Self::IsNullOrUndefined => "IsNullOrUndefined",
            Self::IsNotNull => "IsNotNull",
        }
    }

    /// How many values it compares with: a range is one.
    pub fn values_len(&self) -> usize {
        match self {
            Self::NumberIn { values } | Self::NumberNotIn { values } => values.len(),
            Self::NumberInRange { values } | Self::NumberNotInRange { values } => values.len(),
            Self::StringContains { values }
            | Self::StringBeginsWith { values }
            | Self::StringEndsWith { values }
            | Self::StringIn { values }
            | Self::StringNotContains { values }
            | Self::StringNotBeginsWith { values }
            | Self::StringNotEndsWith { values }
            | Self::StringNotIn { values } => values.len(),
            Self::NumberLessThan { .. }
            | Self::NumberGreaterThan { .. }
            | Self::NumberLessThanOrEquals { .. }
            | Self::NumberGreaterThanOrEquals { .. }
            | Self::BoolEquals { .. } => 1,
            Self::IsNullOrUndefined | Self::IsNotNull => 0,
        }
    }

    /// Whether it lets events pass that have nothing to compare.
    fn takes_absent(&self) -> bool {
        matches!(
            self,
            Self::NumberNotIn { .. }
                | Self::NumberNotInRange { .. }
                | Self::StringNotIn { .. }
                | Self::IsNullOrUndefined
        )
    }

    /// Whether it stops what fits.
    fn excludes(&self) -> bool {
        matches!(
            self,
            Self::NumberNotIn { .. }
                | Self::NumberNotInRange { .. }
                | Self::StringNotContains { .. }
                | Self::StringNotBeginsWith { .. }
                | Self::StringNotEndsWith { .. }
                | Self::StringNotIn { .. }
        )
    }

    /// Whether `value` fits one of the operator's values; [`None`] where it is of another type.
    fn fits(&self, value: &Value<'_>) -> Option<bool> {
        match self {
            Self::NumberIn { values } | Self::NumberNotIn { values } => number(value, |it| values.contains(it)),
            Self::NumberLessThan { value: bound } => number(value, |it| it < bound),
            Self::NumberGreaterThan { value: bound } => number(value, |it| it > bound),
            Self::NumberLessThanOrEquals { value: bound } => number(value, |it| it <= bound),
            Self::NumberGreaterThanOrEquals { value: bound } => number(value, |it| it >= bound),
            Self::NumberInRange { values } | Self::NumberNotInRange { values } => {
                number(value, |it| values.iter().any(|(least, most)| least <= it && it <= most))
            }
            Self::BoolEquals { value: wanted } => {
                if let Value::Bool(it) = value {
                    Some(it == wanted)
                } else {
                    None
                }
            }
            Self::StringContains { values } | Self::StringNotContains { values } => {
                text(value, |it| values.iter().any(|part| it.contains(part.folded())))
            }
            Self::StringBeginsWith { values } | Self::StringNotBeginsWith { values } => {
                text(value, |it| values.iter().any(|part| it.starts_with(part.folded())))
            }
            Self::StringEndsWith { values } | Self::StringNotEndsWith { values } => {
                text(value, |it| values.iter().any(|part| it.ends_with(part.folded())))
            }
            Self::StringIn { values } | Self::StringNotIn { values } => {
                text(value, |it| values.iter().any(|whole| it == whole.folded()))
            }
            Self::IsNullOrUndefined | Self::IsNotNull => None,
        }
    }
}

fn number(value: &Value<'_>, fits: impl Fn(&Number) -> bool) -> Option<bool> {
    if let Value::Number(number) = value { Some(fits(number)) } else { None }
}

fn text(value: &Value<'_>, fits: impl Fn(&str) -> bool) -> Option<bool> {
    if let Value::Text(text) = value { Some(fits(text.folded())) } else { None }
}
