//! Operators' commands, retries that are brought forward and pages of dead letters, and their
//! replies.
//!
//! A reply belongs to a write, not to an incarnation. What the core has taken and not written is
//! lost with its incarnation: the next one takes the commands again. The write that contains a
//! command replies to it, whichever incarnation runs by then.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::SharedState;
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
    /// Number of requests, from the front, that the core of the current incarnation has taken.
    taken: usize,
}

impl CommandQueue {
    fn push(
        &mut self,
        request: ActorRequest,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, answer) = oneshot::channel();
        self.waiting.push_back(WaitingRequest {
            request: Some(request),
            result: CommandResult::default(),
            reply,
        });
        answer
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins a new incarnation, which takes again what no write contains.
    pub(super) fn begin_incarnation(&mut self) {
        self.waiting.retain(|waiting| waiting.request.is_some());
        self.taken = 0;
    }

    /// The incarnation panicked, perhaps because of what it had taken.
    pub(super) fn drop_taken(&mut self) {
        self.waiting.drain(..self.taken);
        self.taken = 0;
    }

    /// A write begins that contains all that was taken, with the number of deliveries that it
    /// moved. [`None`]: a later write contains the rest.
    pub(super) fn begin_write(&mut self, commanded: Option<u64>) -> WrittenCommands {
        let Some(events) = commanded else {
            return WrittenCommands(Vec::new());
        };
        let mut written: Vec<WaitingRequest> = self
            .waiting
            .drain(..std::mem::take(&mut self.taken))
            .collect();
        written
            .iter_mut()
            .for_each(|waiting| waiting.result.events = events);
        WrittenCommands(written)
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

impl SharedState {
    /// Passes an operator's command to the actor. The response arrives once the command is durable,
    /// or at once if it is refused.
    pub fn submit_command(
        &self,
        command: Command,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let answer = inner.commands.push(ActorRequest::Command(command));
        self.wake_actor(inner);
        answer
    }

    /// Passes dead letters to one of the subscription's redrive jobs. The response arrives once
    /// they are durably pending, or at once if there is no such job or it does not run.
    pub fn redrive_page(
        &self,
        page: RedrivePage,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let answer = inner.commands.push(ActorRequest::Page(Box::new(page)));
        self.wake_actor(inner);
        answer
    }

    /// Passes pending deliveries that are to be retried now. The response arrives once they are
    /// durably due, or at once if that is refused.
    pub fn submit_retry(
        &self,
        request: RetryRequest,
    ) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let mut inner = self.lock_inner();
        let answer = inner.commands.push(ActorRequest::Retry(request));
        self.wake_actor(inner);
        answer
    }

    /// Takes the next request. Its response follows from [`SharedState::accept_command`] or
    /// [`SharedState::refuse_command`].
    pub fn next_request(&self) -> Option<ActorRequest> {
        let queue = &mut self.lock_inner().commands;
        let next = queue.waiting.get_mut(queue.taken)?;
        queue.taken += 1;
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
            .taken
            .checked_sub(1)
            .and_then(|last| queue.waiting.get_mut(last))
        {
            last.result.job = job;
        }
    }

    /// The core refuses the last request.
    pub fn refuse_command(&self, why: CommandRefused) {
        let queue = &mut self.lock_inner().commands;
        if let Some(last) = queue.taken.checked_sub(1) {
            queue.taken = last;
            if let Some(refused) = queue.waiting.remove(last) {
                // The requester may have gone.
                refused.reply.send(Err(why)).ok();
            }
        }
    }
}
