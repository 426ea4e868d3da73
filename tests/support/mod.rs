//! What several tests use.

pub(crate) mod azurite;
pub(crate) mod bucket;
pub(crate) mod certificates;
pub(crate) mod cloud;
pub(crate) mod debian;
pub(crate) mod disk;
pub(crate) mod edition;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod fuzz;
pub(crate) mod http;
pub(crate) mod kafka;
pub(crate) mod load;
pub(crate) mod memory_store;
pub(crate) mod names;
pub(crate) mod needs;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod publisher;
pub(crate) mod server;
pub(crate) mod sink;
pub(crate) mod terminal;
pub(crate) mod turn;
