//! `gridhook supervision`: shows actor restarts, their causes and recovery times.

use super::{
    client::{ClientArgs, ClientResult, ResourceName, encode_segment},
    format::{count_with_noun, optional_or_dash, optional_text},
    output::TextTable,
    value::whole_number,
};
use gridhook_api::supervision::{ActorView, IncarnationsView, SupervisionReport};

#[derive(Clone, Debug, clap::Args)]
pub struct Supervision {
    #[command(flatten)]
    client: ClientArgs,
    /// Only the actors of this topic: NAME, domains/NAME, namespaces/NAME/topics/NAME or a resource
    /// id
    #[arg(long, value_name = "TOPIC")]
    topic: Option<ResourceName>,
    /// Maximum number of actors, by number of restarts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole_number::<u32>(1..=1_000))]
    limit: u32,
}

impl Supervision {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> ClientResult {
        let topic = self
            .topic
            .map(|topic| format!("&topic={}", encode_segment(&topic.path(""))))
            .unwrap_or_default();
        self.client
            .get_and_format(
                &format!("/supervision?top={}{topic}", self.limit),
                format_report,
            )
            .await
    }
}

fn format_report(report: &SupervisionReport) -> String {
    let all = format!(
        "{}, {} restarted; {} quarantined",
        count_with_noun(report.actors as u64, "actor"),
        report.ended,
        count_with_noun(report.quarantined, "event")
    );
    let mut table = TextTable::new([
        "ACTOR",
        "RESTARTS",
        "PANICKED",
        "KILLED",
        "STOPPED",
        "ORPHANED",
        "LAST CAUSE",
        "P50",
        "P99",
        "LONGEST",
        "QUARANTINED",
    ]);
    for ActorView {
        topic,
        subscription,
        incarnations,
        ..
    } in &report.most_restarted
    {
        let IncarnationsView {
            restarts,
            ends,
            last_cause,
            recovery,
            quarantined,
            ..
        } = incarnations;
        let millis = |time: Option<f64>| optional_or_dash(time, |millis| format!("{millis:.1}ms"));
        let name = match (topic, subscription) {
            (None, _) => "dead letters".to_owned(),
            (Some(key), None) => topic_name(key),
            (Some(key), Some(subscription)) => format!("{}/{subscription}", topic_name(key)),
        };
        table.add_row([
            name,
            restarts.to_string(),
            ends.panicked.to_string(),
            ends.killed.to_string(),
            ends.stopped.to_string(),
            ends.orphaned.to_string(),
            optional_text(last_cause),
            millis(recovery.p50),
            millis(recovery.p99),
            millis(recovery.longest),
            quarantined
                .as_ref()
                .map_or(0, |quarantined| quarantined.count)
                .to_string(),
        ]);
    }
    format!("{all}\n\n{table}")
}

/// The name of a topic in a command, for the key under which the server has it.
fn topic_name(key: &str) -> String {
    match key.split(':').collect::<Vec<_>>()[..] {
        ["domain", name] => format!("domains/{name}"),
        ["namespace", namespace, name] => format!("namespaces/{namespace}/topics/{name}"),
        _ => key.to_owned(),
    }
}
