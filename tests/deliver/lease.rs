//! The lease of a node of a cluster: without it no request is sent.

use std::time::Duration;

use gridhook::{
    clock::Lease,
    deliver::{ClientOptions, WebhookClient},
    policy::outcome::Outcome,
};
use tokio::time::Instant;

use super::{AMPLE, options, post_to};
use crate::support::endpoint::{Endpoint, respond};

#[actix_rt::test]
async fn no_request_is_sent_without_a_lease() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let lease = Lease::new_unrenewed();
    let client = WebhookClient::new(ClientOptions {
        lease: Some(lease.clone()),
        ..options()
    });
    let hour = Duration::from_secs(3_600);
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.outcome,
        Outcome::Aborted
    );
    lease.renew_until(Instant::now() + hour);
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.outcome,
        Outcome::Delivered
    );
    lease.renew_until(Instant::now());
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.outcome,
        Outcome::Aborted,
        "on a connection that is kept"
    );
    lease.renew_until(Instant::now() + hour);
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.outcome,
        Outcome::Delivered
    );
    lease.end_for_good();
    lease.renew_until(Instant::now() + hour);
    assert_eq!(
        post_to(&client, &endpoint.url(), AMPLE).await.outcome,
        Outcome::Aborted,
        "it was ended for good"
    );
    assert_eq!(endpoint.requests().len(), 2);
}
