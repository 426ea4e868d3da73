//! Refuses requests whose writes wait too long for the changelog of the cluster.

use actix_web::{HttpResponse, dev::ServiceRequest, error::InternalError, http::Method};

use crate::{
    forward::unavailable_response,
    node::{StallReason, WriteStall},
};

/// What begins the paths of requests that an owner takes while its writes wait: those that end such
/// a wait, sign in, identify a caller, copy the store or make faults. They change nothing in the
/// journal.
const WITHOUT_WRITES: [&str; 5] = [
    "/cluster/",
    "/ui/session",
    "/chaos/",
    "/node/identity",
    "/node/store",
];

/// The state of writes at this node, if a request may wait for a write.
pub(super) fn find_write_stall(request: &ServiceRequest) -> Option<WriteStall> {
    if may_write(request.method(), request.path()) {
        request.app_data::<WriteStall>().cloned()
    } else {
        None
    }
}

/// The refusal of a request if writes wait already.
pub(super) fn refuse_stalled(stall: Option<&WriteStall>) -> Option<HttpResponse> {
    let reason = stall?.reason()?;
    Some(unavailable_response(explain_stall(reason)))
}

/// Responds to a request whose write waits for too long.
pub(super) async fn unless_stalled<T>(
    response: impl Future<Output = actix_web::Result<T>>,
    stall: Option<WriteStall>,
) -> actix_web::Result<T> {
    let Some(stall) = stall else {
        return response.await;
    };
    // Boxed, so that requests to a server of its own have a smaller future.
    let refusal = Box::pin(async move {
        tokio::select! {
            biased;
            response = response => response,
            reason = stall.wait_until_stalled() => {
                let message = format!("{}; the request may or may not have been processed", explain_stall(reason));
                Err(InternalError::from_response(explain_stall(reason), unavailable_response(&message)).into())
            }
        }
    });
    refusal.await
}

/// Why an owner does not process a request.
fn explain_stall(reason: StallReason) -> &'static str {
    match reason {
        StallReason::Full => "the stream of the cluster is full (gridhook help cluster)",
        StallReason::Unreachable => "the servers of NATS cannot be reached, or have no majority",
    }
}

/// Whether a request may wait for a write to the journal.
fn may_write(method: &Method, path: &str) -> bool {
    *method != Method::GET
        && !WITHOUT_WRITES
            .iter()
            .any(|without| path.starts_with(without))
}
