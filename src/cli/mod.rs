//! The commands of the binary: what may be typed, and the tools for a first hour.
//!
//! `serve` is only read here; `main` runs it, because a command knows nothing of the server's parts. A flag of `serve`
//! is a layer of the settings and is checked with them, so that a wrong flag and a wrong key are told in the same words.

pub mod apply;
pub mod backup;
pub mod batches;
pub mod chaos;
pub mod client;
pub mod clock;
pub mod completions;
pub mod config;
pub mod context;
pub mod control_records;
pub mod dead_letters;
pub mod explain;
mod format;
pub mod fsck;
pub mod health;
pub mod help;
mod http;
pub mod ledger;
mod list;
pub mod listen;
pub mod manual;
pub mod print;
mod prompt;
pub mod publish;
pub mod replay;
pub mod simulate;
mod spinner;
pub mod stream;
pub mod subscriptions;
pub mod suggestion;
pub mod supervision;
pub mod tail;
mod time;
pub mod top;
pub mod topics;
pub mod trace;

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{SettingFlag, SettingSources};

/// A self-hosted Azure Event Grid.
#[derive(Debug, Parser)]
#[command(name = "gridhook", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Serve),
    /// Say whether a server takes events, as an exit status
    Health(health::Health),
    /// Show a server's time, and confirm that the clock of its machine is right
    Clock(clock::Clock),
    /// Look at the settings without starting anything
    Config(config::ConfigArgs),
    /// List, show, make, change and delete topics and domains; show their keys
    Topics(topics::Topics),
    /// List, show, make, change, delete, hold and probe event subscriptions; try their filters
    Subscriptions(subscriptions::Subscriptions),
    /// Follow events as they are published, and what becomes of them
    Tail(tail::TailCommand),
    /// Watch the busiest and the sickest event subscriptions
    Top(top::Top),
    /// Have there be what a file declares: topics, domains, event subscriptions
    Apply(apply::Apply),
    /// Tell why an event waits for an event subscription, and when it is tried next
    Explain(explain::Explain),
    /// Play a webhook: answer the handshakes, print each event
    Listen(listen::Listen),
    /// Publish events from a file or from standard input
    Publish(publish::Publish),
    /// Add, use, list and remove contexts: servers by name
    Context(context::Contexts),
    /// List, show, send again and purge what was given up
    DeadLetters(dead_letters::DeadLetters),
    /// Send stored events to an event subscription once more
    Replay(replay::Replay),
    /// Tell what became of an event, for everybody who subscribes
    Trace(trace::Trace),
    /// List what became of a subscription's events, by time and outcome
    Ledger(ledger::Ledger),
    /// Look whether a store is sound: one without a server, or that of the running server
    Fsck(fsck::Fsck),
    /// Have the running server copy its store to another folder
    Backup(backup::Backup),
    /// Bring a backup back as the store of a data folder that has none
    Restore(backup::Restore),
    /// Show which of a running server's actors died, why, and how soon they were at work again
    Supervision(supervision::Supervision),
    /// Kill parts of a running server at random under load, and account for everything it acknowledged
    Chaos(Box<chaos::ChaosCommand>),
    /// Try an edition of the delivery policy on thousands of endpoints, in virtual time
    Simulate(simulate::Simulate),
    /// Explain a command, or a subject such as names and times
    Help(help::Help),
    /// Print what a shell needs to complete the commands and their flags
    Completions(completions::Completions),
    /// Write the manual's pages, one for each command
    #[command(name = "man")]
    Manual(manual::Manual),
}

/// The commands by what they are for, in the order of the help.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Run a server", &["serve", "health", "clock", "config"]),
    ("Set up topics", &["topics", "subscriptions", "apply"]),
    ("Publish, and see what happens", &["publish", "listen", "tail", "top"]),
    ("Find out what became of an event", &["explain", "trace", "ledger"]),
    ("Deliver again", &["dead-letters", "replay"]),
    ("Look after the store", &["backup", "restore", "fsck"]),
    ("Test before it matters", &["simulate", "chaos", "supervision"]),
    ("Set up the commands", &["context", "help", "completions", "man"]),
];

/// The program's commands and flags, with the commands in groups in its help.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups.push_str(&format!("{heading}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups.push_str(&format!("  {name:14} {about}\n"));
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n\
         gridhook help COMMAND explains a command, gridhook help names how resources are named.\n"
    ))
}

/// The flags of `serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The settings; without it the defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Where to listen (server.listen)
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The form of the log: text or json (log.format)
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Serve {
    /// The flags that a command on a server's store shares with the server.
    fn of(config: Option<PathBuf>, data_dir: Option<String>) -> Self {
        Self { config, data_dir, listen: None, log_format: None }
    }

    /// Where the settings come from.
    pub fn sources(self) -> SettingSources {
        let Self { config, data_dir, listen, log_format } = self;
        let flags = [
            ("--data-dir", "server.data_dir", data_dir),
            ("--listen", "server.listen", listen),
            ("--log-format", "log.format", log_format),
        ];
        let given = flags.into_iter().filter_map(|(name, key, value)| Some(SettingFlag { name, key, value: value? }));
        SettingSources { file: config, environment: std::env::vars_os().collect(), flags: given.collect() }
    }
}
