//! How long a request may take, and what is heard of it after that.
//!
//! A [`Call`] ends within the wait with an answer. Where that is a timeout and the endpoint has the whole request, it may
//! take the events yet: the request lives on as [`Lingering`], whose one word is whether a success came.
//!
//! Invariants:
//! - What was not sent whole when the wait is over is cut: nobody can take it, and going on would be an attempt that its
//!   caller does not know of.
//! - What lingers keeps a connection and no events: its own copy went with the last byte sent, and the copy for another
//!   try is given up with the wait. So it is never sent again.
//! - A late answer is its head alone; its body is not read, and its connection is closed. A success whose body did not end
//!   within the wait is known at once.
//! - Those of all subscriptions of an arbiter that linger are bounded ([`Options::lingering_max`]).
//!
//! [`Options::lingering_max`]: super::webhook::Options::lingering_max

use std::{cell::Cell, pin::Pin, rc::Rc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    failure::{failure, silence},
    request::{Destination, Outgoing},
    socket::{Exchange, Phase},
    webhook::{Again, Client, Place},
};
use crate::{
    event::Timestamp,
    policy::outcome::{Answer, Outcome},
};

type Attempts<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// A request on its way.
pub struct Call<'a> {
    client: &'a Client,
    destination: &'a Destination,
    attempts: Attempts<'a>,
    again: Again,
    exchanges: [Rc<Exchange>; 2],
}

/// A request whose wait is over.
pub struct Lingering<'a> {
    start: Instant,
    rest: Rest<'a>,
}

enum Rest<'a> {
    /// A success whose body did not end.
    Known,
    /// The endpoint has it all and has said nothing.
    Waiting(Attempts<'a>, Place),
}

impl<'a> Call<'a> {
    pub(super) fn new(client: &'a Client, destination: &'a Destination, outgoing: Outgoing, now: Timestamp) -> Self {
        let outgoing = Rc::new(outgoing);
        let again: Again = Rc::new(Cell::new(Some(Rc::clone(&outgoing))));
        let exchanges = [Exchange::new(false), Exchange::new(true)];
        let attempts = Box::pin(client.attempts(destination, outgoing, Rc::clone(&again), exchanges.clone(), now));
        Self { client, destination, attempts, again, exchanges }
    }

    /// The answer, within `wait` from now; and the request itself, where it may be answered yet.
    pub async fn answer(mut self, wait: Duration) -> (Answer, Option<Lingering<'a>>) {
        let start = Instant::now();
        if let Err(refused) = self.client.rules().check_url(self.destination.url()) {
            return (failure(Outcome::SocketError, refused.to_string()), None);
        }
        let answered = timeout_at(start + wait, &mut self.attempts).await;
        let [first, second] = &self.exchanges;
        let began = second.began.get().or(first.began.get()).unwrap_or(start);
        let current = if second.phase() == Phase::Beginning { first } else { second };
        let phases = current.phases(self.destination.url().scheme() == "https");
        match answered {
            Ok(answer) => (Answer { latency: began.elapsed(), phases, ..answer }, None),
            Err(_) => {
                let phase = current.phase();
                let answer = failure(Outcome::TimedOut, silence(phase, self.destination, wait));
                let answer = Answer { latency: began.elapsed(), phases, ..answer };
                current.late.set(true);
                (answer, self.linger(phase).map(|rest| Lingering { start, rest }))
            }
        }
    }

    fn linger(self, phase: Phase) -> Option<Rest<'a>> {
        self.again.take();
        match phase {
            Phase::Waiting => Some(Rest::Waiting(self.attempts, self.client.linger()?)),
            Phase::Reading(status) => (Outcome::of_status(status) == Outcome::Delivered).then_some(Rest::Known),
            Phase::Beginning | Phase::Resolving | Phase::Connecting(_) | Phase::Connected(_) | Phase::Sending => None,
        }
    }
}

impl Lingering<'_> {
    /// Whether a success comes within `wait` from when the request left. Whatever else comes is as good as nothing.
    pub async fn is_taken(self, wait: Duration) -> bool {
        match self.rest {
            Rest::Known => true,
            Rest::Waiting(attempts, _place) => {
                let answered = timeout_at(self.start + wait, attempts).await;
                answered.is_ok_and(|answer| answer.outcome == Outcome::Delivered)
            }
        }
    }
}
