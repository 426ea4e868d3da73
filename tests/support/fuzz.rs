//! Changes of valid inputs, and how many of them are tried.

use proptest::{prelude::*, sample::Index};

/// The number of cases: `usual`, or `PROPTEST_CASES` if it is set.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(usual)
}

/// A change of some bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    /// Repeats the bytes between the two.
    Repeat(Index, Index),
}

/// The building blocks of formats.
const PUNCTUATION: &[u8] = b"[]{}\",:\\.&=+%/ \t\r\n\0-0e\xff\xc3";

/// The maximum number of changes.
pub(crate) fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let at = any::<Index>;
    let byte = || prop_oneof![prop::sample::select(PUNCTUATION), any::<u8>()];
    let change = prop_oneof![
        3 => (at(), byte()).prop_map(|(at, byte)| Change::Set(at, byte)),
        3 => (at(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        2 => at().prop_map(Change::Remove),
        1 => at().prop_map(Change::Cut),
        1 => (at(), at()).prop_map(|(from, to)| Change::Repeat(from, to)),
    ];
    prop::collection::vec(change, 1..=most)
}

/// Applies the changes to `bytes`.
pub(crate) fn changed(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        let places = bytes.len() + 1;
        match change {
            Change::Insert(at, byte) => bytes.insert(at.index(places), *byte),
            _ if bytes.is_empty() => {}
            Change::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Change::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
            Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Change::Repeat(from, to) => {
                let from = from.index(places);
                let to = to.index(places);
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.extend_from_slice(&part);
            }
        }
    }
    bytes
}
