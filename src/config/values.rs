//! Types of settings that are neither numbers nor text.

use std::{path::PathBuf, time::Duration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustRoots {
    System,
    /// The authorities in a PEM file.
    File(PathBuf),
}

/// The settings of endpoint validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidationMode {
    pub enabled: bool,
    /// The timeout of a validation request.
    pub wait: Duration,
    /// The pause before a request without a response is repeated.
    pub pause: Duration,
    /// The time in which the validation URL is valid.
    pub window: Duration,
    /// The rate in requests a minute that is requested of a CloudEvents endpoint.
    pub request_rate: u32,
}
