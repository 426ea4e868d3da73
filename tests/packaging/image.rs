//! The instructions of the image: copied files and started commands exist.

use std::{fs, path::Path};

use clap::CommandFactory;
use gridhook::{
    cli::Cli,
    config::{Config, SettingSources},
};

use super::{read, root};

/// The instructions, continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').expect("an instruction and its words"));
    pairs
        .map(|(name, words)| (name.to_owned(), words.trim().to_owned()))
        .collect()
}

fn arguments_of(name: &str) -> Vec<String> {
    instructions()
        .into_iter()
        .filter(|(found, _)| found == name)
        .map(|(_, words)| words)
        .collect()
}

/// The words of a list in JSON.
fn list(words: &str) -> Vec<String> {
    serde_json::from_str(words).unwrap_or_else(|error| panic!("{words}: {error}"))
}

#[test]
fn every_path_that_the_image_copies_is_there_and_goes_into_the_build() {
    let ignored = fs::read_to_string(root().join(".dockerignore")).expect("what stays outside");
    let mut copied = 0;
    for words in arguments_of("COPY")
        .iter()
        .filter(|words| !words.starts_with("--from"))
    {
        let mut paths: Vec<&str> = words.split_whitespace().collect();
        paths.pop();
        for path in paths {
            assert!(root().join(path).exists(), "{path} is there");
            let top = Path::new(path)
                .iter()
                .next()
                .expect("a name")
                .to_string_lossy();
            assert!(
                ignored.lines().any(|line| line == format!("!{top}")),
                "{path} goes into the build"
            );
            copied += 1;
        }
    }
    assert!(copied >= 5, "{copied} paths");
    // The build needs all embedded files.
    assert!(
        ignored.lines().any(|line| line == "*"),
        "and nothing else does"
    );
}

#[test]
fn the_image_runs_as_nobody_and_starts_and_checks_with_existing_commands() {
    let user = arguments_of("USER").pop().expect("a user");
    assert!(!["root", "0"].contains(&user.as_str()), "{user}");
    let last = arguments_of("FROM").pop().expect("a base");
    assert!(
        last.ends_with(":nonroot") && user == "nonroot",
        "{last} knows {user}"
    );
    let health = arguments_of("HEALTHCHECK").pop().expect("a health check");
    let (_, health) = health.split_once("CMD ").expect("a command");
    let entry = list(&arguments_of("ENTRYPOINT").pop().expect("an entry"));
    let started = [entry, list(&arguments_of("CMD").pop().expect("arguments"))].concat();
    for command in [started, list(health)] {
        assert_eq!(command[0], "/usr/bin/gridhook");
        Cli::command()
            .try_get_matches_from(&command)
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
}

#[test]
fn the_settings_of_the_image_can_be_used_and_its_volume_is_where_the_data_goes() {
    let variables: Vec<_> = arguments_of("ENV")
        .iter()
        .flat_map(|words| {
            words
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .map(|pair| {
            pair.split_once('=')
                .map(|(name, value)| (name.into(), value.into()))
                .expect("a variable")
        })
        .collect();
    let config = Config::load(&SettingSources {
        environment: variables,
        ..SettingSources::default()
    })
    .expect("settings");
    assert!(
        config.server.listen.ip().is_unspecified(),
        "a published port is reachable"
    );
    assert_eq!(
        arguments_of("VOLUME"),
        [config.server.data_dir.display().to_string()]
    );
    // Nobody else may look into it: COPY gives the folder that it names mode 755, and keeps that of
    // those below.
    let folder = config
        .server
        .data_dir
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let parent = config
        .server
        .data_dir
        .parent()
        .expect("a parent")
        .display()
        .to_string();
    let copied = format!("--from=build --chown=nonroot:nonroot /store {parent}");
    assert!(arguments_of("COPY").contains(&copied), "{copied}");
    let made = format!("install -d -m 0700 /store/{folder}");
    assert!(
        arguments_of("RUN")
            .iter()
            .any(|words| words.ends_with(&made)),
        "{made}"
    );
    assert_eq!(
        arguments_of("EXPOSE"),
        [config.server.listen.port().to_string()]
    );
}
