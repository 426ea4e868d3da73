//! `gridhook cluster`: the nodes of a cluster, and what each owns.

mod check;
mod init;

use serde_json::json;

pub use self::check::ClusterFindings;
use self::{check::Check, init::Init};

use super::{
    client::{ClientArgs, ClientResult},
    format::{optional_text, text_or_dash},
    output::{CommandResult, Program, TextTable, block_on},
    prompt,
    reseed::Reseed,
    value::whole_number,
};
use gridhook_api::cluster::{
    ClusterNodeView, ClusterView, NodeState, OwnershipView, ShardFailureView,
};

#[derive(Clone, Debug, clap::Subcommand)]
#[command(
    after_help = "With the admin token, every node shows the cluster as it sees it; with another token, the owner does.

Examples:
  gridhook cluster init --nats 10.0.1.1,10.0.1.2,10.0.1.3 --nodes 10.0.0.1,10.0.0.2,10.0.0.3
  gridhook cluster check --config gridhook.toml
  gridhook cluster status
  gridhook cluster ownership
  gridhook cluster move 0 node-b
  gridhook cluster move control node-b
  gridhook cluster drain node-a
  gridhook cluster drain node-a --end
  gridhook cluster forget node-c
  gridhook cluster reseed --config gridhook.toml --data-dir data --look"
)]
pub enum Cluster {
    #[command(flatten)]
    Request(Request),
    /// Write the files of a new cluster
    Init(Init),
    /// List everything that is wrong with the set-up of a cluster
    Check(Check),
    /// Start a new cluster from the data folder of a node, after the streams were lost
    Reseed(Reseed),
}

/// A request to a node.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Request {
    /// List the nodes
    Status(ClientArgs),
    /// List the ownership records of the shards
    Ownership(ClientArgs),
    /// Move a shard: its owner gives it up to another node
    Move {
        #[command(flatten)]
        client: ClientArgs,
        /// Number of the shard, or control for that of the control plane
        #[arg(value_parser = ShardChoice::parse)]
        shard: ShardChoice,
        /// Name of the next owner
        node: String,
    },
    /// Drain a node: it gives up what it owns and claims nothing
    Drain {
        #[command(flatten)]
        client: ClientArgs,
        /// Name of the node
        node: String,
        /// Let the node take its share again
        #[arg(long)]
        end: bool,
    },
    /// Remove the record of a node that is gone for good
    Forget {
        #[command(flatten)]
        client: ClientArgs,
        /// Name of the node
        node: String,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// The shard that an operator names.
#[derive(Clone, Copy, Debug)]
pub enum ShardChoice {
    Number(usize),
    Control,
}

impl ShardChoice {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "control" {
            return Ok(Self::Control);
        }
        let number = whole_number(0..)(text).map(Self::Number);
        number.map_err(|error| format!("{error}, or control"))
    }

    async fn find_number(self, client: &ClientArgs) -> ClientResult<usize> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Control => {
                let server = client.server.build_client()?;
                let view: ClusterView = server.get("/cluster/status").await?;
                // The control plane is the last shard, or in the only one.
                Ok(count_shards(&view).saturating_sub(1))
            }
        }
    }
}

impl Cluster {
    pub(super) fn run(self, program: &Program) -> CommandResult {
        match self {
            Self::Request(request) => block_on(request.run()),
            Self::Init(init) => Ok(init.run()?.into()),
            Self::Check(check) => check.run(program),
            Self::Reseed(reseed) => Ok(reseed.run(program)?.into()),
        }
    }
}

impl Request {
    /// Returns the text to print.
    async fn run(self) -> ClientResult {
        match self {
            Self::Status(client) => client.get_and_format("/cluster/status", format_nodes).await,
            Self::Ownership(client) => {
                client
                    .get_and_format("/cluster/ownership", format_records)
                    .await
            }
            Self::Move {
                client,
                shard,
                node,
            } => {
                let shard = shard.find_number(&client).await?;
                let body = json!({ "shard": shard, "node": node });
                client
                    .post_and_format("/cluster/move", &body, format_records)
                    .await
            }
            Self::Drain { client, node, end } => {
                let body = json!({ "node": node, "drain": !end });
                client
                    .post_and_format("/cluster/drain", &body, format_nodes)
                    .await
            }
            Self::Forget { client, node, yes } => {
                let lost = "The stream keeps nothing for it any more, so it may need a whole copy \
                    of the store to join again.";
                prompt::ask_confirmation(&format!("Forget the node {node}? {lost}"), yes)?;
                client
                    .post_and_format("/cluster/forget", &json!({ "node": node }), format_nodes)
                    .await
            }
        }
    }
}

fn format_nodes(view: &ClusterView) -> String {
    let mut table = TextTable::new([
        "NODE",
        "STATE",
        "OWNS",
        "COPIES",
        "APPLIED",
        "SYNCED",
        "BEHIND",
        "LAST RENEWAL",
        "ADDRESS",
        "VERSION",
    ]);
    let shards = count_shards(view);
    let applied_sequence =
        |node: &ClusterNodeView, shard: usize| node.applied.get(shard).copied().unwrap_or_default();
    let mut newest = vec![0; shards];
    for (shard, newest) in newest.iter_mut().enumerate() {
        let applied = view.nodes.iter().map(|node| applied_sequence(node, shard));
        *newest = applied.max().unwrap_or_default();
    }
    for node in &view.nodes {
        let shards = newest.iter().enumerate();
        let behind = shards.map(|(shard, newest)| newest - applied_sequence(node, shard));
        let copies: Vec<String> = node.complete.iter().map(usize::to_string).collect();
        let mut owns: Vec<String> = node.owns.iter().map(usize::to_string).collect();
        owns.extend(node.owns_control_plane.then(|| "control".to_owned()));
        table.add_row([
            node.name.clone(),
            node.state.name().to_owned(),
            owns.join(" "),
            copies.join(" "),
            node.applied.iter().sum::<u64>().to_string(),
            node.flushed.iter().sum::<u64>().to_string(),
            behind.sum::<u64>().to_string(),
            node.last_renewal.clone(),
            node.address.clone(),
            node.version.clone(),
        ]);
    }
    let problem = match &view.problem {
        Some(problem) => format!("the records cannot be read: {problem}\n"),
        None => String::new(),
    };
    format!(
        "cluster {}, as {} sees it\n{problem}\n{table}{}",
        view.name,
        view.node,
        format_advice(view)
    )
}

/// Advice about a node in a state that an operator ends; empty for other states.
fn format_state_advice(node: &ClusterNodeView) -> String {
    let name = text_or_dash(&node.name);
    match node.state {
        NodeState::Dead => format!(
            "\n{name} is dead, and the stream keeps what it needs: start it, or gridhook cluster \
             forget {name} if it is gone for good"
        ),
        NodeState::Drained => {
            format!("\n{name} takes nothing until gridhook cluster drain {name} --end")
        }
        NodeState::CatchingUp => {
            let mut lines = String::new();
            for copy in &node.copies {
                let shard = copy.shard;
                let received = copy.received >> 20;
                let bytes = copy.bytes.div_ceil(1 << 20);
                lines +=
                    &format!("\n{name} fetches a copy of shard {shard}: {received} of {bytes} MiB");
            }
            lines
        }
        NodeState::Alive | NodeState::Leaving | NodeState::Failed | NodeState::Draining => {
            String::new()
        }
    }
}

/// Advises an operator about nodes and shards that need help.
fn format_advice(view: &ClusterView) -> String {
    let mut lines: String = view.nodes.iter().map(format_state_advice).collect();
    for node in &view.nodes {
        lines += &format_node_problems(node, &view.node);
    }
    lines + &format_ownership_problems(view)
}

/// The shards that a node cannot serve, and its settings that differ from those of `own`.
fn format_node_problems(node: &ClusterNodeView, own: &str) -> String {
    let name = text_or_dash(&node.name);
    let own = text_or_dash(own);
    let mut lines = String::new();
    for ShardFailureView { shard, cause } in &node.failures {
        let cause = text_or_dash(cause);
        lines += &format!("\n{name} cannot serve shard {shard}: {cause}");
    }
    for difference in &node.setting_differences {
        let setting = text_or_dash(&difference.setting);
        let here = text_or_dash(&difference.here);
        let there = text_or_dash(&difference.there);
        lines += &format!(
            "\n{name} has {setting} {there}, and {own} has {here}: give all nodes the same"
        );
    }
    lines
}

/// The shards and the control plane that no living node owns.
fn format_ownership_problems(view: &ClusterView) -> String {
    let is_alive = |node: &&ClusterNodeView| node.state != NodeState::Dead;
    let alive: Vec<&ClusterNodeView> = view.nodes.iter().filter(is_alive).collect();
    let count = count_shards(view).max(1);
    // With several shards the control plane comes behind them.
    let topic_shards = if count > 1 { count - 1 } else { count };
    let unowned: Vec<String> = (0..topic_shards)
        .filter(|shard| !alive.iter().any(|node| node.owns.contains(shard)))
        .map(|shard| shard.to_string())
        .collect();
    let mut lines = String::new();
    if unowned.len() == topic_shards {
        lines += "\nno node that is alive owns the store: publishers receive 503";
    } else if !unowned.is_empty() {
        let unowned = unowned.join(", ");
        lines += &format!(
            "\nno node that is alive owns these shards: {unowned}; publishers of their topics \
             receive 503"
        );
    }
    if count > topic_shards && !alive.iter().any(|node| node.owns_control_plane) {
        lines += "\nno node that is alive owns the control plane: changes receive 503";
    }
    lines
}

fn count_shards(view: &ClusterView) -> usize {
    view.nodes
        .iter()
        .map(|node| node.applied.len())
        .max()
        .unwrap_or_default()
}

fn format_records(view: &OwnershipView) -> String {
    let mut table = TextTable::new([
        "SHARD",
        "OWNER",
        "COPIES",
        "OWNER ID",
        "WANTED BY",
        "CLAIMS",
        "LAST MODIFIED",
        "ETAG",
    ]);
    for record in &view.value {
        table.add_row([
            record.partition_id.clone(),
            optional_text(&record.owner_name),
            record.copies.join(" "),
            optional_text(&record.owner_id),
            optional_text(&record.wanted_by),
            record.claims.to_string(),
            record.last_modified_time.clone(),
            record.e_tag.clone(),
        ]);
    }
    table.to_string()
}
