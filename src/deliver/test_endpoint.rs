//! The test endpoint, for a first try: an address whose events the server accepts itself.
//!
//! No request is made, so that it needs no listener, no validation and no address of this server,
//! which are never called. Its name is in a domain that no name server has (RFC 6761): where the
//! setting removes it, nothing of an event subscription that was left reaches anybody.

use bytes::Bytes;
use futures_util::future::{LocalBoxFuture, ready};
use url::{Host, Url};

use super::{
    error::UnreachableError,
    sender::{Batch, Sender, Sent},
};
use gridhook_event::WallTime;
use gridhook_policy::outcome::{Outcome, RequestResult};

/// The address of the test endpoint. Any path below it is allowed.
pub const TEST_ENDPOINT: &str = "http://test-endpoint.invalid/";

const TEST_HOST: Host<&str> = Host::Domain("test-endpoint.invalid");

pub fn is_test_endpoint(url: &Url) -> bool {
    url.host() == Some(TEST_HOST)
}

/// Whether `address` is a URL of the test endpoint.
pub fn is_test_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| is_test_endpoint(&url))
}

pub struct TestSender;

impl Sender for TestSender {
    fn send_batch(&self, _: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let result = RequestResult {
            status: Some(200),
            body: Bytes::from_static(b"received by the test endpoint"),
            ..RequestResult::from_outcome(Outcome::Delivered)
        };
        Box::pin(ready((result, None)))
    }

    fn check_reachable(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        Box::pin(ready(Ok(())))
    }
}
