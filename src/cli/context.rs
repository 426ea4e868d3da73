//! `gridhook context`: servers by name, so that a command needs no flags to find one.
//!
//! A context names a server, the file of its token and the authority of its certificate. The file of contexts has no secret
//! in it: a token stays in the file that the operator named.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{self, Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::{
    client::{ClientError, OutputArgs, OutputFormat, TextTable, server_url},
    format, print, suggestion,
};

/// The flags of `context`.
#[derive(Debug, Args)]
#[command(
    after_help = "Contexts are kept in gridhook/contexts.toml below $XDG_CONFIG_HOME or ~/.config. The flags --server
and --context, and the variable GRIDHOOK_SERVER, take precedence over the context that is in use.

Examples:
  gridhook context add prod --server https://events.example.com --token-file ~/.gridhook/prod
  gridhook context use prod
  gridhook topics list --context staging"
)]
pub struct Contexts {
    #[command(subcommand)]
    verb: ContextCommand,
}

#[derive(Debug, Subcommand)]
enum ContextCommand {
    /// Add a context; the first one is used from then on
    Add {
        /// What to call it
        name: String,
        /// The server's control plane
        #[arg(long, value_name = "URL", value_parser = server_url)]
        server: Url,
        /// A file with the operator's token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// A PEM file with the authority of the server's certificate
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        #[command(flatten)]
        printed: OutputArgs,
    },
    /// Use a context in all commands that name no server
    Use {
        /// Its name
        name: String,
        #[command(flatten)]
        printed: OutputArgs,
    },
    /// List the contexts
    List {
        #[command(flatten)]
        printed: OutputArgs,
    },
    /// Remove a context
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        printed: OutputArgs,
    },
}

/// A server, as an operator reaches it.
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
    /// The server's address.
    pub(super) fn server(&self) -> Result<Url, ClientError> {
        server_url(&self.server)
            .map_err(|allowed| ClientError::Input(format!("the server of a context is \"{}\"; {allowed}", self.server)))
    }
}

/// What the file has.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContextFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ServerContext>,
}

impl ContextFile {
    /// The file; [`None`] where this user has no home.
    fn path() -> Option<PathBuf> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?;
        Some(folder.join("gridhook/contexts.toml"))
    }

    /// What is known; nothing where there is no file.
    pub(super) fn load() -> Result<Self, ClientError> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // A folder that this user may not look into has no contexts of theirs.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(ClientError::Input(format!("{} cannot be read: {error}", path.display()))),
        };
        toml::from_str(&text)
            .map_err(|error| ClientError::Input(format!("{}: {}", path.display(), error.to_string().trim_end())))
    }

    /// Written beside and then renamed: a crash leaves the old file or the new one.
    fn save(&self) -> Result<(), ClientError> {
        let path = Self::path().ok_or_else(|| {
            ClientError::Input("there is no folder for contexts: set HOME or XDG_CONFIG_HOME".to_owned())
        })?;
        let text = toml::to_string(self).expect("contexts are TOML");
        let draft = path.with_extension("new");
        let written = (|| {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        })();
        written.map_err(|error| ClientError::Input(format!("{} cannot be written: {error}", path.display())))
    }

    /// The context of that name.
    pub(super) fn get(&self, name: &str) -> Result<&ServerContext, ClientError> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let hint = match (suggestion::like(name, &names).first(), names.is_empty()) {
                (Some(like), _) => format!("did you mean {like}?"),
                (None, true) => "gridhook context add makes one".to_owned(),
                (None, false) => format!("there are {}", names.join(", ")),
            };
            ClientError::Input(format!("there is no context {name}; {hint}"))
        })
    }
}

impl Contexts {
    /// Does it; what is to be printed.
    ///
    /// # Errors
    /// Where there is no such context, or the file cannot be read or written.
    pub fn run(self) -> Result<String, ClientError> {
        let mut known = ContextFile::load()?;
        match self.verb {
            ContextCommand::Add { name, server, token_file, ca_file, printed } => {
                if known.contexts.contains_key(&name) {
                    let hint = format!("gridhook context remove {name} removes it");
                    return Err(ClientError::Input(format!("there is a context {name} already; {hint}")));
                }
                // A command may run in another folder.
                let whole = |file: PathBuf| path::absolute(&file).unwrap_or(file);
                let context = ServerContext {
                    server: server.into(),
                    token_file: token_file.map(whole),
                    ca_file: ca_file.map(whole),
                };
                known.contexts.insert(name.clone(), context);
                let is_used = known.current.is_none();
                if is_used {
                    known.current = Some(name.clone());
                }
                known.save()?;
                let next = if is_used {
                    "it is used from now on".to_owned()
                } else {
                    format!("gridhook context use {name} uses it")
                };
                Ok(format_output(&printed, &known, || format!("added the context {name}; {next}")))
            }
            ContextCommand::Use { name, printed } => {
                known.get(&name)?;
                known.current = Some(name.clone());
                known.save()?;
                Ok(format_output(&printed, &known, || format!("the context {name} is used from now on")))
            }
            ContextCommand::List { printed } => Ok(format_output(&printed, &known, || table(&known))),
            ContextCommand::Remove { name, printed } => {
                known.get(&name)?;
                known.contexts.remove(&name);
                if known.current.as_deref() == Some(&name) {
                    known.current = None;
                }
                known.save()?;
                Ok(format_output(&printed, &known, || format!("removed the context {name}")))
            }
        }
    }
}

fn format_output(printed: &OutputArgs, known: &ContextFile, text: impl FnOnce() -> String) -> String {
    match printed.output {
        OutputFormat::Table => text(),
        OutputFormat::Json => print::json(&json!({"current": known.current, "contexts": known.contexts})),
    }
}

fn table(known: &ContextFile) -> String {
    if known.contexts.is_empty() {
        return "no contexts; gridhook context add makes one".to_owned();
    }
    let mut table = TextTable::new(["NAME", "USED", "SERVER", "TOKEN FILE", "CA FILE"]);
    for (name, ServerContext { server, token_file, ca_file }) in &known.contexts {
        let file =
            |file: &Option<PathBuf>| file.as_ref().map_or(format::NONE.to_owned(), |file| file.display().to_string());
        let used = if known.current.as_deref() == Some(name) { "yes" } else { format::NONE };
        table.line([name.clone(), used.to_owned(), server.clone(), file(token_file), file(ca_file)]);
    }
    table.to_string()
}
