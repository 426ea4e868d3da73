//! The requests to a member: to leave, to move a shard, to drain or forget a node.

use bytes::Bytes;

use super::Member;
use crate::{
    membership::{Command, Reply, RequestError},
    records::{RecordError, RecordStore, drained_key, node_key},
};

impl<S: RecordStore> Member<S> {
    pub(super) async fn execute_command(&mut self, command: Command) {
        match command {
            Command::Leave => self.claims.stop_claiming(),
            Command::Move { shard, node, reply } => {
                let result = self.move_shard(shard, &node).await;
                self.send_reply(reply, result).await;
            }
            Command::Drain {
                node,
                drained,
                reply,
            } => {
                let result = self.drain_node(&node, drained).await;
                self.send_reply(reply, result).await;
            }
            Command::Forget { node, reply } => {
                let result = self.forget_node(&node).await;
                self.send_reply(reply, result).await;
            }
        }
    }

    /// Replies to a request once the snapshot of the cluster shows the change.
    async fn send_reply(&mut self, reply: Reply, result: Result<(), RequestError>) {
        if result.is_ok() {
            // The next turn reads again.
            self.read_records().await.ok();
            self.publish_roles();
        }
        // The client may have disconnected.
        reply.send(result).ok();
    }

    async fn move_shard(&mut self, shard: usize, name: &str) -> Result<(), RequestError> {
        self.read_records().await.ok();
        let shards = self.claims.settings().shards;
        if shard >= shards {
            return Err(RequestError::Shard {
                shard,
                last: shards - 1,
            });
        }
        let records = self.claims.records();
        let alive = self.claims.alive_nodes();
        let living = records
            .nodes
            .values()
            .map(|node| &node.value)
            .filter(|node| alive.contains(&node.id));
        let Some(node) = living.clone().find(|node| node.name == name) else {
            let names: Vec<&str> = living.map(|node| node.name.as_str()).collect();
            return Err(RequestError::NotAlive(name.to_owned(), names.join(", ")));
        };
        if !node.is_complete(shard) {
            return Err(RequestError::CatchingUp(name.to_owned()));
        }
        if records.leaving_nodes().contains(&node.id) {
            return Err(RequestError::Leaving(name.to_owned()));
        }
        if records.shards[shard].value.owner_id.as_ref() == Some(&node.id) {
            return Ok(());
        }
        let change = self.claims.request_handover(shard, &node.id.clone());
        Ok(self.write_change(change).await?)
    }

    async fn drain_node(&mut self, name: &str, drained: bool) -> Result<(), RequestError> {
        self.read_records().await.ok();
        let records = self.claims.records();
        if !records.nodes.contains_key(name) {
            return Err(RequestError::NoRecord(
                name.to_owned(),
                records.node_names(),
            ));
        }
        let (is_drained, revision) = records.drained.get(name).copied().unwrap_or_default();
        if is_drained != drained {
            let value = if drained {
                Bytes::from_static(b"{}")
            } else {
                Bytes::new()
            };
            self.write_record(&drained_key(name), value, revision)
                .await?;
        }
        Ok(())
    }

    async fn forget_node(&mut self, name: &str) -> Result<(), RequestError> {
        // In an old copy of the records, a node that renews its record looks silent.
        match self.read_records().await {
            Ok(true) => {}
            Ok(false) => {
                return Err(
                    RecordError::Unavailable(self.problem.clone().unwrap_or_default()).into(),
                );
            }
            Err(_) => return Err(RequestError::Stopping),
        }
        let records = self.claims.records();
        let Some(node) = records.nodes.get(name) else {
            return Err(match records.unreadable.get(name) {
                Some((true, _)) => RequestError::Unreadable(name.to_owned()),
                Some((false, _)) | None => {
                    RequestError::NoRecord(name.to_owned(), records.node_names())
                }
            });
        };
        if self.claims.alive_nodes().contains(&node.value.id) {
            return Err(RequestError::Alive(name.to_owned()));
        }
        let revision = node.revision;
        let drained = records.drained.get(name).copied();
        // A node that has just come back has changed its record, and stays drained.
        self.write_record(&node_key(name), Bytes::new(), revision)
            .await?;
        if let Some((true, revision)) = drained {
            self.write_record(&drained_key(name), Bytes::new(), revision)
                .await?;
        }
        tracing::info!(name, "the node is forgotten");
        Ok(())
    }
}
