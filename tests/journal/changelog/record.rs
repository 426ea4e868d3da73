//! The bytes of a changelog's records.

use bytes::Bytes;
use gridhook::{
    journal::changelog::record::{
        Body, BrokenRecord, NEWEST_FORMAT, OVERHEAD, Record, decode_batch, encode_batch,
    },
    store::{Batch, Family, WriteOp},
};
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// These bytes are in streams of clusters that run. A change of them is a new version.
#[test]
fn the_bytes_of_version_1() {
    let mut batch = Batch::default();
    batch.put(Family::Meta, b"k".to_vec(), &b"value"[..]);
    batch.delete(Family::PublishedIds, b"l".to_vec());
    batch.single_delete(Family::Due, b"m".to_vec());
    let group = Body::Group {
        part: 1,
        parts: 2,
        operations: encode_batch(&batch),
    };
    let bodies = [
        (
            0,
            0,
            0,
            Body::Fence {
                incarnation: 7,
                node: "n1".to_owned(),
                has_previous: false,
            },
        ),
        (5, 1, 9, group),
        (5, 2, 9, Body::Release),
    ];
    let records = bodies.map(|(epoch, number, previous, body)| Record {
        epoch,
        number,
        previous,
        body,
    });
    let bytes: Vec<String> = records.iter().map(|record| hex(&record.encode())).collect();
    let first_bytes = bytes
        .iter()
        .map(|bytes| bytes[..bytes.len() - 8].to_owned())
        .collect::<Vec<_>>();
    assert_eq!(
        first_bytes,
        [
            "01010000000000000000000000000000000000000000000000000000000000000007".to_owned() + "6e31",
            "01020000000000000005000000000000000100010002000000090100016b0576616c7565020b016c0304016d".to_owned(),
            "0103000000000000000500000000000000020000000000000009".to_owned(),
        ]
    );
    for record in records {
        assert_eq!(Record::decode(&record.encode()), Ok(record.clone()));
        let newer = {
            let mut bytes = record.encode().to_vec();
            bytes[0] = NEWEST_FORMAT + 1;
            let end = bytes.len() - 4;
            let crc = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_be_bytes());
            Bytes::from(bytes)
        };
        assert_eq!(
            Record::decode(&newer),
            Err(BrokenRecord::Newer(NEWEST_FORMAT + 1))
        );
    }
    assert_eq!(
        Record {
            epoch: 1,
            number: 1,
            previous: 0,
            body: Body::Release
        }
        .encode()
        .len(),
        OVERHEAD
    );
}

/// A fence has the position before it.
#[test]
fn the_bytes_of_version_2() {
    let fence = Record::fence("n1", 7, Some(9));
    let bytes = fence.encode();
    assert_eq!(
        hex(&bytes[..bytes.len() - 4]),
        "02010000000000000000000000000000000000000000000000090000000000000007".to_owned() + "6e31"
    );
    assert_eq!(Record::decode(&bytes), Ok(fence));
}

fn operation() -> impl Strategy<Value = WriteOp> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    (
        0..3,
        proptest::sample::select(Family::ALL.to_vec()),
        bytes(),
        bytes(),
    )
        .prop_map(|(kind, family, key, value)| match kind {
            0 => WriteOp::Put(family, key, value.into()),
            1 => WriteOp::Delete(family, key),
            _ => WriteOp::SingleDelete(family, key),
        })
}

proptest! {
    #[test]
    fn a_batch_is_decoded_as_it_was_encoded(operations in proptest::collection::vec(operation(), 0..20)) {
        let batch = Batch(operations);
        prop_assert_eq!(decode_batch(&encode_batch(&batch)).map(|batch| batch.0), Some(batch.0));
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), is_summed: bool, format in 1..=NEWEST_FORMAT) {
        let mut bytes = bytes;
        if is_summed {
            bytes.splice(0..bytes.len().min(1), [format]);
            let crc = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&crc.to_be_bytes());
        }
        let bytes = Bytes::from(bytes);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes.clone());
        }
        decode_batch(&bytes);
    }
}
