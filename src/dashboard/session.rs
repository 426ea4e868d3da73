//! The session of a browser: in a cookie and a header, which are one secret together.
//!
//! A browser sends a cookie to every port of the host, and with the requests of pages on other
//! ports. So the cookie is only half of the secret. The page keeps the other half, the key, in the
//! storage of its origin, and sends it in the header [`KEY_HEADER`]: no other page can read it, and
//! a request of another page lacks it. The cookie is `HttpOnly`, so that a script has no secret that
//! it could send away.
//!
//! The cookie has no `Path`: a browser sends it to the folder of the request that set it and to what
//! lies below, also behind a proxy with a path prefix. So the page reaches the API below its own
//! path ([`API`]). Its name depends on the key, so that several servers on one host, and several
//! sessions of one server, have their own.

use actix_web::{
    dev::{RequestHead, ServiceRequest},
    http::{
        Uri,
        header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue},
        uri::PathAndQuery,
    },
};
use sha2::{Digest, Sha256};

/// The beginning of the secret of every session, which tells it from other tokens.
pub const PREFIX: &str = "ghs_";

/// The header with the key of the session.
pub const KEY_HEADER: &str = "gridhook-session-key";

/// The beginning of the path by which the page reaches the API.
pub const API: &str = "/ui/api/";

/// The path at which sessions start and end. Its folder is the path of the cookie.
const SESSION_PATH: &str = "/ui/session";

/// Length of each half of a secret: 32 bytes in Base64.
const HALF_CHARS: usize = 43;

/// In the data of a listener that serves the page.
#[derive(Clone, Copy, Debug)]
pub struct ServesPage;

/// The secret of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret {
    /// The half in the cookie.
    pub cookie: String,
    /// The half that the page keeps.
    pub key: String,
}

impl SessionSecret {
    /// The secret in a bearer token.
    pub fn parse(bearer: &str) -> Option<Self> {
        let (cookie, key) = bearer.strip_prefix(PREFIX)?.split_at_checked(HALF_CHARS)?;
        Some(Self {
            cookie: cookie.to_owned(),
            key: key.to_owned(),
        })
    }

    /// The secret as a bearer token.
    pub fn to_bearer(&self) -> String {
        format!("{PREFIX}{}{}", self.cookie, self.key)
    }

    /// The value of `Set-Cookie` that keeps the session for so many seconds; 0 removes it.
    pub fn set_cookie(&self, seconds: u64, is_secure: bool) -> String {
        let name = cookie_name(&self.key);
        let secure = if is_secure { "; Secure" } else { "" };
        format!(
            "{name}={}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
            self.cookie
        )
    }
}

/// The name of the cookie of a session with this key.
fn cookie_name(key: &str) -> String {
    let digest = format!("{:x}", Sha256::digest(key));
    format!("gridhook-session-{}", &digest[..8])
}

/// Makes a request of the page one of the API: removes the beginning of its path, and replaces
/// cookie and key by the session's bearer token. Other requests with a cookie have no session.
pub fn adopt_session(request: &mut ServiceRequest) {
    if request.app_data::<ServesPage>().is_none() {
        return;
    }
    let api_uri = uri_of_api(request.uri());
    if api_uri.is_none() && request.path() != SESSION_PATH {
        return;
    }
    let bearer = find_secret(request.head()).map(|secret| secret.to_bearer());
    let headers = request.headers_mut();
    headers.remove(COOKIE);
    headers.remove(KEY_HEADER);
    let bearer = bearer.filter(|_| !headers.contains_key(AUTHORIZATION));
    if let Some(value) = bearer.and_then(|bearer| format!("Bearer {bearer}").parse().ok()) {
        headers.insert(AUTHORIZATION, value);
    }
    if let Some(uri) = api_uri {
        request.match_info_mut().get_mut().update(&uri);
        request.head_mut().uri = uri;
    }
}

/// The URI of the API that the page asks for.
fn uri_of_api(uri: &Uri) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str().strip_prefix(API)?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/{path}").parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// The secret of the session whose key and cookie a request has.
fn find_secret(head: &RequestHead) -> Option<SessionSecret> {
    let key = head
        .headers
        .get(HeaderName::from_static(KEY_HEADER))?
        .to_str()
        .ok()?;
    let name = cookie_name(key);
    let lines = head.headers.get_all(COOKIE).map(HeaderValue::to_str);
    let cookie = lines
        .flatten()
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(other, _)| *other == name)?
        .1;
    Some(SessionSecret {
        cookie: cookie.to_owned(),
        key: key.to_owned(),
    })
}
