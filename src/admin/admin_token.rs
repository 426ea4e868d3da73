//! The admin token and its file.
//!
//! There is one admin token, configured or generated at the first start. It is compared in constant
//! time and never logged. Its file is private:
//! - a file that others may *read* gets mode 0600 and a warning, because the token may be known;
//! - a file that others may *write* is refused, because the token may have been replaced.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tracing::warn;

use super::random::random_text;

/// 256 bits cannot be guessed; wrong tokens are delayed by address all the same.
const TOKEN_BYTES: usize = 32;

/// Maximum length of a token; the rest of a longer file is ignored.
const TOKEN_LEN_MAX: u64 = 4096;

/// The name of the admin token in errors.
const ADMIN_TOKEN: &str = "the admin token";

/// Mode of files that only the server's user may read.
const PRIVATE: u32 = 0o600;

/// Mode of files that the group may read, too.
const SHARED: u32 = 0o640;

/// Origin of the admin token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOrigin {
    Configured,
    /// The file in the data folder.
    Stored,
    /// Generated now, and written to the data folder.
    Generated,
}

#[derive(Clone)]
pub struct AdminToken {
    /// The text of the token. All clones share it, so that it can be replaced.
    text: Arc<RwLock<String>>,
    replaced: Arc<watch::Sender<()>>,
    origin: TokenOrigin,
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminToken")
            .field("text", &"[hidden]")
            .field("origin", &self.origin)
            .finish()
    }
}

impl AdminToken {
    /// The token of a setting for another purpose than operating.
    ///
    /// # Errors
    /// If a header cannot carry it.
    pub fn from_setting(setting: &str, text: &str) -> io::Result<Self> {
        Self::new(setting, text, TokenOrigin::Configured)
    }

    fn new(name: &str, text: &str, origin: TokenOrigin) -> io::Result<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{name} is empty or has a character that no header can carry; expected \
                     visible ASCII characters without spaces"
                ),
            ));
        }
        Ok(Self {
            text: Arc::new(RwLock::new(text.to_owned())),
            replaced: Arc::default(),
            origin,
        })
    }

    pub fn origin(&self) -> TokenOrigin {
        self.origin
    }

    /// Whether `given` is this token. Comparing digests takes the same time for all inputs.
    pub fn matches(&self, given: &str) -> bool {
        Sha256::digest(given)
            .ct_eq(&Sha256::digest(self.to_text()))
            .into()
    }

    /// A channel that changes when the token is replaced.
    pub(super) fn replacements(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Replaces the token of all clones. Returns whether it changed.
    pub fn replace_with(&self, fresh: &Self) -> bool {
        let old = self.to_text();
        let fresh = fresh.to_text();
        let changed = old != fresh;
        *self.text.write() = fresh;
        if changed {
            self.replaced.send_replace(());
        }
        changed
    }

    fn to_text(&self) -> String {
        self.text.read().clone()
    }
}

/// File of the generated token.
pub fn token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin-token")
}

/// The admin token: `configured`, or the one stored in `data_dir`, or a new one that is written
/// there. The data folder exists and belongs to the server alone.
pub fn load_or_create(configured: Option<&str>, data_dir: &Path) -> io::Result<AdminToken> {
    if let Some(given) = configured.filter(|given| !given.is_empty()) {
        return AdminToken::new(ADMIN_TOKEN, given, TokenOrigin::Configured);
    }
    let path = token_path(data_dir);
    match File::open(&path) {
        Ok(file) => read_token_file(file, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_token(data_dir),
        Err(error) => Err(with_path(&path, &error)),
    }
}

/// Writes the token to `folder` for the operators of this machine. It is the service's runtime
/// folder, which only members of its group may enter.
pub fn share_with_group(token: &AdminToken, folder: &Path) -> io::Result<()> {
    write(token, folder, SHARED)
}

fn read_token_file(file: File, path: &Path) -> io::Result<AdminToken> {
    let about = |error: io::Error| with_path(path, &error);
    let meta = file.metadata().map_err(about)?;
    let mode = meta.permissions().mode() & 0o777;
    if !meta.is_file() {
        return Err(with_path(
            path,
            &io::Error::new(io::ErrorKind::InvalidData, "it is not a file"),
        ));
    }
    if mode & 0o022 != 0 {
        let text = format!(
            "others may write it (mode {mode:04o}), so the token may have been replaced; expected \
             0600. Remove the file to generate a new token, or change its mode if you trust its \
             content"
        );
        return Err(with_path(
            path,
            &io::Error::new(io::ErrorKind::PermissionDenied, text),
        ));
    }
    if mode & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(PRIVATE))
            .map_err(about)?;
        warn!(path = %path.display(), mode = format!("{mode:04o}"), "others could read the admin \
            token; its file is now private");
    }
    let mut text = String::new();
    file.take(TOKEN_LEN_MAX)
        .read_to_string(&mut text)
        .map_err(about)?;
    AdminToken::new(ADMIN_TOKEN, text.trim(), TokenOrigin::Stored).map_err(about)
}

fn create_token(data_dir: &Path) -> io::Result<AdminToken> {
    let token = AdminToken::new(
        ADMIN_TOKEN,
        &random_text(TOKEN_BYTES, &URL_SAFE_NO_PAD).map_err(io::Error::other)?,
        TokenOrigin::Generated,
    )?;
    write(&token, data_dir, PRIVATE)?;
    Ok(token)
}

/// Written to a temporary file and renamed: a crash leaves a complete token or none.
fn write(token: &AdminToken, folder: &Path, mode: u32) -> io::Result<()> {
    let path = token_path(folder);
    let draft = path.with_extension("new");
    let written = (|| {
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&draft)?;
        writeln!(file, "{}", token.to_text())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(|error| with_path(&path, &error))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the admin token in {}: {error}", path.display()),
    )
}
