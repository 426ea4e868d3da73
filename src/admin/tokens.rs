//! `/tokens`: named tokens. A token is shown once, in the response that creates it.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tracing::info;

use super::{
    AdminError, Control,
    arm::read_json,
    audit,
    model::{self, CheckResult, InvalidRequest},
    permissions::Permissions,
    random::random_text,
};
use crate::{AdminResult, model::refuse_value, respond_nothing};
use gridhook_api::token::{Token, TokenBody, TokenList};
use gridhook_dashboard as dashboard;
use gridhook_engine::control::tokens::{self, PREFIX};
use gridhook_event::Timestamp;
use gridhook_record::token::{InvalidGrant, Scope, TokenRecord, TokenRole};

/// 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// Maximum length of a name.
const NAME_CHARS: usize = 64;

/// Maximum number of scopes of a token.
const SCOPES_MAX: usize = 50;

/// Maximum length of a scope.
const SCOPE_CHARS: usize = 400;

/// Maximum lifetime of a token with the role `portal`.
const PORTAL_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Names of callers that are no tokens.
const RESERVED: [&str; 2] = ["admin", "gridhook"];

/// `GET /tokens`.
pub(super) async fn list_tokens(control: web::Data<Control>) -> HttpResponse {
    let value = control
        .registry
        .tokens()
        .list_tokens()
        .iter()
        .map(|token| token_view(token.to_record()))
        .collect();
    HttpResponse::Ok().json(TokenList { value })
}

/// `POST /tokens`.
pub(super) async fn create_token(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> AdminResult {
    let body: TokenBody = read_json(payload).await?;
    let Permissions { caller, .. } = Permissions::from_request(&request)?;
    let name = checked_name(&body.name)?;
    let now = control.clock.wall_time().to_timestamp();
    let roles = parse_roles(&body.roles)?;
    let scopes = parse_scopes(&body.scopes)?;
    let expires = body
        .expires
        .as_deref()
        .map(|expires| parse_expiry(expires, now))
        .transpose()?;
    let is_portal = roles.contains(&TokenRole::Portal);
    if is_portal {
        check_portal(&roles, &scopes, expires.map(|expires| expires.since(now)))?;
    }
    let secret = format!("{PREFIX}{}", random_text(SECRET_BYTES, &URL_SAFE_NO_PAD)?);
    let record = TokenRecord {
        name,
        digest: tokens::digest_text(&secret),
        roles,
        scopes,
        created: now,
        created_by: caller.identity().0.to_owned(),
        expires,
        last_used: None,
    };
    let shown = token_view(record.clone());
    audit::expect_status(StatusCode::CREATED);
    audit::plan_change(None, &shown);
    let token = control.registry.tokens().create_token(record).await?;
    info!(
        token = token.name(),
        operator = caller.identity().0,
        "token created"
    );
    let link = is_portal.then(|| {
        format!(
            "{}{}#token={secret}",
            control.operators_url(&request),
            dashboard::PATH
        )
    });
    Ok(HttpResponse::Created().json(Token {
        token: Some(secret),
        link,
        ..shown
    }))
}

/// `DELETE /tokens/{tokenName}`.
pub(super) async fn revoke_token(
    request: HttpRequest,
    name: web::Path<String>,
    control: web::Data<Control>,
) -> AdminResult {
    let Permissions { caller, .. } = Permissions::from_request(&request)?;
    let Some(token) = control.registry.tokens().revoke_token(&name).await? else {
        return Err(AdminError::NotFound(format!("There is no token '{name}'.")));
    };
    info!(
        token = token.name(),
        operator = caller.identity().0,
        "token revoked"
    );
    respond_nothing()
}

fn checked_name(name: &str) -> CheckResult<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > NAME_CHARS || !name.bytes().all(is_allowed) {
        let expected = format!("1 to {NAME_CHARS} letters, digits, '.', '_' and '-'");
        return Err(InvalidRequest::unexpected("name", name, expected));
    }
    if RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return refuse_value(
            "name",
            format!("is \"{name}\", which is reserved; expected another name"),
        );
    }
    Ok(name.to_owned())
}

fn parse_roles(given: &[String]) -> CheckResult<Vec<TokenRole>> {
    let mut roles: Vec<TokenRole> = Vec::new();
    for role in given {
        let role = role
            .parse()
            .map_err(|error: InvalidGrant| InvalidRequest::new("roles", error.to_string()))?;
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    if roles.is_empty() {
        let problem = "is empty; expected at least one of publish, consume, portal, read, operate \
            or admin";
        return refuse_value("roles", problem);
    }
    Ok(roles)
}

fn parse_scopes(given: &[String]) -> CheckResult<Vec<Scope>> {
    let invalid = |problem: String| InvalidRequest::new("scopes", problem);
    if given.len() > SCOPES_MAX || given.iter().any(|scope| scope.len() > SCOPE_CHARS) {
        let problem = format!(
            "has too much; expected at most {SCOPES_MAX} scopes of {SCOPE_CHARS} characters"
        );
        return Err(invalid(problem));
    }
    given
        .iter()
        .map(|scope| {
            scope
                .parse()
                .map_err(|error: InvalidGrant| invalid(error.to_string()))
        })
        .collect()
}

fn parse_expiry(given: &str, now: Timestamp) -> CheckResult<Timestamp> {
    let expires = model::parse_instant("expires", given)?;
    if expires > now {
        return Ok(expires);
    }
    let problem =
        format!("is {expires}, which is not in the future (it is {now}); expected a later time");
    refuse_value("expires", problem)
}

/// A link may be passed on, so its token is narrow and ends soon.
fn check_portal(roles: &[TokenRole], scopes: &[Scope], lifetime: Option<Duration>) -> CheckResult {
    if roles.len() > 1 {
        return refuse_value("roles", "has portal and others; expected portal alone");
    }
    if scopes.is_empty() {
        return refuse_value(
            "scopes",
            "is empty; a token with the role portal needs one, such as labels/team=shop",
        );
    }
    if lifetime.is_none_or(|lifetime| lifetime > PORTAL_LIFETIME_MAX) {
        let problem =
            "is missing or more than 7 days from now; a token with the role portal ends before";
        return refuse_value("expires", problem);
    }
    Ok(())
}

fn token_view(record: TokenRecord) -> Token {
    Token {
        name: record.name,
        roles: record
            .roles
            .iter()
            .map(|role| role.name().to_owned())
            .collect(),
        scopes: record.scopes.iter().map(ToString::to_string).collect(),
        created: record.created.to_string(),
        created_by: record.created_by,
        expires: record.expires.map(|expires| expires.to_string()),
        last_used: record.last_used.map(|used| used.to_string()),
        token: None,
        link: None,
    }
}
