//! `.ci/optimized`, which builds the released binary, and `.ci/train`, the load whose profile it is
//! compiled with.

use std::process::{Command, Output};

use super::{BINARY, output_text, root};

/// Too few events for a profile, enough for each publisher to have one in each part of the load.
const EVENTS: &str = "320";

fn train(binary: &str) -> Output {
    Command::new(root().join(".ci/train"))
        .args([binary, EVENTS])
        .output()
        .expect("bash is there")
}

#[test]
fn the_load_of_the_profile_arrives() {
    let output = train(BINARY);
    let printed = output_text(&output);
    assert!(output.status.success(), "{printed}");
    assert_eq!(
        printed.matches("train: ").count(),
        5,
        "each part of the load has a line: {printed}"
    );
}

#[test]
fn a_server_that_does_not_start_fails_the_build() {
    let output = train("false");
    let printed = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("train: false printed no \"gridhook listens on http://\""),
        "{printed}"
    );
}

#[test]
fn package_and_image_are_built_with_it() {
    for file in ["Makefile", "config/packaging/Dockerfile"] {
        let text = std::fs::read_to_string(root().join(file)).expect("a file");
        assert!(text.contains(" .ci/optimized"), "{file}");
    }
}
