//! Whose a dead-letter file is, where the subscriptions of several topics write into one folder.
//!
//! The path of a file is Azure's own: it has the name of the subscription and not that of its topic. Its last part is a
//! GUID. Ours is one of version 8, whose second half is a hash of its first half and of the subscription's resource id: so
//! the name of a file says for which subscription it was written, also after a restore or on another machine. A file
//! from elsewhere has another version; of that one, the `topic` of each event says whose it is.
//!
//! Invariant: a dead letter is met by one subscription at the most. One of which nothing tells whose it is is told as a
//! problem where several subscriptions share the folder, and belongs to the only one where they do not.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use uuid::{Builder, Uuid, Version};

use super::event::DeadLetterEvent;

/// Every part of a path but the last is the folder's; a file has this behind its GUID.
const SUFFIX: &str = ".json";

/// A subscription, as dead letters know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The resource id of what it is a subscription of.
    pub source: String,
    /// Its name.
    pub name: String,
}

/// Whose something is, as a subscription sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    /// Its own.
    Own,
    /// That of another one, which writes into the same folder.
    Others,
    /// That of nobody who is known, or it can't be told: why it is left alone.
    Nobodys(String),
    /// A file says nothing: its events may.
    Unsaid,
}

impl Owner {
    /// The GUID of a file for this subscription: `seed` tells its files apart.
    pub fn guid(&self, seed: [u8; 8]) -> Uuid {
        // The version is part of what is hashed: it stands in the first half.
        let half = |bytes: [u8; 16]| Builder::from_custom_bytes(bytes).into_uuid().into_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed);
        bytes = half(bytes);
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes[..8]);
        for part in [self.source.as_str(), "/eventSubscriptions/", self.name.as_str()] {
            hasher.write(part.to_ascii_lowercase().as_bytes());
        }
        bytes[8..].copy_from_slice(&hasher.finish().to_be_bytes());
        Uuid::from_bytes(half(bytes))
    }

    /// Whether a file was written for this subscription; [`None`] where its name does not say.
    fn wrote(&self, file: &str) -> Option<bool> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let guid = Uuid::try_parse(name.strip_suffix(SUFFIX)?).ok()?;
        let seed: [u8; 8] = guid.as_bytes()[..8].try_into().ok()?;
        (guid.get_version() == Some(Version::Custom)).then(|| self.guid(seed) == guid)
    }

    /// Whether an event that says that it is of this topic was for this subscription: for what it is a subscription of, or
    /// for a part of that.
    fn is_for(&self, topic: &str) -> bool {
        let (topic, source) = (topic.to_ascii_lowercase(), self.source.to_ascii_lowercase());
        topic.strip_prefix(&source).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whose a file in the folder of `owner` is, where `others` write into the same folder.
pub(super) fn of_file(owner: &Owner, others: &[Owner], file: &str) -> FileOwner {
    match owner.wrote(file) {
        None => FileOwner::Unsaid,
        Some(true) => FileOwner::Own,
        Some(false) if others.iter().any(|other| other.wrote(file) == Some(true)) => FileOwner::Others,
        Some(false) => FileOwner::Nobodys(
            "its name says that it was written for another event subscription, which is not there; to have it here, give \
             it another name"
                .to_owned(),
        ),
    }
}

/// Whose a letter of a file is of which that is known, or is not.
pub(super) fn of_letter(owner: &Owner, others: &[Owner], file: &FileOwner, letter: &DeadLetterEvent) -> FileOwner {
    let topic = letter.topic.as_deref();
    let own = topic.is_some_and(|topic| owner.is_for(topic));
    let others_own = topic.is_some_and(|topic| others.iter().any(|other| other.is_for(topic)));
    match (file, own, others_own) {
        (FileOwner::Own, _, false) | (FileOwner::Own, true, true) | (_, true, false) => FileOwner::Own,
        (_, false, true) => FileOwner::Others,
        (_, false, false) if others.is_empty() => FileOwner::Own,
        (_, true, true) | (_, false, false) => {
            let names: Vec<String> = others.iter().map(|other| other.source.clone()).collect();
            FileOwner::Nobodys(format!(
                "neither its file's name nor its topic says whose it is, and event subscriptions of {} write into the same \
                 folder; move the file into the folder of one subscription alone",
                names.join(", ")
            ))
        }
    }
}
