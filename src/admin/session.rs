//! `/ui/session`: sign-in and sign-out of the dashboard.

use actix_web::{HttpMessage, HttpRequest, HttpResponse, http::Method, web};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{
    AdminError, Control,
    auth::{self, AdminCaller, BySession},
};
use crate::{
    api::session::Session,
    dashboard::session::{IDLE, PREFIX},
};

/// 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// `POST /ui/session` starts a session, `GET` reports the caller, `DELETE` ends the session.
pub(super) async fn answer(
    method: Method,
    request: HttpRequest,
    control: web::Data<Control>,
) -> Result<HttpResponse, AdminError> {
    let Some(sessions) = &control.sessions else {
        return Err(AdminError::NoSuchPath(request.path().to_owned()));
    };
    let caller = AdminCaller::of(&request)?;
    let session = request.extensions().get::<BySession>().copied();
    let given = auth::bearer(&request).ok_or(AdminError::NoToken)?;
    let (token, expires) = match method {
        Method::DELETE if session.is_none() => {
            return Err(AdminError::Refused("The token is not that of a session; only a session can be ended.".into()));
        }
        Method::DELETE => {
            sessions.end(given);
            tracing::info!(operator = caller.identity().0, "signed out of the dashboard");
            return Ok(HttpResponse::NoContent().finish());
        }
        Method::POST if session.is_some() => {
            let why = "A session cannot start another session; send the token of an operator.";
            return Err(AdminError::Refused(why.to_owned()));
        }
        Method::POST => {
            let secret = format!("{PREFIX}{}", auth::secret(SECRET_BYTES, &URL_SAFE_NO_PAD)?);
            let expires = sessions.start(&secret, given, control.clock.now());
            tracing::info!(operator = caller.identity().0, "signed in to the dashboard");
            (Some(secret), Some(expires))
        }
        _ => (None, session.map(|session| session.expires)),
    };
    let (name, kind) = caller.identity();
    Ok(HttpResponse::Ok().json(Session {
        token,
        name: name.to_owned(),
        identity_type: format!("{kind:?}"),
        expires: expires.map(|expires| expires.to_string()),
        idle_seconds: IDLE.as_secs(),
    }))
}
