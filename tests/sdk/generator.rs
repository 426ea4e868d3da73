//! Clients in Go and Python that openapi-generator makes of the server's description: they compile,
//! and manage a topic.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Stage, packages};
use crate::support::needs;

/// Makes a client in a folder of the stage.
fn generate_client(stage: &Stage, language: &str) -> PathBuf {
    let document = stage.folder.path().join("openapi.json");
    let description = stage.server.command("GET", "/openapi.json", &Value::Null);
    fs::write(&document, description.text()).expect("written");
    let output = stage.folder.path().join(language);
    let mut program = Command::new("java");
    program.arg("-jar").arg(&*packages::GENERATOR);
    program
        .args(["generate", "-g", language, "-i"])
        .arg(&document);
    program.arg("-o").arg(&output);
    stage.run(program);
    output
}

fn copy_files(names: &[&str], folder: &Path) {
    for name in names {
        let target = folder.join(name);
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        fs::copy(packages::sources("generator").join(name), target).expect("copied");
    }
}

#[test]
fn a_generated_client_in_go_compiles_and_manages_a_topic() {
    if !needs::java() || !needs::go() {
        return;
    }
    let stage = Stage::http();
    let folder = generate_client(&stage, "go");
    // Its tests need a package that the client does not.
    fs::remove_dir_all(folder.join("test")).expect("a folder of tests");
    copy_files(&["go.mod", "go.sum", "use/main.go"], &folder);
    let mut build = Command::new("go");
    build.arg("-C").arg(&folder);
    build.args([
        "build",
        "-buildvcs=false",
        "-mod=readonly",
        "-o",
        "client",
        "./use",
    ]);
    stage.run(build);
    let mut client = Command::new(folder.join("client"));
    client.arg(&stage.url).arg(stage.token());
    stage.run(client);
}

#[test]
fn a_generated_client_in_python_is_imported_whole_and_manages_a_topic() {
    if !needs::java() || !needs::python() {
        return;
    }
    let stage = Stage::http();
    let folder = generate_client(&stage, "python");
    let mut client = Command::new(&*packages::GENERATED_PYTHON);
    client.arg(packages::sources("generator").join("use.py"));
    client.arg(folder).arg(&stage.url).arg(stage.token());
    client.env("PYTHONDONTWRITEBYTECODE", "1");
    stage.run(client);
}
