//! Reads a file, with the states of resources that its expressions need.

use std::path::Path;

use awc::http::Method;
use serde_json::Value;

use crate::{
    client::{ClientResult, ServerClient},
    output::CommandResult,
};
use gridhook_declared::{
    self as declared, Declared, DeclaredError, ResourceGroup, StateKey, TemplateOptions,
};

/// Maximum number of times that states are fetched: each can make an expression need another one.
const ROUNDS_MAX: usize = 20;

/// A file and what it is read with.
pub(super) struct TemplateReader<'a> {
    pub(super) file: &'a Path,
    pub(super) group: ResourceGroup,
    pub(super) options: TemplateOptions,
}

impl TemplateReader<'_> {
    /// Reads the file with the known states.
    pub(super) fn read(&self) -> Result<Declared, DeclaredError> {
        declared::load_file(self.file, &self.group, &self.options)
    }

    /// Reads the file, and fetches the states that it needs of resources that exist.
    pub(super) async fn read_with_states(
        &mut self,
        server: &ServerClient,
    ) -> CommandResult<Declared> {
        let mut declared = self.read()?;
        for _ in 0..ROUNDS_MAX {
            let mut is_new = false;
            for pending in &declared.template.pending {
                if let Some(state) = fetch_state(server, &pending.needs).await? {
                    is_new |= self
                        .options
                        .states
                        .insert(pending.needs.clone(), state)
                        .is_none();
                }
            }
            if !is_new {
                break;
            }
            declared = self.read()?;
        }
        Ok(declared)
    }
}

/// The state of a resource, if it exists.
async fn fetch_state(server: &ServerClient, key: &StateKey) -> ClientResult<Option<Value>> {
    let (method, path) = match &key.action {
        None => (Method::GET, key.id.clone()),
        Some(action) => (Method::POST, format!("{}/{action}", key.id)),
    };
    server.find(method, &path).await
}
