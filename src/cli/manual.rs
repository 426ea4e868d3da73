//! The manual: `gridhook man` writes a page for the program, for each command and for each chapter.

use std::{fs, io, path::PathBuf};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use super::output::CommandError;
use gridhook_manual::CHAPTERS;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  gridhook man /usr/local/share/man/man1 && man gridhook-serve")]
pub struct Manual {
    /// Folder of the pages; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// The pages cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the manual pages: {0}")]
pub struct ManualError(#[from] io::Error);

impl CommandError for ManualError {}

/// Chapters that are sections of the program's own page.
const IN_MAIN_PAGE: [&str; 5] = ["exit-status", "environment", "files", "names", "times"];

impl Manual {
    /// Writes the pages, and returns how many.
    ///
    /// # Errors
    /// If the folder cannot be made or a page cannot be written.
    pub fn run(&self) -> Result<usize, ManualError> {
        fs::create_dir_all(&self.folder)?;
        let mut root = super::build_command();
        // Only a built command has the name of its page.
        root.build();
        let mut waiting = vec![root];
        let mut written = Vec::new();
        while let Some(command) = waiting.pop() {
            waiting.extend(
                command
                    .get_subcommands()
                    .filter(|child| !child.is_hide_set())
                    .cloned(),
            );
            written.push(self.write(command)?);
        }
        for chapter in CHAPTERS
            .iter()
            .filter(|chapter| !IN_MAIN_PAGE.contains(&chapter.name))
        {
            let name = format!("gridhook-{}.1", chapter.name);
            if !written.contains(&name) {
                chapter
                    .page()
                    .to_writer(&mut fs::File::create(self.folder.join(&name))?)?;
                written.push(name);
            }
        }
        Ok(written.len())
    }

    /// Writes the page of a command. It has the chapter of the same name, too.
    fn write(&self, command: Command) -> io::Result<String> {
        let own = command
            .get_display_name()
            .unwrap_or(command.get_name())
            .to_owned();
        let notes = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let man = Man::new(command.after_help(None::<&str>))
            .source(concat!("gridhook ", env!("CARGO_PKG_VERSION")));
        let man = man.manual("gridhook manual");
        let name = man.get_filename();
        let mut text = Vec::new();
        man.render(&mut text)?;
        notes_and_examples(&notes).to_writer(&mut text)?;
        for chapter in CHAPTERS
            .iter()
            .filter(|chapter| is_in_page(chapter.name, &own))
        {
            chapter.sections().to_writer(&mut text)?;
        }
        fs::write(self.folder.join(&name), text)?;
        Ok(name)
    }
}

/// Whether a chapter is in the man page `page`.
fn is_in_page(chapter: &str, page: &str) -> bool {
    match page.strip_prefix("gridhook-") {
        Some(command) => command == chapter,
        None => IN_MAIN_PAGE.contains(&chapter),
    }
}

/// The sections for the text behind the flags in the help. Its lines stay as they are: commands are
/// typed as they are printed.
fn notes_and_examples(text: &str) -> Roff {
    let mut notes = Vec::new();
    let mut examples = Vec::new();
    let mut is_example = false;
    for line in text.lines() {
        let is_heading = matches!(line, "Example:" | "Examples:");
        is_example = is_heading || (is_example && line.starts_with("  "));
        match (is_heading, is_example) {
            (true, _) => {}
            (false, true) => examples.push(line.trim_start()),
            (false, false) => notes.push(line),
        }
    }
    let mut page = Roff::new();
    for (title, lines) in [("NOTES", notes), ("EXAMPLES", examples)] {
        if lines.iter().all(|line| line.is_empty()) {
            continue;
        }
        page.control("SH", [title]).control("nf", []);
        for line in lines {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
    page
}
