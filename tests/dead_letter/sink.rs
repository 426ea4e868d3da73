use std::{fs, process::Command, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use gridhook::{
    clock::Lease,
    dead_letter::sink::{
        BlobLocation, CloudSettings, FileFence, FileVersion, ListedFile, Sink, SinkError,
    },
    event::Timestamp,
    policy::dead_letter_store::{StoreAddress, check_part},
};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, path::Path as ObjectPath,
};
use tokio::time::Instant;

const NAME: &str = "letters/SUB/2020/8/13/17/a.json";

fn run<T>(work: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(work)
}

#[test]
fn a_file_is_stored_under_its_name_in_a_new_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("not/there/yet");
    run(async {
        let sink = Sink::in_folder(&root).expect("a folder");
        sink.put_file(NAME, Bytes::from_static(b"[1]"))
            .await
            .expect("written");
    });
    assert_eq!(fs::read(root.join(NAME)).expect("a file"), b"[1]");
}

#[test]
fn a_repeat_overwrites_and_deletes_the_temporary_file_of_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    run(async {
        let sink = Sink::in_folder(folder.path()).expect("a folder");
        sink.put_file(NAME, Bytes::from_static(b"[1, 2, 3]"))
            .await
            .expect("written");
        for number in [1, 2] {
            fs::write(path.with_file_name(format!("a.json#{number}")), b"[1, ").expect("written");
        }
        sink.put_file(NAME, Bytes::from_static(b"[4]"))
            .await
            .expect("written");
    });
    assert_eq!(fs::read(&path).expect("a file"), b"[4]");
    let files = fs::read_dir(path.parent().expect("a folder"))
        .expect("a folder")
        .count();
    assert_eq!(files, 1);
}

#[test]
fn a_node_that_may_not_own_the_store_any_more_writes_and_deletes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    run(async {
        let lease = Lease::new_unrenewed();
        let sink = Sink::in_folder(folder.path()).expect("a folder");
        let fence = FileFence {
            lease: lease.clone(),
            epoch: 1,
        };
        let sink = sink.with_fence(Some(fence));
        lease.renew_until(Instant::now() + Duration::from_secs(600));
        let written = sink.put_file(NAME, Bytes::from_static(b"[1]")).await;
        written.expect("written");
        lease.renew_until(Instant::now());
        let refused = sink.put_file(NAME, Bytes::from_static(b"[2]")).await;
        assert!(matches!(refused, Err(SinkError::Fenced)), "{refused:?}");
        let refused = sink.delete_file(NAME).await;
        assert!(matches!(refused, Err(SinkError::Fenced)), "{refused:?}");
        assert_eq!(fs::read(&path).expect("a file"), b"[1]");
        lease.renew_until(Instant::now() + Duration::from_secs(600));
        sink.delete_file(NAME).await.expect("deleted");
    });
    assert!(!path.exists());
}

#[test]
fn a_file_that_another_writer_has_changed_meanwhile_is_not_replaced() {
    run(async {
        let sink = Sink::over_store(Arc::new(object_store::memory::InMemory::new()));
        let replace = async |bytes: &'static [u8], version: &FileVersion| {
            let file = Bytes::from_static(bytes);
            sink.replace_file(NAME, file, version.clone()).await
        };
        let (missing, first) = sink.get_version(NAME, 100).await.expect("read");
        assert_eq!(missing, None);
        replace(b"[1]", &first).await.expect("nothing was there");
        let error = replace(b"[2]", &first).await.expect_err("it is there");
        assert!(error.is_conflict(), "{error}");
        let (_, second) = sink.get_version(NAME, 100).await.expect("read");
        replace(b"[3]", &second).await.expect("the same version");
        let error = replace(b"[4]", &second).await.expect_err("another version");
        assert!(error.is_conflict(), "{error}");
        let (file, _) = sink.get_version(NAME, 100).await.expect("read");
        assert_eq!(file.as_deref(), Some(&b"[3]"[..]));
    });
}

#[test]
fn no_name_points_outside_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    run(async {
        let sink = Sink::in_folder(&root).expect("a folder");
        for name in [
            "../a.json",
            "a/../../b.json",
            "/a.json",
            "a//b.json",
            "a/./b.json",
            "a/\0.json",
            "a\\b.json",
            "",
        ] {
            let refused = sink.put_file(name, Bytes::from_static(b"[]")).await;
            assert!(
                matches!(refused, Err(SinkError::Name(_))),
                "{name:?}: {refused:?}"
            );
        }
    });
    assert_eq!(fs::read_dir(&root).expect("a folder").count(), 0);
}

#[test]
fn odd_names_are_kept_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    for container in ["$web", "a b", "100%", "a%2Fb", "a?b#c", "straße", "..a"] {
        check_part(container).expect("it is one part of a path");
        let name = format!("{container}/a.json");
        run(async {
            let sink = Sink::in_folder(folder.path()).expect("a folder");
            sink.put_file(&name, Bytes::from_static(b"[]"))
                .await
                .expect("written");
        });
        assert!(folder.path().join(&name).is_file(), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_created_fails_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, b"").expect("written");
    let refused = Sink::in_folder(&file.join("root"));
    assert!(
        matches!(refused, Err(SinkError::Root { .. })),
        "{refused:?}"
    );
}

#[test]
fn files_are_listed_in_pages_in_order_then_read_and_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = [
        "letters/SUB/2020/8/13/17/b.json",
        "letters/SUB/2020/8/13/17/c.json",
        "letters/SUB/2020/8/9/1/a.json",
    ];
    run(async {
        let sink = Sink::in_folder(folder.path()).expect("a folder");
        assert_eq!(
            sink.list_below("letters/SUB", None, 9)
                .await
                .expect("a listing"),
            [],
            "there is no such folder"
        );
        for name in names
            .iter()
            .rev()
            .chain(&["letters/SUB-2/2020/8/9/1/a.json"])
        {
            sink.put_file(name, Bytes::from_static(b"[1]"))
                .await
                .expect("written");
        }
        let named = |page: Vec<ListedFile>| {
            page.into_iter()
                .map(|file| (file.name, file.bytes))
                .collect::<Vec<_>>()
        };
        let expected = names.map(|name| (name.to_owned(), 3));
        let first = sink
            .list_below("letters/SUB", None, 2)
            .await
            .expect("a listing");
        assert!(
            first
                .iter()
                .all(|file| file.modified > Timestamp::default()),
            "a folder knows when: {first:?}"
        );
        assert_eq!(named(first), expected[..2]);
        let rest = sink
            .list_below("letters/SUB", Some(names[1]), 2)
            .await
            .expect("a listing");
        assert_eq!(named(rest), expected[2..]);

        assert_eq!(sink.get(names[0], 3).await.expect("a file"), "[1]");
        assert!(matches!(
            sink.get(names[0], 2).await,
            Err(SinkError::TooLong {
                bytes: 3,
                bytes_max: 2
            })
        ));
        sink.delete_file(names[0]).await.expect("taken away");
        sink.delete_file(names[0])
            .await
            .expect("it is gone already");
        assert!(
            sink.get(names[0], 3)
                .await
                .is_err_and(|error| error.is_not_found())
        );
        assert_eq!(
            sink.list_below("letters/SUB", None, 9)
                .await
                .expect("a listing")
                .len(),
            2
        );
    });
}

/// The location of the file `a b/SUB/1.json` in a store.
fn blob(
    address: &str,
    endpoint: Option<&str>,
    credentials: &[(&'static str, &str)],
) -> BlobLocation {
    let settings = CloudSettings {
        address: StoreAddress::parse(address).expect("an address"),
        endpoint: endpoint.map(|endpoint| endpoint.parse().expect("an address")),
        region: Some("eu-central-1".to_owned()),
        allow_http: true,
        credentials: credentials
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
    };
    Sink::in_cloud(settings)
        .expect("a store")
        .blob_location("a b/SUB/1.json")
}

#[test]
fn a_file_in_each_kind_of_store_has_a_container_a_path_and_a_url() {
    let of = |container: &str, path: &str, url: &str| BlobLocation {
        container: container.to_owned(),
        path: path.to_owned(),
        url: url.to_owned(),
    };
    let s3 = [("access_key_id", "k"), ("secret_access_key", "s")];
    assert_eq!(
        blob("s3://bucket/kept", None, &s3),
        of(
            "bucket",
            "kept/a b/SUB/1.json",
            "https://bucket.s3.eu-central-1.amazonaws.com/kept/a%20b/SUB/1.json"
        )
    );
    assert_eq!(
        blob("s3://", Some("http://127.0.0.1:9/"), &s3),
        of("a b", "SUB/1.json", "http://127.0.0.1:9/a%20b/SUB/1.json")
    );
    let azure = [("access_key", "c2VjcmV0")];
    assert_eq!(
        blob("az://account1/letters", None, &azure),
        of(
            "letters",
            "a b/SUB/1.json",
            "https://account1.blob.core.windows.net/letters/a%20b/SUB/1.json"
        )
    );
    let google = [(
        "service_account_key",
        r#"{"private_key":"k","private_key_id":"i","client_email":"e","disable_oauth":true}"#,
    )];
    assert_eq!(
        blob("gs://bucket", None, &google),
        of(
            "bucket",
            "a b/SUB/1.json",
            "https://storage.googleapis.com/bucket/a%20b/SUB/1.json"
        )
    );
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a folder");
    let local = Sink::in_folder(&root)
        .expect("a folder")
        .blob_location("letters/SUB/1.json");
    assert_eq!(
        local,
        of(
            "letters",
            "SUB/1.json",
            &format!("file://{}/letters/SUB/1.json", root.display())
        )
    );
}

#[test]
fn invalid_store_settings_fail_at_the_start() {
    let settings = CloudSettings {
        address: StoreAddress::parse("az://account1/letters").expect("an address"),
        endpoint: None,
        region: None,
        allow_http: false,
        credentials: vec![("access_key", "no base64!".to_owned())],
    };
    assert!(!format!("{settings:?}").contains("base64"));
    Sink::in_cloud(settings).expect_err("no key");
}

#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("whole"), b"[1]").expect("written");
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("link")).expect("a link");
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    assert!(
        Command::new("mkfifo")
            .arg(folder.path().join("pipe"))
            .status()
            .expect("it runs")
            .success()
    );
    run(async {
        let sink = Sink::in_folder(folder.path()).expect("a folder");
        assert_eq!(sink.get("whole", 3).await.expect("read"), "[1]");
        assert!(matches!(
            sink.get("whole", 2).await,
            Err(SinkError::TooLong {
                bytes: 3,
                bytes_max: 2
            })
        ));
        assert!(
            sink.get("missing", 3)
                .await
                .expect_err("missing")
                .is_not_found()
        );
        for other in ["link", "folder", "pipe"] {
            let read = tokio::time::timeout(Duration::from_secs(60), sink.get(other, 1000))
                .await
                .expect("at once");
            assert!(
                matches!(read, Err(SinkError::Unreadable(_))),
                "{other}: {read:?}"
            );
        }
    });
}

/// A store whose list has no end: each page says that the list continues at its beginning.
#[derive(Debug)]
struct EndlessList;

impl std::fmt::Display for EndlessList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a store with an endless list")
    }
}

#[async_trait::async_trait]
impl ObjectStore for EndlessList {
    async fn put_opts(
        &self,
        _: &ObjectPath,
        _: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        Err(object_store::Error::NotImplemented {
            operation: String::new(),
            implementer: String::new(),
        })
    }

    async fn put_multipart_opts(
        &self,
        _: &ObjectPath,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(object_store::Error::NotImplemented {
            operation: String::new(),
            implementer: String::new(),
        })
    }

    async fn get_opts(&self, _: &ObjectPath, _: GetOptions) -> object_store::Result<GetResult> {
        Err(object_store::Error::NotImplemented {
            operation: String::new(),
            implementer: String::new(),
        })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        paths
    }

    fn list(&self, _: Option<&ObjectPath>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let file = ObjectMeta {
            location: ObjectPath::from("backups/a.json"),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        futures_util::stream::repeat_with(move || Ok(file.clone())).boxed()
    }

    async fn list_with_delimiter(
        &self,
        _: Option<&ObjectPath>,
    ) -> object_store::Result<ListResult> {
        Err(object_store::Error::NotImplemented {
            operation: String::new(),
            implementer: String::new(),
        })
    }

    async fn copy_opts(
        &self,
        _: &ObjectPath,
        _: &ObjectPath,
        _: CopyOptions,
    ) -> object_store::Result<()> {
        Err(object_store::Error::NotImplemented {
            operation: String::new(),
            implementer: String::new(),
        })
    }
}

#[test]
fn a_list_without_an_end_is_an_error() {
    run(async {
        let listed = Sink::over_store(Arc::new(EndlessList))
            .list_below("backups", None, usize::MAX)
            .await;
        assert!(
            matches!(&listed, Err(SinkError::ListedTwice(name)) if name == "backups/a.json"),
            "{listed:?}"
        );
    });
}
