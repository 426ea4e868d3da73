//! Why the owner of a shard gave no response to a request.

/// Why the owner of a shard gave no response to a request.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("the request cannot be forwarded")]
    Unforwardable,
    #[error("the client has gone")]
    ClientGone,
    #[error("no node owns the store")]
    NoOwner,
    #[error("this node cannot connect to the owner of the store")]
    Unconnected,
    #[error("the owner of the store has changed; the request may or may not have been processed")]
    OwnerChanged,
    #[error("the owner did not respond; the request may or may not have been processed")]
    NoResponse,
    #[error("the owner did not respond in time; the request may or may not have been processed")]
    TimedOut,
    #[error("the response of the owner was cut off")]
    CutOff,
    #[error("the response of an owner is too large")]
    TooLarge,
    #[error("the owner does not respond in time")]
    Late,
    #[error("the owner cannot respond now")]
    Unready,
    #[error("the owner has another version, which cannot be understood")]
    Unreadable,
    #[error("the token cannot be forwarded")]
    Token,
    #[error("the record of the token cannot be forwarded")]
    TokenRecord,
    #[error("too many requests have tokens that are not valid")]
    TooManyInvalidTokens,
    #[error("the owner of the control plane, which knows the tokens, does not respond")]
    NoControlPlane,
    #[error("this node owns no shard")]
    NoShard,
    /// What an open response depends on has ended, such as the session of the caller.
    #[error("{0}")]
    Ended(&'static str),
}
