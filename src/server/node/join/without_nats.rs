//! The join of a build without a client of NATS, which cannot be a node.

use std::sync::Arc;

use super::Joined;
use crate::{ServerError, local_store::LocalStore, node::ClusterError};
use gridhook_config as config;
use gridhook_config::Config;

pub(crate) async fn join(
    _: &config::Cluster,
    _: &Config,
    _: Vec<Arc<LocalStore>>,
) -> Result<Joined, ServerError> {
    Err(build_error())
}

/// Refuses nothing: the join does.
pub(crate) fn check_shards(_: &Config) -> Result<(), ServerError> {
    Ok(())
}

pub(crate) fn list_living_nodes(_: &Config) -> Result<Vec<String>, ServerError> {
    Err(build_error())
}

fn build_error() -> ServerError {
    ClusterError::Engine("this build of gridhook has no NATS client (feature nats)".to_owned())
        .into()
}
