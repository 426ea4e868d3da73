//! How much an expression can make of an event, found before it is evaluated.
//!
//! JMESPath has no loops, no recursion and no variables, so the size of a result follows from the
//! expression: a list or an object has at most the sizes of its parts, a projection makes something
//! of each element, and elements have at least two bytes. Sizes never shrink, so the bound also
//! holds for everything in between, and the time is proportional to it.

use jmespath::ast::{Ast, KeyValuePair};

use super::{evaluate::literal_json, functions};

/// Steps of slices that cannot overflow.
const STEP_MAX: i32 = 1_000_000;

/// The bytes of `null`, which a missing member is.
const NULL: f64 = 4.0;

/// The bytes of a character that becomes `\u0000` in a string.
const ESCAPED: f64 = 6.0;

/// The maximum bytes of a number that a function computes.
const COMPUTED: f64 = 40.0;

/// The size of a result for an input of n bytes: at most `times * n + plus`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    times: f64,
    plus: f64,
}

impl Size {
    /// The bound for this input.
    pub(super) fn bytes_for(self, bytes: f64) -> f64 {
        self.times * bytes + self.plus
    }

    fn plus(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            plus: self.plus + other.plus,
        }
    }

    fn scale(self, by: f64) -> Self {
        Self {
            times: self.times * by,
            plus: self.plus * by,
        }
    }

    /// Of a result of what `self` makes.
    fn followed_by(self, next: Self) -> Self {
        Self {
            times: next.times * self.times,
            plus: next.times * self.plus + next.plus,
        }
    }

    /// Of the results for each element of what `self` makes.
    fn for_each_of(self, next: Self) -> Self {
        let per_byte = next.times + next.plus / 2.0;
        Self {
            times: per_byte * self.times,
            plus: per_byte * self.plus + next.plus,
        }
    }
}

/// The size of what `node` makes; else the offset and the reason why it is refused.
pub(super) fn output_size(expression: &str, node: &Ast) -> Result<Size, (usize, String)> {
    let size = |node: &Ast| output_size(expression, node);
    let null_size = Size {
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
                format!("the step of the slice is {step}; expected 1 to {STEP_MAX}, or negative"),
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
        Ast::Subexpr { lhs, rhs, .. } => size(lhs)?.followed_by(size(rhs)?),
        Ast::Projection { lhs, rhs, .. } => size(lhs)?.for_each_of(size(rhs)?),
        Ast::Or { lhs, rhs, .. } | Ast::And { lhs, rhs, .. } | Ast::Comparison { lhs, rhs, .. } => {
            size(lhs)?.plus(size(rhs)?).plus(null_size)
        }
        Ast::Condition {
            predicate, then, ..
        } => size(predicate)?.plus(size(then)?),
        Ast::Not { node, .. } | Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } => {
            size(node)?.plus(null_size)
        }
        Ast::MultiList { elements, .. } => sum_sizes(expression, elements)?.plus(null_size),
        Ast::MultiHash { elements, .. } => {
            let mut all = null_size;
            for KeyValuePair { key, value } in elements {
                let name = ESCAPED * key.len() as f64 + NULL;
                all = all.plus(size(value)?).plus(Size {
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
            ("map", [Ast::Expref { ast, .. }, list]) => size(list)?.for_each_of(size(ast)?),
            ("sort_by" | "min_by" | "max_by", [list, Ast::Expref { ast, .. }]) => {
                size(list)?.plus(size(list)?.for_each_of(size(ast)?))
            }
            ("map", _) => {
                let problem = "the arguments of map are wrong; expected map(&expression, list)";
                return Err((*offset, problem.to_owned()));
            }
            ("sort_by" | "min_by" | "max_by", _) => {
                return Err((
                    *offset,
                    format!(
                        "the arguments of {name} are wrong; expected {name}(list, &expression)"
                    ),
                ));
            }
            ("join", [Ast::Literal { value, .. }, list]) => {
                size(list)?.scale(1.0 + value.to_string().len() as f64)
            }
            ("join", _) => {
                return Err((
                    *offset,
                    "the first argument of join is not a literal".to_owned(),
                ));
            }
            ("to_string", _) => sum_sizes(expression, args)?.scale(ESCAPED),
            // The results of the others have at most the sizes of their arguments, or a short text.
            (known, _) if functions::is_known(known) => {
                sum_sizes(expression, args)?.plus(null_size).plus(Size {
                    times: 0.0,
                    plus: COMPUTED,
                })
            }
            _ => return Err((*offset, format!("the function {name} is unknown"))),
        },
    })
}

fn sum_sizes(expression: &str, nodes: &[Ast]) -> Result<Size, (usize, String)> {
    nodes.iter().try_fold(
        Size {
            times: 0.0,
            plus: NULL,
        },
        |all, node| Ok(all.plus(output_size(expression, node)?)),
    )
}
