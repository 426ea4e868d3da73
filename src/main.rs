//! Arguments, telemetry, run, exit code.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use gridhook::{
    cli::{Cli, Command, backup::Done},
    clock::Clock,
    config::Config,
    server, telemetry,
};

/// The server lives for months and every event allocates: an allocator that does not fragment.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gridhook: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(serve) => {
            let config = Config::load(&serve.sources())?;
            telemetry::init(&config.log)?;
            server::run(config)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Health(health) => {
            let told = actix_rt::System::new().block_on(health.run());
            println!("{told}");
            Ok(if told.is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Config(settings) => {
            println!("{}", settings.run()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Topics(topics) => {
            println!("{}", actix_rt::System::new().block_on(topics.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Subscriptions(subscriptions) => {
            println!("{}", actix_rt::System::new().block_on(subscriptions.run(&Clock::system()))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Tail(tail) => {
            actix_rt::System::new().block_on(tail.run())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Top(top) => {
            if let Some(told) = actix_rt::System::new().block_on(top.run())? {
                println!("{told}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Apply(apply) => {
            println!("{}", actix_rt::System::new().block_on(apply.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Explain(explain) => {
            println!("{}", actix_rt::System::new().block_on(explain.run(&Clock::system()))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Listen(listen) => {
            actix_rt::System::new().block_on(listen.run(Clock::system())).context("cannot listen")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Publish(publish) => {
            let done = actix_rt::System::new().block_on(publish.run(Clock::system()))?;
            println!("{done}");
            Ok(ExitCode::SUCCESS)
        }
        Command::DeadLetters(letters) => {
            println!("{}", actix_rt::System::new().block_on(letters.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Replay(replay) => {
            println!("{}", actix_rt::System::new().block_on(replay.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Trace(trace) => {
            println!("{}", actix_rt::System::new().block_on(trace.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Ledger(ledger) => {
            println!("{}", actix_rt::System::new().block_on(ledger.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Fsck(fsck) => Ok(told(&actix_rt::System::new().block_on(fsck.run())?)),
        Command::Backup(backup) => Ok(told(&actix_rt::System::new().block_on(backup.run())?)),
        Command::Restore(restore) => Ok(told(&restore.run()?)),
        Command::Supervision(supervision) => {
            println!("{}", actix_rt::System::new().block_on(supervision.run())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Chaos(chaos) => {
            let output = chaos.output();
            let verdict = actix_rt::System::new().block_on(chaos.run(Clock::system()))?;
            println!("{}", verdict.told(output));
            Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Simulate(simulate) => {
            println!("{}", simulate.run(&Clock::system())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions(completions) => {
            completions.run().context("cannot print")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Manual(manual) => {
            let pages = manual.run().context("cannot write the pages")?;
            println!("{pages} pages written");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints what was done; a store that is not sound fails.
fn told(Done { told, is_sound }: &Done) -> ExitCode {
    println!("{told}");
    if *is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
