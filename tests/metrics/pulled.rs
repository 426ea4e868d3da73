//! Figures of clients that pull.

use super::{LONG, Samples, assert_figures, figures_at};
use crate::{
    server::pull::{Consumer, RG, publish, start, succeeded},
    support::server::{Server, wait_for},
};

fn figures(server: &Server, name: &str) -> Samples {
    figures_at(
        server,
        &format!("{RG}/plant/topics/heat/eventSubscriptions/{name}"),
    )
}

#[test]
fn each_operation_of_a_pull_client_is_counted_also_after_a_kill() {
    let (mut server, shown) = start(&[], &[("work", 300, 10), ("short", 1, 10)]);
    publish(&server, &shown, 0..6);
    let mut work = Consumer::new(&server, &shown, "work");
    let got = work.receive(10);
    let tokens: Vec<&str> = got.iter().map(|event| event.token.as_str()).collect();
    assert_eq!(tokens.len(), 6, "what is there comes at once");
    for (verb, tokens) in [
        ("acknowledge", &tokens[..2]),
        ("reject", &tokens[2..3]),
        ("renewLock", &tokens[3..6]),
        ("release", &tokens[5..6]),
    ] {
        assert_eq!(
            succeeded(&work.settle(verb, tokens)),
            tokens.len(),
            "{verb}"
        );
    }
    // A refused request is no step.
    assert_eq!(succeeded(&work.settle("acknowledge", &tokens[..2])), 0);
    assert_eq!(work.receive(10).len(), 1, "what was released");
    Consumer::new(&server, &shown, "short").receive(2);
    let look = |server: &Server| {
        wait_for("locks to expire", LONG, || {
            let expired = "leased_events_total{step=\"lockExpired\"}";
            figures(server, "short").get(expired) == Some(&2.0)
        });
        assert_figures(
            &figures(server, "work"),
            &[
                ("leased_events_total{step=\"received\"}", 7.0),
                ("leased_events_total{step=\"acknowledged\"}", 2.0),
                ("leased_events_total{step=\"released\"}", 1.0),
                ("leased_events_total{step=\"rejected\"}", 1.0),
                ("leased_events_total{step=\"renewed\"}", 3.0),
                ("leased_events_total{step=\"lockExpired\"}", 0.0),
                // Two requests were answered with events.
                ("attempts_total{outcome=\"Delivered\"}", 2.0),
                ("matched_events_total", 6.0),
                ("dropped_events_total{reason=\"Rejected\"}", 1.0),
            ],
        );
        let short = figures(server, "short");
        assert_figures(
            &short,
            &[
                ("leased_events_total{step=\"received\"}", 2.0),
                ("attempts_total{outcome=\"Delivered\"}", 1.0),
                ("attempts_total{outcome=\"TimedOut\"}", 2.0),
            ],
        );
        let unrecorded = short.get("attempts_total{outcome=\"Unrecorded\"}");
        assert_eq!(unrecorded, None, "{short:#?}");
    };
    look(&server);
    server.kill_9();
    server.restart();
    look(&server);
}
