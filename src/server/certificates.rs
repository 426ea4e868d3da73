//! The certificates that the server shows to others, and when they end: for the metrics and the
//! system topic.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{client_listeners::ClientListeners, tls::ReloadableCertificate};
use gridhook_admin::metrics::CertificateEnds;
use gridhook_config::{Config, IdentityConfig, IdentityProofConfig};
use gridhook_deliver::trust::{self, ClientCertificates};
use gridhook_event::Timestamp;

/// A certificate that the server shows.
pub(super) struct ShownCertificate {
    /// The name under which operators know the certificate.
    pub(super) name: String,
    file: PathBuf,
    pub(super) not_after: Timestamp,
}

/// Reads the certificates in use. Blocks.
pub(super) type ShownCertificates = Arc<dyn Fn() -> Vec<ShownCertificate> + Send + Sync>;

/// The certificates of a server that delivers. `node` has the certificates of a node of a cluster.
pub(super) fn certificates_of_owner(
    config: &Config,
    address: &ClientListeners,
    node: &[Arc<ReloadableCertificate>],
    clients: &ClientCertificates,
) -> ShownCertificates {
    let clients = clients.clone();
    list_certificates(config, address, node, move |_| clients.end_entities())
}

/// The certificates of a standby. It loads the client certificates of deliveries once it delivers,
/// so their files are read.
pub(super) fn certificates_of_standby(
    config: &Config,
    address: &ClientListeners,
    node: &[Arc<ReloadableCertificate>],
) -> ShownCertificates {
    list_certificates(config, address, node, trust::end_entities)
}

fn list_certificates(
    config: &Config,
    address: &ClientListeners,
    node: &[Arc<ReloadableCertificate>],
    clients: impl Fn(&Path) -> Vec<(String, CertificateDer<'static>)> + Send + Sync + 'static,
) -> ShownCertificates {
    let server_certificates: Vec<_> = address.shown.iter().chain(node).cloned().collect();
    let folder = config.delivery.client_certificates_dir.clone();
    let identity =
        config
            .delivery
            .identity
            .as_ref()
            .and_then(|IdentityConfig { proof, .. }| match proof {
                IdentityProofConfig::Certificate { certificate, .. } => Some(certificate.clone()),
                IdentityProofConfig::Secret(_) => None,
            });
    Arc::new(move || {
        let mut certificates = Vec::new();
        for certificate in &server_certificates {
            if let Some((file, certificate)) = certificate.end_entity() {
                certificates.push((file.display().to_string(), file, certificate));
            }
        }
        if let Some(file) = &identity
            // It is read for each token.
            && let Ok(certificate) = CertificateDer::from_pem_file(file)
        {
            let name = "delivery.identity_certificate_file".to_owned();
            certificates.push((name, file.clone(), certificate));
        }
        if let Some(folder) = &folder {
            for (name, certificate) in clients(folder) {
                let file = folder.join(format!("{name}.{}", trust::CLIENT_CERTIFICATE));
                certificates.push((name, file, certificate));
            }
        }
        let certificates = certificates.into_iter();
        let shown = certificates.filter_map(|(name, file, certificate)| {
            Some(ShownCertificate {
                name,
                file,
                not_after: not_after(&certificate)?,
            })
        });
        shown.collect()
    })
}

/// The ends by file. Of a file with two uses, one of which has not read it again yet, the earlier
/// one.
pub(super) fn certificate_expiries(shown: ShownCertificates) -> CertificateEnds {
    Arc::new(move || {
        let mut ends = BTreeMap::new();
        for ShownCertificate {
            file, not_after, ..
        } in shown()
        {
            let end = ends.entry(file.display().to_string()).or_insert(not_after);
            *end = not_after.min(*end);
        }
        ends
    })
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let validity = trust::read_validity(certificate)?;
    let seconds = u64::try_from(validity.not_after.timestamp()).unwrap_or_default();
    Some(Timestamp(seconds.saturating_mul(1_000_000)))
}
