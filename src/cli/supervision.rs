//! `gridhook supervision`: shows actor restarts, their causes and recovery times.

use serde_json::Value;

use super::{
    client::{ClientError, ServerArgs, segment},
    output::{Command, CommandOutcome, OutputArgs, Program, TextTable, block_on},
};

/// The flags of `supervision`.
#[derive(Clone, Debug, clap::Args)]
pub struct Supervision {
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
    /// Only the actors of this topic
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Maximum number of actors, by number of restarts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

impl Supervision {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> Result<String, ClientError> {
        let topic = self.topic.as_deref().map(|topic| format!("&topic={}", segment(topic))).unwrap_or_default();
        let report: Value = self.control.session()?.get(&format!("/supervision?top={}{topic}", self.limit)).await?;
        Ok(self.printed.format(&report, format_report))
    }
}

fn format_report(report: &Value) -> String {
    let all = format!(
        "{} actors, {} restarted; {} events quarantined",
        report["actors"], report["ended"], report["quarantined"]
    );
    let mut table = TextTable::new([
        "actor",
        "restarts",
        "panicked",
        "killed",
        "stopped",
        "orphaned",
        "last cause",
        "p50",
        "p99",
        "longest",
        "quarantined",
    ]);
    let lines = report["mostRestarted"].as_array().into_iter().flatten();
    for actor in lines {
        let text = |value: &Value| value.as_str().map_or("-".to_owned(), str::to_owned);
        let count = |value: &Value| value.as_u64().unwrap_or_default().to_string();
        let millis = |value: &Value| value.as_f64().map_or("-".to_owned(), |millis| format!("{millis:.1}ms"));
        let name = match (actor["topic"].as_str(), actor["subscription"].as_str()) {
            (None, _) => "dead letters".to_owned(),
            (Some(topic), None) => topic.to_owned(),
            (Some(topic), Some(subscription)) => format!("{topic}/{subscription}"),
        };
        let (ends, recovery) = (&actor["ends"], &actor["recovery"]);
        table.line([
            name,
            count(&actor["restarts"]),
            count(&ends["panicked"]),
            count(&ends["killed"]),
            count(&ends["stopped"]),
            count(&ends["orphaned"]),
            text(&actor["lastCause"]),
            millis(&recovery["p50"]),
            millis(&recovery["p99"]),
            millis(&recovery["longest"]),
            count(&actor["quarantined"]["count"]),
        ]);
    }
    format!("{all}\n\n{table}")
}

impl Command for Supervision {
    fn execute(self, _: &Program) -> anyhow::Result<CommandOutcome> {
        block_on(self.run())
    }
}
