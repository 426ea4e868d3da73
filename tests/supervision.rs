//! Supervised actors begin and end with their parent's lifeline.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use actix::{Actor, Context};
use gridhook::{
    clock::Clock,
    subscription::timers,
    supervision::{Lifeline, Supervised, SupervisionHistory, supervise_actor},
};
use tokio::time::Instant;

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

    fn supervision_history(&self) -> &SupervisionHistory {
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

fn idle(begun: &Rc<Cell<u32>>) -> IdleFactory {
    IdleFactory {
        history: SupervisionHistory::default(),
        clock: Clock::system(),
        begun: Rc::clone(begun),
    }
}

/// The parent may have started a successor, whose mailbox a late incarnation would replace: no
/// event would wake it.
#[actix_web::test]
async fn an_incarnation_does_not_begin_after_its_lifeline_was_cut() {
    let begun = Rc::new(Cell::new(0));
    for _ in 0..64 {
        let lifeline = Lifeline::new();
        let watch = lifeline.new_watch();
        drop(lifeline);
        supervise_actor(idle(&begun), watch).await;
    }
    assert_eq!(begun.get(), 0);
}

#[test]
fn supervision_takes_little_memory_beside_the_factory() {
    // A server with ten thousand busy subscriptions has as many of these tasks.
    let task = size_of_val(&supervise_actor(
        idle(&Rc::default()),
        Lifeline::new().new_watch(),
    ));
    let size = task - size_of::<IdleFactory>();
    assert!(size <= 304, "{size} bytes");
}

/// Runs `body` in a runtime of its own on this thread.
fn in_runtime(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let limited = async {
        tokio::time::timeout(Duration::from_secs(20), body)
            .await
            .expect("the timers are due long before");
    };
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), limited);
}

#[test]
fn timers_are_due_in_their_order_unless_they_are_dropped() {
    let due = Rc::new(RefCell::new(Vec::new()));
    let set = |millis: u64| {
        let due = Rc::clone(&due);
        let at = Instant::now() + Duration::from_millis(millis);
        timers::call_after(Duration::from_millis(millis), move || {
            due.borrow_mut().push(at)
        })
    };
    let called = async |count| {
        while due.borrow().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_runtime(async {
        let _far = set(3_600_000);
        tokio::task::yield_now().await;
        // Each is earlier than the one that is waited for.
        let timers = [set(20), set(4), set(12), set(4), set(1)];
        drop(set(2));
        called(5).await;
        assert!(
            due.borrow().is_sorted(),
            "in the order of their times: {:?}",
            due.borrow()
        );
        drop(timers);
    });
    // The next runtime of this thread.
    in_runtime(async {
        let _timer = set(1);
        called(6).await;
    });
    assert_eq!(due.borrow().len(), 6, "the dropped ones were not called");
}
