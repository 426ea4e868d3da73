//! `$filter` of a list, as Azure defines it for Event Grid: by name only, with `contains`, `eq`,
//! `ne`, `not`, `and`, `or` and parentheses; names and words are compared without case.

use super::{CheckResult, InvalidRequest};
use crate::model::refuse_value;

/// Maximum nesting, because the parser is recursive.
const DEPTH_MAX: usize = 32;

/// Maximum number of comparisons, each of which every resource of the list is compared with.
const TERMS_MAX: usize = 100;

const ALLOWED: &str = "expected contains(name, 'text'), name eq 'text' or name ne 'text', \
    joined by and, or, not and parentheses";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameFilter {
    /// Names that contain this text.
    Containing(String),
    Equal(String),
    /// Names that the filter does not match.
    Not(Box<NameFilter>),
    /// Names that both filters match.
    And(Box<NameFilter>, Box<NameFilter>),
    /// Names that one of the filters matches.
    Or(Box<NameFilter>, Box<NameFilter>),
}

impl NameFilter {
    pub fn read(text: &str) -> CheckResult<Self> {
        let mut reader = ODataParser {
            tokens: tokenize(text)?,
            at: 0,
            terms: 0,
        };
        let names = reader.parse_or(0)?;
        match reader.next() {
            None => Ok(names),
            Some(token) => Err(unexpected_token(Some(token))),
        }
    }

    pub fn matches_name(&self, name: &str) -> bool {
        match self {
            Self::Containing(text) => name.to_lowercase().contains(text.as_str()),
            Self::Equal(text) => name.to_lowercase() == *text,
            Self::Not(names) => !names.matches_name(name),
            Self::And(a, b) => a.matches_name(name) && b.matches_name(name),
            Self::Or(a, b) => a.matches_name(name) || b.matches_name(name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ODataToken {
    Word(String),
    Text(String),
    Open,
    Close,
    Comma,
}

fn tokenize(text: &str) -> CheckResult<Vec<ODataToken>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '(' | ')' | ',' => {
                tokens.push(match first {
                    '(' => ODataToken::Open,
                    ')' => ODataToken::Close,
                    _ => ODataToken::Comma,
                });
                1
            }
            '\'' => {
                let (text, len) = parse_quoted(rest)?;
                tokens.push(ODataToken::Text(text.to_lowercase()));
                len
            }
            _ => {
                let len = rest
                    .find(|c: char| c.is_whitespace() || "(),'".contains(c))
                    .unwrap_or(rest.len());
                tokens.push(ODataToken::Word(rest[..len].to_lowercase()));
                len
            }
        };
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

/// The quoted text at the start of `rest`, in which a quote is doubled, and its length in bytes.
fn parse_quoted(rest: &str) -> CheckResult<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => text.push('\''),
            '\'' => return Ok((text, at + 1)),
            c => text.push(c),
        }
    }
    refuse_value(
        "$filter",
        format!("has a text without its closing quote; {ALLOWED}"),
    )
}

struct ODataParser {
    tokens: Vec<ODataToken>,
    at: usize,
    terms: usize,
}

impl ODataParser {
    fn next(&mut self) -> Option<ODataToken> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(ODataToken::Word(given)) if given == word);
        self.at += usize::from(is);
        is
    }

    fn expect_token(&mut self, wanted: &ODataToken) -> CheckResult {
        match self.next() {
            Some(token) if token == *wanted => Ok(()),
            other => Err(unexpected_token(other)),
        }
    }

    fn parse_or(&mut self, depth: usize) -> CheckResult<NameFilter> {
        let mut names = self.parse_and(depth)?;
        while self.skip_word("or") {
            names = NameFilter::Or(Box::new(names), Box::new(self.parse_and(depth)?));
        }
        Ok(names)
    }

    fn parse_and(&mut self, depth: usize) -> CheckResult<NameFilter> {
        let mut names = self.parse_term(depth)?;
        while self.skip_word("and") {
            names = NameFilter::And(Box::new(names), Box::new(self.parse_term(depth)?));
        }
        Ok(names)
    }

    fn parse_term(&mut self, depth: usize) -> CheckResult<NameFilter> {
        if depth > DEPTH_MAX {
            return refuse_value("$filter", format!("has more than {DEPTH_MAX} levels"));
        }
        match self.next() {
            Some(ODataToken::Open) => {
                let names = self.parse_or(depth + 1)?;
                self.expect_token(&ODataToken::Close)?;
                Ok(names)
            }
            Some(ODataToken::Word(word)) => match word.as_str() {
                "not" => Ok(NameFilter::Not(Box::new(self.parse_term(depth + 1)?))),
                "contains" => {
                    for token in [
                        ODataToken::Open,
                        ODataToken::Word("name".to_owned()),
                        ODataToken::Comma,
                    ] {
                        self.expect_token(&token)?;
                    }
                    let text = self.parse_text()?;
                    self.expect_token(&ODataToken::Close)?;
                    Ok(NameFilter::Containing(text))
                }
                "name" if self.skip_word("eq") => Ok(NameFilter::Equal(self.parse_text()?)),
                "name" if self.skip_word("ne") => Ok(NameFilter::Not(Box::new(NameFilter::Equal(
                    self.parse_text()?,
                )))),
                _ => Err(unexpected_token(Some(ODataToken::Word(word)))),
            },
            other @ (Some(ODataToken::Text(_) | ODataToken::Close | ODataToken::Comma) | None) => {
                Err(unexpected_token(other))
            }
        }
    }

    /// The text of a comparison.
    fn parse_text(&mut self) -> CheckResult<String> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return refuse_value("$filter", format!("has more than {TERMS_MAX} comparisons"));
        }
        match self.next() {
            Some(ODataToken::Text(text)) => Ok(text),
            other => Err(unexpected_token(other)),
        }
    }
}

fn unexpected_token(token: Option<ODataToken>) -> InvalidRequest {
    let what = match token {
        Some(ODataToken::Word(word)) => format!("cannot be read at \"{word}\""),
        Some(ODataToken::Text(text)) => format!("cannot be read at '{text}'"),
        Some(ODataToken::Open) => "cannot be read at \"(\"".to_owned(),
        Some(ODataToken::Close) => "cannot be read at \")\"".to_owned(),
        Some(ODataToken::Comma) => "cannot be read at \",\"".to_owned(),
        None => "breaks off".to_owned(),
    };
    InvalidRequest::new("$filter", format!("{what}; {ALLOWED}"))
}
