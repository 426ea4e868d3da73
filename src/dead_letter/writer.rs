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

/// Runs `turn` and reports its result.
pub(super) async fn run(dead_letters: DeadLetters, turn: WriteTurn) {
    let mut guard = TurnGuard {
        dead_letters,
        subscription_key: turn.subscription_key,
        report: TurnReport::Broken,
    };
    let Some(turn) = guard.dead_letters.with_current_target(turn) else {
        guard.report = TurnReport::Done { next: None };
        return;
    };
    match run_turn(&guard.dead_letters, &turn).await {
        Ok(report) => guard.report = report,
        Err(error) => {
            tracing::error!(subscription = ?turn.subscription_key, %error, "cannot write dead \
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

async fn run_turn(dead_letters: &DeadLetters, turn: &WriteTurn) -> Result<TurnReport, WriteError> {
    let shared = &*dead_letters.0;
    let WriteTurn {
        subscription_key,
        target,
        ..
    } = turn;
    let _lock = dead_letters.lock_subscription(*subscription_key).await;
    // Waits for earlier writes, also those whose replies were lost, so that what is read now does
    // not change.
    shared
        .journal
        .write_dead_letters(*subscription_key, DeadLetterWrite::default())
        .await?;
    let mut totals = dead_letters.read_totals(*subscription_key).await?;
    if !settle_earlier_file(shared, turn, &mut totals).await {
        return Ok(TurnReport::Unreachable);
    }
    let destination = file_label(target, &target_folder(target));
    totals
        .outage
        .take_if(|outage| outage.destination != destination);
    let slice = read_slice(shared, turn, totals.in_progress.as_ref()).await?;
    if slice.is_empty() && totals.in_progress.is_none() {
        if totals.outage.take().is_some() {
            // What waited was redriven or purged.
            write_totals(shared, *subscription_key, &totals).await?;
        }
        return finish_subscription(shared, turn).await;
    }
    let page_target = target.clone();
    let options = shared.options;
    let page =
        tokio::task::spawn_blocking(move || WrittenPage::from_slice(slice, &page_target, options))
            .await?;
    if page.count == 0 {
        if !delete_unfinished_file(shared, turn, &totals).await {
            return Ok(TurnReport::Unreachable);
        }
    } else if let Err(error) = put_page(shared, turn, &mut totals, &page).await? {
        return report_failed_file(shared, turn, totals, destination, &page.keys, &error).await;
    }
    announce_file(shared, turn, &totals, &page).await?;
    record_written(shared, *subscription_key, totals, page).await?;
    finish_subscription(shared, turn).await
}

/// Decides about a file that an earlier turn began at another destination or as another owner.
/// Returns whether the turn may go on.
async fn settle_earlier_file(
    shared: &DeadLettersShared,
    turn: &WriteTurn,
    totals: &mut DeadLetterTotals,
) -> bool {
    // The destination was changed meanwhile. A file at the old one may stay there, uncounted.
    totals
        .in_progress
        .take_if(|file| started_path(&turn.target, file).is_none());
    let epoch = shared.sink.epoch();
    let former_file = totals
        .in_progress
        .take_if(|file| epoch.is_some_and(|epoch| !is_of_epoch(file.path(), epoch)));
    let Some(file) = former_file else {
        return true;
    };
    let result = abandon_file(shared, file.path()).await;
    if let Err(error) = &result {
        tracing::warn!(subscription = ?turn.subscription_key, file = file.path(), %error, "cannot \
            abandon the dead-letter file of a former owner");
    }
    result.is_ok()
}

/// Deletes a file all of whose dead letters were redriven or purged: it may be stored. Returns
/// whether the turn may go on.
async fn delete_unfinished_file(
    shared: &DeadLettersShared,
    turn: &WriteTurn,
    totals: &DeadLetterTotals,
) -> bool {
    let path = totals
        .in_progress
        .as_ref()
        .and_then(|file| started_path(&turn.target, file));
    let Some(path) = path else {
        return true;
    };
    let result = shared.sink.delete_file(path).await;
    if let Err(error) = &result {
        tracing::warn!(subscription = ?turn.subscription_key, file = path, %error, "cannot delete \
            unfinished dead-letter file");
    }
    result.is_ok()
}

/// The destination rejected the file: notes the outage, and what is lost because of it.
async fn report_failed_file(
    shared: &DeadLettersShared,
    turn: &WriteTurn,
    mut totals: DeadLetterTotals,
    destination: String,
    keys: &[DeadLetterKey],
    error: &sink::SinkError,
) -> Result<TurnReport, WriteError> {
    let WriteTurn {
        subscription_key,
        target,
        ..
    } = turn;
    tracing::warn!(
        subscription = ?subscription_key,
        store = target.store,
        folder = target.folder,
        %error,
        "cannot store dead-letter file"
    );
    let now = shared.clock.now();
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
        write_totals(shared, *subscription_key, &totals).await?;
    }
    let lost_by = if error.is_not_found() && target.drop_where_not_found {
        Some(Timestamp::NEVER)
    } else {
        // While the clock may be wrong about ages, the outage window does not end.
        totals
            .outage
            .as_ref()
            .filter(|_| !shared.clock.expiry_is_paused())
            .and_then(|outage| outage.lost_by(target.outage_window, now))
    };
    record_lost(shared, *subscription_key, lost_by, totals, keys, error).await
}

/// Counts the stored file, if any, and removes its dead letters and those that are damaged from the
/// journal.
async fn record_written(
    shared: &DeadLettersShared,
    subscription_key: SubscriptionKey,
    mut totals: DeadLetterTotals,
    page: WrittenPage,
) -> Result<(), journal::Error> {
    totals.outage = None;
    totals.written += page.count;
    totals.lost += page.damaged.len() as u64;
    totals.files += u64::from(page.count > 0);
    totals.bytes += page.text.len() as u64;
    let name = totals.in_progress.take().map(|file| file.name);
    let now = shared.clock.now();
    let mut notes = Vec::new();
    if let Some(name) = name.as_deref() {
        let keys_in_file = page.keys.iter().filter(|key| !page.damaged.contains(key));
        let filed = LedgerEvent::Filed { file: name.into() };
        notes = notes_of(keys_in_file, &filed, now);
    }
    let lost = LedgerEvent::Lost {
        why: "the event is not in the store, or damaged".into(),
    };
    notes.extend(notes_of(page.damaged.iter(), &lost, now));
    write_result(shared, subscription_key, &totals, page.keys, notes).await?;
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
    Ok(())
}

/// The dead letters of the file: all that are due, or those of the file in progress. What is due
/// later than a new dead letter was given up before the clock was set back, and is due now.
async fn read_slice(
    shared: &DeadLettersShared,
    turn: &WriteTurn,
    in_progress: Option<&FileInProgress>,
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
    let by = in_progress.map_or(now, |file| file.last.due);
    let mut slice = journal
        .reader_pool()
        .read_dead_letters(
            turn.subscription_key,
            by,
            options.events_max,
            options.bytes_max,
        )
        .await?;
    if let Some(file) = in_progress {
        slice.retain(|waiting| waiting.key <= file.last);
        return Ok(slice);
    }
    let events = slice.iter().filter_map(|waiting| waiting.event.as_ref());
    let bytes: usize = events.map(Event::wire_len).sum();
    if slice.len() < options.events_max && bytes < options.bytes_max {
        let latest = DeadLetterKey {
            due: now.after(turn.target.delay),
            seq: Seq(u64::MAX),
            lane: Lane(u16::MAX),
        };
        let events_max = options.events_max - slice.len();
        let bytes_max = options.bytes_max - bytes;
        let later = journal.reader_pool().dead_after(
            turn.subscription_key,
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
    turn: &WriteTurn,
    totals: &mut DeadLetterTotals,
    page: &WrittenPage,
) -> Result<Result<(), sink::SinkError>, journal::Error> {
    let target = &*turn.target;
    for part in target
        .folder
        .split_terminator('/')
        .chain([target.subscription_name.as_str()])
    {
        if let Err(error) = check_part(part) {
            return Ok(Err(sink::SinkError::Name(error.to_string())));
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
            write_totals(shared, turn.subscription_key, totals).await?;
            name
        }
        (Some(file), _) => started_path(target, file).unwrap_or_default().to_owned(),
        (None, None) => return Ok(Ok(())),
    };
    Ok(shared.sink.put_file(&name, page.text.clone()).await)
}

async fn announce_file(
    shared: &DeadLettersShared,
    turn: &WriteTurn,
    totals: &DeadLetterTotals,
    page: &WrittenPage,
) -> Result<(), journal::Error> {
    let name = totals
        .in_progress
        .as_ref()
        .and_then(|file| started_path(&turn.target, file));
    let (Some(notifier), Some(name)) = (&shared.context.notifier, name) else {
        return Ok(());
    };
    if page.count == 0 {
        return Ok(());
    }
    let subscription_key = turn.subscription_key;
    let blob = shared.sink.blob_location(name);
    notifier(FileWritten {
        subscription_key,
        blob,
        bytes: page.text.len(),
        at: shared.clock.now(),
    })
    .await
}

/// Gives up the dead letters of a rejected file that were due by `lost_by`. The rest keeps waiting.
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

async fn write_totals(
    shared: &DeadLettersShared,
    subscription_key: SubscriptionKey,
    totals: &DeadLetterTotals,
) -> Result<(), journal::Error> {
    write_result(shared, subscription_key, totals, Vec::new(), Vec::new()).await
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
    turn: &WriteTurn,
) -> Result<TurnReport, WriteError> {
    let next = shared
        .journal
        .reader_pool()
        .read_dead_letters(turn.subscription_key, Timestamp::NEVER, 1, 1)
        .await?;
    let now = shared.clock.now();
    Ok(TurnReport::Done {
        next: next
            .first()
            .map(|waiting| turn.target.turn_at(waiting.key.due, now)),
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
