//! The commands of operators: which of them apply in which state, and what they do.

use super::Endpoint;
use crate::record::{Command, CommandRefused, Health, HeldBy};
use gridhook_event::Timestamp;

impl Endpoint {
    /// Why a command does not apply in the current state.
    pub fn command_problem(&self, command: Command) -> Option<CommandRefused> {
        match (command, self.health) {
            (Command::Hold | Command::Resume | Command::Job(_) | Command::Unblock { .. }, _) => {
                None
            }
            (Command::Probe, _) if self.held.is_some() => Some(CommandRefused::Held),
            (Command::Probe | Command::Release, Health::Healthy { .. })
                if self.pace.not_before.is_some() =>
            {
                None
            }
            (Command::Probe | Command::Release, Health::Healthy { .. }) => {
                Some(CommandRefused::Healthy)
            }
            (Command::Probe, Health::Probing { .. }) => Some(CommandRefused::Probing),
            (Command::Probe, Health::Suspended { .. }) => None,
            (Command::Release, Health::Suspended { .. } | Health::Probing { .. }) => None,
        }
    }

    /// Executes an operator's command. One that does not apply changes nothing.
    pub fn on_command(&mut self, command: Command, now: Timestamp) {
        if self.command_problem(command).is_some() {
            return;
        }
        match (command, self.health) {
            (Command::Hold, _) => self.held = Some(HeldBy::ByOperator),
            (Command::Resume, _) => {
                self.held = None;
                self.pace.failing_since = None;
            }
            (Command::Job(_) | Command::Unblock { .. }, _) => {}
            (
                Command::Probe,
                Health::Suspended {
                    cause,
                    since,
                    until,
                    consecutive_suspensions,
                },
            ) => {
                self.pace.not_before = None;
                self.health = Health::Suspended {
                    cause,
                    since,
                    until: until.min(now),
                    consecutive_suspensions,
                };
            }
            (Command::Probe | Command::Release, Health::Healthy { .. }) => {
                self.pace.not_before = None
            }
            (Command::Probe, Health::Probing { .. }) => {}
            (Command::Release, Health::Suspended { .. } | Health::Probing { .. }) => {
                self.pace.not_before = None;
                self.probe = None;
                self.become_healthy(now);
            }
        }
    }
}
