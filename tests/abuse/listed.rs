//! The list of bounds at `[limits]` in the settings is complete: every constant of the sources that ends in `_MAX` stands in
//! the table below with the words that the list has for it.

use std::{fs, path::Path};

use gridhook::config::DEFAULTS;

#[rustfmt::skip]
const LISTED: [(&str, &str, &str); 107] = [
    ("deliver/dial.rs", "ADDRESSES_MAX", "16 addresses of a name"),
    ("deliver/names.rs", "NAMES_MAX", "8192 names known"),
    ("deliver/socket.rs", "INTERIM_MAX", "16 interim answers of 16 KiB"),
    ("deliver/socket.rs", "INTERIM_BYTES_MAX", "16 interim answers of 16 KiB"),
    ("deliver/webhook.rs", "DRAINED_BYTES_MAX", "64 KiB read"),
    ("pull/body.rs", "TOKENS_MAX", "100 lock tokens in a request of 64 KiB"),
    ("publish/schema/cloud_events.rs", "NAMESPACE_NAME_CHARS_MAX", "of a CloudEvent in a namespace 20"),
    ("subscription/plan.rs", "RECEIVED_MAX", "100 events and 4 MiB in an answer"),
    ("control/record/subscription.rs", "LOCK_SECONDS_MAX", "locks of 300 s"),
    ("server/issuer.rs", "KEYS_BYTES_MAX", "keys of the issuer 100 in 256 KiB"),
    ("server/descriptors.rs", "TOLD_MAX", "256 of those who find no place are told so at a time"),
    ("admin/model/odata.rs", "DEPTH_MAX", "$filter 32 levels deep"),
    ("admin/model/topic.rs", "PLACE_BYTES_MAX", "resource groups 90 of 200 bytes"),
    ("policy/dead_letter_store.rs", "PATH_BYTES_MAX", "paths in addresses 512 bytes"),
    ("admin/model/topic/ingress.rs", "RULES_MAX", "128 inboundIpRules"),
    ("admin/model/topic/ingress.rs", "TEXT_MAX", "512 characters in each entry of a mapping"),
    ("admin/model/subscription/test.rs", "LAST_MAX", "testFilter with 1000 events"),
    ("admin/auth.rs", "TOKEN_LEN_MAX", "the admin token's file 4 KiB"),
    ("admin/arm/list.rs", "TOP_MAX", "pages of 100"),
    ("admin/arm/mod.rs", "BODY_BYTES_MAX", "bodies of 256 KiB within 10 s"),
    ("store/records/cursor.rs", "OPEN_MAX", "1,048,576 open ranges in a cursor"),
    ("journal/partition_state.rs", "CARRY_MAX", "carried and reaped 1024 at a time"),
    ("journal/writer/trim.rs", "LOOKUPS_MAX", "64 logs looked at to be trimmed at a time"),
    ("journal/writer/trim.rs", "INTERVAL_MAX", "every log at least every 60 s"),
    ("declared/expression.rs", "RESULTS_BYTES_MAX", "results of calls of 4 MiB in a template"),
    ("store/log/walk.rs", "CHUNK_EVENTS_MAX", "back by 8192 events of the log"),
    ("store/log/walk.rs", "LOOKS_MAX", "on by 16,384 events"),
    ("store/damage.rs", "KEY_MAX", "between keys of 48 bytes"),
    ("store/id_filter.rs", "OPEN_MAX", "4096 blocks of ids in the making"),
    ("store/id_filter.rs", "BLOCKS_MAX", "1024 blocks of ids"),
    ("policy/subscription/excerpt.rs", "SAID_MAX", "4096 bytes of an answer"),
    ("policy/subscription/excerpt.rs", "KEPT_MAX", "16 different answers in a minute"),
    ("control/filter_versions.rs", "KEPT_MAX", "64 versions of a filter"),
    ("control/filter_versions.rs", "ENDED_MAX", "4096 of deleted event subscriptions"),
    ("admin/dead_letters.rs", "TOP_MAX", "1000 dead letters on a page"),
    ("dead_letter/purge.rs", "STEPS_MAX", "64 steps in a call"),
    ("dead_letter/browse.rs", "STEPS_MAX", "64 steps in a call"),
    ("dead_letter/browse/walk.rs", "FILE_BYTES_MAX", "files of 64 MiB"),
    ("dead_letter/browse.rs", "PROBLEMS_MAX", "100 problems told"),
    ("dead_letter/event.rs", "DEAD_LETTERS_MAX", "100,000 letters of a file"),
    ("journal/writer/maintenance.rs", "ENDED_MAX", "the last 50 that ended"),
    ("policy/record/job.rs", "JOBS_MAX", "8 of a subscription at once"),
    ("policy/subscription/jobs/mod.rs", "PENDING_MAX", "8192 events owed for one"),
    ("journal/reader/event_records.rs", "DEAD_MAX", "10,000 dead letters"),
    ("repair/fsck/report.rs", "FINDINGS_MAX", "what fsck finds 100 lines"),
    ("repair/fsck.rs", "REPAIRS_MAX", "8192 records mended by one look"),
    ("repair/salvage/loss.rs", "LISTED_MAX", "1000 of each kind that is lost"),
    ("repair/salvage/rewind.rs", "DONE_MAX", "524,288 known outcomes of a cursor"),
    ("repair/backup/pace.rs", "PAUSE_MAX", "rests of 100 ms"),
    ("admin/metrics/scrape.rs", "LOOKS_MAX", "256 looks at the log"),
    ("admin/store.rs", "LINES_MAX", "4 lines ahead of a slow reader"),
    ("declared/expression.rs", "DEPTH_MAX", "expressions of templates 32 levels deep"),
    ("declared/template.rs", "LEVELS_MAX", "resources in resources 4 levels"),
    ("admin/top.rs", "TOP_MAX", "500 event subscriptions told by top"),
    ("insight/event_feed.rs", "SUBSCRIBERS_MAX", "32 listeners of tail"),
    ("insight/event_feed.rs", "ITEMS_MAX", "256 writes kept for a slow one"),
    ("admin/chaos/injector.rs", "ON_MAX", "64 faults at once"),
    ("admin/chaos/body.rs", "DELAY_MAX", "responses held back for 5 minutes"),
    ("admin/chaos/body.rs", "STEP_MAX", "a clock 7 days wrong"),
    ("admin/chaos/body.rs", "WRITES_MAX", "10,000 failing writes"),
    ("store/faults.rs", "STALL_MAX", "a write stalled for 60 s"),
    ("admin/supervision.rs", "TOP_MAX", "1000 actors told by name"),
    ("admin/trace.rs", "TOP_MAX", "1000 lines of the ledger on a page"),
    ("insight/trace.rs", "LINES_MAX", "1000 lines of a story"),
    ("control/registry/trace.rs", "LOOKS_MAX", "32 looks at the log"),
    ("admin/replay.rs", "RATE_MAX", "1,000,000 events a second of a job"),
    ("journal/writer/maintenance.rs", "REAP_MAX", "carried and reaped 1024 at a time"),
    ("journal/writer/mod.rs", "GROUP_MAX", "4096 appends in a group"),
    ("policy/explain.rs", "FORECAST_MAX", "100 attempts foretold"),
    ("policy/property.rs", "PROPERTIES_MAX", "10 delivery properties"),
    ("policy/property.rs", "VALUE_BYTES_MAX", "values of 4096 bytes"),
    ("policy/property.rs", "NAME_BYTES_MAX", "names of 128 bytes"),
    ("policy/validation.rs", "SHOWN_CHARS_MAX", "an endpoint's words 100 characters"),
    ("policy/endpoint/cap.rs", "PATIENCE_MAX", "a limit's patience 6400 requests"),
    ("policy/subscription/pending_write.rs", "LANDED_MAX", "1024 outcomes"),
    ("policy/subscription/pending_write.rs", "CHANGES_MAX", "8192 changes"),
    ("policy/subscription/pending_write.rs", "FILTERED_MAX", "4096 filtered events"),
    ("policy/subscription/pending_write.rs", "GIVEN_UP_MAX", "1024 given up"),
    ("policy/subscription/pending_write.rs", "RUNS_MAX", "1024 runs"),
    ("policy/filter/number.rs", "EXPONENT_MAX", "exponents of 2^61"),
    ("policy/filter/view.rs", "SEEN_MAX", "values that are shown 200 characters"),
    ("publish/auth/sas.rs", "TOKEN_BYTES_MAX", "SAS tokens 8 KiB"),
    ("publish/auth/bearer.rs", "KEYS_MAX", "keys of the issuer 100 in 256 KiB"),
    ("publish/auth/bearer.rs", "TOKEN_BYTES_MAX", "access tokens 16 KiB"),
    ("publish/refusal/mod.rs", "NAME_BYTES_MAX", "names in messages 128 bytes"),
    ("deliver/failure.rs", "DETAIL_BYTES_MAX", "details 400 bytes"),
    ("deliver/webhook.rs", "BODY_BYTES_MAX", "4096 bytes of an answer"),
    ("deliver/webhook.rs", "SHELLS_MAX", "256 closed connections in a pool"),
    ("deliver/webhook.rs", "LATE_REQUESTS_MAX", "limits.late_requests of a thread"),
    ("deliver/request.rs", "URL_BYTES_MAX", "endpoints of 8192 bytes"),
    ("deliver/request.rs", "VALUE_BYTES_MAX", "headers of events 2048 bytes"),
    ("deliver/signature.rs", "SECRETS_MAX", "10 signing secrets"),
    ("supervision/mod.rs", "DELAY_MAX", "a dying actor's restart 10 s"),
    ("control/expiry.rs", "LOOK_MAX", "timers 60 s"),
    ("policy/dead_letter_store.rs", "PART_BYTES_MAX", "segments of a file's name 200 bytes"),
    ("dead_letter/actor.rs", "TIMER_MAX", "timers 60 s"),
    ("insight/event_finder.rs", "EVENTS_MAX", "4096 events, 16 MiB of the log"),
    ("insight/event_finder.rs", "LOG_BYTES_MAX", "4096 events, 16 MiB of the log"),
    ("subscription/shared_state.rs", "DEATHS_MAX", "an event's deaths 3"),
    ("subscription/shared_state.rs", "SUSPECTS_MAX", "known of 1024 events"),
    ("subscription/actor.rs", "TIMER_MAX", "timers 60 s"),
    ("subscription/shared_state/late_requests.rs", "LATE_REQUESTS_MAX", "64 of a subscription linger"),
    ("subscription/spans.rs", "LINKS_MAX", "32 links of a span"),
    ("telemetry/trace/context.rs", "STATE_BYTES_MAX", "512 bytes of a tracestate"),
    ("telemetry/trace/span.rs", "TEXT_BYTES_MAX", "256 bytes of a text in it"),
    ("telemetry/trace/export.rs", "BATCH_SPANS_MAX", "512 spans in a request"),
    ("control/validation.rs", "DELETION_NOTICES_MAX", "64 at a time, each of 10 s"),
];

/// Not held by anybody else's doing: an operator's own commands, and how deep the data folder is looked into.
const OUR_OWN: [&str; 3] = ["cli/", "simulate/", "server/private.rs"];

/// The constants of a source that are bounds.
fn bounds(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let (before, rest) = line.trim_start().split_once("const ")?;
        let (name, _) = rest.split_once(": ")?;
        let plain = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        (plain && name.ends_with("_MAX") && (before.is_empty() || before.starts_with("pub"))).then(|| name.to_owned())
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
        let name = path.strip_prefix(root).expect("it is below").display().to_string();
        if OUR_OWN.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        for bound in bounds(&fs::read_to_string(&path).expect("a source")) {
            if !LISTED.iter().any(|(file, listed, _)| *file == name && *listed == bound) {
                missing.push(format!("{bound} of src/{name}"));
            }
        }
    }
}

#[test]
fn every_bound_in_the_sources_is_listed_in_the_settings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    look(&root, &root, &mut missing);
    assert!(
        missing.is_empty(),
        "say in the list at [limits] in config/gridhook.toml what these bound, and name them in tests/abuse/listed.rs: {missing:#?}"
    );
    // The list is a comment of many lines: words, with single spaces.
    let list: String = DEFAULTS.lines().map(|line| line.trim_start_matches('#').trim().to_owned() + " ").collect();
    let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
    let unsaid: Vec<_> = LISTED.iter().filter(|(_, _, words)| !list.contains(words)).collect();
    assert!(unsaid.is_empty(), "the list at [limits] in config/gridhook.toml does not say {unsaid:#?}");
}

#[test]
fn the_look_finds_a_bound() {
    let text = "/// const OLD_MAX: u8 = 1;\npub(super) const NEW_MAX: usize = 3;\nconst OTHER: u8 = 1;\nfn f<const N_MAX: u8>() {}\n";
    assert_eq!(bounds(text), ["NEW_MAX"]);
}
