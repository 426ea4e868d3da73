//! The HTTP client of the commands, and the text of an error response.

use std::{path::Path, sync::Arc, time::Duration};

use awc::{Client, Connector, error::PayloadError};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use url::Url;

use super::client::{ClientError, ClientResult};
use gridhook_api::resource::{ErrorBody, ErrorResponse};
use gridhook_escape as escape;

/// The reason in an error response.
pub(super) fn error_reason(body: &[u8]) -> String {
    match serde_json::from_slice::<ErrorResponse>(body) {
        Ok(ErrorResponse {
            error:
                ErrorBody {
                    code,
                    message,
                    details,
                    ..
                },
        }) => {
            let code = details.first().map_or(code, |detail| detail.code.clone());
            escape::escape_text(&format!("{code}: {message}")).into_owned()
        }
        Err(_) if body.is_empty() => "the response has no body".to_owned(),
        Err(_) => escape::escape_text(String::from_utf8_lossy(body).trim()).into_owned(),
    }
}

/// The URL of a path of a server.
pub(super) fn join_path(server: &Url, path: &str) -> String {
    format!("{}{path}", server.as_str().trim_end_matches('/'))
}

/// Why the body of a response cannot be received.
pub(super) fn payload_problem(error: &PayloadError) -> String {
    match error {
        PayloadError::Incomplete(_) => "the response ended early".to_owned(),
        error => format!("the response cannot be received: {error}"),
    }
}

/// A client that trusts the machine's certificate authorities and those in `ca_file`. It follows no
/// redirects: the request carries a credential.
pub(super) fn build_client(ca_file: Option<&Path>) -> ClientResult<Client> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let path_text = path.display();
        let text = |why: String| format!("{path_text} has no usable certificate: {why}");
        let unusable = |why: String| ClientError::Input(text(why));
        let found: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let certificates = found.map_err(|error| unusable(error.to_string()))?;
        if certificates.is_empty() {
            return Err(unusable("it contains none; expected a PEM file".to_owned()));
        }
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|error| unusable(error.to_string()))?;
        }
    }
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("the provider knows the default versions")
    .with_root_certificates(roots)
    .with_no_client_auth();
    let connector = Connector::new().rustls_0_23(Arc::new(tls));
    Ok(Client::builder()
        .connector(connector)
        .timeout(Duration::from_secs(60))
        .disable_redirects()
        .finish())
}
