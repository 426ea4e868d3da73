//! The threads that compute: slices, shares, budgets of time and memory, panics, and results that
//! no caller waits for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{
    compute::{Compute, ComputeCaller, ComputeError, ComputeLimits, Meter},
    event::PartitionId,
};
use tokio::sync::oneshot;

fn limits() -> ComputeLimits {
    ComputeLimits {
        threads: 1,
        time_max: Duration::from_secs(1),
        bytes_max: 1000,
    }
}

thread_local! {
    static CLOCK: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// A processor time that passes by 10 ms with each look: each slice is over at its first pause.
fn ticking() -> Duration {
    CLOCK.with(|clock| {
        clock.set(clock.get() + Duration::from_millis(10));
        clock.get()
    })
}

fn topic(number: u32) -> ComputeCaller {
    ComputeCaller::Topic(PartitionId(number))
}

fn operator(name: &str) -> ComputeCaller {
    ComputeCaller::Operator(name.to_owned())
}

/// Notes `name` in each of `count` slices.
async fn note(meter: Meter, seen: Arc<Mutex<Vec<&'static str>>>, name: &'static str, count: usize) {
    for _ in 0..count {
        seen.lock().push(name);
        meter.pause_if_used_up().await.expect("there is time");
    }
}

#[actix_web::test]
async fn callers_have_turns_however_many_tasks_each_has() {
    let compute = Compute::with_processor_time(limits(), ticking);
    let seen: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    // Until all tasks are there the only thread is busy.
    let (start, started) = std::sync::mpsc::channel::<()>();
    let gate = compute.run(operator("gate"), |_| async move {
        started.recv().expect("a start")
    });
    let many =
        (0..3).map(|_| compute.run(topic(1), |meter| note(meter, Arc::clone(&seen), "many", 4)));
    let one = compute.run(topic(2), |meter| note(meter, Arc::clone(&seen), "one", 4));
    let begin = async {
        tokio::task::yield_now().await;
        start.send(()).expect("it waits");
    };
    let (gate, _, one, ()) = tokio::join!(gate, futures_util::future::join_all(many), one, begin);
    assert_eq!((gate, one), (Ok(()), Ok(())));
    let seen = seen.lock();
    let last = seen
        .iter()
        .rposition(|name| *name == "one")
        .expect("it ran");
    assert!(
        last <= 9,
        "one task has half of the time beside three of another caller: {seen:?}"
    );
    assert_eq!(seen.len(), 16);
}

#[actix_web::test]
async fn a_task_that_uses_its_time_ends_and_a_delivery_does_not() {
    let compute = Compute::with_processor_time(limits(), ticking);
    let endless = |meter: Meter| async move {
        loop {
            meter.pause_if_used_up().await?;
        }
        #[expect(unreachable_code, reason = "it gives the type")]
        Ok::<(), ComputeError>(())
    };
    let result = compute.run(operator("admin"), endless).await;
    assert_eq!(result, Ok(Err(ComputeError::Time(Duration::from_secs(1)))));
    let key = gridhook::event::SubscriptionKey {
        partition: PartitionId(1),
        subscription: gridhook::event::SubscriptionId(1),
    };
    let long = |meter: Meter| async move {
        for _ in 0..1000 {
            meter.pause_if_used_up().await?;
        }
        Ok::<(), ComputeError>(())
    };
    assert_eq!(
        compute.run(ComputeCaller::Subscription(key), long).await,
        Ok(Ok(()))
    );
}

#[actix_web::test]
async fn memory_is_bounded_for_a_task_a_caller_and_all() {
    let compute = Compute::new(limits());
    let alone = compute
        .run(
            operator("a"),
            |meter| async move { meter.reserve_bytes(501) },
        )
        .await;
    assert_eq!(
        alone,
        Ok(Err(ComputeError::Memory(500))),
        "a task has half at most"
    );
    // The task holds its memory until it ends.
    let (end, ended) = oneshot::channel::<()>();
    let (begun, holds) = oneshot::channel();
    let hold = compute.run(operator("a"), |meter| async move {
        begun
            .send(meter.reserve_bytes(500))
            .expect("the test waits");
        ended.await.ok();
    });
    let others = async {
        assert_eq!(holds.await, Ok(Ok(())));
        let more = compute
            .run(operator("a"), |meter| async move { meter.reserve_bytes(1) })
            .await;
        assert_eq!(
            more,
            Ok(Err(ComputeError::Busy)),
            "a caller leaves as much as it holds"
        );
        let other = compute
            .run(operator("b"), |meter| async move {
                [meter.reserve_bytes(250), meter.reserve_bytes(1)]
            })
            .await;
        assert_eq!(
            other,
            Ok([Ok(()), Err(ComputeError::Busy)]),
            "another one may have half of the rest"
        );
        end.send(()).expect("it waits");
    };
    let (held, ()) = tokio::join!(hold, others);
    assert_eq!(held, Ok(()));
    let again = compute
        .run(
            operator("a"),
            |meter| async move { meter.reserve_bytes(500) },
        )
        .await;
    assert_eq!(again, Ok(Ok(())), "the memory is free again");
}

#[actix_web::test]
async fn a_caller_leaves_tasks_to_others() {
    let compute = Compute::new(limits());
    let (end, ended) = tokio::sync::watch::channel(false);
    let wait = || {
        let mut ended = ended.clone();
        compute.run(topic(1), |_| async move {
            ended.wait_for(|ended| *ended).await.map(|_| ()).is_ok()
        })
    };
    let refused = AtomicUsize::new(0);
    let admitted = AtomicUsize::new(0);
    let all = futures_util::future::join_all((0..600).map(|_| async {
        let count = if wait().await.is_ok() {
            &admitted
        } else {
            &refused
        };
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let other = async {
        assert_eq!(
            compute.run(topic(2), |_| async { 7 }).await,
            Ok(7),
            "another caller is admitted"
        );
        end.send_replace(true);
    };
    tokio::join!(all, other);
    assert_eq!((admitted.into_inner(), refused.into_inner()), (512, 88));
}

#[actix_web::test]
async fn a_panic_and_a_caller_that_goes_end_a_task_and_no_thread() {
    let compute = Compute::new(limits());
    let panics = |_| async {
        if true {
            panic!("on purpose");
        }
    };
    assert_eq!(
        compute.run(topic(1), panics).await,
        Err(ComputeError::Interrupted)
    );
    let is_dropped = Arc::new(AtomicBool::new(false));
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let noted = Noted(Arc::clone(&is_dropped));
    // Its sender holds the waker: a task that nothing can wake is dropped.
    let (_end, ended) = oneshot::channel::<()>();
    let endless = compute.run(operator("gone"), |_| async move {
        ended.await.ok();
        drop(noted);
    });
    assert!(futures_util::FutureExt::now_or_never(endless).is_none());
    while !is_dropped.load(Ordering::Acquire) {
        assert_eq!(compute.run(topic(2), |_| async { 1 }).await, Ok(1));
    }
}
