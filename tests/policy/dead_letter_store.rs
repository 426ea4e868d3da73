//! Resolution of dead-letter destinations.

use expect_test::{Expect, expect};
use gridhook::policy::dead_letter_store::{
    DeadLetterDestination, FOLDER, NamedStore, NamedStores, StoreAddress,
};

const ACCOUNT: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/Archive1";

fn known(name: &str, address: &str, accounts: &[&str]) -> NamedStore {
    let address = StoreAddress::parse(address).expect("an address");
    NamedStore {
        name: name.to_owned(),
        address,
        accounts: accounts.iter().map(|&account| account.to_owned()).collect(),
    }
}

/// A folder for all other accounts, a bucket with a prefix, all buckets of Google, and two nested
/// stores.
fn places() -> NamedStores {
    NamedStores::new(vec![
        known(FOLDER, "file:///srv/letters", &["*"]),
        known("s3", "s3://bucket/kept/here", &["archive1"]),
        known("gs", "gs://", &["/a/whole/Id"]),
        known("az", "https://account1.blob.core.windows.net/letters", &[]),
        known("inner", "az://account1/letters/inner", &[]),
    ])
}

#[test]
fn a_storage_account_or_an_address_resolves_to_a_path_in_a_store() {
    for (resource_id, container, store, folder) in [
        (ACCOUNT, "letters", "s3", "letters"),
        ("ARCHIVE1", "letters", "s3", "letters"),
        ("/A/Whole/ID", "bucket", "gs", "bucket"),
        ("/another/account", "letters", FOLDER, "letters"),
        ("s3://bucket/kept/here", "", "s3", ""),
        ("s3://bucket/kept/here/", "letters", "s3", "letters"),
        (
            "s3://bucket/kept/here/and/there",
            "letters",
            "s3",
            "and/there/letters",
        ),
        ("gs://any/where", "", "gs", "any/where"),
        ("gs://", "bucket", "gs", "bucket"),
        ("file:///srv/letters/a", "", FOLDER, "a"),
        (
            "https://account1.blob.core.windows.net/letters/a",
            "",
            "az",
            "a",
        ),
        ("az://account1/letters/a", "", "az", "a"),
        ("az://account1/letters/inner/a", "", "inner", "a"),
    ] {
        let place = places().find_destination(resource_id, container);
        let expected = DeadLetterDestination {
            store: store.to_owned(),
            folder: folder.to_owned(),
        };
        assert_eq!(place, Ok(expected), "{resource_id} {container}");
    }
}

fn refuses(places: &NamedStores, resource_id: &str, expected: Expect) {
    expected.assert_eq(
        &places
            .find_destination(resource_id, "")
            .expect_err("no place")
            .to_string(),
    );
}

#[test]
fn an_invalid_destination_is_rejected_with_what_is_allowed() {
    let places = places();
    refuses(
        &places,
        "s3://bucket/kept/../secret",
        expect![[r#"is "s3://bucket/kept/../secret": `..` can't be a part of a dead-letter path"#]],
    );
    refuses(
        &places,
        "s3://bucket/kept",
        expect![[
            r#"is "s3://bucket/kept", which is in no store of dead_letter.stores; expected one of file:///srv/letters, s3://bucket/kept/here, gs://, https://account1.blob.core.windows.net/letters, https://account1.blob.core.windows.net/letters/inner"#
        ]],
    );
    refuses(
        &places,
        "gs://",
        expect![[
            r#"is "gs://", which names no bucket; expected one behind it, or as blobContainerName"#
        ]],
    );
    refuses(
        &NamedStores::default(),
        ACCOUNT,
        expect![[
            r#"is "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/Archive1", a storage account that no store of dead_letter.stores has among its accounts; expected none, as there are no stores"#
        ]],
    );
    for address in [
        "ftp://host/a",
        "file://host/a",
        "file://a",
        "https://example.com/letters",
        "https://account1.blob.core.windows.net.example.com/letters",
        "az:///letters",
        "az://ACCOUNT/letters",
        "s3://bucket//a",
        "s3://bucket/./a",
        "s3://bucket/a%2e%2e/b",
        "s3://bucket/a?b",
        "s3://bucket/a\\b",
        "s3://bucket/a\nb",
        "file:///srv/letters/../other",
    ] {
        let refused = places
            .find_destination(address, "letters")
            .expect_err(address)
            .to_string();
        assert!(
            refused.starts_with(&format!("is \"{address}\": ")),
            "{refused}"
        );
    }
}
