//! Keys of dead letters and cursors of a walk, as text that clients pass back.

use std::{fmt, str::FromStr};

use super::DeadLetterStage;
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_journal::DeadLetterKey;
use gridhook_policy::dead_letter_store::check_part;

/// Replaces the slashes of a path in a key.
pub(super) const SLASH: &str = "~";

/// The key of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadLetterId {
    Waiting(DeadLetterKey),
    /// A dead letter in a file.
    Written {
        /// The file, relative to the subscription's folder.
        file: String,
        /// Index in the file, from 0.
        index: u32,
    },
}

impl DeadLetterId {
    pub fn stage(&self) -> DeadLetterStage {
        match self {
            Self::Waiting(_) => DeadLetterStage::Waiting,
            Self::Written { .. } => DeadLetterStage::Written,
        }
    }
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(DeadLetterKey { due, seq, lane }) => {
                write!(f, "waiting~{}~{}~{}", due.0, seq.0, lane.0)
            }
            Self::Written { file, index } => write!(f, "{}~{index}", file.replace('/', SLASH)),
        }
    }
}

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the key of a dead letter; expected a key from the list of dead letters")]
pub struct InvalidDeadLetterId;

fn parse_waiting_key(due: &str, seq: &str, lane: &str) -> Option<DeadLetterKey> {
    Some(DeadLetterKey {
        due: Timestamp(due.parse().ok()?),
        seq: Seq(seq.parse().ok()?),
        lane: Lane(lane.parse().ok()?),
    })
}

impl FromStr for DeadLetterId {
    type Err = InvalidDeadLetterId;

    fn from_str(text: &str) -> Result<Self, InvalidDeadLetterId> {
        let parts: Vec<&str> = text.split(SLASH).collect();
        if let ["waiting", due, seq, lane] = parts[..] {
            let key = parse_waiting_key(due, seq, lane).ok_or(InvalidDeadLetterId)?;
            return Ok(Self::Waiting(key));
        }
        let (index, file) = parts.split_last().ok_or(InvalidDeadLetterId)?;
        let is_path = !file.is_empty() && file.iter().all(|part| check_part(part).is_ok());
        match index.parse() {
            Ok(index) if is_path => Ok(Self::Written {
                file: file.join("/"),
                index,
            }),
            Ok(_) | Err(_) => Err(InvalidDeadLetterId),
        }
    }
}

/// A position in a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrowseCursor {
    /// After this one of the waiting dead letters, or at their beginning.
    Waiting(Option<DeadLetterKey>),
    /// After this file, or at the beginning of the files.
    Written(Option<String>),
    /// In a file, after the dead letter with this index.
    InFile { file: String, index: u32 },
}

impl BrowseCursor {
    pub const START: Self = Self::Waiting(None);

    pub fn behind_key(key: &DeadLetterId) -> Self {
        match key {
            DeadLetterId::Waiting(key) => Self::Waiting(Some(*key)),
            DeadLetterId::Written { file, index } => Self::InFile {
                file: file.clone(),
                index: *index,
            },
        }
    }
}

impl fmt::Display for BrowseCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(None) => f.write_str("waiting"),
            Self::Written(None) => f.write_str("written"),
            Self::Waiting(Some(key)) => DeadLetterId::Waiting(*key).fmt(f),
            Self::InFile { file, index } => DeadLetterId::Written {
                file: file.clone(),
                index: *index,
            }
            .fmt(f),
            Self::Written(Some(file)) => write!(f, "{}~all", file.replace('/', SLASH)),
        }
    }
}

impl FromStr for BrowseCursor {
    type Err = InvalidDeadLetterId;

    fn from_str(text: &str) -> Result<Self, InvalidDeadLetterId> {
        if let Some(file) = text.strip_suffix("~all") {
            return match format!("{file}~0").parse()? {
                DeadLetterId::Written { file, .. } => Ok(Self::Written(Some(file))),
                DeadLetterId::Waiting(_) => Err(InvalidDeadLetterId),
            };
        }
        match text {
            "waiting" => Ok(Self::Waiting(None)),
            "written" => Ok(Self::Written(None)),
            key => Ok(Self::behind_key(&key.parse()?)),
        }
    }
}
