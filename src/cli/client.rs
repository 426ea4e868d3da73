//! A running server's control plane, as the operator's commands ask it: where it is, who asks, and what is shown.
//!
//! A command says what it wants as a path and JSON and gets JSON; what a person sees is a table made of it, what a script
//! sees (`--output json`) is the JSON itself. A refusal is told in the server's own words.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use awc::{
    Client, ClientRequest, SendClientRequest,
    error::SendRequestError,
    http::{Method, StatusCode, header},
};
use clap::ValueEnum;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::Url;

use super::{
    context::{ContextFile, ServerContext},
    http, print, suggestion,
};
use crate::escape;

/// Where the server is, as flags.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerAddressArgs {
    /// The server's control plane [default: GRIDHOOK_SERVER, or the context in use, or the address in
    /// GRIDHOOK_SERVER__LISTEN, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = SERVER)]
    server: Option<Url>,
    /// The server of this context (gridhook context list)
    #[arg(long, value_name = "NAME", conflicts_with = "server", help_heading = SERVER)]
    context: Option<String>,
    /// A PEM file with the authority of the server's certificate, beside the machine's own authorities
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    ca_file: Option<PathBuf>,
}

/// Where the server is and who asks, as flags.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    place: ServerAddressArgs,
    /// A file with the operator's token [default: GRIDHOOK_TOKEN, or the context's, or data/admin-token, or the package's]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,
}

/// The heading of these flags in every command's help.
const SERVER: &str = "Server";

/// The server that is asked where nobody names one.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// A server's address.
pub(super) fn server_url(text: &str) -> Result<Url, String> {
    let allowed =
        |example: &str| format!("allowed is an address that begins with http:// or https://, such as {example}");
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        // Without a scheme, `localhost:8080` is read as one of the scheme localhost.
        let with_scheme = format!("http://{text}");
        let example = if Url::parse(&with_scheme).is_ok() { &with_scheme } else { DEFAULT_SERVER };
        return Err(allowed(example));
    };
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(format!("{}, without user, query and fragment", allowed(DEFAULT_SERVER)));
    }
    Ok(url)
}

/// The server that listens at an address. In a container, the server and the commands that check its health have the same
/// environment.
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

/// A server, and how its address was chosen.
struct ChosenServer {
    server: Url,
    context: Option<ServerContext>,
    /// Whether the context was named in this command.
    is_named: bool,
    ca_file: Option<PathBuf>,
}

impl ServerAddressArgs {
    fn chosen(&self) -> Result<ChosenServer, ClientError> {
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
                None => Url::parse(DEFAULT_SERVER).expect("it is an address"),
            },
        };
        let ca_file = ca_file(context.as_ref());
        Ok(ChosenServer { server, context, is_named: false, ca_file })
    }

    /// The server's address, and a client that believes its certificate. Has to be called where a system of actix runs.
    pub(super) fn client(&self) -> Result<(Url, Client), ClientError> {
        let ChosenServer { server, ca_file, .. } = self.chosen()?;
        let client = http::client(ca_file.as_deref())?;
        Ok((server, client))
    }
}

/// An environment variable; an empty one is none.
pub(super) fn variable(name: &str) -> Result<Option<String>, ClientError> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(ClientError::Input(format!("environment variable {name} is not UTF-8; allowed is UTF-8")))
        }
    }
}

/// A token or a key in a file or a variable: one line that a header can carry.
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

/// The secret in a file.
pub(super) fn secret_in(file: &Path) -> Result<String, ClientError> {
    let text = fs::read_to_string(file)
        .map_err(|error| ClientError::Input(format!("{} cannot be read: {error}", file.display())))?;
    secret(&text, &file.display().to_string())
}

/// In which form a command's result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Lines and tables for people
    #[default]
    Table,
    /// JSON for scripts
    Json,
}

/// The flag that says it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArgs {
    /// How the result is printed
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Who is asked, and how the answer is printed.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(super) control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

impl ClientArgs {
    /// The answer as it is printed: as `table` makes of it, or as it is.
    pub(super) fn print(&self, answer: &Value, table: impl FnOnce(&Value) -> String) -> Result<String, ClientError> {
        Ok(match self.printed.output {
            OutputFormat::Table => table(answer),
            OutputFormat::Json => print::json(answer),
        })
    }
}

/// A topic, a domain or a topic of a domain, as a command names it: `orders`, `domains/shop`, `domains/shop/topics/eu`, or
/// the whole resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName(String);

/// The names in it are an operator's.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The README's own scope; another one needs the whole resource id.
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
                    "allowed are a topic's name, domains/NAME, domains/NAME/topics/NAME, the same with namespaces, \
                            or a whole resource id that begins with /subscriptions/"
                        .to_owned(),
                );
            }
        };
        Ok(Self(own))
    }
}

impl ResourceName {
    /// The path of the resource itself, or of what is behind it.
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.0)
    }

    /// The path of one of its event subscriptions, or of what is behind that.
    pub fn subscription(&self, name: &str, rest: &str) -> String {
        format!("{}/eventSubscriptions/{}{rest}", self.0, segment(name))
    }
}

impl ResourceName {
    /// The path that its events are published to.
    pub(super) fn publishing(&self) -> Result<String, ClientError> {
        match self.types_and_names()[..] {
            [("topics", name)] => Ok(format!("/topics/{name}/api/events")),
            [("domains", name)] => Ok(format!("/domains/{name}/api/events")),
            [("namespaces", namespace), ("topics", name)] => {
                Ok(format!("/namespaces/{namespace}/topics/{name}:publish"))
            }
            [("domains", domain), ("topics", _)] => Err(ClientError::Input(format!(
                "events for a topic of a domain are published to the domain, domains/{domain}; each event names its topic"
            ))),
            _ => Err(ClientError::Input(format!(
                "nothing is published to {}; allowed is a topic or a domain",
                short(&self.0)
            ))),
        }
    }

    /// What kind of resource it is.
    pub(super) fn kind(&self) -> ResourceNameKind {
        match self.types_and_names()[..] {
            [("namespaces", _)] => ResourceNameKind::Namespace,
            [("namespaces", _), ("topics", _)] => ResourceNameKind::NamespaceTopic,
            [("domains", _), ("topics", _)] => ResourceNameKind::DomainTopic,
            _ => ResourceNameKind::Topic,
        }
    }

    /// Types in lower case and names, from the provider on.
    fn types_and_names(&self) -> Vec<(&'static str, &str)> {
        const TYPES: [&str; 3] = ["topics", "domains", "namespaces"];
        let segments: Vec<&str> = self.0.split('/').collect();
        let provider = segments.iter().position(|segment| segment.eq_ignore_ascii_case("Microsoft.EventGrid"));
        let behind = provider.and_then(|at| segments.get(at + 1..)).unwrap_or_default();
        let known = |word: &str| TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(word)).unwrap_or_default();
        behind.chunks_exact(2).map(|pair| (known(pair[0]), pair[1])).collect()
    }
}

/// What kind of resource a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceNameKind {
    /// A topic or a domain: it has a log, and event subscriptions.
    Topic,
    /// A topic of a domain: it has event subscriptions, and the domain's log.
    DomainTopic,
    /// A namespace: it has topics only.
    Namespace,
    /// A topic of a namespace: it has a log, and event subscriptions of another form.
    NamespaceTopic,
}

/// How a resource with this id is named in a command: shortly, where that is enough.
pub fn short(id: &str) -> String {
    match id.strip_prefix(SCOPE).map(|rest| rest.trim_start_matches('/')) {
        Some(rest) => rest.strip_prefix("topics/").unwrap_or(rest).to_owned(),
        None => id.to_owned(),
    }
}

/// A name as a segment of a path.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// Why the server did not do, or could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers, or not as a server does.
    #[error("{server}: {error}; {hint}")]
    Send {
        /// Whom we asked.
        server: String,
        /// What happened.
        error: String,
        /// What may help.
        hint: String,
    },
    /// It said no.
    #[error("refused with {status}: {reason}")]
    Refused {
        /// How.
        status: StatusCode,
        /// Why, in its words.
        reason: String,
    },
    /// It answered what we cannot read.
    #[error("the answer is not what this version of gridhook understands")]
    Answer(#[from] serde_json::Error),
    /// What was typed, or stands in a file, cannot be used.
    #[error("{0}")]
    Input(String),
}

/// 64 MiB: more than any answer has; a list is paged.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where servers keep their token: one that was started in this folder, and that of the package.
const TOKEN_FILES: [&str; 3] = ["data/admin-token", "/run/gridhook/admin-token", "/var/lib/gridhook/admin-token"];

/// A server that is asked.
pub struct ServerClient {
    client: Client,
    server: Url,
    token: String,
    /// Where the token came from, in words.
    token_from: String,
}

impl ServerArgs {
    /// Ready to ask. Has to be called where a system of actix runs.
    pub fn session(&self) -> Result<ServerClient, ClientError> {
        let chosen = self.place.chosen()?;
        let (token, token_from) = self.token(&chosen)?;
        let client = http::client(chosen.ca_file.as_deref())?;
        Ok(ServerClient { client, server: chosen.server, token, token_from })
    }

    /// Where the server is.
    pub(super) fn place(&self) -> &ServerAddressArgs {
        &self.place
    }

    /// The token, and where it came from. A context that this command names goes before the environment: a token that is
    /// there for another server must not be sent to this one.
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
        let mut not_read = String::new();
        for path in TOKEN_FILES.map(Path::new) {
            match fs::read_to_string(path) {
                Ok(text) => return Ok((secret(&text, &path.display().to_string())?, path.display().to_string())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => not_read = format!(" ({}: {error})", path.display()),
            }
        }
        Err(ClientError::Input(format!(
            "there is no operator's token{not_read}; name its file with --token-file, set GRIDHOOK_TOKEN, or add a \
             context with gridhook context add. A server keeps its token in admin-token in its data folder"
        )))
    }
}

impl ServerClient {
    /// Reads. The path may have a query.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.fetch(Method::GET, path, None::<&Value>).await
    }

    /// Has something done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Method::POST, path, Some(body)).await
    }

    /// Asks in any way. An answer without a body is `null`; where there is no such topic or event subscription, the refusal
    /// says which names are like it.
    pub async fn fetch<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        match self.ask_only(method, path, body).await {
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason }) => {
                let reason = reason + &suggestion::suggestion(self, path).await;
                Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason })
            }
            answered => answered,
        }
    }

    /// The same without those names.
    pub(super) async fn ask_only<T: DeserializeOwned>(
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

    /// What shows the token, as a header's value.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// A request with the token in it, for those who read the answer as it comes.
    pub fn request(&self, method: Method, path: &str) -> ClientRequest {
        self.request_to(&self.server, method, path)
    }

    /// The same to another address of the same server.
    pub fn request_to(&self, server: &Url, method: Method, path: &str) -> ClientRequest {
        let url = format!("{}{path}", server.as_str().trim_end_matches('/'));
        self.client.request(method, url).insert_header((header::AUTHORIZATION, self.bearer()))
    }

    /// That nobody answers.
    pub(super) fn not_reached(&self, error: &SendRequestError) -> ClientError {
        not_reached(&self.server, error)
    }

    /// The server's address.
    pub(super) fn server(&self) -> &Url {
        &self.server
    }

    /// The client, for requests that show something else than the token.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn answer(&self, sent: SendClientRequest) -> Result<bytes::Bytes, ClientError> {
        let response = sent.await.map_err(|error| self.not_reached(&error))?;
        let mut response = response.timeout(WAIT);
        let status = response.status();
        let body = response.body().limit(ANSWER_BYTES_MAX).await.map_err(|error| {
            let hint = "the answer broke off".to_owned();
            ClientError::Send { server: self.server.to_string(), error: error.to_string(), hint }
        })?;
        if status.is_success() {
            return Ok(body);
        }
        let mut reason = http::reason(&body);
        if status == StatusCode::UNAUTHORIZED {
            reason = format!("{reason} (the token is that of {}; --token-file names another)", self.token_from);
        }
        Err(ClientError::Refused { status, reason })
    }
}

/// Why nobody answers at an address, and what may help.
pub(super) fn not_reached(server: &Url, error: &SendRequestError) -> ClientError {
    let (error, is_http_answer) = (error.to_string(), !matches!(error, SendRequestError::Response(_)));
    let other = |scheme: &str| {
        let rest = server.as_str().split_once("://").map_or("", |(_, rest)| rest).trim_end_matches('/');
        format!("{scheme}://{rest}")
    };
    let hint = match server.scheme() {
        "https" if error.contains("InvalidContentType") => {
            format!("the server answers without TLS: use {}", other("http"))
        }
        "https" if error.contains("UnknownIssuer") => "name the authority's file with --ca-file".to_owned(),
        "http" if !is_http_answer => format!("the answer is not HTTP: does the server speak TLS ({})?", other("https")),
        _ => "is the server running, and is this its address (--server)?".to_owned(),
    };
    ClientError::Send { server: server.to_string(), error, hint }
}

/// A minute: longer than the server takes for anything that is not a job.
const WAIT: Duration = Duration::from_secs(60);

/// Lines of equally many cells, under a headline: columns as wide as their widest cell.
pub struct TextTable {
    lines: Vec<Vec<String>>,
}

impl TextTable {
    /// Without a line yet.
    pub fn new<const N: usize>(headline: [&str; N]) -> Self {
        Self { lines: vec![headline.map(str::to_owned).to_vec()] }
    }

    /// One more line. A cell is one line of text, whoever wrote it.
    pub fn line<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.iter().map(|cell| escape::text(cell).into_owned()).collect());
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.lines.first().map_or(0, Vec::len);
        let wide = |column: usize| {
            self.lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(wide).collect();
        for (at, line) in self.lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let text = cells.collect::<Vec<_>>().join("  ");
            let end = if at + 1 < self.lines.len() { "\n" } else { "" };
            write!(f, "{}{end}", text.trim_end())?;
        }
        Ok(())
    }
}

/// The JSON object in a file, or on standard input; without a file an empty one.
pub(super) fn body_of(file: Option<&Path>) -> Result<Value, ClientError> {
    match file.map(|path| (path, read_input(path))) {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some((_, Ok(value @ Value::Object(_)))) => Ok(value),
        Some((path, Ok(_))) => {
            Err(ClientError::Input(format!("{} has no JSON object; allowed is one", path.display())))
        }
        Some((_, Err(error))) => Err(error),
    }
}

/// The JSON in a file, or on standard input.
pub(super) fn read_input(path: &Path) -> Result<Value, ClientError> {
    let read = match path == Path::new("-") {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(path),
    };
    let text = read.map_err(|error| ClientError::Input(format!("{} cannot be read: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| ClientError::Input(format!("{} is not JSON: {error}", path.display())))
}

/// Sets what stands at `path`, keys below keys, in a body that a person may have written.
pub(super) fn set(body: &mut Value, path: &[&str], value: Value) -> Result<(), ClientError> {
    let mut at = body;
    for key in path {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        let Value::Object(inside) = at else {
            return Err(ClientError::Input(format!(
                "{} cannot be set: what is above it is no JSON object",
                path.join(".")
            )));
        };
        at = inside.entry(*key).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}
