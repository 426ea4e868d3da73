//! A run from its beginning to its end: what is made, done, waited for, asked, and taken away.

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use awc::http::{Method, StatusCode};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};

use super::{
    Chaos, Error,
    kills::{Count, Kills},
    ledger::{Ledger, counts},
    load::Load,
    name_of,
    verdict::{Recovery, Verdict},
    webhook::{self, Account, with},
};
use crate::{
    cli::control::{self, Resource, Session},
    clock::Clock,
    simulate::number as counted,
};

/// How often it is looked how far everything is.
const LOOK: Duration = Duration::from_millis(50);

/// How long a clean-up may take: what cannot be deleted then is named.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// What a run works with.
struct Run {
    chaos: Chaos,
    clock: Clock,
    session: Rc<Session>,
    account: Account,
    topic: String,
    seed: u64,
    stopped: Rc<Cell<bool>>,
    kills: Rc<Count>,
}

pub(super) async fn run(chaos: Chaos, clock: Clock) -> Result<Verdict, Error> {
    let session = Rc::new(chaos.control.session().map_err(asked("the server cannot be asked"))?);
    let before = acts(&session).await?;
    let seed = chaos.seed.unwrap_or_else(|| fastrand::u64(..));
    let account = Arc::new(Mutex::new(Ledger::new(seed, chaos.subscriptions as usize)));
    let (at, webhook) =
        webhook::listen(chaos.listen, &account).map_err(|error| Error::Webhook { address: chaos.listen, error })?;
    let endpoint = match &chaos.endpoint {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => format!("http://{at}"),
    };
    // Two runs with the same seed at the same time are two topics.
    let topic = format!("chaos-{:08x}", fastrand::u32(..));
    let (stopped, kills) = (Rc::default(), Rc::default());
    let run = Run { chaos, clock, session, account, topic, seed, stopped, kills };
    let verdict = run.through(&endpoint, &before).await;
    let cleaned = run.clean_up().await;
    webhook.stop(false).await;
    let verdict = verdict?;
    cleaned.map_err(|why| Error::CleanUp { topic: run.topic.clone(), why })?;
    Ok(verdict)
}

impl Run {
    fn resource(&self) -> Resource {
        self.topic.parse().expect("the name of a topic is one")
    }

    /// Everything but the clean-up, which follows however this ends.
    async fn through(&self, endpoint: &str, before: &BTreeMap<String, u64>) -> Result<Verdict, Error> {
        let mut signals = Signals::hear()?;
        self.set_up(endpoint).await.map_err(asked("the topic cannot be made"))?;
        let load = {
            let at = self.chaos.publish_to.clone();
            Load::new(Rc::clone(&self.session), at, &self.topic, Arc::clone(&self.account))
        };
        let started = self.clock.now();
        self.wreak(&load, &mut signals).await?;
        let seconds = self.clock.now().since(started).as_secs_f64();
        let settled = self.settle(&load, &mut signals).await?;
        let report: Value = self
            .session
            .get(&format!("/supervision?topic={}&top=1000", self.topic))
            .await
            .map_err(asked("the lives of the actors are not told"))?;
        let acts = acts(&self.session).await?;
        let done = |name: &String, count: &u64| count - before.get(name).copied().unwrap_or(0).min(*count);
        let acts: BTreeMap<String, u64> = acts.iter().map(|(name, count)| (name.clone(), done(name, count))).collect();
        let of = |name: &str| acts.get(name).copied().unwrap_or(0);
        let cut_off = of("deliveriesKilled") * u64::from(self.chaos.batch_events);
        let lost_answers =
            of("responsesDropped.events") + of("responsesCorrupted.events") + of("responsesDelayed.events");
        let verdict = Verdict {
            topic: self.topic.clone(),
            seed: self.seed,
            seconds,
            subscriptions: self.chaos.subscriptions as usize,
            requests: load.published(),
            repeated_allowed: cut_off + lost_answers,
            settled,
            restarts: serde_json::from_value::<Recovery>(report["recovery"].clone())
                .map_err(|error| asked("the lives of the actors")(error.into()))?,
            missed: self.kills.missed.get(),
            acts,
            ..Verdict::default()
        };
        Ok(verdict.judge(with(&self.account, |ledger| ledger.sum())))
    }

    async fn set_up(&self, endpoint: &str) -> Result<(), control::Error> {
        let put =
            async |path: &str, body: &Value| self.session.ask::<Value>(Method::PUT, path, Some(body)).await.map(drop);
        put(&self.resource().path(""), &json!({"properties": {"inputSchema": "EventGridSchema"}})).await?;
        for number in 0..self.chaos.subscriptions as usize {
            let webhook = json!({
                "endpointUrl": format!("{endpoint}/{number}"),
                "maxEventsPerBatch": self.chaos.batch_events,
                "preferredBatchSizeInKilobytes": 1024,
            });
            let destination = json!({"endpointType": "WebHook", "properties": webhook});
            let path = self.resource().subscription(&name_of(number), "");
            put(&path, &json!({"properties": {"destination": destination}})).await?;
        }
        Ok(())
    }

    /// Load, kills and faults, until the time is over or a signal comes.
    async fn wreak(&self, load: &Load, signals: &mut Signals) -> Result<(), Error> {
        let Chaos { duration, rate, faults, .. } = &self.chaos;
        faults.begin(&self.session, &self.topic, *duration).await.map_err(asked("a fault was refused"))?;
        let loading = actix_rt::spawn(load.clone().run(*rate, self.clock.clone()));
        let kills = Kills {
            topic: self.topic.clone(),
            subscriptions: self.chaos.subscriptions as usize,
            kinds: self.chaos.kill.clone(),
            means: self.chaos.by.clone(),
            every: self.chaos.kill_every,
            seed: self.seed,
            clock: self.clock.clone(),
        };
        let killing = kills.run(Rc::clone(&self.session), Rc::clone(&self.kills), Rc::clone(&self.stopped));
        let mut killing = actix_rt::spawn(killing);
        let turns = faults.clone().run(Rc::clone(&self.session), self.topic.clone(), Rc::clone(&self.stopped));
        let mut turns = actix_rt::spawn(turns);
        let ended = tokio::select! {
            () = self.watch(*duration) => Ok(()),
            () = signals.next() => Ok(()),
            failed = failure(&mut killing) => Err(failed),
            failed = failure(&mut turns) => Err(failed),
        };
        self.stopped.set(true);
        load.stop();
        // It ends when it is told to; a panic in it is one of ours.
        loading.await.expect("the load does not panic");
        ended
    }

    /// Shows how it goes.
    async fn watch(&self, duration: Duration) {
        let started = self.clock.now();
        let bar = bar(duration, "{bar:30} {msg}");
        loop {
            let passed = self.clock.now().since(started);
            if passed >= duration {
                return bar.finish_and_clear();
            }
            let (acknowledged, arrived) = with(&self.account, |ledger| ledger.so_far());
            let words = [acknowledged, arrived, self.kills.killed.get()].map(counted);
            bar.set_position(passed.as_millis() as u64);
            bar.set_message(format!("{} acknowledged, {} arrived, {} killed", words[0], words[1], words[2]));
            actix_rt::time::sleep(LOOK.min(duration - passed)).await;
        }
    }

    /// Waits until the server has nothing left to do; false where it still has when the time is over, or a signal came.
    async fn settle(&self, load: &Load, signals: &mut Signals) -> Result<bool, Error> {
        let end = self.clock.now().after(self.chaos.settle);
        let bar = bar(self.chaos.settle, "{spinner} {msg}");
        let settled = async {
            loop {
                if load.is_quiet() && self.is_settled().await.map_err(asked("how far it is"))? {
                    return Ok(true);
                }
                if self.clock.now() >= end {
                    return Ok(false);
                }
                let Missing { events } = self.missing();
                bar.set_message(format!("{} have yet to arrive", counted(events)));
                bar.tick();
                actix_rt::time::sleep(LOOK).await;
            }
        };
        let settled = tokio::select! {
            settled = settled => settled,
            () = signals.next() => Ok(false),
        };
        bar.finish_and_clear();
        settled
    }

    fn missing(&self) -> Missing {
        let (acknowledged, arrived) = with(&self.account, |ledger| ledger.so_far());
        Missing { events: (acknowledged * u64::from(self.chaos.subscriptions)).saturating_sub(arrived) }
    }

    /// Whether every subscription has passed what was published, and owes nothing: then nothing more can arrive.
    async fn is_settled(&self) -> Result<bool, control::Error> {
        for number in 0..self.chaos.subscriptions as usize {
            let path = self.resource().subscription(&name_of(number), "/status");
            let status: Value = self.session.get(&path).await?;
            let is_zero = |value: &Value| value == 0;
            if !(is_zero(&status["inFlight"]) && is_zero(&status["backlog"]) && is_zero(&status["counters"]["pending"]))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes away what was made. What is not there is taken away already.
    async fn clean_up(&self) -> Result<(), String> {
        if self.chaos.faults.any() {
            self.session
                .ask::<Value>(Method::DELETE, "/chaos", None::<&Value>)
                .await
                .map_err(|error| error.to_string())?;
        }
        let all = async {
            for number in 0..self.chaos.subscriptions as usize {
                self.delete(&self.resource().subscription(&name_of(number), "")).await?;
            }
            self.delete(&self.resource().path("")).await
        };
        match tokio::time::timeout(CLEAN_UP, all).await {
            Ok(done) => done.map_err(|error: control::Error| error.to_string()),
            Err(_) => Err(format!("the server did not do it within {CLEAN_UP:?}")),
        }
    }

    async fn delete(&self, path: &str) -> Result<(), control::Error> {
        match self.session.ask::<Value>(Method::DELETE, path, None::<&Value>).await {
            Ok(_) => Ok(()),
            Err(control::Error::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What has not arrived.
struct Missing {
    events: u64,
}

/// What the server has done on purpose so far.
async fn acts(session: &Session) -> Result<BTreeMap<String, u64>, Error> {
    match session.get::<Value>("/chaos").await {
        Ok(report) => Ok(counts(&report["acts"])),
        Err(control::Error::Refused { status: StatusCode::NOT_FOUND, .. }) => Err(Error::Off),
        Err(error) => Err(asked("what is broken on purpose is not told")(error)),
    }
}

/// Ends only where the task failed.
async fn failure(task: &mut JoinHandle<Result<(), control::Error>>) -> Error {
    match task.await.expect("a schedule does not panic") {
        Ok(()) => std::future::pending().await,
        Err(error) => asked("the schedule broke off")(error),
    }
}

fn asked(what: &'static str) -> impl FnOnce(control::Error) -> Error {
    move |error| Error::Server { what, error: Box::new(error) }
}

/// A bar on standard error, where that is a terminal.
fn bar(length: Duration, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
    bar
}

/// Ctrl-C and its like: the first ends the schedule, the next the waiting. What was made is taken away all the same.
struct Signals([Signal; 2]);

impl Signals {
    fn hear() -> Result<Self, Error> {
        let hear = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self([hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?]))
    }

    fn next(&mut self) -> impl Future<Output = ()> {
        let [interrupt, terminate] = &mut self.0;
        async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
    }
}
