//! Pull delivery from a spread topic, of which each shard has a part: which parts are tried, and
//! their responses as one.
//!
//! - The parts take turns to be asked first, so that none starves. After the first, the parts of
//!   this node are asked, because they need no hop.
//! - A lock token says its part, so that any node settles it.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    LockTokenSealer,
    body::{BrokerProperties, LockTokensBody, SettleResponse},
};

/// The parts in the order in which a request asks them, the `turn`th of a node. `near` are those of
/// the node.
pub fn in_turn(turn: usize, near: &[bool]) -> Vec<usize> {
    let first = turn % near.len().max(1);
    let count = near.len();
    let others = move |is_near| {
        (first + 1..first + count)
            .map(move |next| next % count)
            .filter(move |part| near[*part] == is_near)
    };
    iter::once(first)
        .chain(others(true))
        .chain(others(false))
        .collect()
}

/// An event that a part has locked.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartEvent {
    pub broker_properties: BrokerProperties,
    pub event: Box<RawValue>,
}

/// The body of a response to a receive request.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct PartEvents {
    pub value: Vec<PartEvent>,
}

/// The tokens of each of `parts` parts. The leader refuses what is no token of a part.
pub fn tokens_by_part(
    given: &LockTokensBody,
    leader: usize,
    parts: usize,
) -> BTreeMap<usize, Vec<String>> {
    let mut by_part: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for token in &given.lock_tokens {
        let part = LockTokenSealer::part_of(token).filter(|part| *part < parts);
        by_part
            .entry(part.unwrap_or(leader))
            .or_default()
            .push(token.clone());
    }
    by_part
}

/// The results of several parts, in the order of the tokens.
pub fn merge_results(
    given: &LockTokensBody,
    parts: impl IntoIterator<Item = SettleResponse>,
) -> SettleResponse {
    let mut all = SettleResponse::default();
    for part in parts {
        all.succeeded_lock_tokens.extend(part.succeeded_lock_tokens);
        all.failed_lock_tokens.extend(part.failed_lock_tokens);
    }
    let places: HashMap<&str, usize> = given
        .lock_tokens
        .iter()
        .enumerate()
        .map(|(place, token)| (token.as_str(), place))
        .collect();
    all.succeeded_lock_tokens
        .sort_by_key(|token| places.get(token.as_str()).copied());
    all.failed_lock_tokens
        .sort_by_key(|failed| places.get(failed.lock_token.as_str()).copied());
    all
}
