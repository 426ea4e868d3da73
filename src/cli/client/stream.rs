//! Responses that are read while they arrive: the pages of a list, and lines of JSON.

use std::time::Duration;

use awc::{SendClientRequest, error::PayloadError};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde_json::Value;
use url::form_urlencoded;

use super::{ClientError, ClientResult, ServerClient};
use crate::http;

/// A list of the server whose pages have a token for the next one, and what to read of it.
pub(crate) struct PagedList<'a> {
    /// The path without a query.
    pub(crate) path: String,
    /// Query parameters, of which those without a value are not sent.
    pub(crate) query: &'a [(&'a str, Option<&'a str>)],
    /// The key of the items in a page.
    pub(crate) key: &'a str,
    /// Maximum number of items of a page.
    pub(crate) page_max: usize,
    /// Number of items to read.
    pub(crate) limit: usize,
}

/// The items that were read, and the last page.
pub(crate) struct ListedItems {
    pub(crate) items: Vec<Value>,
    pub(crate) last_page: Value,
}

impl ServerClient {
    /// Reads pages until the limit of items is reached, or the list ends.
    pub(crate) async fn read_pages(&self, list: PagedList<'_>) -> ClientResult<ListedItems> {
        let mut items = Vec::new();
        let mut next = None::<String>;
        loop {
            let page_size = (list.limit - items.len()).min(list.page_max).to_string();
            let top = ("top", Some(page_size.as_str()));
            let query = [&[top], list.query].concat();
            let mut last_page = self.get_page(&list.path, &query, &mut next).await?;
            if let Some(page) = last_page[list.key].as_array_mut() {
                items.append(page);
            }
            if next.is_none() || items.len() >= list.limit {
                return Ok(ListedItems { items, last_page });
            }
        }
    }

    /// Reads all pages of a list.
    pub(crate) async fn get_pages(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> ClientResult<Vec<Value>> {
        let mut next = None;
        let mut pages = vec![self.get_page(path, query, &mut next).await?];
        while next.is_some() {
            pages.push(self.get_page(path, query, &mut next).await?);
        }
        Ok(pages)
    }

    /// Reads the page that the token `next` names, and sets it to the token of the next page.
    async fn get_page(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
        next: &mut Option<String>,
    ) -> ClientResult<Value> {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in query.iter().chain([&("continue", next.as_deref())]) {
            text.extend_pairs(value.map(|value| (name, value)));
        }
        let page: Value = self.get(&format!("{path}?{}", text.finish())).await?;
        *next = page["continue"].as_str().map(str::to_owned);
        Ok(page)
    }

    /// Sends a request whose response is lines that arrive within `timeout` in all.
    pub(crate) async fn open_lines(
        &self,
        request: SendClientRequest,
        timeout: Duration,
    ) -> ClientResult<LineStream<impl Stream<Item = Result<Bytes, PayloadError>> + Unpin>> {
        let response = request
            .await
            .map_err(|error| self.connection_error(&error))?;
        let mut response = response.timeout(timeout);
        let status = response.status();
        if status.is_success() {
            let buffer = Vec::new();
            return Ok(LineStream { response, buffer });
        }
        let body = response.body().await.map_err(disconnection_error)?;
        let reason = http::error_reason(&body);
        Err(ClientError::Refused { status, reason })
    }
}

/// The lines of a response.
pub(crate) struct LineStream<S> {
    response: S,
    buffer: Vec<u8>,
}

impl<S: Stream<Item = Result<Bytes, PayloadError>> + Unpin> LineStream<S> {
    /// Reads the next line with its end; an error at the end of the response.
    pub(crate) async fn next_line(&mut self) -> ClientResult<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok(self.buffer.drain(..=end).collect());
            }
            let chunk = self.response.next().await;
            let end_error = || ClientError::Disconnected("the response is complete".to_owned());
            let chunk = chunk.ok_or_else(end_error)?.map_err(disconnection_error)?;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

fn disconnection_error(error: PayloadError) -> ClientError {
    ClientError::Disconnected(http::payload_problem(&error))
}
