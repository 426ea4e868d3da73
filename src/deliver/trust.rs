//! Whose certificates are believed.
//!
//! Certificates are always checked; there is no switch. An operator with an authority of their own names its file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Why certificates could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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

/// The authorities that endpoints are checked against. Loaded once, shared by all clients.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    roots: usize,
}

impl Trust {
    /// Loads the machine's authorities, and those in the file `extra` beside them.
    ///
    /// # Errors
    /// Where `extra` has no usable certificate.
    pub fn load(extra: Option<&Path>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        // A machine's store often has a file or two that can't be read: what can be is used.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = extra {
            let wrong = |detail: String| Error::File { path: path.to_owned(), detail };
            let mut added = 0;
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                added += 1;
            }
            if added == 0 {
                return Err(wrong("there is none in it".to_owned()));
            }
        }
        let count = roots.len();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Not h2: awc would use a connection of it for one request at a time, and has no way to be watched there.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), roots: count })
    }

    /// How many authorities are believed. With none, every https endpoint fails: worth a line at start.
    pub fn roots(&self) -> usize {
        self.roots
    }

    /// The TLS of a client.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}
