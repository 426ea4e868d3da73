//! `gridhook context`: named servers, so that commands need no connection flags.
//!
//! A context has the server's URL, the path of a token file and the path of a certificate
//! authority. It contains no secret.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{self, Path, PathBuf},
};

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::{
    client::{ClientError, ClientResult, server_url},
    format,
    output::{OutputArgs, TextTable},
    suggestion,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Contexts are stored in $XDG_CONFIG_HOME/gridhook/contexts.toml or ~/.config/gridhook/contexts.toml. The
flags --server and --context and the variable GRIDHOOK_SERVER take precedence over the context in use.

Examples:
  gridhook context add prod --server https://events.example.com --token-file ~/.gridhook/prod
  gridhook context use prod
  gridhook topics list --context staging")]
pub enum Contexts {
    /// Add a context; the first one becomes the context in use
    Add {
        /// Name of the context
        name: String,
        /// URL of the server's control plane
        #[arg(long, value_name = "URL", value_parser = server_url)]
        server: Url,
        /// File with the operator's token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// PEM file with a certificate authority to trust
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Select the context for commands that name no server
    Use {
        /// Name of the context
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List the contexts
    List(OutputArgs),
    /// Remove a context
    Remove {
        /// Name of the context
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// A server and how to connect to it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerContext {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<PathBuf>,
}

impl ServerContext {
    pub(super) fn server_url(&self) -> ClientResult<Url> {
        server_url(&self.server).map_err(|allowed| {
            ClientError::Input(format!(
                "contexts.toml: server is \"{}\"; {allowed}",
                self.server
            ))
        })
    }
}

/// The content of the file.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContextFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ServerContext>,
}

impl ContextFile {
    /// The path of the file; [`None`] if the user has no home folder.
    fn file_path() -> Option<PathBuf> {
        let folder = match folder_variable("XDG_CONFIG_HOME") {
            Some(folder) => folder,
            None => folder_variable("HOME")?.join(".config"),
        };
        Some(folder.join("gridhook/contexts.toml"))
    }

    /// Reads the file; without a file there are no contexts.
    pub(super) fn load_contexts() -> ClientResult<Self> {
        let Some(path) = Self::file_path() else {
            return Ok(Self::default());
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // A service user may not have access to the home folder that it is given.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(ClientError::Input(format!(
                    "{} cannot be read: {error}",
                    path.display()
                )));
            }
        };
        toml::from_str(&text).map_err(|error| {
            ClientError::Input(format!(
                "{}: {}",
                path.display(),
                error.to_string().trim_end()
            ))
        })
    }

    /// Writes a temporary file and renames it, so that a crash leaves the old file or the new one.
    fn save_contexts(&self) -> ClientResult<()> {
        let path = Self::file_path().ok_or_else(|| {
            ClientError::Input(
                "no folder for contexts.toml; set HOME or XDG_CONFIG_HOME".to_owned(),
            )
        })?;
        let text = toml::to_string(self).expect("contexts serialize to TOML");
        let draft = path.with_extension("new");
        let written = (|| {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        })();
        written.map_err(|error| {
            ClientError::Failed(format!("{} cannot be written: {error}", path.display()))
        })
    }

    pub(super) fn get(&self, name: &str) -> ClientResult<&ServerContext> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let hint = match (
                suggestion::similar_names(name, &names).first(),
                names.is_empty(),
            ) {
                (Some(like), _) => format!("did you mean {like}?"),
                (None, true) => "add one with gridhook context add".to_owned(),
                (None, false) => format!("expected one of {}", names.join(", ")),
            };
            ClientError::Input(format!("there is no context {name}; {hint}"))
        })
    }
}

impl Contexts {
    /// Runs the command and returns the text to print.
    ///
    /// # Errors
    /// The context does not exist, or the file cannot be read or written.
    pub fn run(self) -> ClientResult {
        let mut contexts_file = ContextFile::load_contexts()?;
        match self {
            Self::Add {
                name,
                server,
                token_file,
                ca_file,
                output,
            } => {
                if contexts_file.contexts.contains_key(&name) {
                    let hint = format!("remove it first with gridhook context remove {name}");
                    return Err(ClientError::Failed(format!(
                        "the context {name} already exists; {hint}"
                    )));
                }
                // Later commands may run in another folder.
                let absolute = |file: PathBuf| path::absolute(&file).unwrap_or(file);
                let context = ServerContext {
                    server: server.into(),
                    token_file: token_file.map(absolute),
                    ca_file: ca_file.map(absolute),
                };
                contexts_file.contexts.insert(name.clone(), context);
                let is_used = contexts_file.current.is_none();
                if is_used {
                    contexts_file.current = Some(name.clone());
                }
                contexts_file.save_contexts()?;
                let next = if is_used {
                    "it is now in use".to_owned()
                } else {
                    format!("select it with gridhook context use {name}")
                };
                Ok(format_output(&output, &contexts_file, || {
                    format!("context {name} added; {next}")
                }))
            }
            Self::Use { name, output } => {
                contexts_file.get(&name)?;
                contexts_file.current = Some(name.clone());
                contexts_file.save_contexts()?;
                Ok(format_output(&output, &contexts_file, || {
                    format!("context {name} is now in use")
                }))
            }
            Self::List(output) => Ok(format_output(&output, &contexts_file, || {
                format_table(&contexts_file)
            })),
            Self::Remove { name, output } => {
                contexts_file.get(&name)?;
                contexts_file.contexts.remove(&name);
                if contexts_file.current.as_deref() == Some(&name) {
                    contexts_file.current = None;
                }
                contexts_file.save_contexts()?;
                Ok(format_output(&output, &contexts_file, || {
                    format!("context {name} removed")
                }))
            }
        }
    }
}

fn format_output(
    output: &OutputArgs,
    contexts_file: &ContextFile,
    text: impl FnOnce() -> String,
) -> String {
    let mut contexts = Vec::new();
    for (name, context) in &contexts_file.contexts {
        contexts.push(json!({
            "name": name,
            "inUse": contexts_file.current.as_deref() == Some(name),
            "server": context.server,
            "tokenFile": context.token_file,
            "caFile": context.ca_file,
        }));
    }
    output.format_value(&json!({ "value": contexts }), |_| text())
}

/// A folder that an environment variable names; [`None`] if it is unset or empty.
fn folder_variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name)?;
    (!value.is_empty()).then(|| value.into())
}

fn format_table(contexts_file: &ContextFile) -> String {
    if contexts_file.contexts.is_empty() {
        return "no contexts; add one with gridhook context add".to_owned();
    }
    let mut table = TextTable::new(["NAME", "IN USE", "SERVER", "TOKEN FILE", "CA FILE"]);
    for (
        name,
        ServerContext {
            server,
            token_file,
            ca_file,
        },
    ) in &contexts_file.contexts
    {
        let file = |file: &Option<PathBuf>| {
            file.as_ref()
                .map_or(format::NONE.to_owned(), |file| file.display().to_string())
        };
        let is_current = if contexts_file.current.as_deref() == Some(name) {
            "yes"
        } else {
            format::NONE
        };
        table.add_row([
            name.clone(),
            is_current.to_owned(),
            server.clone(),
            file(token_file),
            file(ca_file),
        ]);
    }
    table.to_string()
}
