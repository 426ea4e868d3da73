//! The list of fixed limits in the manual's chapter `settings` is complete: every constant of the
//! sources that ends in `_MAX` is in the table below, with its words in that list.

use std::{fs, path::Path};

use gridhook::manual;

#[rustfmt::skip]
const LISTED: &[(&str, &str, &str)] = &[
    ("admin/arm/list.rs", "TOP_MAX", "pages of 100"),
    ("admin/arm/mod.rs", "BODY_BYTES_MAX", "bodies of 256 KiB within 10 s"),
    ("admin/audit.rs", "CHANGES_MAX", "100 changes in a record of the audit trail"),
    ("admin/audit.rs", "TOP_MAX", "1000 records on a page"),
    ("admin/tokens.rs", "PORTAL_LIFETIME_MAX", "portal links of 7 days"),
    ("admin/tokens.rs", "SCOPES_MAX", "each with 50 scopes"),
    ("cluster/lease.rs", "FIRST_CALL_LIMIT_MAX", "within a quarter of `cluster.expiry` and 1 s at most"),
    ("cluster/nats.rs", "KEYS_MAX", "1024 records of nodes and shards"),
    ("server/front/hop/acceptor.rs", "REASONS_MAX", "8 reasons for refused connections of nodes logged in a \
        minute"),
    ("server/front/hop/acceptor.rs", "UNPROVEN_MAX", "64 connections of other nodes without a proof yet"),
    ("server/forward.rs", "IDLE_MAX", "64 idle connections of a thread to the owner"),
    ("server/forward.rs", "IDLE_IN_TOTAL_MAX", "and 256 for all shards"),
    ("server/forward.rs", "CHANGE_MAX", "5 minutes to another request"),
    ("server/running_server.rs", "FINISH_MAX", "waits 1 s for responses"),
    ("server/front/served_shards.rs", "TASKS_END_MAX", "1 s until the tasks of its requests have \
        ended"),
    ("engine/control/audit/index.rs", "EXPIRED_MAX", "100 expired records removed in one write"),
    ("engine/control/audit.rs", "READS_MAX", "2000 records read for a page"),
    ("cli/apply/states.rs", "ROUNDS_MAX", "states of resources fetched 20 times"),
    ("admin/arm/deployments/mod.rs", "DEPLOYMENT_BYTES_MAX", "deployments with bodies of 1 MiB"),
    ("admin/arm/deployments/expansion.rs", "EXPANSIONS_MAX", "templates of deployments expanded 64 \
        times"),
    ("admin/arm/deployments/run.rs", "OUTPUT_BYTES_MAX", "256 KiB of outputs"),
    ("admin/model/deployment.rs", "DEPLOYMENT_NAME_CHARS_MAX", "names of 64 characters"),
    ("engine/control/deployments.rs", "DEPLOYMENTS_MAX", "800 deployments of a resource group"),
    ("engine/control/deployments.rs", "DEPLOYMENTS_BYTES_MAX", "64 MiB of deployments with their \
        templates"),
    ("engine/control/deployments.rs", "RUNNING_DEPLOYMENTS_MAX", "8 deployments at the same time"),
    ("engine/control/resource_groups.rs", "RESOURCE_GROUPS_MAX", "1000 resource groups that were \
        created implicitly"),
    ("publish/schema/binary.rs", "MEDIA_TYPE_CHARS_MAX", "100 characters of a content type in an \
        error"),
    ("template/evaluate.rs", "CALLS_MAX", "200,000 calls"),
    ("template/evaluate.rs", "COPIES_MAX", "800 iterations of a loop"),
    ("template/evaluate.rs", "DEPTH_MAX", "values 150 levels deep"),
    ("template/evaluate.rs", "RESULTS_BYTES_MAX", "results of calls and loops of 16 MiB"),
    ("template/expression.rs", "DEPTH_MAX", "expressions of templates 64 levels deep"),
    ("template/functions/list.rs", "RANGE_MAX", "10,000 numbers of `range`"),
    ("template/functions/time.rs", "PATTERN_CHARS_MAX", "200 characters of a format of times"),
    ("template/parameters.rs", "REFERENCES_MAX", "32 steps between definitions"),
    ("template/resources.rs", "LEVELS_MAX", "resources in resources and deployments in deployments \
        5 levels"),
    ("template/resources.rs", "RESOURCES_MAX", "800 resources"),
    ("engine/control/tokens.rs", "TOKENS_MAX", "1000 named tokens"),
    ("admin/admin_token.rs", "TOKEN_LEN_MAX", "the admin token's file 4 KiB"),
    ("admin/chaos/body.rs", "DELAY_MAX", "responses delayed by 5 minutes"),
    ("admin/chaos/body.rs", "DURATION_MAX", "each of 1 h"),
    ("admin/chaos/body.rs", "STEP_MAX", "a clock step of 7 days"),
    ("admin/chaos/body.rs", "WRITES_MAX", "10,000 failing writes"),
    ("admin/chaos/injector.rs", "ACTIVE_MAX", "64 faults at once"),
    ("admin/events.rs", "TOP_MAX", "500 events of a topic on a page"),
    ("admin/health.rs", "GAPS_MAX", "20 ranges of lost events"),
    ("admin/history.rs", "SUBSCRIPTIONS_MAX", "100 topics and 200 event subscriptions with a \
        history"),
    ("admin/history.rs", "TOPICS_MAX", "100 topics and 200 event subscriptions with a history"),
    ("admin/ledger_line.rs", "RANGES_MAX", "20 ranges of lost events"),
    ("admin/dead_letters.rs", "TOP_MAX", "1000 dead letters on a page"),
    ("admin/dead_letters/newest.rs", "TOP_MAX", "500 dead letters of all event subscriptions on a \
        page"),
    ("admin/jobs.rs", "TOP_MAX", "1000 jobs in a list"),
    ("admin/metrics/scrape.rs", "LOOKUPS_MAX", "256 reads of the log per scrape"),
    ("admin/search.rs", "LOOKUPS_MAX", "256 reads of logs per search"),
    ("admin/search.rs", "EVENTS_MAX", "50 events found by it"),
    ("admin/model/mod.rs", "TAGS_MAX", "50 tags with names of 512 and values of 256 characters"),
    ("admin/model/mod.rs", "TAG_NAME_CHARS_MAX", "50 tags with names of 512 and values of 256 \
        characters"),
    ("admin/model/mod.rs", "TAG_VALUE_CHARS_MAX", "50 tags with names of 512 and values of 256 \
        characters"),
    ("admin/model/subscription/check.rs", "LABELS_MAX", "50 labels of 256 characters"),
    ("admin/model/subscription/check.rs", "LABEL_CHARS_MAX", "50 labels of 256 characters"),
    ("admin/model/odata.rs", "DEPTH_MAX", "`$filter` 32 levels deep"),
    ("admin/model/odata.rs", "TERMS_MAX", "with 100 comparisons"),
    ("admin/model/subscription/test.rs", "LAST_MAX", "`testFilter` with 1000 events"),
    ("admin/model/topic.rs", "SCOPE_PART_BYTES_MAX", "resource groups 90 of 200 bytes"),
    ("admin/model/topic/ingress.rs", "RULES_MAX", "128 `inboundIpRules`"),
    ("admin/model/topic/ingress.rs", "TEXT_MAX", "512 characters in each entry of \
        `inputSchemaMapping`"),
    ("admin/replay.rs", "RATE_MAX", "1,000,000 events a second of a job"),
    ("api/retry.rs", "DELIVERIES_MAX", "1000 retries brought forward in a request"),
    ("admin/simulate.rs", "BATCH_MAX", "simulations of 1000 event subscriptions, 30 days, 200,000 \
        deliveries and 5000 events in a request"),
    ("admin/simulate.rs", "DAYS_MAX", "simulations of 1000 event subscriptions, 30 days, 200,000 \
        deliveries and 5000 events in a request"),
    ("admin/simulate.rs", "DELIVERIES_MAX", "simulations of 1000 event subscriptions, 30 days, \
        200,000 deliveries and 5000 events in a request"),
    ("admin/simulate.rs", "SUBSCRIPTIONS_MAX", "simulations of 1000 event subscriptions, 30 days, \
        200,000 deliveries and 5000 events in a request"),
    ("admin/store.rs", "LINES_MAX", "4 lines ahead of a slow reader"),
    ("admin/supervision.rs", "TOP_MAX", "1000 actors by name"),
    ("admin/top.rs", "SKIP_MAX", "1,000,000 skipped in `top`"),
    ("admin/top.rs", "TOP_MAX", "500 event subscriptions in `top`"),
    ("api/trace.rs", "TOP_MAX", "1000 lines of the ledger on a page"),
    ("compute/lib.rs", "TASKS_MAX", "1024 tasks at a time, of which one caller has half at most"),
    ("engine/control/catalogue.rs", "STEPS_MAX", "64 million steps to check the data of an event"),
    ("engine/control/catalogue/cost.rs", "GROUPS_MAX", "64 groups inside each other"),
    ("engine/control/catalogue/cost.rs", "POSITIONS_MAX", "1000 positions of a pattern"),
    ("engine/control/catalogue.rs", "TYPES_MAX", "256 event types"),
    ("engine/control/catalogue.rs", "CATALOGUE_BYTES_MAX", "event types of 256 KiB"),
    ("engine/control/catalogue.rs", "VALUES_MAX", "20,000 JSON values"),
    ("engine/control/catalogue.rs", "DEPTH_MAX", "schemas 64 levels deep"),
    ("engine/control/catalogue.rs", "PATTERNS_MAX", "200 patterns"),
    ("engine/control/catalogue.rs", "PATTERN_BYTES_MAX", "256 KiB compiled"),
    ("engine/control/catalogue.rs", "REASON_CHARS_MAX", "reasons of 256 characters"),
    ("engine/control/expiry.rs", "CHECK_INTERVAL_MAX", "timers 60 s"),
    ("engine/control/filter_versions.rs", "ENDED_MAX", "4096 filter versions of deleted event \
        subscriptions"),
    ("engine/control/filter_versions.rs", "KEPT_MAX", "64 versions of a filter"),
    ("record/subscription.rs", "LOCK_SECONDS_MAX", "locks of 300 s"),
    ("engine/control/registry/events.rs", "WINDOWS_MAX", "40 reads of the log per page"),
    ("engine/control/registry/trace.rs", "LOOKUPS_MAX", "32 reads of the log per trace"),
    ("deliver/proxy.rs", "HEADERS_MAX", "8 KiB with 64 headers of a proxy's response"),
    ("deliver/proxy.rs", "RESPONSE_BYTES_MAX", "8 KiB with 64 headers of a proxy's response"),
    ("engine/control/system_events.rs", "WAITING_MAX", "1024 events about the server wait"),
    ("engine/control/validation.rs", "DELETION_NOTICES_MAX", "64 deletion notices at a time, each \
        of 10 s"),
    ("dead_letter/actor.rs", "TIMER_MAX", "timers 60 s"),
    ("dead_letter/browse.rs", "PROBLEMS_MAX", "100 problems reported"),
    ("dead_letter/browse.rs", "STEPS_MAX", "64 steps in a call"),
    ("dead_letter/browse/walk.rs", "FILE_BYTES_MAX", "files of 64 MiB"),
    ("dead_letter/event.rs", "DEAD_LETTERS_MAX", "100,000 dead letters in a file"),
    ("dead_letter/purge.rs", "STEPS_MAX", "64 steps in a call"),
    ("admin/delivery_request.rs", "SHOWN_BYTES_MAX", "events of 1 MiB and 40 reads of the log in a shown \
        request"),
    ("admin/delivery_request.rs", "SHOWN_READS_MAX", "40 reads of the log in a shown request"),
    ("engine/control/sessions.rs", "SESSIONS_MAX", "64 sessions of the dashboard"),
    ("engine/control/sessions.rs", "SESSIONS_OF_CALLER_MAX", "8 sessions of a caller"),
    ("deliver/resource/nats/wire.rs", "LINE_BYTES_MAX", "lines and messages of 64 KiB from a NATS \
        server"),
    ("deliver/resource/nats/wire.rs", "MESSAGE_BYTES_MAX", "lines and messages of 64 KiB from a \
        NATS server"),
    ("repair/backup/damaged.rs", "TOKEN_BYTES_MAX", "a copied admin token 4 KiB"),
    ("deliver/dial.rs", "ADDRESSES_MAX", "16 addresses of a name"),
    ("deliver/failure.rs", "DETAIL_BYTES_MAX", "details 400 bytes"),
    ("deliver/resolver.rs", "NAMES_MAX", "8192 names known"),
    ("deliver/request.rs", "URL_BYTES_MAX", "endpoints of 8192 bytes"),
    ("deliver/request.rs", "VALUE_BYTES_MAX", "headers of events 2048 bytes"),
    ("deliver/shown_head.rs", "SHOWN_HEAD_BYTES_MAX", "2048 bytes of the heads of a failed \
        request"),
    ("deliver/resource/kafka/client.rs", "RETRIES_MAX", "which Kafka's client repeats for 2 s"),
    ("deliver/resource/kafka/protocol.rs", "RESPONSE_BYTES_MAX", "responses of 16 MiB from a Kafka \
        broker"),
    ("deliver/resource/sqs.rs", "RESPONSE_BYTES_MAX", "of 32 KiB from SQS"),
    ("deliver/resource/mod.rs", "BATCH_BYTES_MAX", "500 events and 900 KiB in a request to Kafka, \
        NATS and AMQP brokers"),
    ("deliver/resource/mod.rs", "BATCH_EVENTS_MAX", "500 events and 900 KiB in a request to Kafka, \
        NATS and AMQP brokers"),
    ("deliver/resource/mod.rs", "RESOURCE_ID_BYTES_MAX", "`resourceId` of 1024 bytes"),
    ("deliver/resource/service_bus.rs", "BATCH_BYTES_MAX", "100 events and 192 KiB in a request to \
        Service Bus"),
    ("deliver/resource/service_bus.rs", "BATCH_EVENTS_MAX", "100 events and 192 KiB in a request \
        to Service Bus"),
    ("deliver/resource/sqs.rs", "ATTRIBUTES_MAX", "with 10 attributes each"),
    ("deliver/resource/sqs.rs", "BATCH_BYTES_MAX", "10 events and 224 KiB in a request to SQS"),
    ("deliver/resource/sqs.rs", "BATCH_EVENTS_MAX", "10 events and 224 KiB in a request to SQS"),
    ("deliver/resource/storage_queue.rs", "EVENT_BYTES_MAX", "events of 48 KiB in a storage queue"),
    ("deliver/signature.rs", "SECRETS_MAX", "10 signing secrets"),
    ("deliver/response_head.rs", "HEAD_BYTES_MAX", "responses with heads of 128 KiB"),
    ("deliver/socket.rs", "INTERIM_BYTES_MAX", "1 MiB of interim responses"),
    ("deliver/response.rs", "BODY_BYTES_MAX", "4096 bytes of the body are kept"),
    ("deliver/response.rs", "DRAINED_BYTES_MAX", "64 KiB read"),
    ("deliver/webhook.rs", "LATE_REQUESTS_MAX", "`limits.late_requests` of a thread"),
    ("subscription/event_feed.rs", "BYTES_MAX", "8 MiB of events and outcomes kept for slow \
        readers"),
    ("subscription/event_feed.rs", "SUBSCRIBERS_MAX", "32 readers of `tail`"),
    ("journal/id_lookups.rs", "IDS_MAX", "8192 ids looked up together"),
    ("journal/writer/duplicates.rs", "RECENT_MAX", "the last 32,768 ids in memory"),
    ("policy/subscription/pending_write.rs", "WRITE_CHANGES_MAX", "results wait behind 4096 \
        changes in a write"),
    ("engine/insight/event_finder.rs", "EVENTS_MAX", "4096 events, 16 MiB of the log"),
    ("engine/insight/event_finder.rs", "LOG_BYTES_MAX", "4096 events, 16 MiB of the log"),
    ("engine/insight/trace.rs", "LINES_MAX", "1000 lines of a delivery history"),
    ("journal/partition_state.rs", "CARRY_MAX", "1024 events carried or removed at a time"),
    ("journal/reader/event_records.rs", "DEAD_MAX", "10,000 dead letters"),
    ("journal/writer/maintenance.rs", "ENDED_MAX", "the last 50 that ended"),
    ("journal/writer/maintenance.rs", "REAP_MAX", "1024 events carried or removed at a time"),
    ("journal/writer/mod.rs", "GROUP_MAX", "4096 appends in a group"),
    ("journal/writer/outcomes.rs", "OUTCOMES_MAX", "1024 outcomes that wait for others"),
    ("journal/writer/trim.rs", "INTERVAL_MAX", "every log at least every 60 s"),
    ("journal/writer/trim.rs", "LOOKUPS_MAX", "64 logs examined for trimming at a time"),
    ("policy/dead_letter_store.rs", "PART_BYTES_MAX", "segments of a file's name 200 bytes"),
    ("policy/dead_letter_store.rs", "PATH_BYTES_MAX", "paths in addresses 512 bytes"),
    ("policy/backup.rs", "RETRY_MAX", "a failed backup tried again within 10 minutes"),
    ("policy/edition.rs", "WAITS_MAX", "retry schedules of 50 waits"),
    ("policy/endpoint/cap.rs", "PATIENCE_MAX", "6400 requests before a concurrency limit grows"),
    ("policy/explain/forecast.rs", "FORECAST_ATTEMPTS_MAX", "100 predicted attempts"),
    ("policy/filter/number.rs", "EXPONENT_MAX", "exponents of 2^61"),
    ("policy/filter/view.rs", "SEEN_MAX", "displayed values 200 characters"),
    ("policy/property.rs", "NAME_BYTES_MAX", "names of 128 bytes"),
    ("policy/property.rs", "PROPERTIES_MAX", "10 delivery properties"),
    ("policy/property.rs", "VALUE_BYTES_MAX", "values of 4096 bytes"),
    ("policy/record/job.rs", "JOBS_MAX", "8 jobs of a subscription at once"),
    ("policy/subscription/excerpt.rs", "KEPT_MAX", "16 different responses of an endpoint in a \
        minute"),
    ("policy/subscription/excerpt.rs", "CONTENT_BYTES_MAX", "4096 bytes of the body are kept"),
    ("policy/subscription/jobs/mod.rs", "PENDING_MAX", "8192 pending events of a job"),
    ("policy/subscription/ordering.rs", "LANE_WAITING_MAX", "256 events or 1 MiB of a lane behind \
        events in flight"),
    ("policy/subscription/pending_write.rs", "CHANGES_MAX", "8192 changes"),
    ("policy/subscription/pending_write.rs", "FILTERED_MAX", "4096 filtered events"),
    ("policy/subscription/pending_write.rs", "GIVEN_UP_MAX", "1024 given up"),
    ("policy/subscription/pending_write.rs", "FINISHED_MAX", "1024 outcomes"),
    ("policy/subscription/pending_write.rs", "RUNS_MAX", "1024 runs"),
    ("policy/transform.rs", "BOUND_BYTES_MAX", "intermediate values of 32 MiB"),
    ("policy/transform.rs", "OPERATORS_MAX", "512 brackets and operators"),
    ("policy/transform.rs", "PATH_BYTES_MAX", "path suffixes of 2048 bytes"),
    ("policy/transform.rs", "RESULT_BYTES_MAX", "their results of 1 MiB"),
    ("policy/transform.rs", "SOURCE_BYTES_MAX", "expressions of a transformation 16 KiB"),
    ("policy/transform/bound.rs", "STEP_MAX", "steps of 1,000,000"),
    ("policy/validation.rs", "SHOWN_CHARS_MAX", "an endpoint's message 100 characters"),
    ("publish/encoding.rs", "ZSTD_WINDOW_LOG_MAX", "zstd windows of 8 MiB"),
    ("publish/auth/bearer.rs", "KEYS_MAX", "keys of the issuer 100 in 256 KiB"),
    ("publish/auth/bearer.rs", "TOKEN_BYTES_MAX", "access tokens 16 KiB"),
    ("publish/auth/sas.rs", "TOKEN_BYTES_MAX", "SAS tokens 8 KiB"),
    ("publish/refusal/mod.rs", "NAME_BYTES_MAX", "names in messages 128 bytes"),
    ("publish/schema/cloud_events.rs", "NAMESPACE_NAME_CHARS_MAX", "CloudEvents extensions in a \
        namespace 20"),
    ("pull/body.rs", "TOKENS_MAX", "100 lock tokens in a request of 64 KiB"),
    ("repair/backup/repository.rs", "OWNER_MAX", "the owner of a destination 4 KiB"),
    ("repair/backup/pace.rs", "PAUSE_MAX", "pauses of 100 ms in a backup"),
    ("repair/backup/manifest.rs", "MANIFEST_MAX", "manifests of 64 MiB"),
    ("repair/fsck.rs", "REPAIRS_MAX", "8192 records repaired in one pass"),
    ("repair/fsck/report.rs", "FINDINGS_MAX", "100 findings of fsck"),
    ("repair/salvage/loss.rs", "LISTED_MAX", "1000 entries for each kind of loss"),
    ("repair/salvage/rewind.rs", "DONE_MAX", "524,288 known outcomes of a cursor"),
    ("server/descriptors.rs", "REFUSALS_MAX", "256 connections over the limit receive a response \
        at a time"),
    ("server/issuer.rs", "KEYS_BYTES_MAX", "keys of the issuer 100 in 256 KiB"),
    ("server/router/parts.rs", "MERGED_BYTES_MAX", "responses of shards of 64 MiB that are merged"),
    ("server/router/parts.rs", "RESPONSE_WAIT_MAX", "30 s for a response that needs every shard"),
    ("server/router/parts.rs", "PART_MAX", "3 s for a shard that a response may omit"),
    ("server/router/owner.rs", "OWNER_RESPONSE_MAX", "5 s for a response of an owner to another node"),
    ("server/router/identity.rs", "CALLERS_MAX", "1000 callers known to a thread"),
    ("server/router/identity.rs", "STALE_MAX", "for 10 s while the control plane cannot be \
        reached"),
    ("server/router/topics.rs", "FOLLOW_MAX", "10 s for the owner of a shard to follow a change"),
    ("server/control_copy.rs", "WAIT_MAX", "of which 5 s at a time"),
    ("server/control_copy.rs", "SHARED_CATCH_UP_MAX", "1 s until a node that knows no such namespace \
        has the newest ones"),
    ("server/router/polls.rs", "LOOK_MAX", "1 s for a look at a node by a client that pulls from a spread topic"),
    ("pull/poll.rs", "LOOK_MAX", "of which 250 ms for each part"),
    ("server/router/ended_polls.rs", "POLLS_MAX", "1000 receive requests ended by one request"),
    ("pull/polls.rs", "EARLY_MAX", "10,000 ended receive requests"),
    ("pull/polls.rs", "LATE_MAX", "that may still arrive within 5 s"),
    ("server/router/streams.rs", "WAITING_MAX", "16 pieces of `tail` that wait for a slow reader"),
    ("admin/merge/reports.rs", "LINES_MAX", "10,000 lines of `top` from a shard"),
    ("server/node/mod.rs", "DRAIN_MAX", "an owner waits 5 s for requests in flight"),
    ("server/node/end_guard.rs", "END_MAX", "it stops within 30 s"),
    ("server/node/mod.rs", "PAUSE_MAX", "pauses of 250 ms between attempts to reach the changelog"),
    ("store/damage.rs", "KEY_MAX", "between keys of 48 bytes"),
    ("store/faults.rs", "STALL_MAX", "a write stalled for 60 s"),
    ("store/id_filter.rs", "BLOCKS_MAX", "1024 blocks of event ids per lookup"),
    ("store/id_filter.rs", "OPEN_MAX", "4096 open blocks of event ids"),
    ("store/log/walk.rs", "CHUNK_EVENTS_MAX", "8192 events of the log back"),
    ("store/log/walk.rs", "LOOKUPS_MAX", "16,384 events forward"),
    ("store/records/cursor.rs", "OPEN_MAX", "1,048,576 open ranges in a cursor"),
    ("policy/record/cursor.rs", "OPEN_EVENTS_MAX", "262,144 events in flight of a lane"),
    ("policy/subscription/log.rs", "DONE_READ_MAX", "786,432 events with an outcome ahead of it"),
    ("subscription/actor.rs", "TIMER_MAX", "timers 60 s"),
    ("subscription/plan.rs", "RECEIVED_MAX", "100 events and 4 MiB in a response"),
    ("subscription/shared_state/suspects.rs", "PANICS_MAX", "3 panics of an actor for one event"),
    ("subscription/shared_state/suspects.rs", "SUSPECTS_MAX", "panics of 1024 events remembered"),
    ("subscription/shared_state/late_requests.rs", "LATE_REQUESTS_MAX", "64 late requests of a \
        subscription"),
    ("subscription/spans.rs", "LINKS_MAX", "32 links of a span"),
    ("engine/supervision/mod.rs", "DELAY_MAX", "a failing actor's restart 10 s"),
    ("telemetry/trace/context.rs", "STATE_BYTES_MAX", "512 bytes of a tracestate"),
    ("telemetry/trace/export.rs", "BATCH_SPANS_MAX", "512 spans in a request"),
    ("telemetry/trace/span.rs", "TEXT_BYTES_MAX", "256 bytes of a text attribute"),
];

/// Limits of commands, which only the operator who runs them can reach.
const OUR_OWN: [&str; 2] = ["cli/", "simulate/"];

/// The constants of a source that are bounds.
fn bounds(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let (before, rest) = line.trim_start().split_once("const ")?;
        let (name, _) = rest.split_once(": ")?;
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        (plain && name.ends_with("_MAX") && (before.is_empty() || before.starts_with("pub")))
            .then(|| name.to_owned())
    });
    names.collect()
}

fn look(folder: &Path, root: &Path, missing: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            look(&path, root, missing);
            continue;
        }
        // Pictures are no text.
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = path
            .strip_prefix(root)
            .expect("it is below")
            .display()
            .to_string();
        if !name.ends_with(".rs") || OUR_OWN.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        for bound in bounds(&fs::read_to_string(&path).expect("a source")) {
            if !LISTED
                .iter()
                .any(|(file, listed, _)| *file == name && *listed == bound)
            {
                missing.push(format!("{bound} of src/{name}"));
            }
        }
    }
}

#[test]
fn every_bound_in_the_sources_is_listed_in_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    look(&root, &root, &mut missing);
    assert!(
        missing.is_empty(),
        "say in src/manual/settings.md what these limit, and name them in tests/abuse/listed.rs: \
         {missing:#?}"
    );
    let list = manual::find("settings").expect("the chapter").markdown;
    let unsaid: Vec<_> = LISTED
        .iter()
        .filter(|(_, _, words)| !list.contains(words))
        .collect();
    assert!(
        unsaid.is_empty(),
        "src/manual/settings.md does not say {unsaid:#?}"
    );
}

#[test]
fn the_look_finds_a_bound() {
    let text = "/// const OLD_MAX: u8 = 1;\npub(super) const NEW_MAX: usize = 3;\nconst OTHER: u8 \
        = 1;\nfn f<const N_MAX: u8>() {}\n";
    assert_eq!(bounds(text), ["NEW_MAX"]);
}
