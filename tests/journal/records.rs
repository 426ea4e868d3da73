use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use gridhook::{
    event::{
        Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, chunk::RunningTotals,
    },
    policy::{
        outcome::{Failure, LastOutcome, Outcome, Reason, RequestHeads},
        record::{
            Counters, Cursor, DeadLetterRecord, EndpointId, Excerpt, FilteredOut, Health, HeldBy,
            LaneCursor, LedgerEntry, LedgerEvent, LedgerLine, OutcomeCounts, PaceRecord,
            PendingDelivery, Rate, SeqRun, SeqSet,
            job::{Job, JobKind, JobState},
            lease::{LeaseStep, StepKind},
        },
    },
    store::records::{
        EncodedLines, FloorRecord, LedgerLines, OutcomePage, PageCursor, PageEntry, StoredRecord,
        event_byte,
    },
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

fn heads() -> impl Strategy<Value = Box<RequestHeads>> {
    (".{0,9}", ".{0,9}")
        .prop_map(|(request, response)| Box::new(RequestHeads { request, response }))
}

fn at() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    any::<u8>().prop_filter_map("a byte of an outcome", Outcome::from_byte)
}

fn failure() -> impl Strategy<Value = Failure> {
    any::<u8>().prop_filter_map("a byte of a failure", Failure::from_byte)
}

fn last_outcome() -> impl Strategy<Value = LastOutcome> {
    any::<u8>().prop_filter_map("a byte of a last outcome", LastOutcome::from_byte)
}

fn reason() -> impl Strategy<Value = Reason> {
    prop_oneof![
        Just(Reason::MaxDeliveryAttemptsExceeded),
        Just(Reason::TimeToLiveExceeded),
        failure().prop_map(Reason::Undeliverable),
        Just(Reason::ProbationCausedByClientError),
        Just(Reason::Quarantined),
        Just(Reason::Missing),
        Just(Reason::BacklogExceeded),
        Just(Reason::Rejected),
    ]
}

/// Stores of earlier versions have these bytes.
#[test]
fn each_outcome_keeps_its_byte() {
    let names = "Delivered NotFound Disabled Full Unauthorized BadRequest TimedOut Busy \
        PayloadTooLarge Probation Canceled Aborted SocketError ResolutionError \
        SessionQueueNotSupported Forbidden InvalidAzureFunctionDestination GenericError Delivering \
        TransformationFailed CredentialRefused";
    let read: Vec<_> = (0..=u8::MAX)
        .filter_map(|byte| Some((byte, LastOutcome::from_byte(byte)?)))
        .collect();
    assert_eq!(
        read.iter()
            .map(|(_, last)| last.to_string())
            .collect::<Vec<_>>()
            .join(" "),
        names
    );
    assert!(
        read.iter()
            .enumerate()
            .all(|(index, (byte, last))| (index, last.to_byte()) == (usize::from(*byte), *byte))
    );
    assert_eq!(
        (0..19)
            .filter(|byte| Outcome::from_byte(*byte).is_none())
            .collect::<Vec<_>>(),
        [9, 18]
    );
    assert!(
        (0..19).filter_map(Outcome::from_byte).is_sorted(),
        "counts are stored in this order"
    );
    assert_eq!(
        (0..19)
            .filter(|byte| Failure::from_byte(*byte).is_none())
            .collect::<Vec<_>>(),
        [0, 9, 10, 11, 18]
    );
}

fn health() -> impl Strategy<Value = Health> {
    prop_oneof![
        any::<u32>().prop_map(|failures| Health::Healthy { failures }),
        (failure(), at(), at(), any::<u32>()).prop_map(
            |(cause, since, until, consecutive_suspensions)| {
                Health::Suspended {
                    cause,
                    since,
                    until,
                    consecutive_suspensions,
                }
            }
        ),
        (failure(), at(), any::<u32>()).prop_map(|(cause, since, consecutive_suspensions)| {
            Health::Probing {
                cause,
                since,
                consecutive_suspensions,
            }
        }),
    ]
}

/// Mostly runs with gaps between them.
fn places() -> impl Strategy<Value = SeqSet> {
    let steps = vec(prop_oneof![4 => Just(1u64), 1 => 1u64..10_000], 0..60);
    (0u64..1 << 60, steps).prop_map(|(first, steps)| {
        let place = |seq: &mut u64, step| {
            *seq += step;
            Some(Seq(*seq))
        };
        steps.into_iter().scan(first, place).collect()
    })
}

fn lane() -> impl Strategy<Value = LaneCursor> {
    (
        any::<u16>(),
        any::<u64>(),
        option::of(any::<u64>()),
        places(),
        places(),
    )
        .prop_map(|(lane, read, end, open, done)| LaneCursor {
            lane: Lane(lane),
            read: Seq(read),
            end: end.map(Seq),
            open,
            done,
        })
}

fn counters() -> impl Strategy<Value = Counters> {
    any::<[u64; 11]>().prop_map(|count| Counters {
        passed: count[0],
        filtered: count[1],
        matched: count[2],
        delivered: count[3],
        pending: count[4],
        dead_lettered: count[5],
        dropped: count[6],
        canceled: count[7],
        requests: count[8],
        requests_failed: count[9],
        late: count[10],
    })
}

fn pace() -> impl Strategy<Value = PaceRecord> {
    let wait = option::of((at(), option::of(any::<u64>().prop_map(EndpointId))));
    (
        option::of(any::<u64>().prop_map(Rate)),
        option::of(at()),
        any::<bool>(),
        wait,
        option::of(at()),
    )
        .prop_map(|(healthy, failed, paced, wait, failing_since)| PaceRecord {
            healthy,
            failed,
            paced,
            not_before: wait.map(|(until, _)| until),
            requested_by: wait.and_then(|(_, by)| by),
            failing_since,
        })
}

fn held() -> impl Strategy<Value = Option<HeldBy>> {
    let causes = [HeldBy::ByOperator, HeldBy::Gone, HeldBy::EndpointFailing];
    option::of(proptest::sample::select(causes.to_vec()))
}

fn filtered() -> impl Strategy<Value = FilteredOut> {
    (any::<u16>(), any::<u32>(), any::<u32>(), 1..u32::MAX).prop_map(
        |(lane, version, first, length)| {
            let first = Seq(first.into());
            FilteredOut {
                lane: Lane(lane),
                version,
                first,
                end: first.plus(length.into()),
            }
        },
    )
}

pub(super) fn job() -> impl Strategy<Value = Job> {
    let states = [
        JobState::Running,
        JobState::Paused,
        JobState::Canceling,
        JobState::Completed,
        JobState::Canceled,
    ]
    .to_vec();
    let range = (any::<u64>(), any::<u64>()).prop_map(|(from, end)| JobKind::Replay {
        from: Seq(from),
        end: Seq(end),
    });
    (
        any::<u16>(),
        range,
        option::of(any::<u64>().prop_map(Rate)),
        at(),
        at(),
        select(states),
        counters(),
    )
        .prop_map(|(lane, kind, rate, began, changed, state, counters)| Job {
            lane: Lane(lane),
            kind,
            rate,
            began,
            changed,
            state,
            counters,
        })
}

fn counts() -> impl Strategy<Value = OutcomeCounts> {
    let times = || 1..=u64::MAX;
    let reasons = || btree_map(reason(), times(), 0..4);
    let leases = btree_map(select(StepKind::ALL.to_vec()), times(), 0..4);
    (
        btree_map(outcome(), times(), 0..4),
        reasons(),
        reasons(),
        leases,
    )
        .prop_map(|(failed, dead_lettered, dropped, leases)| OutcomeCounts {
            failed,
            dead_lettered,
            dropped,
            leases,
        })
}

pub(super) fn cursor() -> impl Strategy<Value = Cursor> {
    let jobs = (counters(), vec(job(), 0..3), any::<u16>());
    let ledger = (
        vec(filtered(), 0..3),
        prop_oneof![Just(0), any::<u64>()],
        counts(),
    );
    (
        vec(lane(), 0..5),
        health(),
        pace(),
        held(),
        counters(),
        jobs,
        option::of(at()),
        ledger,
    )
        .prop_map(
            |(
                lanes,
                health,
                pace,
                held,
                counters,
                (replayed, jobs, jobs_begun),
                next_due,
                (filtered, began, counts),
            )| {
                Cursor {
                    lanes,
                    health,
                    pace,
                    held,
                    counters,
                    replayed,
                    jobs,
                    jobs_begun,
                    next_due,
                    filtered_out: filtered,
                    began: Seq(began),
                    counts,
                }
            },
        )
}

pub(super) fn pending() -> impl Strategy<Value = PendingDelivery> {
    (
        any::<u32>(),
        at(),
        last_outcome(),
        option::of(any::<u16>()),
        at(),
        option::of(at()),
    )
        .prop_map(
            |(attempts, due, last, status, tried, received)| PendingDelivery {
                attempts,
                due,
                last,
                status,
                tried,
                received,
            },
        )
}

pub(super) fn dead() -> impl Strategy<Value = DeadLetterRecord> {
    (
        reason(),
        any::<u32>(),
        last_outcome(),
        option::of(any::<u16>()),
        at(),
        option::of(at()),
        at(),
    )
        .prop_map(
            |(reason, attempts, outcome, status, published, tried, given_up)| DeadLetterRecord {
                reason,
                attempts,
                outcome,
                status,
                published,
                tried,
                given_up,
            },
        )
}

fn what() -> impl Strategy<Value = LedgerEvent> {
    prop_oneof![
        any::<u32>().prop_map(|version| LedgerEvent::Filtered { version }),
        (
            outcome(),
            option::of(any::<u16>()),
            any::<u64>(),
            option::of(at()),
            option::of(any::<u64>())
        )
            .prop_map(
                |(outcome, status, micros, next, excerpt)| LedgerEvent::Attempted {
                    outcome,
                    status,
                    latency: Duration::from_micros(micros),
                    next,
                    excerpt,
                }
            ),
        (reason(), any::<bool>()).prop_map(|(reason, dead_lettered)| LedgerEvent::GivenUp {
            reason,
            dead_lettered
        }),
        any::<bool>().prop_map(|settled| LedgerEvent::Late { settled }),
        Just(LedgerEvent::Canceled),
        "\\PC{0,9}".prop_map(|file| LedgerEvent::Filed { file: file.into() }),
        "\\PC{0,9}".prop_map(|why| LedgerEvent::Lost { why: why.into() }),
        any::<u16>().prop_map(|lane| LedgerEvent::Redriven { into: Lane(lane) }),
        at().prop_map(|until| LedgerEvent::Lease(LeaseStep::Received { until })),
        at().prop_map(|until| LedgerEvent::Lease(LeaseStep::Renewed { until })),
        at().prop_map(|until| LedgerEvent::Lease(LeaseStep::Released { until })),
        select(vec![
            LedgerEvent::Lease(LeaseStep::Acknowledged),
            LedgerEvent::Lease(LeaseStep::Expired)
        ]),
    ]
}

pub(super) fn entry() -> impl Strategy<Value = LedgerEntry> {
    (at(), vec((0u64..1 << 40, 1u32..), 1..20), what()).prop_map(|(at, runs, what)| {
        let runs = runs
            .into_iter()
            .scan(0, |end, (gap, count)| {
                let first = *end + gap;
                *end = first + u64::from(count);
                Some(SeqRun {
                    first: Seq(first),
                    count,
                })
            })
            .collect();
        LedgerEntry { at, runs, what }
    })
}

pub(super) fn lines() -> impl Strategy<Value = LedgerLines<'static>> {
    let line =
        (any::<u16>(), any::<u32>(), entry()).prop_map(|(lane, attempt, entry)| LedgerLine {
            lane: Lane(lane),
            attempt,
            entry,
        });
    vec(line, 1..4).prop_map(|lines| LedgerLines(lines.into()))
}

pub(super) fn page() -> impl Strategy<Value = OutcomePage> {
    let cursor = option::of((any::<bool>(), vec(any::<u8>(), 0..60)).prop_map(
        |(is_whole, bytes)| {
            if is_whole {
                PageCursor::Whole(bytes.into())
            } else {
                PageCursor::Changes(bytes)
            }
        },
    ));
    let entry = (option::of(any::<u64>()), cursor, option::of(lines()));
    let subscription = (any::<u32>(), any::<u32>());
    (any::<u64>(), btree_map(subscription, entry, 0..6)).prop_map(|(newest_end, entries)| {
        let entries = entries.into_iter().map(
            |((partition, subscription), (stored_page, cursor, found))| {
                let mut lines = EncodedLines::default();
                found
                    .iter()
                    .flat_map(|found| &*found.0)
                    .for_each(|line| lines.push(line));
                let partition = PartitionId(partition);
                let subscription = SubscriptionId(subscription);
                PageEntry {
                    subscription_key: SubscriptionKey {
                        partition,
                        subscription,
                    },
                    stored_page,
                    cursor,
                    lines,
                }
            },
        );
        OutcomePage {
            newest_end,
            entries: entries.collect(),
        }
    })
}

pub(super) fn floor() -> impl Strategy<Value = FloorRecord> {
    let set_back = proptest::option::of((1..u64::MAX).prop_map(Seq));
    (any::<[u64; 5]>(), set_back).prop_map(|([floor, next, count, bytes, appended], set_back)| {
        FloorRecord {
            floor: Seq(floor),
            next: Seq(next),
            running: RunningTotals { count, bytes },
            appended: Timestamp(appended),
            set_back,
        }
    })
}

/// A record is decoded as it was encoded, refused if it is cut or followed by a byte, and never
/// causes a panic if a byte is changed.
fn check<R: StoredRecord + PartialEq + Debug>(
    record: &R,
    at: usize,
    byte: u8,
) -> Result<(), TestCaseError> {
    let bytes = record.encode();
    let read = R::decode(&bytes);
    prop_assert_eq!(read.as_ref(), Ok(record));
    for cut in 0..bytes.len() {
        prop_assert!(R::decode(&bytes[..cut]).is_err(), "cut at {}", cut);
    }
    prop_assert!(R::decode(&[&bytes[..], &[byte]].concat()).is_err());
    let mut changed = bytes;
    let at = at % changed.len();
    changed[at] = byte;
    if let Ok(other) = R::decode(&changed) {
        prop_assert_eq!(R::decode(&other.encode()), Ok(other));
    }
    changed[0] = record.encode()[0] + 1;
    prop_assert!(R::decode(&changed).is_err(), "a version that is unknown");
    Ok(())
}

/// A record decoded from random bytes can be encoded again.
fn check_random<R: StoredRecord + PartialEq + Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(record) = R::decode(bytes) {
        prop_assert_eq!(R::decode(&record.encode()), Ok(record));
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_cursor_is_read_back_as_it_was_and_damage_is_refused(record in cursor(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn a_pending_record_is_read_back_as_it_was_and_damage_is_refused(record in pending(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn a_dead_record_is_read_back_as_it_was_and_damage_is_refused(record in dead(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn a_line_of_the_ledger_is_read_back_as_it_was_and_damage_is_refused(record in entry(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn lines_that_share_a_record_are_read_back_as_they_were_and_damage_is_refused(record in lines(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn a_cursor_is_its_changes_after_the_one_before_and_none_after_another(
        before in vec(any::<u8>(), 0..80),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        longer in vec(any::<u8>(), 0..2),
    ) {
        let mut cursor = before.clone();
        for (at, byte) in changes.iter().filter(|_| !before.is_empty()) {
            cursor[at.index(before.len())] = *byte;
        }
        cursor.extend(longer);
        let before = Bytes::from(before);
        let cursor = Bytes::from(cursor);
        let page = PageCursor::new(Some(&before), &cursor);
        prop_assert_eq!(page.cursor_after(Some(&before)), Some(cursor.clone()));
        if let PageCursor::Changes(changes) = &page {
            prop_assert!(changes.len() < cursor.len());
            prop_assert_eq!(page.cursor_after(None), None);
            let other: Bytes = before.iter().map(|byte| !byte).collect();
            prop_assert_eq!(page.cursor_after(Some(&other)), None);
        }
        prop_assert_eq!(PageCursor::new(None, &cursor), PageCursor::Whole(cursor));
    }

    #[test]
    fn a_page_is_read_back_as_it_was_and_damage_is_refused(record in page(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn an_excerpt_is_read_back_as_it_was_and_damage_is_refused(
        has_response: bool,
        said in vec(any::<u8>(), 0..40),
        heads in option::of(heads()),
        at: usize,
        byte: u8,
    ) {
        check(&Excerpt { has_response, content: said.into(), heads }, at, byte)?;
    }

    #[test]
    fn a_floor_is_read_back_as_it_was_and_damage_is_refused(record in floor(), at: usize, byte: u8) {
        check(&record, at, byte)?;
    }

    #[test]
    fn random_bytes_are_a_record_or_refused(mut bytes in vec(prop_oneof![0u8..4, any::<u8>()], 1..80)) {
        bytes[0] = 1;
        check_random::<Cursor>(&bytes)?;
        check_random::<PendingDelivery>(&bytes)?;
        check_random::<DeadLetterRecord>(&bytes)?;
        check_random::<LedgerEntry>(&bytes)?;
        check_random::<Excerpt>(&bytes)?;
        check_random::<FloorRecord>(&bytes)?;
        check_random::<OutcomePage>(&bytes)?;
    }
}

#[test]
fn a_thousand_open_events_in_a_row_cost_a_byte_more_than_one() {
    let lane = |open| LaneCursor {
        lane: Lane::LIVE,
        read: Seq(1_001_000),
        end: None,
        open,
        done: SeqSet::default(),
    };
    let size = |open| {
        Cursor {
            lanes: vec![lane(open)],
            ..Cursor::default()
        }
        .encode()
        .len()
    };
    let one = size([Seq(1_000_000)].into_iter().collect());
    let thousand = size((1_000_000..1_001_000).map(Seq).collect());
    assert!(
        thousand <= one + 1,
        "{one} bytes for one, {thousand} for a thousand"
    );
}

#[test]
fn open_events_that_are_too_many_to_be_true_are_damage() {
    let lane = LaneCursor {
        lane: Lane::LIVE,
        read: Seq(10),
        end: None,
        open: SeqSet::default(),
        done: [Seq(12)].into_iter().collect(),
    };
    let sound = Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    }
    .encode();
    let (lanes, counts) = sound.split_at(sound.len() - 4);
    assert_eq!(counts, [0; 4], "the record ends with a tally of nothing");
    let (count, rest) = lanes.split_last().expect("a record has bytes");
    assert_eq!(*count, 1, "before it stands the run's count");
    let endless = [
        rest,
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        counts,
    ]
    .concat();
    assert!(Cursor::decode(&endless).is_err());
}

#[test]
#[should_panic(expected = "ascend")]
fn a_cursor_whose_open_events_do_not_ascend_is_not_written() {
    let mut lane = LaneCursor::new(Lane::LIVE, Seq(10), None);
    lane.open.push(Seq(5), 1);
    lane.open.push(Seq(5), 1);
    Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    }
    .encode();
}

#[test]
fn the_bytes_of_the_ledger_are_those_that_were_given() {
    let outcome = Outcome::Failed(Failure::Busy);
    let latency = Duration::ZERO;
    let all = [
        LedgerEvent::Filtered { version: 1 },
        LedgerEvent::Attempted {
            outcome,
            status: None,
            latency,
            next: None,
            excerpt: None,
        },
        LedgerEvent::GivenUp {
            reason: Reason::Missing,
            dead_lettered: false,
        },
        LedgerEvent::Late { settled: true },
        LedgerEvent::Canceled,
        LedgerEvent::Filed { file: "a".into() },
        LedgerEvent::Lost { why: "b".into() },
        LedgerEvent::Redriven { into: Lane(16) },
        LedgerEvent::Lease(LeaseStep::Received {
            until: Timestamp(1),
        }),
        LedgerEvent::Lease(LeaseStep::Renewed {
            until: Timestamp(1),
        }),
        LedgerEvent::Lease(LeaseStep::Acknowledged),
        LedgerEvent::Lease(LeaseStep::Released {
            until: Timestamp(1),
        }),
        LedgerEvent::Lease(LeaseStep::Expired),
    ];
    assert_eq!(
        all.each_ref().map(event_byte),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    );
}
