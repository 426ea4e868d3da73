//! W3C trace contexts, and the tracer alone. `server::otlp` tests the whole path.

use std::{ffi::OsString, io::Write, sync::Arc, time::Duration};

use parking_lot::Mutex;

use gridhook::{
    clock::Clock,
    config::{Config, LogConfig, LogFormat, SettingSources, Telemetry},
    escape,
    event::Timestamp,
    telemetry::{
        self,
        trace::{self, Span, SpanContext, SpanCounts, SpanKind, Tracer, carrier},
    },
};

use crate::support::port::ReservedPort;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn settings(variables: &[(&str, &str)]) -> Telemetry {
    let environment = variables.iter().map(|(name, value)| {
        (
            OsString::from(format!("GRIDHOOK_TELEMETRY__{name}")),
            (*value).into(),
        )
    });
    let sources = SettingSources {
        environment: environment.collect(),
        ..SettingSources::default()
    };
    Config::load(&sources).expect("settings").telemetry
}

#[test]
fn a_place_is_read_and_written_as_w3c_has_it() {
    let place = SpanContext::parse(PARENT, Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"))
        .expect("a place");
    assert_eq!(
        (place.to_traceparent().as_str(), place.is_sampled),
        (PARENT, true)
    );
    assert_eq!(
        place.state.as_deref(),
        Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    );
    assert_eq!(SpanContext::parse_stored(&place.to_stored()), Some(place));
    let later = SpanContext::parse(
        &PARENT
            .replacen("00", "cc", 1)
            .replace("-01", "-01-what-the-future-brings"),
        None,
    );
    assert_eq!(later.expect("a later version").to_traceparent(), PARENT);
    let other = SpanContext::parse(&PARENT.replace("-01", "-fe"), Some("not\nplain"))
        .expect("flags that are not ours");
    assert!(!other.is_sampled && other.state.is_none());
    for wrong in [
        "",
        "00",
        &PARENT.to_uppercase(),
        &PARENT.replacen("00", "ff", 1),
        &PARENT.replacen("00", "0x", 1),
        &format!("{PARENT}-more"),
        &PARENT[..54],
        &PARENT.replace('-', "_"),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033é1-01",
    ] {
        assert_eq!(SpanContext::parse(wrong, None), None, "{wrong}");
    }
}

#[test]
fn an_event_says_its_place_where_cloud_events_has_it() {
    let event = format!(
        "{{\"id\":\"1\",\"data\":{{\"traceparent\":\"x\"}},\"traceparent\":\"{PARENT}\",\"tracestate\":\"a=b\"}}"
    );
    let place = carrier::event_context(event.as_bytes()).expect("a place");
    assert_eq!(
        (place.to_traceparent().as_str(), place.state.as_deref()),
        (PARENT, Some("a=b"))
    );
    assert_eq!(
        carrier::first_context(format!("[{{}},{event}]").as_bytes()),
        Some(place)
    );
    for nothing in [
        "{}",
        "{\"traceparent\":5}",
        "{\"traceparent\":null}",
        "nonsense",
        "[]",
    ] {
        assert_eq!(
            carrier::event_context(nothing.as_bytes()),
            None,
            "{nothing}"
        );
    }
}

#[test]
fn nothing_is_recorded_unless_a_collector_is_named() {
    let started = trace::start(&settings(&[]), Clock::system(), "me".to_owned()).expect("settings");
    assert!(started.is_none());
    let tracer = Tracer::default();
    assert!(
        !tracer.is_on()
            && tracer
                .new_context(SpanContext::parse(PARENT, None).as_ref())
                .is_none()
            && tracer.span_counts().is_none()
    );
}

fn span(context: SpanContext) -> Span {
    Span {
        context,
        parent: None,
        name: "a span".to_owned(),
        kind: SpanKind::Internal,
        began: Timestamp(1),
        ended: Timestamp(2),
        attributes: Vec::new(),
        links: Vec::new(),
        error: None,
    }
}

#[test]
fn a_collector_that_is_not_there_costs_counted_spans_and_no_time() {
    let nobody = ReservedPort::new();
    let url = format!("http://{}", nobody.address);
    let settings = settings(&[
        ("OTLP_ENDPOINT", &url),
        ("QUEUE_SPANS", "3"),
        ("BATCH_DELAY", "1h"),
    ]);
    let (tracer, exporter) = trace::start(&settings, Clock::system(), "me".to_owned())
        .expect("a thread")
        .expect("a collector is named");
    let place = tracer.new_context(None).expect("all are recorded");
    for _ in 0..2_000 {
        tracer.record_span(span(place.clone()));
    }
    exporter.close();
    let SpanCounts {
        exported,
        dropped,
        failed,
    } = tracer.span_counts().expect("counts");
    println!("{dropped} found no room, {failed} were not taken");
    assert_eq!((exported, dropped + failed), (0, 2_000));
    assert!(failed >= 3, "what was in the queue was tried");
}

#[test]
fn a_share_of_the_traces_that_begin_here_is_recorded_and_those_of_others_as_they_say() {
    let nobody = ReservedPort::new();
    let url = format!("http://{}", nobody.address);
    let start = |share| {
        let settings = settings(&[("OTLP_ENDPOINT", &url), ("SAMPLE_SHARE", share)]);
        trace::start(&settings, Clock::system(), "me".to_owned())
            .expect("a thread")
            .expect("a collector is named")
    };
    let ours = |tracer: &Tracer| {
        (0..10_000)
            .filter(|_| tracer.new_context(None).is_some())
            .count()
    };
    let parent = SpanContext::parse(PARENT, None).expect("a place");
    let silent = SpanContext {
        is_sampled: false,
        ..parent.clone()
    };
    for (share, between) in [("0", 0..=0), ("0.2", 1_700..=2_300), ("1", 10_000..=10_000)] {
        let (tracer, exporter) = start(share);
        let count = ours(&tracer);
        assert!(between.contains(&count), "{count} of 10,000 at {share}");
        let below = tracer
            .new_context(Some(&parent))
            .expect("the parent is sampled");
        assert!(below.trace == parent.trace && below.span != parent.span);
        assert_eq!(tracer.new_context(Some(&silent)), None);
        exporter.close();
    }
}

/// A writer that stores its input.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// A log as text that is kept here.
    pub(crate) fn logger(&self, filter: &str) -> tracing::Dispatch {
        let writer = self.clone();
        let log = LogConfig {
            format: LogFormat::Text,
            filter: filter.to_owned(),
        };
        telemetry::new_subscriber(&log, Clock::system(), move || writer.clone(), false)
            .expect("a filter")
            .0
    }

    /// The text that was written.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("UTF-8")
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log after hostile text was logged in every possible way.
fn logged(format: LogFormat, has_colours: bool) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let log = LogConfig {
        format,
        filter: "info".to_owned(),
    };
    let (logger, _) =
        telemetry::new_subscriber(&log, Clock::system(), move || writer.clone(), has_colours)
            .expect("a filter");
    let hostile = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}\u{2028}\r\nINFO forged";
    let error: &(dyn std::error::Error + 'static) = &std::io::Error::other(hostile);
    tracing::dispatcher::with_default(&logger, || {
        let span = tracing::info_span!("request", path = hostile, subject = %hostile);
        let _entered = span.enter();
        tracing::info!(text = hostile, shown = %hostile, debugged = ?hostile, error, "an event");
        tracing::warn!("a message with {hostile} in it");
    });
    kept.text()
}

#[test]
fn a_line_that_a_library_repeats_is_suppressed_for_a_minute() {
    let kept = Kept::default();
    let (clock, hand) = Clock::new_manual(Timestamp(0));
    let writer = kept.clone();
    let log = LogConfig {
        format: LogFormat::Text,
        filter: "info".to_owned(),
    };
    let (logger, _) =
        telemetry::new_subscriber(&log, clock, move || writer.clone(), false).expect("a filter");
    let repeat = || {
        for _ in 0..30 {
            tracing::warn!(target: "actix_http", "a bad response");
            tracing::warn!(target: "gridhook_deliver", "a line of ours");
        }
    };
    let count = |text: &str| {
        kept.text()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    tracing::dispatcher::with_default(&logger, repeat);
    let lines = || [count("a bad response"), count("a line of ours")];
    assert_eq!(lines(), [10, 30]);
    hand.advance(Duration::from_secs(60));
    tracing::dispatcher::with_default(&logger, repeat);
    assert_eq!(lines(), [20, 60]);
}

#[test]
fn nothing_that_is_logged_writes_to_a_terminal_or_forges_a_line() {
    for (format, has_colours) in [
        (LogFormat::Text, false),
        (LogFormat::Text, true),
        (LogFormat::Json, true),
    ] {
        let text = logged(format, has_colours);
        assert_eq!(text.lines().count(), 2, "{format:?}: {text:?}");
        // Colours are the log's own: select graphic rendition, and nothing else.
        let mut parts = text.split('\u{1b}');
        let mut plain = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            assert!(has_colours && format == LogFormat::Text, "{text:?}");
            let (code, rest) = part
                .strip_prefix('[')
                .and_then(|part| part.split_once('m'))
                .expect("a colour");
            assert!(
                code.chars().all(|c| c.is_ascii_digit() || c == ';'),
                "{text:?}"
            );
            plain.push_str(rest);
        }
        let bad: Vec<char> = plain
            .chars()
            .filter(|c| *c != '\n' && escape::is_unsafe(*c))
            .collect();
        assert!(bad.is_empty(), "{format:?}: {bad:?} in {text:?}");
        assert!(
            text.contains("forged"),
            "what was logged is there, escaped: {text:?}"
        );
        if format == LogFormat::Json {
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON");
            }
        }
    }
}
