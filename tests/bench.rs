//! Every bench works: each runs once with the smallest sizes, without budgets.

use std::{fs, net::Ipv4Addr, process::Command, time::Duration};

use serde_json::Value;

use crate::harness::{
    BENCHES, Bench, Scale,
    endpoint::Endpoint,
    is_floor,
    load::{Amount, Shape, Target, closed},
};

/// This program once more, as the process of a floor.
fn again() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([
        "--exact",
        "bench::a_floor_has_a_process_of_its_own",
        "--nocapture",
    ]);
    command
}

/// The test that [`again`] starts in a process of its own; without a floor it does nothing.
#[test]
fn a_floor_has_a_process_of_its_own() {
    let asked = std::env::var_os("BENCH_ROLE").is_some();
    assert_eq!(is_floor(), asked);
}

#[test]
fn a_load_is_one_request_at_least_however_soon_its_time_is_over() {
    let endpoint = Endpoint::start();
    let target = Target {
        at: (Ipv4Addr::LOCALHOST, endpoint.port()).into(),
        path: "/".to_owned(),
        key: String::new(),
        tls: None,
    };
    let sent = closed(&[target], Shape::ONE, 4, Amount::For(Duration::ZERO));
    assert_eq!(sent.events, 1);
}

#[test]
fn every_bench_works() {
    let bench = Bench {
        scale: Scale::named("smoke").expect("a scale"),
        again,
    };
    for (name, run) in BENCHES {
        let written = bench.scale.results.join(format!("{name}.json"));
        fs::remove_file(&written).ok();
        let lines = bench.run(name, run).len();
        let figures = fs::read(&written).expect("figures are written");
        let figures: Value = serde_json::from_slice(&figures).expect("figures are JSON");
        let rows = figures["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), lines, "{name}");
        // A ratio of so little time may be none.
        assert!(
            rows.iter().all(|row| row["figures"][0].is_f64()),
            "{figures}"
        );
    }
    let plot = fs::read_to_string(bench.scale.plots.join("growth.svg")).expect("a plot is drawn");
    assert!(
        plot.starts_with("<svg") && plot.contains("a bare relay"),
        "{plot}"
    );
}
