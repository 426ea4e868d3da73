//! Operators' requests to a subscription, on their way from the shared state to the core.

use super::SubscriptionActor;
use crate::shared_state::ActorRequest;
use gridhook_event::Timestamp;
use gridhook_policy::{Input, record::Command};

impl SubscriptionActor {
    /// Takes operators' requests. One that is carried out in parts gets its result before the next
    /// one is taken.
    pub(super) fn take_requests(&mut self, now: Timestamp) {
        while let Some(request) = (!self.core.is_deciding())
            .then(|| self.shared.next_request())
            .flatten()
        {
            let refusal = match &request {
                ActorRequest::Command(command) => self.core.command_problem(*command),
                ActorRequest::Retry(_) => self.core.refuses_retry(now),
                ActorRequest::Page(page) => self.core.refuses_dead_letters(page.lane),
            };
            if let Some(reason) = refusal {
                self.shared.refuse_command(reason);
                continue;
            }
            let is_ending_wait = matches!(
                request,
                ActorRequest::Command(Command::Probe | Command::Release)
            );
            let input = match request {
                ActorRequest::Command(command) => {
                    // The job begins before the core says what is to be written.
                    self.shared.accept_command(self.core.next_job(command));
                    Input::Command(command)
                }
                ActorRequest::Retry(request) => Input::Retry(request),
                ActorRequest::Page(page) => Input::Redrive(page),
            };
            self.pass_to_core(input, now);
            if let Some(wait) = self.plan.retry_after.as_ref().filter(|_| is_ending_wait) {
                wait.end_wait();
            }
        }
    }
}
