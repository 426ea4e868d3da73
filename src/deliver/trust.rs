//! Trusted certificate authorities, and client certificates.
//!
//! Certificates are always verified; there is no switch. An operator's own authority is configured
//! by its file, in addition to the machine's authorities or instead of them.
//!
//! Client certificates are in a folder, in pairs with their keys, and a subscription names one: no
//! private key passes through the control plane. Each certificate and each minimum version has an
//! HTTP client of its own, because connections are pooled by authority.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use x509_parser::{parse_x509_certificate, prelude::Validity, time::ASN1Time};

use crate::authorities::Authorities;
use gridhook_clock::Clock;

/// The extension of the files of client certificates.
pub const CLIENT_CERTIFICATE: &str = "crt";

/// Why certificates could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be used. Nothing was loaded, so that the error appears at the start.
    #[error("cannot read the certificates in {path}: {detail}")]
    File { path: PathBuf, detail: String },
    /// A certificate that is not valid now would replace one that is.
    #[error(
        "the certificate in {path} is valid from {from} to {to}, and the one in use is valid now"
    )]
    NotValidNow {
        path: PathBuf,
        from: String,
        to: String,
    },
    /// The TLS library could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The verifier of certificates could not be set up.
    #[error("cannot set up TLS")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// A source of trusted authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustRoots {
    System,
    File(PathBuf),
}

static TLS13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// The minimum version of TLS, with the names that Azure has. The versions before 1.2 are not
/// implemented, so that a minimum below it is satisfied by 1.2.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub enum MinimumTlsVersion {
    /// As TLS 1.2.
    #[serde(rename = "1.0")]
    Tls10,
    /// As TLS 1.2.
    #[serde(rename = "1.1")]
    Tls11,
    /// TLS 1.2 and 1.3.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 only.
    #[serde(rename = "1.3")]
    Tls13,
}

impl MinimumTlsVersion {
    pub fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls10 | Self::Tls11 | Self::Tls12 => rustls::ALL_VERSIONS,
            Self::Tls13 => &TLS13,
        }
    }
}

/// Trusted authorities, and the client certificate. Shared by all clients.
#[derive(Clone, Debug)]
pub struct TlsTrust {
    authorities: Arc<Authorities>,
    config: Arc<ClientConfig>,
    /// The configuration with TLS 1.3 only.
    strict: Arc<ClientConfig>,
    roots: usize,
}

impl TlsTrust {
    /// Loads the machine's authorities, and those in the file `extra`.
    ///
    /// # Errors
    /// If `extra` has no usable certificate.
    pub fn load(extra: Option<&Path>) -> Result<Self, TrustError> {
        let extra = extra.map(|path| TrustRoots::File(path.to_owned()));
        let roots: Vec<TrustRoots> = [TrustRoots::System].into_iter().chain(extra).collect();
        Self::load_roots(&roots, MinimumTlsVersion::default())
    }

    /// Loads these authorities, with `version` as the minimum.
    ///
    /// # Errors
    /// If a file has no usable certificate.
    pub fn load_roots(
        roots: &[TrustRoots],
        version: MinimumTlsVersion,
    ) -> Result<Self, TrustError> {
        let (authorities, roots) = Authorities::load(roots)?;
        let authorities = Arc::new(authorities);
        Ok(Self {
            config: client_config(&authorities, version)?,
            strict: client_config(&authorities, MinimumTlsVersion::Tls13)?,
            authorities,
            roots,
        })
    }

    pub fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// The number of trusted authorities. Without any, every https endpoint fails.
    pub fn roots(&self) -> usize {
        self.roots
    }

    /// Adds a client certificate to the trusted authorities.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not match the certificate.
    pub fn with_client_certificate(
        &self,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, TrustError> {
        let (chain, key) = load_identity(certificate, key)?;
        let provider = Arc::clone(self.config.crypto_provider());
        let shown = rustls::sign::CertifiedKey::from_der(chain, key, &provider);
        let shown = shown.map_err(|error| unusable_file(certificate, error))?;
        let shown = Arc::new(rustls::sign::SingleCertAndKey::from(shown));
        let mut config = ClientConfig::clone(&self.config);
        let mut strict = ClientConfig::clone(&self.strict);
        for config in [&mut config, &mut strict] {
            config.client_auth_cert_resolver = shown.clone();
            // A session of another certificate must not be resumed.
            config.resumption = self.authorities.create_resumption();
        }
        Ok(Self {
            authorities: Arc::clone(&self.authorities),
            config: Arc::new(config),
            strict: Arc::new(strict),
            roots: self.roots,
        })
    }

    /// Raises the minimum version of TLS.
    #[must_use]
    pub fn with_minimum(&self, version: MinimumTlsVersion) -> Self {
        match version {
            MinimumTlsVersion::Tls10 | MinimumTlsVersion::Tls11 | MinimumTlsVersion::Tls12 => {
                self.clone()
            }
            MinimumTlsVersion::Tls13 => Self {
                config: Arc::clone(&self.strict),
                ..self.clone()
            },
        }
    }

    /// Whether both are the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }

    /// The configuration for TLS connections.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}

/// The store itself, or the one that was shared last if it has the same authorities: the cores of a
/// process load the same.
pub(super) fn share_root_store(store: RootCertStore) -> Arc<RootCertStore> {
    static LAST: Mutex<Weak<RootCertStore>> = Mutex::new(Weak::new());
    let mut last = LAST.lock();
    let shared = last.upgrade().filter(|last| last.roots == store.roots);
    let store = shared.unwrap_or_else(|| Arc::new(store));
    *last = Arc::downgrade(&store);
    store
}

fn client_config(
    authorities: &Arc<Authorities>,
    version: MinimumTlsVersion,
) -> Result<Arc<ClientConfig>, TrustError> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(version.and_later())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(authorities) as _)
        .with_no_client_auth();
    config.resumption = authorities.create_resumption();
    // Not h2: awc reuses an HTTP/2 connection without checking it, and `socket` follows one request
    // on a connection.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Loads these authorities.
///
/// # Errors
/// If a file has no usable certificate.
pub(super) fn load_root_store(roots: &[TrustRoots]) -> Result<RootCertStore, TrustError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        match root {
            // Machines often have a few unreadable files. The rest is used.
            TrustRoots::System => {
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            TrustRoots::File(path) => {
                for certificate in load_certificates(path)? {
                    store
                        .add(certificate)
                        .map_err(|error| unusable_file(path, error))?;
                }
            }
        }
    }
    Ok(store)
}

pub(super) fn unusable_file(path: &Path, detail: impl ToString) -> TrustError {
    TrustError::File {
        path: path.to_owned(),
        detail: detail.to_string(),
    }
}

/// The certificates in a file; at least one.
fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let unusable = |error| unusable_file(path, describe_pem_error(&error));
    let chain = CertificateDer::pem_file_iter(path).map_err(unusable)?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(unusable)?;
    if chain.is_empty() {
        Err(unusable_file(path, "there is none in it"))
    } else {
        Ok(chain)
    }
}

/// A certificate chain and its private key.
///
/// # Errors
/// If a file has none.
pub fn load_identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
    Ok((
        load_certificates(certificate)?,
        PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unusable_file(key, describe_pem_error(&error)))?,
    ))
}

/// When a certificate is valid; [`None`] if it cannot be read.
pub fn read_validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().clone())
}

/// Whether a certificate is valid by the clock of the machine, as clients compare it.
pub fn is_valid_now(validity: &Validity) -> bool {
    let seconds = Clock::system().now().0 / 1_000_000;
    let now = i64::try_from(seconds).ok().map(ASN1Time::from_timestamp);
    now.and_then(Result::ok)
        .is_some_and(|now| validity.is_valid_at(now))
}

/// Compares a certificate in a file with the one that it is to replace.
///
/// # Errors
/// If it is not valid now, and the one in use is.
pub fn check_replacement(
    path: &Path,
    fresh: &CertificateDer<'_>,
    current: &CertificateDer<'_>,
) -> Result<(), TrustError> {
    let is_current_valid = read_validity(current).is_some_and(|validity| is_valid_now(&validity));
    match read_validity(fresh).filter(|validity| is_current_valid && !is_valid_now(validity)) {
        Some(validity) => Err(TrustError::NotValidNow {
            path: path.to_owned(),
            from: validity.not_before.to_string(),
            to: validity.not_after.to_string(),
        }),
        None => Ok(()),
    }
}

/// The library shows the lines in question as numbers.
fn describe_pem_error(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "a section has no END line; the file may be incomplete".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is not valid".to_owned(),
        error => error.to_string(),
    }
}

/// Client certificates, by name.
///
/// Clones share them: new connections use what [`ClientCertificates::reload`] finds.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificates(Arc<RwLock<BTreeMap<String, Identity>>>);

#[derive(Clone, Debug)]
struct Identity {
    trust: TlsTrust,
    /// The content of both files.
    files: [Vec<u8>; 2],
}

/// The result of a reload.
#[derive(Debug, Default)]
pub struct Reloaded {
    pub fresh: Vec<String>,
    pub gone: Vec<String>,
    /// Certificates that cannot be used. A previous one of the same name is kept.
    pub failed: Vec<TrustError>,
}

impl ClientCertificates {
    /// Loads every `NAME.crt` in `folder`, with `NAME.key` beside it.
    ///
    /// # Errors
    /// If one of them cannot be used, or its key is missing.
    pub fn load(folder: &Path, trust: &TlsTrust) -> Result<Self, TrustError> {
        let certificates = Self::default();
        let mut report = certificates.reload(folder, trust)?;
        match report.failed.pop() {
            Some(error) => Err(error),
            None => Ok(certificates),
        }
    }

    /// Loads the folder again. An unusable certificate does not affect the others.
    ///
    /// # Errors
    /// If the folder cannot be read. Nothing is changed then.
    pub fn reload(&self, folder: &Path, trust: &TlsTrust) -> Result<Reloaded, TrustError> {
        let before = self.read().clone();
        let mut identities = BTreeMap::new();
        let mut reloaded = Reloaded::default();
        for (name, path) in
            certificate_files(folder).map_err(|error| unusable_file(folder, error))?
        {
            let previous = before.get(&name);
            match Identity::load(&path, trust, previous) {
                Ok(identity) => {
                    if previous.is_none_or(|previous| previous.files != identity.files) {
                        reloaded.fresh.push(name.clone());
                    }
                    identities.insert(name, identity);
                }
                Err(error) => {
                    reloaded.failed.push(error);
                    identities.extend(previous.map(|previous| (name, previous.clone())));
                }
            }
        }
        reloaded.gone = before
            .into_keys()
            .filter(|name| !identities.contains_key(name))
            .collect();
        *self.0.write() = identities;
        Ok(reloaded)
    }

    pub fn get(&self, name: &str) -> Option<TlsTrust> {
        self.read().get(name).map(|identity| identity.trust.clone())
    }

    /// The names in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        self.read().keys().cloned().collect()
    }

    /// All certificates without their chains, by name.
    pub fn end_entities(&self) -> Vec<(String, CertificateDer<'static>)> {
        let mut certificates = Vec::new();
        for (name, identity) in self.read().iter() {
            if let Some(certificate) = identity.end_entity() {
                certificates.push((name.clone(), certificate));
            }
        }
        certificates
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Identity>> {
        self.0.read()
    }
}

/// All client certificates in a folder, without their chains, by name. Those that cannot be read
/// are left out.
pub fn end_entities(folder: &Path) -> Vec<(String, CertificateDer<'static>)> {
    let end_entity = |(name, path)| Some((name, CertificateDer::from_pem_file(path).ok()?));
    certificate_files(folder)
        .unwrap_or_default()
        .into_iter()
        .filter_map(end_entity)
        .collect()
}

/// The files of the client certificates in a folder, by name.
fn certificate_files(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut certificates = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == CLIENT_CERTIFICATE)
        {
            let name = path.file_stem().unwrap_or_default();
            certificates.push((name.to_string_lossy().into_owned(), path));
        }
    }
    Ok(certificates)
}

impl Identity {
    /// Loads both files; returns `old` if they have not changed.
    fn load(certificate: &Path, trust: &TlsTrust, old: Option<&Self>) -> Result<Self, TrustError> {
        let key = certificate.with_extension("key");
        let read = |path: &Path| fs::read(path).map_err(|error| unusable_file(path, error));
        let files = [read(certificate)?, read(&key)?];
        if let Some(old) = old.filter(|old| old.files == files) {
            return Ok(old.clone());
        }
        let trust = trust.with_client_certificate(certificate, &key)?;
        let identity = Self { trust, files };
        if let (Some(fresh), Some(current)) =
            (identity.end_entity(), old.and_then(Self::end_entity))
        {
            check_replacement(certificate, &fresh, &current)?;
        }
        Ok(identity)
    }

    /// The certificate without its chain.
    fn end_entity(&self) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(&self.files[0]).ok()
    }
}
