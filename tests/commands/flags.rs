//! One flag has one meaning, and each refused value says what is allowed.

use std::collections::BTreeMap;

use clap::error::ErrorKind;

use super::leaves;

#[test]
fn a_flag_has_one_meaning() {
    let mut meanings: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (name, command) in leaves() {
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long() else {
                continue;
            };
            let values: Vec<String> = argument
                .get_value_names()
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect();
            let takes = if argument.get_action().takes_values() {
                values.join(" ")
            } else {
                "a switch".to_owned()
            };
            meanings
                .entry(long.to_owned())
                .or_default()
                .entry(takes)
                .or_default()
                .push(name.clone());
        }
    }
    let several: Vec<_> = meanings
        .iter()
        .filter(|(_, meanings)| meanings.len() > 1)
        .collect();
    assert!(several.is_empty(), "{several:#?}");
}

#[test]
fn durations_are_written_in_one_way_everywhere() {
    let mut durations = 0;
    for (name, command) in leaves() {
        for argument in command.get_arguments() {
            let long = argument.get_long().unwrap_or_default().to_owned();
            let is_duration = argument
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| *name == "DURATION"));
            if !is_duration {
                continue;
            }
            durations += 1;
            // `top` updates at least every 30 s.
            let forms = if name == "top" {
                ["20s", "PT20S"]
            } else {
                ["2m", "PT2M"]
            };
            for text in forms {
                let kind = refusal(&command, &long, text).map(|error| error.kind());
                assert_ne!(
                    kind,
                    Some(ErrorKind::ValueValidation),
                    "{name} --{long} {text}"
                );
            }
        }
    }
    assert!(durations >= 12, "{durations}");
}

#[test]
fn a_refused_value_says_what_is_allowed() {
    let mut refused = 0;
    for (name, command) in leaves() {
        for argument in command
            .get_arguments()
            .filter(|argument| argument.get_action().takes_values())
        {
            let Some(long) = argument.get_long() else {
                continue;
            };
            let Some(error) = refusal(&command, long, "\u{7f}?") else {
                continue;
            };
            if error.kind() != ErrorKind::ValueValidation {
                continue;
            }
            refused += 1;
            let text = error.to_string();
            assert!(text.contains("expected "), "{name} --{long}: {text}");
        }
    }
    assert!(refused >= 60, "{refused}");
}

/// The error of a command line with this flag.
fn refusal(command: &clap::Command, long: &str, value: &str) -> Option<clap::Error> {
    command
        .clone()
        .try_get_matches_from(["gridhook", &format!("--{long}={value}")])
        .err()
}

#[test]
fn every_help_that_names_domains_names_namespaces() {
    for (name, command) in leaves() {
        for argument in command.get_arguments() {
            let help = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let is_topic =
                help.contains("domains/NAME,") || help.contains("domains/NAME/topics/NAME");
            assert!(
                !is_topic || help.contains("namespaces/NAME/topics/NAME"),
                "{name}: {help}"
            );
        }
    }
}
