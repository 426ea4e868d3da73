//! Exact comparison of JSON numbers.
//!
//! An event's number is compared by its decimal digits and never rounded: integers of twenty digits
//! differ, and `1.0` equals `1`. The digits and exponent can also serve as a key of a table. A
//! filter's numbers are parsed as 64-bit values; a number that would be rounded there is rejected
//! ([`first_rounded`]).

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

/// Larger exponents are capped; no number in practice comes near.
const EXPONENT_MAX: i64 = i64::MAX / 4;

/// A JSON number: `0.digits × 10^exponent`.
#[derive(Clone, Debug)]
pub struct ExactNumber {
    text: String,
    negative: bool,
    /// Without leading and trailing zeros; empty for zero.
    digits: String,
    exponent: i64,
}

impl ExactNumber {
    pub(crate) fn new(text: &str) -> Self {
        let (negative, rest) = text
            .strip_prefix('-')
            .map_or((false, text), |rest| (true, rest));
        let (mantissa, power) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_start_matches('0');
        let zeros = all.len() - significant.len();
        let digits = significant.trim_end_matches('0').to_owned();
        let farthest = if power.starts_with('-') {
            -EXPONENT_MAX
        } else {
            EXPONENT_MAX
        };
        let power = power
            .parse()
            .unwrap_or(farthest)
            .clamp(-EXPONENT_MAX, EXPONENT_MAX);
        let exponent = if digits.is_empty() {
            0
        } else {
            power + whole.len() as i64 - zeros as i64
        };
        Self {
            text: text.to_owned(),
            negative: negative && !digits.is_empty(),
            digits,
            exponent,
        }
    }

    /// As the filter or the event spells it, such as `1e3`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// -1, 0 or 1.
    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

impl Ord for ExactNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.sign().cmp(&other.sign());
        let magnitudes = (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        signs.then(if self.negative {
            magnitudes.reverse()
        } else {
            magnitudes
        })
    }
}

impl PartialOrd for ExactNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ExactNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ExactNumber {}

impl Hash for ExactNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.negative, &self.digits, self.exponent).hash(state);
    }
}

/// The first number in a JSON document that parsing would round, as its path and an error: integers
/// beyond 64 bits, and other numbers of more than about 17 digits.
pub fn first_rounded(json: &str) -> Option<(String, String)> {
    find_rounded("", serde_json::from_str(json).ok()?)
}

/// The error for a number that parsing would round.
pub fn rounding_problem(number: &str) -> Option<String> {
    let read: serde_json::Number = serde_json::from_str(number).ok()?;
    let given = ExactNumber::new(number);
    let is_kept = ExactNumber::from(&read) == given || is_long_form(&read, &given);
    (!is_kept).then(|| {
        format!(
            "is {number}, which would be rounded; expected an integer of 64 bits or a number \
             of 17 digits"
        )
    })
}

/// Whether a number is a double in more digits than it needs, up to the 17 that some clients always
/// write: 0.10000000000000001 is 0.1.
fn is_long_form(read: &serde_json::Number, given: &ExactNumber) -> bool {
    let digits = given.digits.len();
    let double = read.as_f64().filter(|_| read.is_f64() && digits <= 17);
    let rounded = double.map(|double| format!("{double:.*e}", digits.saturating_sub(1)));
    rounded.is_some_and(|rounded| ExactNumber::new(&rounded) == *given)
}

fn find_rounded(at: &str, value: &RawValue) -> Option<(String, String)> {
    let json = value.get().trim_start();
    match json.as_bytes().first()? {
        b'{' => serde_json::from_str::<BTreeMap<String, &RawValue>>(json)
            .ok()?
            .into_iter()
            .find_map(|(name, value)| {
                let at = if at.is_empty() {
                    name
                } else {
                    format!("{at}.{name}")
                };
                find_rounded(&at, value)
            }),
        b'[' => serde_json::from_str::<Vec<&RawValue>>(json)
            .ok()?
            .into_iter()
            .enumerate()
            .find_map(|(index, value)| find_rounded(&format!("{at}[{index}]"), value)),
        b'-' | b'0'..=b'9' => rounding_problem(json).map(|problem| (at.to_owned(), problem)),
        _ => None,
    }
}

impl From<&serde_json::Number> for ExactNumber {
    fn from(number: &serde_json::Number) -> Self {
        Self::new(&number.to_string())
    }
}

impl Serialize for ExactNumber {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let number: serde_json::Number =
            serde_json::from_str(&self.text).map_err(S::Error::custom)?;
        number.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ExactNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(&serde_json::Number::deserialize(from)?))
    }
}
