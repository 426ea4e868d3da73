//! `az`, as it is on PyPI: registers the server as a cloud, signs in and manages Event Grid.

use std::process::Command;

use serde_json::json;

use super::{Stage, packages};
use crate::support::needs;

#[test]
fn az_registers_the_server_as_a_cloud_signs_in_and_manages_event_grid() {
    if !needs::python() {
        return;
    }
    let stage = Stage::signed_in();
    // A sign-in lists Azure subscriptions: those that have a resource.
    let topic = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders";
    assert_eq!(stage.server.command("PUT", topic, &json!({})).status, 201);
    let mut program = Command::new(&*packages::AZ);
    program
        .arg(packages::sources("az").join("scenario.py"))
        .env("AZURE_CONFIG_DIR", stage.folder.path().join("az"))
        .env("AZURE_CORE_COLLECT_TELEMETRY", "no")
        .env("AZURE_CORE_INSTANCE_DISCOVERY", "false")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    stage.run(program);
}
