//! `gridhook help`: a chapter of the manual, or a command's help.

use super::{
    client::{ClientError, ClientResult},
    suggestion,
};
use gridhook_manual as manual;
use gridhook_manual::CHAPTERS;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Chapters of the manual:
  dashboard, publishing, subscriptions, delivery, dead-letters, replay, pull-delivery,
  destinations, security, metrics, backup, cluster, chaos, install, kubernetes,
  upgrade, settings, tuning, azure-clients, environment, exit-status, files, names, times,
  glossary

A chapter and a command may have the same name: gridhook help replay prints the
chapter, gridhook replay --help the flags.

Examples:
  gridhook help topics create
  gridhook help delivery")]
pub struct Help {
    /// A chapter, such as delivery, or a command, such as topics create
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

impl Help {
    /// The text to print.
    ///
    /// # Errors
    /// If no chapter and no command has this name.
    pub fn run(&self) -> ClientResult {
        if let [name] = &self.topic[..]
            && let Some(chapter) = manual::find(name)
        {
            return Ok(chapter.text());
        }
        let mut command = super::build_command();
        command.build();
        if self.topic.is_empty() {
            return Ok(command.render_help().to_string());
        }
        let mut at = &mut command;
        for word in &self.topic {
            let names: Vec<String> = at
                .get_subcommands()
                .map(|command| command.get_name().to_owned())
                .collect();
            at = match at.find_subcommand_mut(word) {
                Some(found) => found,
                None => return Err(unknown_topic(word, &names)),
            };
        }
        Ok(at.render_long_help().to_string())
    }
}

fn unknown_topic(word: &str, names: &[String]) -> ClientError {
    let chapters = CHAPTERS.iter().map(|chapter| chapter.name);
    let all: Vec<&str> = names.iter().map(String::as_str).chain(chapters).collect();
    let hint = match suggestion::similar_names(word, &all).first() {
        Some(like) => format!("did you mean {like}?"),
        None => "gridhook help help lists the chapters, gridhook --help the commands".to_owned(),
    };
    ClientError::Input(format!("there is no help on {word}; {hint}"))
}
