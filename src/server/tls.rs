//! https towards publishers and operators: the server's own certificate, which is changed while it runs.
//!
//! Certificates live for weeks, a server for longer. So the files are looked at now and then, and what is new in them is
//! shown from the next connection on; those that are open stay open. Files that cannot be used (one of the two is new and
//! the other not yet) leave the old certificate in place and are told in the log, once for each change.
//!
//! Absent on purpose: asking for a certificate. That is the affair of those who are made for it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    config,
    deliver::trust::{self, identity},
};

/// The server's certificate, as it is shown now.
#[derive(Debug)]
pub(super) struct ServerCertificate {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
    /// What was in the files when they were looked at last.
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

    /// Looks at the files, and takes what is new in them. Blocks.
    pub(super) fn look(&self) -> &'static str {
        let found = match read(&self.certificate, &self.key) {
            Ok(found) => found,
            // They are being replaced, or are gone: what is shown is as good as before.
            Err(error) => {
                tracing::debug!(%error, "the server's certificate cannot be looked at");
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
                tracing::info!(path = %self.certificate.display(), "the server shows its new certificate");
                "new"
            }
            Err(error) => {
                tracing::error!(%error, "the server's new certificate cannot be used; it shows the old one");
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

/// What is needed to listen with TLS, and the certificate that is shown. [`None`]: the server listens without.
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

/// Looks at the files every so often, for as long as the certificate is shown.
pub(super) async fn keep_fresh(shown: Weak<ServerCertificate>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shown) = shown.upgrade() else { return };
        if tokio::task::spawn_blocking(move || shown.look()).await.is_err() {
            tracing::error!("looking at the server's certificate panicked");
        }
    }
}
