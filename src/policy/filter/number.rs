//! Numbers as they are written, compared exactly.
//!
//! An event's number is digits, and nothing rounds it: an id of twenty digits is not its neighbour, and `1.0` is `1`. So
//! a number is kept as its decimal digits and the place of its point, which is also what makes it fit for a table. A filter's
//! number comes in a document that is read with 64 bits; one that would be rounded there is refused ([`first_rounded`]).

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

/// An exponent with more digits than fit is as good as this one: no number that is compared comes near it.
const EXPONENT_MAX: i64 = i64::MAX / 4;

/// A number of JSON: `0.digits × 10^exponent`.
#[derive(Clone, Debug)]
pub struct ExactNumber {
    text: String,
    negative: bool,
    /// Neither the first nor the last is a zero; none at all is zero.
    digits: String,
    exponent: i64,
}

impl ExactNumber {
    /// Takes a number as JSON writes it.
    pub(super) fn new(text: &str) -> Self {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, power) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_start_matches('0');
        let zeros = all.len() - significant.len();
        let digits = significant.trim_end_matches('0').to_owned();
        let farthest = if power.starts_with('-') { -EXPONENT_MAX } else { EXPONENT_MAX };
        let power = power.parse().unwrap_or(farthest).clamp(-EXPONENT_MAX, EXPONENT_MAX);
        let exponent = if digits.is_empty() { 0 } else { power + whole.len() as i64 - zeros as i64 };
        Self { text: text.to_owned(), negative: negative && !digits.is_empty(), digits, exponent }
    }

    /// As it was written.
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
        let magnitude = || self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits));
        self.sign().cmp(&other.sign()).then_with(|| if self.negative { magnitude().reverse() } else { magnitude() })
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

/// The first number in a JSON document that a reader of documents would round, where it is and what is wrong with it:
/// integers of more than 64 bits, and other numbers of more than about 17 digits.
pub fn first_rounded(json: &str) -> Option<(String, String)> {
    rounded("", serde_json::from_str(json).ok()?)
}

/// What is wrong with a number of JSON that a reader of documents would round.
pub fn refusal(number: &str) -> Option<String> {
    let read: serde_json::Number = serde_json::from_str(number).ok()?;
    (ExactNumber::from(&read) != ExactNumber::new(number)).then(|| {
        format!("is {number}, which would be rounded; allowed are integers of 64 bits and numbers of 17 digits")
    })
}

fn rounded(at: &str, value: &RawValue) -> Option<(String, String)> {
    let json = value.get().trim_start();
    match json.as_bytes().first()? {
        b'{' => {
            serde_json::from_str::<BTreeMap<String, &RawValue>>(json).ok()?.into_iter().find_map(|(name, value)| {
                let at = if at.is_empty() { name } else { format!("{at}.{name}") };
                rounded(&at, value)
            })
        }
        b'[' => serde_json::from_str::<Vec<&RawValue>>(json)
            .ok()?
            .into_iter()
            .enumerate()
            .find_map(|(place, value)| rounded(&format!("{at}[{place}]"), value)),
        b'-' | b'0'..=b'9' => refusal(json).map(|problem| (at.to_owned(), problem)),
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
        let number: serde_json::Number = serde_json::from_str(&self.text).map_err(S::Error::custom)?;
        number.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ExactNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(&serde_json::Number::deserialize(from)?))
    }
}
