//! Metric families as text: Prometheus' text format (0.0.4) and OpenMetrics (1.0).
//!
//! OpenMetrics omits `_total` from the name of a counter's family, escapes more in help texts, and
//! ends with `# EOF`. The samples are byte for byte the same, so series continue when the format
//! changes.
//!
//! Invariants: the samples of a family follow its help and type. A family without samples is
//! omitted. The value of a label cannot end its line or its quotes.

use std::fmt::{self, Write};

use super::HistogramCounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `text/plain; version=0.0.4`
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl TextFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A counter; its name ends with `_total`.
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// Its name, ending with the unit, followed by `_total` for a counter.
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
}

/// A sample's value. Integers are written exactly, however large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for SampleValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<u32> for SampleValue {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for SampleValue {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for SampleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) if value.is_nan() => f.write_str("NaN"),
            Self::Real(value) if value.is_infinite() => {
                f.write_str(if *value > 0.0 { "+Inf" } else { "-Inf" })
            }
            Self::Real(value) => value.fmt(f),
        }
    }
}

/// Names and values of a sample's labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// A writer of the format.
#[derive(Debug)]
pub struct MetricsText {
    format: TextFormat,
    out: String,
    family: Option<MetricFamily>,
    /// Whether the head of the family is written.
    help_written: bool,
}

impl MetricsText {
    pub fn new(format: TextFormat) -> Self {
        Self {
            format,
            out: String::new(),
            family: None,
            help_written: false,
        }
    }

    /// Starts a family. Samples that follow belong to it.
    pub fn start_family(&mut self, family: MetricFamily) {
        self.family = Some(family);
        self.help_written = false;
    }

    pub fn add_sample(&mut self, labels: &Labels<'_>, value: impl Into<SampleValue>) {
        let Some(family) = self.begin_family() else {
            return;
        };
        self.write_line(family.name, "", labels, None, value.into());
    }

    pub fn add_histogram(&mut self, labels: &Labels<'_>, counts: &HistogramCounts) {
        let Some(family) = self.begin_family() else {
            return;
        };
        for (bound, count) in counts.cumulative_counts() {
            // OpenMetrics requires a fraction; both formats use it.
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| format!("{bound:?}"));
            self.write_line(
                family.name,
                "_bucket",
                labels,
                Some(("le", &bound)),
                count.into(),
            );
        }
        self.write_line(family.name, "_sum", labels, None, counts.sum().into());
        self.write_line(family.name, "_count", labels, None, counts.count().into());
    }

    pub fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Writes the head of the family before its first sample.
    fn begin_family(&mut self) -> Option<MetricFamily> {
        let family = self.family?;
        if !std::mem::replace(&mut self.help_written, true) {
            let name = match self.format {
                TextFormat::OpenMetrics => {
                    family.name.strip_suffix("_total").unwrap_or(family.name)
                }
                TextFormat::Prometheus => family.name,
            };
            let kind = match family.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            self.out.push_str(&format!("# HELP {name} "));
            write_escaped(
                &mut self.out,
                family.help,
                self.format == TextFormat::OpenMetrics,
            );
            self.out.push_str(&format!("\n# TYPE {name} {kind}\n"));
        }
        Some(family)
    }

    fn write_line(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels<'_>,
        last: Option<(&str, &str)>,
        value: SampleValue,
    ) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let mut separator = '{';
        for (label, text) in labels.iter().copied().chain(last) {
            self.out.push(separator);
            self.out.push_str(label);
            self.out.push_str("=\"");
            write_escaped(&mut self.out, text, true);
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        // Writing to a string does not fail.
        writeln!(self.out, " {value}").ok();
    }
}

fn write_escaped(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}
