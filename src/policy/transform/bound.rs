//! How much an expression can make of an event, found before it is evaluated.
//!
//! JMESPath has no loops, no recursion and no variables, so the size of a result follows from the
//! expression: a list or an object has at most the sizes of its parts, a projection makes something
//! of each element, and elements have at least two bytes. Sizes never shrink, so the bound also
//! holds for everything in between, and the time is proportional to it.

use jmespath::ast::{Ast, KeyValuePair};

use super::evaluate::literal_json;

/// Steps of slices that cannot overflow.
const STEP_MAX: i32 = 1_000_000;

/// The length of `null`, which a missing member is.
const NULL: f64 = 4.0;

/// A character may become `\u0000` in a string.
const ESCAPED: f64 = 6.0;

/// The digits of a number that a function computes.
const COMPUTED: f64 = 40.0;

/// Functions whose results have at most the sizes of their arguments, but for a short text.
const FUNCTIONS: [&str; 22] = [
    "abs",
    "avg",
    "ceil",
    "contains",
    "ends_with",
    "floor",
    "keys",
    "length",
    "max",
    "merge",
    "min",
    "not_null",
    "reverse",
    "sort",
    "starts_with",
    "sum",
    "to_array",
    "to_number",
    "type",
    "values",
    "to_string",
    "join",
];

/// The size of a result for an input of n bytes: at most `times * n + plus`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    times: f64,
    plus: f64,
}

impl Size {
    /// The bound for this input.
    pub(super) fn of(self, bytes: f64) -> f64 {
        self.times * bytes + self.plus
    }

    fn and(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            plus: self.plus + other.plus,
        }
    }

    fn scaled(self, by: f64) -> Self {
        Self {
            times: self.times * by,
            plus: self.plus * by,
        }
    }

    /// Of a result of what `self` makes.
    fn then(self, next: Self) -> Self {
        Self {
            times: next.times * self.times,
            plus: next.times * self.plus + next.plus,
        }
    }

    /// Of the results for each element of what `self` makes.
    fn each(self, next: Self) -> Self {
        let per_byte = next.times + next.plus / 2.0;
        Self {
            times: per_byte * self.times,
            plus: per_byte * self.plus + next.plus,
        }
    }
}

/// The size of what `node` makes; else the offset and the reason why it is refused.
pub(super) fn size(expression: &str, node: &Ast) -> Result<Size, (usize, String)> {
    let size = |node: &Ast| size(expression, node);
    let none = Size {
        times: 0.0,
        plus: NULL,
    };
    let part = Size {
        times: 1.0,
        plus: NULL,
    };
    Ok(match node {
        Ast::Identity { .. } | Ast::Field { .. } | Ast::Index { .. } => part,
        Ast::Slice { step, offset, .. }
            if step.unsigned_abs() > STEP_MAX.unsigned_abs() || *step == 0 =>
        {
            return Err((
                *offset,
                format!(
                    "the step of the slice is {step}; allowed are 1 to {STEP_MAX}, or negative"
                ),
            ));
        }
        Ast::Slice { .. } => part,
        Ast::Literal { offset, value } => {
            // Digits of a number that the parser of expressions has rounded.
            let written = literal_json(expression, *offset).map_or(0, |json| json.len());
            Size {
                times: 0.0,
                plus: value.to_string().len().max(written) as f64,
            }
        }
        Ast::Subexpr { lhs, rhs, .. } => size(lhs)?.then(size(rhs)?),
        Ast::Projection { lhs, rhs, .. } => size(lhs)?.each(size(rhs)?),
        Ast::Or { lhs, rhs, .. } | Ast::And { lhs, rhs, .. } | Ast::Comparison { lhs, rhs, .. } => {
            size(lhs)?.and(size(rhs)?).and(none)
        }
        Ast::Condition {
            predicate, then, ..
        } => size(predicate)?.and(size(then)?),
        Ast::Not { node, .. } | Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } => {
            size(node)?.and(none)
        }
        Ast::MultiList { elements, .. } => sum(expression, elements)?.and(none),
        Ast::MultiHash { elements, .. } => {
            let mut all = none;
            for KeyValuePair { key, value } in elements {
                let name = ESCAPED * key.len() as f64 + NULL;
                all = all.and(size(value)?).and(Size {
                    times: 0.0,
                    plus: name,
                });
            }
            all
        }
        Ast::Expref { offset, .. } => {
            return Err((
                *offset,
                "& is allowed only in arguments of map, sort_by, min_by and max_by".to_owned(),
            ));
        }
        Ast::Function { offset, name, args } => match (name.as_str(), args.as_slice()) {
            ("map", [Ast::Expref { ast, .. }, list]) => size(list)?.each(size(ast)?),
            ("sort_by" | "min_by" | "max_by", [list, Ast::Expref { ast, .. }]) => {
                size(list)?.and(size(list)?.each(size(ast)?))
            }
            ("map" | "sort_by" | "min_by" | "max_by", _) => {
                return Err((
                    *offset,
                    format!("the arguments of {name} are not a list and an expression with &"),
                ));
            }
            ("join", [Ast::Literal { value, .. }, list]) => {
                size(list)?.scaled(1.0 + value.to_string().len() as f64)
            }
            ("join", _) => {
                return Err((
                    *offset,
                    "the first argument of join is not a literal".to_owned(),
                ));
            }
            ("to_string", _) => sum(expression, args)?.scaled(ESCAPED),
            (known, _) if FUNCTIONS.contains(&known) => {
                sum(expression, args)?.and(none).and(Size {
                    times: 0.0,
                    plus: COMPUTED,
                })
            }
            _ => return Err((*offset, format!("the function {name} is unknown"))),
        },
    })
}

fn sum(expression: &str, nodes: &[Ast]) -> Result<Size, (usize, String)> {
    nodes.iter().try_fold(
        Size {
            times: 0.0,
            plus: NULL,
        },
        |all, node| Ok(all.and(size(expression, node)?)),
    )
}
