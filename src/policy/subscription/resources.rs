//! File descriptors and memory for requests, which all subscriptions share. The caller says what is
//! free before each turn, and ticks a subscription that waits once something is released.

use super::Subscription;
use gridhook_event::Timestamp;

impl Subscription {
    /// Limits the requests in flight to `most`, for lack of file descriptors.
    pub fn limit_requests(&mut self, most: usize) {
        self.requests.set_max(most);
    }

    /// Limits what is sent next to this many bytes of bodies, for lack of memory. The last request
    /// may exceed it.
    pub fn limit_bytes(&mut self, most: usize) {
        self.bytes_left = most;
    }

    /// Whether only memory for bodies is missing for the next request.
    pub fn waits_for_bytes(&self, now: Timestamp) -> bool {
        self.bytes_left == 0
            && !self.is_pulled()
            && self.requests.has_room()
            && self.endpoint.free_requests(self.requests.count_open(), now) > 0
    }

    /// Whether a request could leave now if the request limit allowed it. The caller ticks it again
    /// once there is room.
    pub fn waits_for_room(&self, now: Timestamp) -> bool {
        !self.requests.has_room()
            && !self.is_pulled()
            && self.endpoint.free_requests(self.requests.count_open(), now) > 0
    }

    /// Whether there are a file descriptor and memory for another request, whose release wakes the
    /// subscription; a pull client needs none. Where events have an order, a late success is
    /// settled first: an earlier incarnation may have sent later events of a key after it.
    pub(super) fn may_request(&self) -> bool {
        let is_in_order = self.ordering.is_none() || !self.late.is_any_unsettled();
        self.is_pulled() || self.requests.has_room() && self.bytes_left > 0 && is_in_order
    }
}
