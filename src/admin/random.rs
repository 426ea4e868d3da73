//! Random secrets as text.

use base64::Engine;

/// The system returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoRandomBytes(getrandom::Error);

/// Random bytes, encoded as text.
pub(super) fn random_text(bytes: usize, form: &impl Engine) -> Result<String, NoRandomBytes> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(NoRandomBytes)?;
    Ok(form.encode(random))
}
