//! Turns of actors: each wake of an actor's task is a turn, without a message.
//!
//! A message to a mailbox costs a box, an entry of a queue and a wake of the task, and the next
//! turn looks into the queue twice. A wake says only that something has arrived, so the wake of the
//! task is enough: [`RunTurns::run_turn`] finds out what it is. Mailboxes remain for messages that
//! have a content.

use std::{
    pin::Pin,
    task::{self, Poll, Waker},
};

use actix::{Actor, AsyncContext, Context, fut::ActorFuture};

pub trait RunTurns: Actor<Context = Context<Self>> {
    /// Takes what has arrived, and hands out the waker for what arrives next. Also called without a
    /// wake.
    fn run_turn(&mut self, waker: &Waker, ctx: &mut Context<Self>);
}

/// Begins the turns of an actor. The first one follows at once.
pub fn begin_turns<A: RunTurns>(ctx: &mut Context<A>) {
    ctx.spawn(Turns);
}

/// Never ends: the actor takes a turn whenever its task is woken.
struct Turns;

impl<A: RunTurns> ActorFuture<A> for Turns {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut task::Context<'_>,
    ) -> Poll<Self::Output> {
        actor.run_turn(task.waker(), ctx);
        Poll::Pending
    }
}
