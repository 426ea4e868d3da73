//! What TLS 1.3 costs: on the way in, where each publisher keeps its connection, and on the way
//! out.

use super::USUAL;
use crate::{
    harness::{
        Bench,
        endpoint::Endpoint,
        load::{Amount, Shape, Target, closed},
        row::{Against, Row},
        stage::{Cost, Stage},
    },
    support::certificates::Authority,
};

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let roots = folder.path().join("authority.pem");
    std::fs::write(&roots, authority.pem()).expect("a file of an authority");
    let plain_endpoint = Endpoint::start();
    let secure_endpoint =
        Endpoint::start_secure(authority.endpoint("127.0.0.1", &[&rustls::version::TLS13]));
    let plain = Stage::with(&[("DELIVERY__TLS_ROOTS", &roots.display().to_string())]);
    let secure = Stage::secure(&authority);
    let topic = |stage: &Stage, name: &str, endpoint: &Endpoint| {
        let target = stage.topic(name, "current");
        stage.subscribe(name, "billing", &endpoint.url("/billing"), |spec| spec);
        target
    };
    let to_plain = topic(&plain, "orders", &plain_endpoint);
    let to_secure = topic(&plain, "invoices", &secure_endpoint);
    let from_secure = topic(&secure, "orders", &plain_endpoint);
    let cost = |stage: &Stage, target: &Target, endpoint: &Endpoint, time| {
        let load = || {
            closed(
                std::slice::from_ref(target),
                Shape::ONE,
                bench.scale.connections,
                Amount::For(time),
            )
        };
        Cost::measure(stage.server.id(), endpoint, 1, load)
    };
    let run = |time| {
        [
            cost(&plain, &to_plain, &plain_endpoint, time),
            cost(&secure, &from_secure, &plain_endpoint, time),
            cost(&plain, &to_secure, &secure_endpoint, time),
        ]
    };
    run(bench.scale.time / 4);
    let runs: Vec<[Cost; 3]> = (0..bench.scale.runs)
        .map(|_| run(bench.scale.time))
        .collect();
    let each = |which: usize| {
        runs.iter()
            .map(|costs| costs[which].each())
            .collect::<Vec<_>>()
    };
    let row = |number, what, which: usize| Row {
        number,
        what,
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "the same over http in both directions",
        against: Against::Floor,
        budget: 1.3,
        stretch: 1.15,
        figures: each(which),
        floors: each(0),
        beside: runs
            .last()
            .map(|costs| costs[which].beside())
            .unwrap_or_default(),
    };
    vec![
        row(
            "17",
            "published over https, one event a request: CPU an event",
            1,
        ),
        row(
            "17b",
            "delivered over https, one event a request: CPU an event",
            2,
        ),
    ]
}
