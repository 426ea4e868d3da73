//! Faults that are injected into actors: the message [`Inject`] and its effect.
//!
//! It is sent only if the settings switch chaos on. Otherwise actors do no extra work.
//!
//! Invariant: the handler that ends its actor marks the end as intended. A message that reaches no
//! actor marks nothing, so the next real panic still counts against the current event.

pub mod response_faults;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Message, fut::wrap_future,
};

/// Injects a fault into an actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Inject {
    pub fault: ActorFault,
    /// Where an intended end is noted.
    pub mark: IntendedStop,
}

pub enum ActorFault {
    /// It panics in its message handler.
    Panic,
    Stop,
    /// It handles no message and no timer until this future ends. Other actors on its arbiter
    /// continue.
    Stall(Pause),
}

/// How long an actor is stalled.
pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whether the end of an actor was intended.
#[derive(Clone, Debug, Default)]
pub struct IntendedStop(Arc<AtomicBool>);

impl IntendedStop {
    /// Takes the mark: whether the end since the last call was intended.
    pub fn take_mark(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    fn set_mark(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Inject {
    /// Applies the fault to the actor that received this message.
    ///
    /// # Panics
    /// For [`ActorFault::Panic`].
    #[expect(
        clippy::disallowed_methods,
        reason = "a stalled actor must handle nothing meanwhile"
    )]
    pub fn apply_to<A: Actor<Context = Context<A>>>(self, ctx: &mut Context<A>) {
        match self.fault {
            ActorFault::Panic => {
                self.mark.set_mark();
                // `resume_unwind` prints no backtrace: the log already says that chaos caused this
                // panic.
                std::panic::resume_unwind(Box::new("killed by chaos"));
            }
            ActorFault::Stop => {
                self.mark.set_mark();
                ctx.stop();
            }
            ActorFault::Stall(pause) => ctx.wait(wrap_future::<_, A>(pause).map(|(), _, _| ())),
        }
    }
}
