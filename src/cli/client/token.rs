//! The operator's token and other secrets: flags, environment and files.

use std::{fs, io, path::Path};

use url::Url;

use super::{
    ClientError, ClientResult, ServerArgs,
    address::{ChosenServer, is_loopback, read_variable},
};

/// Checks a token or a key from a file or a variable: one line of visible ASCII, so that it fits a
/// header.
pub(crate) fn check_secret(text: &str, from: &str) -> ClientResult {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let problem = match lines[..] {
        [] => "is empty".to_owned(),
        [secret] if secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Ok(secret.to_owned());
        }
        [_] => "has a space or a character that is not visible ASCII".to_owned(),
        [..] => format!("has {} lines", lines.len()),
    };
    Err(ClientError::Input(format!(
        "{from} {problem}; expected one line of visible ASCII characters"
    )))
}

/// Reads a secret from a file.
pub(crate) fn read_secret(file: &Path) -> ClientResult {
    let text = fs::read_to_string(file).map_err(|error| {
        ClientError::Input(format!("{} cannot be read: {error}", file.display()))
    })?;
    check_secret(&text, &file.display().to_string())
}

/// The token files of a server started in this folder, and of the package's server.
const TOKEN_FILES: [&str; 3] = [
    "data/admin-token",
    "/run/gridhook/admin-token",
    "/var/lib/gridhook/admin-token",
];

pub(super) struct OperatorToken {
    pub(super) secret: String,
    /// The source of the token, for error messages.
    pub(super) from: String,
    /// Whether it was read from a token file of this machine, because no other token is named.
    is_local: bool,
}

impl OperatorToken {
    fn read(file: &Path) -> ClientResult<Self> {
        Ok(Self {
            secret: read_secret(file)?,
            from: file.display().to_string(),
            is_local: false,
        })
    }

    /// Refuses to send the token of this machine's server to another machine, which could use it.
    pub(super) fn check_recipient(&self, server: &Url) -> ClientResult<()> {
        if !self.is_local || is_loopback(server) {
            return Ok(());
        }
        Err(ClientError::Input(format!(
            "{server}: no token for this server; use --token-file, set GRIDHOOK_TOKEN, or add a \
             context with --token-file. The token in {} is sent only to a server of this machine",
            self.from
        )))
    }
}

impl ServerArgs {
    /// The token for the server. The token file of a context named by a flag takes precedence over
    /// `GRIDHOOK_TOKEN`, which may belong to another server.
    pub(super) fn operator_token(&self, address: &ChosenServer) -> ClientResult<OperatorToken> {
        let context_file = address
            .context
            .as_ref()
            .and_then(|context| context.token_file.as_deref());
        match (
            &self.token_file,
            context_file,
            read_variable("GRIDHOOK_TOKEN")?,
        ) {
            (Some(path), ..) => return OperatorToken::read(path),
            (None, Some(path), _) if address.is_named => return OperatorToken::read(path),
            (None, _, Some(token)) => {
                let from = "environment variable GRIDHOOK_TOKEN".to_owned();
                return Ok(OperatorToken {
                    secret: check_secret(&token, &from)?,
                    from,
                    is_local: false,
                });
            }
            (None, Some(path), None) => return OperatorToken::read(path),
            (None, None, None) => {}
        }
        let mut unreadable = String::new();
        for path in TOKEN_FILES.map(Path::new) {
            match fs::read_to_string(path) {
                Ok(text) => {
                    let from = path.display().to_string();
                    let token = OperatorToken {
                        secret: check_secret(&text, &from)?,
                        from,
                        is_local: true,
                    };
                    if !address.is_default {
                        token.check_recipient(&address.server)?;
                    }
                    return Ok(token);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable = format!(" ({}: {error})", path.display()),
            }
        }
        Err(ClientError::Input(format!(
            "no operator's token found{unreadable}; use --token-file, set GRIDHOOK_TOKEN, or add a \
             context with gridhook context add. A server stores its token in the file admin-token \
             in its data folder"
        )))
    }
}
