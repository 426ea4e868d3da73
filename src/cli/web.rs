//! How a command of ours asks a server over HTTP, and how a refusal reads.

use std::{sync::Arc, time::Duration};

use awc::{Client, Connector};
use serde::Deserialize;

/// Azure's error document, as far as it is shown.
#[derive(Deserialize)]
struct Document {
    error: Told,
}

#[derive(Deserialize)]
struct Told {
    code: String,
    message: String,
    #[serde(default)]
    details: Vec<Told>,
}

/// What a refusal says, in the server's own words.
pub(super) fn reason(body: &[u8]) -> String {
    match serde_json::from_slice::<Document>(body) {
        Ok(Document { error: Told { code, message, details } }) => {
            let code = details.first().map_or(code, |detail| detail.code.clone());
            format!("{code}: {message}")
        }
        Err(_) if body.is_empty() => "without a word".to_owned(),
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

/// The machine's own trust decides who an https server is; no redirect is followed with a key in the header.
pub(super) fn client() -> Client {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = Connector::new().rustls_0_23(Arc::new(tls));
    Client::builder().connector(connector).timeout(Duration::from_secs(60)).disable_redirects().finish()
}
