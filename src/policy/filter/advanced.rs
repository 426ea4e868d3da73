//! Advanced filters: an operator and the values it compares with the event's value at a key.
//!
//! - The values of a filter are joined by *or*; a `Not` operator rejects an event if any of them
//!   matches.
//! - A missing value or null matches only `StringNotIn`, `NumberNotIn`, `NumberNotInRange` and
//!   `IsNullOrUndefined`. The other `Not` operators on strings reject it.
//! - Types are strict: a string operator, `Not` or otherwise, never matches a number.
//! - Arrays are searched only if the subscription sets `enableAdvancedFilteringOnArrays`; otherwise
//!   they never match. An operator matches if any element does; elements of other types are
//!   ignored. `IsNotNull` matches any value.

use serde::{Deserialize, Serialize};

use super::{
    key::FilterKey,
    number::ExactNumber,
    text::FoldedText,
    view::{EventValue, EventView, JsonNode},
};

/// One advanced filter, in ARM's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvancedFilter {
    /// The key in the event.
    pub key: FilterKey,
    /// The operator with its values.
    #[serde(flatten)]
    pub operator: Operator,
}

/// An operator with its values. Ranges include both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operatorType")]
#[expect(
    missing_docs,
    reason = "Event Grid's names say it all, and `values` and `value` are what they compare with"
)]
pub enum Operator {
    NumberIn {
        values: Vec<ExactNumber>,
    },
    NumberNotIn {
        values: Vec<ExactNumber>,
    },
    NumberLessThan {
        value: ExactNumber,
    },
    NumberGreaterThan {
        value: ExactNumber,
    },
    NumberLessThanOrEquals {
        value: ExactNumber,
    },
    NumberGreaterThanOrEquals {
        value: ExactNumber,
    },
    NumberInRange {
        values: Vec<(ExactNumber, ExactNumber)>,
    },
    NumberNotInRange {
        values: Vec<(ExactNumber, ExactNumber)>,
    },
    BoolEquals {
        value: bool,
    },
    StringContains {
        values: Vec<FoldedText>,
    },
    StringBeginsWith {
        values: Vec<FoldedText>,
    },
    StringEndsWith {
        values: Vec<FoldedText>,
    },
    StringIn {
        values: Vec<FoldedText>,
    },
    StringNotContains {
        values: Vec<FoldedText>,
    },
    StringNotBeginsWith {
        values: Vec<FoldedText>,
    },
    StringNotEndsWith {
        values: Vec<FoldedText>,
    },
    StringNotIn {
        values: Vec<FoldedText>,
    },
    IsNullOrUndefined,
    IsNotNull,
}

/// Why an advanced filter rejects an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdvancedMismatch {
    Missing,
    Null,
    Present,
    Array,
    OtherType,
    NoneFits,
    OneFits,
}

impl AdvancedMismatch {
    pub(super) fn describe(self) -> &'static str {
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

impl AdvancedFilter {
    /// Why it rejects the event; [`None`] if it matches.
    pub(super) fn mismatch(
        &self,
        view: &EventView<'_>,
        on_arrays: bool,
    ) -> Option<AdvancedMismatch> {
        let node = view.find_value(&self.key);
        let mismatch = match node.map(JsonNode::value) {
            None => Some(AdvancedMismatch::Missing),
            Some(EventValue::Null) => Some(AdvancedMismatch::Null),
            Some(_) => None,
        };
        let Some(node) = node.filter(|_| mismatch.is_none()) else {
            return mismatch.filter(|_| !self.operator.takes_absent());
        };
        let fits = match (&self.operator, node.value()) {
            (Operator::IsNullOrUndefined, _) => return Some(AdvancedMismatch::Present),
            (Operator::IsNotNull, _) => return None,
            (_, EventValue::Array(_)) if !on_arrays => return Some(AdvancedMismatch::Array),
            (operator, _) => match operator.matches_node(view, node) {
                Some(fits) => fits,
                None => return Some(AdvancedMismatch::OtherType),
            },
        };
        match (fits, self.operator.is_negated()) {
            (true, false) | (false, true) => None,
            (true, true) => Some(AdvancedMismatch::OneFits),
            (false, false) => Some(AdvancedMismatch::NoneFits),
        }
    }
}

impl Operator {
    /// The value of `operatorType` in a filter, as ARM spells it.
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

    /// Number of values; a range counts as one.
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

    /// Whether it matches events without a value.
    fn takes_absent(&self) -> bool {
        matches!(
            self,
            Self::NumberNotIn { .. }
                | Self::NumberNotInRange { .. }
                | Self::StringNotIn { .. }
                | Self::IsNullOrUndefined
        )
    }

    /// Whether it rejects events whose value fits.
    fn is_negated(&self) -> bool {
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

    /// Whether the value, or any element of an array, fits one of the operator's values; [`None`]
    /// if it has another type.
    fn matches_node(&self, view: &EventView<'_>, node: &JsonNode<'_>) -> Option<bool> {
        let value = node.value();
        Some(match self {
            Self::NumberIn { values } | Self::NumberNotIn { values } => {
                let numbers = value.numbers()?;
                values.iter().any(|it| numbers.binary_search(it).is_ok())
            }
            Self::NumberLessThan { value: bound } => {
                value.numbers()?.first().is_some_and(|least| least < bound)
            }
            Self::NumberGreaterThan { value: bound } => {
                value.numbers()?.last().is_some_and(|most| most > bound)
            }
            Self::NumberLessThanOrEquals { value: bound } => {
                value.numbers()?.first().is_some_and(|least| least <= bound)
            }
            Self::NumberGreaterThanOrEquals { value: bound } => {
                value.numbers()?.last().is_some_and(|most| most >= bound)
            }
            Self::NumberInRange { values } | Self::NumberNotInRange { values } => {
                let numbers = value.numbers()?;
                let from = |least| numbers.get(numbers.partition_point(|it| it < least));
                values
                    .iter()
                    .any(|(least, most)| from(least).is_some_and(|it| it <= most))
            }
            Self::BoolEquals { value: wanted } => value.bools()?[usize::from(*wanted)],
            Self::StringContains { values } | Self::StringNotContains { values } => {
                view.contains(node, values)?
            }
            Self::StringBeginsWith { values } | Self::StringNotBeginsWith { values } => {
                let texts = value.texts()?;
                let from =
                    |prefix: &str| texts.get(texts.partition_point(|text| text.as_str() < prefix));
                values.iter().any(|part| {
                    from(part.as_folded()).is_some_and(|text| text.starts_with(part.as_folded()))
                })
            }
            Self::StringEndsWith { values } | Self::StringNotEndsWith { values } => {
                values.iter().try_fold(false, |any, part| {
                    Some(any || value.ends_with(part.as_folded())?)
                })?
            }
            Self::StringIn { values } | Self::StringNotIn { values } => {
                let texts = value.texts()?;
                values.iter().any(|whole| {
                    texts
                        .binary_search_by(|text| text.as_str().cmp(whole.as_folded()))
                        .is_ok()
                })
            }
            Self::IsNullOrUndefined | Self::IsNotNull => return None,
        })
    }
}
