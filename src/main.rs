//! Arguments, telemetry, run, exit code.

use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;
use gridhook::{
    cli::{
        self, Cli, Command,
        backup::Outcome,
        print::{self, PipeState},
    },
    clock::Clock,
    config::{self, Config},
    server, telemetry,
};

/// The server runs for months and allocates for every event; mimalloc fragments little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let parsed = Cli::from_arg_matches(&cli::command().get_matches());
    let run = run(parsed.unwrap_or_else(|error| error.exit()).command).and_then(|CommandOutcome { text, is_ok }| {
        // A closed pipe does not change the exit status.
        let (PipeState::Open | PipeState::Closed) = text.map_or(Ok(PipeState::Open), |text| print::out(&text))?;
        Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    });
    run.unwrap_or_else(|error| {
        print::note(&format!("gridhook: {}", print::error(&error)));
        ExitCode::FAILURE
    })
}

/// The result of a command.
struct CommandOutcome {
    /// The text to print.
    text: Option<String>,
    /// Whether the exit status is 0.
    is_ok: bool,
}

impl CommandOutcome {
    /// The command printed everything itself.
    const QUIET: Self = Self { text: None, is_ok: true };
}

impl From<String> for CommandOutcome {
    fn from(text: String) -> Self {
        Self { text: Some(text), is_ok: true }
    }
}

impl From<Outcome> for CommandOutcome {
    fn from(Outcome { text, is_sound }: Outcome) -> Self {
        Self { text: Some(text), is_ok: is_sound }
    }
}

fn run(command: Command) -> anyhow::Result<CommandOutcome> {
    let system = actix_rt::System::new;
    Ok(match command {
        Command::Serve(serve) => {
            let sources = serve.sources();
            let config = Config::load(&sources)?;
            let log = telemetry::init(&config.log)?;
            for (variable, meant) in config::near_misses(&sources) {
                tracing::warn!(variable, meant, "unknown environment variable, similar to a setting");
            }
            server::run(config, sources, log)?;
            CommandOutcome::QUIET
        }
        Command::Health(health) => {
            let view = system().block_on(health.run())?;
            CommandOutcome { text: Some(view.text), is_ok: view.is_healthy }
        }
        Command::Clock(clock) => system().block_on(clock.run())?.into(),
        Command::Config(settings) => settings.run(server::check)?.into(),
        Command::Topics(topics) => system().block_on(topics.run())?.into(),
        Command::Subscriptions(subscriptions) => system().block_on(subscriptions.run(&Clock::system()))?.into(),
        Command::Tail(tail) => {
            system().block_on(tail.run())?;
            CommandOutcome::QUIET
        }
        Command::Top(top) => CommandOutcome { text: system().block_on(top.run())?, is_ok: true },
        Command::Apply(apply) => system().block_on(apply.run())?.into(),
        Command::Explain(explain) => system().block_on(explain.run(&Clock::system()))?.into(),
        Command::Listen(listen) => {
            system().block_on(listen.run(Clock::system())).context("cannot listen")?;
            CommandOutcome::QUIET
        }
        Command::Publish(publish) => system().block_on(publish.run(Clock::system()))?.into(),
        Command::Context(contexts) => contexts.run()?.into(),
        Command::DeadLetters(command) => system().block_on(command.run())?.into(),
        Command::Replay(replay) => system().block_on(replay.run())?.into(),
        Command::Trace(trace) => system().block_on(trace.run())?.into(),
        Command::Ledger(ledger) => system().block_on(ledger.run())?.into(),
        Command::Fsck(fsck) => system().block_on(fsck.run())?.into(),
        Command::Backup(backup) => system().block_on(backup.run())?.into(),
        Command::Restore(restore) => restore.run()?.into(),
        Command::Supervision(supervision) => system().block_on(supervision.run())?.into(),
        Command::Chaos(chaos) => {
            let output = chaos.output();
            let verdict = system().block_on(chaos.run(Clock::system()))?;
            CommandOutcome { text: Some(verdict.format_verdict(output)), is_ok: verdict.is_ok() }
        }
        #[cfg(feature = "simulate")]
        Command::Simulate(simulate) => simulate.run(&Clock::system())?.into(),
        Command::Help(help) => help.run()?.into(),
        Command::Completions(completions) => {
            let (PipeState::Open | PipeState::Closed) = print::raw(&completions.run())?;
            CommandOutcome::QUIET
        }
        Command::Manual(manual) => {
            let pages = manual.run().context("cannot write the manual pages")?;
            format!("{pages} pages written").into()
        }
    })
}
