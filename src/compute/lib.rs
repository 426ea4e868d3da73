//! Computes what clients ask for on threads of its own: schema validation, tests of filters and
//! transformations, simulations, searches for an event, and transformations of events to deliver.
//! Threads that serve HTTP or deliver never wait for it.
//!
//! Work is a future. One poll of it is a slice: [`Meter::pause_if_used_up`] ends a slice that has
//! used its time, and the next slice is that of another [`ComputeCaller`], if one waits. So callers
//! have equal shares, however many tasks each has.
//!
//! Invariants:
//! - A task uses at most `time_max` of a processor, measured on its thread: a busy machine refuses
//!   nothing. Deliveries have no limit: the cost of each event is bounded before.
//! - What tasks reserve is bounded in total, and a caller holds at most as much as it leaves free,
//!   in bytes and in tasks.
//! - A task ends once its caller no longer waits for the result.
//!
//! It has no timers and no sockets: a future that needs those of a runtime does not belong here.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use gridhook_event::{PartitionId, SubscriptionKey};

/// The time of a slice, as long as a turn of an actor.
const SLICE: Duration = Duration::from_millis(1);

/// Maximum number of tasks, of which one caller has at most half.
const TASKS_MAX: usize = 1_024;

/// Who a task is for. Each has an equal share of the threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ComputeCaller {
    /// An operator or a portal link, by name.
    Operator(String),
    /// The publishers of a topic.
    Topic(PartitionId),
    /// The deliveries of a subscription.
    Subscription(SubscriptionKey),
}

#[derive(Clone, Copy, Debug)]
pub struct ComputeLimits {
    /// Number of threads; 0: one for each two processors.
    pub threads: usize,
    /// Maximum processor time of a task.
    pub time_max: Duration,
    /// Maximum memory that all tasks reserve.
    pub bytes_max: usize,
}

impl Default for ComputeLimits {
    fn default() -> Self {
        Self {
            threads: 0,
            time_max: Duration::from_secs(10),
            bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// Why a task has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    #[error("it needs more than {} ms of processor time, the maximum of limits.compute_time", .0.as_millis())]
    Time(Duration),
    /// It needs more memory than a task may have.
    #[error("it needs more than {0} bytes of memory, half of limits.compute_bytes")]
    Memory(usize),
    /// Other tasks use what there is.
    #[error("too much is being computed; try again later")]
    Busy,
    /// It panicked, or the server stops.
    #[error("the computation was interrupted")]
    Interrupted,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads that compute. Clones share them. They start with the first task and end with the
/// last clone.
#[derive(Clone)]
pub struct Compute {
    pool: Arc<Pool>,
}

struct Pool {
    scheduler: Arc<Scheduler>,
    /// Whether there are threads, once the first task came.
    threads: OnceLock<bool>,
}

/// Distributes the time of the threads.
struct Scheduler {
    limits: ComputeLimits,
    /// The processor time of the current thread.
    processor_time: fn() -> Duration,
    state: Mutex<SchedulerState>,
    has_ready: Condvar,
}

#[derive(Default)]
struct SchedulerState {
    callers: HashMap<ComputeCaller, CallerState>,
    /// The callers with a task that is ready, once each.
    turns: VecDeque<ComputeCaller>,
    tasks: usize,
    bytes: usize,
    is_closed: bool,
}

#[derive(Default)]
struct CallerState {
    ready: VecDeque<Arc<Task>>,
    tasks: usize,
    bytes: usize,
}

struct Task {
    account: Arc<Account>,
    work: Mutex<Option<Work>>,
    is_ready: AtomicBool,
}

/// What a task has used. It returns its reservations when it is dropped, with the task.
struct Account {
    scheduler: Arc<Scheduler>,
    caller: ComputeCaller,
    /// Nanoseconds in slices that have ended.
    used: AtomicU64,
    /// The thread's processor time in nanoseconds when the slice began.
    slice_began: AtomicU64,
    bytes: AtomicUsize,
    is_abandoned: AtomicBool,
}

/// Measures a task and ends its slices.
#[derive(Clone)]
pub struct Meter {
    account: Arc<Account>,
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Compute")
            .field(&self.pool.scheduler.limits)
            .finish()
    }
}

impl Default for Compute {
    fn default() -> Self {
        Self::new(ComputeLimits::default())
    }
}

impl Compute {
    pub fn new(limits: ComputeLimits) -> Self {
        Self::with_processor_time(limits, thread_time)
    }

    /// As [`Compute::new`], with another measure of a thread's processor time.
    pub fn with_processor_time(limits: ComputeLimits, processor_time: fn() -> Duration) -> Self {
        let scheduler = Scheduler {
            limits,
            processor_time,
            state: Mutex::default(),
            has_ready: Condvar::new(),
        };
        let scheduler = Arc::new(scheduler);
        Self {
            pool: Arc::new(Pool {
                scheduler,
                threads: OnceLock::new(),
            }),
        }
    }

    /// Runs a task for a caller.
    ///
    /// # Errors
    /// If the caller has too many tasks, or the task panics.
    pub async fn run<F>(
        &self,
        caller: ComputeCaller,
        work: impl FnOnce(Meter) -> F,
    ) -> Result<F::Output, ComputeError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.pool.start_threads()?;
        let account = Scheduler::admit_caller(&self.pool.scheduler, caller)?;
        let (reply, result) = oneshot::channel();
        let work = work(Meter {
            account: Arc::clone(&account),
        });
        let work: Work = Box::pin(async move {
            // The caller may have gone.
            reply.send(work.await).ok();
        });
        let task = Arc::new(Task {
            account,
            work: Mutex::new(Some(work)),
            is_ready: AtomicBool::new(false),
        });
        let mut guard = TaskGuard(Arc::downgrade(&task));
        task.wake();
        let result = result.await;
        // The task has ended.
        guard.0 = Weak::new();
        result.map_err(|_| ComputeError::Interrupted)
    }
}

/// Ends a task whose caller has gone.
struct TaskGuard(Weak<Task>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if let Some(task) = self.0.upgrade() {
            task.account.is_abandoned.store(true, Ordering::Release);
            task.wake();
        }
    }
}

impl Pool {
    fn start_threads(&self) -> Result<(), ComputeError> {
        // Without any thread tasks would wait forever.
        let has_threads = *self.threads.get_or_init(|| self.scheduler.start_threads());
        if has_threads {
            Ok(())
        } else {
            Err(ComputeError::Interrupted)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        state.is_closed = true;
        // They hold the scheduler. They are dropped without the lock, which they take.
        let tasks: Vec<_> = state
            .callers
            .values_mut()
            .flat_map(|own| own.ready.drain(..))
            .collect();
        drop(state);
        drop(tasks);
        self.scheduler.has_ready.notify_all();
    }
}

impl Scheduler {
    /// Starts the threads; false if there is none.
    fn start_threads(self: &Arc<Self>) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.limits.threads == 0 {
            processors.div_ceil(2)
        } else {
            self.limits.threads
        };
        (0..threads).filter(|_| self.start_thread()).count() > 0
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let scheduler = Arc::clone(self);
        std::thread::Builder::new()
            .name("compute".to_owned())
            .spawn(move || scheduler.run_tasks())
            .is_ok()
    }

    fn run_tasks(&self) {
        while let Some(task) = self.next_task() {
            task.run_slice();
        }
    }

    /// The task whose caller has the next turn; [`None`] at the end.
    fn next_task(&self) -> Option<Arc<Task>> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(task) = state.next_ready() {
                return Some(task);
            }
            self.has_ready.wait(&mut state);
        }
    }

    fn admit_caller(self: &Arc<Self>, caller: ComputeCaller) -> Result<Arc<Account>, ComputeError> {
        let mut state = self.state.lock();
        let tasks = state.tasks;
        let own = state.callers.entry(caller.clone()).or_default();
        if own.tasks + 1 > TASKS_MAX - tasks.min(TASKS_MAX) {
            state.forget_idle(&caller);
            return Err(ComputeError::Busy);
        }
        own.tasks += 1;
        state.tasks += 1;
        drop(state);
        Ok(Arc::new(Account {
            scheduler: Arc::clone(self),
            caller,
            used: AtomicU64::new(0),
            slice_began: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            is_abandoned: AtomicBool::new(false),
        }))
    }
}

impl SchedulerState {
    fn next_ready(&mut self) -> Option<Arc<Task>> {
        let caller = self.turns.pop_front()?;
        let ready = &mut self.callers.get_mut(&caller)?.ready;
        let task = ready.pop_front();
        if !ready.is_empty() {
            self.turns.push_back(caller);
        }
        task
    }

    fn forget_idle(&mut self, caller: &ComputeCaller) {
        if self.callers.get(caller).is_some_and(|own| own.tasks == 0) {
            self.callers.remove(caller);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.is_ready.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduler = Arc::clone(&self.account.scheduler);
        let caller = self.account.caller.clone();
        let mut state = scheduler.state.lock();
        let is_closed = state.is_closed;
        let Some(own) = state.callers.get_mut(&caller).filter(|_| !is_closed) else {
            return;
        };
        own.ready.push_back(self);
        if own.ready.len() == 1 {
            state.turns.push_back(caller);
        }
        drop(state);
        scheduler.has_ready.notify_one();
    }
}

impl Task {
    fn run_slice(self: Arc<Self>) {
        let account = &self.account;
        // Before the poll: a wake during the poll is for the next one. What was written before an
        // earlier wake is seen.
        self.is_ready.swap(false, Ordering::AcqRel);
        let mut work = self.work.lock();
        let Some(future) = work.as_mut() else { return };
        if account.is_abandoned.load(Ordering::Acquire) {
            *work = None;
            return;
        }
        let began = (account.scheduler.processor_time)();
        account.slice_began.store(nanos(began), Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self));
        let poll_result = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let time = (account.scheduler.processor_time)().saturating_sub(began);
        account.used.fetch_add(nanos(time), Ordering::Relaxed);
        if !matches!(poll_result, Ok(Poll::Pending)) {
            // A panic is reported by the reply that is dropped with the work.
            *work = None;
        }
    }
}

impl Meter {
    /// Ends the slice if it is used up.
    ///
    /// # Errors
    /// If the task has used its time.
    pub async fn pause_if_used_up(&self) -> Result<(), ComputeError> {
        let slice = self.account.slice_time();
        let used_time = Duration::from_nanos(self.account.used.load(Ordering::Relaxed)) + slice;
        let time_max = self.account.scheduler.limits.time_max;
        if used_time > time_max && !matches!(self.account.caller, ComputeCaller::Subscription(_)) {
            return Err(ComputeError::Time(time_max));
        }
        if slice >= SLICE {
            let mut is_over = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut is_over, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        Ok(())
    }

    /// Reserves memory until the task ends.
    ///
    /// # Errors
    /// If the task, or all of them, would have too much.
    pub fn reserve_bytes(&self, bytes: usize) -> Result<(), ComputeError> {
        let Account {
            scheduler,
            caller,
            bytes: reserved,
            ..
        } = &*self.account;
        let most = scheduler.limits.bytes_max / 2;
        if reserved.load(Ordering::Relaxed) + bytes > most {
            return Err(ComputeError::Memory(most));
        }
        let mut state = scheduler.state.lock();
        let free = scheduler
            .limits
            .bytes_max
            .saturating_sub(state.bytes + bytes);
        let Some(own) = state.callers.get_mut(caller) else {
            return Err(ComputeError::Interrupted);
        };
        // A caller that is alone may have half, and another one half of the rest.
        if own.bytes + bytes > free {
            return Err(ComputeError::Busy);
        }
        own.bytes += bytes;
        state.bytes += bytes;
        reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Account {
    fn slice_time(&self) -> Duration {
        let began = Duration::from_nanos(self.slice_began.load(Ordering::Relaxed));
        (self.scheduler.processor_time)().saturating_sub(began)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        let bytes = *self.bytes.get_mut();
        state.tasks -= 1;
        state.bytes -= bytes;
        if let Some(own) = state.callers.get_mut(&self.caller) {
            own.tasks -= 1;
            own.bytes -= bytes;
        }
        state.forget_idle(&self.caller);
    }
}

/// The processor time of the current thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
