//! The stored records of the control plane, one noun a module.

pub mod audit;
pub mod azure_properties;
pub mod check;
pub mod deployment;
pub mod filter_version;
pub mod followed;
pub mod ingress;
pub mod namespace;
pub mod numbers;
pub mod proposal;
pub mod resource_group;
pub mod session;
pub mod subscription;
pub mod token;
pub mod topic;
