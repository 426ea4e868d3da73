//! TLS certificates that can be replaced while the server runs: those of its listeners, and of a
//! node of a cluster.
//!
//! The files are checked at each `server.tls_reload` and on SIGHUP. A new certificate applies to
//! new connections. Files that cannot be used (for example, a new certificate beside an old key, or
//! an expired one in the place of one that is valid) leave the last certificate in use and are
//! logged once for each change. The files of authorities are read again like those of certificates.
//!
//! Not here: requesting certificates. ACME clients do that.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::RwLock;

#[cfg(feature = "nats")]
use rustls::{ClientConfig, client::Resumption, server::NoServerSessionStorage};
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
#[cfg(feature = "nats")]
use gridhook_deliver::{
    Authorities,
    trust::{MinimumTlsVersion, TrustRoots},
};
use gridhook_deliver::{
    trust::{self, load_identity},
    watched_files::{FilesChange, WatchedFiles},
};

#[derive(Debug)]
pub(super) struct ReloadableCertificate {
    certificate: PathBuf,
    key: PathBuf,
    files: WatchedFiles,
    current: RwLock<Arc<CertifiedKey>>,
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
        let files = WatchedFiles::new(vec![certificate.clone(), key.clone()]);
        let current = read_certified_key(&certificate, &key)?;
        let validity = current.cert.first().and_then(trust::read_validity);
        if let Some(validity) = validity.filter(|validity| !trust::is_valid_now(validity)) {
            tracing::warn!(
                path = %certificate.display(),
                from = %validity.not_before,
                to = %validity.not_after,
                "the certificate is not valid now"
            );
        }
        let current = RwLock::new(Arc::new(current));
        Ok(Self {
            certificate,
            key,
            files,
            current,
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

    fn read_replacement(&self) -> Result<CertifiedKey, trust::TrustError> {
        let fresh = read_certified_key(&self.certificate, &self.key)?;
        if let (Some(new), Some(current)) = (fresh.cert.first(), self.current_key().cert.first()) {
            trust::check_replacement(&self.certificate, new, current)?;
        }
        Ok(fresh)
    }

    /// Reads the files, and takes a new certificate. Blocks.
    pub(super) fn reload_files(&self) -> &'static str {
        match self.files.look() {
            FilesChange::Unchanged => return "unchanged",
            FilesChange::NotReadable => return "not readable",
            FilesChange::New => {}
        }
        match self.read_replacement() {
            Ok(fresh) => {
                *self.current.write() = Arc::new(fresh);
                self.files.note_used();
                tracing::info!(path = %self.certificate.display(), "certificate replaced");
                "new"
            }
            Err(error) => {
                if self.files.note_unusable(&error) {
                    tracing::error!(%error, "a new certificate cannot be used; the last one stays \
                        in use");
                }
                "not usable"
            }
        }
    }
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
    pub(super) authorities: Arc<Authorities>,
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
        let roots = [TrustRoots::File(authorities.clone())];
        let authorities = Arc::new(Authorities::load(&roots)?.0);
        let provider = Arc::new(ring::default_provider());
        let versions = MinimumTlsVersion::Tls13.and_later();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(Arc::clone(&authorities) as _)
            .with_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>);
        // Neither end verifies the certificate of a resumed session.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&authorities) as _)
            .with_client_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesClientCert>);
        client.resumption = Resumption::disabled();
        Ok(Self {
            certificate,
            authorities,
            server,
            client,
        })
    }
}

/// The files of TLS between nodes, and between a node and NATS.
#[cfg(feature = "nats")]
#[derive(Clone, Default)]
pub(super) struct NodeTlsState {
    /// The certificates that the node shows.
    pub(super) certificates: Vec<Arc<ReloadableCertificate>>,
    pub(super) authorities: Vec<Arc<Authorities>>,
}

#[cfg(feature = "nats")]
impl NodeTlsState {
    /// Reads all files. Blocks.
    fn reload_files(&self, is_requested: bool) {
        let mut certificates = Vec::new();
        for certificate in &self.certificates {
            certificates.push(certificate.reload_files());
        }
        let mut authorities = Vec::new();
        for trusted in &self.authorities {
            authorities.push(trusted.reload());
        }
        if is_requested {
            let certificates = certificates.join(", ");
            let authorities = authorities.join(", ");
            tracing::info!(certificates, authorities, "reloaded TLS of the node");
        }
    }
}

/// Checks the files of a node of a cluster periodically and on SIGHUP, as long as the process runs.
/// The part of `reload` that a standby needs, too.
#[cfg(feature = "nats")]
pub(super) async fn keep_node_fresh(state: NodeTlsState, every: Duration) {
    // `reload` has installed the handler before.
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return;
    };
    loop {
        let is_requested = tokio::select! {
            () = tokio::time::sleep(every) => false,
            _ = hangup.recv() => true,
        };
        let state = state.clone();
        let reload = tokio::task::spawn_blocking(move || state.reload_files(is_requested));
        if reload.await.is_err() {
            tracing::error!("reading the files of TLS panicked");
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
