//! Threads for tasks that block. One starts with a task, and ends once none came for a while: a
//! process has many stores, most of which have nothing to do.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// How long an idle thread waits for another task.
const IDLE_WAIT: Duration = Duration::from_secs(2);

type Task = Box<dyn FnOnce() + Send>;

/// A handle to the threads. When it is dropped, they end after the tasks that they have.
pub struct TaskThreads(Arc<Shared>);

struct Shared {
    /// The name of each thread.
    name: &'static str,
    threads_max: usize,
    span: tracing::Span,
    queue: Mutex<TaskQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct TaskQueue {
    tasks: VecDeque<Task>,
    /// The threads that have not ended.
    running: usize,
    /// The threads that wait for a task, of those that have not ended.
    waiting: usize,
    handles: Vec<JoinHandle<()>>,
    is_closed: bool,
}

impl TaskThreads {
    /// Makes up to `threads_max` threads with this name. With one, tasks run in their order.
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        Self(Arc::new(Shared {
            name,
            threads_max,
            span: tracing::Span::current(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Runs a task. If it panics, the panic hook logs that, and the next one runs.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        queue.tasks.push_back(Box::new(task));
        if queue.waiting >= queue.tasks.len() {
            self.0.changed.notify_one();
        } else if queue.running < self.0.threads_max {
            queue.handles.retain(|thread| !thread.is_finished());
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new()
                .name(self.0.name.to_owned())
                .spawn(move || shared.span.clone().in_scope(|| shared.run_tasks()))
                .expect("a process that cannot start a thread cannot continue");
            queue.handles.push(thread);
            queue.running += 1;
        }
    }

    /// Returns once all tasks have run and the threads have ended.
    pub fn join(self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        let handles = std::mem::take(&mut queue.handles);
        drop(queue);
        self.0.changed.notify_all();
        for thread in handles {
            thread.join().ok();
        }
    }
}

impl Drop for TaskThreads {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for TaskThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskThreads").field(&self.0.name).finish()
    }
}

impl Shared {
    fn run_tasks(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                drop(queue);
                catch_unwind(AssertUnwindSafe(task)).ok();
                queue = self.queue.lock();
                continue;
            }
            if queue.is_closed {
                break;
            }
            queue.waiting += 1;
            let no_task = |queue: &mut TaskQueue| queue.tasks.is_empty() && !queue.is_closed;
            self.changed.wait_while_for(&mut queue, no_task, IDLE_WAIT);
            queue.waiting -= 1;
            if queue.tasks.is_empty() {
                break;
            }
        }
        queue.running -= 1;
    }
}
