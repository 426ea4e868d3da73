//! Changed settings and dead-letter files. Changed requests are in `publish::fuzz` and
//! `admin::fuzz`, changed records in `journal::records`, `journal::chunks` and `journal::keys`.
//! `make fuzz` runs the long form of all of them.

use std::fs;

use gridhook::{
    config::{Config, DEFAULTS, SettingSources},
    dead_letter::file::event_of,
};
use proptest::{prelude::*, sample::Index};
use serde_json::value::RawValue;

use crate::support::fuzz::{cases, changed, changes};

/// Replacements for a setting.
const VALUES: [&str; 18] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "1e9",
    "true",
    "\"\"",
    "\"auto\"",
    "\"10s\"",
    "\"10\"",
    "\"-1s\"",
    "\"64 KiB\"",
    "\"99999999 TiB\"",
    "\"0.0.0.0:0\"",
    "[]",
    "[\"10.0.0.0/8\"]",
    "{}",
    "\"\\u0000\"",
];

fn load(text: &[u8]) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gridhook.toml");
    fs::write(&path, text).expect("a file");
    Config::load(&SettingSources {
        file: Some(path),
        ..SettingSources::default()
    })
    .map_err(|error| error.to_string())
}

/// Settings are read, and then again in the same way; or there is a complaint that names the file.
fn check(text: &[u8]) -> Result<(), TestCaseError> {
    match load(text) {
        Ok(config) => {
            let again = load(text).expect("what was read is read again");
            prop_assert_eq!(format!("{config:?}"), format!("{again:?}"));
            prop_assert!(config.publish.event_bytes <= config.publish.request_bytes);
            prop_assert!(config.publish.request_bytes <= config.publish.bytes_in_flight);
        }
        Err(reported) => prop_assert!(
            reported.contains("gridhook.toml") && reported.len() < 4_000,
            "{reported}"
        ),
    }
    Ok(())
}

/// The settings as delivered, and the lines of them that set something.
fn defaults() -> (Vec<String>, Vec<usize>) {
    let lines: Vec<String> = DEFAULTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let keys = (0..lines.len())
        .filter(|line| lines[*line].contains(" = "))
        .collect();
    (lines, keys)
}

fn set(line: &mut String, value: &str) {
    let (name, _) = line.split_once(" = ").expect("a key");
    *line = format!("{name} = {value}");
}

#[test]
fn every_setting_with_each_of_the_values_is_read_or_reported() {
    let (lines, keys) = defaults();
    for (key, value) in keys
        .iter()
        .flat_map(|key| VALUES.map(|value| (*key, value)))
    {
        let mut lines = lines.clone();
        set(&mut lines[key], value);
        check(lines.join("\n").as_bytes())
            .unwrap_or_else(|reported| panic!("{}: {reported}", lines[key]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn settings_with_values_changed_are_read_or_reported(twists in prop::collection::vec((any::<Index>(), any::<Index>()), 1..4)) {
        let (mut lines, keys) = defaults();
        for (key, value) in twists {
            set(&mut lines[keys[key.index(keys.len())]], VALUES[value.index(VALUES.len())]);
        }
        check(lines.join("\n").as_bytes())?;
    }

    #[test]
    fn settings_with_bytes_changed_are_read_or_reported(changes in changes(3)) {
        let text: String = DEFAULTS.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        check(&changed(text.as_bytes(), &changes))?;
    }

    #[test]
    fn a_dead_letter_with_bytes_changed_is_read_or_refused(which in 0usize..3, custom: bool, changes in changes(4)) {
        let letters = [
            r#"{"id":"a","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"1","metadataVersion":"1","topic":"/t","subject":"s","deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":1,"lastDeliveryOutcome":"BadRequest","publishTime":"2020-08-13T17:18:13Z","lastDeliveryAttemptTime":"2020-08-13T17:18:13Z","data":{ "a" : 1.0 }}"#,
            r#"{"specversion":"1.0","id":"a","source":"/s","type":"T","deadletterreason":"TimeToLiveExceeded","deliveryattempts":3,"data":{ "a" : 1.0 }}"#,
            r#"{"id":"a","deadLetterReason":"x","data":{ "deadLetterReason" : "mine" }}"#,
        ];
        let letter = changed(letters[which].as_bytes(), &changes);
        let Ok(letter) = String::from_utf8(letter) else { return Ok(()) };
        if let Ok(event) = event_of(&letter, custom) {
            prop_assert!(event.len() <= letter.len(), "nothing is added to an event: {event}");
            prop_assert!(serde_json::from_str::<&RawValue>(&event).is_ok(), "{event}");
            if !custom {
                prop_assert_eq!(event_of(&event, false).expect("an event is one again"), event.clone());
            }
        }
    }
}
