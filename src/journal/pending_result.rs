//! The future result of a call.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::Error;

/// The future result of a call. Dropping it does not cancel the call.
#[derive(Debug)]
#[must_use]
pub struct PendingResult<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> PendingResult<T> {
    pub(super) fn new() -> (oneshot::Sender<Result<T, Error>>, Self) {
        let (reply, result) = oneshot::channel();
        (reply, Self(result))
    }
}

impl<T> Future for PendingResult<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The sender is dropped only if its thread has ended.
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|result| result.unwrap_or(Err(Error::Closed)))
    }
}
