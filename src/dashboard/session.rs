//! Sessions of signed-in browsers.
//!
//! A session stands for the token it was started with: each request with the session is
//! authenticated with that token again. A session therefore ends at once when its token is
//! replaced, revoked or expires, and never allows more than it.
//!
//! Sessions are in memory only, by the digest of their secret, and end with the process.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use gridhook_event::Timestamp;

/// The beginning of the secret of every session, which tells it from other tokens.
pub const PREFIX: &str = "ghs_";

/// A session ends after this time without a request and without an open stream …
pub const IDLE: Duration = Duration::from_secs(30 * 60);

/// … and at the latest after this time.
pub const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Maximum number of sessions. One more ends the session that was unused for longest, of the caller
/// with most of them.
pub const SESSIONS_MAX: usize = 64;

/// Maximum number of sessions of a caller that is no administrator. One more ends the caller's own
/// session that was unused for longest.
pub const SESSIONS_OF_CALLER_MAX: usize = 8;

/// Of the sessions so many are for administrators: others do not end them.
const RESERVE: usize = 16;

/// The caller that a session is started for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionOwner {
    /// What tells it from all others.
    pub key: String,
    /// Whether it has the role admin for the whole server.
    pub is_administrator: bool,
}

struct Session {
    token: String,
    owner: SessionOwner,
    started: Timestamp,
    /// Microseconds.
    used: Arc<AtomicU64>,
    /// Closed when the session is removed.
    open: watch::Sender<()>,
}

/// A session at the time of a request.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The time at which it ends at the latest.
    pub expires: Timestamp,
    used: Arc<AtomicU64>,
    open: watch::Receiver<()>,
}

impl OpenSession {
    /// Counts as a use: a stream of the session is open.
    pub fn note_use(&self, now: Timestamp) {
        self.used.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Waits until the session is removed, or ends by a clock that is `now` at present.
    pub async fn wait_until_ended(mut self, now: Timestamp) {
        tokio::select! {
            _ = self.open.changed() => {}
            () = tokio::time::sleep(self.expires.since(now)) => {}
        }
    }
}

impl Session {
    fn last_use(&self) -> Timestamp {
        Timestamp(self.used.load(Ordering::Relaxed))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last_use()) >= IDLE || now.since(self.started) >= LIFETIME
    }
}

/// The sessions of a server.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

impl Sessions {
    /// Starts a session that stands for `token`. Returns the time at which it ends at the latest.
    pub fn start(
        &self,
        secret: &str,
        token: &str,
        owner: SessionOwner,
        now: Timestamp,
    ) -> Timestamp {
        let mut sessions = self.lock();
        sessions.retain(|_, session| !session.is_over(now));
        while let Some(owner) = owner_to_cut(&sessions, &owner) {
            let own = sessions
                .iter()
                .filter(|(_, session)| session.owner == owner);
            let oldest = own
                .min_by_key(|(_, session)| session.last_use())
                .map(|(key, _)| *key);
            oldest.map(|key| sessions.remove(&key));
        }
        sessions.insert(
            hash_secret(secret),
            Session {
                token: token.to_owned(),
                owner,
                started: now,
                used: Arc::new(AtomicU64::new(now.0)),
                open: watch::Sender::default(),
            },
        );
        now.after(LIFETIME)
    }

    /// The token that the session stands for, and the session. Counts as a use.
    pub fn find_token(&self, secret: &str, now: Timestamp) -> Option<(String, OpenSession)> {
        let mut sessions = self.lock();
        let key = hash_secret(secret);
        let session = sessions.get(&key)?;
        if session.is_over(now) {
            sessions.remove(&key);
            return None;
        }
        let expires = session.started.after(LIFETIME);
        let used = Arc::clone(&session.used);
        let open = OpenSession {
            expires,
            used,
            open: session.open.subscribe(),
        };
        open.note_use(now);
        Some((session.token.clone(), open))
    }

    /// Ends a session. Returns whether it existed.
    pub fn end_session(&self, secret: &str) -> bool {
        self.lock().remove(&hash_secret(secret)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner that loses a session before `owner` starts another one; [`None`] if there is room.
fn owner_to_cut(
    sessions: &HashMap<[u8; 32], Session>,
    owner: &SessionOwner,
) -> Option<SessionOwner> {
    let mut counts: BTreeMap<&SessionOwner, usize> = BTreeMap::new();
    for session in sessions.values() {
        *counts.entry(&session.owner).or_default() += 1;
    }
    if !owner.is_administrator
        && counts
            .get(owner)
            .is_some_and(|own| *own >= SESSIONS_OF_CALLER_MAX)
    {
        return Some(owner.clone());
    }
    let of_others: usize = counts
        .iter()
        .filter(|(owner, _)| !owner.is_administrator)
        .map(|(_, count)| count)
        .sum();
    let is_full = sessions.len() >= SESSIONS_MAX;
    let is_share_full = !owner.is_administrator && of_others >= SESSIONS_MAX - RESERVE;
    if !is_full && !is_share_full {
        return None;
    }
    let has_reserve_only = sessions.len() - of_others <= RESERVE;
    let candidates = counts
        .iter()
        .filter(|(owner, _)| !owner.is_administrator || !(is_share_full || has_reserve_only));
    candidates
        .max_by_key(|(_, count)| **count)
        .map(|(owner, _)| (*owner).clone())
}

fn hash_secret(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}
