//! A destination that does not exist: a deleted bucket or container.

use std::{fmt, sync::Arc};

use futures_util::stream::{self, BoxStream, StreamExt};
use gridhook::dead_letter::{DeadLetterTarget, Sink};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

use super::{
    subscription_key, target,
    world::{DeadLetterService, START, run},
};
use crate::support::memory_store::MemoryStore;

/// A store whose container was deleted.
#[derive(Debug)]
struct Gone;

fn gone(path: &Path) -> Error {
    Error::NotFound {
        path: path.to_string(),
        source: "the container is gone".into(),
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store whose container is gone")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Gone {
    async fn put_opts(&self, path: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(gone(path))
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(gone(path))
    }

    async fn get_opts(&self, path: &Path, _: GetOptions) -> Result<GetResult> {
        Err(gone(path))
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        paths.map(|path| Err(gone(&path?))).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::empty().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(gone(&Path::default()))
    }

    async fn copy_opts(&self, path: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(gone(path))
    }
}

#[test]
fn without_a_destination_dead_letters_are_dropped_at_once_if_the_edition_says_so() {
    let _rows = crate::spec::shows(&[
        "S000-019: A dead-lettered event is dropped when its dead-letter destination is not found.",
    ]);
    run(async {
        let world =
            DeadLetterService::over(&MemoryStore::new(), Sink::over_store(Arc::new(Gone)), START);
        let _actor = world.actor();
        for subscription in [1, 2] {
            world
                .add_dead_letters(subscription_key(subscription), 5, START)
                .await;
        }
        world.enqueue(
            subscription_key(1),
            DeadLetterTarget {
                drop_where_not_found: true,
                ..target("gone")
            },
            START,
        );
        world.enqueue(
            subscription_key(2),
            DeadLetterTarget {
                drop_where_not_found: false,
                ..target("gone")
            },
            START,
        );
        let totals = world
            .until(subscription_key(1), |totals| totals.lost == 5)
            .await;
        assert_eq!(
            (
                totals.written,
                totals.in_progress,
                world.waiting(subscription_key(1)).await
            ),
            (0, None, 0)
        );
        let waits = world
            .until(subscription_key(2), |totals| totals.in_progress.is_some())
            .await;
        assert_eq!(
            (waits.lost, world.waiting(subscription_key(2)).await),
            (0, 5)
        );
        world.stop().await;
    });
}
