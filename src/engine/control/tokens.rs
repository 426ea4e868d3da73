//! Named tokens: who may use the server, and for what.
//!
//! The store has the digest of a token, never the token: 256 random bits need no slow hash. A
//! revoked token is refused at once, and [`Token::wait_for_end`] ends its open streams. The time of
//! the last use is stored at most once an hour for each token.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::{
    audit::write_changes,
    registry::{Error, parse_record, to_json},
};
use gridhook_event::{Timestamp, WallTime};
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::token::{Grant, TokenRecord};
use gridhook_store::keys::MetaKind;

/// The beginning of every named token, which no other token has.
pub const PREFIX: &str = "ght_";

/// Maximum number of named tokens.
pub const TOKENS_MAX: usize = 1_000;

/// Interval between two writes of the last use of a token.
const USE_INTERVAL: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub struct Token {
    record: TokenRecord,
    grants: Vec<Grant>,
    used: AtomicU64,
    use_stored: AtomicU64,
    ended: watch::Sender<bool>,
}

impl Token {
    fn new(record: TokenRecord) -> Self {
        let last_use = record.last_used.map_or(0, |used| used.0);
        let used = AtomicU64::new(last_use);
        let use_stored = AtomicU64::new(last_use);
        Self {
            grants: record.grants(),
            record,
            used,
            use_stored,
            ended: watch::Sender::new(false),
        }
    }

    /// A token of another store, whose owner vouches for the record.
    pub fn from_other_store(record: TokenRecord) -> Self {
        Self::new(record)
    }

    /// Checks that this is the token with that text, and has not expired.
    ///
    /// # Errors
    /// If not.
    pub fn check_text(&self, text: &str, wall: WallTime) -> Result<(), TokenProblem> {
        if !bool::from(
            self.record
                .digest
                .as_bytes()
                .ct_eq(digest_text(text).as_bytes()),
        ) {
            return Err(TokenProblem::Unknown);
        }
        if self.record.is_expired(wall) {
            Err(TokenProblem::Expired)
        } else {
            Ok(())
        }
    }

    pub fn name(&self) -> &str {
        &self.record.name
    }

    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The record, with the time of the last use.
    pub fn to_record(&self) -> TokenRecord {
        let last_use = Some(self.used.load(Ordering::Relaxed)).filter(|used| *used > 0);
        TokenRecord {
            last_used: last_use.map(Timestamp),
            ..self.record.clone()
        }
    }

    /// Waits until the token is revoked, or expires by a wall clock that reads `wall` at present.
    pub async fn wait_for_end(&self, wall: WallTime) {
        let mut revocation = self.ended.subscribe();
        let expiry = async {
            match self.record.expires {
                Some(expires) => tokio::time::sleep(expires.since(wall.to_timestamp())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = revocation.wait_for(|is_revoked| *is_revoked) => {}
            () = expiry => {}
        }
    }
}

/// The named token of a request that another node has forwarded: the store of the control plane has
/// it, and this one has not.
#[derive(Clone, Debug)]
pub struct ForwardedToken(pub Arc<Token>);

impl ForwardedToken {
    /// Returns the token if its text is `text`.
    ///
    /// # Errors
    /// If it is another one, or has expired.
    pub fn verify_text(&self, text: &str, wall: WallTime) -> Result<Arc<Token>, TokenProblem> {
        self.0.check_text(text, wall).map(|()| Arc::clone(&self.0))
    }
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenProblem {
    /// No such token exists, or it was revoked.
    Unknown,
    Expired,
}

/// The named tokens of a server.
pub struct Tokens {
    journal: Journal,
    tokens: RwLock<TokenTable>,
}

#[derive(Default)]
struct TokenTable {
    by_name: BTreeMap<String, Arc<Token>>,
    by_digest: HashMap<String, Arc<Token>>,
}

impl TokenTable {
    fn insert(&mut self, token: Arc<Token>) {
        self.by_digest
            .insert(token.record.digest.clone(), Arc::clone(&token));
        self.by_name.insert(token.record.key(), token);
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Token>> {
        let token = self.by_name.remove(&name.to_ascii_lowercase())?;
        self.by_digest.remove(&token.record.digest);
        Some(token)
    }
}

impl Tokens {
    /// Reads the tokens of the store. Blocks; for the start.
    pub(super) fn load_from_journal(journal: Journal) -> Result<Self, Error> {
        let mut tokens = TokenTable::default();
        for record in journal.reader_pool().all_meta(MetaKind::Token) {
            let (name, value) = record?;
            tokens.insert(Arc::new(Token::new(parse_record(&name, &value)?)));
        }
        Ok(Self {
            journal,
            tokens: RwLock::new(tokens),
        })
    }

    /// All tokens in the order of their names.
    pub fn list_tokens(&self) -> Vec<Arc<Token>> {
        self.tokens.read().by_name.values().cloned().collect()
    }

    /// Stores a new token. It is valid when this returns. If there is no room, expired tokens are
    /// deleted.
    ///
    /// # Errors
    /// If the name is taken, there are too many tokens, or the token cannot be stored.
    pub async fn create_token(&self, record: TokenRecord) -> Result<Arc<Token>, Error> {
        let token = Arc::new(Token::new(record));
        let mut changes = vec![put_change(&token.record)];
        let result = {
            let mut tokens = self.tokens.write();
            if tokens.by_name.contains_key(&token.record.key()) {
                return Err(Error::Stale(format!(
                    "The token '{}' exists; revoke it first.",
                    token.name()
                )));
            }
            if tokens.by_name.len() >= TOKENS_MAX {
                let wall = WallTime(token.record.created.0);
                let expired_tokens = tokens
                    .by_name
                    .values()
                    .filter(|token| token.record.is_expired(wall));
                for key in expired_tokens
                    .map(|token| token.record.key())
                    .collect::<Vec<_>>()
                {
                    tokens.remove(&key);
                    changes.push(MetaChange::Delete(MetaKind::Token, key));
                }
            }
            if tokens.by_name.len() >= TOKENS_MAX {
                return Err(Error::Full(format!(
                    "The maximum of {TOKENS_MAX} tokens is reached; revoke one first."
                )));
            }
            // No client has the token before the response, so it may be in the table before it is
            // stored.
            tokens.insert(Arc::clone(&token));
            write_changes(&self.journal, changes)
        };
        if let Err(error) = result.await {
            self.tokens.write().remove(token.name());
            return Err(error.into());
        }
        Ok(token)
    }

    /// Revokes a token: it is refused from now on. Returns [`None`] if it does not exist.
    ///
    /// # Errors
    /// If the revocation cannot be stored; the token is then valid again.
    pub async fn revoke_token(&self, name: &str) -> Result<Option<Arc<Token>>, Error> {
        let (token, stored) = {
            let mut tokens = self.tokens.write();
            let Some(token) = tokens.remove(name) else {
                return Ok(None);
            };
            let delete = MetaChange::Delete(MetaKind::Token, token.record.key());
            (token, write_changes(&self.journal, vec![delete]))
        };
        if let Err(error) = stored.await {
            let mut tokens = self.tokens.write();
            if !tokens.by_name.contains_key(&token.record.key()) {
                tokens.insert(token);
            }
            return Err(error.into());
        }
        token.ended.send_replace(true);
        Ok(Some(token))
    }

    /// The token with this text, and notes its use.
    ///
    /// # Errors
    /// If it does not exist or has expired.
    pub fn find_token(&self, text: &str, wall: WallTime) -> Result<Arc<Token>, TokenProblem> {
        let digest = digest_text(text);
        let tokens = self.tokens.read();
        let token = tokens.by_digest.get(&digest).ok_or(TokenProblem::Unknown)?;
        token.check_text(text, wall)?;
        token.used.fetch_max(wall.0, Ordering::Relaxed);
        let stored_use = token.use_stored.load(Ordering::Relaxed);
        let is_due = wall.to_timestamp().since(Timestamp(stored_use)) >= USE_INTERVAL;
        if is_due
            && token
                .use_stored
                .compare_exchange(stored_use, wall.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            // Queued while the table is locked, so that it cannot follow the deletion of the
            // record.
            drop(
                self.journal
                    .write_meta_changes(vec![put_change(&token.to_record())]),
            );
        }
        Ok(Arc::clone(token))
    }
}

/// The digest of a token, as the store has it.
pub fn digest_text(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

fn put_change(record: &TokenRecord) -> MetaChange {
    MetaChange::Put(MetaKind::Token, record.key(), to_json(record))
}
