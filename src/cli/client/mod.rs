//! The client of the control plane.
//!
//! A command sends a path and JSON, and receives JSON. With `--output json` it prints that JSON,
//! otherwise text made from it. An error shows the server's own message.

mod address;
mod body;
mod resource_name;
mod stream;
mod token;

use std::{cell::RefCell, collections::BTreeSet, io, path::PathBuf, time::Duration};

use awc::{
    Client, ClientRequest, SendClientRequest,
    error::SendRequestError,
    http::{Method, StatusCode, header},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::Url;

use self::{address::SERVER, token::OperatorToken};
pub use self::{
    address::ServerAddressArgs,
    resource_name::{ResourceName, encode_segment, short_name},
};
pub(super) use self::{
    address::{DEFAULT_SERVER, read_variable, server_url, warn_of_cleartext},
    body::{read_body, read_input, set_value},
    resource_name::ResourceNameKind,
    stream::{ListedItems, PagedList},
    token::{check_secret, read_secret},
};
use super::{
    http,
    output::{CommandError, OutputArgs},
    print::PrintError,
    suggestion,
};

/// The flags that name the server and the operator's token.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    address: ServerAddressArgs,
    /// File with the operator's token; without it, the token itself from the environment variable
    /// GRIDHOOK_TOKEN, or the file of the context, or for a server of this machine data/admin-token
    /// or the package's file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,
}

/// The flags of a command that sends requests: server, token and output format.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl ClientArgs {
    /// Formats a response: as `text` formats what is read from it, or as the JSON that the server
    /// sent.
    pub(crate) fn format_response<T: DeserializeOwned>(
        &self,
        json: &Value,
        text: impl FnOnce(&T) -> String,
    ) -> ClientResult {
        self.output.format_response(json, text)
    }

    /// Gets JSON from a path and formats it.
    pub(crate) async fn get_and_format<T: DeserializeOwned>(
        &self,
        path: &str,
        text: impl FnOnce(&T) -> String,
    ) -> ClientResult {
        let json: Value = self.server.build_client()?.get(path).await?;
        self.format_response(&json, text)
    }

    /// Posts a body and formats the response.
    pub(crate) async fn post_and_format<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        text: impl FnOnce(&T) -> String,
    ) -> ClientResult {
        let json: Value = self.server.build_client()?.send_post(path, body).await?;
        self.format_response(&json, text)
    }
}

/// An event subscription and its server.
#[derive(Debug, clap::Args)]
pub struct SubscriptionArgs {
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
    /// resource id
    pub(crate) topic: ResourceName,
    /// Name of the event subscription
    pub(crate) subscription: String,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

impl SubscriptionArgs {
    /// The path of the event subscription, with `rest` behind it.
    pub(crate) fn path(&self, rest: &str) -> String {
        self.topic.subscription_path(&self.subscription, rest)
    }

    /// The arguments that name the event subscription in a command.
    pub(crate) fn command_arguments(&self) -> String {
        format!("{} {}", short_name(&self.topic.path("")), self.subscription)
    }

    /// The name of the event subscription in messages.
    pub(crate) fn name(&self) -> String {
        format!(
            "{} of {}",
            self.subscription,
            short_name(&self.topic.path(""))
        )
    }
}

/// The result of a request, or of a command that sends some: its text.
pub type ClientResult<T = String> = Result<T, ClientError>;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server could not be reached, or did not respond in HTTP.
    #[error("{server}: {error}; {hint}")]
    Send {
        server: String,
        error: String,
        /// What the operator can do about it.
        hint: String,
    },
    /// The server responded with an error.
    #[error("the server responded {status}: {reason}")]
    Refused { status: StatusCode, reason: String },
    /// The body of the response cannot be received.
    #[error("{server}: {reason}")]
    Body { server: Url, reason: String },
    /// The response cannot be parsed.
    #[error(
        "the response has an unknown form ({0}); the server and this command may have different \
         versions"
    )]
    Response(#[from] serde_json::Error),
    /// A flag, a variable or a file cannot be used.
    #[error("{0}")]
    Input(String),
    /// The action was not carried out.
    #[error("{0}")]
    Failed(String),
    /// The server reported an error in a stream.
    #[error("the server reports: {0}")]
    Reported(String),
    /// The connection ended before the response did.
    #[error("the connection to the server ended: {0}")]
    Disconnected(String),
    /// Standard output cannot be written.
    #[error(transparent)]
    Print(#[from] PrintError),
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

impl ClientError {
    /// Whether the server responded with this status.
    pub(crate) fn has_status(&self, expected: StatusCode) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == expected)
    }
}

impl CommandError for ClientError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Input(_))
    }
}

/// The precondition of a change.
#[derive(Clone, Debug)]
pub(crate) enum Precondition {
    None,
    /// The resource does not exist.
    Missing,
    /// The resource has this ETag.
    Tag(String),
}

/// Time limit of a response: one minute, longer than every request that is not a job.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// 64 MiB, above every response; lists are paged.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A server, with a client and a token for it.
pub struct ServerClient {
    client: Client,
    url: Url,
    token: OperatorToken,
    /// The warnings that were printed.
    warnings: RefCell<BTreeSet<String>>,
}

impl ServerArgs {
    /// Creates the client. Needs a running actix system.
    pub fn build_client(&self) -> ClientResult<ServerClient> {
        let address = self.address.choose_server()?;
        let token = self.operator_token(&address)?;
        warn_of_cleartext(&address.server, "the token");
        let client = http::build_client(address.ca_file.as_deref())?;
        Ok(ServerClient {
            client,
            url: address.server,
            token,
            warnings: RefCell::default(),
        })
    }

    /// The flags that name the server.
    pub(crate) fn address_args(&self) -> &ServerAddressArgs {
        &self.address
    }
}

impl ServerClient {
    /// Sends a GET. The path may contain a query.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> ClientResult<T> {
        self.send_request(Method::GET, path, None::<&Value>).await
    }

    pub async fn send_post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> ClientResult<T> {
        self.send_request(Method::POST, path, Some(body)).await
    }

    /// Sends a GET of a resource, and returns its ETag.
    pub(crate) async fn get_tagged(&self, path: &str) -> ClientResult<(Value, Precondition)> {
        let result = self
            .exchange_json(Method::GET, path, &Precondition::None, None::<&Value>)
            .await;
        self.with_suggestion(path, result).await
    }

    /// Sends a GET, without suggestions in the error.
    pub(crate) async fn get_plain<T: DeserializeOwned>(&self, path: &str) -> ClientResult<T> {
        self.fetch_plain(Method::GET, path).await
    }

    /// Sends a request for something that may not exist; [`None`] then.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> ClientResult<Option<T>> {
        match self.fetch_plain(method, path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.has_status(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a resource that has not changed.
    pub(crate) async fn delete(&self, path: &str, condition: &Precondition) -> ClientResult<Value> {
        self.send_change(Method::DELETE, path, condition, None::<&Value>)
            .await
    }

    /// Sends a request. An empty response is `null`. If the resource does not exist, the error
    /// suggests similar names.
    pub async fn send_request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> ClientResult<T> {
        self.send_change(method, path, &Precondition::None, body)
            .await
    }

    /// Sends a request with a precondition.
    pub(crate) async fn send_change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        condition: &Precondition,
        body: Option<&impl Serialize>,
    ) -> ClientResult<T> {
        let result = self.exchange_json(method, path, condition, body).await;
        let (json, _) = self.with_suggestion(path, result).await?;
        Ok(json)
    }

    /// Adds similar names to the error for a resource that does not exist.
    pub(crate) async fn with_suggestion<T>(
        &self,
        path: &str,
        result: ClientResult<T>,
    ) -> ClientResult<T> {
        match result {
            Err(ClientError::Refused { status, reason }) if status == StatusCode::NOT_FOUND => {
                let reason = reason + &suggestion::suggest_for(self, path).await;
                Err(ClientError::Refused { status, reason })
            }
            result => result,
        }
    }

    /// Sends a request without a body, without suggestions in the error.
    pub(crate) async fn fetch_plain<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> ClientResult<T> {
        let (json, _) = self
            .exchange_json(method, path, &Precondition::None, None::<&Value>)
            .await?;
        Ok(json)
    }

    /// Sends a request, and returns the response with the precondition of a later change: its ETag.
    pub(crate) async fn exchange_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        condition: &Precondition,
        body: Option<&impl Serialize>,
    ) -> ClientResult<(T, Precondition)> {
        let request = match condition {
            Precondition::None => self.build_request(method, path),
            Precondition::Missing => self
                .build_request(method, path)
                .insert_header((header::IF_NONE_MATCH, "*")),
            Precondition::Tag(tag) => self
                .build_request(method, path)
                .insert_header((header::IF_MATCH, tag.as_str())),
        };
        let response = match body {
            Some(body) => request.send_json(body),
            None => request.send(),
        };
        let (body, tag) = self.read_response(response).await?;
        let json: &[u8] = if body.is_empty() { b"null" } else { &body };
        let tag = tag.map_or(Precondition::None, Precondition::Tag);
        Ok((serde_json::from_slice(json)?, tag))
    }

    /// The value of the `Authorization` header.
    pub(crate) fn bearer_header(&self) -> String {
        format!("Bearer {}", self.token.secret)
    }

    /// A request with the token, for streamed responses.
    pub fn build_request(&self, method: Method, path: &str) -> ClientRequest {
        self.request_to(&self.url, method, path)
    }

    /// Checks that the token may be sent to another address of the same server.
    pub(crate) fn check_recipient(&self, server: &Url) -> ClientResult<()> {
        self.token.check_recipient(server)?;
        warn_of_cleartext(server, "the token");
        Ok(())
    }

    /// A request with the token to another address of the same server.
    pub fn request_to(&self, server: &Url, method: Method, path: &str) -> ClientRequest {
        self.client
            .request(method, http::join_path(server, path))
            .insert_header((header::AUTHORIZATION, self.bearer_header()))
    }

    /// The error of a failed connection.
    pub(crate) fn connection_error(&self, error: &SendRequestError) -> ClientError {
        connection_error(&self.url, error)
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The HTTP client, for requests with another credential than the token.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Prints the text of a `Warning` header, once in a command.
    fn print_warning(&self, header: &str) {
        let text = header
            .split_once('"')
            .map_or(header, |(_, text)| text.trim_end_matches('"'));
        if self.warnings.borrow_mut().insert(text.to_owned()) {
            crate::print::print_note(&format!("gridhook: warning: {text}"));
        }
    }

    async fn read_response(
        &self,
        request: SendClientRequest,
    ) -> ClientResult<(bytes::Bytes, Option<String>)> {
        let response = request
            .await
            .map_err(|error| self.connection_error(&error))?;
        let mut response = response.timeout(RESPONSE_TIMEOUT);
        let status = response.status();
        for warning in response.headers().get_all(header::WARNING) {
            self.print_warning(&String::from_utf8_lossy(warning.as_bytes()));
        }
        let tag = response
            .headers()
            .get(header::ETAG)
            .and_then(|tag| Some(tag.to_str().ok()?.to_owned()));
        let body = response
            .body()
            .limit(RESPONSE_BYTES_MAX)
            .await
            .map_err(|error| ClientError::Body {
                server: self.url.clone(),
                reason: http::payload_problem(&error),
            })?;
        if status.is_success() {
            return Ok((body, tag));
        }
        let mut reason = http::error_reason(&body);
        if status == StatusCode::UNAUTHORIZED {
            reason = format!(
                "{reason} (the token is from {}; use --token-file for another)",
                self.token.from
            );
        }
        Err(ClientError::Refused { status, reason })
    }
}

/// The error of a failed connection, with a hint.
pub(crate) fn connection_error(server: &Url, error: &SendRequestError) -> ClientError {
    let is_http = !matches!(error, SendRequestError::Response(_));
    let error = error.to_string();
    let rest = server
        .as_str()
        .split_once("://")
        .map_or("", |(_, rest)| rest);
    let rest = rest.trim_end_matches('/');
    let other = |scheme: &str| format!("{scheme}://{rest}");
    let hint = match server.scheme() {
        "https" if error.contains("InvalidContentType") => {
            format!("the server does not use TLS: use {}", other("http"))
        }
        "https" if error.contains("UnknownIssuer") => {
            "name the file of the certificate authority with --ca-file".to_owned()
        }
        "http" if !is_http => format!(
            "the response is not HTTP: does the server use TLS ({})?",
            other("https")
        ),
        _ => "check that the server runs and that this is its address (--server)".to_owned(),
    };
    ClientError::Send {
        server: server.to_string(),
        error,
        hint,
    }
}
