//! The server's TLS certificate, which can be replaced while the server runs.
//!
//! The files are checked at each `server.tls_reload` and on SIGHUP. A new certificate applies to new connections. Files that
//! cannot be used (for example, a new certificate beside an old key) leave the last certificate in use and are logged once
//! for each change.
//!
//! Not here: requesting certificates. ACME clients do that.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    config,
    deliver::trust::{self, identity},
};

/// The server's certificate in use.
#[derive(Debug)]
pub(super) struct ServerCertificate {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
    /// The content of the files at the last check.
    seen: RwLock<(Vec<u8>, Vec<u8>)>,
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ServerCertificate {
    fn load(certificate: PathBuf, key: PathBuf) -> Result<Self, trust::TrustError> {
        let seen = RwLock::new(read(&certificate, &key).unwrap_or_default());
        let current = RwLock::new(Arc::new(certified(&certificate, &key)?));
        Ok(Self { certificate, key, current, seen })
    }

    /// The certificate without its chain, and its file.
    pub(super) fn end_entity(&self) -> Option<(String, CertificateDer<'static>)> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Some((self.certificate.display().to_string(), current.cert.first()?.clone()))
    }

    /// Reads the files, and takes a new certificate. Blocks.
    pub(super) fn reload(&self) -> &'static str {
        let found = match read(&self.certificate, &self.key) {
            Ok(found) => found,
            // The files are missing or being replaced; the last certificate stays in use.
            Err(error) => {
                tracing::debug!(%error, "the server certificate cannot be read");
                return "not readable";
            }
        };
        if *self.seen.read().unwrap_or_else(PoisonError::into_inner) == found {
            return "unchanged";
        }
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = found;
        match certified(&self.certificate, &self.key) {
            Ok(fresh) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                tracing::info!(path = %self.certificate.display(), "server certificate replaced");
                "new"
            }
            Err(error) => {
                tracing::error!(%error, "the new server certificate cannot be used; the last one stays in use");
                "not usable"
            }
        }
    }
}

fn read(certificate: &Path, key: &Path) -> io::Result<(Vec<u8>, Vec<u8>)> {
    Ok((std::fs::read(certificate)?, std::fs::read(key)?))
}

fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, trust::TrustError> {
    let (chain, private) = identity(certificate, key)?;
    let wrong =
        |error: rustls::Error| trust::TrustError::File { path: certificate.to_owned(), detail: error.to_string() };
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(wrong)
}

/// The TLS configuration and its certificate; [`None`] where the settings name none.
pub(super) fn listening(
    settings: &config::Server,
) -> Result<Option<(ServerConfig, Arc<ServerCertificate>)>, trust::TrustError> {
    let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) else { return Ok(None) };
    let shown = Arc::new(ServerCertificate::load(certificate.clone(), key.clone())?);
    let versions = super::settings::version(settings.tls_minimum_version).and_later();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
    Ok(Some((config, shown)))
}

/// Checks the files periodically while the certificate is in use.
pub(super) async fn keep_fresh(shown: Weak<ServerCertificate>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shown) = shown.upgrade() else { return };
        if tokio::task::spawn_blocking(move || shown.reload()).await.is_err() {
            tracing::error!("reading the server certificate panicked");
        }
    }
}
