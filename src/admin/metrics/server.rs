//! The metric families of topics, the journal and its store, listeners, publishers and the process.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Exposition,
    figures::ends_by_cause,
    scrape::{Scrape, TopicFigures, list_limits},
};
use gridhook_event::Timestamp;
use gridhook_journal as journal;
use gridhook_metrics::{
    ListenerCounters,
    text::{MetricFamily, MetricKind, MetricsText, SampleValue},
};
use gridhook_repair::backup::BackupCounts;
use gridhook_store::figures::{FamilyFigures, StoreFigures};

pub(super) const fn counter(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Counter,
        help,
    }
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Gauge,
        help,
    }
}

pub(super) const fn histogram(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Histogram,
        help,
    }
}

/// Adds a family with one sample without labels.
pub(super) fn push_sample(
    text: &mut MetricsText,
    family: MetricFamily,
    value: impl Into<SampleValue>,
) {
    text.start_family(family);
    text.add_sample(&[], value);
}

pub(super) fn write_server_families(
    text: &mut MetricsText,
    exposition: &Exposition,
    scrape: &Scrape,
) {
    write_server(
        text,
        exposition
            .sources
            .ready
            .as_ref()
            .is_none_or(|ready| ready()),
    );
    push_sample(
        text,
        gauge("gridhook_topics", "Number of topics and domains."),
        scrape.topics_there,
    );
    text.start_family(gauge(
        "gridhook_metrics_named_limit",
        "Maximum number of topics or event subscriptions with series of their own.",
    ));
    for (of, most) in list_limits(exposition.bounds) {
        text.add_sample(&[("of", of)], most);
    }
    push_topics(text, &scrape.topics);
    push_publishers(text, exposition);
    push_listeners(text, &exposition.sources.listeners);
    if let Some(ends) = &exposition.sources.certificates {
        push_certificates(text, &ends());
    }
    if let Some(spans) = &exposition.sources.spans {
        text.start_family(counter(
            "gridhook_trace_spans_total",
            "Spans by result, since the process started.",
        ));
        spans()
            .into_iter()
            .for_each(|(end, count)| text.add_sample(&[("end", end)], count));
    }
    if let Some((counts, interval)) = exposition
        .sources
        .backups
        .as_ref()
        .and_then(|backups| backups())
    {
        push_backups(text, &counts, interval);
    }
    if let Some(events) = &exposition.sources.system_events {
        text.start_family(counter(
            "gridhook_system_events_total",
            "Events about the server by result, since the process started.",
        ));
        events
            .event_counts()
            .into_iter()
            .for_each(|(result, count)| text.add_sample(&[("result", result)], count));
    }
    if let Some(sockets) = &exposition.sources.sockets {
        let (free, waiting) = sockets();
        push_sample(
            text,
            gauge(
                "gridhook_delivery_free_requests",
                "Further requests to endpoints that the file descriptors allow.",
            ),
            free,
        );
        push_sample(
            text,
            gauge(
                "gridhook_delivery_waiting_subscriptions",
                "Event subscriptions that wait for a file descriptor to send a request.",
            ),
            waiting,
        );
    }
    if let Some(clock) = &exposition.sources.clock {
        let time = clock.now();
        let wall = clock.wall_time();
        let ahead = wall.seconds_ahead_of(time);
        push_sample(
            text,
            gauge(
                "gridhook_clock_wall_ahead_seconds",
                "Seconds by which the machine's clock is ahead of the server's clock; negative if \
                 it is behind.",
            ),
            ahead,
        );
        push_sample(
            text,
            gauge(
                "gridhook_clock_expiry_paused",
                "Whether expiry is paused because the machine's clock jumped.",
            ),
            clock.expiry_is_paused(),
        );
    }
    if let Some(cluster) = &exposition.sources.cluster {
        super::cluster::write_cluster(text, cluster);
    }
    if let Some((state, figures)) = &scrape.journal {
        push_journal(text, *state, figures);
    }
    push_process(text, scrape);
}

/// Writes the number of event subscriptions by condition.
pub(super) fn write_conditions(text: &mut MetricsText, counts: &BTreeMap<String, usize>) {
    text.start_family(gauge(
        "gridhook_event_subscriptions",
        "Number of event subscriptions by condition, as top reports it.",
    ));
    for (condition, count) in counts {
        text.add_sample(&[("condition", condition)], *count as u64);
    }
}

/// Writes what every server has, also one without a store.
pub(super) fn write_server(text: &mut MetricsText, ready: bool) {
    text.start_family(gauge(
        "gridhook_build_info",
        "1, with the version of the server.",
    ));
    text.add_sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
    push_sample(
        text,
        gauge(
            "gridhook_ready",
            "Whether events are accepted, as /readyz reports it.",
        ),
        ready,
    );
}

fn push_topics(text: &mut MetricsText, topics: &[TopicFigures]) {
    type Of = fn(&TopicFigures) -> u64;
    #[rustfmt::skip]
    let ones: [(MetricFamily, Of); 7] = [
        (counter("gridhook_topic_published_events_total", "Acknowledged events."), |topic| topic.sums.events),
        (counter("gridhook_topic_published_bytes_total", "Bytes of acknowledged events in the \
            log."), |topic| topic.sums.bytes),
        (counter("gridhook_topic_unmatched_events_total", "Events that matched no filter, since \
            the process started."), |topic| topic.sums.publishing.unmatched),
        (counter("gridhook_topic_duplicate_events_total", "Events that were acknowledged and not \
            stored, because their ids were published within the window of duplicate detection, \
            since the process started."), |topic| topic.sums.publishing.duplicates),
        (counter("gridhook_topic_nonconforming_events_total", "Events that were stored although \
            their data does not match the schema of their type, since the process started."),
            |topic| topic.sums.publishing.nonconforming),
        (gauge("gridhook_topic_subscriptions", "Number of event subscriptions."), |topic| topic.subscriptions),
        (gauge("gridhook_topic_backlog_full", "Whether publishes are refused because the backlog \
            has reached journal.backlog_max."), |topic| topic.full),
    ];
    for (family, of) in ones {
        text.start_family(family);
        topics
            .iter()
            .for_each(|topic| text.add_sample(&[("topic", &topic.name)], of(topic)));
    }
    text.start_family(counter(
        "gridhook_topic_refused_requests_total",
        "Refused publish requests by status and error code, since the process started.",
    ));
    for topic in topics {
        for (refused, requests) in &topic.sums.publishing.refused {
            let labels = [
                ("topic", &*topic.name),
                ("status", &refused.status.to_string()),
                ("code", refused.code),
            ];
            text.add_sample(&labels, *requests);
        }
    }
    text.start_family(counter(
        "gridhook_topic_restarts_total",
        "Restarts of the actor by the end of the previous incarnation, since the process started.",
    ));
    for topic in topics {
        for (end, times) in ends_by_cause(topic.sums.ends) {
            text.add_sample(&[("topic", &topic.name), ("end", end)], times);
        }
    }
    text.start_family(histogram(
        "gridhook_topic_publish_seconds",
        "Duration of acknowledged publish requests, including the body and the disk sync, since \
         the process started.",
    ));
    for topic in topics {
        text.add_histogram(&[("topic", &topic.name)], &topic.sums.publishing.latency);
    }
}

fn push_publishers(text: &mut MetricsText, exposition: &Exposition) {
    let Some(publisher) = &exposition.sources.publisher else {
        return;
    };
    text.start_family(counter(
        "gridhook_publish_unknown_topic_requests_total",
        "Publish requests for unknown topics, since the process started.",
    ));
    for (refused, requests) in &publisher.unknown_topic_counts().refused {
        text.add_sample(
            &[
                ("status", &refused.status.to_string()),
                ("code", refused.code),
            ],
            *requests,
        );
    }
    let (used, most) = publisher.bytes_in_flight();
    push_sample(
        text,
        gauge(
            "gridhook_publish_in_flight_bytes",
            "Bytes of publish requests that are being read or wait for the disk.",
        ),
        used,
    );
    push_sample(
        text,
        gauge(
            "gridhook_publish_in_flight_limit_bytes",
            "Limit of these bytes (publish.bytes_in_flight); publishers are refused beyond it.",
        ),
        most,
    );
}

pub(super) fn push_listeners(
    text: &mut MetricsText,
    listeners: &[std::sync::Arc<ListenerCounters>],
) {
    type Of = fn(&ListenerCounters) -> u64;
    #[rustfmt::skip]
    let ones: [(MetricFamily, Of); 2] = [
        (gauge("gridhook_http_open_connections", "Open connections."), |listener| listener.open.get()),
        (counter("gridhook_http_admitted_connections_total", "Accepted connections."),
            |listener| listener.admitted.get()),
    ];
    for (family, of) in ones {
        text.start_family(family);
        listeners
            .iter()
            .for_each(|listener| text.add_sample(&[("listener", listener.name)], of(listener)));
    }
    text.start_family(counter(
        "gridhook_http_refused_connections_total",
        "Refused connections, by the limit that was reached: all connections, or those of one \
         address.",
    ));
    for listener in listeners {
        text.add_sample(
            &[("listener", listener.name), ("limit", "all")],
            listener.refused.get(),
        );
        text.add_sample(
            &[("listener", listener.name), ("limit", "address")],
            listener.refused_by_address.get(),
        );
    }
    text.start_family(counter(
        "gridhook_http_responses_total",
        "Responses by status class.",
    ));
    for listener in listeners {
        for (class, responses) in listener.responses() {
            text.add_sample(
                &[("listener", listener.name), ("code", &format!("{class}xx"))],
                responses,
            );
        }
    }
}

pub(super) fn push_certificates(text: &mut MetricsText, ends: &BTreeMap<String, Timestamp>) {
    text.start_family(gauge(
        "gridhook_certificate_not_after_timestamp_seconds",
        "End of a certificate that the server shows, in seconds since 1970.",
    ));
    ends.iter()
        .for_each(|(file, end)| text.add_sample(&[("file", file)], end.0 / 1_000_000));
}

fn push_journal(
    text: &mut MetricsText,
    state: journal::JournalState,
    figures: &journal::figures::JournalFigures,
) {
    let writable = state == journal::JournalState::Writable;
    push_sample(
        text,
        gauge(
            "gridhook_journal_writable",
            "Whether the journal can be written.",
        ),
        writable,
    );
    let help =
        "Time to write and sync a group; each publish waits for one. Since the process started.";
    text.start_family(histogram("gridhook_journal_sync_seconds", help));
    text.add_histogram(&[], &figures.sync);
    text.start_family(histogram(
        "gridhook_journal_group_entries",
        "Entries in a group, which share one sync, since the process started.",
    ));
    text.add_histogram(&[], &figures.group);
    let panics = counter(
        "gridhook_journal_read_panics_total",
        "Reads that panicked, since the process started.",
    );
    push_sample(text, panics, figures.read_panics);
    push_damage(text, figures);
    if let Some(figures) = &figures.store {
        push_store(text, figures);
    }
}

fn push_damage(text: &mut MetricsText, figures: &journal::figures::JournalFigures) {
    let damage = &figures.damage;
    let scrubbed = figures.scrubbed;
    #[rustfmt::skip]
    let ones: [(MetricFamily, u64); 4] = [
        (gauge("gridhook_store_lost_events", "Events of the log that cannot be read because a \
            table is damaged."), damage.lost_events()),
        (gauge("gridhook_store_damaged_families", "Column families with a damaged table."),
            damage.families.len() as u64),
        (counter("gridhook_store_scrubbed_bytes_total", "Bytes of records read to find damage, \
            since the process started."), scrubbed.bytes),
        (counter("gridhook_store_scrub_passes_total", "Complete reads of all tables to find \
            damage, since the process started."), scrubbed.passes),
    ];
    for (family, value) in ones {
        push_sample(text, family, value);
    }
}

fn push_backups(text: &mut MetricsText, counts: &BackupCounts, interval: Option<Duration>) {
    let last = counts
        .last_success
        .map(|last| SampleValue::from(last.0 as f64 / 1e6));
    let interval = interval.map(|interval| SampleValue::from(interval.as_secs_f64()));
    let made = counts.duration > Duration::ZERO;
    let of_last = |value: SampleValue| made.then_some(value);
    #[rustfmt::skip]
    let ones: [(MetricFamily, Option<SampleValue>); 6] = [
        (gauge("gridhook_backup_last_success_timestamp_seconds", "Time of the newest sound backup \
            at the destination, in seconds since 1970."), last),
        (gauge("gridhook_backup_interval_seconds", "Interval of backup.schedule."), interval),
        (gauge("gridhook_backup_duration_seconds", "Time that the last backup took."),
            of_last(counts.duration.as_secs_f64().into())),
        (gauge("gridhook_backup_bytes", "Bytes of the files of the last backup."), of_last(counts.bytes.into())),
        (gauge("gridhook_backup_written_bytes", "Bytes that the last backup wrote to the \
            destination."), of_last(counts.written_bytes.into())),
        (counter("gridhook_backup_failures_total", "Backups that failed, were damaged, or could \
            not remove expired ones, since the process started."), Some(counts.failures.into())),
    ];
    for (family, value) in ones {
        if let Some(value) = value {
            push_sample(text, family, value);
        }
    }
}

fn push_store(text: &mut MetricsText, figures: &StoreFigures) {
    if let Some(free) = figures.free_bytes {
        push_sample(
            text,
            gauge(
                "gridhook_store_disk_free_bytes",
                "Free bytes on the disk of the store.",
            ),
            free,
        );
    }
    let stall_seconds = figures.stalled_micros as f64 / 1e6;
    #[rustfmt::skip]
    let ones: [(MetricFamily, SampleValue); 14] = [
        (counter("gridhook_rocksdb_wal_syncs_total", "Syncs of the write-ahead log."), figures.wal_syncs.into()),
        (counter("gridhook_rocksdb_wal_written_bytes_total", "Bytes written to the write-ahead \
            log."), figures.wal_bytes.into()),
        (counter("gridhook_rocksdb_stalled_seconds_total", "Time that writes waited for flushes \
            and compactions."), stall_seconds.into()),
        (gauge("gridhook_rocksdb_write_stopped", "Whether writes are stopped."), figures.is_stopped.into()),
        (gauge("gridhook_rocksdb_write_delayed_bytes_per_second", "Current write rate limit in \
            bytes a second; 0: no limit."), figures.delayed_bytes_per_second.into()),
        (counter("gridhook_rocksdb_compaction_read_bytes_total", "Bytes read by compactions."),
            figures.compaction_read_bytes.into()),
        (counter("gridhook_rocksdb_compaction_written_bytes_total", "Bytes written by \
            compactions."), figures.compaction_written_bytes.into()),
        (counter("gridhook_rocksdb_flush_written_bytes_total", "Bytes written by flushes."),
            figures.flush_written_bytes.into()),
        (gauge("gridhook_rocksdb_running_compactions", "Running compactions."), figures.compactions_running.into()),
        (gauge("gridhook_rocksdb_running_flushes", "Running flushes."), figures.flushes_running.into()),
        (counter("gridhook_rocksdb_background_errors_total", "Errors of background jobs of \
            RocksDB."), figures.background_errors.into()),
        (gauge("gridhook_rocksdb_block_cache_used_bytes", "Bytes used by the block cache."),
            figures.cache_used_bytes.into()),
        (gauge("gridhook_rocksdb_block_cache_capacity_bytes", "Capacity of the block cache in \
            bytes."), figures.cache_capacity_bytes.into()),
        (counter("gridhook_rocksdb_block_cache_hits_total", "Blocks found in the block cache."),
            figures.cache_hits.into()),
    ];
    for (family, value) in ones {
        push_sample(text, family, value);
    }
    let misses = counter(
        "gridhook_rocksdb_block_cache_misses_total",
        "Blocks not found in the block cache and read from disk.",
    );
    push_sample(text, misses, figures.cache_misses);
    type Of = fn(&FamilyFigures) -> u64;
    #[rustfmt::skip]
    let of_families: [(MetricFamily, Of); 5] = [
        (gauge("gridhook_rocksdb_table_bytes", "Bytes of the table files of a column family."),
            |family| family.table_bytes),
        (gauge("gridhook_rocksdb_tables", "Table files of a column family."), |family| family.tables),
        (gauge("gridhook_rocksdb_memtable_bytes", "Bytes of the memtables of a column family."),
            |family| family.memtable_bytes),
        (gauge("gridhook_rocksdb_estimated_keys", "Estimated number of records of a column \
            family."), |family| family.keys),
        (gauge("gridhook_rocksdb_pending_compaction_bytes", "Estimated bytes of a column family \
            that wait for compaction."), |family| family.pending_compaction_bytes),
    ];
    for (family, of) in of_families {
        text.start_family(family);
        figures
            .families
            .iter()
            .for_each(|(name, figures)| text.add_sample(&[("family", name.name())], of(figures)));
    }
}

fn push_process(text: &mut MetricsText, scrape: &Scrape) {
    let process = &scrape.process;
    let files = |files: Option<u64>| files.map(SampleValue::from);
    #[rustfmt::skip]
    let ones: [(MetricFamily, Option<SampleValue>); 7] = [
        (counter("process_cpu_seconds_total", "Processor time used by the process, in seconds."),
            process.cpu_seconds.map(SampleValue::from)),
        (gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970."),
            process.start_time_seconds.map(SampleValue::from)),
        (gauge("process_threads", "Threads of the process."), files(process.threads)),
        (gauge("process_virtual_memory_bytes", "Virtual memory of the process."), files(process.virtual_bytes)),
        (gauge("process_resident_memory_bytes", "Resident memory of the process."), files(process.resident_bytes)),
        (gauge("process_open_fds", "Open file descriptors."), files(process.open_files)),
        (gauge("process_max_fds", "Maximum number of open file descriptors."), files(process.most_files)),
    ];
    for (family, value) in ones {
        if let Some(value) = value {
            push_sample(text, family, value);
        }
    }
}
