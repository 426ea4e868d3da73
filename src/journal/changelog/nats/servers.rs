//! Whether the servers of NATS are fit for a changelog: their release, the size of messages, and
//! that they sync each write before they acknowledge it. They report the last, and their room, to a
//! user of the system account.

use std::{collections::BTreeMap, time::Duration};

use async_nats::{Client, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;

use super::{NatsConnection, NatsError};

/// The oldest release of the server whose replicated streams were tried.
const SERVER_MIN: (i64, i64, i64) = (2, 15, 0);

/// The smallest `max_payload` of a server: a record, and what NATS adds to it.
pub(super) const PAYLOAD_MIN: usize = 4 << 20;

/// How long servers have to report how they sync.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// How often servers that were down are asked for their report.
const SYNC_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A report of a server about its streams, as far as it is read.
#[derive(Deserialize)]
struct ServerFacts {
    server: ReportingServer,
    data: JetStreamReport,
}

#[derive(Deserialize)]
struct ReportingServer {
    name: String,
    ver: String,
}

#[derive(Deserialize)]
struct JetStreamReport {
    #[serde(default)]
    config: JetStreamConfig,
    meta_cluster: Option<MetaCluster>,
    /// The limits of all its streams together.
    #[serde(default)]
    reserved_storage: u64,
}

#[derive(Default, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
    /// The most that all streams may have together.
    #[serde(default)]
    max_storage: i64,
}

#[derive(Deserialize)]
struct MetaCluster {
    cluster_size: usize,
}

impl NatsConnection {
    /// Everything that is wrong with the servers, as far as they report it. This connection must
    /// have a user of the system account.
    ///
    /// # Errors
    /// If no server can be asked.
    pub fn examine_servers(&self) -> Result<ServerProblems, NatsError> {
        let reports = self
            .runtime
            .block_on(request_reports(&self.context.client()))?;
        let servers = count_servers(reports.values());
        let found = reports.len();
        let mut problems = Vec::new();
        if found < servers {
            problems.push(NatsError::Unreported { found, servers });
        }
        for report in reports.into_values() {
            problems.extend(check_report(report).err());
        }
        Ok(ServerProblems {
            problems,
            reports: SyncReports { found, servers },
        })
    }

    /// The bytes that new streams may reserve on each server that reports. This connection must have
    /// a user of the system account.
    ///
    /// # Errors
    /// If no server can be asked.
    pub fn find_server_room(&self) -> Result<Option<u64>, NatsError> {
        let reports = self
            .runtime
            .block_on(request_reports(&self.context.client()))?;
        let rooms = reports.values().filter_map(|report| {
            let limit = u64::try_from(report.data.config.max_storage).ok()?;
            Some(limit.saturating_sub(report.data.reserved_storage))
        });
        Ok(rooms.min())
    }

    /// Checks that servers sync each write before they acknowledge it. This connection must have a
    /// user of the system account. A majority must report it, because a write needs the
    /// acknowledgement of a majority. Servers that are down are checked once they report, while
    /// this connection is kept.
    ///
    /// # Errors
    /// If fewer report, or if one of them does not sync or is too old.
    pub fn check_sync(&self) -> Result<(), NatsError> {
        let client = self.context.client();
        let reports = self.runtime.block_on(request_sync_reports(&client))?;
        if !reports.is_complete() {
            let SyncReports { found, servers } = reports;
            tracing::warn!(
                found,
                servers,
                "a NATS server is down: whether it syncs every write is checked later"
            );
            self.runtime.spawn(check_sync_of_missing(client));
        }
        Ok(())
    }
}

/// How many servers of a cluster have reported how they sync.
pub struct SyncReports {
    /// The number of servers that reported.
    pub found: usize,
    /// The number of all servers.
    pub servers: usize,
}

/// Everything that is wrong with the servers of a cluster, as far as they report it.
pub struct ServerProblems {
    /// The problems of the servers that reported, and whether any did not.
    pub problems: Vec<NatsError>,
    /// How many servers reported.
    pub reports: SyncReports,
}

impl SyncReports {
    fn is_complete(&self) -> bool {
        self.found >= self.servers
    }
}

/// Checks again until all servers have reported.
async fn check_sync_of_missing(client: Client) {
    loop {
        tokio::time::sleep(SYNC_CHECK_INTERVAL).await;
        match request_sync_reports(&client).await {
            Ok(reports) if reports.is_complete() => {
                tracing::info!(
                    servers = reports.servers,
                    "all NATS servers sync every write"
                );
                return;
            }
            Ok(_) | Err(NatsError::Unreported { .. } | NatsError::Connect(_)) => {}
            Err(error) => {
                tracing::error!(%error, "acknowledged events may be lost with this NATS server")
            }
        }
    }
}

async fn request_sync_reports(client: &Client) -> Result<SyncReports, NatsError> {
    let reports = request_reports(client).await?;
    let servers = count_servers(reports.values());
    let found = reports.len();
    if 2 * found <= servers {
        return Err(NatsError::Unreported { found, servers });
    }
    reports.into_values().try_for_each(check_report)?;
    Ok(SyncReports { found, servers })
}

/// The number of servers of the cluster, as these say.
fn count_servers<'a>(reports: impl IntoIterator<Item = &'a ServerFacts>) -> usize {
    let metas = reports
        .into_iter()
        .filter_map(|report| report.data.meta_cluster.as_ref());
    metas.map(|meta| meta.cluster_size).max().unwrap_or(1)
}

/// Checks that a server is new enough and syncs each write.
fn check_report(report: ServerFacts) -> Result<(), NatsError> {
    let ReportingServer { name, ver } = report.server;
    if is_older(&ver) {
        return Err(NatsError::Version {
            server: name,
            version: ver,
        });
    }
    if !report.data.config.sync_always {
        return Err(NatsError::Sync { server: name });
    }
    Ok(())
}

/// The reports of all servers that respond in time, by their names.
async fn request_reports(client: &Client) -> Result<BTreeMap<String, ServerFacts>, NatsError> {
    let of_client = |error: &dyn std::error::Error| NatsError::Connect(error.to_string());
    let inbox = client.new_inbox();
    let mut responses = client
        .subscribe(inbox.clone())
        .await
        .map_err(|error| of_client(&error))?;
    let request = client
        .publish_with_reply("$SYS.REQ.SERVER.PING.JSZ", inbox, Bytes::new())
        .await;
    request.map_err(|error| of_client(&error))?;
    let mut reports = BTreeMap::new();
    let collect = async {
        while let Some(response) = responses.next().await {
            if response.status == Some(StatusCode::NO_RESPONDERS) {
                return;
            }
            let Ok(report) = serde_json::from_slice::<ServerFacts>(&response.payload) else {
                continue;
            };
            let servers = count_servers([&report]);
            reports.insert(report.server.name.clone(), report);
            if reports.len() >= servers {
                return;
            }
        }
    };
    // Those that are missing are counted.
    tokio::time::timeout(REPORT_WAIT, collect).await.ok();
    Ok(reports)
}

pub(super) fn check_release_and_payload(client: &Client) -> Result<(), NatsError> {
    let info = client.server_info();
    if is_older(&info.version) {
        return Err(NatsError::Version {
            server: info.server_name,
            version: info.version,
        });
    }
    if info.max_payload < PAYLOAD_MIN {
        return Err(NatsError::Payload {
            found: info.max_payload,
        });
    }
    Ok(())
}

/// Whether a release is too old. A version that cannot be read is.
fn is_older(version: &str) -> bool {
    let mut parts = version
        .split(['.', '-'])
        .map(|part| part.parse::<i64>().ok());
    let mut part = || parts.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (part(), part(), part()) else {
        return true;
    };
    (major, minor, patch) < SERVER_MIN
}
