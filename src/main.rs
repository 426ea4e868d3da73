//! Arguments, telemetry, run, exit code.

use std::process::ExitCode;

use clap::FromArgMatches;
use gridhook::{
    cli::{
        self, Cli,
        cluster::ClusterFindings,
        output::{self, Program},
    },
    config::{self, Config, SettingSources},
    server, telemetry,
};

/// The server runs for months and allocates for every event; mimalloc fragments little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Tokens and keys are in memory.
    server::core_dumps::forbid_core_dumps();
    let cli = Cli::from_arg_matches(&cli::build_command().get_matches())
        .unwrap_or_else(|error| error.exit());
    output::run(
        cli.command,
        &Program {
            serve,
            check: server::check_files,
            living_nodes,
            examine_cluster,
        },
    )
}

fn living_nodes(config: &Config) -> anyhow::Result<Vec<String>> {
    Ok(server::living_nodes(config)?)
}

#[cfg(feature = "nats")]
fn examine_cluster(config: &Config) -> Option<ClusterFindings> {
    let server::ClusterFindings { facts, problems } = server::examine_cluster(config)?;
    Some(ClusterFindings { facts, problems })
}

#[cfg(not(feature = "nats"))]
fn examine_cluster(_: &Config) -> Option<ClusterFindings> {
    None
}

fn serve(sources: SettingSources) -> anyhow::Result<()> {
    let config = Config::load(&sources)?;
    let log = telemetry::init_logging(&config.log)?;
    for (variable, meant) in config::near_misses(&sources) {
        tracing::warn!(
            variable,
            meant,
            "unknown environment variable, similar to a setting"
        );
    }
    server::run(config, sources, log)?;
    Ok(())
}
