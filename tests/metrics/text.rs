//! The Prometheus text format, byte for byte.

use std::time::Duration;

use expect_test::expect;
use gridhook::metrics::{
    EVENTS, Histogram, PHASES,
    text::{MetricFamily, MetricKind, MetricsText, TextFormat},
};

fn render(format: TextFormat) -> String {
    let mut text = MetricsText::new(format);
    text.start_family(MetricFamily {
        name: "gridhook_silent_total",
        kind: MetricKind::Counter,
        help: "Nobody has it.",
    });
    let help = "What has a \\, a \"\nand a second line.";
    text.start_family(MetricFamily {
        name: "gridhook_tries_total",
        kind: MetricKind::Counter,
        help,
    });
    text.add_sample(
        &[("topic", "a\\b\"c\nd"), ("outcome", "Delivered")],
        u64::MAX,
    );
    text.add_sample(&[], 0.25);
    text.start_family(MetricFamily {
        name: "gridhook_wait_seconds",
        kind: MetricKind::Histogram,
        help: "How long.",
    });
    let waits = Histogram::<{ PHASES.range_count() }>::new(&PHASES);
    for millis in [1, 2, 3, 60_000] {
        waits.observe_duration(Duration::from_millis(millis));
    }
    text.add_histogram(&[("topic", "orders")], &waits.counts());
    text.finish()
}

#[test]
fn prometheus_text_is_escaped_and_exact() {
    expect![[r##"
        # HELP gridhook_tries_total What has a \\, a "\nand a second line.
        # TYPE gridhook_tries_total counter
        gridhook_tries_total{topic="a\\b\"c\nd",outcome="Delivered"} 18446744073709551615
        gridhook_tries_total 0.25
        # HELP gridhook_wait_seconds How long.
        # TYPE gridhook_wait_seconds histogram
        gridhook_wait_seconds_bucket{topic="orders",le="0.0005"} 0
        gridhook_wait_seconds_bucket{topic="orders",le="0.002"} 2
        gridhook_wait_seconds_bucket{topic="orders",le="0.01"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="0.05"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="0.2"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="1.0"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="5.0"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="30.0"} 3
        gridhook_wait_seconds_bucket{topic="orders",le="+Inf"} 4
        gridhook_wait_seconds_sum{topic="orders"} 60.006
        gridhook_wait_seconds_count{topic="orders"} 4
    "##]]
    .assert_eq(&render(TextFormat::Prometheus));
}

#[test]
fn openmetrics_differs_in_its_heads_and_its_end() {
    let text = render(TextFormat::OpenMetrics);
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        heads,
        [
            "# HELP gridhook_tries What has a \\\\, a \\\"\\nand a second line.",
            "# TYPE gridhook_tries counter",
            "# HELP gridhook_wait_seconds How long.",
            "# TYPE gridhook_wait_seconds histogram",
            "# EOF",
        ]
    );
    assert!(
        text.ends_with("# EOF\n")
            && text.contains("\ngridhook_tries_total{topic=\"a\\\\b\\\"c\\nd\"")
    );
}

#[test]
fn a_value_on_a_bound_is_in_the_range_below_it() {
    let events = Histogram::<{ EVENTS.range_count() }>::new(&EVENTS);
    [0, 1, 2, 5_000, 5_001]
        .into_iter()
        .for_each(|value| events.observe(value));
    let mut counts = events.counts();
    let upto: Vec<(Option<f64>, u64)> = counts.cumulative_counts().collect();
    assert_eq!((upto[0], upto[1]), ((Some(1.0), 2), (Some(2.0), 3)));
    assert_eq!((upto[8], upto[9]), ((Some(5_000.0), 4), (None, 5)));
    counts.add(&events.counts());
    assert_eq!((counts.count(), counts.sum()), (10, 20_008.0));
}
