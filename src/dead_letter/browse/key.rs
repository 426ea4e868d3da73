//! What a dead letter is called, and how far a look through them has come: in words that a client gives back.

use std::{fmt, str::FromStr};

use super::Place;
use crate::{
    event::{Lane, Seq, Timestamp},
    journal::DeadKey,
    policy::place::check_part,
};

/// Stands in a key where a path has a slash.
pub(super) const SLASH: &str = "~";

/// Names a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One that waits.
    Waiting(DeadKey),
    /// One in a file.
    Written {
        /// The file, below the subscription's folder.
        file: String,
        /// Its place in it, from 0 on.
        index: u32,
    },
}

impl Key {
    /// Where it is.
    pub fn place(&self) -> Place {
        match self {
            Self::Waiting(_) => Place::Waiting,
            Self::Written { .. } => Place::Written,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(DeadKey { due, seq, lane }) => write!(f, "waiting~{}~{}~{}", due.0, seq.0, lane.0),
            Self::Written { file, index } => write!(f, "{}~{index}", file.replace('/', SLASH)),
        }
    }
}

/// It names no dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no key of a dead letter; allowed is a key as the list has it")]
pub struct NoKey;

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let parts: Vec<&str> = text.split(SLASH).collect();
        if let ["waiting", due, seq, lane] = parts[..] {
            let key = || {
                let (due, seq) = (Timestamp(due.parse().ok()?), Seq(seq.parse().ok()?));
                Some(DeadKey { due, seq, lane: Lane(lane.parse().ok()?) })
            };
            return key().map(Self::Waiting).ok_or(NoKey);
        }
        let (index, file) = parts.split_last().ok_or(NoKey)?;
        let is_path = !file.is_empty() && file.iter().all(|part| check_part(part).is_ok());
        match index.parse() {
            Ok(index) if is_path => Ok(Self::Written { file: file.join("/"), index }),
            Ok(_) | Err(_) => Err(NoKey),
        }
    }
}

/// How far a look has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At the dead letters that wait, behind this one.
    Waiting(Option<DeadKey>),
    /// At the files: behind this one, or behind a place in it.
    Written(Option<(String, Option<u32>)>),
}

impl Cursor {
    /// Before everything.
    pub const START: Self = Self::Waiting(None);

    pub(in crate::dead_letter) fn behind(key: &Key) -> Self {
        match key {
            Key::Waiting(key) => Self::Waiting(Some(*key)),
            Key::Written { file, index } => Self::Written(Some((file.clone(), Some(*index)))),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(None) => f.write_str("waiting"),
            Self::Written(None) => f.write_str("written"),
            Self::Waiting(Some(key)) => Key::Waiting(*key).fmt(f),
            Self::Written(Some((file, Some(index)))) => Key::Written { file: file.clone(), index: *index }.fmt(f),
            Self::Written(Some((file, None))) => write!(f, "{}~all", file.replace('/', SLASH)),
        }
    }
}

impl FromStr for Cursor {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        if let Some(file) = text.strip_suffix("~all") {
            return match format!("{file}~0").parse()? {
                Key::Written { file, .. } => Ok(Self::Written(Some((file, None)))),
                Key::Waiting(_) => Err(NoKey),
            };
        }
        match text {
            "waiting" => Ok(Self::Waiting(None)),
            "written" => Ok(Self::Written(None)),
            key => Ok(Self::behind(&key.parse()?)),
        }
    }
}
