//! `gridhook cluster reseed`: a new cluster goes on with the data folder of a node whose cluster
//! has lost its streams.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::json;

use super::{
    Serve,
    format::{optional_number, optional_text},
    output::{CommandError, CommandResult, OutputArgs, Program, TextTable},
    prompt,
};
use gridhook_config::count_with_control;
use gridhook_repair::seed::{SeedError, SeedStore};
use gridhook_storage::store_options;

/// The flags of `cluster reseed`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Stop all nodes first. Look at the data folder of each node, and put the store of each shard that has \
                        applied most into one of them.

Examples:
  gridhook cluster reseed --config gridhook.toml --data-dir data --look
  gridhook cluster reseed --config gridhook.toml --data-dir data"
)]
pub struct Reseed {
    /// Settings file of the node [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Show what each store has applied, and change nothing
    #[arg(long)]
    look: bool,
    /// Do not look for nodes that run, because the NATS servers are lost, too
    #[arg(long)]
    nats_lost: bool,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why a new cluster cannot go on with a data folder.
#[derive(Debug, thiserror::Error)]
pub enum ReseedError {
    #[error(
        "the settings name no cluster (cluster.engine is \"none\"); name the settings file of the \
         node with --config"
    )]
    NoCluster,
    /// It is not known whether nodes of the cluster run.
    #[error("{0:#}; if the NATS servers are lost, too, and no node runs, add --nats-lost")]
    NodesUnknown(anyhow::Error),
    /// Nodes of the cluster run.
    #[error("nodes of the cluster {cluster} run: {}; stop them first, so that nothing is written \
        that the new cluster lacks", .nodes.join(", "))]
    NodesRunning {
        /// The name of the cluster.
        cluster: String,
        /// The names of the nodes.
        nodes: Vec<String>,
    },
    /// The store of a shard has nothing.
    #[error("the store of shard {0} has applied nothing; put that of another node into its place")]
    NothingApplied(usize),
    /// The stores are of several clusters.
    #[error("the stores are of several clusters: {}; expected those of one", .0.join(", "))]
    SeveralClusters(Vec<String>),
}

impl CommandError for ReseedError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::NoCluster)
    }
}

impl CommandError for SeedError {}

/// The position and the cluster of a shard's store.
#[derive(Serialize)]
struct ShardSeed {
    shard: usize,
    applied: Option<u64>,
    cluster: Option<String>,
}

impl Reseed {
    /// Returns the text to print.
    pub(super) fn run(self, program: &Program) -> CommandResult<String> {
        let config = Serve::load_config(self.config, self.data_dir)?;
        let cluster = config.cluster.as_ref().ok_or(ReseedError::NoCluster)?;
        if !self.look && !self.nats_lost {
            let nodes = (program.living_nodes)(&config).map_err(ReseedError::NodesUnknown)?;
            if !nodes.is_empty() {
                return Err(ReseedError::NodesRunning {
                    cluster: cluster.name.clone(),
                    nodes,
                }
                .into());
            }
        }
        let data_dir = &config.server.data_dir;
        let folder = |shard: usize| shard_folder(data_dir, cluster.shards, shard);
        let options = store_options(&config.journal);
        let count = count_with_control(cluster.shards);
        let stores = (0..count).map(|shard| SeedStore::open(&folder(shard), &options));
        let stores: Vec<SeedStore> = stores.collect::<Result<_, _>>()?;
        let seeds = stores.iter().enumerate().map(|(shard, store)| ShardSeed {
            shard,
            applied: store.applied,
            cluster: store.cluster.clone(),
        });
        let seeds: Vec<ShardSeed> = seeds.collect();
        let list = json!({ "value": seeds });
        let shown = self.output.format_value(&list, |_| format_table(&seeds));
        if self.look {
            return Ok(shown);
        }
        if let Some(empty) = seeds
            .iter()
            .find(|seed| seed.applied.unwrap_or_default() == 0)
        {
            return Err(ReseedError::NothingApplied(empty.shard).into());
        }
        let clusters: BTreeSet<&String> = seeds
            .iter()
            .filter_map(|seed| seed.cluster.as_ref())
            .collect();
        if clusters.len() > 1 {
            let clusters = clusters.into_iter().cloned().collect();
            return Err(ReseedError::SeveralClusters(clusters).into());
        }
        let folder = config.server.data_dir.display();
        let question = format!(
            "Let a new cluster go on with the stores in {folder}? Events and changes that only \
             other nodes have are lost."
        );
        prompt::ask_confirmation(&question, self.yes)?;
        stores.iter().try_for_each(SeedStore::detach_from_cluster)?;
        Ok(self
            .output
            .format_value(&list, |_| format!("{}\n\n{NEXT}", format_table(&seeds))))
    }
}

/// The folder of the store of `shard`, in a data folder with `shards` shards.
fn shard_folder(data_dir: &Path, shards: usize, shard: usize) -> PathBuf {
    match shards {
        1 => data_dir.to_owned(),
        _ => data_dir.join("shards").join(shard.to_string()),
    }
}

/// The next steps of an operator after the stores were changed.
const NEXT: &str = "The stores follow no cluster any more. Set another cluster.name, start this \
    node alone, and wait until gridhook cluster status shows that it owns all shards. Then start \
    the others with empty data folders.";

fn format_table(seeds: &[ShardSeed]) -> String {
    let mut table = TextTable::new(["SHARD", "APPLIED", "CLUSTER"]);
    for ShardSeed {
        shard,
        applied,
        cluster,
    } in seeds
    {
        table.add_row([
            shard.to_string(),
            optional_number(*applied),
            optional_text(cluster),
        ]);
    }
    table.to_string()
}
