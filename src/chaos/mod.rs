//! What may be done to an actor on purpose: the one message of chaos, and what follows from it.
//!
//! Every actor takes it the same way. It is sent only where the settings switch chaos on; where they do not, no actor has
//! anything to look at before its work.
//!
//! Invariant: a death is marked as wanted by the very handler that dies. A message that found no actor marks nothing, so
//! that the next death, which nobody asked for, counts against the event in hand.

pub mod response_faults;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Message, fut::wrap_future};

/// What an actor suffers.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Inject {
    /// What.
    pub fault: ActorFault,
    /// Where it is noted that its death was asked for.
    pub mark: IntendedStop,
}

/// What is done to an actor.
pub enum ActorFault {
    /// It panics in a handler.
    Panic,
    /// It stops.
    Stop,
    /// It does nothing until this is over; neither do its timers. Others on its arbiter go on.
    Stall(Pause),
}

/// How long an actor does nothing.
pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whether the death of an actor was asked for.
#[derive(Clone, Debug, Default)]
pub struct IntendedStop(Arc<AtomicBool>);

impl IntendedStop {
    /// Whether it was, since this was asked last.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Inject {
    /// Does it to the actor that was sent this.
    ///
    /// # Panics
    /// Where that is what was asked for.
    #[expect(clippy::disallowed_methods, reason = "an actor that stalls is to hear nothing meanwhile")]
    pub fn befall<A: Actor<Context = Context<A>>>(self, ctx: &mut Context<A>) {
        match self.fault {
            ActorFault::Panic => {
                self.mark.set();
                // A panic like any other, but for the trace on standard error: who asked for it has it in the log.
                std::panic::resume_unwind(Box::new("killed by chaos"));
            }
            ActorFault::Stop => {
                self.mark.set();
                ctx.stop();
            }
            ActorFault::Stall(pause) => ctx.wait(wrap_future::<_, A>(pause).map(|(), _, _| ())),
        }
    }
}
