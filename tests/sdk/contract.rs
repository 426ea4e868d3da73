//! The server against its own description, as schemathesis reads it: thousands of requests,
//! well-formed and not. No response may have a status, a content type or a body that is not
//! described, none may be 5xx, and without a token nothing that wants one may be done.
//!
//! Endpoints are made up and not validated; the only real address is on loopback.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};

use super::{Stage, packages};
use crate::support::{needs, server::SubscriptionSpec};

/// The same requests in every run.
const SEED: &str = "1";

/// The number of generated requests for each operation, besides those for each of its parameters.
const EXAMPLES: &str = "2";

/// The checks of schemathesis.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth";

/// Both together took 90 s on two cores without other work.
const RUN: Duration = Duration::from_secs(1_500);

/// Wrong tokens are shown to every operation, which would slow the run down as it does thieves.
const SETTINGS: [(&str, &str); 3] = [
    ("DELIVERY__VALIDATE", "false"),
    ("CHAOS__ENABLED", "true"),
    ("LIMITS__FAILED_KEYS", "1000000"),
];

const PROVIDER: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid";

fn schemathesis(stage: &Stage, known: bool) -> Command {
    let mut program = Command::new(&*packages::SCHEMATHESIS);
    if known {
        program
            .arg("--config-file")
            .arg(packages::sources("python").join("known.toml"));
    }
    let header = format!("Authorization: Bearer {}", stage.token());
    program.args([
        "run",
        &format!("{}/openapi.json", stage.url),
        "--header",
        &header,
    ]);
    let phases = if known {
        "examples,coverage,fuzzing"
    } else {
        "examples,fuzzing"
    };
    program.args(["--checks", CHECKS, "--phases", phases]);
    // After some of its requests others receive 503, as they should.
    program.args(["--exclude-path", "/chaos/writes"]);
    // A server whose clock was set back and confirmed starts again, and returns 503 meanwhile.
    program.args(["--exclude-path", "/chaos/clock"]);
    // A stream of server-sent events has no end.
    program.args(["--exclude-path", "/tail"]);
    // A simulation computes for seconds, on a machine with other work for more than the ten that
    // are usual.
    program.args(["--request-timeout", "60"]);
    program.args([
        "--seed",
        SEED,
        "--max-examples",
        EXAMPLES,
        "--warnings",
        "off",
        "--no-color",
    ]);
    if known {
        // The next operation needs the resources.
        program.args(["--exclude-method", "DELETE"]);
    }
    program
}

#[test]
fn no_answer_is_other_than_described() {
    if !needs::python() {
        return;
    }
    let stage = Stage::http_with(&SETTINGS);
    stage.run_within(RUN, schemathesis(&stage, false));
    let make = |resource: &str, body: &Value| {
        stage
            .server
            .command("PUT", &format!("{PROVIDER}/{resource}"), body);
    };
    let subscription =
        json!({"properties": SubscriptionSpec::new("http://127.0.0.1:9/nobody").properties()});
    for resource in [
        "topics/orders",
        "domains/shops",
        "domains/shops/topics/berlin",
    ] {
        make(resource, &json!({}));
        make(
            &format!("{resource}/eventSubscriptions/billing"),
            &subscription,
        );
    }
    stage.run_within(RUN, schemathesis(&stage, true));
}
