//! Whose certificates are believed, and which are shown.
//!
//! Certificates are always checked; there is no switch. An operator with an authority of their own names its file, beside
//! the machine's own authorities or in place of them.
//!
//! An endpoint may ask who calls it. The certificates for that lie in a folder of the operator's, in pairs with their
//! keys, and a subscription names one: no private key ever passes through the control plane. Each is a policy class of its
//! own, with a client of its own, because connections are kept by authority and not by who made them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// Why certificates could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The operator's own authority can't be used; nothing was loaded, so that this shows at start and not at night.
    #[error("the certificates in {path} can't be read: {detail}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why, for people.
        detail: String,
    },
    /// The cryptography has no protocol version in common with itself.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
}

/// Which authorities are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustRoots {
    /// The machine's.
    System,
    /// Those in this file.
    File(PathBuf),
}

static TLS13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinimumTlsVersion {
    /// 1.2 and 1.3.
    #[default]
    Tls12,
    /// 1.3 alone.
    Tls13,
}

impl MinimumTlsVersion {
    /// This one and all later ones.
    pub fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => rustls::ALL_VERSIONS,
            Self::Tls13 => &TLS13,
        }
    }
}

/// The authorities that endpoints are checked against, and what is shown to them. Loaded once, shared by all clients.
#[derive(Clone, Debug)]
pub struct TlsTrust {
    config: Arc<ClientConfig>,
    roots: usize,
}

impl TlsTrust {
    /// Loads the machine's authorities, and those in the file `extra` beside them.
    ///
    /// # Errors
    /// Where `extra` has no usable certificate.
    pub fn load(extra: Option<&Path>) -> Result<Self, TrustError> {
        let extra = extra.map(|path| TrustRoots::File(path.to_owned()));
        let roots: Vec<TrustRoots> = [TrustRoots::System].into_iter().chain(extra).collect();
        Self::of(&roots, MinimumTlsVersion::default())
    }

    /// Loads these authorities, to speak `version` or a later one.
    ///
    /// # Errors
    /// Where a file has no usable certificate.
    pub fn of(roots: &[TrustRoots], version: MinimumTlsVersion) -> Result<Self, TrustError> {
        let store = store(roots)?;
        let count = store.len();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(version.and_later())?
            .with_root_certificates(store)
            .with_no_client_auth();
        // Not h2: awc would use a connection of it for one request at a time, and has no way to be watched there.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), roots: count })
    }

    /// How many authorities are believed. With none, every https endpoint fails: worth a line at start.
    pub fn roots(&self) -> usize {
        self.roots
    }

    /// The same authorities, and this certificate for whoever asks for one.
    ///
    /// # Errors
    /// Where a file cannot be read, or the key is not the certificate's.
    pub fn showing(&self, certificate: &Path, key: &Path) -> Result<Self, TrustError> {
        let (chain, key) = identity(certificate, key)?;
        let provider = Arc::clone(self.config.crypto_provider());
        let shown = rustls::sign::CertifiedKey::from_der(chain, key, &provider);
        let wrong = |error: rustls::Error| TrustError::File { path: certificate.to_owned(), detail: error.to_string() };
        let mut config = ClientConfig::clone(&self.config);
        config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(shown.map_err(wrong)?));
        // A session that was begun under another identity must not be taken up again.
        config.resumption = rustls::client::Resumption::default();
        Ok(Self { config: Arc::new(config), roots: self.roots })
    }

    /// Whether both are one and the same, and not only alike.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }

    /// The TLS of a client.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}

fn store(roots: &[TrustRoots]) -> Result<RootCertStore, TrustError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        match root {
            // A machine's store often has a file or two that can't be read: what can be is used.
            TrustRoots::System => {
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            TrustRoots::File(path) => {
                for certificate in certificates(path)? {
                    store.add(certificate).map_err(|error| wrong(path, error))?;
                }
            }
        }
    }
    Ok(store)
}

fn wrong(path: &Path, detail: impl ToString) -> TrustError {
    TrustError::File { path: path.to_owned(), detail: detail.to_string() }
}

/// The certificates in a file: at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(path, error))?;
    if found.is_empty() { Err(wrong(path, "there is none in it")) } else { Ok(found) }
}

/// A certificate with those that vouch for it, and its private key.
///
/// # Errors
/// Where a file has none.
pub fn identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
    Ok((certificates(certificate)?, PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error))?))
}

/// The certificates that may be shown, by name.
///
/// Clones share them: what [`ClientCertificates::reload`] finds is shown from the next connection on.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificates(Arc<RwLock<BTreeMap<String, Identity>>>);

#[derive(Clone, Debug)]
struct Identity {
    trust: TlsTrust,
    /// What was in its two files.
    files: [Vec<u8>; 2],
}

/// What was found in the folder of certificates when it was looked at again.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// Those that are new or changed.
    pub fresh: Vec<String>,
    /// Those that are there no more.
    pub gone: Vec<String>,
    /// What cannot be used; where there was an older one, that is kept.
    pub failed: Vec<TrustError>,
}

impl ClientCertificates {
    /// Every `NAME.crt` in `folder`, with `NAME.key` beside it.
    ///
    /// # Errors
    /// Where one of them cannot be used, or its key is missing.
    pub fn load(folder: &Path, trust: &TlsTrust) -> Result<Self, TrustError> {
        let found = Self::default();
        let mut reloaded = found.reload(folder, trust)?;
        match reloaded.failed.pop() {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Looks at the folder again. One that cannot be used keeps none of the others out.
    ///
    /// # Errors
    /// Where the folder cannot be read: then nothing is changed.
    pub fn reload(&self, folder: &Path, trust: &TlsTrust) -> Result<Reloaded, TrustError> {
        let known = self.read().clone();
        let (mut found, mut reloaded) = (BTreeMap::new(), Reloaded::default());
        for entry in fs::read_dir(folder).map_err(|error| wrong(folder, error))? {
            let path = entry.map_err(|error| wrong(folder, error))?.path();
            if path.extension().is_none_or(|extension| extension != "crt") {
                continue;
            }
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let old = known.get(&name);
            match Identity::load(&path, trust, old) {
                Ok(identity) => {
                    if old.is_none_or(|old| old.files != identity.files) {
                        reloaded.fresh.push(name.clone());
                    }
                    found.insert(name, identity);
                }
                Err(error) => {
                    reloaded.failed.push(error);
                    found.extend(old.map(|old| (name, old.clone())));
                }
            }
        }
        reloaded.gone = known.into_keys().filter(|name| !found.contains_key(name)).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(reloaded)
    }

    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<TlsTrust> {
        self.read().get(name).map(|identity| identity.trust.clone())
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<String> {
        self.read().keys().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Identity>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Identity {
    /// What is in the files; `old` where they have not changed.
    fn load(certificate: &Path, trust: &TlsTrust, old: Option<&Self>) -> Result<Self, TrustError> {
        let key = certificate.with_extension("key");
        let read = |path: &Path| fs::read(path).map_err(|error| wrong(path, error));
        let files = [read(certificate)?, read(&key)?];
        match old.filter(|old| old.files == files) {
            Some(old) => Ok(old.clone()),
            None => Ok(Self { trust: trust.showing(certificate, &key)?, files }),
        }
    }
}
