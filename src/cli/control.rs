//! A running server's control plane, as the operator's commands ask it: where it is, who asks, and what is shown.
//!
//! A command says what it wants as a path and JSON and gets JSON; what a person sees is a table made of it, what a script
//! sees (`--output json`) is the JSON itself. A refusal is told in the server's own words.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use awc::{
    Client, ClientRequest, SendClientRequest,
    http::{Method, StatusCode, header},
};
use clap::ValueEnum;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::Url;

use super::{nearest, web};

/// Where the server is and who asks, as flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct Control {
    /// The server's control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    server: Url,
    /// A file with the admin token; without it GRIDHOOK_ADMIN_TOKEN counts, then data/admin-token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// In which form a command's result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For scripts.
    Json,
}

/// The flag that says it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Printed {
    /// How the result is printed
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Output,
}

/// Who is asked, and how the answer is printed.
#[derive(Clone, Debug, clap::Args)]
pub struct Asked {
    #[command(flatten)]
    pub(super) control: Control,
    #[command(flatten)]
    printed: Printed,
}

impl Asked {
    /// The answer as it is printed: as `table` makes of it, or as it is.
    pub(super) fn print(&self, answer: &Value, table: impl FnOnce(&Value) -> String) -> Result<String, Error> {
        Ok(match self.printed.output {
            Output::Table => table(answer),
            Output::Json => serde_json::to_string_pretty(answer)?,
        })
    }
}

/// A topic, a domain or a topic of a domain, as a command names it: `orders`, `domains/shop`, `domains/shop/topics/eu`, or
/// the whole resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource(String);

/// The names in it are an operator's.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The README's own scope; another one needs the whole resource id.
const SCOPE: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid";

impl std::str::FromStr for Resource {
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

impl Resource {
    /// The path of the resource itself, or of what is behind it.
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.0)
    }

    /// The path of one of its event subscriptions, or of what is behind that.
    pub fn subscription(&self, name: &str, rest: &str) -> String {
        format!("{}/eventSubscriptions/{}{rest}", self.0, segment(name))
    }
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
pub enum Error {
    /// There is no token to ask with.
    #[error(
        "there is no admin token: {error} ({}); name its file with --token-file, or set GRIDHOOK_ADMIN_TOKEN",
        path.display()
    )]
    Token {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it is not there.
        error: io::Error,
    },
    /// Nobody answers, or not as a server does.
    #[error("{server}: {error}; is the server running, and is this its address (--server)?")]
    Send {
        /// Whom we asked.
        server: Url,
        /// What happened.
        error: String,
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
    #[error("the answer is not what this version of gridhook understands: {0}")]
    Answer(#[from] serde_json::Error),
    /// What was typed, or stands in a file, cannot be used.
    #[error("{0}")]
    Input(String),
}

/// 64 MiB: more than any answer has; a list is paged.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where a server that was started in this folder has it.
const TOKEN_FILE: &str = "data/admin-token";

/// A server that is asked.
pub struct Session {
    client: Client,
    server: Url,
    token: String,
    /// Where the token came from, in words.
    token_from: String,
}

impl Control {
    /// Ready to ask. Has to be called where a system of actix runs.
    pub fn session(&self) -> Result<Session, Error> {
        let (token, token_from) = self.token()?;
        Ok(Session { client: web::client(), server: self.server.clone(), token, token_from })
    }

    fn token(&self) -> Result<(String, String), Error> {
        let read = |path: &Path| match fs::read_to_string(path) {
            Ok(token) => Ok((token.trim().to_owned(), path.display().to_string())),
            Err(error) => Err(Error::Token { path: path.to_owned(), error }),
        };
        match (&self.token_file, std::env::var("GRIDHOOK_ADMIN_TOKEN")) {
            (Some(path), _) => read(path),
            (None, Ok(token)) => Ok((token, "GRIDHOOK_ADMIN_TOKEN".to_owned())),
            (None, Err(_)) => read(Path::new(TOKEN_FILE)),
        }
    }
}

impl Session {
    /// Reads. The path may have a query.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.ask(Method::GET, path, None::<&Value>).await
    }

    /// Has something done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Asks in any way. An answer without a body is `null`; where there is no such topic or event subscription, the refusal
    /// says which names are like it.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        match self.ask_only(method, path, body).await {
            Err(Error::Refused { status: StatusCode::NOT_FOUND, reason }) => {
                let reason = reason + &nearest::words(self, path).await;
                Err(Error::Refused { status: StatusCode::NOT_FOUND, reason })
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
    ) -> Result<T, Error> {
        let request = self.request(method, path);
        let sent = match body {
            Some(body) => request.send_json(body),
            None => request.send(),
        };
        let body = self.answer(sent).await?;
        Ok(serde_json::from_slice(if body.is_empty() { b"null" } else { &body })?)
    }

    /// A request with the token in it, for those who read the answer as it comes.
    pub fn request(&self, method: Method, path: &str) -> ClientRequest {
        self.request_to(&self.server, method, path)
    }

    /// The same to another address of the same server.
    pub fn request_to(&self, server: &Url, method: Method, path: &str) -> ClientRequest {
        let url = format!("{}{path}", server.as_str().trim_end_matches('/'));
        self.client.request(method, url).insert_header((header::AUTHORIZATION, format!("Bearer {}", self.token)))
    }

    /// That nobody answers.
    pub(super) fn not_reached(&self, error: &dyn fmt::Display) -> Error {
        Error::Send { server: self.server.clone(), error: error.to_string() }
    }

    async fn answer(&self, sent: SendClientRequest) -> Result<bytes::Bytes, Error> {
        let response = sent.await.map_err(|error| self.not_reached(&error))?;
        let mut response = response.timeout(WAIT);
        let status = response.status();
        let body = response.body().limit(ANSWER_BYTES_MAX).await.map_err(|error| self.not_reached(&error))?;
        if status.is_success() {
            return Ok(body);
        }
        let mut reason = web::reason(&body);
        if status == StatusCode::UNAUTHORIZED {
            reason = format!("{reason} (the token is that of {}; --token-file names another)", self.token_from);
        }
        Err(Error::Refused { status, reason })
    }
}

/// A minute: longer than the server takes for anything that is not a job.
const WAIT: Duration = Duration::from_secs(60);

/// Lines of equally many cells, under a headline: columns as wide as their widest cell.
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Without a line yet.
    pub fn new<const N: usize>(headline: [&str; N]) -> Self {
        Self { lines: vec![headline.map(str::to_owned).to_vec()] }
    }

    /// One more line.
    pub fn line<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
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
pub(super) fn body_of(file: Option<&Path>) -> Result<Value, Error> {
    match file.map(|path| (path, read_input(path))) {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some((_, Ok(value @ Value::Object(_)))) => Ok(value),
        Some((path, Ok(_))) => Err(Error::Input(format!("{} has no JSON object; allowed is one", path.display()))),
        Some((_, Err(error))) => Err(error),
    }
}

/// The JSON in a file, or on standard input.
pub(super) fn read_input(path: &Path) -> Result<Value, Error> {
    let read = match path == Path::new("-") {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(path),
    };
    let text = read.map_err(|error| Error::Input(format!("{} cannot be read: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| Error::Input(format!("{} is not JSON: {error}", path.display())))
}

/// Sets what stands at `path`, keys below keys, in a body that a person may have written.
pub(super) fn set(body: &mut Value, path: &[&str], value: Value) -> Result<(), Error> {
    let mut at = body;
    for key in path {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        let Value::Object(inside) = at else {
            return Err(Error::Input(format!("{} cannot be set: what is above it is no JSON object", path.join("."))));
        };
        at = inside.entry(*key).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}
