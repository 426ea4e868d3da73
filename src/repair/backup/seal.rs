//! Encryption of backups at their destination, with AES-256-GCM and a key of the operator.
//!
//! A sealed file is the line [`HEAD`], a random nonce, the ciphertext and its tag. The file's name
//! is authenticated with it, so one file cannot replace another. Names of pieces are keyed hashes,
//! which tell nothing about the contents.

use std::{fmt, fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom, SystemRandom},
};

/// The first line of a sealed file, with the version of the form.
pub(super) const HEAD: &[u8] = b"gridhook sealed 1\n";

/// The required content of a file of a key, for errors.
const KEY_FORM: &str = "32 bytes in base64, as `openssl rand -base64 32` prints them";

/// The keys that are derived from the operator's.
pub struct SealKey {
    names: hmac::Key,
    contents: LessSafeKey,
    random: SystemRandom,
}

/// What the file of a key must be.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    #[error("a readable file: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("a file with {KEY_FORM}")]
    Form,
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(hidden)")
    }
}

impl SealKey {
    /// Reads the key in a file.
    ///
    /// # Errors
    /// The file cannot be read or has another form; the message says what is allowed.
    pub fn read(path: &Path) -> Result<Self, SealKeyError> {
        let text = fs::read_to_string(path)?;
        let bytes = BASE64_STANDARD.decode(text.trim()).ok();
        let key: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        key.and_then(|key| Self::derive_keys(&key))
            .ok_or(SealKeyError::Form)
    }

    fn derive_keys(key: &[u8; 32]) -> Option<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let [names, contents] =
            ["names of a backup", "contents of a backup"].map(|of| hmac::sign(&key, of.as_bytes()));
        Some(Self {
            names: hmac::Key::new(hmac::HMAC_SHA256, names.as_ref()),
            contents: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, contents.as_ref()).ok()?),
            random: SystemRandom::new(),
        })
    }

    /// The hash that names these bytes.
    pub(super) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(hmac::sign(&self.names, bytes).as_ref());
        hash
    }

    pub(super) fn sealed_length(bytes: usize) -> usize {
        HEAD.len() + NONCE_LEN + bytes + AES_256_GCM.tag_len()
    }

    /// Seals the file `name`; [`None`] if the system has no random numbers.
    pub(super) fn seal_file(&self, name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut output = Vec::with_capacity(Self::sealed_length(bytes.len()));
        output.extend_from_slice(HEAD);
        output.extend_from_slice(&nonce);
        output.extend_from_slice(bytes);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(name.as_bytes());
        let tag = self
            .contents
            .seal_in_place_separate_tag(nonce, aad, &mut output[HEAD.len() + NONCE_LEN..])
            .ok()?;
        output.extend_from_slice(tag.as_ref());
        Some(output)
    }

    /// Opens the file `name`; [`None`] if it is damaged or was sealed with another key.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, contents) = sealed.strip_prefix(HEAD)?.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut contents = contents.to_vec();
        let plain = self
            .contents
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut contents)
            .ok()?
            .len();
        contents.truncate(plain);
        Some(contents)
    }
}
