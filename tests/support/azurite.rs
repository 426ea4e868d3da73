//! Azurite, Microsoft's own server for Azure Storage, on a port that it keeps, also while it is
//! down.

use std::{
    fs::File,
    net::SocketAddr,
    process::{Child, Command},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use url::form_urlencoded;

use super::{
    http::{Client, Response},
    port::ReservedPort,
    server::wait_for,
};
use crate::sdk::packages::azurite;

/// The default account and key of Azurite.
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The version of the interface.
const VERSION: &str = "2021-08-06";

/// An interpreter that starts on a machine with other work.
const START: Duration = Duration::from_secs(120);

/// A process of one of Azurite's services.
pub(crate) struct Azurite {
    service: &'static str,
    child: Option<Child>,
    folder: tempfile::TempDir,
    port: ReservedPort,
}

impl Azurite {
    /// A server that is not started yet: `blob` or `queue`.
    pub(crate) fn new(service: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            service,
            child: None,
            folder,
            port: ReservedPort::new(),
        }
    }

    /// The address of the service.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// Starts the service with the data that it had.
    pub(crate) fn resume(&mut self) {
        let logs = ["out", "err"].map(|stream| self.folder.path().join(stream));
        let [out, err] = logs.each_ref().map(|log| File::create(log).expect("a log"));
        let host = format!("--{}Host", self.service);
        let port = format!("--{}Port", self.service);
        let mut command = Command::new("node");
        command.arg(azurite(self.service)).args([
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--location",
        ]);
        command.arg(self.folder.path().join("data")).args([
            &*host,
            "127.0.0.1",
            &*port,
            &self.address().port().to_string(),
        ]);
        self.child = Some(command.stdout(out).stderr(err).spawn().expect("it starts"));
        wait_for("Azurite to listen", START, || {
            Client::new(self.address())
                .ask("GET", "/", &[], b"")
                .is_ok()
        });
    }

    /// Ends the service, after it has written its data.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().expect("a server that runs");
        let id = child.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &id])
            .status()
            .expect("a shell");
        assert!(sent.success(), "a signal is sent");
        wait_for("Azurite to end", START, || {
            child.try_wait().expect("a child is waited for").is_some()
        });
    }

    /// Kills the service. Data that it has not written is lost.
    pub(crate) fn kill_9(&mut self) {
        let mut child = self.child.take().expect("a server that runs");
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The address in what a server printed.
pub(crate) fn listening(printed: &[String]) -> Option<SocketAddr> {
    printed
        .iter()
        .flat_map(|text| text.lines())
        .find_map(|line| {
            let rest = line.split("http://").nth(1)?;
            let end = rest
                .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
                .unwrap_or(rest.len());
            rest[..end]
                .parse::<SocketAddr>()
                .ok()
                .filter(|at| at.port() != 0)
        })
}

/// The target and the headers of a request without a body, signed with the account's key.
pub(crate) fn sign(
    method: &str,
    path: &str,
    query: &[(&str, &str)],
) -> (String, Vec<(&'static str, String)>) {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let mut sorted = query.to_vec();
    sorted.sort_unstable();
    let canonical: String = sorted
        .iter()
        .map(|(name, value)| format!("\n{name}:{value}"))
        .collect();
    let text = format!(
        "{method}{}x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{path}{canonical}",
        "\n".repeat(12)
    );
    let query: Vec<String> = sorted
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let target = if query.is_empty() {
        format!("/{ACCOUNT}/{path}")
    } else {
        format!("/{ACCOUNT}/{path}?{}", query.join("&"))
    };
    let authorization = authorization(&text);
    (
        target,
        vec![
            ("x-ms-date", date),
            ("x-ms-version", VERSION.to_owned()),
            ("authorization", authorization),
        ],
    )
}

/// The headers of a request that adds a message to a queue with a body of this length, signed with
/// the account's key. The HTTP clients send `date` in any case.
pub(crate) fn sign_post(path: &str, length: usize) -> Vec<(&'static str, String)> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let text = format!(
        "POST\n\n\n{length}\n\napplication/xml\n{date}\n\n\n\n\n\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{path}"
    );
    vec![
        ("date", date),
        ("x-ms-version", VERSION.to_owned()),
        ("authorization", authorization(&text)),
    ]
}

/// A shared access signature that adds messages to a queue until this time, such as
/// `2030-01-01T00:00:00Z`.
pub(crate) fn sas_to_add(queue: &str, until: &str) -> String {
    let signature = signature(&format!(
        "a\n\n{until}\n/queue/{ACCOUNT}/{queue}\n\n\n\n{VERSION}"
    ));
    let mut query = form_urlencoded::Serializer::new(String::new());
    query
        .extend_pairs([
            ("sv", VERSION),
            ("se", until),
            ("sp", "a"),
            ("sig", &signature),
        ])
        .finish()
}

/// The value of `authorization` for a text to sign.
fn authorization(text: &str) -> String {
    format!("SharedKey {ACCOUNT}:{}", signature(text))
}

/// The signature of a text with the account's key.
fn signature(text: &str) -> String {
    let key = ring::hmac::Key::new(
        ring::hmac::HMAC_SHA256,
        &BASE64_STANDARD.decode(KEY).expect("a key"),
    );
    BASE64_STANDARD.encode(ring::hmac::sign(&key, text.as_bytes()))
}

/// Sends a request without a body, signed with the account's key, to the service at `at`.
pub(crate) fn ask(at: SocketAddr, method: &str, path: &str, query: &[(&str, &str)]) -> Response {
    let (target, headers) = sign(method, path, query);
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    Client::new(at)
        .ask(method, &target, &headers, b"")
        .expect("a response")
}

/// Creates a queue, unless it exists.
pub(crate) fn create_queue(at: SocketAddr, name: &str) {
    let response = ask(at, "PUT", name, &[]);
    assert!(
        matches!(response.status, 201 | 204),
        "{}: {}",
        response.status,
        response.text()
    );
}
