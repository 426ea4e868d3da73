//! The commands of the binary.
//!
//! `serve` is only parsed here; `main` runs it, because commands may not import the server's
//! modules. The flags of `serve` are a layer of the settings and are checked with them: a wrong
//! flag and a wrong key get the same error.

pub mod apply;
pub mod audit;
pub mod backup;
pub mod batches;
pub mod chaos;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod completions;
pub mod config;
pub mod context;
pub mod control_records;
pub mod dead_letters;
pub mod event_types;
mod examples;
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
pub mod output;
pub mod print;
mod progress;
mod prompt;
pub mod publish;
pub mod replay;
pub mod reseed;
pub mod server;
#[cfg(feature = "simulate")]
pub mod simulate;
pub mod stream;
pub mod subscriptions;
pub mod suggestion;
pub mod supervision;
pub mod tail;
mod terminal;
mod time;
pub mod tokens;
pub mod top;
pub mod topics;
pub mod trace;
mod value;

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use self::output::{CommandFailure, CommandOutcome, CommandResult, Program, block_on};
use gridhook_clock::Clock;
use gridhook_config::{Config, SettingFlag, SettingSources};

/// A self-hosted Azure Event Grid.
#[derive(Debug, Parser)]
#[command(name = "gridhook", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Declares the commands. The expression after `=>` runs a command; without one, its async function
/// `run()` does.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty) $(if $gate:meta)? $(=> $run:expr)?,)+) => {
        /// A command with its flags.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$attribute])* $(#[cfg($gate)])? $name($arguments),)+
        }

        impl Command {
            /// Runs the command.
            ///
            /// # Errors
            /// The command failed; the error is printed and the exit status is 1, or 2 for unusable
            /// flags.
            fn execute(self, program: &Program) -> CommandResult {
                match self {
                    $($(#[cfg($gate)])? Self::$name(command) => {
                        let run: fn($arguments, &Program) -> CommandResult =
                            commands!(@run $($run)?);
                        run(command, program)
                    })+
                }
            }
        }
    };
    (@run $run:expr) => { $run };
    (@run) => { |command, _| block_on(command.run()) };
}

commands! {
    /// Run the server
    Serve(Serve) => |command, program| {
        (program.serve)(command.setting_sources()).map(Into::into).map_err(CommandFailure::from_server_error)
    },
    /// Check whether a server accepts events, and exit with status 0 if it does
    Health(health::Health),
    /// Set up and check a cluster, show its nodes, move shards, drain and forget nodes, rebuild from
    /// data folders
    #[command(subcommand)]
    Cluster(cluster::Cluster) => |command, program| command.run(program),
    /// Show a server's clock, or confirm it after a jump
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Check the settings without starting the server
    #[command(subcommand)]
    Config(config::ConfigCommand) => |command, program| Ok(command.run(program.check)?.into()),
    /// Manage topics, domains and namespaces, and their access keys
    #[command(subcommand)]
    Topics(topics::Topics),
    /// List, show, create and delete event types with their schemas
    #[command(name = "event-types")]
    #[command(subcommand)]
    EventTypes(event_types::EventTypes),
    /// Manage, hold and probe event subscriptions; test their filters
    #[command(subcommand)]
    Subscriptions(subscriptions::Subscriptions) => |command, _| block_on(command.run(&Clock::system())),
    /// Follow published events and delivery outcomes live
    Tail(tail::TailCommand),
    /// Watch the busiest and the least healthy event subscriptions
    Top(top::Top),
    /// Apply a configuration file: topics, domains, event subscriptions
    Apply(apply::Apply),
    /// Explain why an event is waiting, and when it is attempted next
    Explain(explain::Explain) => |command, _| block_on(command.run(&Clock::system())),
    /// Run a test webhook that confirms validation handshakes and prints each event
    Listen(listen::Listen) => |command, _| block_on(command.run(Clock::system())),
    /// Publish events from a file or from standard input
    Publish(publish::Publish),
    /// Manage contexts: named servers with their credentials
    #[command(subcommand)]
    Context(context::Contexts) => |command, _| Ok(command.run()?.into()),
    /// List, show, redrive and purge dead letters
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// Send stored events to an event subscription again
    #[command(subcommand)]
    Replay(replay::Replay),
    /// Show the delivery history of an event, for each event subscription
    Trace(trace::Trace),
    /// List the delivery outcomes of an event subscription, by time and outcome
    Ledger(ledger::Ledger),
    /// Check a store for damage, offline or in the running server
    Fsck(fsck::Fsck),
    /// Back up the store of the running server, list and rehearse backups
    Backup(backup::Backup) => |command, _| match command.offline_command() {
        Some(offline) => offline.run(),
        None => block_on(command.run()),
    },
    /// Restore a backup into a data folder without a store
    Restore(backup::Restore) => |command, _| command.run(),
    /// Show actor restarts, their causes and recovery times
    Supervision(supervision::Supervision),
    /// Show version, listeners, process and changed settings of a server
    Server(server::Server),
    /// Create, list and revoke named tokens with roles and scopes
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// List what operators did and tried to do
    Audit(audit::Audit),
    /// Inject faults into a running server under load, and verify that no acknowledged event is
    /// lost
    Chaos(Box<chaos::ChaosCommand>) => |command, _| block_on(command.run_scenario(Clock::system())),
    /// Simulate an edition of the delivery policy with thousands of endpoints, in virtual time
    Simulate(simulate::Simulate) if feature = "simulate" => |command, _| Ok(command.run()?.into()),
    /// Show the help of a command or a subject
    Help(help::Help) => |command, _| Ok(command.run()?.into()),
    /// Print a shell completion script
    Completions(completions::Completions) => |command, _| Ok(CommandOutcome::from_own_text(command.run())),
    /// Write the manual pages, one for each command
    #[command(name = "man")]
    Manual(manual::Manual) => |command, _| {
        let pages = command.run()?;
        Ok(format!("{} written", format::count_with_noun(pages as u64, "page")).into())
    },
}

/// The groups of commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 9] = [
    (
        "Run a server",
        &["serve", "health", "server", "cluster", "clock", "config"],
    ),
    (
        "Set up topics",
        &["topics", "event-types", "subscriptions", "apply"],
    ),
    ("Publish and observe", &["publish", "listen", "tail", "top"]),
    ("Trace an event", &["explain", "trace", "ledger"]),
    ("Deliver again", &["dead-letters", "replay"]),
    ("Control access", &["tokens", "audit"]),
    ("Maintain the store", &["backup", "restore", "fsck"]),
    (
        "Test",
        &[
            #[cfg(feature = "simulate")]
            "simulate",
            "chaos",
            "supervision",
        ],
    ),
    (
        "Configure the commands",
        &["context", "help", "completions", "man"],
    ),
];

/// The program's commands and flags, with the commands in groups in its help.
pub fn build_command() -> clap::Command {
    let command = examples::add_examples(Cli::command(), "");
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups.push_str(&format!("{heading}:\n"));
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups.push_str(&format!("  {name:14} {about}\n"));
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n\
         Run gridhook help COMMAND for a command, and gridhook help help for the chapters of the \
         manual.\n"
    ))
}

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Settings file [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address to listen on (server.listen)
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Log format: text or json (log.format)
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Serve {
    /// The settings of an offline command, which has these flags of the server.
    fn load_config(
        config: Option<PathBuf>,
        data_dir: Option<String>,
    ) -> Result<Config, gridhook_config::Error> {
        let serve = Self {
            config,
            data_dir,
            listen: None,
            log_format: None,
        };
        Config::load(&serve.setting_sources())
    }

    /// The sources of the settings: file, environment and flags.
    pub fn setting_sources(self) -> SettingSources {
        let Self {
            config,
            data_dir,
            listen,
            log_format,
        } = self;
        let flags = [
            ("--data-dir", "server.data_dir", data_dir),
            ("--listen", "server.listen", listen),
            ("--log-format", "log.format", log_format),
        ];
        let mut setting_flags = Vec::new();
        for (name, key, value) in flags {
            if let Some(value) = value {
                setting_flags.push(SettingFlag { name, key, value });
            }
        }
        SettingSources {
            file: config,
            environment: std::env::vars_os().collect(),
            flags: setting_flags,
        }
    }
}
