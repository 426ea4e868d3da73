//! Parses the expressions of templates: `concat(parameters('name'), '/billing')`.

use super::EvaluationError;

/// Maximum depth of an expression.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Text(String),
    Number(i64),
    /// A call; the name of a function of the template has its namespace before a dot.
    Call {
        function: String,
        arguments: Vec<Expression>,
    },
    /// `value.name`
    Property(Box<Expression>, String),
    /// `value[index]`
    Element(Box<Expression>, Box<Expression>),
}

/// Parses the text between the brackets of an expression.
///
/// # Errors
/// What is wrong, and what is expected.
pub fn parse_expression(text: &str) -> Result<Expression, EvaluationError> {
    let mut reader = ExpressionReader { rest: text.trim() };
    let expression = reader.read(0)?;
    match reader.rest {
        "" => Ok(expression),
        rest => Err(invalid_expression(format!(
            "'{}' follows its end",
            shorten(rest)
        ))),
    }
}

fn invalid_expression(what: impl Into<String>) -> EvaluationError {
    EvaluationError::Invalid(what.into())
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

struct ExpressionReader<'a> {
    rest: &'a str,
}

impl ExpressionReader<'_> {
    fn read(&mut self, depth: usize) -> Result<Expression, EvaluationError> {
        if depth > DEPTH_MAX {
            return Err(invalid_expression(format!(
                "it is nested deeper than {DEPTH_MAX} levels"
            )));
        }
        let mut expression = self.read_simple(depth)?;
        loop {
            if self.skip_char('.') {
                let name = self.read_word();
                if name.is_empty() {
                    return Err(invalid_expression("a name is missing after a dot"));
                }
                expression = Expression::Property(Box::new(expression), name);
            } else if self.skip_char('[') {
                let index = self.read(depth + 1)?;
                if !self.skip_char(']') {
                    return Err(invalid_expression("a closing square bracket is missing"));
                }
                expression = Expression::Element(Box::new(expression), Box::new(index));
            } else {
                return Ok(expression);
            }
        }
    }

    fn read_simple(&mut self, depth: usize) -> Result<Expression, EvaluationError> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('\'') {
            return self.read_literal().map(Expression::Text);
        }
        let mut function = self.read_word();
        if let Ok(number) = function.parse::<i64>() {
            return Ok(Expression::Number(number));
        }
        // A function of the template: its namespace, a dot and its name.
        if self.rest.starts_with('.') && self.skip_char('.') {
            function = format!("{function}.{}", self.read_word());
        }
        if !self.skip_char('(') {
            return Err(invalid_expression(match function.as_str() {
                "" if self.rest.is_empty() => "it ends where a value is expected".to_owned(),
                "" => format!("'{}' is not a value", shorten(self.rest)),
                word => {
                    format!("'{word}' is not a call of a function; expected, for example, {word}()")
                }
            }));
        }
        let mut arguments = Vec::new();
        while !self.skip_char(')') {
            if !arguments.is_empty() && !self.skip_char(',') {
                return Err(invalid_expression(
                    "a comma or a closing bracket is missing",
                ));
            }
            arguments.push(self.read(depth + 1)?);
        }
        Ok(Expression::Call {
            function,
            arguments,
        })
    }

    /// A name or a number.
    fn read_word(&mut self) -> String {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '$';
        let end = self
            .rest
            .find(|c: char| !is_of_word(c))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word.to_owned()
    }

    /// A string in single quotes, in which two quotes stand for one.
    fn read_literal(&mut self) -> Result<String, EvaluationError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                    chars.next();
                    text.push('\'');
                }
                '\'' => {
                    self.rest = self.rest[at + 1..].trim_start();
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(invalid_expression("a string has no closing quote"))
    }

    fn skip_char(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}
