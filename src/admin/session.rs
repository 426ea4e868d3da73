//! `/ui/session`: sign-in and sign-out of the dashboard.

use crate::{AdminResult, respond_nothing};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{
    AdminError, Control,
    auth::{self, AdminCaller, Role},
    permissions::Permissions,
    random::random_text,
    shares::Holder,
};
use gridhook_api::session::Session;
use gridhook_dashboard::session::{IDLE, OpenSession, PREFIX, SessionOwner, Sessions};
use gridhook_event::Timestamp;

/// 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// `GET /ui/session` reports the caller.
pub(super) async fn get_session(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    find_sessions(&control, &request)?;
    let expires = request
        .extensions()
        .get::<OpenSession>()
        .map(|session| session.expires);
    Ok(session_view(
        &Permissions::from_request(&request)?,
        None,
        expires,
    ))
}

/// `POST /ui/session` starts a session.
pub(super) async fn start(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let sessions = find_sessions(&control, &request)?;
    let permissions = Permissions::from_request(&request)?;
    if request.extensions().contains::<OpenSession>() {
        let why = "A session cannot start another session; send the token of an operator.";
        return Err(AdminError::Refused(why.to_owned()));
    }
    let secret = format!("{PREFIX}{}", random_text(SECRET_BYTES, &URL_SAFE_NO_PAD)?);
    let token = auth::bearer_token(&request).ok_or(AdminError::NoToken)?;
    let Holder {
        key,
        is_administrator,
    } = permissions.holder();
    let expires = sessions.start(
        &secret,
        token,
        SessionOwner {
            key,
            is_administrator,
        },
        control.clock.now(),
    );
    tracing::info!(
        operator = permissions.caller.identity().0,
        "signed in to the dashboard"
    );
    Ok(session_view(&permissions, Some(secret), Some(expires)))
}

/// `DELETE /ui/session` ends the session.
pub(super) async fn end_session(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let sessions = find_sessions(&control, &request)?;
    let caller = AdminCaller::from_request(&request)?;
    if !request.extensions().contains::<OpenSession>() {
        return Err(AdminError::Refused(
            "The token is not that of a session; only a session can be ended.".into(),
        ));
    }
    sessions.end_session(auth::bearer_token(&request).ok_or(AdminError::NoToken)?);
    tracing::info!(
        operator = caller.identity().0,
        "signed out of the dashboard"
    );
    respond_nothing()
}

/// The sessions; without a dashboard, its paths do not exist.
pub(super) fn find_sessions<'a>(
    control: &'a Control,
    request: &HttpRequest,
) -> AdminResult<&'a Sessions> {
    control
        .sessions
        .as_ref()
        .ok_or_else(|| AdminError::NoSuchPath(request.path().to_owned()))
}

fn session_view(
    permissions: &Permissions,
    token: Option<String>,
    expires: Option<Timestamp>,
) -> HttpResponse {
    let (name, kind) = permissions.caller.identity();
    HttpResponse::Ok().json(Session {
        token,
        name: name.to_owned(),
        identity_type: format!("{kind:?}"),
        role: permissions
            .highest_role()
            .map_or("none", Role::name)
            .to_owned(),
        expires: expires.map(|expires| expires.to_string()),
        idle_seconds: IDLE.as_secs(),
    })
}
