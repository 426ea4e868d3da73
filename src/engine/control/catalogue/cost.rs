//! What a check of data costs, found from its schema before any data is read.
//!
//! The cost is a number of steps: one for each keyword and value that is compared, and for each
//! character of a text one for each position of a pattern, because a pattern may be at all of its
//! positions at once. Data of n bytes has at most n/2 values, and the members of an object are
//! parts of its bytes, so a schema costs at most `times * n + plus` steps.
//!
//! The bound grows with each level of schemas that are evaluated again, so nested ones have none
//! that is small enough.

use serde_json::Value;

use super::InvalidSchema;

/// A schema with `unevaluatedProperties` or `unevaluatedItems` evaluates the schemas beside them up
/// to this often.
pub(super) const UNEVALUATED: f64 = 4.0;

/// Maximum positions of a pattern, with repetitions written out.
pub(super) const POSITIONS_MAX: usize = 1_000;

/// The cost of data of n bytes: at most `times * n + plus` steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckCost {
    times: f64,
    plus: f64,
}

impl CheckCost {
    /// The cost of a keyword that looks at a value once.
    pub(super) const STEP: Self = Self {
        times: 0.0,
        plus: 1.0,
    };

    /// The cost of a comparison of the elements of an array: few are compared in pairs, many are
    /// hashed.
    pub(super) const UNIQUE: Self = Self {
        times: 16.0,
        plus: 1.0,
    };

    /// The cost of a comparison with all values in `value`.
    pub(super) fn from_values(value: &Value) -> Self {
        Self {
            times: 0.0,
            plus: count_values(value) as f64,
        }
    }

    /// The bound for data of this length.
    pub(super) fn steps_for(self, bytes: usize) -> f64 {
        self.times * bytes as f64 + self.plus
    }

    pub(super) fn scale(self, by: f64) -> Self {
        Self {
            times: self.times * by,
            plus: self.plus * by,
        }
    }

    /// The cost of this schema and another for the same data.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            plus: self.plus + other.plus,
        }
    }

    /// The cost of this schema and another for different parts of the data.
    pub(super) fn plus_disjoint(self, other: Self) -> Self {
        Self {
            times: self.times.max(other.times),
            plus: self.plus + other.plus,
        }
    }

    /// The cost of this schema for each part of the data. A part has two bytes or more.
    pub(super) fn for_each_part(self) -> Self {
        Self {
            times: self.times + self.plus / 2.0,
            plus: 1.0,
        }
    }
}

fn count_values(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(count_values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count_values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// The cost of a pattern.
///
/// # Errors
/// It has too many positions.
pub(super) fn pattern_cost(pattern: &str) -> Result<CheckCost, InvalidSchema> {
    let positions = PatternReader {
        rest: pattern.as_bytes(),
    }
    .count_alternatives(0);
    if positions > POSITIONS_MAX {
        let shown: String = pattern.chars().take(64).collect();
        return Err(InvalidSchema::Pattern {
            pattern: shown.escape_debug().to_string(),
            positions,
        });
    }
    Ok(CheckCost {
        times: positions as f64,
        plus: 1.0,
    })
}

/// Maximum groups inside each other. More count as too many positions.
const GROUPS_MAX: usize = 64;

/// Counts the positions of a pattern: its characters and classes, with repetitions written out. It
/// need not be valid: an invalid one is not compiled.
struct PatternReader<'p> {
    rest: &'p [u8],
}

impl PatternReader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The positions up to the end of the group.
    fn count_alternatives(&mut self, depth: usize) -> usize {
        let mut all = 0_usize;
        while let Some(byte) = self.next() {
            let positions = match byte {
                b')' => return all.max(1),
                b'|' | b'^' | b'$' => continue,
                b'(' if depth == GROUPS_MAX => return usize::MAX,
                b'(' => {
                    self.skip_group_kind();
                    self.count_alternatives(depth + 1)
                }
                b'[' => self.read_class(),
                b'\\' => self.read_escape(),
                _ => 1,
            };
            all = all.saturating_add(positions.saturating_mul(self.read_repetitions()));
        }
        all.max(1)
    }

    /// `?:`, `?=`, `?<name>` and the like behind the bracket.
    fn skip_group_kind(&mut self) {
        if self.rest.first() != Some(&b'?') {
            return;
        }
        self.next();
        while self
            .next()
            .is_some_and(|byte| !matches!(byte, b':' | b'=' | b'!' | b'>'))
        {}
    }

    /// Reads a class in brackets.
    fn read_class(&mut self) -> usize {
        while let Some(byte) = self.next().filter(|byte| *byte != b']') {
            if byte == b'\\' {
                self.next();
            }
        }
        1
    }

    fn read_escape(&mut self) -> usize {
        let is_named = matches!(self.next(), Some(b'p' | b'P' | b'u' | b'x'));
        if is_named && self.rest.first() == Some(&b'{') {
            while self.next().is_some_and(|byte| byte != b'}') {}
        }
        1
    }

    /// Reads repetitions. Returns how often the part before them is written out.
    fn read_repetitions(&mut self) -> usize {
        let mut times = 1_usize;
        while let Some(byte) = self.rest.first() {
            match byte {
                b'*' | b'+' | b'?' => self.rest = &self.rest[1..],
                b'{' => match self.read_bounds() {
                    Some(most) => times = times.saturating_mul(most),
                    None => break,
                },
                _ => break,
            }
        }
        times
    }

    /// The larger bound of `{n}`, `{n,}` or `{n,m}`; [`None`] if the brace is a character.
    fn read_bounds(&mut self) -> Option<usize> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let inside = std::str::from_utf8(&self.rest[1..end]).ok()?;
        let numbers = inside
            .split(',')
            .map(|number| number.trim().parse::<usize>());
        let most = numbers.filter_map(Result::ok).max()?;
        self.rest = &self.rest[end + 1..];
        Some(most.max(1))
    }
}
