//! Sessions of signed-in browsers.
//!
//! A session stands for the token it was started with: each request with the session is
//! authenticated with that token again. A session therefore ends at once when its token is
//! replaced, revoked or expires, and never allows more than it.
//!
//! The store has the digest of a session's secret, and the token encrypted with a key that only the
//! secret yields. So neither can be read from the store or from memory, and a session survives a
//! restart. The time of the last use is stored at most every five minutes for each session. Nobody
//! waits for these writes: a kill right after a sign-in may lose the session.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::{
    registry::{Error, parse_record, to_json},
    tokens::digest_text,
};
use gridhook_event::Timestamp;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::session::{SessionOwner, SessionRecord};
use gridhook_store::keys::MetaKind;

/// A session ends after this time without a request and without an open stream.
pub const IDLE: Duration = Duration::from_secs(30 * 60);

/// A session ends this long after the sign-in at the latest.
pub const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Maximum number of sessions. At the limit, a new session ends the one that was unused for
/// longest, of the caller with most sessions.
pub const SESSIONS_MAX: usize = 64;

/// Maximum number of sessions of a caller that is no administrator. One more ends the caller's own
/// session that was unused for longest.
pub const SESSIONS_OF_CALLER_MAX: usize = 8;

/// Number of sessions that are reserved for administrators: those of other callers do not end them.
const RESERVE: usize = 16;

/// Interval between two writes of the last use of a session.
const USE_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Length of the identifier of a session: the first digits of its digest.
const ID_DIGITS: usize = 16;

/// Separates the key that encrypts the token from the digest of the same secret.
const SEAL_CONTEXT: &str = "gridhook: the token of a session";

struct Session {
    record: SessionRecord,
    /// The time of the last use, in microseconds since 1970.
    used: Arc<AtomicU64>,
    /// Closed when the session is removed.
    open: watch::Sender<()>,
}

/// A session at the time of a request.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The time at which the session ends at the latest.
    pub expires: Timestamp,
    /// The identifier of the session in lists.
    pub id: String,
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
    fn new(record: SessionRecord) -> Self {
        Self {
            used: Arc::new(AtomicU64::new(record.last_used.0)),
            record,
            open: watch::Sender::default(),
        }
    }

    fn last_use(&self) -> Timestamp {
        Timestamp(self.used.load(Ordering::Relaxed))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last_use()) >= IDLE || now.since(self.record.started) >= LIFETIME
    }
}

type SessionTable = HashMap<String, Session>;

/// The sessions of a server.
pub struct Sessions {
    journal: Journal,
    sessions: Mutex<SessionTable>,
}

impl Sessions {
    /// Reads the sessions of the store. Blocks; for the start.
    pub(super) fn load_from_journal(journal: Journal) -> Result<Self, Error> {
        let mut sessions = SessionTable::new();
        for record in journal.reader_pool().all_meta(MetaKind::Session) {
            let (name, value) = record?;
            let record: SessionRecord = parse_record(&name, &value)?;
            sessions.insert(name, Session::new(record));
        }
        Ok(Self {
            journal,
            sessions: Mutex::new(sessions),
        })
    }

    /// Starts a session that stands for `token`. Returns the time at which it ends at the latest;
    /// [`None`] if the token cannot be encrypted.
    pub fn start(
        &self,
        secret: &str,
        token: &str,
        owner: SessionOwner,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut sessions = self.sessions.lock();
        let mut changes = Vec::new();
        let expired_sessions = sessions.extract_if(|_, session| session.is_over(now));
        changes.extend(expired_sessions.map(|(digest, _)| delete_change(digest)));
        while let Some(caller) = caller_to_cut(&sessions, &owner) {
            let own = sessions
                .iter()
                .filter(|(_, session)| session.record.owner.key == caller);
            let oldest = own
                .min_by_key(|(_, session)| session.last_use())
                .map(|(digest, _)| digest.clone());
            if let Some(digest) = oldest {
                sessions.remove(&digest);
                changes.push(delete_change(digest));
            }
        }
        let record = SessionRecord {
            digest: digest_text(secret),
            sealed_token: seal_token(secret, token)?,
            owner,
            started: now,
            last_used: now,
        };
        changes.push(put_change(&record));
        sessions.insert(record.digest.clone(), Session::new(record));
        self.write_changes(changes);
        Some(now.after(LIFETIME))
    }

    /// The token that the session stands for, and the session. Counts as a use.
    pub fn find_token(&self, secret: &str, now: Timestamp) -> Option<(String, OpenSession)> {
        let mut sessions = self.sessions.lock();
        let digest = digest_text(secret);
        let session = sessions.get_mut(&digest)?;
        if session.is_over(now) {
            sessions.remove(&digest);
            self.write_changes(vec![delete_change(digest)]);
            return None;
        }
        let token = open_token(secret, &session.record.sealed_token)?;
        let open_session = OpenSession {
            expires: session.record.started.after(LIFETIME),
            id: session_id(&session.record).to_owned(),
            used: Arc::clone(&session.used),
            open: session.open.subscribe(),
        };
        open_session.note_use(now);
        if now.since(session.record.last_used) >= USE_INTERVAL {
            session.record.last_used = now;
            self.write_changes(vec![put_change(&session.record)]);
        }
        Some((token, open_session))
    }

    /// The sessions that are open, with the times of their last uses, the newest first.
    pub fn list_sessions(&self, now: Timestamp) -> Vec<SessionRecord> {
        let sessions = self.sessions.lock();
        let open = sessions.values().filter(|session| !session.is_over(now));
        let mut records: Vec<SessionRecord> = open
            .map(|session| SessionRecord {
                last_used: session.last_use(),
                ..session.record.clone()
            })
            .collect();
        records.sort_by(|a, b| (b.started, &a.digest).cmp(&(a.started, &b.digest)));
        records
    }

    /// Ends the session with this secret. Returns whether it existed.
    pub fn end_session(&self, secret: &str) -> bool {
        self.remove_session(|digest| digest == digest_text(secret))
            .is_some()
    }

    /// Ends the session with this identifier, and returns it.
    pub fn end_session_by_id(&self, id: &str) -> Option<SessionRecord> {
        self.remove_session(|digest| digest.get(..ID_DIGITS) == Some(id))
    }

    fn remove_session(&self, is_wanted: impl Fn(&str) -> bool) -> Option<SessionRecord> {
        let mut sessions = self.sessions.lock();
        let digest = sessions
            .keys()
            .find(|digest| is_wanted(digest.as_str()))?
            .clone();
        let session = sessions.remove(&digest)?;
        self.write_changes(vec![delete_change(digest)]);
        Some(session.record)
    }

    /// Queues changes. The table is locked, so that they are written in the order in which they
    /// were made.
    fn write_changes(&self, changes: Vec<MetaChange>) {
        drop(self.journal.write_meta_changes(changes));
    }
}

/// The identifier of a session. Its secret cannot be derived from it.
pub fn session_id(record: &SessionRecord) -> &str {
    record.digest.get(..ID_DIGITS).unwrap_or(&record.digest)
}

/// The number of sessions of a caller.
struct CallerCount {
    is_administrator: bool,
    sessions: usize,
}

/// The caller that loses a session before `owner` starts another one; [`None`] if there is room.
fn caller_to_cut(sessions: &SessionTable, owner: &SessionOwner) -> Option<String> {
    let mut counts: BTreeMap<&str, CallerCount> = BTreeMap::new();
    for session in sessions.values() {
        let caller = &session.record.owner;
        let count = counts.entry(&caller.key).or_insert(CallerCount {
            is_administrator: caller.is_administrator,
            sessions: 0,
        });
        count.sessions += 1;
    }
    let own_sessions = counts
        .get(owner.key.as_str())
        .map_or(0, |count| count.sessions);
    if !owner.is_administrator && own_sessions >= SESSIONS_OF_CALLER_MAX {
        return Some(owner.key.clone());
    }
    let operator_sessions: usize = counts
        .values()
        .filter(|count| !count.is_administrator)
        .map(|count| count.sessions)
        .sum();
    let is_full = sessions.len() >= SESSIONS_MAX;
    let is_share_full = !owner.is_administrator && operator_sessions >= SESSIONS_MAX - RESERVE;
    if !is_full && !is_share_full {
        return None;
    }
    let has_reserve_only = sessions.len() - operator_sessions <= RESERVE;
    let candidates = counts
        .iter()
        .filter(|(_, count)| !count.is_administrator || !(is_share_full || has_reserve_only));
    candidates
        .max_by_key(|(_, count)| count.sessions)
        .map(|(caller, _)| (*caller).to_owned())
}

/// The key that encrypts the token of a session. It encrypts nothing else, so that one nonce is
/// enough.
fn sealing_key(secret: &str) -> Option<LessSafeKey> {
    let mut digest = Sha256::new();
    digest.update(SEAL_CONTEXT);
    digest.update(secret);
    UnboundKey::new(&CHACHA20_POLY1305, &digest.finalize())
        .ok()
        .map(LessSafeKey::new)
}

fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; ring::aead::NONCE_LEN])
}

fn seal_token(secret: &str, token: &str) -> Option<String> {
    let mut bytes = token.as_bytes().to_vec();
    sealing_key(secret)?
        .seal_in_place_append_tag(only_nonce(), Aad::empty(), &mut bytes)
        .ok()?;
    Some(STANDARD_NO_PAD.encode(bytes))
}

fn open_token(secret: &str, sealed: &str) -> Option<String> {
    let mut bytes = STANDARD_NO_PAD.decode(sealed).ok()?;
    let token = sealing_key(secret)?
        .open_in_place(only_nonce(), Aad::empty(), &mut bytes)
        .ok()?;
    String::from_utf8(token.to_vec()).ok()
}

fn put_change(record: &SessionRecord) -> MetaChange {
    MetaChange::Put(MetaKind::Session, record.digest.clone(), to_json(record))
}

fn delete_change(digest: String) -> MetaChange {
    MetaChange::Delete(MetaKind::Session, digest)
}
