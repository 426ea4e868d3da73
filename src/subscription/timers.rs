//! Timers of actors: all of an arbiter share one timer of the runtime.
//!
//! A timer in an actor's context would be polled in each turn of the actor, and would take an entry
//! in the runtime for each actor.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

thread_local! {
    static TIMERS: Rc<Timers> = Rc::default();
}

/// The time at which a timer is due, and a number that distinguishes timers that are due at the
/// same time.
type DueTime = (Instant, u64);

/// The timers of an arbiter.
#[derive(Default)]
struct Timers {
    due: RefCell<BTreeMap<DueTime, Box<dyn FnOnce()>>>,
    next_number: Cell<u64>,
    is_running: Cell<bool>,
    /// Notified when the first timer is set to an earlier time.
    earlier: Notify,
}

/// A timer. It is canceled when it is dropped, on the thread that set it.
#[derive(Debug)]
pub struct Timer(DueTime);

/// Calls `act` on this thread after `wait`.
pub fn call_after(wait: Duration, act: impl FnOnce() + 'static) -> Timer {
    TIMERS.with(|timers| {
        let number = timers.next_number.get();
        timers.next_number.set(number + 1);
        let key = (Instant::now() + wait, number);
        let mut due = timers.due.borrow_mut();
        let is_first = due.first_key_value().is_none_or(|(first, _)| key < *first);
        due.insert(key, Box::new(act));
        if !timers.is_running.replace(true) {
            actix_rt::spawn(run(RunningTimers(Rc::clone(timers))));
        } else if is_first {
            timers.earlier.notify_one();
        }
        Timer(key)
    })
}

impl Drop for Timer {
    fn drop(&mut self) {
        // Fails while the thread ends. Dropped after the map is free again.
        let _canceled = TIMERS.try_with(|timers| timers.due.borrow_mut().remove(&self.0));
    }
}

/// The timers while their task runs. A thread may have several runtimes in turn, and a task ends
/// with its runtime.
struct RunningTimers(Rc<Timers>);

impl Drop for RunningTimers {
    fn drop(&mut self) {
        self.0.is_running.set(false);
    }
}

async fn run(running: RunningTimers) {
    let timers = &running.0;
    loop {
        let first = timers
            .due
            .borrow()
            .first_key_value()
            .map(|((at, _), _)| *at);
        let due = async {
            match first {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => timers.call_due(),
            () = timers.earlier.notified() => {}
        }
    }
}

impl Timers {
    fn call_due(&self) {
        let now = Instant::now();
        loop {
            let act = {
                let mut due = self.due.borrow_mut();
                let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) else {
                    return;
                };
                first.remove()
            };
            act();
        }
    }
}
