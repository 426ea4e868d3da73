//! All records of the control plane of one kind, in pages.

use std::{ops::ControlFlow, sync::Arc, vec};

use bytes::Bytes;

use crate::Error;
use gridhook_store::{
    Family, Store,
    keys::{self, MetaKind},
};

/// Records read at a time: a caller that makes something smaller of each record never has all of
/// them in memory.
const PAGE: usize = 256;

/// The names and values of the records of one kind, in the order of their names, without filling
/// the block cache. After an error there are no more.
pub struct MetaRecords {
    store: Arc<dyn Store>,
    page: vec::IntoIter<(String, Bytes)>,
    /// From where the next page is read. [`None`] after the last page.
    next_key: Option<Vec<u8>>,
    end: Vec<u8>,
}

impl MetaRecords {
    pub(super) fn new(store: Arc<dyn Store>, kind: MetaKind) -> Self {
        let range = keys::meta_of(kind);
        Self {
            store,
            page: Vec::new().into_iter(),
            next_key: Some(range.start),
            end: range.end,
        }
    }

    fn read_page(&mut self, from: &[u8]) -> Result<(), Error> {
        let mut page = Vec::new();
        let mut next_key = None;
        self.store
            .scan_uncached(Family::Meta, from, &self.end, &mut |key, value| {
                if page.len() == PAGE {
                    next_key = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                if let Some((_, name)) = keys::parse_meta(key) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    page.push((name, Bytes::copy_from_slice(value)));
                }
                ControlFlow::Continue(())
            })?;
        self.page = page.into_iter();
        self.next_key = next_key;
        Ok(())
    }
}

impl Iterator for MetaRecords {
    type Item = Result<(String, Bytes), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0
            && let Some(from) = self.next_key.take()
            && let Err(error) = self.read_page(&from)
        {
            return Some(Err(error));
        }
        self.page.next().map(Ok)
    }
}
