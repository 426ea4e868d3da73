//! Operators' commands, retries that are brought forward and pages of dead letters, and their
//! replies.
//!
//! A reply belongs to a write, not to an incarnation. What the core has taken and not written is
//! lost with its incarnation: the next one takes the commands again. The write that contains a
//! command replies to it, whichever incarnation runs by then.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{SharedInner, SharedState};
use gridhook_event::Lane;
use gridhook_policy::record::{Command, CommandRefused, RedrivePage, RetryRequest};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// The job that the command began.
    pub job: Option<Lane>,
    /// Deliveries that the command moved.
    pub events: u64,
}

/// Receives the result once the command is durable, or at once the reason for its refusal.
type CommandReply = oneshot::Sender<Result<CommandResult, CommandRefused>>;

#[derive(Debug)]
pub enum ActorRequest {
    Command(Command),
    /// Pending deliveries to retry now.
    Retry(RetryRequest),
    /// Dead letters for a redrive job.
    Page(Box<RedrivePage>),
}

#[derive(Debug)]
struct WaitingRequest {
    /// The request; [`None`] for a page that the core has taken: its redrive reads it again if the
    /// page is not written.
    request: Option<ActorRequest>,
    result: CommandResult,
    reply: CommandReply,
}

/// Requests that are not in a write, oldest first.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    waiting: VecDeque<WaitingRequest>,
    /// How many of them, from the front, the core of the current incarnation has taken.
    taken_count: usize,
}

impl CommandQueue {
    fn push(
        &mut self,
        request: ActorRequest,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.push_back(WaitingRequest {
            request: Some(request),
            result: CommandResult::default(),
            reply,
        });
        receiver
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins a new incarnation, which takes again what no write contains.
    pub(super) fn begin_incarnation(&mut self) {
        self.waiting.retain(|waiting| waiting.request.is_some());
        self.taken_count = 0;
    }

    /// The incarnation panicked, perhaps because of what it had taken.
    pub(super) fn drop_taken(&mut self) {
        self.waiting.drain(..self.taken_count);
        self.taken_count = 0;
    }

    /// A write begins that contains all that was taken, with the number of deliveries that it
    /// moved. [`None`]: a later write contains the rest.
    pub(super) fn begin_write(&mut self, moved_by_commands: Option<u64>) -> WrittenCommands {
        let Some(events) = moved_by_commands else {
            return WrittenCommands(Vec::new());
        };
        let mut requests: Vec<WaitingRequest> = self
            .waiting
            .drain(..std::mem::take(&mut self.taken_count))
            .collect();
        for waiting in &mut requests {
            waiting.result.events = events;
        }
        WrittenCommands(requests)
    }
}

/// The commands in a write. Their requesters get an error if it is dropped.
#[derive(Debug)]
pub(crate) struct WrittenCommands(Vec<WaitingRequest>);

impl WrittenCommands {
    pub(crate) fn send_results(self) {
        for WaitingRequest { result, reply, .. } in self.0 {
            // The requester may have gone. The command took effect all the same.
            reply.send(Ok(result)).ok();
        }
    }
}

impl SharedInner {
    /// Without a reply if the subscription was deleted: no actor takes the request.
    fn push_request(
        &mut self,
        request: ActorRequest,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let receiver = self.commands.push(request);
        if self.is_deleted {
            self.commands = CommandQueue::default();
        }
        receiver
    }
}

impl SharedState {
    /// Passes an operator's command to the actor. The response arrives once the command is durable,
    /// or at once if it is refused.
    pub fn submit_command(
        &self,
        command: Command,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let receiver = inner.push_request(ActorRequest::Command(command));
        self.wake_actor(inner);
        receiver
    }

    /// Passes dead letters to one of the subscription's redrive jobs. The response arrives once
    /// they are durably pending, or at once if there is no such job or it does not run.
    pub fn redrive_page(
        &self,
        page: RedrivePage,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let receiver = inner.push_request(ActorRequest::Page(Box::new(page)));
        self.wake_actor(inner);
        receiver
    }

    /// Passes pending deliveries that are to be retried now. The response arrives once they are
    /// durably due, or at once if that is refused.
    pub fn submit_retry(
        &self,
        request: RetryRequest,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let receiver = inner.push_request(ActorRequest::Retry(request));
        self.wake_actor(inner);
        receiver
    }

    /// Takes the next request. Its response follows from [`SharedState::accept_command`] or
    /// [`SharedState::refuse_command`].
    pub fn next_request(&self) -> Option<ActorRequest> {
        let queue = &mut self.lock_inner().commands;
        let next = queue.waiting.get_mut(queue.taken_count)?;
        queue.taken_count += 1;
        match &next.request {
            Some(ActorRequest::Command(command)) => Some(ActorRequest::Command(*command)),
            Some(ActorRequest::Retry(request)) => Some(ActorRequest::Retry(request.clone())),
            Some(ActorRequest::Page(_)) | None => next.request.take(),
        }
    }

    /// The core takes the last request, which begins this job. The next write contains it.
    pub fn accept_command(&self, job: Option<Lane>) {
        let queue = &mut self.lock_inner().commands;
        if let Some(last) = queue
            .taken_count
            .checked_sub(1)
            .and_then(|last| queue.waiting.get_mut(last))
        {
            last.result.job = job;
        }
    }

    /// The core refuses the last request.
    pub fn refuse_command(&self, reason: CommandRefused) {
        let queue = &mut self.lock_inner().commands;
        if let Some(last) = queue.taken_count.checked_sub(1) {
            queue.taken_count = last;
            if let Some(request) = queue.waiting.remove(last) {
                // The requester may have gone.
                request.reply.send(Err(reason)).ok();
            }
        }
    }
}
