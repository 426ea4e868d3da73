//! `gridhook help`: a command's help, or a text on what several commands share.

use std::fmt::Write as _;

use super::{client::ClientError, manual::SECTIONS, suggestion};

/// The flags of `help`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Subjects: azure-clients, environment, exit-status, files, names, times.

Examples:
  gridhook help topics create
  gridhook help times")]
pub struct Help {
    /// A command, such as topics create, or a subject, such as times
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

impl Help {
    /// What is to be printed.
    ///
    /// # Errors
    /// Where there is no such command and no such subject.
    pub fn run(&self) -> Result<String, ClientError> {
        let mut command = super::command();
        command.build();
        if let [subject] = &self.topic[..]
            && let Some((_, entries)) = SECTIONS.iter().find(|(heading, _)| slug(heading) == *subject)
        {
            return Ok(format_entries(entries));
        }
        if self.topic.is_empty() {
            return Ok(command.render_help().to_string());
        }
        let mut at = &mut command;
        for word in &self.topic {
            let names: Vec<String> = at.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            at = match at.find_subcommand_mut(word) {
                Some(found) => found,
                None => return Err(unknown(word, &names)),
            };
        }
        Ok(at.render_long_help().to_string())
    }
}

fn unknown(word: &str, names: &[String]) -> ClientError {
    let subjects: Vec<String> = SECTIONS.iter().map(|(heading, _)| slug(heading)).collect();
    let all: Vec<&str> = names.iter().chain(&subjects).map(String::as_str).collect();
    let hint = match suggestion::similar(word, &all).first() {
        Some(like) => format!("did you mean {like}?"),
        None => "gridhook --help lists the commands".to_owned(),
    };
    ClientError::Input(format!("there is no help on {word}; {hint}"))
}

/// A heading as it is typed.
fn slug(heading: &str) -> String {
    heading.to_ascii_lowercase().replace(' ', "-")
}

fn format_entries(entries: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (term, words) in entries {
        // Writing to a string does not fail.
        write!(text, "{term}\n    {words}\n").ok();
    }
    text.trim_end().to_owned()
}
