//! The files of the page, embedded in the binary, and where the third-party files among them come
//! from.
//!
//! A new file below `page/` needs one line in [`FILES`]; a third-party file also one entry in
//! [`VENDORED`].

/// Embeds files below `page/`.
macro_rules! page {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("page/", $path)).as_slice())),*]
    };
}

/// Path below `/ui/` and content of each file, sorted by path.
#[rustfmt::skip]
pub const FILES: &[(&str, &[u8])] = page![
    "app.css",
    "index.html",
    "js/actions.js",
    "js/api.js",
    "js/app.js",
    "js/causes.js",
    "js/charts.js",
    "js/format.js",
    "js/html.js",
    "js/json.js",
    "js/keys.js",
    "js/markdown.js",
    "js/poll.js",
    "js/resources.js",
    "js/state.js",
    "js/table.js",
    "js/tail.js",
    "js/ui.js",
    "js/views/attempts.js",
    "js/views/audit.js",
    "js/views/browse.js",
    "js/views/chaos.js",
    "js/views/cluster.js",
    "js/views/configuration.js",
    "js/views/dead-letters.js",
    "js/views/edit.js",
    "js/views/editions.js",
    "js/views/endpoint.js",
    "js/views/event-type.js",
    "js/views/event.js",
    "js/views/filter.js",
    "js/views/help.js",
    "js/views/history.js",
    "js/views/jobs.js",
    "js/views/links.js",
    "js/views/overview.js",
    "js/views/search.js",
    "js/views/server.js",
    "js/views/sessions.js",
    "js/views/start.js",
    "js/views/subjects.js",
    "js/views/subscription.js",
    "js/views/subscriptions.js",
    "js/views/tail.js",
    "js/views/tokens.js",
    "js/views/topic.js",
    "js/views/topics.js",
    "js/views/transform.js",
    "vendor/LICENSES.txt",
    "vendor/htm.js",
    "vendor/preact-hooks.js",
    "vendor/preact.js",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendoredFile {
    /// Path below `/ui/`.
    pub path: &'static str,
    pub name: &'static str,
    pub version: &'static str,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: &'static str,
    /// Licence, as SPDX names it.
    pub licence: &'static str,
}

/// The third-party files, sorted by path. Their licence texts are in `vendor/LICENSES.txt`.
#[rustfmt::skip]
pub const VENDORED: &[VendoredFile] = &[
    VendoredFile {
        path: "vendor/htm.js", name: "htm", version: "3.1.1",
        sha256: "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
        licence: "Apache-2.0",
    },
    VendoredFile {
        path: "vendor/preact-hooks.js", name: "preact", version: "10.29.8",
        sha256: "3b5febe57b6eebec5285fc25b33c9019e53e31641df0fad7d8f9e64ca8661592",
        licence: "MIT",
    },
    VendoredFile {
        path: "vendor/preact.js", name: "preact", version: "10.29.8",
        sha256: "25a5df7e9f628a587743c4641a368737a3b218f28ef738ba0376a2d5bdfc948c",
        licence: "MIT",
    },
];
