//! Families of samples as text: Prometheus' own format (0.0.4) and OpenMetrics (1.0).
//!
//! What differs: OpenMetrics leaves `_total` out of a counter's family, quotes more in help texts, and ends with a word of
//! its own. The samples are the same to the byte, so that whoever changes the format keeps the series.
//!
//! Invariants: the samples of a family stand together, behind its help and its type; a family without samples is not told;
//! whatever a label says, it cannot end its line or its quotes.

use std::fmt::{self, Write};

use super::HistogramCounts;

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `text/plain; version=0.0.4`
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl TextFormat {
    /// Its content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows; the name ends with `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often a value was in which range.
    Histogram,
}

/// A family of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// Its name, with the unit at its end, and `_total` behind that for a counter.
    pub name: &'static str,
    /// What its samples are.
    pub kind: MetricKind,
    /// A sentence.
    pub help: &'static str,
}

/// A sample's value: whole numbers are told exactly, however large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleValue {
    /// A whole number.
    Whole(u64),
    /// Any number.
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
            Self::Real(value) if value.is_infinite() => f.write_str(if *value > 0.0 { "+Inf" } else { "-Inf" }),
            Self::Real(value) => value.fmt(f),
        }
    }
}

/// Names and values of a sample's labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// A text in the making.
#[derive(Debug)]
pub struct MetricsText {
    format: TextFormat,
    out: String,
    family: Option<MetricFamily>,
    /// Whether the family's head is written.
    told: bool,
}

impl MetricsText {
    /// An empty one.
    pub fn new(format: TextFormat) -> Self {
        Self { format, out: String::new(), family: None, told: false }
    }

    /// What follows are samples of this family.
    pub fn family(&mut self, family: MetricFamily) {
        self.family = Some(family);
        self.told = false;
    }

    /// A sample.
    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Into<SampleValue>) {
        let Some(family) = self.begin_family() else { return };
        self.line(family.name, "", labels, None, value.into());
    }

    /// A histogram.
    pub fn histogram(&mut self, labels: &Labels<'_>, counts: &HistogramCounts) {
        let Some(family) = self.begin_family() else { return };
        for (bound, count) in counts.upto() {
            // The same in both formats: a number with a fraction, as OpenMetrics wants it.
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| format!("{bound:?}"));
            self.line(family.name, "_bucket", labels, Some(("le", &bound)), count.into());
        }
        self.line(family.name, "_sum", labels, None, counts.sum().into());
        self.line(family.name, "_count", labels, None, counts.count().into());
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// The head of the family, before its first sample.
    fn begin_family(&mut self) -> Option<MetricFamily> {
        let family = self.family?;
        if !std::mem::replace(&mut self.told, true) {
            let name = match self.format {
                TextFormat::OpenMetrics => family.name.strip_suffix("_total").unwrap_or(family.name),
                TextFormat::Prometheus => family.name,
            };
            let kind = match family.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            self.out.push_str(&format!("# HELP {name} "));
            escape(&mut self.out, family.help, self.format == TextFormat::OpenMetrics);
            self.out.push_str(&format!("\n# TYPE {name} {kind}\n"));
        }
        Some(family)
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &Labels<'_>, last: Option<(&str, &str)>, value: SampleValue) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let mut between = '{';
        for (label, text) in labels.iter().copied().chain(last) {
            self.out.push(between);
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(&mut self.out, text, true);
            self.out.push('"');
            between = ',';
        }
        if between == ',' {
            self.out.push('}');
        }
        // A string takes whatever is written to it.
        writeln!(self.out, " {value}").ok();
    }
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}
