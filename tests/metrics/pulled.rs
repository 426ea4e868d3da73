//! Figures of clients that pull.

use serde_json::{Value, json};

use super::{LONG, Samples, WATCHER, samples, scrape};
use crate::{
    server::pull::{Consumer, RG, publish, start, succeeded},
    support::server::{Server, wait_for},
};

fn figures(server: &Server, name: &str) -> Value {
    let path = format!("{RG}/plant/topics/heat/eventSubscriptions/{name}/metrics");
    server.command("GET", &path, &Value::Null).json()
}

/// A sample of a subscription, with a label more.
fn sample(reported: &Samples, series: &str, name: &str, label: &str) -> Option<f64> {
    reported
        .get(&format!(
            "{series}{{topic=\"namespace:plant:heat\",subscription=\"{name}\",{label}}}"
        ))
        .copied()
}

#[test]
fn each_operation_of_a_pull_client_is_counted_also_after_a_kill() {
    let (mut server, shown) = start(
        &[("METRICS__TOKEN", WATCHER)],
        &[("work", 300, 10), ("short", 1, 10)],
    );
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
            figures(server, "short")["counts"]["leases"]["lockExpired"] == 2
        });
        let work = figures(server, "work");
        let steps = json!({
            "received": 7, "acknowledged": 2, "released": 1, "rejected": 1, "renewed": 3, "lockExpired": 0
        });
        assert_eq!(work["counts"]["leases"], steps, "{work}");
        assert_eq!(
            work["counts"]["attempts"],
            json!({"Delivered": 2}),
            "two requests were answered with events"
        );
        assert_eq!(work["counts"]["matched"], 6, "{work}");
        assert_eq!(work["counts"]["dropped"], json!({"Rejected": 1}), "{work}");
        let short = figures(server, "short");
        assert_eq!(short["counts"]["leases"]["received"], 2, "{short}");
        assert_eq!(
            short["counts"]["attempts"],
            json!({"Delivered": 1, "TimedOut": 2}),
            "{short}"
        );
        let reported = samples(&scrape(server));
        let step = |name, step| {
            sample(
                &reported,
                "gridhook_subscription_leased_events_total",
                name,
                step,
            )
        };
        assert_eq!(
            step("work", "step=\"received\""),
            Some(7.0),
            "{reported:#?}"
        );
        assert_eq!(
            step("work", "step=\"rejected\""),
            Some(1.0),
            "{reported:#?}"
        );
        assert_eq!(
            step("short", "step=\"lockExpired\""),
            Some(2.0),
            "{reported:#?}"
        );
        let attempts = |outcome| {
            sample(
                &reported,
                "gridhook_subscription_attempts_total",
                "short",
                outcome,
            )
        };
        assert_eq!(attempts("outcome=\"TimedOut\""), Some(2.0), "{reported:#?}");
        assert_eq!(attempts("outcome=\"Unrecorded\""), None, "{reported:#?}");
    };
    look(&server);
    server.kill_9();
    server.restart();
    look(&server);
}
