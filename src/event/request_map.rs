//! A map by the numbers of requests.

use std::collections::VecDeque;

use super::RequestId;

/// The map shrinks only above this capacity, in entries.
const SHRINK_ABOVE: usize = 64;

/// A map by the number of a request. Requests begin in the order of their numbers, so a sorted
/// queue is enough. A tree that ever had an entry would keep room for eleven, and most
/// subscriptions have one request in flight.
#[derive(Debug)]
pub struct RequestMap<T>(VecDeque<(RequestId, T)>);

impl<T> Default for RequestMap<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> RequestMap<T> {
    /// How many requests are in the map.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a request, or replaces the one with this number.
    pub fn insert(&mut self, id: RequestId, request: T) {
        match self.position_of(id) {
            Ok(at) => self.0[at].1 = request,
            Err(at) => {
                if self.0.capacity() == 0 {
                    // The queue alone would begin with room for four.
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (id, request));
            }
        }
    }

    /// The request with this number.
    pub fn get(&self, id: RequestId) -> Option<&T> {
        Some(&self.0[self.position_of(id).ok()?].1)
    }

    /// The request with this number.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let at = self.position_of(id).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Removes the request with this number.
    pub fn remove(&mut self, id: RequestId) -> Option<T> {
        let (_, removed) = self.0.remove(self.position_of(id).ok()?)?;
        if self.0.capacity() > SHRINK_ABOVE && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(removed)
    }

    /// The request with the lowest number.
    pub fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, request)| request)
    }

    /// The requests by their numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, request)| request)
    }

    /// In ascending order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut T)> {
        self.0.iter_mut().map(|(id, request)| (*id, request))
    }

    fn position_of(&self, id: RequestId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(known, _)| *known)
    }
}
