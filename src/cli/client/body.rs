//! Request bodies from files and flags.

use std::{fs, io, path::Path};

use serde_json::{Value, json};

use super::{ClientError, ClientResult};

/// Reads a JSON object from a file or standard input; without a file it is empty.
pub(crate) fn read_body(file: Option<&Path>) -> ClientResult<Value> {
    let Some(path) = file else {
        return Ok(json!({}));
    };
    match read_input(path)? {
        body @ Value::Object(_) => Ok(body),
        _ => Err(ClientError::Input(format!(
            "{} is not a JSON object; expected one JSON object",
            path.display()
        ))),
    }
}

/// Reads JSON from a file, or from standard input for `-`.
pub(crate) fn read_input(path: &Path) -> ClientResult<Value> {
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(path)
    };
    let text = text.map_err(|error| {
        ClientError::Input(format!("{} cannot be read: {error}", path.display()))
    })?;
    // Some editors, and PowerShell, begin a file with a byte order mark.
    let json = text.strip_prefix('\u{feff}').unwrap_or(&text);
    serde_json::from_str(json)
        .map_err(|error| ClientError::Input(format!("{} is not JSON: {error}", path.display())))
}

/// Sets the value at `path` in a JSON body, and creates the objects above it.
pub(crate) fn set_value(body: &mut Value, path: &[&str], value: Value) -> ClientResult<()> {
    let mut at = body;
    for key in path {
        if at.is_null() {
            *at = json!({});
        }
        let Value::Object(inside) = at else {
            return Err(ClientError::Input(format!(
                "{} cannot be set: a value above it is not a JSON object",
                path.join(".")
            )));
        };
        at = inside.entry(*key).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}
