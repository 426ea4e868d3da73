//! The plot of a report: attempts over time, one panel for each endpoint model, all with the same
//! axes.
//!
//! The rate axis is logarithmic, because the rate after an outage may be a hundred times the usual
//! one and both must be visible. Delivered and failed attempts are therefore two lines, not a
//! stack, which would mislead on such an axis. Without a line there were no attempts.

use std::{fmt::Display, ops::Range};

use plotters::{
    coord::{
        Shift,
        ranged1d::{DefaultFormatting, KeyPointHint},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    ReportRow, START, SimulationReport,
    series::SeriesBin,
    table::{format_number, format_seconds},
};
use gridhook_event::Timestamp;

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (400, 230);
/// Height of title and legend.
const HEAD: u32 = 76;
/// Space below the last row of panels.
const FOOT: u32 = 12;

/// Maximum ticks: more would overlap.
const TICKS_MAX: f64 = 6.0;

/// Steps of the time axis, in hours.
const STEPS: [f64; 12] = [
    1.0 / 60.0,
    1.0 / 12.0,
    1.0 / 4.0,
    1.0 / 2.0,
    1.0,
    2.0,
    3.0,
    6.0,
    12.0,
    24.0,
    48.0,
    168.0,
];

/// Maximum decades of the rate axis. Lower rates are drawn at the bottom.
const DECADES_MAX: f64 = 5.0;

const DELIVERED: RGBColor = RGBColor(31, 99, 168);
const FAILED: RGBColor = RGBColor(214, 84, 14);
const DOWN: RGBColor = RGBColor(228, 228, 231);
const GRID: RGBColor = RGBColor(226, 226, 230);
const INK: RGBColor = RGBColor(38, 38, 44);
const FAINT: RGBColor = RGBColor(106, 106, 116);

type PlotArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The plot cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be drawn: {0}")]
pub struct PlotError(String);

impl PlotError {
    fn from_error(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

/// The axes of all panels.
struct PlotAxes {
    hours: f64,
    step: f64,
    /// The bottom and the top of the rate axis, as powers of ten.
    ground: f64,
    top: f64,
}

/// A linear scale with given ticks: those of the library suit neither hours nor decades.
struct PlotScale {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for PlotScale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Draws the report as SVG.
///
/// # Errors
/// The drawing library fails.
pub fn draw_svg(report: &SimulationReport) -> Result<String, PlotError> {
    // Four panels are arranged two by two, not three and one.
    let columns = if report.models.len() == 4 {
        2
    } else {
        COLUMNS.min(report.models.len())
    };
    let rows = report.models.len().div_ceil(columns);
    // The legend needs the width of two panels.
    let size = (
        PANEL.0 * columns.max(2) as u32,
        HEAD + PANEL.1 * rows as u32 + FOOT,
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(PlotError::from_error)?;
        let (head, rest) = root.split_vertically(HEAD);
        draw_title(&head, report)?;
        let (panels, _) = rest.split_vertically(PANEL.1 * rows as u32);
        let axes = PlotAxes::for_report(report);
        for (area, row) in panels
            .split_evenly((rows, columns))
            .iter()
            .zip(&report.models)
        {
            draw_panel(area, row, &axes)?;
        }
        root.present().map_err(PlotError::from_error)?;
    }
    Ok(svg)
}

impl PlotAxes {
    fn for_report(report: &SimulationReport) -> Self {
        let hours = report.simulated_seconds / 3600.0;
        let step = STEPS.into_iter().find(|step| hours / step <= TICKS_MAX);
        let rates = report.models.iter().flat_map(|row| {
            let rates = row
                .series
                .bins
                .iter()
                .flat_map(|bin| [bin.attempts - bin.failed, bin.failed]);
            rates
                .filter(|attempts| *attempts > 0)
                .map(|attempts| hourly_rate(row, attempts).log10())
        });
        let (least, most) = rates.fold((f64::MAX, f64::MIN), |(least, most), rate| {
            (least.min(rate), most.max(rate))
        });
        // Without attempts any axis will do.
        let (least, most) = if least > most {
            (0.0, 1.0)
        } else {
            (least, most)
        };
        let top = most.ceil().max(least.floor() + 1.0);
        let ground = least.floor().max(top - DECADES_MAX);
        Self {
            hours,
            step: step.unwrap_or(hours / TICKS_MAX),
            ground,
            top,
        }
    }

    fn tick_hours(&self) -> Vec<f64> {
        (0..)
            .map(|tick| f64::from(tick) * self.step)
            .take_while(|hours| *hours <= self.hours)
            .collect()
    }

    /// Formats hours in the unit of the step.
    fn format_hours(&self, hours: f64) -> String {
        match self.step {
            ..1.0 => format!("{:.0} min", hours * 60.0),
            ..24.0 => format!("{hours:.0} h"),
            _ => format!("{:.0} d", hours / 24.0),
        }
    }
}

/// Attempts in a bin as attempts per hour and subscription.
fn hourly_rate(row: &ReportRow, attempts: u64) -> f64 {
    attempts as f64 / row.subscriptions as f64 * 3600.0 / row.series.width.as_secs_f64()
}

fn draw_title(head: &PlotArea<'_>, report: &SimulationReport) -> Result<(), PlotError> {
    let bins = report.models.first().map_or_else(String::new, |row| {
        format_seconds(row.series.width.as_secs_f64())
    });
    let what = format!(
        "{} subscriptions, {} events for each, {} simulated, seed {}; in bins of {bins}, on a \
         logarithmic axis",
        format_number(u64::from(report.subscriptions)),
        format_number(report.events),
        format_seconds(report.simulated_seconds),
        report.seed
    );
    let bold = ("sans-serif", 17)
        .into_font()
        .style(FontStyle::Bold)
        .color(&INK);
    let plain = ("sans-serif", 12).into_font().color(&FAINT);
    let ink = ("sans-serif", 12).into_font().color(&INK);
    head.draw_text(
        "Delivery attempts per hour and subscription",
        &bold,
        (14, 12),
    )
    .map_err(PlotError::from_error)?;
    head.draw_text(&what, &plain, (14, 35))
        .map_err(PlotError::from_error)?;
    for (color, name, at) in [(DELIVERED, "delivered", 14), (FAILED, "failed", 114)] {
        let line = PathElement::new([(at, 62), (at + 18, 62)], color.stroke_width(3));
        head.draw(&line).map_err(PlotError::from_error)?;
        head.draw_text(name, &ink, (at + 24, 56))
            .map_err(PlotError::from_error)?;
    }
    let band = Rectangle::new([(194, 55), (212, 69)], DOWN.filled());
    head.draw(&band).map_err(PlotError::from_error)?;
    head.draw_text("the endpoint is down", &ink, (218, 56))
        .map_err(PlotError::from_error)
}

fn draw_panel(area: &PlotArea<'_>, row: &ReportRow, axes: &PlotAxes) -> Result<(), PlotError> {
    let subscriptions = format_number(row.subscriptions);
    let plural = if row.subscriptions == 1 { "" } else { "s" };
    let caption = ("sans-serif", 13)
        .into_font()
        .style(FontStyle::Bold)
        .color(&INK);
    let labels = ("sans-serif", 11).into_font().color(&FAINT);
    area.draw_text(&row.model, &caption, (52, 8))
        .map_err(PlotError::from_error)?;
    let right = labels.clone().pos(Pos::new(HPos::Right, VPos::Top));
    area.draw_text(
        &format!("{subscriptions} subscription{plural}"),
        &right,
        (PANEL.0 as i32 - 18, 10),
    )
    .map_err(PlotError::from_error)?;

    let decades = (axes.ground as i32..=axes.top as i32)
        .map(f64::from)
        .collect::<Vec<_>>();
    let mut history = ChartBuilder::on(area)
        .margin_top(28)
        .margin_right(18)
        .x_label_area_size(24)
        .y_label_area_size(52)
        .build_cartesian_2d(
            PlotScale {
                range: 0.0..axes.hours,
                ticks: axes.tick_hours(),
            },
            PlotScale {
                range: axes.ground..axes.top,
                ticks: decades,
            },
        )
        .map_err(PlotError::from_error)?;
    for (from, until) in down_periods(row, axes) {
        let band = Rectangle::new([(from, axes.ground), (until, axes.top)], DOWN.filled());
        history.draw_series([band]).map_err(PlotError::from_error)?;
    }
    history
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style(labels)
        .x_label_formatter(&|hours| axes.format_hours(*hours))
        .y_label_formatter(&|power| format_power(*power))
        .draw()
        .map_err(PlotError::from_error)?;
    for (color, failed) in [(DELIVERED, false), (FAILED, true)] {
        let attempts = |bin: &SeriesBin| {
            if failed {
                bin.failed
            } else {
                bin.attempts - bin.failed
            }
        };
        // Two fills would mix to a third color.
        let fill = color.mix(if failed { 0.0 } else { 0.1 });
        for outline in bin_outlines(row, axes, attempts) {
            let area =
                AreaSeries::new(outline, axes.ground, fill).border_style(color.stroke_width(1));
            history.draw_series(area).map_err(PlotError::from_error)?;
        }
    }
    Ok(())
}

/// The outlines of the bins: one for each run of bins with attempts.
fn bin_outlines(
    row: &ReportRow,
    axes: &PlotAxes,
    attempts: impl Fn(&SeriesBin) -> u64,
) -> Vec<Vec<(f64, f64)>> {
    let width = row.series.width.as_secs_f64() / 3600.0;
    let edge = |bin: usize| (bin as f64 * width).min(axes.hours);
    let bins: Vec<(usize, u64)> = row.series.bins.iter().map(attempts).enumerate().collect();
    let runs = bins
        .split(|(_, attempts)| *attempts == 0)
        .filter(|run| !run.is_empty());
    let outline = |run: &[(usize, u64)]| {
        let first = edge(run[0].0);
        let last = edge(run[run.len() - 1].0 + 1);
        let steps = run.iter().flat_map(|(bin, attempts)| {
            let height = hourly_rate(row, *attempts).log10().max(axes.ground);
            [(edge(*bin), height), (edge(bin + 1), height)]
        });
        // At the edges of the plot the line ends without falling.
        let ends =
            [first, last].map(|end| (0.0 < end && end < axes.hours).then_some((end, axes.ground)));
        ends[0].into_iter().chain(steps).chain(ends[1]).collect()
    };
    runs.map(outline).collect()
}

/// The periods in which all endpoints of the model are down.
fn down_periods(row: &ReportRow, axes: &PlotAxes) -> Vec<(f64, f64)> {
    let hours = |at: Timestamp| at.since(START).as_secs_f64() / 3600.0;
    let shown = row
        .downs
        .iter()
        .map(|spell| (hours(spell.from), hours(spell.until).min(axes.hours)));
    shown.filter(|(from, until)| from < until).collect()
}

fn format_power(power: f64) -> String {
    match power {
        0.0.. => format_number(10_f64.powf(power).round() as u64),
        _ => format!("{:.*}", (-power) as usize, 10_f64.powf(power)),
    }
}
