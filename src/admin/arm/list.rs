//! Lists, a page at a time: `$filter`, `$top` and, behind a page that is not the last, `nextLink`.
//!
//! The order is that of the keys, and a page begins behind the last key of the one before: what comes and goes meanwhile
//! moves nothing else out of sight.

use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

use crate::admin::{
    AdminError, Control,
    model::{InvalidRequest, odata::NameFilter},
};

/// The most that a page has, and what it has where nobody asks: Azure's own bound.
const TOP_MAX: usize = 100;

/// Where the next page begins. Azure's word for it.
const SKIP_TOKEN: &str = "$skipToken";

/// A page, as it is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageView {
    value: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_link: Option<String>,
}

/// Which page of a list is asked for.
#[derive(Debug)]
pub(super) struct PageRequest {
    names: Option<NameFilter>,
    top: usize,
    after: Option<String>,
    /// The address of the list, and what else was asked in its query.
    at: String,
    query: Vec<(String, String)>,
}

impl PageRequest {
    /// As the request asks.
    pub(super) fn of(request: &HttpRequest, control: &Control) -> Result<Self, AdminError> {
        let at = format!("{}{}", control.public_url.trim_end_matches('/'), request.path());
        let mut page = Self { names: None, top: TOP_MAX, after: None, at, query: Vec::new() };
        for (key, value) in form_urlencoded::parse(request.query_string().as_bytes()) {
            let (key, value) = (key.into_owned(), value.into_owned());
            match key.to_ascii_lowercase().as_str() {
                "$filter" if !value.trim().is_empty() => page.names = Some(NameFilter::read(&value)?),
                "$top" => page.top = top(&value)?,
                "$skiptoken" => {
                    page.after = Some(value);
                    continue;
                }
                _ => {}
            }
            page.query.push((key, value));
        }
        Ok(page)
    }

    /// Of `resources` with their keys, those that are asked for.
    pub(super) fn answer<R>(
        self,
        mut resources: Vec<(String, R)>,
        name: impl Fn(&R) -> &str,
        view: impl Fn(&R) -> Value,
    ) -> HttpResponse {
        resources.retain(|(key, resource)| {
            self.after.as_ref().is_none_or(|after| key > after)
                && self.names.as_ref().is_none_or(|names| names.has(name(resource)))
        });
        resources.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let is_last = resources.len() <= self.top;
        resources.truncate(self.top);
        let next_link = match resources.last() {
            Some((last, _)) if !is_last => Some(self.link(last)),
            Some(_) | None => None,
        };
        let value = resources.iter().map(|(_, resource)| view(resource)).collect();
        HttpResponse::Ok().json(PageView { value, next_link })
    }

    fn link(&self, after: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.query).append_pair(SKIP_TOKEN, after);
        format!("{}?{}", self.at, query.finish())
    }
}

fn top(given: &str) -> Result<usize, InvalidRequest> {
    given
        .parse()
        .ok()
        .filter(|top| (1..=TOP_MAX).contains(top))
        .ok_or_else(|| InvalidRequest::new("$top", format!("is \"{given}\"; allowed is 1 to {TOP_MAX}")))
}
