//! Query strings of gridhook's own routes.

use std::ops::RangeInclusive;

use actix_web::web;
use serde::de::DeserializeOwned;

use super::model::InvalidRequest;

/// Reads a query string; `allowed` names its parameters.
pub(super) fn read<T: DeserializeOwned>(query: &str, allowed: &str) -> Result<T, InvalidRequest> {
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
) -> Result<usize, InvalidRequest> {
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
pub(super) fn parse_flag(name: &str, given: &str) -> Result<bool, InvalidRequest> {
    match given.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(InvalidRequest::unexpected(name, given, "true or false")),
    }
}
