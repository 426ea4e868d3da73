//! OpenTofu with Azure's provider azapi, compiled from their modules.

use std::process::Command;

use serde_json::Value;

use super::{Stage, packages};
use crate::support::needs;

/// Compiling both takes ten minutes of a processor and more: `make soak`.
#[test]
fn opentofu_applies_a_configuration_of_azapi_changes_it_and_destroys_it() {
    if !needs::soak() || !needs::go() || !needs::python() {
        return;
    }
    let stage = Stage::signed_in();
    let mut program = Command::new("python3");
    program
        .arg(packages::sources("azapi").join("scenario.py"))
        .arg(&*packages::TOFU)
        .arg(&*packages::AZAPI)
        .arg(stage.folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    stage.run(program);
    let group = "/subscriptions/s-1/resourceGroups/tf";
    assert_eq!(stage.server.admin("GET", group, &Value::Null).status, 404);
}
