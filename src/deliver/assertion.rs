//! The signed assertion with which the server proves its identity to an issuer of tokens, in place
//! of a secret: RFC 7523 with a certificate, as Entra ID expects it (PS256, `x5t#S256`).
//!
//! Certificate and key are read for each assertion, so that they can be replaced without a restart.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::rand::{SystemRandom, generate};
use rustls::{
    SignatureScheme, crypto::ring::default_provider, pki_types::CertificateDer, sign::CertifiedKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    error::AssertionError,
    trust::{TrustError, load_identity, unusable_file},
};
use gridhook_event::WallTime;

pub(super) const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How long an assertion is valid. It is sent at once and only once.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The files of a certificate and of its RSA key.
#[derive(Clone, Debug)]
pub struct IdentityCertificate {
    /// The file of the certificate, PEM.
    pub certificate: PathBuf,
    /// The file of the RSA key, PEM.
    pub key: PathBuf,
}

impl IdentityCertificate {
    /// The certificate without its chain.
    ///
    /// # Errors
    /// If a file cannot be used, the key is not that of the certificate, or it is not an RSA key.
    pub fn end_entity(&self) -> Result<CertificateDer<'static>, TrustError> {
        Ok(self.load_certificate()?.0)
    }

    fn load_certificate(
        &self,
    ) -> Result<(CertificateDer<'static>, Box<dyn rustls::sign::Signer>), TrustError> {
        let (chain, key) = load_identity(&self.certificate, &self.key)?;
        let certified_key = CertifiedKey::from_der(chain, key, &default_provider())
            .map_err(|error| unusable_file(&self.certificate, error))?;
        let signer = certified_key
            .key
            .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]);
        let signer = signer.ok_or_else(|| {
            unusable_file(
                &self.key,
                "the key is not an RSA key, which issuers of tokens need",
            )
        })?;
        Ok((certified_key.cert[0].clone().into_owned(), signer))
    }

    /// An assertion of `client_id` for `audience`, the URL of tokens.
    pub(super) fn sign_assertion(
        &self,
        client_id: &str,
        audience: &str,
        wall: WallTime,
    ) -> Result<String, AssertionError> {
        let (certificate, signer) = self.load_certificate()?;
        let id: [u8; 16] = generate(&SystemRandom::new())
            .map_err(|_| AssertionError::Random)?
            .expose();
        let seconds = wall.since_epoch().as_secs();
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let part = |value: &Value| text(value.to_string().as_bytes());
        let header =
            json!({"alg": "PS256", "typ": "JWT", "x5t#S256": text(&Sha256::digest(&certificate))});
        let claims = json!({
            "aud": audience, "iss": client_id, "sub": client_id, "jti": text(&id),
            "iat": seconds, "nbf": seconds, "exp": seconds + LIFETIME.as_secs(),
        });
        let content = format!("{}.{}", part(&header), part(&claims));
        let signature = signer.sign(content.as_bytes())?;
        Ok(format!("{content}.{}", text(&signature)))
    }
}
