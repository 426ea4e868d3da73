//! What is counted of an address that the server listens on.

use super::Counter;

/// Statuses are counted by their first digit.
const CLASSES: usize = 6;

/// An address that the server listens on, for as long as the process lives.
#[derive(Debug)]
pub struct ListenerCounters {
    /// Who comes in there.
    pub name: &'static str,
    /// Connections that are open.
    pub open: Counter,
    /// Connections that were let in.
    pub admitted: Counter,
    /// Connections that found no place.
    pub refused: Counter,
    /// The same, for all places of their own address.
    pub refused_by_address: Counter,
    responses: [Counter; CLASSES],
}

impl ListenerCounters {
    /// Nobody has come yet.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            open: Counter::default(),
            admitted: Counter::default(),
            refused: Counter::default(),
            refused_by_address: Counter::default(),
            responses: Default::default(),
        }
    }

    /// A request was answered with this status.
    pub fn count_response(&self, status: u16) {
        self.responses[usize::from(status / 100).min(CLASSES - 1)].add(1);
    }

    /// How many requests were answered, by the first digit of the status.
    pub fn responses(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.responses.iter().map(Counter::get).enumerate().skip(1)
    }
}
