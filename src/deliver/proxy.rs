//! Connections through an egress proxy (HTTP `CONNECT`, RFC 9110, section 9.3.6).
//!
//! The proxy gets a checked address and never a name, so the rules for addresses hold behind a
//! proxy, too, and a name cannot resolve to something else there. No message has the credentials.

use std::{io, net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ipnet::IpNet;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::resource::Connection;

/// Maximum size of the proxy's response.
const RESPONSE_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of headers in it.
const HEADERS_MAX: usize = 64;

/// The scheme of a proxy's URL.
pub const SCHEME: &str = "proxy";

/// The name that selects no proxy.
pub const DIRECT: &str = "none";

/// A proxy, and what is connected without it.
#[derive(Clone, Debug)]
pub struct EgressProxy {
    pub service: Connection,
    /// The networks that are connected directly.
    pub bypass: Arc<Vec<IpNet>>,
}

/// The proxy made no connection.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {name} {problem}")]
pub(super) struct ProxyError {
    name: String,
    problem: String,
}

impl EgressProxy {
    /// Whether connections to `address` go through the proxy.
    pub(super) fn applies_to(&self, address: SocketAddr) -> bool {
        !self
            .bypass
            .iter()
            .any(|network| network.contains(&address.ip().to_canonical()))
    }

    pub(super) fn authority(&self) -> (&str, u16) {
        let url = &self.service.url;
        (
            url.host_str().unwrap_or_default(),
            url.port().unwrap_or(3128),
        )
    }

    /// Asks for a connection to `address` on an open connection to the proxy.
    pub(super) async fn open_tunnel(
        &self,
        stream: &mut TcpStream,
        address: SocketAddr,
    ) -> io::Result<()> {
        let credential = |name| self.service.find_credential(name).unwrap_or_default();
        let login = match credential("username") {
            "" => String::new(),
            user => {
                let login = STANDARD.encode(format!("{user}:{}", credential("password")));
                format!("Proxy-Authorization: Basic {login}\r\n")
            }
        };
        let request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{login}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        let mut byte = [0];
        // Byte by byte, because what follows the head is the endpoint's.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == RESPONSE_BYTES_MAX {
                return Err(
                    self.tunnel_error(format!("sent no head within {RESPONSE_BYTES_MAX} bytes"))
                );
            }
            if stream.read(&mut byte).await? == 0 {
                return Err(self.tunnel_error("closed the connection without a response"));
            }
            head.push(byte[0]);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&head).ok().and(response.code) {
            Some(200..=299) => Ok(()),
            Some(status) => Err(self.tunnel_error(format!("responded {status}"))),
            None => Err(self.tunnel_error("sent a response that is not HTTP")),
        }
    }

    /// The error of a proxy that made no connection.
    pub(super) fn tunnel_error(&self, problem: impl Into<String>) -> io::Error {
        io::Error::other(ProxyError {
            name: self.service.name.clone(),
            problem: problem.into(),
        })
    }
}
