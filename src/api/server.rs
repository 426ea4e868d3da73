//! Facts of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /server`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerFacts {
    /// Current time of the server
    pub now: String,
    /// Version of gridhook that runs.
    pub version: String,
    /// When the process started.
    pub started: String,
    /// Whether faults can be injected: the setting `chaos.enabled`.
    pub chaos: bool,
    /// Address of the test endpoint, to which any path may be added; missing if the setting
    /// `delivery.test_endpoint` turns it off
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_endpoint: Option<String>,
    /// Whether the server is a node of a cluster.
    pub cluster: bool,
    /// Listeners with the counts of their connections.
    pub listeners: Vec<Listener>,
    /// Processor time, memory and files of the process.
    pub process: ServerProcess,
    /// Free bytes on the disk of the store.
    pub disk_free_bytes: Option<u64>,
    /// Settings that differ from the defaults, as the server was started with them.
    pub settings: Vec<SettingView>,
}

/// A listener of the server.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name of the listener: `publishers` or `operators`.
    pub name: String,
    /// Connections that are open at present.
    pub open: u64,
    /// Number of accepted connections since the start.
    pub admitted: u64,
    /// Number of connections refused at a limit since the start.
    pub refused: u64,
}

/// Figures of the process; what the system does not tell is missing.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerProcess {
    /// Processor time since the start, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Memory that the process occupies, in bytes.
    pub resident_bytes: Option<u64>,
    /// Threads of the process at present.
    pub threads: Option<u64>,
    /// Number of open file descriptors.
    pub open_files: Option<u64>,
    /// Maximum number of open file descriptors.
    pub most_files: Option<u64>,
}

/// A setting in effect.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ServerSetting)]
pub struct SettingView {
    /// Key of the setting, as `server.listen`.
    pub key: String,
    /// Value as TOML; that of a secret is not shown.
    pub value: String,
    /// File, environment variable or flag that the value comes from.
    pub origin: String,
}
