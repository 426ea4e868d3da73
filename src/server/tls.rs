//! TLS certificates that can be replaced while the server runs: those of its listeners, and of a
//! node of a cluster.
//!
//! The files are checked at each `server.tls_reload` and on SIGHUP. A new certificate applies to
//! new connections. Files that cannot be used (for example, a new certificate beside an old key)
//! leave the last certificate in use and are logged once for each change. Authorities are read at
//! the start.
//!
//! Not here: requesting certificates. ACME clients do that.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::RwLock;

#[cfg(feature = "nats")]
use rustls::{ClientConfig, server::WebPkiClientVerifier};
use rustls::{
    ServerConfig, SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use tokio::signal::unix::Signal;
#[cfg(feature = "nats")]
use tokio::signal::unix::{SignalKind, signal};

use gridhook_config as config;
use gridhook_deliver::trust::{self, load_identity};
#[cfg(feature = "nats")]
use gridhook_deliver::trust::{MinimumTlsVersion, TrustRoots};

#[derive(Debug)]
pub(super) struct ReloadableCertificate {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
    /// The content of the files at the last check.
    seen: RwLock<(Vec<u8>, Vec<u8>)>,
}

impl ResolvesServerCert for ReloadableCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current_key())
    }
}

impl ResolvesClientCert for ReloadableCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current_key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ReloadableCertificate {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(super) fn load(certificate: PathBuf, key: PathBuf) -> Result<Self, trust::TrustError> {
        let last_read = RwLock::new(read(&certificate, &key).unwrap_or_default());
        let current = RwLock::new(Arc::new(read_certified_key(&certificate, &key)?));
        Ok(Self {
            certificate,
            key,
            current,
            seen: last_read,
        })
    }

    fn current_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read())
    }

    /// The certificate without its chain, and its file.
    pub(super) fn end_entity(&self) -> Option<(PathBuf, CertificateDer<'static>)> {
        Some((
            self.certificate.clone(),
            self.current_key().cert.first()?.clone(),
        ))
    }

    /// Reads the files, and takes a new certificate. Blocks.
    pub(super) fn reload_files(&self) -> &'static str {
        let contents = match read(&self.certificate, &self.key) {
            Ok(found) => found,
            // The files are missing or being replaced; the last certificate stays in use.
            Err(error) => {
                tracing::debug!(%error, "a certificate cannot be read");
                return "not readable";
            }
        };
        if *self.seen.read() == contents {
            return "unchanged";
        }
        *self.seen.write() = contents;
        match read_certified_key(&self.certificate, &self.key) {
            Ok(fresh) => {
                *self.current.write() = Arc::new(fresh);
                tracing::info!(path = %self.certificate.display(), "certificate replaced");
                "new"
            }
            Err(error) => {
                tracing::error!(%error, "a new certificate cannot be used; the last one stays in \
                    use");
                "not usable"
            }
        }
    }
}

fn read(certificate: &Path, key: &Path) -> io::Result<(Vec<u8>, Vec<u8>)> {
    Ok((std::fs::read(certificate)?, std::fs::read(key)?))
}

fn read_certified_key(certificate: &Path, key: &Path) -> Result<CertifiedKey, trust::TrustError> {
    let (chain, private) = load_identity(certificate, key)?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| {
        trust::TrustError::File {
            path: certificate.to_owned(),
            detail: error.to_string(),
        }
    })
}

/// The TLS configuration and its certificate; [`None`] where the settings name none.
pub(super) fn listener_tls(
    settings: &config::Server,
) -> Result<Option<(ServerConfig, Arc<ReloadableCertificate>)>, trust::TrustError> {
    let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) else {
        return Ok(None);
    };
    let shown = Arc::new(ReloadableCertificate::load(
        certificate.clone(),
        key.clone(),
    )?);
    let versions = super::settings::minimum_tls_version(settings.tls_minimum_version).and_later();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
    Ok(Some((config, shown)))
}

/// TLS between the nodes of a cluster: both ends show a certificate of the same authorities.
#[cfg(feature = "nats")]
pub(super) struct NodeTls {
    pub(super) certificate: Arc<ReloadableCertificate>,
    /// The end of an owner.
    pub(super) server: ServerConfig,
    /// The end of a node that calls an owner.
    pub(super) client: ClientConfig,
}

#[cfg(feature = "nats")]
impl NodeTls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(super) fn load(files: &config::NodeTlsFiles) -> Result<Self, trust::TrustError> {
        let config::NodeTlsFiles {
            authorities,
            identity,
        } = files;
        let certificate =
            ReloadableCertificate::load(identity.certificate.clone(), identity.key.clone())?;
        let certificate = Arc::new(certificate);
        let roots = Arc::new(trust::load_root_store(&[TrustRoots::File(
            authorities.clone(),
        )])?);
        let provider = Arc::new(ring::default_provider());
        let versions = MinimumTlsVersion::Tls13.and_later();
        let nodes =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build();
        let nodes = nodes.map_err(|error| trust::TrustError::File {
            path: authorities.clone(),
            detail: error.to_string(),
        })?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(nodes)
            .with_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>);
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesClientCert>);
        Ok(Self {
            certificate,
            server,
            client,
        })
    }
}

/// Checks the files of a node of a cluster periodically and on SIGHUP, as long as the process runs.
/// The part of `reload` that a standby needs, too.
#[cfg(feature = "nats")]
pub(super) async fn keep_node_fresh(
    certificates: Vec<Arc<ReloadableCertificate>>,
    every: Duration,
) {
    // `reload` has installed the handler before.
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return;
    };
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = hangup.recv() => {}
        }
        let certificates = certificates.clone();
        let reload = tokio::task::spawn_blocking(move || {
            for certificate in certificates {
                certificate.reload_files();
            }
        });
        if reload.await.is_err() {
            tracing::error!("reading a certificate panicked");
        }
    }
}

/// Checks the files periodically while the certificate is in use, and also on `hangup`, if that is
/// given.
pub(super) async fn keep_fresh(
    shown: Weak<ReloadableCertificate>,
    every: Duration,
    mut hangup: Option<Signal>,
) {
    loop {
        let reload_request = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = reload_request => {}
        }
        let Some(shown) = shown.upgrade() else { return };
        if tokio::task::spawn_blocking(move || shown.reload_files())
            .await
            .is_err()
        {
            tracing::error!("reading a certificate panicked");
        }
    }
}
