//! `[deployments]`: deployments of templates.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployments {
    /// Whether resources of other services are left out instead of refused.
    pub ignore_foreign: bool,
}
