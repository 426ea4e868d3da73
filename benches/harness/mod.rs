//! What the server costs, beside what the parts that it is made of cost in the same run.
//!
//! The server is the real binary in a process of its own, with real sockets and a real disk; a
//! floor (a bare relay, a client alone, a sync) is measured beside it, in turn, as often, because
//! figures of one machine and one hour say little on another, and their ratio says the same.
//! Processor time is what the system charged to the process that is measured, and not to those who
//! publish to it and are called by it. Latencies begin when a request was to leave, not when it
//! did.
//!
//! A budget is missed where the median of the runs is behind it by more than the runs differ. Sizes
//! are in [`Scale`]; the smallest has every bench do everything it does, for a test that asks for
//! no figures.

mod client;
mod copy;
mod disk;
pub(crate) mod endpoint;
mod floor;
mod growth;
pub(crate) mod load;
mod plot;
mod pulled;
mod row;
mod rows;
mod scale;
mod stage;
mod store;
mod time;

use std::{fs, process::Command};

use serde_json::json;

use self::row::Row;
pub(crate) use self::{floor::is_one as is_floor, row::Verdict, scale::Scale};

/// Inputs of every bench.
pub(crate) struct Bench {
    pub(crate) scale: Scale,
    /// Starts this program again, as the process of a floor.
    pub(crate) again: fn() -> Command,
}

type Run = fn(&Bench) -> Vec<Row>;

/// All benches of the whole server, by name.
pub(crate) const BENCHES: [(&str, Run); 17] = [
    ("single", rows::single::run),
    ("batches", rows::batches::run),
    ("fan-out", rows::fan_out::run),
    ("latency", rows::latency::run),
    ("steady", rows::steady::run),
    ("width", rows::width::run),
    ("many", rows::many::run),
    ("https", rows::https::run),
    ("endpoints", rows::endpoints::run),
    ("pull", rows::pull::run),
    ("destinations", rows::destinations::run),
    ("features", rows::features::run),
    ("neighbours", rows::neighbours::run),
    ("slow-disk", rows::slow_disk::run),
    ("cluster", rows::cluster::run),
    ("backlog", rows::backlog::run),
    ("growth", growth::run),
];

impl Bench {
    /// Runs a bench, prints its table and writes it to a file. Returns the verdicts of its rows.
    pub(crate) fn run(&self, name: &str, run: Run) -> Vec<Verdict> {
        println!("\n--- {name}");
        let rows = run(self);
        if !rows.is_empty() {
            println!("{}", row::head());
        }
        rows.iter().for_each(|row| print!("{row}"));
        let rows_json: Vec<_> = rows.iter().map(Row::json).collect();
        self.write_down(
            name,
            &json!({"bench": name, "scale": self.scale.name, "rows": rows_json}),
        );
        rows.iter().map(Row::verdict).collect()
    }

    /// Writes figures into the folder of results.
    fn write_down(&self, name: &str, figures: &serde_json::Value) {
        fs::create_dir_all(&self.scale.results).expect("a folder of results");
        let path = self.scale.results.join(format!("{name}.json"));
        fs::write(&path, format!("{figures:#}\n")).expect("a file of results");
        println!("written to {}", path.display());
    }
}
