//! `gridhook cluster check`: everything that is wrong with the set-up of a cluster, at once.

use std::path::PathBuf;

use serde::Serialize;

use super::super::{
    Serve,
    format::{count_with_noun, join},
    output::{CommandError, CommandOutcome, CommandResult, OutputArgs, Program},
};

/// The flags of `cluster check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It makes a stream and a bucket of its own in NATS and removes them, and changes nothing else.

Examples:
  gridhook cluster check --config gridhook.toml"
)]
pub struct Check {
    /// Settings file of the node [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterFindings {
    /// Facts that are in order.
    pub facts: Vec<String>,
    /// Problems that an operator must solve.
    pub problems: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the settings name no cluster (cluster.engine is \"none\"), or this build has no NATS client; \
     name the settings file of the node with --config"
)]
struct NoCluster;

impl CommandError for NoCluster {
    fn is_usage(&self) -> bool {
        true
    }
}

impl Check {
    /// Returns the text to print. The exit status is 1 if there are problems.
    pub(in super::super) fn run(self, program: &Program) -> CommandResult {
        let config = Serve::load_config(self.config, None)?;
        let findings = (program.examine_cluster)(&config);
        let mut findings = findings.ok_or(NoCluster)?;
        if let Err(error) = (program.check)(&config) {
            findings.problems.push(error.to_string());
        }
        let is_success = findings.problems.is_empty();
        let text = self.output.format_value(&findings, format_findings);
        Ok(CommandOutcome::new(text, is_success))
    }
}

fn format_findings(findings: &ClusterFindings) -> String {
    let facts = findings.facts.iter().map(|fact| format!("ok       {fact}"));
    let problems = findings.problems.iter();
    let problems = problems.map(|problem| format!("problem  {problem}"));
    let end = match findings.problems.len() {
        0 => "Nothing is wrong.".to_owned(),
        count => format!("{}.", count_with_noun(count as u64, "problem")),
    };
    let lines = facts.chain(problems).chain([end]);
    join(lines, "\n")
}
