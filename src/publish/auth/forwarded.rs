//! Reads what trusted proxies say of a client: the elements of `Forwarded` (RFC 7239), and
//! addresses with or without ports.
//!
//! A client can send the beginning of such a header, and a proxy appends to it. What is read is
//! therefore the end of a line, and only if the whole line is well formed: an unbalanced quote of
//! the client must not swallow what the proxy wrote.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The elements of a line of `Forwarded`, each with its pairs of a lower-case name and a value
/// without quotes; [`None`] if the line is malformed.
pub(super) fn parse_elements(line: &str) -> Option<Vec<Vec<(String, String)>>> {
    split_unquoted(line, ',')?
        .into_iter()
        .map(parse_pairs)
        .collect()
}

fn parse_pairs(element: &str) -> Option<Vec<(String, String)>> {
    split_unquoted(element, ';')?
        .into_iter()
        .filter(|pair| !pair.trim().is_empty())
        .map(parse_pair)
        .collect()
}

fn parse_pair(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.trim().split_once('=')?;
    Some((name.to_ascii_lowercase(), unquote(value)?))
}

/// The value of the one pair with this name; [`None`] if there is none, or several.
pub(super) fn find_one<'a>(element: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut values = element
        .iter()
        .filter(|(known, _)| known == name)
        .map(|(_, value)| value.as_str());
    values.next().filter(|_| values.next().is_none())
}

/// Splits `text` at separators outside quotes; [`None`] if a quote is not closed.
fn split_unquoted(text: &str, separator: char) -> Option<Vec<&str>> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ if c == separator && !is_quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!is_quoted).then_some(parts)
}

/// A value without quotes in it, or the content of one quoted string.
fn unquote(value: &str) -> Option<String> {
    let Some(rest) = value.strip_prefix('"') else {
        return Some(value.to_owned()).filter(|value| !value.contains('"'));
    };
    let mut content = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(content),
            '\\' => content.push(chars.next()?),
            c => content.push(c),
        }
    }
}

/// Parses an address with an optional port: `10.1.2.3`, `10.1.2.3:80`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:80`.
pub(super) fn parse_address(text: &str) -> Option<IpAddr> {
    let address = if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else if let Some(address) = parse_bracketed_address(text) {
        address.into()
    } else if !text.contains('%') {
        text.parse::<SocketAddr>().ok()?.ip()
    } else {
        // `SocketAddr` accepts a zone, which the rules for addresses cannot check.
        return None;
    };
    Some(address.to_canonical())
}

fn parse_bracketed_address(text: &str) -> Option<Ipv6Addr> {
    let address = text.strip_prefix('[')?.strip_suffix(']')?;
    address.parse().ok()
}
