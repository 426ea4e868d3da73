//! Why settings cannot be used: where the value stands, what was read, what is allowed.

use std::{io, path::PathBuf};

use super::SettingOrigin;

/// The settings cannot be used; nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that was named cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not TOML.
    #[error("{}: {}", path.display(), error.to_string().trim_end())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where in it, and why.
        error: toml::de::Error,
    },
    /// There is no such key.
    #[error("{origin}: there is no key {key}; {}", suggestion(like, allowed))]
    UnknownKey {
        /// Where it stands.
        origin: SettingOrigin,
        /// The key.
        key: String,
        /// Those that are like it, as they would be written there.
        like: Vec<String>,
        /// The keys there are nearby.
        allowed: String,
    },
    /// A key's value cannot be used, by itself or with another.
    #[error("{origin}: {key} is {read}; allowed is {allowed}")]
    Value {
        /// Where it stands.
        origin: SettingOrigin,
        /// The key.
        key: String,
        /// What was read.
        read: String,
        /// What is allowed.
        allowed: String,
    },
    /// Several of these.
    #[error("{} settings cannot be used:\n  {}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "))]
    Several(Vec<Error>),
    /// An edition cannot be followed.
    #[error("{origin}: {what}")]
    Edition {
        /// The edition's file.
        origin: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
}

/// What was meant, or what could have been.
fn suggestion(like: &[String], allowed: &str) -> String {
    if like.is_empty() { format!("allowed are {allowed}") } else { format!("did you mean {}?", like.join(" or ")) }
}

impl Error {
    /// What is wrong, of which there is something.
    pub(super) fn of(mut wrong: Vec<Self>) -> Self {
        match (wrong.len(), wrong.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                wrong.extend(last);
                Self::Several(wrong)
            }
        }
    }
}
