//! `/ui/session`: sign-in and sign-out of the dashboard. `/sessions`: all sessions.

use crate::AdminResult;
use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::header::{ORIGIN, SET_COOKIE, USER_AGENT},
    web,
};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{
    AdminError, Control,
    auth::{self, Role},
    permissions::Permissions,
    random::random_text,
    shares::Holder,
};
use gridhook_api::session::{ListedSession, Session, SessionList};
use gridhook_dashboard::session::SessionSecret;
use gridhook_engine::control::sessions::{IDLE, LIFETIME, OpenSession, Sessions, session_id};
use gridhook_event::Timestamp;
use gridhook_record::session::{SessionOwner, SessionRecord};

/// Length of each half of a secret: 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// Maximum length of the name of a browser.
const BROWSER_CHARS: usize = 200;

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
    let secret = SessionSecret {
        cookie: random_text(SECRET_BYTES, &URL_SAFE_NO_PAD)?,
        key: random_text(SECRET_BYTES, &URL_SAFE_NO_PAD)?,
    };
    let token = auth::bearer_token(&request).ok_or(AdminError::NoToken)?;
    let owner = session_owner(&control, &request, &permissions);
    let expires = sessions
        .start(&secret.to_bearer(), token, owner, control.clock.now())
        .ok_or(AdminError::Broken("the token cannot be encrypted"))?;
    tracing::info!(
        operator = permissions.caller.identity().0,
        "signed in to the dashboard"
    );
    let cookie = secret.set_cookie(LIFETIME.as_secs(), is_secure(&request));
    let mut response = session_view(&permissions, Some(secret.key), Some(expires));
    add_cookie(&mut response, &cookie)?;
    Ok(response)
}

fn session_owner(
    control: &Control,
    request: &HttpRequest,
    permissions: &Permissions,
) -> SessionOwner {
    let Holder {
        key,
        is_administrator,
    } = permissions.holder();
    let address = control.failed_auth.client_address(request);
    let browser = request
        .headers()
        .get(USER_AGENT)
        .and_then(|browser| browser.to_str().ok());
    SessionOwner {
        key,
        is_administrator,
        name: permissions.caller.identity().0.to_owned(),
        role: role_name(permissions),
        from: address.map(|address| address.to_string()),
        browser: browser.map(|browser| browser.chars().take(BROWSER_CHARS).collect()),
    }
}

/// Whether the browser has reached the page over TLS, which a proxy may end.
fn is_secure(request: &HttpRequest) -> bool {
    request
        .headers()
        .get(ORIGIN)
        .is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn add_cookie(response: &mut HttpResponse, cookie: &str) -> Result<(), AdminError> {
    let value = cookie
        .parse()
        .map_err(|_| AdminError::Broken("the cookie of a session cannot be written"))?;
    response.headers_mut().append(SET_COOKIE, value);
    Ok(())
}

/// `DELETE /ui/session` ends the session.
pub(super) async fn end_session(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let sessions = find_sessions(&control, &request)?;
    let Permissions { caller, .. } = Permissions::from_request(&request)?;
    if !request.extensions().contains::<OpenSession>() {
        return Err(AdminError::Refused(
            "The token is not that of a session; only a session can be ended.".into(),
        ));
    }
    let bearer = auth::bearer_token(&request).ok_or(AdminError::NoToken)?;
    sessions.end_session(bearer);
    tracing::info!(
        operator = caller.identity().0,
        "signed out of the dashboard"
    );
    let mut response = HttpResponse::NoContent().finish();
    if let Some(secret) = SessionSecret::parse(bearer) {
        add_cookie(&mut response, &secret.set_cookie(0, is_secure(&request)))?;
    }
    Ok(response)
}

/// `GET /sessions` lists the sessions of all operators.
pub(super) async fn list_sessions(
    request: HttpRequest,
    control: web::Data<Control>,
) -> AdminResult {
    let sessions = find_sessions(&control, &request)?;
    let own_id = request
        .extensions()
        .get::<OpenSession>()
        .map(|session| session.id.clone());
    let value = sessions
        .list_sessions(control.clock.now())
        .into_iter()
        .map(|record| listed_session(record, own_id.as_deref()))
        .collect();
    Ok(HttpResponse::Ok().json(SessionList { value }))
}

/// `DELETE /sessions/{sessionId}` ends the session of an operator.
pub(super) async fn end_session_by_id(
    request: HttpRequest,
    id: web::Path<String>,
    control: web::Data<Control>,
) -> AdminResult {
    let sessions = find_sessions(&control, &request)?;
    let Permissions { caller, .. } = Permissions::from_request(&request)?;
    let Some(record) = sessions.end_session_by_id(&id) else {
        return Err(AdminError::NotFound(format!("There is no session '{id}'.")));
    };
    tracing::info!(
        of = record.owner.name,
        operator = caller.identity().0,
        "ended a session of the dashboard"
    );
    Ok(HttpResponse::NoContent().finish())
}

fn listed_session(record: SessionRecord, own_id: Option<&str>) -> ListedSession {
    let id = session_id(&record).to_owned();
    ListedSession {
        is_own: own_id == Some(id.as_str()),
        id,
        name: record.owner.name,
        role: record.owner.role,
        from: record.owner.from,
        browser: record.owner.browser,
        started: record.started.to_string(),
        last_used: record.last_used.to_string(),
        expires: record.started.after(LIFETIME).to_string(),
    }
}

/// The sessions; without a dashboard, its paths do not exist.
pub(super) fn find_sessions<'a>(
    control: &'a Control,
    request: &HttpRequest,
) -> AdminResult<&'a Sessions> {
    if !control.has_dashboard {
        return Err(AdminError::NoSuchPath(request.path().to_owned()));
    }
    Ok(control.registry.sessions())
}

fn role_name(permissions: &Permissions) -> String {
    permissions
        .highest_role()
        .map_or("none", Role::name)
        .to_owned()
}

fn session_view(
    permissions: &Permissions,
    key: Option<String>,
    expires: Option<Timestamp>,
) -> HttpResponse {
    let (name, kind) = permissions.caller.identity();
    HttpResponse::Ok().json(Session {
        key,
        name: name.to_owned(),
        identity_type: format!("{kind:?}"),
        role: role_name(permissions),
        expires: expires.map(|expires| expires.to_string()),
        idle_seconds: IDLE.as_secs(),
    })
}
