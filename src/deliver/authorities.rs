//! Trusted certificate authorities whose files are read again while the server runs.
//!
//! A configuration of TLS keeps its verifier. This one looks up the authorities at each handshake,
//! so that new ones apply to the next connection. It verifies as the verifiers of rustls do, and
//! there is no switch. Files that cannot be used leave the last authorities in use. The authorities
//! of the machine are read again together with a changed file only.
//!
//! A resumed session verifies no certificate. After the first change no session is resumed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, NamedGroup, RootCertStore,
    SignatureScheme,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::{
    trust::{TrustError, TrustRoots, load_root_store, share_root_store},
    watched_files::{FilesChange, WatchedFiles},
};

/// Number of sessions in a store, as the default of rustls.
const SESSIONS_KEPT: usize = 256;

/// The authorities of the certificates of servers, and in a cluster those of clients.
#[derive(Debug)]
pub struct Authorities {
    roots: Vec<TrustRoots>,
    files: WatchedFiles,
    provider: Arc<CryptoProvider>,
    /// [`None`] without any authority.
    verifiers: RwLock<Option<Verifiers>>,
    /// Whether other authorities were trusted before.
    have_changed: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Verifiers {
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// Reads the authorities. Returns also their number. Blocks.
    ///
    /// # Errors
    /// If a file has no usable certificate.
    pub fn load(roots: &[TrustRoots]) -> Result<(Self, usize), TrustError> {
        let mut paths = Vec::new();
        for root in roots {
            if let TrustRoots::File(path) = root {
                paths.push(path.clone());
            }
        }
        let files = WatchedFiles::new(paths);
        let provider = Arc::new(ring::default_provider());
        let store = load_root_store(roots)?;
        let count = store.len();
        let authorities = Self {
            roots: roots.to_vec(),
            files,
            verifiers: RwLock::new(build_verifiers(store, &provider)?),
            provider,
            have_changed: Arc::default(),
        };
        Ok((authorities, count))
    }

    /// A store of its own for the sessions of a client that uses these authorities.
    pub fn create_resumption(&self) -> Resumption {
        Resumption::store(Arc::new(ResumableSessions {
            sessions: ClientSessionMemoryCache::new(SESSIONS_KEPT),
            have_authorities_changed: Arc::clone(&self.have_changed),
        }))
    }

    /// Reads the files, and trusts new authorities from the next connection on. Blocks.
    pub fn reload(&self) -> &'static str {
        match self.files.look() {
            FilesChange::Unchanged => return "unchanged",
            FilesChange::NotReadable => return "not readable",
            FilesChange::New => {}
        }
        let store = load_root_store(&self.roots);
        match store.and_then(|store| build_verifiers(store, &self.provider)) {
            Ok(verifiers) => {
                *self.verifiers.write() = verifiers;
                self.have_changed.store(true, Ordering::Release);
                self.files.note_used();
                tracing::info!(roots = ?self.roots, "authorities replaced");
                "new"
            }
            Err(error) => {
                if self.files.note_unusable(&error) {
                    tracing::error!(%error, "new authorities cannot be used; the last ones stay in \
                        use");
                }
                "not usable"
            }
        }
    }

    fn verifiers(&self) -> Result<Verifiers, rustls::Error> {
        let verifiers = self.verifiers.read();
        verifiers
            .clone()
            .ok_or_else(|| CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Sessions that can be resumed until the authorities change.
///
/// A resumption brings further tickets, so that sessions would keep a removed authority in use for
/// ever. Emptying the store is not enough: a connection from before the change can bring tickets
/// after it, and rustls does not tell of which connection a ticket is.
#[derive(Debug)]
struct ResumableSessions {
    sessions: ClientSessionMemoryCache,
    have_authorities_changed: Arc<AtomicBool>,
}

impl ResumableSessions {
    fn may_resume(&self) -> bool {
        !self.have_authorities_changed.load(Ordering::Acquire)
    }
}

impl ClientSessionStore for ResumableSessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.sessions.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.sessions.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.sessions.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.sessions.tls12_session(server_name);
        session.filter(|_| self.may_resume())
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.sessions.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.sessions.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        let session = self.sessions.take_tls13_ticket(server_name);
        session.filter(|_| self.may_resume())
    }
}

fn build_verifiers(
    store: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Verifiers>, TrustError> {
    if store.is_empty() {
        return Ok(None);
    }
    let store = share_root_store(store);
    let servers =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&store), Arc::clone(provider));
    let clients = WebPkiClientVerifier::builder_with_provider(store, Arc::clone(provider));
    Ok(Some(Verifiers {
        servers: servers.build()?,
        clients: clients.build()?,
    }))
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = self.verifiers()?.servers;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Authorities {
    /// Names no authorities: nodes have one certificate each, and the list would change.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verifier = self.verifiers()?.clients;
        verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
