//! The identity of callers whose token only the control plane can check.
//!
//! The responses of its owner are used for a second. So a revoked token and an ended session are
//! refused everywhere after a second, and their open responses end within two. While the control
//! plane has no owner nothing can be revoked, and a known response is used for longer; but not for
//! long, because another node may see the owner that this one does not.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use actix_web::HttpRequest;
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use tokio::time::{Instant, sleep};

use super::owner;
use crate::{
    forward::{EarlyEnd, Hops},
    forward_error::ForwardError,
    front::hop,
};
use gridhook_admin::auth::{ForwardedIdentity, bearer_in};

/// The time for which a response is used.
const FRESH: Duration = Duration::from_secs(1);

/// The time for which a known response is used if the owner of the control plane cannot be asked.
const STALE_MAX: Duration = Duration::from_secs(10);

/// The maximum number of callers that a thread remembers.
const CALLERS_MAX: usize = 1_000;

/// The interval in which the refusals of unknown tokens are counted, and how many a thread asks
/// for.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);
const REFUSALS: u32 = 50;

/// The responses of the owner of the control plane that a thread remembers.
pub(super) struct Identities {
    control: Rc<Hops>,
    known: RefCell<HashMap<String, KnownCaller>>,
    /// The time since which refusals are counted, and their number.
    refusals: Cell<(Instant, u32)>,
}

#[derive(Clone)]
struct KnownCaller {
    at: Instant,
    /// [`None`] for a token that is refused.
    identity: Option<Rc<ForwardedIdentity>>,
}

impl Identities {
    pub(super) fn new(control: Rc<Hops>) -> Self {
        Self {
            control,
            known: RefCell::default(),
            refusals: Cell::new((Instant::now(), 0)),
        }
    }

    /// Adds what the owner of another shard needs to know. Returns the bearer token if it was
    /// needed, and is known.
    ///
    /// # Errors
    /// If the control plane cannot be asked.
    pub(super) async fn identify_caller(
        &self,
        headers: &mut HeaderMap,
    ) -> Result<Option<String>, ForwardError> {
        let Some(bearer) =
            bearer_token(headers).filter(|bearer| ForwardedIdentity::is_needed(bearer))
        else {
            return Ok(None);
        };
        // An unknown token goes on as it is, and the owner refuses it.
        let Some(identity) = self.find_identity(&bearer).await? else {
            return Ok(None);
        };
        let unwritable = |_| ForwardError::TokenRecord;
        if let Some(token) = &identity.stands_for {
            let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(unwritable)?;
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(record) = &identity.record {
            let record = serde_json::to_vec(record).map_err(|_| ForwardError::TokenRecord)?;
            let value = HeaderValue::from_bytes(&record).map_err(unwritable)?;
            headers.insert(HeaderName::from_static(hop::TOKEN_NAME), value);
        }
        Ok(Some(bearer))
    }

    async fn find_identity(
        &self,
        bearer: &str,
    ) -> Result<Option<Rc<ForwardedIdentity>>, ForwardError> {
        let cached = self.known.borrow().get(bearer).cloned();
        let age = cached
            .as_ref()
            .map_or(Duration::MAX, |known| known.at.elapsed());
        let usable = cached.filter(|_| age < STALE_MAX);
        if let Some(known) = usable
            .as_ref()
            .filter(|_| age < FRESH || !self.control.forwarder().has_owner())
        {
            return Ok(known.identity.clone());
        }
        if usable.is_none() && self.recent_refusals() >= REFUSALS {
            // Guessed tokens must not keep the owner of the control shard busy.
            return Err(ForwardError::TooManyInvalidTokens);
        }
        match owner::fetch_identity(&self.control, bearer).await {
            Ok(identity) => {
                if identity.is_none() {
                    self.note_refusal();
                }
                let identity = identity.map(Rc::new);
                let mut cache = self.known.borrow_mut();
                if cache.len() >= CALLERS_MAX {
                    cache.clear();
                }
                cache.insert(
                    bearer.to_owned(),
                    KnownCaller {
                        at: Instant::now(),
                        identity: identity.clone(),
                    },
                );
                Ok(identity)
            }
            Err(why) => usable.map(|known| known.identity).ok_or(why),
        }
    }

    /// Returns once the caller's token is refused, if only the control plane knows it.
    pub(super) fn watch_caller(self: &Rc<Self>, request: &HttpRequest) -> EarlyEnd {
        let header = request
            .headers()
            .get(actix_web::http::header::AUTHORIZATION);
        let bearer = header.and_then(bearer_in);
        match bearer.filter(|bearer| ForwardedIdentity::is_needed(bearer)) {
            Some(bearer) => Rc::clone(self).wait_until_refused(bearer.to_owned()),
            None => Box::pin(std::future::pending()),
        }
    }

    fn recent_refusals(&self) -> u32 {
        let (since, refusals) = self.refusals.get();
        if since.elapsed() < REFUSAL_INTERVAL {
            refusals
        } else {
            0
        }
    }

    fn note_refusal(&self) {
        let refusals = self.recent_refusals();
        let since = match refusals {
            0 => Instant::now(),
            _ => self.refusals.get().0,
        };
        self.refusals.set((since, refusals + 1));
    }

    /// Returns once a token is refused.
    pub(super) fn wait_until_refused(self: Rc<Self>, bearer: String) -> EarlyEnd {
        Box::pin(async move {
            loop {
                sleep(FRESH).await;
                if let Ok(None) = self.find_identity(&bearer).await {
                    return "the token was revoked, or the session has ended";
                }
            }
        })
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers
        .get(AUTHORIZATION)?
        .to_str()
        .ok()?
        .trim()
        .split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("Bearer")
        .then(|| token.trim().to_owned())
}
