//! Plots of the cost of an event while something grows, a panel for each.

use plotters::prelude::*;

/// The plot of one thing that grows.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// Sizes, and microseconds for an event at that size.
    pub(crate) points: Vec<(u64, f64)>,
}

const PANEL: (u32, u32) = (460, 260);
const FIGURE: RGBColor = RGBColor(31, 99, 168);
const FLOOR: RGBColor = RGBColor(214, 84, 14);
const FAINT: RGBColor = RGBColor(226, 226, 230);

/// The panels, two beside each other, with the relay's cost as a line. All have the same axis
/// upwards.
pub(crate) fn draw(panels: &[Panel], floor: f64) -> String {
    let rows = panels.len().div_ceil(2);
    let top = panels
        .iter()
        .flat_map(|panel| &panel.points)
        .map(|(_, cost)| *cost)
        .fold(floor, f64::max)
        * 1.15;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (PANEL.0 * 2, PANEL.1 * rows as u32))
            .into_drawing_area();
        root.fill(&WHITE).expect("a picture");
        for (area, panel) in root.split_evenly((rows, 2)).iter().zip(panels) {
            let last = panel.points.last().map_or(10, |(size, _)| (*size).max(10));
            let mut history = ChartBuilder::on(area)
                .caption(panel.title, ("sans-serif", 15))
                .margin(12)
                .x_label_area_size(28)
                .y_label_area_size(40)
                .build_cartesian_2d((1..last + 1).log_scale(), 0.0..top)
                .expect("a picture");
            history
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(FAINT)
                .y_desc("µs CPU an event")
                .draw()
                .expect("a picture");
            let line = panel.points.iter().copied();
            history
                .draw_series(LineSeries::new(line.clone(), FIGURE.stroke_width(2)))
                .expect("a picture");
            history
                .draw_series(line.map(|point| Circle::new(point, 3, FIGURE.filled())))
                .expect("a picture");
            let relay = [(1, floor), (last, floor)];
            history
                .draw_series(LineSeries::new(relay, FLOOR.stroke_width(1)))
                .expect("a picture");
            let label = Text::new(
                "a bare relay",
                (1, floor),
                ("sans-serif", 12).into_font().color(&FLOOR),
            );
            history.draw_series([label]).expect("a picture");
        }
        root.present().expect("a picture");
    }
    svg
}
