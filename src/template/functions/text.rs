//! Functions of strings, and of what is like strings: base64, hashes and JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gridhook_escape::{count_with_noun, group_thousands};
use ring::digest;
use serde_json::Value;

use super::{
    Arguments, Evaluated, EvaluationScope, Function, MANY, eager_function,
    json::parse_lenient_json, scoped_function,
};
use crate::kind_of;

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    eager_function("base64", 1..=1, |args| Ok(STANDARD.encode(args.text_argument(0)?).into())),
    eager_function("base64ToJson", 1..=1, |args| parse_json(args, &decode_base64(args)?)),
    eager_function("base64ToString", 1..=1, |args| Ok(decode_base64(args)?.into())),
    eager_function("endsWith", 2..=2, ends_with),
    eager_function("format", 1..=MANY, format_text),
    eager_function("guid", 1..=MANY, |args| Ok(name_based_uuid(&args.text_arguments(0)?.join("-")).into())),
    eager_function("indexOf", 2..=2, |args| index_of(args, false)),
    eager_function("join", 2..=2, join),
    eager_function("json", 1..=1, |args| parse_json(args, args.text_argument(0)?)),
    eager_function("lastIndexOf", 2..=2, |args| index_of(args, true)),
    eager_function("like", 2..=2, like),
    scoped_function("newGuid", 0..=0, new_guid),
    eager_function("padLeft", 2..=3, pad_left),
    eager_function("replace", 3..=3, replace),
    eager_function("split", 2..=2, split),
    eager_function("startsWith", 2..=2, starts_with),
    eager_function("string", 1..=1, |args| Ok(text_of(args.value_argument(0)?).into())),
    eager_function("substring", 2..=3, substring),
    eager_function("toLower", 1..=1, |args| Ok(args.text_argument(0)?.to_lowercase().into())),
    eager_function("toUpper", 1..=1, |args| Ok(args.text_argument(0)?.to_uppercase().into())),
    eager_function("trim", 1..=1, |args| Ok(args.text_argument(0)?.trim().into())),
    eager_function("uniqueString", 1..=MANY, |args| Ok(unique_text(&args.text_arguments(0)?.join("-")).into())),
];

fn starts_with(args: &Arguments<'_>) -> Evaluated {
    let text = args.text_argument(0)?.to_lowercase();
    Ok(text
        .starts_with(&args.text_argument(1)?.to_lowercase())
        .into())
}

/// Whether a text matches a pattern in which `*` stands for any characters; without case.
fn like(args: &Arguments<'_>) -> Evaluated {
    let text = args.text_argument(0)?.to_lowercase();
    let pattern = args.text_argument(1)?.to_lowercase();
    Ok(matches_pattern(&text, &pattern).into())
}

fn matches_pattern(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text
        .strip_prefix(start)
        .and_then(|text| text.strip_suffix(end))
    else {
        return false;
    };
    for part in middle.split('*') {
        let Some(at) = text.find(part) else {
            return false;
        };
        text = &text[at + part.len()..];
    }
    true
}

fn ends_with(args: &Arguments<'_>) -> Evaluated {
    let text = args.text_argument(0)?.to_lowercase();
    Ok(text
        .ends_with(&args.text_argument(1)?.to_lowercase())
        .into())
}

/// The namespace of the UUIDs that `guid` returns in Azure.
const GUID_NAMESPACE: u128 = 0x11fb_06fb_712d_4ddd_98c7_e71b_bd58_8830;

/// A value as text: strings as they are, others as JSON, booleans as in Azure.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

fn decode_base64(args: &Arguments<'_>) -> Result<String, crate::EvaluationError> {
    let bytes = STANDARD
        .decode(args.text_argument(0)?)
        .map_err(|_| args.invalid_call("the argument is not base64"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_json(args: &Arguments<'_>, text: &str) -> Evaluated {
    // The error of the parser would show a part of the text, which may be secret.
    parse_lenient_json(text).ok_or_else(|| args.invalid_call("the argument is not JSON"))
}

/// `format('{0}-{1:D3}', …)`: `{{` and `}}` stand for brackets.
fn format_text(args: &Arguments<'_>) -> Evaluated {
    let pattern = args.text_argument(0)?;
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let bracket = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(bracket) {
            text.push_str(bracket);
            rest = after;
            continue;
        }
        let item = rest.split_once('}').filter(|_| bracket == "{");
        let (item, after) = item.ok_or_else(|| {
            args.invalid_call("a bracket of the pattern has no partner; write {{ or }}")
        })?;
        text.push_str(&format_item(args, item)?);
        args.check_size(text.len())?;
        rest = after;
    }
    text.push_str(rest);
    Ok(text.into())
}

/// Formats an item of a pattern of `format`, such as `0`, `0:D3` or `0,8`.
fn format_item(args: &Arguments<'_>, item: &str) -> Result<String, crate::EvaluationError> {
    let (place, form) = item
        .split_once(':')
        .map_or((item, ""), |(place, form)| (place, form));
    let (index, width) = place
        .split_once(',')
        .map_or((place, "0"), |(index, width)| (index, width));
    let index: Option<usize> = index.trim().parse().ok();
    let width: Option<i32> = width
        .trim()
        .parse()
        .ok()
        .filter(|width: &i32| width.unsigned_abs() <= 1_000);
    let (Some(index), Some(width)) = (index, width) else {
        return Err(args.invalid_call(format!(
            "{{{item}}} is not an item of a pattern; expected, for example, {{0}}"
        )));
    };
    let Some(value) = args.values.get(index + 1) else {
        let count = args.len() - 1;
        let verb = if count == 1 { "is" } else { "are" };
        let values = count_with_noun(count, "value");
        let problem = format!("the pattern has {{{index}}}, and there {verb} {values}");
        return Err(args.invalid_call(problem));
    };
    let text = match (form, value) {
        ("", Value::Null) => String::new(),
        ("", other) => text_of(other),
        _ => value
            .as_i64()
            .and_then(|number| format_number(number, form))
            .ok_or_else(|| {
                args.invalid_call(format!(
                    "the format '{form}' is not supported for {}; expected D, N, X or zeros, \
                     for whole numbers",
                    kind_of(value)
                ))
            })?,
    };
    let size = width.unsigned_abs() as usize;
    Ok(if width < 0 {
        format!("{text:<size$}")
    } else {
        format!("{text:>size$}")
    })
}

/// A number in a format of .NET: `D3`, `N0`, `X2`, or `000`, with at most 1,000 digits. [`None`] if
/// the format is another one.
fn format_number(number: i64, form: &str) -> Option<String> {
    let is_zeros = form.bytes().all(|byte| byte == b'0');
    let (kind, digits) = if is_zeros {
        ('D', form.len())
    } else {
        let kind = form.chars().next()?;
        let given = &form[kind.len_utf8()..];
        let default = if matches!(kind, 'N' | 'n') { "2" } else { "0" };
        let digits = if given.is_empty() { default } else { given };
        (kind, digits.parse().ok()?)
    };
    let digits = digits.min(1_000);
    let sign = if number < 0 { "-" } else { "" };
    match kind {
        'D' | 'd' => Some(format!("{sign}{:0digits$}", number.unsigned_abs())),
        'N' | 'n' => {
            let whole = group_thousands(number.unsigned_abs());
            let point = if digits > 0 { "." } else { "" };
            Some(format!("{sign}{whole}{point}{}", "0".repeat(digits)))
        }
        'X' => Some(format!("{number:0digits$X}")),
        'x' => Some(format!("{number:0digits$x}")),
        _ => None,
    }
}

/// A UUID of version 5.
pub(super) fn name_based_uuid(name: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&GUID_NAMESPACE.to_be_bytes());
    context.update(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&context.finish().as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

fn new_guid(scope: &EvaluationScope<'_>, _: &Arguments<'_>) -> Evaluated {
    let number = scope.shared.guids.get();
    scope.shared.guids.set(number + 1);
    Ok(name_based_uuid(&format!("{}-{number}", scope.shared.context.seed)).into())
}

/// The 13 characters that Azure derives from a text: MurmurHash3 in a variant of 64 bits, in
/// base 32.
fn unique_text(text: &str) -> String {
    let mut hash = murmur_hash(text.as_bytes());
    let mut unique = String::new();
    for _ in 0..13 {
        unique.push(char::from(
            b"abcdefghijklmnopqrstuvwxyz234567"[(hash >> 59) as usize],
        ));
        hash <<= 5;
    }
    unique
}

fn murmur_hash(data: &[u8]) -> u64 {
    const C1: u32 = 0x239b_961b;
    const C2: u32 = 0xab0e_9789;
    let first = |word: u32| word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let second = |word: u32| word.wrapping_mul(C2).rotate_left(17).wrapping_mul(C1);
    let shift = |word: u32, byte: &u8| word << 8 | u32::from(*byte);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, shift);
    let mut low: u32 = 0;
    let mut high: u32 = 0;
    let chunks = data.chunks_exact(8);
    let tail = chunks.remainder();
    for chunk in chunks {
        low = (low ^ first(word(&chunk[..4])))
            .rotate_left(19)
            .wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x561c_cd1b);
        high = (high ^ second(word(&chunk[4..])))
            .rotate_left(13)
            .wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x0bca_a747);
    }
    if !tail.is_empty() {
        low ^= first(word(&tail[..tail.len().min(4)]));
    }
    if tail.len() > 4 {
        high ^= second(word(&tail[4..]));
    }
    // The hash of ARM takes 32 bits of the length.
    let length = data.len() as u32;
    low = (low ^ length).wrapping_add(high ^ length);
    high = (high ^ length).wrapping_add(low);
    low = scramble_word(low);
    high = scramble_word(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    u64::from(high) << 32 | u64::from(low)
}

fn scramble_word(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
    let word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

/// The place of a text without regard to case, or of an element; -1 without one.
fn index_of(args: &Arguments<'_>, is_last: bool) -> Evaluated {
    if let Value::Array(list) = args.value_argument(0)? {
        let value = args.value_argument(1)?;
        let place = if is_last {
            list.iter().rposition(|one| one == value)
        } else {
            list.iter().position(|one| one == value)
        };
        return Ok(place
            .map_or(-1, |place| i64::try_from(place).unwrap_or(-1))
            .into());
    }
    let text = args.text_argument(0)?.to_lowercase();
    let pattern = args.text_argument(1)?.to_lowercase();
    let place = if is_last {
        text.rfind(&pattern)
    } else {
        text.find(&pattern)
    };
    let chars = place.map_or(-1, |place| {
        i64::try_from(text[..place].chars().count()).unwrap_or(-1)
    });
    Ok(chars.into())
}

fn join(args: &Arguments<'_>) -> Evaluated {
    let mut text = String::new();
    let separator = args.text_argument(1)?;
    for (index, one) in args.list_argument(0)?.iter().enumerate() {
        text.push_str(if index > 0 { separator } else { "" });
        text.push_str(&text_of(one));
        args.check_size(text.len())?;
    }
    Ok(text.into())
}

fn pad_left(args: &Arguments<'_>) -> Evaluated {
    let text = args.to_text(0)?;
    let width = usize::try_from(args.integer_argument(1)?).unwrap_or(0);
    args.check_size(width)?;
    let padding = if args.len() > 2 {
        args.to_text(2)?
    } else {
        " ".to_owned()
    };
    let missing = width.saturating_sub(text.chars().count());
    match padding.chars().count() {
        1 => Ok(format!("{}{text}", padding.repeat(missing)).into()),
        count => Err(args.invalid_call(format!("the padding has {count} characters; expected 1"))),
    }
}

fn replace(args: &Arguments<'_>) -> Evaluated {
    let text = args.text_argument(0)?;
    let pattern = args.text_argument(1)?;
    let new = args.text_argument(2)?;
    if pattern.is_empty() {
        return Err(args.invalid_call("the text to replace is empty"));
    }
    args.check_size(text.len().saturating_mul(new.len().max(1)) / pattern.len())?;
    Ok(text.replace(pattern, new).into())
}

fn split(args: &Arguments<'_>) -> Evaluated {
    let separators: Vec<&str> = match args.value_argument(1)? {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Err(args.wrong_argument(1, "a string or an array of strings")),
    };
    let mut parts = vec![args.text_argument(0)?];
    for separator in separators
        .into_iter()
        .filter(|separator| !separator.is_empty())
    {
        parts = parts
            .into_iter()
            .flat_map(|part| part.split(separator))
            .collect();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

fn substring(args: &Arguments<'_>) -> Evaluated {
    let chars: Vec<char> = args.text_argument(0)?.chars().collect();
    let start = usize::try_from(args.integer_argument(1)?)
        .ok()
        .filter(|start| *start <= chars.len());
    let start = start.ok_or_else(|| {
        args.invalid_call(format!(
            "the start is outside of a string of {}",
            count_with_noun(chars.len(), "character")
        ))
    })?;
    let rest = &chars[start..];
    if args.len() < 3 {
        return Ok(rest.iter().collect::<String>().into());
    }
    let length = usize::try_from(args.integer_argument(2)?)
        .ok()
        .filter(|length| *length <= rest.len());
    let length = length.ok_or_else(|| {
        args.invalid_call(format!(
            "the length is more than the {} behind the start",
            count_with_noun(rest.len(), "character")
        ))
    })?;
    Ok(rest[..length].iter().collect::<String>().into())
}
