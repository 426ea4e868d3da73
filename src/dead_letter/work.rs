//! One turn: a file of what is due for one subscription, put where it belongs and told of, and then its dead letters
//! taken away.
//!
//! A task of its own, outside of the actor: a turn survives the actor that began it, and whatever ends it, a panic too,
//! it reports.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    dead_letter::{
        DeadLetters, Options, Shared, Target,
        file::{self, Draft, Form, folder},
        herald::Filed,
        sink,
        staging::{Job, Report},
        totals::{InProgress, Outage, Totals},
    },
    event::{Lane, Obligor, Seq, Timestamp},
    journal::{self, Buried, DeadKey, Waiting},
    policy::{
        place::{FOLDER, check_part},
        record::{Entry, Line, What},
        runs::Runs,
    },
};

/// What keeps a turn from its end.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("making a file failed: {0}")]
    Making(#[from] tokio::task::JoinError),
}

/// Does `job`, and reports how it ended.
pub(super) async fn run(letters: DeadLetters, job: Job) {
    let mut guard = Guard { letters, obligor: job.obligor, report: Report::Broken };
    let Some(job) = guard.letters.aimed(job) else {
        guard.report = Report::Done { next: None };
        return;
    };
    match turn(&guard.letters, &job).await {
        Ok(report) => guard.report = report,
        Err(error) => tracing::error!(subscription = ?job.obligor, %error, "dead letters could not be worked on"),
    }
}

/// Reports when it is dropped, so that a turn that panics has ended like any other.
struct Guard {
    letters: DeadLetters,
    obligor: Obligor,
    report: Report,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.letters.finished(self.obligor, self.report);
    }
}

async fn turn(letters: &DeadLetters, job: &Job) -> Result<Report, Error> {
    let Shared { journal, .. } = &*letters.0;
    let Job { obligor, target, .. } = job;
    let _desk = letters.desk(*obligor).await;
    // Behind whatever an earlier turn asked for and did not hear of: what is read now does not change by itself.
    journal.bury(*obligor, Buried::default()).await?;
    let mut totals = letters.totals(*obligor).await?;
    if totals.in_progress.as_ref().is_some_and(|file| begun(target, file).is_none()) {
        // The destination was changed meanwhile. What may be at the old one stays there, uncounted.
        totals.in_progress = None;
    }
    let place = label(target, &folder(target));
    totals.outage.take_if(|outage| outage.place != place);
    let slice = read(&letters.0, *obligor, totals.in_progress.as_ref()).await?;
    if slice.is_empty() && totals.in_progress.is_none() {
        if totals.outage.take().is_some() {
            // What waited through it was sent again or purged.
            bury(&letters.0, *obligor, &totals, Vec::new(), Vec::new()).await?;
        }
        return done(&letters.0, *obligor).await;
    }
    let (form, options) = (target.clone(), letters.0.options);
    let page = tokio::task::spawn_blocking(move || Page::of(slice, &form, options)).await?;
    if page.count > 0
        && let Err(error) = put(&letters.0, job, &mut totals, &page).await?
    {
        tracing::warn!(subscription = ?obligor, store = target.store, folder = target.folder, %error, "a dead-letter file is not written");
        let now = letters.0.clock.now();
        if totals.outage.is_none() {
            totals.outage = Some(Outage { since: now, place });
            bury(&letters.0, *obligor, &totals, Vec::new(), Vec::new()).await?;
        }
        let gone = error.is_not_found() && target.drop_where_not_found;
        // While the clock may be wrong about ages, the window lasts.
        let outage = totals.outage.as_ref().filter(|_| !letters.0.clock.holds_expiry());
        let over = outage.and_then(|outage| outage.lost_by(target.outage_window, now));
        let lost_by = if gone { Some(Timestamp::NEVER) } else { over };
        return lose(&letters.0, job.obligor, lost_by, totals, &page.keys, &error).await;
    }
    if let (0, Some(begun)) = (page.count, totals.in_progress.as_ref().and_then(|file| begun(target, file))) {
        // All that was to be in it was taken back meanwhile, and it may be there.
        if let Err(error) = letters.0.sink.delete(begun).await {
            tracing::warn!(subscription = ?obligor, file = begun, %error, "a file that was begun can't be taken away");
            return Ok(Report::Unreachable);
        }
    }
    tell(&letters.0, job, &totals, &page).await?;
    totals.outage = None;
    totals.written += page.count;
    totals.lost += page.damaged.len() as u64;
    totals.files += u64::from(page.count > 0);
    totals.bytes += page.text.len() as u64;
    let name = totals.in_progress.take().map(|file| file.name);
    let mut notes = Vec::new();
    if let Some(name) = name.as_deref() {
        let filed = page.keys.iter().filter(|key| !page.damaged.contains(key));
        notes = notes_of(filed, &What::Filed { file: name.into() }, letters.0.clock.now());
    }
    let why = What::Lost { why: "the event is not in the store, or damaged".into() };
    notes.extend(notes_of(page.damaged.iter(), &why, letters.0.clock.now()));
    bury(&letters.0, *obligor, &totals, page.keys, notes).await?;
    if !page.damaged.is_empty() {
        tracing::error!(subscription = ?obligor, events = page.damaged.len(), "dead letters are lost: their events are damaged");
    }
    if page.count > 0 {
        tracing::info!(subscription = ?obligor, events = page.count, file = name.as_deref(), "dead letters are written");
    }
    done(&letters.0, *obligor).await
}

/// What belongs into the file: all that is due, or what was in the file that was begun.
async fn read(shared: &Shared, obligor: Obligor, begun: Option<&InProgress>) -> Result<Vec<Waiting>, Error> {
    let Shared { journal, clock, options, means, .. } = shared;
    // The semaphore is never closed.
    let _permit = means.reading.acquire().await;
    let by = begun.map_or(clock.now(), |file| file.last.due);
    let mut slice = journal.reads().dead(obligor, by, options.events_max, options.bytes_max).await?;
    if let Some(file) = begun {
        slice.retain(|waiting| waiting.key <= file.last);
    }
    Ok(slice)
}

/// Gives the file its name, in the journal, and then puts it there.
async fn put(
    shared: &Shared,
    job: &Job,
    totals: &mut Totals,
    page: &Page,
) -> Result<Result<(), sink::Error>, journal::Error> {
    let target = &*job.target;
    for part in target.folder.split_terminator('/').chain([target.subscription_name.as_str()]) {
        if let Err(refused) = check_part(part) {
            return Ok(Err(sink::Error::Name(refused)));
        }
    }
    let name = match (&totals.in_progress, page.keys.last()) {
        (None, Some(last)) => {
            let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
            let guid = target.owner().guid(seed.to_be_bytes());
            let name = file::path(&folder(target), shared.clock.now(), guid);
            totals.in_progress = Some(InProgress { name: label(target, &name), last: *last });
            bury(shared, job.obligor, totals, Vec::new(), Vec::new()).await?;
            name
        }
        (Some(file), _) => begun(target, file).unwrap_or_default().to_owned(),
        (None, None) => return Ok(Ok(())),
    };
    Ok(shared.sink.put(&name, page.text.clone()).await)
}

/// Tells of the file that was just put.
async fn tell(shared: &Shared, job: &Job, totals: &Totals, page: &Page) -> Result<(), journal::Error> {
    let name = totals.in_progress.as_ref().and_then(|file| begun(&job.target, file));
    let (Some(herald), Some(name)) = (&shared.means.herald, name) else { return Ok(()) };
    if page.count == 0 {
        return Ok(());
    }
    let (obligor, blob) = (job.obligor, shared.sink.blob(name));
    herald(Filed { obligor, blob, bytes: page.text.len(), at: shared.clock.now() }).await
}

/// The destination does not take the file: what was due by `lost_by` is lost, the rest waits on.
async fn lose(
    shared: &Shared,
    obligor: Obligor,
    lost_by: Option<Timestamp>,
    mut totals: Totals,
    keys: &[DeadKey],
    error: &sink::Error,
) -> Result<Report, Error> {
    let Some(by) = lost_by else { return Ok(Report::Unreachable) };
    let lost: Vec<DeadKey> = keys.iter().copied().filter(|key| key.due <= by).collect();
    if lost.is_empty() {
        return Ok(Report::Unreachable);
    }
    let events = lost.len();
    totals.lost += events as u64;
    if events == keys.len() {
        totals.in_progress = None;
    }
    let notes = notes_of(lost.iter(), &What::Lost { why: error.to_string().into() }, shared.clock.now());
    bury(shared, obligor, &totals, lost, notes).await?;
    tracing::error!(subscription = ?obligor, events, "dead letters are lost: their destination does not take them");
    Ok(Report::Lost)
}

async fn bury(
    shared: &Shared,
    obligor: Obligor,
    totals: &Totals,
    done: Vec<DeadKey>,
    notes: Vec<Line>,
) -> Result<(), journal::Error> {
    let totals = Some((Totals::name(obligor), totals.encode().into()));
    shared.journal.bury(obligor, Buried { totals, done, notes }).await
}

/// What became of these dead letters: a line of the ledger for each of their lanes.
pub(super) fn notes_of<'a>(keys: impl Iterator<Item = &'a DeadKey>, what: &What, now: Timestamp) -> Vec<Line> {
    let mut lanes: BTreeMap<Lane, BTreeSet<Seq>> = BTreeMap::new();
    for key in keys {
        lanes.entry(key.lane).or_default().insert(key.seq);
    }
    let note = |(lane, seqs): (Lane, BTreeSet<Seq>)| {
        let covers = seqs.into_iter().collect::<Runs>().into_covers();
        Line { lane, attempt: 0, entry: Entry { at: now, covers, what: what.clone() } }
    };
    lanes.into_iter().map(note).collect()
}

async fn done(shared: &Shared, obligor: Obligor) -> Result<Report, Error> {
    let next = shared.journal.reads().dead(obligor, Timestamp::NEVER, 1, 1).await?;
    Ok(Report::Done { next: next.first().map(|waiting| waiting.key.due) })
}

/// A file's name as the journal has it: with the store before it, unless that is the folder beside the data.
fn label(target: &Target, path: &str) -> String {
    if target.store == FOLDER { path.to_owned() } else { format!("{}:{path}", target.store) }
}

/// The path of a file that was begun for `target`. [`None`]: it was begun for another one.
fn begun<'a>(target: &Target, file: &'a InProgress) -> Option<&'a str> {
    let name = file.name.as_str();
    let path = if target.store == FOLDER { name } else { name.strip_prefix(&target.store)?.strip_prefix(':')? };
    path.strip_prefix(&folder(target))?.starts_with('/').then_some(path)
}

/// A file, made.
struct Page {
    text: Bytes,
    /// Events in it.
    count: u64,
    /// The dead letters among these that could not be put in.
    damaged: Vec<DeadKey>,
    /// The dead letters that are dealt with, once the file is written.
    keys: Vec<DeadKey>,
}

impl Page {
    /// Blocks: it reads and writes megabytes of JSON.
    fn of(slice: Vec<Waiting>, target: &Target, options: Options) -> Self {
        let Target { form, delivery_schema, topic, properties, .. } = target;
        let form = Form { file: *form, delivery: *delivery_schema, topic, properties };
        let mut draft = Draft::new(options.bytes_max);
        let (mut keys, mut damaged) = (Vec::with_capacity(slice.len()), Vec::new());
        for Waiting { key, dead, event } in slice {
            match event.map(|event| draft.add(form, &event, key.lane, &dead)) {
                Some(Ok(true)) => {}
                // The rest makes the next file.
                Some(Ok(false)) => break,
                Some(Err(error)) => {
                    tracing::error!(seq = key.seq.0, %error, "a dead letter can't be read");
                    damaged.push(key);
                }
                None => {
                    tracing::error!(seq = key.seq.0, "the event of a dead letter is not in the store");
                    damaged.push(key);
                }
            }
            keys.push(key);
        }
        let count = draft.count() as u64;
        let text = if count > 0 { draft.finish().into() } else { Bytes::new() };
        Self { text, count, damaged, keys }
    }
}
