//! Errors of settings: the origin of the value, the value, what is allowed.

use std::{io, path::PathBuf};

use super::SettingOrigin;
use gridhook_policy::edition::InvalidEdition;

/// The settings are invalid; nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A file is not TOML.
    #[error("{}: {}", path.display(), error.to_string().trim_end())]
    Syntax {
        path: PathBuf,
        /// The position and the error.
        error: toml::de::Error,
    },
    /// A key does not exist.
    #[error("{origin}: unknown key {key}; {}", suggest_keys(like, expectation))]
    UnknownKey {
        /// The origin of the key.
        origin: SettingOrigin,
        key: String,
        /// Similar keys, in the spelling of that origin.
        like: Vec<String>,
        /// The keys of the section.
        expectation: String,
    },
    /// A value is invalid, by itself or with another.
    #[error("{origin}: {key} is {read}; expected {expectation}")]
    Value {
        /// The origin of the value.
        origin: SettingOrigin,
        key: String,
        read: String,
        expectation: String,
    },
    #[error("{} settings cannot be used:\n  {}", .0.len(), list_errors(.0))]
    Several(Vec<Error>),
    #[error("{origin}: {error}")]
    Edition {
        origin: String,
        error: Box<EditionError>,
    },
}

fn list_errors(errors: &[Error]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n  ")
}

/// An error in the text of an edition.
#[derive(Debug, thiserror::Error)]
pub enum EditionError {
    #[error("{}", .0.to_string().trim_end())]
    Syntax(#[from] toml::de::Error),
    /// The edition cannot be joined with its base.
    #[error(transparent)]
    Join(#[from] toml::ser::Error),
    /// A key is invalid after the edition was joined with its base.
    #[error("{}: {}", .0.path(), .0.inner().message())]
    Key(#[from] serde_path_to_error::Error<toml::de::Error>),
    #[error("base is {base}; expected an edition of the program: {}", .allowed.join(", "))]
    Base {
        base: toml::Value,
        allowed: Vec<String>,
    },
    #[error(transparent)]
    Invalid(#[from] InvalidEdition),
}

/// The similar keys, or the allowed ones.
fn suggest_keys(like: &[String], expectation: &str) -> String {
    if like.is_empty() {
        format!("expected one of {expectation}")
    } else {
        format!("did you mean {}?", like.join(" or "))
    }
}

impl Error {
    /// Whether a flag is wrong, perhaps besides other settings, or the settings file that it names
    /// cannot be read.
    pub fn is_of_flag(&self) -> bool {
        match self {
            Self::UnknownKey { origin, .. } | Self::Value { origin, .. } => {
                matches!(origin, SettingOrigin::Flag(_))
            }
            Self::Several(errors) => errors.iter().any(Self::is_of_flag),
            Self::Unreadable { .. } | Self::Syntax { .. } => true,
            Self::Edition { .. } => false,
        }
    }

    /// Makes one error of a list that is not empty.
    pub(super) fn from_list(mut wrong: Vec<Self>) -> Self {
        match (wrong.len(), wrong.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                wrong.extend(last);
                Self::Several(wrong)
            }
        }
    }
}
