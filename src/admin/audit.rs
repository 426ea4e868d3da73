//! The audit trail: records every operation that needs more than the role `read`, refused ones too.
//! `GET /audit` lists it.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest,
    http::{Method, StatusCode},
    web,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    Control,
    arm::{self, path},
    auth::Role,
    permissions::Permissions,
    query, request_id,
};
use crate::{AdminResult, model::difference::difference_between, respond_json};
use gridhook_api::audit::{AuditEntry, AuditPageView};
use gridhook_engine::control::audit::{AuditFilter, AuditedOperation};
use gridhook_record::audit::{AuditRecord, SESSION_PATH, ValueChange};

/// How long a response waits for its audit record where it must not wait for the changelog of a
/// cluster.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of a recorded path.
const PATH_CHARS: usize = 500;

/// Maximum number of recorded changes of one operation.
const CHANGES_MAX: usize = 100;

/// Maximum length of a recorded value as JSON.
const VALUE_BYTES: usize = 1_000;

/// Properties that the server changes, not the operator.
const OWN_PROPERTIES: [&str; 2] = ["systemData", "provisioningState"];

/// Outputs of a deployment may have access keys.
const OUTPUTS: &str = "properties.outputs.";

/// Default number of listed operations.
const TOP: usize = 100;

/// Maximum number of listed operations.
const TOP_MAX: usize = 1_000;

/// The changes between two JSON documents without secrets, such as the bodies of two responses to
/// the GET of a resource.
pub(super) fn recorded_changes(before: Option<&[u8]>, after: Option<&[u8]>) -> Vec<ValueChange> {
    let [before, after] = [before, after].map(|json| serde_json::from_slice(json?).ok());
    let mut changes = difference_between(before.as_ref(), &after.unwrap_or(Value::Null)).changes;
    changes.retain(|change| {
        let is_own = change
            .at
            .split('.')
            .any(|key| OWN_PROPERTIES.contains(&key));
        !is_own && !change.at.starts_with(OUTPUTS)
    });
    changes
        .into_iter()
        .take(CHANGES_MAX)
        .map(bounded_change)
        .collect()
}

/// Sets the changes that the operation of this task makes, if it is recorded. Called before a
/// change with what it will be, so that the record in its batch is complete.
pub(super) fn set_changes(changes: impl FnOnce() -> Vec<ValueChange>) {
    if let Some(operation) = AuditedOperation::current() {
        operation.set_changes(changes());
    }
}

/// Sets the difference between the GET of a resource and what it will return after the change.
pub(super) fn plan_change(before: Option<&[u8]>, after: &impl Serialize) {
    set_changes(|| recorded_changes(before, serde_json::to_vec(after).ok().as_deref()));
}

/// Sets the status that the operation of this task has if it succeeds.
pub(super) fn expect_status(status: StatusCode) {
    if let Some(operation) = AuditedOperation::current() {
        operation.set_status(status.as_u16());
    }
}

/// The shard that records a request, if several shards of the cluster receive it. The router puts
/// this into the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartRecord {
    /// Another shard records the request.
    Elsewhere,
    /// This shard records the request if it has done what is asked for; otherwise another one is
    /// asked to.
    IfDone,
}

/// Whether a request with this role is recorded. The difference of a PUT or PATCH is no change.
/// Sign-ins are recorded because one may end the session of another operator.
fn is_audited(needed: Role, request: &HttpRequest) -> bool {
    let has_difference = [Method::PUT, Method::PATCH].contains(request.method());
    let is_what_if = || has_difference && arm::is_what_if(request).unwrap_or(false);
    let is_recorded_elsewhere = || request.extensions().get() == Some(&PartRecord::Elsewhere);
    (needed >= Role::Operate || is_sign_in(request)) && !is_what_if() && !is_recorded_elsewhere()
}

fn is_sign_in(request: &HttpRequest) -> bool {
    let methods = [Method::POST, Method::DELETE];
    methods.contains(request.method()) && request.match_pattern().as_deref() == Some(SESSION_PATH)
}

/// The operation of a request that is recorded; [`None`] for one that is not.
pub(super) fn begin_request(
    control: &Control,
    needed: Role,
    request: &HttpRequest,
    permissions: Option<&Permissions>,
) -> Option<Arc<AuditedOperation>> {
    if !is_audited(needed, request) {
        return None;
    }
    // A client may have escaped letters of the path of a sign-in.
    let path = if is_sign_in(request) {
        SESSION_PATH
    } else {
        request.path()
    };
    begin_operation(control, request, permissions, request.method(), path)
}

/// The operation of a request, or the change of a resource that a request for another one makes.
pub(super) fn begin_operation(
    control: &Control,
    request: &HttpRequest,
    permissions: Option<&Permissions>,
    method: &Method,
    path: &str,
) -> Option<Arc<AuditedOperation>> {
    let trail = control.audit.as_ref()?;
    let identity = permissions.map(|permissions| permissions.caller.identity());
    let id = request_id::current_id()
        .map(|id| id.to_string())
        .unwrap_or_default();
    let status = match *method {
        Method::PUT | Method::PATCH => StatusCode::CREATED,
        Method::DELETE => StatusCode::NO_CONTENT,
        _ => StatusCode::OK,
    };
    let path = path.chars().take(PATH_CHARS).collect();
    let record = AuditRecord {
        at: control.clock.now(),
        operator: identity.map(|(name, _)| name.to_owned()),
        is_administrator: permissions.is_some_and(Permissions::is_administrator),
        identity_type: identity.map(|(_, kind)| format!("{kind:?}")),
        from: control
            .failed_auth
            .client_address(request)
            .map(|address| address.to_string()),
        method: method.to_string(),
        path,
        status: status.as_u16(),
        request_id: id,
        changes: Vec::new(),
        suppressed: 0,
    };
    Some(AuditedOperation::new(
        Arc::clone(trail),
        control.clock.clone(),
        record,
    ))
}

/// Records how an operation ended. The record of a fault is not waited for: the fault may hold up
/// its write. Nor is that of a request whose response is sent while writes wait for the changelog of a
/// cluster, for longer than a moment.
pub(super) async fn finish_operation(
    operation: Arc<AuditedOperation>,
    request: &HttpRequest,
    status: StatusCode,
) {
    let is_done_elsewhere =
        !status.is_success() && request.extensions().get() == Some(&PartRecord::IfDone);
    if is_done_elsewhere && !operation.is_stored() {
        return operation.withdraw().await;
    }
    operation.set_status(status.as_u16());
    if !status.is_success() && !operation.is_stored() {
        operation.set_changes(Vec::new());
    }
    let stored = async move { operation.finish().await };
    let path = request.match_pattern().unwrap_or_default();
    if path.starts_with("/chaos/") {
        actix_web::rt::spawn(stored);
    } else if path.starts_with("/cluster/") || path == SESSION_PATH {
        // Goes on beyond the end of the wait.
        timeout(RECORD_TIMEOUT, actix_web::rt::spawn(stored))
            .await
            .ok();
    } else {
        stored.await;
    }
}

/// The change with values of bounded length.
fn bounded_change(change: ValueChange) -> ValueChange {
    ValueChange {
        at: change.at,
        before: bounded_value(change.before),
        after: bounded_value(change.after),
    }
}

/// The value, or only its length if it is too long to record.
fn bounded_value(value: Value) -> Value {
    match value.to_string().len() {
        bytes @ VALUE_BYTES.. => format!("({bytes} bytes)").into(),
        _ => value,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    top: Option<String>,
    r#continue: Option<String>,
    operator: Option<String>,
    search: Option<String>,
    #[serde(default)]
    refused: bool,
}

/// `GET /audit`.
pub(super) async fn list(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let query: AuditQuery = query::read(
        request.query_string(),
        "top, continue, operator, search, or refused: true or false",
    )?;
    let top = query::parse_number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, "operations")?;
    let before = match query.r#continue.as_deref() {
        None => None,
        given => Some(query::parse_number(
            "continue",
            given,
            0,
            0..=usize::MAX,
            "as the last page has it",
        )? as u64),
    };
    let Some(trail) = &control.audit else {
        return respond_json(&AuditPageView {
            value: Vec::new(),
            r#continue: None,
        });
    };
    let filter = AuditFilter {
        operator: query.operator,
        search: query.search,
        is_refused: query.refused,
    };
    let page = trail.page(top, before, &filter).await?;
    let value = page
        .records
        .into_iter()
        .map(|(number, record)| entry_view(number, record))
        .collect();
    respond_json(&AuditPageView {
        value,
        r#continue: page.next.map(|next| next.to_string()),
    })
}

fn entry_view(number: u64, record: AuditRecord) -> AuditEntry {
    AuditEntry {
        number,
        at: record.at.to_string(),
        operator: record.operator,
        identity_type: record.identity_type,
        from: record.from,
        method: record.method,
        path: record.path,
        status: record.status,
        request_id: record.request_id,
        changes: record.changes,
        suppressed: record.suppressed,
    }
}

/// Whether the audit trail has the body of a POST: it describes the change, and has neither events
/// nor secrets.
pub(super) fn has_recorded_body(path: &path::ArmPath) -> bool {
    let recorded_actions = [
        "/regenerateKey",
        "/redrive",
        "/purge",
        "/replays",
        "/unblock",
        "/retry",
    ];
    recorded_actions
        .iter()
        .any(|end| path.route.template.ends_with(end))
}
