//! Random secrets as text.

use std::io;

use base64::Engine;

/// Random bytes, encoded as text.
pub(super) fn random_text(bytes: usize, form: &impl Engine) -> io::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(form.encode(random))
}
