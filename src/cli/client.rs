//! The client of the control plane: the server's address, the operator's token, requests, and resource names.
//!
//! A command sends a path and JSON, and receives JSON. With `--output json` it prints that JSON, otherwise a table made from
//! it. An error shows the server's own message.

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use awc::{
    Client, ClientRequest, SendClientRequest,
    error::SendRequestError,
    http::{Method, StatusCode, header},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::Url;

use super::{
    context::{ContextFile, ServerContext},
    http,
    output::OutputArgs,
    suggestion,
};

/// The flags that name the server.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerAddressArgs {
    /// URL of the server's control plane [default: GRIDHOOK_SERVER, or the context in use, or the address in
    /// GRIDHOOK_SERVER__LISTEN, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = SERVER)]
    server: Option<Url>,
    /// Use the server of this context (gridhook context list)
    #[arg(long, value_name = "NAME", conflicts_with = "server", help_heading = SERVER)]
    context: Option<String>,
    /// PEM file with a certificate authority to trust, besides those of the machine
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    ca_file: Option<PathBuf>,
}

/// The flags that name the server and the operator's token.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    address: ServerAddressArgs,
    /// File with the operator's token [default: GRIDHOOK_TOKEN, or the context's file, or data/admin-token, or the
    /// package's file]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,
}

/// The heading of these flags in the help.
const SERVER: &str = "Server";

/// The server if no flag, variable or context names one.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// Parses the URL of a server.
pub(super) fn server_url(text: &str) -> Result<Url, String> {
    let allowed = |example: &str| format!("allowed is a URL that begins with http:// or https://, such as {example}");
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        // `localhost:8080` parses as a URL with the scheme `localhost`.
        let with_scheme = format!("http://{text}");
        let example = if Url::parse(&with_scheme).is_ok() { &with_scheme } else { DEFAULT_SERVER };
        return Err(allowed(example));
    };
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(format!("{}, without user, query or fragment", allowed(DEFAULT_SERVER)));
    }
    Ok(url)
}

/// The URL for a listen address. In a container, the server and its health check share the environment, and so this
/// setting.
fn listening_at(text: &str) -> Result<Url, ClientError> {
    let parsed = text.parse().ok().map(|mut address: SocketAddr| {
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        format!("http://{address}")
    });
    parsed.and_then(|url| Url::parse(&url).ok()).ok_or_else(|| {
        let allowed = "allowed is an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\"";
        ClientError::Input(format!("environment variable GRIDHOOK_SERVER__LISTEN is \"{text}\"; {allowed}"))
    })
}

/// The chosen server, and the context it came from.
struct ChosenServer {
    server: Url,
    context: Option<ServerContext>,
    /// Whether a flag names the context.
    is_named: bool,
    ca_file: Option<PathBuf>,
}

impl ServerAddressArgs {
    fn choose(&self) -> Result<ChosenServer, ClientError> {
        let ca_file = |context: Option<&ServerContext>| self.ca_file.clone().or_else(|| context?.ca_file.clone());
        if let Some(name) = &self.context {
            let context = ContextFile::load()?.get(name)?.clone();
            let (server, ca_file) = (context.server()?, ca_file(Some(&context)));
            return Ok(ChosenServer { server, context: Some(context), is_named: true, ca_file });
        }
        let given = match (&self.server, variable("GRIDHOOK_SERVER")?) {
            (Some(server), _) => Some(server.clone()),
            (None, Some(text)) => Some(server_url(&text).map_err(|allowed| {
                ClientError::Input(format!("environment variable GRIDHOOK_SERVER is \"{text}\"; {allowed}"))
            })?),
            (None, None) => None,
        };
        let known = if given.is_none() { ContextFile::load()? } else { ContextFile::default() };
        let context = known.current.as_deref().map(|name| known.get(name).cloned()).transpose()?;
        let server = match (given, &context) {
            (Some(server), _) => server,
            (None, Some(context)) => context.server()?,
            (None, None) => match variable("GRIDHOOK_SERVER__LISTEN")? {
                Some(text) => listening_at(&text)?,
                None => Url::parse(DEFAULT_SERVER).expect("the default is a URL"),
            },
        };
        let ca_file = ca_file(context.as_ref());
        Ok(ChosenServer { server, context, is_named: false, ca_file })
    }

    /// The server's URL, and a client that trusts its certificate. Needs a running actix system.
    pub(super) fn client(&self) -> Result<(Url, Client), ClientError> {
        let ChosenServer { server, ca_file, .. } = self.choose()?;
        let client = http::client(ca_file.as_deref())?;
        Ok((server, client))
    }
}

/// An environment variable; empty counts as not set.
pub(super) fn variable(name: &str) -> Result<Option<String>, ClientError> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(ClientError::Input(format!("environment variable {name} is not valid UTF-8; allowed is UTF-8 text")))
        }
    }
}

/// Checks a token or a key from a file or a variable: one line of visible ASCII, so that it fits a header.
pub(super) fn secret(text: &str, from: &str) -> Result<String, ClientError> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let problem = match lines[..] {
        [] => "is empty".to_owned(),
        [secret] if secret.bytes().all(|byte| byte.is_ascii_graphic()) => return Ok(secret.to_owned()),
        [_] => "has a space or a character that is not visible ASCII".to_owned(),
        [..] => format!("has {} lines", lines.len()),
    };
    Err(ClientError::Input(format!("{from} {problem}; allowed is one line of visible ASCII characters")))
}

/// Reads a secret from a file.
pub(super) fn secret_in(file: &Path) -> Result<String, ClientError> {
    let text = fs::read_to_string(file)
        .map_err(|error| ClientError::Input(format!("{} cannot be read: {error}", file.display())))?;
    secret(&text, &file.display().to_string())
}

/// The flags of a command that sends requests: server, token and output format.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(super) control: ServerArgs,
    #[command(flatten)]
    pub(super) printed: OutputArgs,
}

impl ClientArgs {
    /// Formats a response: as `text` formats what is read from it, or as the JSON that the server sent.
    pub(super) fn print<T: DeserializeOwned>(
        &self,
        json: &Value,
        text: impl FnOnce(&T) -> String,
    ) -> Result<String, ClientError> {
        self.printed.response(json, text)
    }
}

/// The name of a topic, a domain or a namespace in a command: `orders`, `domains/shop`, `domains/shop/topics/eu`, or a full
/// resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName(String);

/// Unreserved characters of RFC 3986; all others are percent-encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The default scope; a resource in another scope needs its full resource id.
const SCOPE: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid";

impl std::str::FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let segments: Vec<_> = text.split('/').filter(|segment| !segment.is_empty()).collect();
        let own = match segments[..] {
            [topic] => format!("{SCOPE}/topics/{}", segment(topic)),
            ["topics" | "domains" | "namespaces", name] => format!("{SCOPE}/{}/{}", segments[0], segment(name)),
            [above @ ("domains" | "namespaces"), name, "topics", topic] => {
                format!("{SCOPE}/{above}/{}/topics/{}", segment(name), segment(topic))
            }
            [first, ..] if text.starts_with('/') && first.eq_ignore_ascii_case("subscriptions") => {
                segments.iter().map(|name| format!("/{}", segment(name))).collect()
            }
            _ => {
                return Err(
                    "allowed are NAME (a topic), domains/NAME, domains/NAME/topics/NAME, the same with namespaces/, or a \
                     full resource id that begins with /subscriptions/"
                        .to_owned(),
                );
            }
        };
        Ok(Self(own))
    }
}

impl ResourceName {
    /// The path of the resource, followed by `rest`.
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.0)
    }

    /// The path of one of its event subscriptions, followed by `rest`.
    pub fn subscription(&self, name: &str, rest: &str) -> String {
        format!("{}/eventSubscriptions/{}{rest}", self.0, segment(name))
    }
}

impl ResourceName {
    /// The path to publish its events to.
    pub(super) fn publishing(&self) -> Result<String, ClientError> {
        match self.types_and_names()[..] {
            [("topics", name)] => Ok(format!("/topics/{name}/api/events")),
            [("domains", name)] => Ok(format!("/domains/{name}/api/events")),
            [("namespaces", namespace), ("topics", name)] => {
                Ok(format!("/namespaces/{namespace}/topics/{name}:publish"))
            }
            [("domains", domain), ("topics", _)] => Err(ClientError::Input(format!(
                "cannot publish to a topic of a domain; publish to the domain, domains/{domain}, and name the topic in each event"
            ))),
            _ => Err(ClientError::Input(format!(
                "cannot publish to {}; allowed is a topic, a domain or a topic of a namespace",
                short(&self.0)
            ))),
        }
    }

    /// The kind of the resource.
    pub(super) fn kind(&self) -> ResourceNameKind {
        match self.types_and_names()[..] {
            [("namespaces", _)] => ResourceNameKind::Namespace,
            [("namespaces", _), ("topics", _)] => ResourceNameKind::NamespaceTopic,
            [("domains", _), ("topics", _)] => ResourceNameKind::DomainTopic,
            _ => ResourceNameKind::Topic,
        }
    }

    /// Pairs of type (in lower case) and name, after the provider.
    fn types_and_names(&self) -> Vec<(&'static str, &str)> {
        const TYPES: [&str; 3] = ["topics", "domains", "namespaces"];
        let segments: Vec<&str> = self.0.split('/').collect();
        let provider = segments.iter().position(|segment| segment.eq_ignore_ascii_case("Microsoft.EventGrid"));
        let rest = provider.and_then(|at| segments.get(at + 1..)).unwrap_or_default();
        let known = |word: &str| TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(word)).unwrap_or_default();
        rest.chunks_exact(2).map(|pair| (known(pair[0]), pair[1])).collect()
    }
}

/// The kind of a named resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceNameKind {
    /// A topic or a domain: has a log and event subscriptions.
    Topic,
    /// A topic of a domain: has event subscriptions and shares the domain's log.
    DomainTopic,
    /// A namespace: has topics only.
    Namespace,
    /// A topic of a namespace: has a log, and event subscriptions with a different JSON form.
    NamespaceTopic,
}

/// The name of a resource in a command: short in the default scope, otherwise the full id.
pub fn short(id: &str) -> String {
    match id.strip_prefix(SCOPE).map(|rest| rest.trim_start_matches('/')) {
        Some(rest) => rest.strip_prefix("topics/").unwrap_or(rest).to_owned(),
        None => id.to_owned(),
    }
}

/// A name, percent-encoded as a path segment.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection, or no HTTP response.
    #[error("{server}: {error}; {hint}")]
    Send {
        /// The server's URL.
        server: String,
        /// The error.
        error: String,
        /// What the operator can do.
        hint: String,
    },
    /// The server responded with an error.
    #[error("the server responded {status}: {reason}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The server's message.
        reason: String,
    },
    /// The response cannot be parsed.
    #[error("the response has an unknown form; the server and this command may have different versions")]
    Answer(#[from] serde_json::Error),
    /// A flag, a variable or a file cannot be used.
    #[error("{0}")]
    Input(String),
}

/// 64 MiB, above every response; lists are paged.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The token files of a server started in this folder, and of the package's server.
const TOKEN_FILES: [&str; 3] = ["data/admin-token", "/run/gridhook/admin-token", "/var/lib/gridhook/admin-token"];

/// An authenticated connection to a server.
pub struct ServerClient {
    client: Client,
    server: Url,
    token: String,
    /// The source of the token, for error messages.
    token_from: String,
}

impl ServerArgs {
    /// Creates the client. Needs a running actix system.
    pub fn session(&self) -> Result<ServerClient, ClientError> {
        let chosen = self.address.choose()?;
        let (token, token_from) = self.token(&chosen)?;
        let client = http::client(chosen.ca_file.as_deref())?;
        Ok(ServerClient { client, server: chosen.server, token, token_from })
    }

    /// The flags that name the server.
    pub(super) fn address(&self) -> &ServerAddressArgs {
        &self.address
    }

    /// The token and its source. The token file of a context named by a flag takes precedence over `GRIDHOOK_TOKEN`, which
    /// may belong to another server.
    fn token(&self, chosen: &ChosenServer) -> Result<(String, String), ClientError> {
        let of_file = |path: &Path| Ok((secret_in(path)?, path.display().to_string()));
        let of_context = chosen.context.as_ref().and_then(|context| context.token_file.as_deref());
        match (&self.token_file, of_context, variable("GRIDHOOK_TOKEN")?) {
            (Some(path), ..) => return of_file(path),
            (None, Some(path), _) if chosen.is_named => return of_file(path),
            (None, _, Some(token)) => {
                let from = "environment variable GRIDHOOK_TOKEN";
                return Ok((secret(&token, from)?, from.to_owned()));
            }
            (None, Some(path), None) => return of_file(path),
            (None, None, None) => {}
        }
        let mut unreadable = String::new();
        for path in TOKEN_FILES.map(Path::new) {
            match fs::read_to_string(path) {
                Ok(text) => return Ok((secret(&text, &path.display().to_string())?, path.display().to_string())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable = format!(" ({}: {error})", path.display()),
            }
        }
        Err(ClientError::Input(format!(
            "no operator's token found{unreadable}; use --token-file, set GRIDHOOK_TOKEN, or add a context with gridhook \
             context add. A server stores its token in the file admin-token in its data folder"
        )))
    }
}

impl ServerClient {
    /// Sends a GET. The path may contain a query.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.fetch(Method::GET, path, None::<&Value>).await
    }

    /// Sends a POST.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Method::POST, path, Some(body)).await
    }

    /// Sends a request. An empty response is `null`. If the resource does not exist, the error suggests similar names.
    pub async fn fetch<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        match self.fetch_plain(method, path, body).await {
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason }) => {
                let reason = reason + &suggestion::suggestion(self, path).await;
                Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason })
            }
            result => result,
        }
    }

    /// Sends a request, without suggestions in the error.
    pub(super) async fn fetch_plain<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let request = self.request(method, path);
        let sent = match body {
            Some(body) => request.send_json(body),
            None => request.send(),
        };
        let body = self.answer(sent).await?;
        Ok(serde_json::from_slice(if body.is_empty() { b"null" } else { &body })?)
    }

    /// The `Authorization` header.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// A request with the token, for streamed responses.
    pub fn request(&self, method: Method, path: &str) -> ClientRequest {
        self.request_to(&self.server, method, path)
    }

    /// A request with the token to another address of the same server.
    pub fn request_to(&self, server: &Url, method: Method, path: &str) -> ClientRequest {
        let url = format!("{}{path}", server.as_str().trim_end_matches('/'));
        self.client.request(method, url).insert_header((header::AUTHORIZATION, self.bearer()))
    }

    /// The error of a failed connection.
    pub(super) fn not_reached(&self, error: &SendRequestError) -> ClientError {
        not_reached(&self.server, error)
    }

    /// The server's URL.
    pub(super) fn server(&self) -> &Url {
        &self.server
    }

    /// The HTTP client, for requests with another credential than the token.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn answer(&self, sent: SendClientRequest) -> Result<bytes::Bytes, ClientError> {
        let response = sent.await.map_err(|error| self.not_reached(&error))?;
        let mut response = response.timeout(WAIT);
        let status = response.status();
        let body = response.body().limit(ANSWER_BYTES_MAX).await.map_err(|error| {
            let hint = "the response ended early".to_owned();
            ClientError::Send { server: self.server.to_string(), error: error.to_string(), hint }
        })?;
        if status.is_success() {
            return Ok(body);
        }
        let mut reason = http::reason(&body);
        if status == StatusCode::UNAUTHORIZED {
            reason = format!("{reason} (the token is from {}; use --token-file for another)", self.token_from);
        }
        Err(ClientError::Refused { status, reason })
    }
}

/// The error of a failed connection, with a hint.
pub(super) fn not_reached(server: &Url, error: &SendRequestError) -> ClientError {
    let (error, is_http_answer) = (error.to_string(), !matches!(error, SendRequestError::Response(_)));
    let other = |scheme: &str| {
        let rest = server.as_str().split_once("://").map_or("", |(_, rest)| rest).trim_end_matches('/');
        format!("{scheme}://{rest}")
    };
    let hint = match server.scheme() {
        "https" if error.contains("InvalidContentType") => {
            format!("the server does not use TLS: use {}", other("http"))
        }
        "https" if error.contains("UnknownIssuer") => {
            "name the file of the certificate authority with --ca-file".to_owned()
        }
        "http" if !is_http_answer => format!("the response is not HTTP: does the server use TLS ({})?", other("https")),
        _ => "check that the server runs and that this is its address (--server)".to_owned(),
    };
    ClientError::Send { server: server.to_string(), error, hint }
}

/// One minute, longer than every request that is not a job.
const WAIT: Duration = Duration::from_secs(60);

/// Reads a JSON object from a file or standard input; without a file it is empty.
pub(super) fn body_of(file: Option<&Path>) -> Result<Value, ClientError> {
    match file.map(|path| (path, read_input(path))) {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some((_, Ok(value @ Value::Object(_)))) => Ok(value),
        Some((path, Ok(_))) => {
            Err(ClientError::Input(format!("{} is not a JSON object; allowed is one JSON object", path.display())))
        }
        Some((_, Err(error))) => Err(error),
    }
}

/// Reads JSON from a file, or from standard input for `-`.
pub(super) fn read_input(path: &Path) -> Result<Value, ClientError> {
    let read = match path == Path::new("-") {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(path),
    };
    let text = read.map_err(|error| ClientError::Input(format!("{} cannot be read: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| ClientError::Input(format!("{} is not JSON: {error}", path.display())))
}

/// Sets the value at `path` in a JSON body, and creates the objects above it.
pub(super) fn set(body: &mut Value, path: &[&str], value: Value) -> Result<(), ClientError> {
    let mut at = body;
    for key in path {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        let Value::Object(inside) = at else {
            return Err(ClientError::Input(format!(
                "{} cannot be set: a value above it is not a JSON object",
                path.join(".")
            )));
        };
        at = inside.entry(*key).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}
