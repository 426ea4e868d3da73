//! Supervised actors begin and end with their parent's lifeline.

use std::{cell::Cell, rc::Rc};

use actix::{Actor, Context};
use gridhook::{
    clock::Clock,
    supervision::{Lifeline, Supervised, SupervisionHistory, supervise},
};

struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

struct IdleFactory {
    history: SupervisionHistory,
    clock: Clock,
    begun: Rc<Cell<u32>>,
}

impl Supervised for IdleFactory {
    type Actor = Idle;

    fn name(&self) -> String {
        "idle".to_owned()
    }

    fn history(&self) -> &SupervisionHistory {
        &self.history
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn build(&self) -> Option<Idle> {
        self.begun.set(self.begun.get() + 1);
        Some(Idle)
    }
}

/// The parent may have started a successor, whose mailbox a late incarnation would replace: no event would wake it.
#[actix_web::test]
async fn an_incarnation_does_not_begin_after_its_lifeline_was_cut() {
    let begun = Rc::new(Cell::new(0));
    for _ in 0..64 {
        let lifeline = Lifeline::new();
        let watch = lifeline.watch();
        drop(lifeline);
        let factory =
            IdleFactory { history: SupervisionHistory::default(), clock: Clock::system(), begun: Rc::clone(&begun) };
        supervise(factory, watch).await;
    }
    assert_eq!(begun.get(), 0);
}
