//! `gridhook backup` and `gridhook restore`.
//!
//! The server writes the backup, to a folder of its own machine or to the destination of its
//! settings. Lists, rehearsals and restores run without a server.

use std::{
    ops::ControlFlow,
    path::{self, PathBuf},
};

use rustix::{fs::Mode, process::umask};
use serde_json::{Value, json};

use super::{
    Serve,
    client::{ClientError, ServerArgs},
    control_records::control_records,
    format::{count_with_noun, format_span, join_texts},
    output::{CommandError, CommandOutcome, OutputArgs, TextTable, read},
    print,
    spinner::Spinner,
    stream::follow_progress,
};
use gridhook_api::store::{BackupBody, BackupView, ProgressLine};
use gridhook_clock::Clock;
use gridhook_config as config;
use gridhook_config::Config;
use gridhook_escape as escape;
use gridhook_policy::dead_letter_store::is_address;
use gridhook_repair::{
    backup::{self, BackupAt, BackupList, Repository, StoredBackup, UnreadableBackup},
    fsck::CheckReport,
    salvage::{self, SalvageResult},
};
use gridhook_storage::{destination::backup_destination, record_decoders, store_options};
use gridhook_store::watermark::{self, WatermarkValue};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  gridhook backup /srv/backups/monday\n  gridhook backup list \
        --config gridhook.toml\nThe exit status is 1 if the check of the backup finds damage."
)]
pub struct Backup {
    #[command(subcommand)]
    offline: Option<OfflineBackup>,
    /// Empty or new folder on the server's machine [default: the destination of the settings,
    /// backup.store]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// What needs no server.
#[derive(Debug, clap::Subcommand)]
pub enum OfflineBackup {
    /// List the backups of a destination
    List(DestinationArgs),
    /// Restore a backup to a temporary folder, check it, and say what a restore would lose
    Rehearse(Rehearse),
}

/// The flags that name a destination.
#[derive(Debug, clap::Args)]
pub struct DestinationArgs {
    /// Address of the destination, or a folder [default: backup.store.url]
    #[arg(value_name = "URL_OR_DIR")]
    address: Option<String>,
    /// Settings file with credentials and key [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    printed: OutputArgs,
}

/// The flags of `backup rehearse`.
#[derive(Debug, clap::Args)]
pub struct Rehearse {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Name of the backup [default: the newest sound one]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Folder with enough space for the store [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Data folder of the present store, to count what would be lost (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gridhook restore /srv/backups/monday --data-dir data\n  gridhook \
        restore s3://bucket/prefix --data-dir data\nThe exit status is 1 if the check of the store \
        finds damage."
)]
pub struct Restore {
    /// Folder written by gridhook backup, or address of a destination with backups
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Name of the backup at that address [default: the newest sound one]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Settings file [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder to restore into (server.data_dir); it must not contain a store
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Salvage what is readable from a damaged backup or data folder, and list what is lost
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupCommandError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The server did not make the backup.
    #[error(transparent)]
    Server(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] backup::BackupError),
    /// The destination cannot be used.
    #[error("{0}")]
    Destination(String),
}

impl CommandError for BackupCommandError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::Server(error) => error.is_usage(),
            Self::Destination(_) => true,
            Self::Store(_) => false,
        }
    }
}

/// The printed result, and whether the store has no damage.
#[derive(Debug)]
pub struct Outcome {
    pub text: String,
    pub is_sound: bool,
}

impl From<Outcome> for CommandOutcome {
    fn from(Outcome { text, is_sound }: Outcome) -> Self {
        Self::new(text, is_sound)
    }
}

impl Backup {
    /// The subcommand that needs no server, if there is one. It must run outside of an asynchronous
    /// runtime.
    pub fn offline_command(&self) -> Option<&OfflineBackup> {
        self.offline.as_ref()
    }

    /// Requests a backup. Needs a running actix system.
    pub async fn run(&self) -> Result<Outcome, BackupCommandError> {
        // A relative path is resolved here, because the server has another working directory.
        let folder = self
            .folder
            .as_ref()
            .map(|folder| path::absolute(folder).unwrap_or_else(|_| folder.clone()));
        let folder = folder.map(|folder| folder.display().to_string());
        let session = self.control.open_session()?;
        let view =
            follow_progress(&session, "/store/backup", &json!(BackupBody { folder })).await?;
        let report: CheckReport = read(&view["report"])?;
        let text = self.printed.format_response(&view, |line: &ProgressLine| {
            let backups = line.backup.iter().chain(&line.backups);
            format!("{report}{}", backups.map(format_backup).collect::<String>())
        })?;
        Ok(Outcome {
            text,
            is_sound: report.is_sound(),
        })
    }
}

/// A line about a backup, with the line break before it.
fn format_backup(backup: &BackupView) -> String {
    let shard = backup.shard.map(|shard| format!("shard {shard} "));
    let shard = shard.unwrap_or_default();
    let folder = &backup.folder;
    let files = count_with_noun(backup.files as u64, "file");
    let bytes = count_with_noun(backup.bytes, "byte");
    let written = backup.written;
    format!("\n{shard}backed up to {folder}: {files}, {bytes}, {written} written")
}

/// Opens a destination to read from it.
fn open_repository(
    backup: &config::Backup,
    url: Option<&str>,
) -> Result<Repository, BackupCommandError> {
    let destination = backup_destination(backup, url)
        .map_err(|error| BackupCommandError::Destination(error.to_string()))?;
    let Some(destination) = destination else {
        let problem = "no address was given, and backup.store.url has none";
        return Err(BackupCommandError::Destination(problem.to_owned()));
    };
    Ok(Repository::open(&destination, false)?)
}

impl OfflineBackup {
    /// Runs the command. Needs the settings of the server, and no running server.
    pub fn run(&self) -> Result<Outcome, BackupCommandError> {
        match self {
            Self::List(arguments) => arguments.list_backups(),
            Self::Rehearse(arguments) => arguments.run(),
        }
    }
}

impl DestinationArgs {
    /// The address of the destination. A path is that of a folder.
    fn destination_url(&self) -> Option<String> {
        let address = self.address.as_ref()?;
        if is_address(address) {
            return Some(address.clone());
        }
        let folder = path::absolute(address).unwrap_or_else(|_| address.into());
        Some(format!("file://{}", folder.display()))
    }

    fn list_backups(&self) -> Result<Outcome, BackupCommandError> {
        let config = Config::load(&Serve::with_flags(self.config.clone(), None).setting_sources())?;
        let repository = open_repository(&config.backup, self.destination_url().as_deref())?;
        let BackupList {
            mut readable,
            mut unreadable,
        } = repository.list_backups()?;
        let folders = repository.folder_backups()?;
        readable.extend(folders.readable);
        unreadable.extend(folders.unreadable);
        let mut backups: Vec<Value> = readable.iter().map(backup_to_json).collect();
        for UnreadableBackup { name, problem } in &unreadable {
            backups.push(json!({"name": name, "problem": problem}));
        }
        let text = self
            .printed
            .format_value(&json!({ "value": backups }), |_| {
                if readable.is_empty() {
                    return format!("no backups in {}", repository.address());
                }
                format_backups(&readable, &unreadable)
            });
        Ok(Outcome {
            text,
            is_sound: unreadable.is_empty(),
        })
    }
}

fn backup_to_json(backup: &StoredBackup) -> Value {
    let manifest = &backup.manifest;
    json!({
        "name": backup.name,
        "made": manifest.made,
        "sound": manifest.sound,
        "encrypted": backup.is_sealed,
        "bytes": manifest.total_bytes(),
    })
}

/// A table of backups, and a line for each that cannot be read.
fn format_backups(readable: &[StoredBackup], unreadable: &[UnreadableBackup]) -> String {
    let mut table = TextTable::new(["NAME", "MADE", "STORE", "ENCRYPTED", "BYTES"]);
    for backup in readable {
        let manifest = &backup.manifest;
        let state = if manifest.sound { "sound" } else { "damaged" };
        let encryption = if backup.is_sealed { "yes" } else { "no" };
        table.add_row([
            backup.name.clone(),
            manifest.made.clone(),
            state.to_owned(),
            encryption.to_owned(),
            manifest.total_bytes().to_string(),
        ]);
    }
    let mut text = table.to_string();
    for backup in unreadable {
        text.push('\n');
        text.push_str(&describe_unreadable(backup));
    }
    text
}

/// Prints that a backup is skipped.
fn warn_of_unreadable(unreadable: &UnreadableBackup) {
    print::print_note(&format!("gridhook: {}", describe_unreadable(unreadable)));
}

fn describe_unreadable(UnreadableBackup { name, problem }: &UnreadableBackup) -> String {
    format!(
        "the manifest of the backup {name} cannot be read: {}",
        escape::escape_text(problem)
    )
}

impl Rehearse {
    fn run(&self) -> Result<Outcome, BackupCommandError> {
        umask(Mode::from_raw_mode(0o077));
        let DestinationArgs {
            config, printed, ..
        } = &self.destination;
        let config = Config::load(
            &Serve::with_flags(config.clone(), self.data_dir.clone()).setting_sources(),
        )?;
        let repository = open_repository(
            &config.backup,
            self.destination.destination_url().as_deref(),
        )?;
        let stored = repository.find_sound(self.name.as_deref(), &mut warn_of_unreadable)?;
        let options = store_options(&config.journal);
        let scratch = self.scratch.clone();
        let scratch = scratch.unwrap_or_else(std::env::temp_dir);
        let spinner = Spinner::new();
        let mut watch = |progress: backup::BackupProgress| {
            spinner.set_message(progress.to_string());
            ControlFlow::Continue(())
        };
        let rehearsal = backup::rehearse_restore(
            BackupAt {
                repository: &repository,
                backup: &stored,
            },
            &scratch,
            &options,
            record_decoders(),
            &mut watch,
        )?;
        drop(spinner);
        let backup::RestoreReport {
            manifest, report, ..
        } = rehearsal;
        // The server may run: its watermark is read without a lock, and is a few seconds old.
        let present = match watermark::read(&config.server.data_dir.join("watermark")) {
            Ok(WatermarkValue::Whole(sequence)) => Some(sequence),
            Ok(WatermarkValue::Missing | WatermarkValue::Damaged) | Err(_) => None,
        };
        let lost = present.map(|present| present.saturating_sub(manifest.sequence));
        let json = json!({"backup": stored.name, "made": manifest.made, "report": report, "lostChanges": lost});
        let text = printed.format_value(&json, |_| {
            let age = Clock::system().now().since(manifest.begin_time());
            let age = format_span(age);
            let changes = match lost {
                Some(lost) => format!(
                    "{} of {}",
                    count_with_noun(lost, "change"),
                    config.server.data_dir.display()
                ),
                None => "every change since then".to_owned(),
            };
            format!(
                "{report}\nrehearsed {}: a restore would lose {changes}; the backup is {age} old",
                stored.name
            )
        });
        Ok(Outcome {
            text,
            is_sound: report.is_sound(),
        })
    }
}

impl Restore {
    pub fn run(&self) -> Result<Outcome, BackupCommandError> {
        // RocksDB creates files with the process's umask; only the owner may read them.
        umask(Mode::from_raw_mode(0o077));
        let config = Config::load(
            &Serve::with_flags(self.config.clone(), self.data_dir.clone()).setting_sources(),
        )?;
        let data_dir = config.server.data_dir;
        let options = store_options(&config.journal);
        let spinner = Spinner::new();
        let mut watch = |progress: backup::BackupProgress| {
            spinner.set_message(progress.to_string());
            ControlFlow::Continue(())
        };
        let stored = match self.backup.to_str().filter(|text| is_address(text)) {
            Some(url) => {
                let repository = open_repository(&config.backup, Some(url))?;
                let stored =
                    repository.find_sound(self.name.as_deref(), &mut warn_of_unreadable)?;
                Some((repository, stored))
            }
            None => None,
        };
        let stored = stored
            .as_ref()
            .map(|(repository, backup)| BackupAt { repository, backup });
        if self.accept_loss {
            let now = Clock::system().now();
            let salvage = |from: &path::Path, watch: &mut backup::BackupObserver<'_>| {
                salvage::accept_loss(
                    from,
                    &data_dir,
                    &options,
                    record_decoders(),
                    control_records(),
                    now,
                    watch,
                )
            };
            let salvaged = match stored {
                Some(stored) => backup::with_readable_copy(stored, &data_dir, &mut watch, salvage)?,
                None => salvage(&self.backup, &mut watch)?,
            };
            drop(spinner);
            return Ok(self.report_salvage(&salvaged, &data_dir));
        }
        let outcome = match stored {
            Some(stored) => {
                backup::restore_stored(stored, &data_dir, &options, record_decoders(), &mut watch)?
            }
            None => backup::restore_folder(
                &self.backup,
                &data_dir,
                &options,
                record_decoders(),
                &mut watch,
            )?,
        };
        drop(spinner);
        let backup::RestoreReport {
            manifest,
            report,
            tokens,
        } = outcome;
        let text = self.printed.format_value(
            &json!({"report": report, "backup": manifest, "tokens": tokens}),
            |_| {
                let names = join_texts(&tokens);
                let revoke = match tokens.len() {
                    0 => String::new(),
                    _ => format!(
                        "\nnamed tokens of the time of the backup that are valid again: {names}; \
                         revoke those that were revoked since: gridhook tokens revoke NAME"
                    ),
                };
                format!(
                    "{report}\nrestored to {}: backup of {}{revoke}",
                    data_dir.display(),
                    manifest.made
                )
            },
        );
        Ok(Outcome {
            text,
            is_sound: report.is_sound(),
        })
    }
}

impl Restore {
    fn report_salvage(
        &self,
        SalvageResult { loss, report }: &SalvageResult,
        data_dir: &path::Path,
    ) -> Outcome {
        let text = self
            .printed
            .format_value(&json!({"loss": loss, "report": report}), |_| {
                format!("{loss}{report}\nsalvaged to {}", data_dir.display())
            });
        Outcome {
            text,
            is_sound: report.is_sound(),
        }
    }
}
