//! A turn: builds one file of a subscription's due dead letters, stores and announces it, and then
//! removes the dead letters from the journal.
//!
//! It runs in a task of its own: a turn survives its actor. It always reports, also after a panic.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    DeadLetterTarget, DeadLetters, DeadLettersShared, WriterOptions,
    file::{self, FileBuilder, FileContext, target_folder},
    marker::FileMarker,
    notifier::FileWritten,
    owner::is_of_epoch,
    sink,
    staging::{TurnReport, WriteTurn},
    totals::{DeadLetterTotals, FileInProgress, Outage},
};
use gridhook_event::{Event, Lane, Seq, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::{DeadLetterKey, DeadLetterWrite, WaitingDeadLetter};
use gridhook_policy::{
    dead_letter_store::{FOLDER, check_part},
    record::{LedgerEntry, LedgerEvent, LedgerLine, SeqSet},
};

/// An error that ends a turn.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("building a file failed: {0}")]
    Making(#[from] tokio::task::JoinError),
}

/// Runs `job` and reports its result.
pub(super) async fn run(dead_letters: DeadLetters, job: WriteTurn) {
    let mut guard = TurnGuard {
        dead_letters,
        subscription_key: job.subscription_key,
        report: TurnReport::Broken,
    };
    let Some(job) = guard.dead_letters.with_current_target(job) else {
        guard.report = TurnReport::Done { next: None };
        return;
    };
    match run_turn(&guard.dead_letters, &job).await {
        Ok(report) => guard.report = report,
        Err(error) => {
            tracing::error!(subscription = ?job.subscription_key, %error, "cannot write dead \
                letters")
        }
    }
}

/// Reports when it is dropped, so also after a panic.
struct TurnGuard {
    dead_letters: DeadLetters,
    subscription_key: SubscriptionKey,
    report: TurnReport,
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.dead_letters
            .finish_turn(self.subscription_key, self.report);
    }
}

async fn run_turn(dead_letters: &DeadLetters, job: &WriteTurn) -> Result<TurnReport, WriteError> {
    let DeadLettersShared { journal, .. } = &*dead_letters.0;
    let WriteTurn {
        subscription_key,
        target,
        ..
    } = job;
    let _lock = dead_letters.lock_subscription(*subscription_key).await;
    // Waits for earlier writes, also those whose replies were lost, so that what is read now does
    // not change.
    journal
        .write_dead_letters(*subscription_key, DeadLetterWrite::default())
        .await?;
    let mut totals = dead_letters.read_totals(*subscription_key).await?;
    if totals
        .in_progress
        .as_ref()
        .is_some_and(|file| started_path(target, file).is_none())
    {
        // The destination was changed meanwhile. A file at the old one may stay there, uncounted.
        totals.in_progress = None;
    }
    if let Some(file) = totals.in_progress.take_if(|file| {
        let epoch = dead_letters.0.sink.epoch();
        epoch.is_some_and(|epoch| !is_of_epoch(file.path(), epoch))
    }) && let Err(error) = abandon_file(&dead_letters.0, file.path()).await
    {
        tracing::warn!(subscription = ?subscription_key, file = file.path(), %error, "cannot \
            abandon the dead-letter file of a former owner");
        return Ok(TurnReport::Unreachable);
    }
    let destination = file_label(target, &target_folder(target));
    totals
        .outage
        .take_if(|outage| outage.destination != destination);
    let slice = read(&dead_letters.0, job, totals.in_progress.as_ref()).await?;
    if slice.is_empty() && totals.in_progress.is_none() {
        if totals.outage.take().is_some() {
            // What waited was redriven or purged.
            write_result(
                &dead_letters.0,
                *subscription_key,
                &totals,
                Vec::new(),
                Vec::new(),
            )
            .await?;
        }
        return finish_subscription(&dead_letters.0, job).await;
    }
    let page_target = target.clone();
    let options = dead_letters.0.options;
    let page =
        tokio::task::spawn_blocking(move || WrittenPage::from_slice(slice, &page_target, options))
            .await?;
    if page.count > 0
        && let Err(error) = put_page(&dead_letters.0, job, &mut totals, &page).await?
    {
        tracing::warn!(
            subscription = ?subscription_key,
            store = target.store,
            folder = target.folder,
            %error,
            "cannot store dead-letter file"
        );
        let now = dead_letters.0.clock.now();
        // An outage that begins later than now was noted before the clock was set back.
        if totals
            .outage
            .as_ref()
            .is_none_or(|outage| outage.since > now)
        {
            totals.outage = Some(Outage {
                since: now,
                destination,
            });
            write_result(
                &dead_letters.0,
                *subscription_key,
                &totals,
                Vec::new(),
                Vec::new(),
            )
            .await?;
        }
        let is_gone = error.is_not_found() && target.drop_where_not_found;
        // While the clock may be wrong about ages, the outage window does not end.
        let outage = totals
            .outage
            .as_ref()
            .filter(|_| !dead_letters.0.clock.expiry_is_paused());
        let over = outage.and_then(|outage| outage.lost_by(target.outage_window, now));
        let lost_by = if is_gone {
            Some(Timestamp::NEVER)
        } else {
            over
        };
        return record_lost(
            &dead_letters.0,
            job.subscription_key,
            lost_by,
            totals,
            &page.keys,
            &error,
        )
        .await;
    }
    if let (0, Some(begun)) = (
        page.count,
        totals
            .in_progress
            .as_ref()
            .and_then(|file| started_path(target, file)),
    ) {
        // All of its dead letters were redriven or purged, and the file may be stored.
        if let Err(error) = dead_letters.0.sink.delete_file(begun).await {
            tracing::warn!(subscription = ?subscription_key, file = begun, %error, "cannot delete \
                unfinished dead-letter file");
            return Ok(TurnReport::Unreachable);
        }
    }
    announce_file(&dead_letters.0, job, &totals, &page).await?;
    totals.outage = None;
    totals.written += page.count;
    totals.lost += page.damaged.len() as u64;
    totals.files += u64::from(page.count > 0);
    totals.bytes += page.text.len() as u64;
    let name = totals.in_progress.take().map(|file| file.name);
    let mut notes = Vec::new();
    if let Some(name) = name.as_deref() {
        let keys_in_file = page.keys.iter().filter(|key| !page.damaged.contains(key));
        notes = notes_of(
            keys_in_file,
            &LedgerEvent::Filed { file: name.into() },
            dead_letters.0.clock.now(),
        );
    }
    let why = LedgerEvent::Lost {
        why: "the event is not in the store, or damaged".into(),
    };
    notes.extend(notes_of(
        page.damaged.iter(),
        &why,
        dead_letters.0.clock.now(),
    ));
    write_result(
        &dead_letters.0,
        *subscription_key,
        &totals,
        page.keys,
        notes,
    )
    .await?;
    if !page.damaged.is_empty() {
        tracing::error!(subscription = ?subscription_key, events = page.damaged.len(), "dead \
            letters lost: events damaged");
    }
    if page.count > 0 {
        tracing::info!(
            subscription = ?subscription_key,
            events = page.count,
            file = name.as_deref(),
            "dead letters written"
        );
    }
    finish_subscription(&dead_letters.0, job).await
}

/// The dead letters of the file: all that are due, or those of the file in progress. What is due
/// later than a new dead letter was given up before the clock was set back, and is due now.
async fn read(
    shared: &DeadLettersShared,
    job: &WriteTurn,
    begun: Option<&FileInProgress>,
) -> Result<Vec<WaitingDeadLetter>, WriteError> {
    let DeadLettersShared {
        journal,
        clock,
        options,
        context,
        ..
    } = shared;
    // The semaphore is never closed.
    let _permit = context.reading.acquire().await;
    let now = clock.now();
    let by = begun.map_or(now, |file| file.last.due);
    let mut slice = journal
        .reader_pool()
        .read_dead_letters(
            job.subscription_key,
            by,
            options.events_max,
            options.bytes_max,
        )
        .await?;
    if let Some(file) = begun {
        slice.retain(|waiting| waiting.key <= file.last);
        return Ok(slice);
    }
    let events = slice.iter().filter_map(|waiting| waiting.event.as_ref());
    let bytes: usize = events.map(Event::wire_len).sum();
    if slice.len() < options.events_max && bytes < options.bytes_max {
        let latest = DeadLetterKey {
            due: now.after(job.target.delay),
            seq: Seq(u64::MAX),
            lane: Lane(u16::MAX),
        };
        let events_max = options.events_max - slice.len();
        let bytes_max = options.bytes_max - bytes;
        let later = journal.reader_pool().dead_after(
            job.subscription_key,
            Some(latest),
            events_max,
            bytes_max,
        );
        slice.extend(later.await?);
    }
    Ok(slice)
}

/// Gives up the file that a former owner began: it may store the file yet, if it was paused while
/// it did. Its dead letters are all still in the journal. The marker makes readers ignore the file.
async fn abandon_file(shared: &DeadLettersShared, file: &str) -> Result<(), sink::SinkError> {
    let dead_letters_max = u32::try_from(shared.options.events_max).unwrap_or(u32::MAX);
    let marker = FileMarker::for_abandoned_file(dead_letters_max);
    let text = serde_json::to_vec(&marker).expect("numbers are JSON");
    shared
        .sink
        .put_file(&FileMarker::name(file), text.into())
        .await?;
    shared.sink.delete_file(file).await
}

/// Writes the name of the file to the journal, then stores the file.
async fn put_page(
    shared: &DeadLettersShared,
    job: &WriteTurn,
    totals: &mut DeadLetterTotals,
    page: &WrittenPage,
) -> Result<Result<(), sink::SinkError>, journal::Error> {
    let target = &*job.target;
    for part in target
        .folder
        .split_terminator('/')
        .chain([target.subscription_name.as_str()])
    {
        if let Err(refused) = check_part(part) {
            return Ok(Err(sink::SinkError::Name(refused.to_string())));
        }
    }
    let name = match (&totals.in_progress, page.keys.last()) {
        (None, Some(last)) => {
            let guid = target.owner().new_file_guid(shared.sink.epoch());
            let name = file::file_path(&target_folder(target), shared.clock.now(), guid);
            totals.in_progress = Some(FileInProgress {
                name: file_label(target, &name),
                last: *last,
            });
            write_result(shared, job.subscription_key, totals, Vec::new(), Vec::new()).await?;
            name
        }
        (Some(file), _) => started_path(target, file).unwrap_or_default().to_owned(),
        (None, None) => return Ok(Ok(())),
    };
    Ok(shared.sink.put_file(&name, page.text.clone()).await)
}

async fn announce_file(
    shared: &DeadLettersShared,
    job: &WriteTurn,
    totals: &DeadLetterTotals,
    page: &WrittenPage,
) -> Result<(), journal::Error> {
    let name = totals
        .in_progress
        .as_ref()
        .and_then(|file| started_path(&job.target, file));
    let (Some(notifier), Some(name)) = (&shared.context.notifier, name) else {
        return Ok(());
    };
    if page.count == 0 {
        return Ok(());
    }
    let subscription_key = job.subscription_key;
    let blob = shared.sink.blob_location(name);
    notifier(FileWritten {
        subscription_key,
        blob,
        bytes: page.text.len(),
        at: shared.clock.now(),
    })
    .await
}

/// The destination rejected the file: what was due by `lost_by` is lost, the rest keeps waiting.
async fn record_lost(
    shared: &DeadLettersShared,
    subscription_key: SubscriptionKey,
    lost_by: Option<Timestamp>,
    mut totals: DeadLetterTotals,
    keys: &[DeadLetterKey],
    error: &sink::SinkError,
) -> Result<TurnReport, WriteError> {
    let Some(by) = lost_by else {
        return Ok(TurnReport::Unreachable);
    };
    let lost: Vec<DeadLetterKey> = keys.iter().copied().filter(|key| key.due <= by).collect();
    if lost.is_empty() {
        return Ok(TurnReport::Unreachable);
    }
    let events = lost.len();
    totals.lost += events as u64;
    if events == keys.len() {
        totals.in_progress = None;
    }
    let notes = notes_of(
        lost.iter(),
        &LedgerEvent::Lost {
            why: error.to_string().into(),
        },
        shared.clock.now(),
    );
    write_result(shared, subscription_key, &totals, lost, notes).await?;
    tracing::error!(subscription = ?subscription_key, events, "dead letters lost: destination \
        unavailable");
    Ok(TurnReport::Lost)
}

async fn write_result(
    shared: &DeadLettersShared,
    subscription_key: SubscriptionKey,
    totals: &DeadLetterTotals,
    done: Vec<DeadLetterKey>,
    notes: Vec<LedgerLine>,
) -> Result<(), journal::Error> {
    let totals = Some((
        DeadLetterTotals::name(subscription_key),
        totals.encode().into(),
    ));
    shared
        .journal
        .write_dead_letters(
            subscription_key,
            DeadLetterWrite {
                totals,
                done,
                notes,
            },
        )
        .await
}

/// Ledger lines for these dead letters, one for each lane.
pub(super) fn notes_of<'a>(
    keys: impl Iterator<Item = &'a DeadLetterKey>,
    what: &LedgerEvent,
    now: Timestamp,
) -> Vec<LedgerLine> {
    let mut lanes: BTreeMap<Lane, BTreeSet<Seq>> = BTreeMap::new();
    for key in keys {
        lanes.entry(key.lane).or_default().insert(key.seq);
    }
    let mut lines = Vec::with_capacity(lanes.len());
    for (lane, seqs) in lanes {
        let entry = LedgerEntry {
            at: now,
            runs: seqs.into_iter().collect::<SeqSet>().into_runs(),
            what: what.clone(),
        };
        lines.push(LedgerLine {
            lane,
            attempt: 0,
            entry,
        });
    }
    lines
}

async fn finish_subscription(
    shared: &DeadLettersShared,
    job: &WriteTurn,
) -> Result<TurnReport, WriteError> {
    let next = shared
        .journal
        .reader_pool()
        .read_dead_letters(job.subscription_key, Timestamp::NEVER, 1, 1)
        .await?;
    let now = shared.clock.now();
    Ok(TurnReport::Done {
        next: next
            .first()
            .map(|waiting| job.target.turn_at(waiting.key.due, now)),
    })
}

/// A file's name in the journal: the store and the path, or only the path for the folder beside the
/// data.
fn file_label(target: &DeadLetterTarget, path: &str) -> String {
    if target.store == FOLDER {
        path.to_owned()
    } else {
        format!("{}:{path}", target.store)
    }
}

/// The path of a file in progress, if it is for `target`.
fn started_path<'a>(target: &DeadLetterTarget, file: &'a FileInProgress) -> Option<&'a str> {
    let name = file.name.as_str();
    let path = if target.store == FOLDER {
        name
    } else {
        name.strip_prefix(&target.store)?.strip_prefix(':')?
    };
    path.strip_prefix(&target_folder(target))?
        .starts_with('/')
        .then_some(path)
}

struct WrittenPage {
    text: Bytes,
    /// Number of events in the text.
    count: u64,
    /// Dead letters that could not be added.
    damaged: Vec<DeadLetterKey>,
    /// Dead letters that are handled once the file is stored.
    keys: Vec<DeadLetterKey>,
}

impl WrittenPage {
    /// Makes the text of a file. Blocks: it parses and writes megabytes of JSON.
    fn from_slice(
        slice: Vec<WaitingDeadLetter>,
        target: &DeadLetterTarget,
        options: WriterOptions,
    ) -> Self {
        let DeadLetterTarget {
            layout,
            delivery_schema,
            topic,
            properties,
            ..
        } = target;
        let context = FileContext {
            layout: *layout,
            delivery: *delivery_schema,
            topic,
            properties,
        };
        let mut file = FileBuilder::new(options.bytes_max);
        let mut keys = Vec::with_capacity(slice.len());
        let mut damages = Vec::new();
        for WaitingDeadLetter { key, dead, event } in slice {
            match event.map(|event| file.add(context, &event, key.lane, &dead)) {
                Some(Ok(true)) => {}
                // The rest goes into the next file.
                Some(Ok(false)) => break,
                Some(Err(error)) => {
                    tracing::error!(seq = key.seq.0, %error, "cannot read dead letter");
                    damages.push(key);
                }
                None => {
                    tracing::error!(seq = key.seq.0, "event of dead letter is missing");
                    damages.push(key);
                }
            }
            keys.push(key);
        }
        let count = file.event_count() as u64;
        let text = if count > 0 {
            file.finish().into()
        } else {
            Bytes::new()
        };
        Self {
            text,
            count,
            damaged: damages,
            keys,
        }
    }
}
