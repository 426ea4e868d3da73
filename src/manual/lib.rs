//! Chapters of the manual: Markdown files that are compiled in, printed by `gridhook help` and
//! written as man pages.
//!
//! The chapters use a part of Markdown only: headings, paragraphs, lists of one level, tables and
//! fenced blocks. A row of a table becomes a term with a description, because neither a terminal
//! nor man has columns of wrapped text.

use std::fmt::Write as _;

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// Width of the text that is printed.
const COLUMNS: usize = 80;

#[derive(Clone, Copy, Debug)]
pub struct Chapter {
    /// The name that is typed, and the file's name without `.md`.
    pub name: &'static str,
    /// The text of the file.
    pub markdown: &'static str,
}

macro_rules! chapters {
    ($($name:literal),* $(,)?) => {
        /// All chapters, in reading order.
        pub const CHAPTERS: &[Chapter] =
            &[$(Chapter { name: $name, markdown: include_str!(concat!($name, ".md")) }),*];
    };
}

chapters![
    "dashboard",
    "publishing",
    "subscriptions",
    "delivery",
    "dead-letters",
    "replay",
    "pull-delivery",
    "destinations",
    "security",
    "metrics",
    "backup",
    "cluster",
    "chaos",
    "install",
    "kubernetes",
    "upgrade",
    "settings",
    "tuning",
    "azure-clients",
    "environment",
    "exit-status",
    "files",
    "names",
    "times",
    "glossary",
];

pub fn find(name: &str) -> Option<&'static Chapter> {
    CHAPTERS.iter().find(|chapter| chapter.name == name)
}

/// A part of a chapter.
#[derive(Debug, PartialEq, Eq)]
enum Block<'a> {
    Heading { level: usize, text: &'a str },
    Paragraph(String),
    Item { mark: &'a str, words: String },
    Entry { term: String, lines: Vec<String> },
    Code(Vec<&'a str>),
}

impl Chapter {
    pub fn title(&self) -> &'static str {
        self.markdown
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
    }

    /// The chapter as it is printed in a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut previous_is_row = false;
        for block in parse(self.markdown) {
            let is_row = matches!(block, Block::Entry { .. } | Block::Item { .. });
            let is_next_row = is_row && previous_is_row;
            if !text.is_empty() && !is_next_row {
                text.push('\n');
            }
            previous_is_row = is_row;
            match block {
                Block::Heading {
                    level: 1,
                    text: title,
                } => text.push_str(&format!("{}\n", title.to_uppercase())),
                Block::Heading { text: title, .. } => text.push_str(&format!("{title}\n")),
                Block::Paragraph(words) => wrap(&words, "", "", &mut text),
                Block::Item { mark, words } => {
                    let first = format!("{mark} ");
                    wrap(&words, &first, &" ".repeat(first.len()), &mut text);
                }
                Block::Entry { term, lines } => {
                    text.push_str(&format!("{}\n", term.replace('`', "")));
                    for line in lines {
                        wrap(&line, "    ", "    ", &mut text);
                    }
                }
                Block::Code(lines) => {
                    for line in lines {
                        // Writing to a string does not fail.
                        writeln!(text, "    {line}").ok();
                    }
                }
            }
        }
        text.trim_end().to_owned()
    }

    /// The chapter as a man page of its own.
    pub fn page(&self) -> Roff {
        let mut page = Roff::new();
        let name = format!("gridhook-{}", self.name);
        page.control("TH", [name.as_str(), "1"]);
        page.control("SH", ["NAME"])
            .text([roman(format!("{name} - {}", self.title()))]);
        page.extend([self.sections()]);
        page
    }

    /// The chapter's sections, to stand behind those of a command's page.
    pub fn sections(&self) -> Roff {
        let mut roff = Roff::new();
        roff.control("SH", [self.title().to_uppercase().as_str()]);
        for block in parse(self.markdown).into_iter().skip(1) {
            match block {
                Block::Heading { level, text } => {
                    roff.control(if level == 2 { "SH" } else { "SS" }, [text])
                }
                Block::Paragraph(words) => roff.control("PP", []).text(inlines(&words)),
                Block::Item { mark: "-", words } => {
                    roff.control("IP", ["\\(bu", "2"]).text(inlines(&words))
                }
                Block::Item { mark, words } => {
                    roff.control("IP", [mark, "4"]).text(inlines(&words))
                }
                Block::Entry { term, lines } => {
                    roff.control("TP", []).text([bold(term.replace('`', ""))]);
                    for (number, line) in lines.iter().enumerate() {
                        if number > 0 {
                            roff.control("br", []);
                        }
                        roff.text(inlines(line));
                    }
                    &mut roff
                }
                Block::Code(lines) => {
                    roff.control("PP", [])
                        .control("nf", [])
                        .control("RS", ["4"]);
                    for line in lines {
                        roff.text([roman(line)]);
                    }
                    roff.control("RE", []).control("fi", [])
                }
            };
        }
        roff
    }
}

/// Text in which words between backticks are bold.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = text
        .split('`')
        .enumerate()
        .filter(|(_, part)| !part.is_empty());
    parts
        .map(|(number, part)| {
            if number % 2 == 1 {
                bold(part)
            } else {
                roman(part)
            }
        })
        .collect()
}

fn wrap(words: &str, first: &str, rest: &str, text: &mut String) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&format!("{line}\n"));
            rest.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&format!("{line}\n"));
}

/// The cells of a table's row.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The mark of an item of a list, `-` or `1.`, and its words.
fn split_item(line: &str) -> Option<(&str, &str)> {
    let (mark, words) = line.split_once(' ')?;
    let number = mark.strip_suffix('.');
    let is_numbered = number.is_some_and(|number| number.parse::<u8>().is_ok());
    (mark == "-" || is_numbered).then_some((mark, words))
}

fn continues_paragraph(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with(['|', '#'])
        && !line.starts_with("```")
        && split_item(line).is_none()
}

fn parse(markdown: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            blocks.push(Block::Code(
                lines.by_ref().take_while(|line| *line != "```").collect(),
            ));
        } else if line.starts_with('#') {
            let text = line.trim_start_matches('#');
            blocks.push(Block::Heading {
                level: line.len() - text.len(),
                text: text.trim(),
            });
        } else if line.starts_with('|') {
            let headings = cells(line);
            // The row of hyphens.
            lines.next();
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                let row = cells(row);
                let described = headings.iter().zip(&row).skip(1);
                let lines = described.map(|(heading, cell)| match headings.len() {
                    2 => (*cell).to_owned(),
                    _ => format!("{heading}: {cell}"),
                });
                blocks.push(Block::Entry {
                    term: row.first().copied().unwrap_or_default().to_owned(),
                    lines: lines.collect(),
                });
            }
        } else if let Some((mark, item)) = split_item(line) {
            let mut words = item.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                words.push_str(&format!(" {}", more.trim()));
            }
            blocks.push(Block::Item { mark, words });
        } else if line.starts_with("![") {
            // A picture, for readers of the file.
        } else if !line.is_empty() {
            let mut words = line.to_owned();
            while let Some(more) = lines.next_if(|line| continues_paragraph(line)) {
                words.push_str(&format!(" {more}"));
            }
            blocks.push(Block::Paragraph(words));
        }
    }
    blocks
}
