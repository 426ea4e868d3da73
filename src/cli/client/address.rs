//! The address of the server: flags, environment and contexts.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use awc::Client;
use url::{Host, Url};

use super::{ClientError, ClientResult};
use crate::{
    context::{ContextFile, ServerContext},
    http, print,
    value::ValueError,
};

/// The flags that name the server.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerAddressArgs {
    /// URL of the server's control plane [default: GRIDHOOK_SERVER, or the context in use, or the
    /// address in GRIDHOOK_SERVER__LISTEN, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", value_parser = server_url, help_heading = SERVER)]
    server: Option<Url>,
    /// Use the server of this context (gridhook context list)
    #[arg(long, value_name = "NAME", conflicts_with = "server", help_heading = SERVER)]
    context: Option<String>,
    /// PEM file with a certificate authority to trust, besides those of the machine
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    ca_file: Option<PathBuf>,
}

/// The heading of these flags in the help.
pub(super) const SERVER: &str = "Server";

/// The server if no flag, variable or context names one.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// Parses the URL of a server.
pub(crate) fn server_url(text: &str) -> Result<Url, ValueError> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        // `localhost:8080` parses as a URL with the scheme `localhost`.
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let with_scheme = format!("http://{rest}");
        let example = if Url::parse(&with_scheme).is_ok() {
            with_scheme
        } else {
            DEFAULT_SERVER.to_owned()
        };
        return Err(ValueError::ServerUrl { example });
    };
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        return Err(ValueError::ServerUrlParts);
    }
    Ok(url)
}

/// The URL for a listen address. In a container, the server and its health check share the
/// environment, and so this setting.
fn listening_at(text: &str) -> ClientResult<Url> {
    let parsed = text.parse().ok().map(|mut address: SocketAddr| {
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            });
        }
        format!("http://{address}")
    });
    parsed.and_then(|url| Url::parse(&url).ok()).ok_or_else(|| {
        let allowed =
            "expected an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\"";
        ClientError::Input(format!(
            "environment variable GRIDHOOK_SERVER__LISTEN is \"{text}\"; {allowed}"
        ))
    })
}

/// The chosen server, and the context it came from.
pub(super) struct ChosenServer {
    pub(super) server: Url,
    pub(super) context: Option<ServerContext>,
    /// Whether a flag names the context.
    pub(super) is_named: bool,
    /// Whether nothing names the server: it is that of this machine.
    pub(super) is_default: bool,
    pub(super) ca_file: Option<PathBuf>,
}

/// Whether requests to this URL stay on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Warns before a credential is sent to another machine without encryption.
pub(crate) fn warn_of_cleartext(url: &Url, credential: &str) {
    if url.scheme() == "http" && !is_loopback(url) {
        let host = url.host_str().unwrap_or_default();
        print::print_note(&format!(
            "gridhook: warning: {credential} is sent to {host} without encryption; use https://"
        ));
    }
}

impl ServerAddressArgs {
    pub(super) fn choose_server(&self) -> ClientResult<ChosenServer> {
        let ca_file = |context: Option<&ServerContext>| {
            self.ca_file.clone().or_else(|| context?.ca_file.clone())
        };
        if let Some(name) = &self.context {
            let context = ContextFile::load_contexts()?.get(name)?.clone();
            let server = context.server_url()?;
            let ca_file = ca_file(Some(&context));
            let context = Some(context);
            return Ok(ChosenServer {
                server,
                context,
                is_named: true,
                is_default: false,
                ca_file,
            });
        }
        let named_server = match (&self.server, read_variable("GRIDHOOK_SERVER")?) {
            (Some(server), _) => Some(server.clone()),
            (None, Some(text)) => Some(server_url(&text).map_err(|allowed| {
                ClientError::Input(format!(
                    "environment variable GRIDHOOK_SERVER is \"{text}\"; {allowed}"
                ))
            })?),
            (None, None) => None,
        };
        let known = if named_server.is_none() {
            ContextFile::load_contexts()?
        } else {
            ContextFile::default()
        };
        let context = known
            .current
            .as_deref()
            .map(|name| known.get(name).cloned())
            .transpose()?;
        let is_default = named_server.is_none() && context.is_none();
        let server = match (named_server, &context) {
            (Some(server), _) => server,
            (None, Some(context)) => context.server_url()?,
            (None, None) => match read_variable("GRIDHOOK_SERVER__LISTEN")? {
                Some(text) => listening_at(&text)?,
                None => Url::parse(DEFAULT_SERVER).expect("the default is a URL"),
            },
        };
        let ca_file = ca_file(context.as_ref());
        Ok(ChosenServer {
            server,
            context,
            is_named: false,
            is_default,
            ca_file,
        })
    }

    /// The server's URL, and a client that trusts its certificate. Needs a running actix system.
    pub(crate) fn build_client(&self) -> ClientResult<(Url, Client)> {
        let ChosenServer {
            server, ca_file, ..
        } = self.choose_server()?;
        let client = http::build_client(ca_file.as_deref())?;
        Ok((server, client))
    }
}

/// An environment variable; empty counts as not set.
pub(crate) fn read_variable(name: &str) -> ClientResult<Option<String>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ClientError::Input(format!(
            "environment variable {name} is not valid UTF-8; expected UTF-8 text"
        ))),
    }
}
