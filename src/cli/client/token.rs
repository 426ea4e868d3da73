//! The operator's token and other secrets: flags, environment and files.

use std::{fs, io, path::Path};

use super::{
    ClientError, ServerArgs,
    address::{ChosenServer, variable},
};

/// Checks a token or a key from a file or a variable: one line of visible ASCII, so that it fits a header.
pub(crate) fn secret(text: &str, from: &str) -> Result<String, ClientError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let problem = match lines[..] {
        [] => "is empty".to_owned(),
        [secret] if secret.bytes().all(|byte| byte.is_ascii_graphic()) => return Ok(secret.to_owned()),
        [_] => "has a space or a character that is not visible ASCII".to_owned(),
        [..] => format!("has {} lines", lines.len()),
    };
    Err(ClientError::Input(format!("{from} {problem}; allowed is one line of visible ASCII characters")))
}

/// Reads a secret from a file.
pub(crate) fn secret_in(file: &Path) -> Result<String, ClientError> {
    let text = fs::read_to_string(file)
        .map_err(|error| ClientError::Input(format!("{} cannot be read: {error}", file.display())))?;
    secret(&text, &file.display().to_string())
}

/// The token files of a server started in this folder, and of the package's server.
const TOKEN_FILES: [&str; 3] = ["data/admin-token", "/run/gridhook/admin-token", "/var/lib/gridhook/admin-token"];

impl ServerArgs {
    /// The token and its source. The token file of a context named by a flag takes precedence over `GRIDHOOK_TOKEN`, which
    /// may belong to another server.
    pub(super) fn token(&self, chosen: &ChosenServer) -> Result<(String, String), ClientError> {
        let of_file = |path: &Path| Ok((secret_in(path)?, path.display().to_string()));
        let of_context = chosen.context.as_ref().and_then(|context| context.token_file.as_deref());
        match (&self.token_file, of_context, variable("GRIDHOOK_TOKEN")?) {
            (Some(path), ..) => return of_file(path),
            (None, Some(path), _) if chosen.is_named => return of_file(path),
            (None, _, Some(token)) => {
                let from = "environment variable GRIDHOOK_TOKEN";
                return Ok((secret(&token, from)?, from.to_owned()));
            }
            (None, Some(path), None) => return of_file(path),
            (None, None, None) => {}
        }
        let mut unreadable = String::new();
        for path in TOKEN_FILES.map(Path::new) {
            match fs::read_to_string(path) {
                Ok(text) => return Ok((secret(&text, &path.display().to_string())?, path.display().to_string())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable = format!(" ({}: {error})", path.display()),
            }
        }
        Err(ClientError::Input(format!(
            "no operator's token found{unreadable}; use --token-file, set GRIDHOOK_TOKEN, or add a context with gridhook \
             context add. A server stores its token in the file admin-token in its data folder"
        )))
    }
}
