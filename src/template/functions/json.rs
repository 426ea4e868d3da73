//! Reads JSON as Azure does: also with single quotes, names without quotes, comments, and a comma
//! before a closing bracket.

use std::{iter::Peekable, str::Chars};

use serde_json::Value;

/// Parses a JSON text; [`None`] if it is not JSON.
pub(super) fn parse_lenient_json(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(_) => serde_json::from_str(&to_strict_json(text)?).ok(),
    }
}

/// Rewrites what only Azure reads. Other errors remain for the parser to find.
fn to_strict_json(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' => write_string(&mut json, &mut rest, c)?,
            '/' => {
                skip_comment(&mut rest)?;
                json.push(' ');
            }
            ']' | '}' => {
                drop_trailing_comma(&mut json);
                json.push(c);
            }
            c if c.is_alphabetic() || matches!(c, '_' | '$') => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
                {
                    word.push(c);
                }
                // Only a name of a property may be a bare word.
                let mut after = rest.clone();
                if after.find(|c| !c.is_whitespace()) == Some(':') {
                    word = Value::from(word).to_string();
                }
                json.push_str(&word);
            }
            c if c.is_ascii_digit() => {
                json.push(c);
                while let Some(c) = rest.next_if(|c| matches!(c, 'e' | 'E') || c.is_ascii_digit()) {
                    json.push(c);
                }
            }
            c => json.push(c),
        }
    }
    Some(json)
}

/// Removes a comma behind a value.
fn drop_trailing_comma(json: &mut String) {
    let items = json.trim_end().strip_suffix(',').map(str::trim_end);
    let items = items.filter(|items| !items.ends_with(['[', '{', ',']));
    if let Some(length) = items.map(str::len) {
        json.truncate(length);
    }
}

/// Writes the string that begins with a quote, in double quotes; [`None`] if it has no end.
fn write_string(json: &mut String, rest: &mut Peekable<Chars<'_>>, quote: char) -> Option<()> {
    json.push('"');
    loop {
        match rest.next()? {
            c if c == quote => break,
            '"' => json.push_str("\\\""),
            '\\' => match rest.next()? {
                '\'' => json.push('\''),
                c => json.extend(['\\', c]),
            },
            // A line break or a tab may stand in a string as it is.
            c if c.is_control() => json.extend(format!("\\u{:04x}", u32::from(c)).chars()),
            c => json.push(c),
        }
    }
    json.push('"');
    Some(())
}

/// Skips a comment behind its first slash; [`None`] if there is none.
fn skip_comment(rest: &mut Peekable<Chars<'_>>) -> Option<()> {
    match rest.next()? {
        '/' => drop(rest.find(|c| *c == '\n')),
        '*' => loop {
            rest.find(|c| *c == '*')?;
            if rest.next_if_eq(&'/').is_some() {
                break;
            }
        },
        _ => return None,
    }
    Some(())
}
