//! The owner of a dead-letter file, if subscriptions of several topics write into one folder.
//!
//! Azure's path of a file contains the name of the subscription, not of its topic. Its last part is
//! a GUID. Files of gridhook have a GUID of version 8, whose second half is a hash of its first
//! half and of the subscription's resource id. So the name identifies the subscription, also after
//! a restore or on another machine. A file from elsewhere has another version; then the `topic` of
//! each event identifies the subscription.
//!
//! In a cluster the first quarter of the GUID is the epoch of the node that writes the file.
//!
//! Invariant: at most one subscription owns a dead letter. If nothing identifies the owner, the
//! dead letter belongs to the only subscription of the folder, or is reported as a problem if there
//! are several.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use uuid::{Builder, Uuid, Version};

use super::event::DeadLetterEvent;

/// The suffix of a file, after its GUID.
const SUFFIX: &str = ".json";

/// A subscription, as files refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The resource id of its topic or domain topic.
    pub source: String,
    pub name: String,
}

/// The owner of a file or a dead letter, from the point of view of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    Own,
    /// The file is of another subscription that writes into the same folder.
    Others,
    Unknown(String),
    /// The file's name does not say. Its events may.
    Unnamed,
}

impl Owner {
    /// A new GUID of a file for this subscription, from random bytes.
    pub fn new_guid(&self, seed: [u8; 8]) -> Uuid {
        // The version is in the first half, so it is part of the hash.
        let half = |bytes: [u8; 16]| Builder::from_custom_bytes(bytes).into_uuid().into_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed);
        bytes = half(bytes);
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes[..8]);
        for part in [
            self.source.as_str(),
            "/eventSubscriptions/",
            self.name.as_str(),
        ] {
            hasher.write(part.to_ascii_lowercase().as_bytes());
        }
        bytes[8..].copy_from_slice(&hasher.finish().to_be_bytes());
        Uuid::from_bytes(half(bytes))
    }

    /// A new GUID of a file for this subscription. In a cluster it begins with the epoch of the
    /// owner that writes the file.
    pub(super) fn new_file_guid(&self, epoch: Option<u64>) -> Uuid {
        let (random, _) = Uuid::new_v4().as_u64_pair();
        let mut seed = random.to_be_bytes();
        if let Some(epoch) = epoch {
            seed[..4].copy_from_slice(&short_epoch(epoch));
        }
        self.new_guid(seed)
    }

    /// Whether a file was written for this subscription; [`None`] if its name does not say.
    fn has_written(&self, file: &str) -> Option<bool> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let guid = Uuid::try_parse(name.strip_suffix(SUFFIX)?).ok()?;
        let seed: [u8; 8] = guid.as_bytes()[..8].try_into().ok()?;
        (guid.get_version() == Some(Version::Custom)).then(|| self.new_guid(seed) == guid)
    }

    /// Whether an event with this `topic` belongs to this subscription: to its topic, or a part of
    /// it.
    fn is_for(&self, topic: &str) -> bool {
        let topic = topic.to_ascii_lowercase();
        let source = self.source.to_ascii_lowercase();
        topic
            .strip_prefix(&source)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The part of an epoch that a GUID has.
fn short_epoch(epoch: u64) -> [u8; 4] {
    let [.., a, b, c, d] = epoch.to_be_bytes();
    [a, b, c, d]
}

/// Whether the owner of this epoch has named a file.
pub(super) fn is_of_epoch(file: &str, epoch: u64) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let guid = name.strip_suffix(SUFFIX).unwrap_or(name);
    let guid = Uuid::try_parse(guid).ok();
    guid.is_some_and(|guid| guid.as_bytes().starts_with(&short_epoch(epoch)))
}

/// The owner of a file in the folder of `owner`, into which `others` write too.
pub(super) fn file_owner(owner: &Owner, others: &[Owner], file: &str) -> FileOwner {
    match owner.has_written(file) {
        None => FileOwner::Unnamed,
        Some(true) => FileOwner::Own,
        Some(false)
            if others
                .iter()
                .any(|other| other.has_written(file) == Some(true)) =>
        {
            FileOwner::Others
        }
        Some(false) => FileOwner::Unknown(
            "its name belongs to another event subscription that does not exist; rename the file \
             to read it here"
                .to_owned(),
        ),
    }
}

/// The owner of a dead letter in a file with owner `file`.
pub(super) fn dead_letter_owner(
    owner: &Owner,
    others: &[Owner],
    file: &FileOwner,
    dead_letter: &DeadLetterEvent,
) -> FileOwner {
    let topic = dead_letter.topic.as_deref();
    let own = topic.is_some_and(|topic| owner.is_for(topic));
    let others_own = topic.is_some_and(|topic| others.iter().any(|other| other.is_for(topic)));
    match (file, own, others_own) {
        (FileOwner::Own, _, false) | (FileOwner::Own, true, true) | (_, true, false) => {
            FileOwner::Own
        }
        (_, false, true) => FileOwner::Others,
        (_, false, false) if others.is_empty() => FileOwner::Own,
        (_, true, true) | (_, false, false) => {
            let names: Vec<String> = others.iter().map(|other| other.source.clone()).collect();
            FileOwner::Unknown(format!(
                "neither the name of its file nor its topic identifies its event subscription, and \
                 event subscriptions of {} write into the same folder; move the file into a folder \
                 of only one subscription",
                names.join(", ")
            ))
        }
    }
}
