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
    output::{CommandError, CommandOutcome, CommandResult, OutputArgs, TextTable, read},
    print,
    progress::Progress,
    stream::follow_progress,
};
use gridhook_api::store::{BackupBody, BackupView, ProgressLine};
use gridhook_clock::Clock;
use gridhook_config as config;
use gridhook_config::Config;
use gridhook_escape as escape;
use gridhook_policy::dead_letter_store::is_address;
use gridhook_repair::{
    backup::{self, BackupAt, BackupError, BackupList, Repository, StoredBackup, UnreadableBackup},
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
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
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
    output: OutputArgs,
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
    output: OutputArgs,
}

impl CommandError for BackupError {}

impl Backup {
    /// The subcommand that needs no server, if there is one. It must run outside of an asynchronous
    /// runtime.
    pub fn offline_command(&self) -> Option<&OfflineBackup> {
        self.offline.as_ref()
    }

    /// Requests a backup. Needs a running actix system.
    pub(super) async fn run(&self) -> CommandResult {
        // A relative path is resolved here, because the server has another working directory.
        let folder = self
            .folder
            .as_ref()
            .map(|folder| path::absolute(folder).unwrap_or_else(|_| folder.clone()));
        let folder = folder.map(|folder| folder.display().to_string());
        let server = self.server.build_client()?;
        let view = follow_progress(&server, "/store/backup", &json!(BackupBody { folder })).await?;
        let report: CheckReport = read(&view["report"])?;
        let text = self.output.format_response(&view, |line: &ProgressLine| {
            let backups = line.backup.iter().chain(&line.backups);
            format!("{report}{}", backups.map(format_backup).collect::<String>())
        })?;
        Ok(CommandOutcome::new(text, report.is_sound()))
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

/// Opens the destination of an address, or else that of the settings.
fn open_destination(config: &Config, url: Option<&str>) -> CommandResult<Repository> {
    let shards = config.cluster.as_ref().map_or(1, |cluster| cluster.shards);
    if let (None, Some(store)) = (url, &config.backup.store)
        && shards > 1
    {
        let address = &store.address;
        let problem = format!(
            "each shard of the cluster has its own destination: give one of {address}/shard-0 to \
             {address}/shard-{shards} as the address"
        );
        return Err(ClientError::Input(problem).into());
    }
    open_repository(&config.backup, url)
}

/// Opens a destination to read from it.
fn open_repository(backup: &config::Backup, url: Option<&str>) -> CommandResult<Repository> {
    let destination =
        backup_destination(backup, url).map_err(|error| ClientError::Input(error.to_string()))?;
    let Some(destination) = destination else {
        let problem = "no address was given, and backup.store.url has none";
        return Err(ClientError::Input(problem.to_owned()).into());
    };
    Ok(Repository::open(&destination, false)?)
}

impl OfflineBackup {
    /// Runs the command. Needs the settings of the server, and no running server.
    pub(super) fn run(&self) -> CommandResult {
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

    fn list_backups(&self) -> CommandResult {
        let config = Serve::load_config(self.config.clone(), None)?;
        let repository = open_destination(&config, self.destination_url().as_deref())?;
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
        let text = self.output.format_value(&json!({ "value": backups }), |_| {
            if readable.is_empty() {
                return format!("no backups in {}", repository.address());
            }
            format_backups(&readable, &unreadable)
        });
        Ok(CommandOutcome::new(text, unreadable.is_empty()))
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
    fn run(&self) -> CommandResult {
        umask(Mode::from_raw_mode(0o077));
        let DestinationArgs { config, output, .. } = &self.destination;
        let config = Serve::load_config(config.clone(), self.data_dir.clone())?;
        let url = self.destination.destination_url();
        let repository = open_destination(&config, url.as_deref())?;
        let name = self.name.as_deref();
        let folder = repository.find_folder(name, &mut warn_of_unreadable)?;
        let is_folder = folder.is_some();
        let stored = match folder {
            Some(folder) => folder,
            None => repository.find_sound(name, &mut warn_of_unreadable)?,
        };
        let options = store_options(&config.journal);
        let scratch = self.scratch.clone();
        let scratch = scratch.unwrap_or_else(std::env::temp_dir);
        let progress = Progress::spinner();
        let mut watch = |step: backup::BackupProgress| {
            progress.set_message(&step.to_string());
            ControlFlow::Continue(())
        };
        let decoders = record_decoders();
        let rehearsal = if is_folder {
            let folder = path::Path::new(&stored.name);
            backup::rehearse_folder(folder, &scratch, &options, decoders, &mut watch)?
        } else {
            let at = BackupAt {
                repository: &repository,
                backup: &stored,
            };
            backup::rehearse_restore(at, &scratch, &options, decoders, &mut watch)?
        };
        drop(progress);
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
        let text = output.format_value(&json, |_| {
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
        Ok(CommandOutcome::new(text, report.is_sound()))
    }
}

impl Restore {
    pub(super) fn run(&self) -> CommandResult {
        // RocksDB creates files with the process's umask; only the owner may read them.
        umask(Mode::from_raw_mode(0o077));
        let config = Serve::load_config(self.config.clone(), self.data_dir.clone())?;
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
        let progress = Progress::spinner();
        let mut watch = |step: backup::BackupProgress| {
            progress.set_message(&step.to_string());
            ControlFlow::Continue(())
        };
        if self.accept_loss {
            self.salvage(stored, &config, &mut watch)
        } else {
            self.restore(stored, &config, &mut watch)
        }
    }

    /// Salvages what is readable from a stored backup, or else from a folder.
    fn salvage(
        &self,
        stored: Option<BackupAt<'_>>,
        config: &Config,
        watch: &mut backup::BackupObserver<'_>,
    ) -> CommandResult {
        let data_dir = &config.server.data_dir;
        let options = store_options(&config.journal);
        let now = Clock::system().now();
        let salvage = |from: &path::Path, watch: &mut backup::BackupObserver<'_>| {
            salvage::accept_loss(
                from,
                data_dir,
                &options,
                record_decoders(),
                control_records(),
                now,
                watch,
            )
        };
        let SalvageResult { loss, report } = match stored {
            Some(stored) => backup::with_readable_copy(stored, data_dir, watch, salvage)?,
            None => salvage(&self.backup, watch)?,
        };
        let json = json!({"loss": loss, "report": report});
        let text = self.output.format_value(&json, |_| {
            format!("{loss}{report}\nsalvaged to {}", data_dir.display())
        });
        Ok(CommandOutcome::new(text, report.is_sound()))
    }

    /// Restores a stored backup, or else a folder.
    fn restore(
        &self,
        stored: Option<BackupAt<'_>>,
        config: &Config,
        watch: &mut backup::BackupObserver<'_>,
    ) -> CommandResult {
        let data_dir = &config.server.data_dir;
        let options = store_options(&config.journal);
        let decoders = record_decoders();
        let backup::RestoreReport {
            manifest,
            report,
            tokens,
        } = match stored {
            Some(stored) => backup::restore_stored(stored, data_dir, &options, decoders, watch)?,
            None => backup::restore_folder(&self.backup, data_dir, &options, decoders, watch)?,
        };
        let json = json!({"report": report, "backup": manifest, "tokens": tokens});
        let text = self.output.format_value(&json, |_| {
            let revoke = if tokens.is_empty() {
                String::new()
            } else {
                let names = join_texts(&tokens);
                format!(
                    "\nnamed tokens of the time of the backup that are valid again: {names}; \
                     revoke those that were revoked since: gridhook tokens revoke NAME"
                )
            };
            let data_dir = data_dir.display();
            let made = &manifest.made;
            format!("{report}\nrestored to {data_dir}: backup of {made}{revoke}")
        });
        Ok(CommandOutcome::new(text, report.is_sound()))
    }
}
