//! The actor: it asks whose turn it is, at every hint and when its one timer says so, and lets each turn run by itself.
//!
//! It knows nothing that is not in its handle: a new life looks once, and has all that the one before had.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle};

use crate::{
    chaos::Inject,
    dead_letter::{DeadLetters, writer},
};

/// Hint: something was told, or a turn has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Wake;

/// No timer is longer: a machine that slept, or a clock that was set, is noticed within it.
const TIMER_MAX: Duration = Duration::from_secs(60);

/// No timer is shorter, so that a clock behind it is not asked in a circle.
const TIMER_MIN: Duration = Duration::from_millis(1);

/// A life of the actor that writes a destination's dead letters.
pub struct DeadLetterActor {
    dead_letters: DeadLetters,
    timer: Option<SpawnHandle>,
    first_act: Option<Box<dyn FnOnce()>>,
}

impl DeadLetterActor {
    pub(super) fn new(dead_letters: DeadLetters) -> Self {
        Self { dead_letters, timer: None, first_act: None }
    }

    /// Does this when it has looked for the first time.
    #[must_use]
    pub fn telling(self, first_act: impl FnOnce() + 'static) -> Self {
        Self { first_act: Some(Box::new(first_act)), ..self }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        // Before the look: what is told during it may need another.
        self.dead_letters.0.told.store(false, Ordering::Release);
        for job in self.dead_letters.take() {
            actix_rt::spawn(writer::run(self.dead_letters.clone(), job));
        }
        self.rearm(ctx);
        if let Some(act) = self.first_act.take() {
            act();
        }
    }

    fn rearm(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let due = self.dead_letters.staging().next_due();
        self.timer = due.map(|due| {
            let wait = due.since(self.dead_letters.0.clock.now()).clamp(TIMER_MIN, TIMER_MAX);
            ctx.run_later(wait, |actor, ctx| actor.look(ctx))
        });
    }
}

impl Actor for DeadLetterActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let me = ctx.address().downgrade();
        *self.dead_letters.0.actor.lock().unwrap_or_else(PoisonError::into_inner) = Some(me);
        self.look(ctx);
    }
}

impl Handler<Wake> for DeadLetterActor {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.look(ctx);
    }
}

impl Handler<Inject> for DeadLetterActor {
    type Result = ();

    fn handle(&mut self, suffer: Inject, ctx: &mut Self::Context) {
        suffer.befall(ctx);
    }
}
