//! A row of the table: the measured figure, its floor and its budget, and whether the budget is
//! met.

use std::fmt;

use serde_json::{Value, json};

use super::rows::USUAL;

/// How a figure is compared with its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// The budget is an upper bound of the ratio to the floor in the same run.
    Floor,
    /// The budget is an upper bound.
    Most,
    /// The budget is a lower bound.
    Least,
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The figure is within the stretch goal, too.
    Stretch,
    Met,
    /// Missed by less than the runs differ from each other.
    Noise,
    Missed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stretch => "met, stretch too",
            Self::Met => "met",
            Self::Noise => "missed within noise",
            Self::Missed => "MISSED",
        })
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The number of the row in the table of budgets.
    pub(crate) number: &'static str,
    pub(crate) what: &'static str,
    /// The features that are on in the measured server.
    pub(crate) on: String,
    /// The unit of floor and figure.
    pub(crate) unit: &'static str,
    /// The work that the floor does.
    pub(crate) floor_is: &'static str,
    pub(crate) against: Against,
    pub(crate) budget: f64,
    pub(crate) stretch: f64,
    /// The figure of each run.
    pub(crate) figures: Vec<f64>,
    /// The floor of each run; empty if there is none.
    pub(crate) floors: Vec<f64>,
    /// Further figures of the last run, with their units.
    pub(crate) beside: Vec<(String, f64)>,
}

impl Row {
    /// Processor time beside that of a floor, with what is usually on.
    pub(crate) fn from_processor_time(
        number: &'static str,
        what: &'static str,
        floor_is: &'static str,
        (budget, stretch): (f64, f64),
        (floors, figures): (Vec<f64>, Vec<f64>),
    ) -> Self {
        Self {
            number,
            what,
            on: USUAL.to_owned(),
            unit: "µs",
            floor_is,
            against: Against::Floor,
            budget,
            stretch,
            figures,
            floors,
            beside: Vec::new(),
        }
    }

    /// The value of each run that is compared with the budget.
    fn values(&self) -> Vec<f64> {
        match self.against {
            Against::Floor => self
                .figures
                .iter()
                .zip(&self.floors)
                .map(|(figure, floor)| figure / floor)
                .collect(),
            Against::Most | Against::Least => self.figures.clone(),
        }
    }

    /// The value that is compared with the budget: the median of the runs.
    pub(crate) fn value(&self) -> f64 {
        median(&self.values())
    }

    /// The median distance of the runs from their median.
    pub(crate) fn noise(&self) -> f64 {
        let value = self.value();
        median(
            &self
                .values()
                .iter()
                .map(|one| (one - value).abs())
                .collect::<Vec<_>>(),
        )
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let value = self.value();
        let noise = self.noise();
        let within = |bound: f64, noise: f64| match self.against {
            Against::Floor | Against::Most => value - noise <= bound,
            Against::Least => value + noise >= bound,
        };
        match () {
            () if within(self.stretch, 0.0) => Verdict::Stretch,
            () if within(self.budget, 0.0) => Verdict::Met,
            () if within(self.budget, noise) => Verdict::Noise,
            () => Verdict::Missed,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "row": self.number, "what": self.what, "on": self.on, "unit": self.unit, "floorIs": self.floor_is,
            "floors": self.floors, "figures": self.figures, "value": self.value(), "noise": self.noise(),
            "budget": self.budget, "stretch": self.stretch, "verdict": self.verdict().to_string(),
            "beside": self.beside.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound| match self.against {
            Against::Floor => format!("≤ {bound}×"),
            Against::Most => format!("≤ {}", number(bound)),
            Against::Least => format!("≥ {}", number(bound)),
        };
        let budget = bound(self.budget);
        let stretch = bound(self.stretch);
        let floor = if self.floors.is_empty() {
            "-".to_owned()
        } else {
            number(median(&self.floors))
        };
        let value = match self.against {
            Against::Floor => format!("{:.2}×", self.value()),
            Against::Most | Against::Least => number(self.value()),
        };
        let figure = number(median(&self.figures));
        let noise = number(self.noise());
        writeln!(
            f,
            "{:3} {:52} {:>9} {:>9} {:4} {:>9} ±{:7} {:>10} {:>10}  {}",
            self.number,
            self.what,
            floor,
            figure,
            self.unit,
            value,
            noise,
            budget,
            stretch,
            self.verdict()
        )?;
        writeln!(f, "      on: {}; floor: {}", self.on, self.floor_is)?;
        if self.beside.is_empty() {
            return Ok(());
        }
        let beside: Vec<_> = self
            .beside
            .iter()
            .map(|(name, value)| format!("{name} {}", number(*value)))
            .collect();
        writeln!(f, "      {}", beside.join(", "))
    }
}

/// The line above the others.
pub(crate) fn head() -> String {
    format!(
        "{:3} {:52} {:>9} {:>9} {:4} {:>9} {:8} {:>10} {:>10}  verdict",
        "row", "what", "floor", "figure", "unit", "value", " noise", "budget", "stretch"
    )
}

/// The value in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

/// Three digits that matter, or all before the point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
