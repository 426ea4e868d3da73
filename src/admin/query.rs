//! Query strings of gridhook's own routes.

use std::{ops::RangeInclusive, str::FromStr};

use actix_web::web;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::model::{CheckResult, InvalidRequest};
use gridhook_api::trace::TOP_MAX;

/// Reads a query string; `allowed` names its parameters.
pub(super) fn read<T: DeserializeOwned>(query: &str, allowed: &str) -> CheckResult<T> {
    web::Query::<T>::from_query(query)
        .map(web::Query::into_inner)
        .map_err(|error| {
            InvalidRequest::new(
                "the query",
                format!("cannot be read: {error}; expected {allowed}"),
            )
        })
}

/// The number of `items` in the parameter `name`; `default` if it is not given.
pub(super) fn parse_number(
    name: &str,
    given: Option<&str>,
    default: usize,
    allowed: RangeInclusive<usize>,
    items: &str,
) -> CheckResult<usize> {
    let Some(given) = given else {
        return Ok(default);
    };
    given
        .parse()
        .ok()
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| {
            let expected = format!("{} to {} {items}", allowed.start(), allowed.end());
            InvalidRequest::unexpected(name, given, expected)
        })
}

/// The flag in the parameter `name`, in any case.
pub(super) fn parse_flag(name: &str, given: &str) -> CheckResult<bool> {
    match given.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(InvalidRequest::unexpected(name, given, "true or false")),
    }
}

/// Page size and start of a page of a trace or a ledger.
pub(super) struct Paging<M> {
    pub(super) from: Option<M>,
    pub(super) top: usize,
    /// The other parameters of the query.
    pub(super) rest: String,
}

impl<M: FromStr> Paging<M> {
    pub(super) fn read(query: &str, default: usize) -> CheckResult<Self> {
        let mut from = None;
        let mut top = None;
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "continue" => from = Some(value.parse().map_err(|_| invalid_continuation())?),
                "top" => top = Some(value),
                _ => drop(rest.append_pair(&key, &value)),
            }
        }
        Ok(Self {
            from,
            top: parse_number("top", top.as_deref(), default, 1..=TOP_MAX, "items")?,
            rest: rest.finish(),
        })
    }
}

pub(super) fn invalid_continuation() -> InvalidRequest {
    let problem = "is invalid; expected `continue` of the previous response";
    InvalidRequest::new("continue", problem)
}
