//! Counters of an address that the server listens on.

use super::Counter;

/// Statuses are counted by their first digit.
const CLASSES: usize = 6;

/// Counters of an address that the server listens on.
#[derive(Debug)]
pub struct ListenerCounters {
    pub name: &'static str,
    pub open: Counter,
    pub admitted: Counter,
    /// Connections rejected at the connection limit.
    pub refused: Counter,
    /// Connections rejected at the limit per client address.
    pub refused_by_address: Counter,
    responses: [Counter; CLASSES],
}

impl ListenerCounters {
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

    pub fn count_response(&self, status: u16) {
        self.responses[usize::from(status / 100).min(CLASSES - 1)].add(1);
    }

    /// Number of responses by the first digit of the status.
    pub fn responses(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.responses.iter().map(Counter::get).enumerate().skip(1)
    }
}
