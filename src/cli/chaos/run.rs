//! A run: set-up, load with faults, settling, verdict, clean-up.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use awc::http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    ChaosCommand, ChaosError,
    kills::{KillCount, KillSchedule},
    ledger::{DeliveryLedger, flatten_counts},
    load::LoadGenerator,
    name_of,
    verdict::ChaosVerdict,
    webhook::{self, SharedLedger, with_ledger},
};
use crate::{
    client::{self, Precondition, ResourceName, ServerClient},
    format::{count_with_noun, group_thousands},
    progress::Progress,
    terminal::EndSignals,
};
use gridhook_api::{
    chaos::ChaosReport, status::SubscriptionStatusView, supervision::SupervisionReport,
};
use gridhook_clock::Clock;

/// The interval between progress checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The maximum time of the clean-up.
const CLEAN_UP_MAX: Duration = Duration::from_secs(30);

/// The state of a run.
struct ChaosRun {
    chaos: ChaosCommand,
    clock: Clock,
    server: Rc<ServerClient>,
    ledger: SharedLedger,
    topic: String,
    seed: u64,
    stopped: Rc<Cell<bool>>,
    kills: Rc<KillCount>,
}

pub(super) async fn run(chaos: ChaosCommand, clock: Clock) -> Result<ChaosVerdict, ChaosError> {
    let server = Rc::new(
        chaos
            .server
            .build_client()
            .map_err(request_error("cannot connect to the server"))?,
    );
    if let Some(url) = &chaos.publish_to {
        server
            .check_recipient(url)
            .map_err(request_error("cannot publish"))?;
    }
    let before = fault_counts(&server).await?;
    let seed = chaos.seed.unwrap_or_else(|| fastrand::u64(..));
    let ledger = Arc::new(Mutex::new(DeliveryLedger::new(
        seed,
        chaos.subscriptions as usize,
    )));
    let (at, webhook) =
        webhook::start_webhook(chaos.listen, &ledger).map_err(|error| ChaosError::Webhook {
            address: chaos.listen,
            error,
        })?;
    let endpoint = match &chaos.endpoint {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => format!("http://{at}"),
    };
    // Concurrent runs with the same seed need different topics.
    let topic = format!("chaos-{:08x}", fastrand::u32(..));
    let stopped = Rc::default();
    let kills = Rc::default();
    let run = ChaosRun {
        chaos,
        clock,
        server,
        ledger,
        topic,
        seed,
        stopped,
        kills,
    };
    let verdict = run.execute_scenario(&endpoint, &before).await;
    let cleanup = run.clean_up().await;
    webhook.stop(false).await;
    let verdict = verdict?;
    cleanup.map_err(|error| ChaosError::CleanUp {
        topic: run.topic.clone(),
        error: Box::new(error),
    })?;
    Ok(verdict)
}

impl ChaosRun {
    fn resource_name(&self) -> ResourceName {
        self.topic.parse().expect("the topic's name is valid")
    }

    /// Runs everything except the clean-up.
    async fn execute_scenario(
        &self,
        endpoint: &str,
        before: &BTreeMap<String, u64>,
    ) -> Result<ChaosVerdict, ChaosError> {
        // The first signal ends the load, the second ends settling. The clean-up runs in any case.
        let mut signals = EndSignals::install()?;
        self.set_up(endpoint)
            .await
            .map_err(request_error("cannot create the topic"))?;
        let load = LoadGenerator::new(
            Rc::clone(&self.server),
            self.chaos.publish_to.clone(),
            &self.topic,
            Arc::clone(&self.ledger),
        );
        let start = self.clock.now();
        self.run_faults(&load, &mut signals).await?;
        let seconds = self.clock.now().since(start).as_secs_f64();
        let is_settled = self.wait_until_settled(&load, &mut signals).await?;
        let report: SupervisionReport = self
            .server
            .get(&format!("/supervision?topic={}&top=1000", self.topic))
            .await
            .map_err(request_error("cannot read the actors' restarts"))?;
        let faults = fault_counts(&self.server).await?;
        let count_since_start =
            |name: &String, count: &u64| count - before.get(name).copied().unwrap_or(0).min(*count);
        let faults: BTreeMap<String, u64> = faults
            .iter()
            .map(|(name, count)| (name.clone(), count_since_start(name, count)))
            .collect();
        let count_of = |name: &str| faults.get(name).copied().unwrap_or(0);
        let killed_events = count_of("deliveriesKilled") * u64::from(self.chaos.batch_events);
        let lost_responses = count_of("responsesDropped.events")
            + count_of("responsesCorrupted.events")
            + count_of("responsesDelayed.events");
        let verdict = ChaosVerdict {
            topic: self.topic.clone(),
            seed: self.seed,
            seconds,
            subscriptions: self.chaos.subscriptions as usize,
            requests: load.published_count(),
            repeated_allowed: killed_events + lost_responses,
            settled: is_settled,
            restarts: report.recovery.into(),
            missed: self.kills.missed.get(),
            injected: faults,
            ..ChaosVerdict::default()
        };
        Ok(verdict.judge_totals(with_ledger(&self.ledger, |ledger| ledger.summarize())))
    }

    async fn set_up(&self, endpoint: &str) -> client::ClientResult<()> {
        self.put_resource(
            &self.resource_name().path(""),
            &json!({"properties": {"inputSchema": "EventGridSchema"}}),
        )
        .await?;
        for number in 0..self.chaos.subscriptions as usize {
            let webhook = json!({
                "endpointUrl": format!("{endpoint}/{number}"),
                "maxEventsPerBatch": self.chaos.batch_events,
                "preferredBatchSizeInKilobytes": 1024,
            });
            let destination = json!({"endpointType": "WebHook", "properties": webhook});
            let path = self.resource_name().subscription_path(&name_of(number), "");
            self.put_resource(&path, &json!({"properties": {"destination": destination}}))
                .await?;
        }
        Ok(())
    }

    async fn put_resource(&self, path: &str, body: &Value) -> client::ClientResult<()> {
        self.server
            .send_request::<Value>(Method::PUT, path, Some(body))
            .await
            .map(drop)
    }

    /// Runs load, kills and faults, until the end of the duration or a signal.
    async fn run_faults(
        &self,
        load: &LoadGenerator,
        signals: &mut EndSignals,
    ) -> Result<(), ChaosError> {
        let ChaosCommand {
            duration,
            rate,
            faults,
            ..
        } = &self.chaos;
        faults
            .start(&self.server, &self.topic, *duration)
            .await
            .map_err(request_error("cannot inject a fault"))?;
        let loading = actix_rt::spawn(load.clone().run(*rate, self.clock.clone()));
        let kills = KillSchedule {
            topic: self.topic.clone(),
            subscriptions: self.chaos.subscriptions as usize,
            actors: self.chaos.kill.clone(),
            methods: self.chaos.kill_by.clone(),
            every: self.chaos.kill_every,
            seed: self.seed,
            clock: self.clock.clone(),
        };
        let killing = kills.run(
            Rc::clone(&self.server),
            Rc::clone(&self.kills),
            Rc::clone(&self.stopped),
        );
        let mut killing = actix_rt::spawn(killing);
        let injecting = faults.clone().run(
            Rc::clone(&self.server),
            self.topic.clone(),
            Rc::clone(&self.stopped),
        );
        let mut injecting = actix_rt::spawn(injecting);
        let outcome = tokio::select! {
            () = self.show_progress(*duration) => Ok(()),
            () = signals.next() => Ok(()),
            error = wait_for_failure(&mut killing) => Err(error),
            error = wait_for_failure(&mut injecting) => Err(error),
        };
        self.stopped.set(true);
        load.stop();
        // The task ends after `stop`.
        loading.await.expect("the load does not panic");
        outcome
    }

    async fn show_progress(&self, duration: Duration) {
        let start = self.clock.now();
        let bar = Progress::with_bar("{bar:30} {msg}", Some(duration.as_millis() as u64));
        loop {
            let elapsed = self.clock.now().since(start);
            if elapsed >= duration {
                return;
            }
            let (acknowledged, arrived) =
                with_ledger(&self.ledger, |ledger| ledger.current_counts());
            let acknowledged = group_thousands(acknowledged);
            let arrived = group_thousands(arrived);
            let killed = group_thousands(self.kills.killed.get());
            bar.set_position(elapsed.as_millis() as u64);
            bar.set_message(&format!(
                "{acknowledged} acknowledged, {arrived} arrived, {killed} killed"
            ));
            actix_rt::time::sleep(POLL_INTERVAL.min(duration - elapsed)).await;
        }
    }

    /// Waits until nothing is pending in the server. Returns false after a timeout or a signal.
    async fn wait_until_settled(
        &self,
        load: &LoadGenerator,
        signals: &mut EndSignals,
    ) -> Result<bool, ChaosError> {
        let end = self.clock.now().after(self.chaos.settle);
        let progress = Progress::spinner();
        let settling = async {
            loop {
                if load.is_quiet()
                    && self.is_settled().await.map_err(request_error(
                        "cannot read the status of the event subscriptions",
                    ))?
                {
                    return Ok(true);
                }
                if self.clock.now() >= end {
                    return Ok(false);
                }
                let missing = count_with_noun(self.count_missing_events(), "event");
                progress.set_message(&format!("waiting for {missing}"));
                actix_rt::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            is_settled = settling => is_settled,
            () = signals.next() => Ok(false),
        }
    }

    /// The number of arrivals that acknowledged events still lack.
    fn count_missing_events(&self) -> u64 {
        let (acknowledged, arrived) = with_ledger(&self.ledger, |ledger| ledger.current_counts());
        let expected = acknowledged * u64::from(self.chaos.subscriptions);
        expected.saturating_sub(arrived)
    }

    /// Whether no subscription has a backlog, pending deliveries or requests in flight: then
    /// nothing more can arrive.
    async fn is_settled(&self) -> client::ClientResult<bool> {
        for number in 0..self.chaos.subscriptions as usize {
            let path = self
                .resource_name()
                .subscription_path(&name_of(number), "/status");
            let status: SubscriptionStatusView = self.server.get(&path).await?;
            if status.in_flight > 0 || status.backlog > 0 || status.counters.pending > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes what the run created. A missing resource counts as deleted.
    async fn clean_up(&self) -> Result<(), CleanUpError> {
        if self.chaos.faults.has_any() {
            self.server.delete("/chaos", &Precondition::None).await?;
        }
        let deletion = async {
            for number in 0..self.chaos.subscriptions as usize {
                self.delete_resource(&self.resource_name().subscription_path(&name_of(number), ""))
                    .await?;
            }
            self.delete_resource(&self.resource_name().path("")).await
        };
        let result: client::ClientResult<()> = tokio::time::timeout(CLEAN_UP_MAX, deletion)
            .await
            .map_err(|_| CleanUpError::Late)?;
        Ok(result?)
    }

    async fn delete_resource(&self, path: &str) -> client::ClientResult<()> {
        match self.server.delete(path, &Precondition::None).await {
            Ok(_) => Ok(()),
            Err(error) if error.has_status(StatusCode::NOT_FOUND) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Why not all of what the run created is deleted.
#[derive(Debug, thiserror::Error)]
pub enum CleanUpError {
    #[error(transparent)]
    Server(#[from] client::ClientError),
    #[error("not done within {CLEAN_UP_MAX:?}")]
    Late,
}

async fn fault_counts(server: &ServerClient) -> Result<BTreeMap<String, u64>, ChaosError> {
    match server.get::<ChaosReport>("/chaos").await {
        Ok(report) => Ok(flatten_counts(&json!(report.injected))),
        Err(error) if error.has_status(StatusCode::NOT_FOUND) => Err(ChaosError::Off),
        Err(error) => Err(request_error("cannot read the injected faults")(error)),
    }
}

/// Resolves only if the task fails.
async fn wait_for_failure(task: &mut JoinHandle<client::ClientResult<()>>) -> ChaosError {
    match task.await.expect("a schedule does not panic") {
        Ok(()) => std::future::pending().await,
        Err(error) => request_error("the fault schedule failed")(error),
    }
}

fn request_error(what: &'static str) -> impl FnOnce(client::ClientError) -> ChaosError {
    move |error| ChaosError::Server {
        what,
        error: Box::new(error),
    }
}
