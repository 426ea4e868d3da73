//! Functions of URIs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::{Arguments, Evaluated, Function, eager_function};
use crate::{EvaluationError, find_entry};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    eager_function("buildUri", 1..=1, build_uri),
    eager_function("dataUri", 1..=1, data_uri),
    eager_function("dataUriToString", 1..=1, data_uri_to_string),
    eager_function("parseUri", 1..=1, parse_uri),
    eager_function("uri", 2..=2, join_uri),
    eager_function("uriComponent", 1..=1, uri_component),
    eager_function("uriComponentToString", 1..=1, uri_component_to_string),
];

fn data_uri(args: &Arguments<'_>) -> Evaluated {
    let data = STANDARD.encode(args.text_argument(0)?);
    Ok(format!("data:text/plain;charset=utf8;base64,{data}").into())
}

fn data_uri_to_string(args: &Arguments<'_>) -> Evaluated {
    let expectation = "the argument is not a data URI; expected, for example, \
        data:text/plain;base64,SGVsbG8=";
    let problem = || args.invalid_call(expectation);
    let (head, data) = args
        .text_argument(0)?
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
        .ok_or_else(problem)?;
    if head.ends_with(";base64") {
        let bytes = STANDARD.decode(data).map_err(|_| problem())?;
        return Ok(String::from_utf8_lossy(&bytes).into_owned().into());
    }
    Ok(percent_decode_str(data)
        .decode_utf8_lossy()
        .into_owned()
        .into())
}

fn uri_component(args: &Arguments<'_>) -> Evaluated {
    let component = utf8_percent_encode(args.text_argument(0)?, COMPONENT);
    Ok(component.to_string().into())
}

fn uri_component_to_string(args: &Arguments<'_>) -> Evaluated {
    let text = percent_decode_str(args.text_argument(0)?).decode_utf8_lossy();
    Ok(text.into_owned().into())
}

/// The characters that `uriComponent` escapes.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Joins a base and a relative URI: what follows the last slash of the base is replaced.
fn join_uri(args: &Arguments<'_>) -> Evaluated {
    let base = args.text_argument(0)?;
    let relative = args.text_argument(1)?;
    let (scheme, rest) = base
        .split_once("://")
        .ok_or_else(|| args.invalid_call("the base has no scheme such as https://"))?;
    let host = rest.split('/').next().unwrap_or_default();
    let folder = rest.rsplit_once('/').map_or(host, |(folder, _)| folder);
    let start = if relative.starts_with('/') {
        host
    } else {
        folder
    };
    Ok(format!("{scheme}://{start}/{}", relative.trim_start_matches('/')).into())
}

/// Joins the components that `parseUri` returns. `path`, `query` and `port` can be missing or null.
fn build_uri(args: &Arguments<'_>) -> Evaluated {
    let components = args.object_argument(0)?;
    let text = |name| text_component(args, components, name);
    let scheme = text("scheme")?;
    let host = text("host")?;
    if scheme.is_empty() || host.is_empty() {
        return Err(args.invalid_call("the object needs a scheme and a host"));
    }
    let port = match find_entry(components, "port") {
        None | Some(Value::Null) => String::new(),
        Some(port) => {
            let port = port.as_u64().filter(|port| *port <= u64::from(u16::MAX));
            let port = port.ok_or_else(|| args.invalid_call("port is not 0 to 65535"))?;
            format!(":{port}")
        }
    };
    let path = text("path")?;
    let path = path.strip_prefix('/').unwrap_or(path);
    let query = text("query")?;
    let query = query.strip_prefix('?').unwrap_or(query);
    let mark = if query.is_empty() { "" } else { "?" };
    Ok(format!("{scheme}://{host}{port}/{path}{mark}{query}").into())
}

fn text_component<'a>(
    args: &Arguments<'_>,
    components: &'a Map<String, Value>,
    name: &str,
) -> Result<&'a str, EvaluationError> {
    match find_entry(components, name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(args.invalid_call(format!("{name} is not a string"))),
    }
}

/// Splits a URI. Its query begins with a question mark; a port that it does not name is null.
fn parse_uri(args: &Arguments<'_>) -> Evaluated {
    let expectation = "the argument is not a URI; expected, for example, https://contoso.com/path";
    let problem = || args.invalid_call(expectation);
    let uri = args.text_argument(0)?;
    let uri = uri.split('#').next().unwrap_or_default();
    let (scheme, rest) = uri.split_once("://").ok_or_else(problem)?;
    if !is_scheme(scheme) {
        return Err(problem());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    // The colons of an IPv6 address are in brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let has_sign = port.starts_with('+');
            let number: Option<u16> = port.parse().ok().filter(|_| !has_sign);
            (host, Some(number.ok_or_else(problem)?))
        }
        _ => (authority, None),
    };
    if host.is_empty() {
        return Err(problem());
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok(json!({"scheme": scheme, "host": host, "port": port, "path": path, "query": query}))
}

/// Whether a text is a scheme (RFC 3986, 3.1).
fn is_scheme(text: &str) -> bool {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_of_scheme)
}
