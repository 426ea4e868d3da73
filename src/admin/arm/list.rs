//! Pages of lists: `$filter`, `$top` and `nextLink`.
//!
//! Lists are ordered by key, and a page starts after the last key of the previous one, so that
//! concurrent changes hide no other resource.

use actix_web::HttpResponse;
use serde_json::Value;
use url::form_urlencoded;

use super::Call;
use crate::{AdminResult, model::odata::NameFilter, query};
use gridhook_api::resource::Page;

/// Maximum and default number of items of a page, as in Azure.
const TOP_MAX: usize = 100;

/// Query parameter of the start of a page, as in Azure.
const SKIP_TOKEN: &str = "$skipToken";

/// The requested page of a list.
#[derive(Debug)]
pub(super) struct PageRequest {
    names: Option<NameFilter>,
    top: usize,
    after: Option<String>,
    /// URL of the list, and the other parameters of the query.
    url: String,
    query: Vec<(String, String)>,
}

impl PageRequest {
    /// Reads the page of a request.
    pub(super) fn from_call(call: Call<'_>) -> AdminResult<Self> {
        let (page, filter) = Self::from_unfiltered_call(call)?;
        let names = if filter.trim().is_empty() {
            None
        } else {
            Some(NameFilter::read(&filter)?)
        };
        Ok(Self { names, ..page })
    }

    /// Reads the page of a request, and its `$filter`, which is not of names.
    pub(super) fn from_unfiltered_call(call: Call<'_>) -> AdminResult<(Self, String)> {
        let request = call.request()?;
        let mut filter = String::new();
        let url = format!("{}{}", call.control.operators_url(request), request.path());
        let mut page = Self {
            names: None,
            top: TOP_MAX,
            after: None,
            url,
            query: Vec::new(),
        };
        for (key, value) in form_urlencoded::parse(request.query_string().as_bytes()) {
            let key = key.into_owned();
            let value = value.into_owned();
            match key.to_ascii_lowercase().as_str() {
                "$filter" => filter.clone_from(&value),
                "$top" => {
                    page.top = query::parse_number(
                        "$top",
                        Some(&value),
                        TOP_MAX,
                        1..=TOP_MAX,
                        "resources",
                    )?
                }
                "$skiptoken" => {
                    page.after = Some(value);
                    continue;
                }
                _ => {}
            }
            page.query.push((key, value));
        }
        Ok((page, filter))
    }

    /// The requested page of `resources`, which have their keys.
    pub(super) fn into_response<R>(
        self,
        mut resources: Vec<(String, R)>,
        name: impl Fn(&R) -> &str,
        view: impl Fn(&R) -> Value,
    ) -> HttpResponse {
        resources.retain(|(key, resource)| {
            self.after.as_ref().is_none_or(|after| key > after)
                && self
                    .names
                    .as_ref()
                    .is_none_or(|names| names.matches_name(name(resource)))
        });
        resources.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let is_last = resources.len() <= self.top;
        resources.truncate(self.top);
        let next_link = match resources.last() {
            Some((last, _)) if !is_last => Some(self.next_link(last)),
            Some(_) | None => None,
        };
        let value = resources
            .iter()
            .map(|(_, resource)| view(resource))
            .collect();
        HttpResponse::Ok().json(Page { value, next_link })
    }

    fn next_link(&self, after: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .extend_pairs(&self.query)
            .append_pair(SKIP_TOKEN, after);
        format!("{}?{}", self.url, query.finish())
    }
}
