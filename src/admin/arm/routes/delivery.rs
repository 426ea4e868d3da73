//! Routes of what happens to the events of an event subscription: dead letters, the ledger, replays
//! and commands to the delivery.

use super::{
    super::operation::{ArmOperation, Handler, PathOperations, get, handler, post},
    topics::PAGE_OF_LINES,
};
use crate::{
    auth::Access,
    dead_letters, ledger,
    merge::SpreadMerge,
    openapi::{
        CHANGING, Description, Errors, Query,
        QueryType::{NumberBetween, OneOf, Text, Time},
        READING, SKIP_TOKEN, describe,
    },
    operate, replay, retry,
};
use gridhook_api::{
    dead_letters::{
        DeadLetterPurge, DeadLetterRedrive, DeadLetterWithEvent, PageView, PurgedView,
        RedriveStartedView,
    },
    ledger::LedgerPageView,
    replay::{DryRun, ReplayBody, ReplayView},
    retry::{RetriedView, RetryNowBody},
    status::{SubscriptionStatusView, UnblockRequest},
};
use gridhook_policy::record::{Command, job::JobCommand};

const LEDGER: &[Query] = &[
    Query(
        "from",
        Time,
        "Earliest time of a line; default: an hour before `to`, with `order=newest` the first line",
    ),
    Query(
        "order",
        OneOf(&["oldest", "newest"]),
        "Which lines come first; default `oldest`",
    ),
    Query("to", Time, "Time before which lines end; default: now"),
    Query(
        "outcome",
        Text,
        "Step of the lines, outcome of an attempt, or reason for which an event was given up",
    ),
];

/// Parameters that select dead letters.
const DEAD_LETTERS: &[Query] = &[
    Query(
        "stage",
        Text,
        "Stage of the dead letters: `waiting` for their file, or `written` to it",
    ),
    Query(
        "from",
        Text,
        "Earliest time of the last attempt, or else of the publish",
    ),
    Query(
        "to",
        Text,
        "Time before which the last attempt, or else the publish, was",
    ),
    Query("reason", Text, "Reason of the dead letter"),
    Query("id", Text, "Id of the event"),
    Query("$top", NumberBetween(1, 1000), "Maximum items in a page"),
    SKIP_TOKEN,
];

const UNREADABLE_DEAD_LETTER: Errors = &[(409, "Unreadable dead letter, with the cause")];

/// A command to the delivery, which returns the status.
const fn command(handler: Handler, description: Description) -> ArmOperation {
    let description = description
        .returns::<SubscriptionStatusView>(200, "The changed status")
        .fails(CHANGING);
    post(Access::OPERATE, handler, description).in_parts(SpreadMerge::Commands)
}

const fn replay_command(handler: Handler, description: Description) -> ArmOperation {
    let description = description
        .returns::<ReplayView>(200, "The changed replay")
        .fails(CHANGING);
    post(Access::OPERATE, handler, description).in_parts(SpreadMerge::Replays)
}

pub(super) static DELIVERY_ACTIONS: PathOperations<16> = [
    (
        "/deadLetters",
        &[get(
            handler!(dead_letters::list),
            describe("listDeadLetters", "List dead letters")
                .with(DEAD_LETTERS)
                .returns::<PageView>(
                    200,
                    "A page of dead letters, with the link to the next page",
                )
                .fails(READING),
        )
        .in_parts(SpreadMerge::DeadLetters)
        .or_portal()],
    ),
    (
        "/deadLetters/redrive",
        &[post(
            Access::OPERATE,
            handler!(dead_letters::redrive),
            describe(
                "redriveDeadLetters",
                "Redrive dead letters to this event subscription",
            )
            .takes::<DeadLetterRedrive>(
                true,
                r#"{"filter": {"reason": "TimeToLiveExceeded"}, "rate": 100}"#,
            )
            .returns::<PurgedView>(200, "The count of a dry run")
            .returns::<RedriveStartedView>(202, "The redrive that began")
            .fails(CHANGING),
        )
        .in_parts(SpreadMerge::DeadLetterChanges)
        .or_portal()],
    ),
    (
        "/deadLetters/purge",
        &[post(
            Access::ADMIN,
            handler!(dead_letters::purge),
            describe(
                "purgeDeadLetters",
                "Purge dead letters, a part at a time, or count them with `dryRun`",
            )
            .takes::<DeadLetterPurge>(true, r#"{"all": true, "dryRun": true}"#)
            .returns::<PurgedView>(
                200,
                "The number of purged dead letters; `next` is the start of the rest",
            )
            .fails(CHANGING),
        )
        .in_parts(SpreadMerge::DeadLetterChanges)],
    ),
    (
        "/deadLetters/{deadLetterKey}",
        &[get(
            handler!(dead_letters::get),
            describe("getDeadLetter", "Get a dead letter with its event")
                .returns::<DeadLetterWithEvent>(200, "The dead letter and its event")
                .fails(UNREADABLE_DEAD_LETTER)
                .fails(READING),
        )
        .served_by_named_shard()
        .or_portal()],
    ),
    (
        "/ledger",
        &[get(
            handler!(ledger::ledger),
            describe("ledger", "List the ledger of outcomes in order of time")
                .with(PAGE_OF_LINES)
                .with(LEDGER)
                .returns::<LedgerPageView>(200, "A page of lines, with the token of the next page")
                .fails(READING),
        )
        .in_parts(SpreadMerge::Pages)
        .or_portal()],
    ),
    (
        "/replays",
        &[
            get(
                handler!(replay::list_replays),
                describe("listReplays", "List running and recently ended replays")
                    .lists::<ReplayView>()
                    .fails(READING),
            )
            .in_parts(SpreadMerge::Replays)
            .or_portal(),
            post(
                Access::OPERATE,
                handler!(replay::start),
                describe(
                    "startReplay",
                    "Replay stored events, or count them with `dryRun`",
                )
                .takes::<ReplayBody>(false, r#"{"from": "2026-01-01T00:00:00Z", "dryRun": true}"#)
                .returns::<DryRun>(200, "The count of a dry run")
                .returns::<ReplayView>(201, "The replay that began")
                .fails(CHANGING),
            )
            .in_parts(SpreadMerge::Replays),
        ],
    ),
    (
        "/replays/{replayId}",
        &[get(
            handler!(replay::get),
            describe("getReplay", "Get the progress and the outcomes of a replay")
                .returns::<ReplayView>(200, "The replay")
                .fails(READING),
        )
        .in_parts(SpreadMerge::Replays)
        .or_portal()],
    ),
    (
        "/replays/{replayId}/pause",
        &[replay_command(
            handler!(call => replay::command_job(call, JobCommand::Pause)),
            describe("pauseReplay", "Pause a replay; attempts in flight finish"),
        )],
    ),
    (
        "/replays/{replayId}/resume",
        &[replay_command(
            handler!(call => replay::command_job(call, JobCommand::Resume)),
            describe("resumeReplay", "Resume a paused replay"),
        )],
    ),
    (
        "/replays/{replayId}/cancel",
        &[replay_command(
            handler!(call => replay::command_job(call, JobCommand::Cancel)),
            describe(
                "cancelReplay",
                "Cancel a replay; delivered events stay delivered",
            ),
        )],
    ),
    (
        "/hold",
        &[command(
            handler!(call => operate::send_command(call, Command::Hold)),
            describe(
                "hold",
                "Hold delivery until `resume`; attempts in flight finish",
            ),
        )],
    ),
    (
        "/resume",
        &[command(
            handler!(call => operate::send_command(call, Command::Resume)),
            describe("resume", "Resume delivery after `hold`"),
        )],
    ),
    (
        "/probe",
        &[command(
            handler!(call => operate::send_command(call, Command::Probe)),
            describe(
                "probe",
                "Probe a suspended endpoint now; 409 if it is not suspended",
            ),
        )],
    ),
    (
        "/retry",
        &[post(
            Access::OPERATE,
            handler!(retry::retry_deliveries),
            describe(
                "retry",
                "Retry pending deliveries now, all of them a part at a time; 409 if the event \
                 subscription is held",
            )
            .takes::<RetryNowBody>(true, r#"{"all": true}"#)
            .returns::<RetriedView>(
                200,
                "The number of retries that are brought forward; `next` is the start of the rest",
            )
            .fails(CHANGING),
        )
        .in_parts(SpreadMerge::Retries)],
    ),
    (
        "/release",
        &[command(
            handler!(call => operate::send_command(call, Command::Release)),
            describe(
                "release",
                "Release a suspended endpoint as healthy; 409 if it is healthy",
            ),
        )],
    ),
    (
        "/unblock",
        &[command(
            handler!(operate::unblock),
            describe(
                "unblock",
                "Decide about the events that block their order key; 409 if none does",
            )
            .takes::<UnblockRequest>(false, r#"{"key": "orders/1"}"#),
        )],
    ),
];
