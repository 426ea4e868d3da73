//! The parameters of a template on the command line.

use std::{convert::Infallible, fs, path::PathBuf, str::FromStr};

use super::ApplyCommandError;
use gridhook_declared::{DeclarationError, ParameterInput, TemplateOptions};

/// `NAME=VALUE`, or a file of parameters as `@FILE`.
#[derive(Clone, Debug)]
pub(super) enum ParameterArgument {
    One(String, String),
    File(PathBuf),
}

impl FromStr for ParameterArgument {
    type Err = Infallible;

    /// Text without an equals sign is a file, as with `az`.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match (text.strip_prefix('@'), text.split_once('=')) {
            (Some(file), _) => Self::File(file.into()),
            (None, Some((name, value))) => Self::One(name.trim().to_owned(), value.to_owned()),
            (None, None) => Self::File(text.into()),
        })
    }
}

impl ParameterArgument {
    /// Adds the parameters that are not set yet.
    pub(super) fn add_to(&self, options: &mut TemplateOptions) -> Result<(), ApplyCommandError> {
        match self {
            Self::One(name, value) => {
                options.add_parameter(name.clone(), ParameterInput::Text(value.clone()));
                Ok(())
            }
            Self::File(path) => {
                let text = fs::read_to_string(path).map_err(DeclarationError::from);
                text.and_then(|text| options.add_parameter_file(&text))
                    .map_err(|error| ApplyCommandError::Parameters {
                        file: path.display().to_string(),
                        error,
                    })
            }
        }
    }
}
