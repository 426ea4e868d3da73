//! `$filter` of a list, as Azure defines it for Event Grid: by name only, with `contains`, `eq`, `ne`, `not`, `and`, `or`
//! and parentheses; names and words are compared without case.

use super::Invalid;

/// Nobody writes it by hand, and the reader calls itself for each level.
const DEPTH_MAX: usize = 32;

const ALLOWED: &str = "allowed are contains(name, 'text'), name eq 'text' and name ne 'text', joined by and, or, not and \
                       parentheses";

/// Which names are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those with this text in them.
    Containing(String),
    /// This one.
    Equal(String),
    /// All but these.
    Not(Box<Names>),
    /// Those of both.
    And(Box<Names>, Box<Names>),
    /// Those of either.
    Or(Box<Names>, Box<Names>),
}

impl Names {
    /// Reads a `$filter`.
    pub fn read(text: &str) -> Result<Self, Invalid> {
        let mut reader = Reader { tokens: tokens(text)?, at: 0 };
        let names = reader.either(0)?;
        match reader.next() {
            None => Ok(names),
            Some(token) => Err(unexpected(Some(token))),
        }
    }

    /// Whether `name` is asked for.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Containing(text) => name.to_lowercase().contains(text.as_str()),
            Self::Equal(text) => name.to_lowercase() == *text,
            Self::Not(names) => !names.has(name),
            Self::And(a, b) => a.has(name) && b.has(name),
            Self::Or(a, b) => a.has(name) || b.has(name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Open,
    Close,
    Comma,
}

fn tokens(text: &str) -> Result<Vec<Token>, Invalid> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '(' | ')' | ',' => {
                tokens.push(match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    _ => Token::Comma,
                });
                1
            }
            '\'' => {
                let (text, len) = quoted(rest)?;
                tokens.push(Token::Text(text.to_lowercase()));
                len
            }
            _ => {
                let len = rest.find(|c: char| c.is_whitespace() || "(),'".contains(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..len].to_lowercase()));
                len
            }
        };
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

/// The text in quotes that `rest` begins with, a quote in it doubled, and how many bytes it takes.
fn quoted(rest: &str) -> Result<(String, usize), Invalid> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => text.push('\''),
            '\'' => return Ok((text, at + 1)),
            c => text.push(c),
        }
    }
    Err(Invalid::new("$filter", format!("has a text without its closing quote; {ALLOWED}")))
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(Token::Word(given)) if given == word);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), Invalid> {
        match self.next() {
            Some(token) if token == *wanted => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn either(&mut self, depth: usize) -> Result<Names, Invalid> {
        let mut names = self.both(depth)?;
        while self.skip_word("or") {
            names = Names::Or(Box::new(names), Box::new(self.both(depth)?));
        }
        Ok(names)
    }

    fn both(&mut self, depth: usize) -> Result<Names, Invalid> {
        let mut names = self.one(depth)?;
        while self.skip_word("and") {
            names = Names::And(Box::new(names), Box::new(self.one(depth)?));
        }
        Ok(names)
    }

    fn one(&mut self, depth: usize) -> Result<Names, Invalid> {
        if depth > DEPTH_MAX {
            return Err(Invalid::new("$filter", format!("has more than {DEPTH_MAX} levels")));
        }
        match self.next() {
            Some(Token::Open) => {
                let names = self.either(depth + 1)?;
                self.expect(&Token::Close)?;
                Ok(names)
            }
            Some(Token::Word(word)) => match word.as_str() {
                "not" => Ok(Names::Not(Box::new(self.one(depth + 1)?))),
                "contains" => {
                    for token in [Token::Open, Token::Word("name".to_owned()), Token::Comma] {
                        self.expect(&token)?;
                    }
                    let text = self.text()?;
                    self.expect(&Token::Close)?;
                    Ok(Names::Containing(text))
                }
                "name" if self.skip_word("eq") => Ok(Names::Equal(self.text()?)),
                "name" if self.skip_word("ne") => Ok(Names::Not(Box::new(Names::Equal(self.text()?)))),
                _ => Err(unexpected(Some(Token::Word(word)))),
            },
            other @ (Some(Token::Text(_) | Token::Close | Token::Comma) | None) => Err(unexpected(other)),
        }
    }

    fn text(&mut self) -> Result<String, Invalid> {
        match self.next() {
            Some(Token::Text(text)) => Ok(text),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(token: Option<Token>) -> Invalid {
    let what = match token {
        Some(Token::Word(word)) => format!("cannot be read at \"{word}\""),
        Some(Token::Text(text)) => format!("cannot be read at '{text}'"),
        Some(Token::Open) => "cannot be read at \"(\"".to_owned(),
        Some(Token::Close) => "cannot be read at \")\"".to_owned(),
        Some(Token::Comma) => "cannot be read at \",\"".to_owned(),
        None => "breaks off".to_owned(),
    };
    Invalid::new("$filter", format!("{what}; {ALLOWED}"))
}
