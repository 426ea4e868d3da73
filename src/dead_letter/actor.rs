//! The actor of a store's dead letters: at each wake and each timer it starts the turns that are
//! due, each in a task of its own.
//!
//! All its state is in its [`DeadLetters`] handle, so a new incarnation continues after one check.

use std::{sync::atomic::Ordering, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle};

use crate::{DeadLetters, writer};
use gridhook_chaos::Inject;

/// Wakes the actor: something was queued, or a turn has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Wake;

/// Longest timer. After a suspend of the machine or a change of the clock, the actor notices within
/// this time.
const TIMER_MAX: Duration = Duration::from_secs(60);

/// Shortest timer, so that a time that is already due does not spin.
const TIMER_MIN: Duration = Duration::from_millis(1);

/// One incarnation of the actor that writes a store's dead letters.
pub struct DeadLetterActor {
    dead_letters: DeadLetters,
    timer: Option<SpawnHandle>,
    on_recovered: Option<Box<dyn FnOnce()>>,
}

impl DeadLetterActor {
    pub(super) fn new(dead_letters: DeadLetters) -> Self {
        Self {
            dead_letters,
            timer: None,
            on_recovered: None,
        }
    }

    /// Calls `on_recovered` after the first check.
    #[must_use]
    pub fn with_on_recovered(self, on_recovered: impl FnOnce() + 'static) -> Self {
        Self {
            on_recovered: Some(Box::new(on_recovered)),
            ..self
        }
    }

    fn check_due(&mut self, ctx: &mut Context<Self>) {
        // Before the check: a wake that arrives during it may need another check.
        self.dead_letters.0.is_woken.store(false, Ordering::Release);
        for turn in self.dead_letters.take_turns() {
            actix_rt::spawn(writer::run(self.dead_letters.clone(), turn));
        }
        self.rearm_timer(ctx);
        if let Some(act) = self.on_recovered.take() {
            act();
        }
    }

    fn rearm_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let due = self.dead_letters.0.staging.lock().next_due();
        self.timer = due.map(|due| {
            let wait = due
                .since(self.dead_letters.0.clock.now())
                .clamp(TIMER_MIN, TIMER_MAX);
            ctx.run_later(wait, |actor, ctx| actor.check_due(ctx))
        });
    }
}

impl Actor for DeadLetterActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let me = ctx.address().downgrade();
        *self.dead_letters.0.actor.lock() = Some(me);
        self.check_due(ctx);
    }
}

impl Handler<Wake> for DeadLetterActor {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.check_due(ctx);
    }
}

impl Handler<Inject> for DeadLetterActor {
    type Result = ();

    fn handle(&mut self, inject: Inject, ctx: &mut Self::Context) {
        inject.apply_to(ctx);
    }
}
