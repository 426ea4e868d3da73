//! Certificates of the tests: an authority, and certificates that it signs.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use gridhook::clock::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_RSA_SHA256,
    PublicKeyData, SignatureAlgorithm,
};
use ring::{
    digest::{SHA256, digest},
    rsa::PublicKeyComponents,
    signature::{KeyPair as _, RsaKeyPair},
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::Resumption,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The ends of certificates as metrics have them: by file, in whole days from now.
pub(crate) fn days_left(metrics: &str) -> BTreeMap<String, u64> {
    let days_left = |line: &str| {
        let rest = line.strip_prefix("gridhook_certificate_not_after_timestamp_seconds{file=\"")?;
        let (file, end) = rest.split_once("\"} ").expect("a label and a value");
        let left = Duration::from_secs(end.parse().expect("seconds"))
            - Duration::from_micros(Clock::system().now().0);
        Some((file.to_owned(), (left + DAY / 2).as_secs() / DAY.as_secs()))
    };
    metrics.lines().filter_map(days_left).collect()
}

/// A certificate authority that only clients with its certificate trust.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key: KeyPair,
}

/// An RSA key of the tests.
const RSA: &[u8] = include_bytes!("../data/issuer.rsa.der");

/// The key of [`RSA`] as a key pair.
pub(crate) static RSA_KEY: LazyLock<RsaKeyPair> =
    LazyLock::new(|| RsaKeyPair::from_der(RSA).expect("a key"));

/// The public half of [`RSA_KEY`].
struct RsaPublicKey;

impl PublicKeyData for RsaPublicKey {
    fn der_bytes(&self) -> &[u8] {
        RSA_KEY.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

pub(crate) struct IssuedRsa {
    pub(crate) der: CertificateDer<'static>,
    pem: String,
}

impl IssuedRsa {
    /// Writes the certificate and its key as `NAME.crt` and `NAME.key`.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        let key = BASE64_STANDARD.encode(RSA);
        let lines: Vec<&str> = key
            .as_bytes()
            .chunks(64)
            .map(|line| str::from_utf8(line).expect("base64"))
            .collect();
        let key = format!(
            "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n",
            lines.join("\n")
        );
        std::fs::write(folder.join(format!("{name}.crt")), &self.pem).expect("written");
        std::fs::write(folder.join(format!("{name}.key")), key).expect("written");
    }

    /// The thumbprint that assertions have as `x5t#S256` (RFC 7515).
    pub(crate) fn thumbprint(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &self.der))
    }

    /// Modulus and exponent of the certificate's key.
    pub(crate) fn public(&self) -> PublicKeyComponents<Vec<u8>> {
        RSA_KEY.public().into()
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed whose issuer is called like its subject.
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority of the tests");
        Self(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("an authority"),
        )
    }

    /// The certificate of the authority, for clients and servers that trust it.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name or an address.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.sign(CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// A certificate of the RSA key of the tests.
    pub(crate) fn issue_rsa(&self, name: &str) -> IssuedRsa {
        self.sign_rsa(CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// Issues a certificate of [`RSA_KEY`] that expired at the end of 2019.
    pub(crate) fn expired_rsa(&self, name: &str) -> IssuedRsa {
        self.sign_rsa(ended(name))
    }

    fn sign_rsa(&self, params: CertificateParams) -> IssuedRsa {
        let certificate = params.signed_by(&RsaPublicKey, &self.0).expect("signed");
        IssuedRsa {
            der: certificate.der().clone(),
            pem: certificate.pem(),
        }
    }

    /// A certificate that expired with the year 2019.
    pub(crate) fn expired(&self, name: &str) -> Issued {
        self.sign(ended(name))
    }

    /// A certificate that expires after this time.
    pub(crate) fn ending(&self, name: &str, within: Duration) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let now = Duration::from_micros(Clock::system().now().0);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + within;
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        Issued {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            key,
        }
    }

    /// An endpoint with a certificate for `name` that speaks `versions`.
    pub(crate) fn endpoint(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        self.server(name, versions, WebPkiClientVerifier::no_client_auth())
    }

    /// An endpoint that demands a client certificate of this authority.
    pub(crate) fn demanding(&self, name: &str) -> Arc<ServerConfig> {
        let builder =
            WebPkiClientVerifier::builder_with_provider(self.roots(), Arc::new(default_provider()));
        self.server(
            name,
            rustls::ALL_VERSIONS,
            builder.build().expect("an authority"),
        )
    }

    fn server(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        callers: Arc<dyn ClientCertVerifier>,
    ) -> Arc<ServerConfig> {
        let Issued {
            certificate, key, ..
        } = self.issue(name);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_client_cert_verifier(callers)
            .with_single_cert(
                vec![certificate],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .expect("an identity");
        Arc::new(config)
    }

    /// The configuration of a client that trusts the authority, and requires a certificate on each
    /// connection.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a certificate");
        Arc::new(roots)
    }
}

fn ended(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    params
}

impl Issued {
    /// Writes both as `NAME.crt` and `NAME.key`.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(format!("{name}.crt")), &self.pem).expect("written");
        std::fs::write(folder.join(format!("{name}.key")), self.key.serialize_pem())
            .expect("written");
    }
}
