#![doc = include_str!("README.md")]

pub use gridhook_admin as admin;
pub use gridhook_api as api;
pub use gridhook_chaos as chaos;
pub use gridhook_cli as cli;
pub use gridhook_clock as clock;
pub use gridhook_cluster as cluster;
pub use gridhook_compute as compute;
pub use gridhook_config as config;
pub use gridhook_dashboard as dashboard;
pub use gridhook_dead_letter as dead_letter;
pub use gridhook_declared as declared;
pub use gridhook_deliver as deliver;
pub use gridhook_engine::{control, fanout, insight, supervision};
pub use gridhook_escape as escape;
pub use gridhook_event as event;
pub use gridhook_journal as journal;
pub use gridhook_manual as manual;
pub use gridhook_metrics as metrics;
pub use gridhook_policy as policy;
pub use gridhook_publish as publish;
pub use gridhook_pull as pull;
pub use gridhook_record as record;
pub use gridhook_repair as repair;
pub use gridhook_server as server;
#[cfg(feature = "simulate")]
pub use gridhook_simulate as simulate;
pub use gridhook_storage as storage;
pub use gridhook_store as store;
pub use gridhook_subscription as subscription;
pub use gridhook_telemetry as telemetry;
pub use gridhook_template as template;
