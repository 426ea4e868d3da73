//! The third phase of a start: the records of the store are read, and the journal writes.

use std::{rc::Rc, sync::Arc};

use super::{
    RunOutcome,
    bound::{Bound, StartEnd},
    owned_store::JournalTarget,
};
use crate::{
    Launch, ServerError,
    backup_schedule::{self, BackupOwner},
    descriptors::DescriptorBudget,
    node::Ownership,
    settings,
    startup::{self, ServerParts},
    timekeeping::Timekeeper,
};
use gridhook_admin::{ChaosTargets, admin_token::AdminToken, health};
use gridhook_deliver::ClientOptions;
use gridhook_engine::control::registry::{Registry, StartQueue};
use gridhook_event::Timestamp;
use gridhook_journal::{Scrub, WriterThreads};
use gridhook_repair::backup::Backups;
use gridhook_store::rocks::RocksStore;

/// The records of the store are read, and the journal writes.
pub(crate) struct Recovered {
    pub(crate) parts: ServerParts,
    pub(super) writer: WriterThreads,
    pub(super) timekeeper: Rc<Timekeeper>,
    pub(super) started: Timestamp,
    pub(super) token: AdminToken,
    pub(crate) backups: Arc<Backups>,
    pub(crate) client: ClientOptions,
    pub(super) budget: DescriptorBudget,
    _scrub: Scrub,
}

impl Recovered {
    pub(super) fn read(
        launch: &Launch,
        bound: &Bound,
        local: &Arc<RocksStore>,
        target: JournalTarget,
        targets: &ChaosTargets,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<(Self, StartQueue), ServerError> {
        let Launch { inputs, budget, .. } = launch;
        let config = &inputs.config;
        let Bound {
            address, health, ..
        } = bound;
        health.set_step(health::StartStep::new("reading the records"));
        let last = ownership.and_then(|ownership| ownership.node.owner_clock());
        let (clock, timekeeper) = startup::start_clock(config, targets, last);
        if let Some(ownership) = ownership {
            ownership.node.share_time(&ownership.tenure, clock.clone());
        }
        let start = clock.now();
        let token = startup::load_admin_token(config)?;
        let backup_owner = ownership.map(|ownership| BackupOwner {
            cluster_id: ownership.node.process.cluster_id.clone(),
            fence: ownership.tenure.file_fence(),
        });
        let process_dir = launch.core.as_ref().map(|core| core.process_dir.clone());
        let lease = ownership.map(|ownership| ownership.tenure.lease.clone());
        let backups = backup_schedule::build_backups(
            config,
            budget,
            local,
            &clock,
            backup_owner,
            process_dir,
        )?;
        let client = ClientOptions {
            lease,
            ..settings::client_options(config, &address.bound, budget)?
        };
        let rules = settings::registry_rules(config, &client, &address.bound);
        let appended_to = Arc::default();
        let (journal, writer) =
            startup::start_journal(config, target, targets, &clock, &appended_to)?;
        let scrub = journal.start_scrub(config.journal.scrub);
        let (registry, starts) = match Registry::load_from_journal(
            journal.clone(),
            rules,
            config.topic.recent_events_bytes,
        ) {
            Ok(recovered) => recovered,
            Err(error) => {
                journal.close();
                writer.join_all();
                return Err(error.into());
            }
        };
        let registry = Arc::clone(appended_to.get_or_init(|| Arc::new(registry)));
        let parts = ServerParts {
            config: config.clone(),
            clock,
            journal,
            registry,
            compute: launch.compute.clone(),
        };
        Ok((
            Self {
                parts,
                writer,
                timekeeper,
                started: start,
                token,
                backups,
                client,
                budget: *budget,
                _scrub: scrub,
            },
            starts,
        ))
    }

    pub(super) async fn abandon_start(
        self,
        bound: Bound,
        ownership: Option<Ownership<'_>>,
        end: StartEnd,
    ) -> Result<RunOutcome, ServerError> {
        self.close(ownership.as_ref()).await;
        bound.abandon_start(ownership, end).await
    }

    /// Ends the journal of a start that is abandoned.
    pub(super) async fn close(self, ownership: Option<&Ownership<'_>>) {
        let Self { parts, writer, .. } = self;
        parts.registry.close();
        parts.journal.close();
        let end = async {
            // A write may wait for the changelog.
            tokio::task::spawn_blocking(move || writer.join_all())
                .await
                .expect("joining threads does not panic");
        };
        match ownership {
            None => end.await,
            Some(ownership) => ownership.end_writes(end).await,
        }
    }
}
