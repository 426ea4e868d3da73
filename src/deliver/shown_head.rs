//! The heads of a failed request and its response as operators see them.
//!
//! Invariants:
//! - No secret is shown: neither the query of an address, nor the value of a secret delivery
//!   property, nor that of a field whose name is that of a credential.
//! - Each head is bounded ([`SHOWN_HEAD_BYTES_MAX`]).

use awc::http::{Method, header::HeaderMap};

use super::{
    request::{Destination, OutgoingRequest},
    webhook::header_lines,
};

/// 2048 bytes of a head are kept.
const SHOWN_HEAD_BYTES_MAX: usize = 2048;

/// The value of a field that is not shown.
const HIDDEN: &str = "[hidden]";

/// Parts of the names of fields with credentials.
const SECRET_NAMES: [&str; 8] = [
    "auth",
    "cookie",
    "credential",
    "key",
    "password",
    "secret",
    "signature",
    "token",
];

/// The request line and the fields of a request.
pub(super) fn shown_request_head(destination: &Destination, outgoing: &OutgoingRequest) -> String {
    let (method, uri) = outgoing.method_and_uri(destination, Method::POST);
    let query = if uri.query().is_some() {
        "?[hidden]"
    } else {
        ""
    };
    let mut of_codec = HeaderMap::new();
    let lines = header_lines(destination, outgoing, &mut of_codec);
    let fields = lines.lines().filter_map(|line| line.split_once(": "));
    let of_codec = of_codec
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let mut head = format!("{method} {}{query}", uri.path());
    for (name, value) in fields.chain(of_codec) {
        let is_hidden = destination.has_secret(name) || is_secret_name(name);
        put_field(&mut head, name, if is_hidden { HIDDEN } else { value });
    }
    shorten(head)
}

/// The fields of a response, in the order of their names.
pub(super) fn shown_response_head(headers: &HeaderMap) -> String {
    let fields = headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())));
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    let mut head = String::new();
    for (name, value) in &fields {
        put_field(
            &mut head,
            name,
            if is_secret_name(name) { HIDDEN } else { value },
        );
    }
    shorten(head)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn put_field(head: &mut String, name: &str, value: &str) {
    if !head.is_empty() {
        head.push('\n');
    }
    head.push_str(name);
    head.push_str(": ");
    head.push_str(value);
}

fn shorten(mut head: String) -> String {
    if head.len() > SHOWN_HEAD_BYTES_MAX {
        head.truncate(head.floor_char_boundary(SHOWN_HEAD_BYTES_MAX));
        head.push_str(" ...");
    }
    head
}
