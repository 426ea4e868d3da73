//! A store that records its reads.

use std::sync::Arc;

use bytes::Bytes;
use gridhook::store::{Family, Store as _, StoreError, Visit, layer::StoreLayer};
use parking_lot::Mutex;

use super::memory_store::MemoryStore;

#[derive(Clone, Debug)]
pub(crate) struct StoreRead {
    pub(crate) family: Family,
    /// The name of the thread.
    pub(crate) thread: String,
    /// The records that were looked at.
    pub(crate) keys: Vec<Vec<u8>>,
}

/// A store in memory that records its reads. Clones share their records.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedStore {
    store: MemoryStore,
    reads: Arc<Mutex<Vec<StoreRead>>>,
    panics_at: Option<Family>,
}

impl RecordedStore {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            ..Self::default()
        }
    }

    /// Reads of this family panic.
    pub(crate) fn panicking_at(family: Family) -> Self {
        Self {
            panics_at: Some(family),
            ..Self::default()
        }
    }

    /// The reads since the last call.
    pub(crate) fn take_reads(&self) -> Vec<StoreRead> {
        std::mem::take(&mut *self.reads.lock())
    }

    /// The threads that have read these families since the last call.
    pub(crate) fn take_threads(&self, families: &[Family]) -> Vec<String> {
        let reads = self
            .take_reads()
            .into_iter()
            .filter(|read| families.contains(&read.family));
        reads.map(|read| read.thread).collect()
    }

    fn record(&self, family: Family, keys: Vec<Vec<u8>>) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.reads.lock().push(StoreRead {
            family,
            thread,
            keys,
        });
    }

    fn check(&self, family: Family) {
        assert_ne!(self.panics_at, Some(family), "a defect");
    }
}

impl StoreLayer for RecordedStore {
    type Inner = MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check(family);
        self.record(family, vec![key.to_vec()]);
        self.store.get(family, key)
    }

    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.check(family);
        self.record(family, keys.to_vec());
        self.store.get_all(family, keys)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.check(family);
        let mut keys = Vec::new();
        let result = self.store.scan(family, from, upper, &mut |key, value| {
            keys.push(key.to_vec());
            visit(key, value)
        });
        self.record(family, keys);
        result
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.check(family);
        let last = self.store.last(family, lower, upper)?;
        self.record(family, last.iter().map(|(key, _)| key.clone()).collect());
        Ok(last)
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        StoreLayer::scan(self, family, from, upper, visit)
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        StoreLayer::last(self, family, lower, upper)
    }
}
