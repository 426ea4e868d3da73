//! Values of settings that are neither numbers nor texts.

use std::{path::PathBuf, time::Duration};

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    Tls12,
    /// 1.3
    Tls13,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustRoots {
    /// The machine's own authorities.
    System,
    /// Those in a file.
    File(PathBuf),
}

/// How endpoints are asked whether they may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidationMode {
    /// Whether they are.
    pub enabled: bool,
    /// How long one may take to answer.
    pub wait: Duration,
    /// After how long one that is silent is asked again.
    pub pause: Duration,
    /// How long the manual way is open.
    pub window: Duration,
    /// How many requests a minute one is asked for.
    pub request_rate: u32,
}
