//! A store above another one: it changes some calls and passes on the rest.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Batch, Family, Store, StoreError, Visit, damage::Damage, figures::StoreFigures};
use gridhook_event::{PartitionId, Seq, Timestamp};

/// A store above another one. Each method of [`Store`] is passed on unless the layer has its own.
pub trait StoreLayer: Send + Sync + 'static {
    type Inner: Store + ?Sized;

    fn inner(&self) -> &Self::Inner;

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.inner().write(batch)
    }

    fn write_unsynced(&self, batch: &Batch) -> Result<(), StoreError> {
        self.inner().write_unsynced(batch)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.inner().get(family, key)
    }

    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.inner().get_all(family, keys)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.inner().scan(family, from, upper, visit)
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.inner().last(family, lower, upper)
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        self.inner().drop_log(partition, floor)
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        self.inner().note_watermark()
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.inner().scan_uncached(family, from, upper, visit)
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.inner().last_uncached(family, lower, upper)
    }

    fn damage(&self) -> Option<&Damage> {
        self.inner().damage()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner().close()
    }
}

impl<L: StoreLayer> Store for L {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        StoreLayer::write(self, batch)
    }

    fn write_unsynced(&self, batch: &Batch) -> Result<(), StoreError> {
        StoreLayer::write_unsynced(self, batch)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        StoreLayer::get(self, family, key)
    }

    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        StoreLayer::get_all(self, family, keys)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        StoreLayer::scan(self, family, from, upper, visit)
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        StoreLayer::last(self, family, lower, upper)
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        StoreLayer::drop_log(self, partition, floor)
    }

    fn expire_ids(&self, now: Timestamp) {
        self.inner().expire_ids(now);
    }

    fn is_short_of_space(&self) -> bool {
        self.inner().is_short_of_space()
    }

    fn is_full_despite_space(&self) -> bool {
        self.inner().is_full_despite_space()
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        StoreLayer::note_watermark(self)
    }

    fn figures(&self) -> Option<StoreFigures> {
        self.inner().figures()
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        StoreLayer::scan_uncached(self, family, from, upper, visit)
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        StoreLayer::last_uncached(self, family, lower, upper)
    }

    fn set_compaction_paused(&self, family: Family, on: bool) {
        self.inner().set_compaction_paused(family, on);
    }

    fn damage(&self) -> Option<&Damage> {
        StoreLayer::damage(self)
    }

    fn close(&self) -> Result<(), StoreError> {
        StoreLayer::close(self)
    }
}

impl<S: Store + ?Sized> StoreLayer for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }
}
