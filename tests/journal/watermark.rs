use std::{fs, path::Path};

use gridhook::store::watermark::{Watermark, WatermarkFile};
use tempfile::TempDir;

fn noted(folder: &TempDir, sequences: &[u64]) -> std::path::PathBuf {
    let path = folder.path().join("watermark");
    let mut mark = Watermark::create(&path, 0).expect("a new file");
    for sequence in sequences {
        mark.store_sequence(*sequence).expect("noted");
    }
    path
}

fn read(path: &Path) -> Option<u64> {
    match Watermark::open(path).expect("readable") {
        WatermarkFile::Whole(mark) => Some(mark.last_sequence()),
        WatermarkFile::Damaged => None,
        WatermarkFile::Missing => panic!("it was made"),
    }
}

#[test]
fn the_last_number_that_was_noted_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = noted(&folder, &[]);
    assert_eq!(read(&path), Some(0));
    let length = fs::metadata(&path).expect("a file").len();
    for upto in 1..8 {
        let path = noted(&folder, &(1..=upto).collect::<Vec<_>>());
        assert_eq!(read(&path), Some(upto));
    }
    assert_eq!(
        fs::metadata(&path).expect("a file").len(),
        length,
        "it is written in place"
    );
}

#[test]
fn a_file_that_is_opened_again_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = noted(&folder, &[5]);
    for sequence in [6, 9, 12] {
        let Ok(WatermarkFile::Whole(mut mark)) = Watermark::open(&path) else {
            panic!("it is whole")
        };
        mark.store_sequence(sequence).expect("noted");
        assert_eq!(read(&path), Some(sequence));
    }
}

#[test]
fn a_torn_write_costs_one_step_back_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    for sequences in [&[7, 8][..], &[7, 8, 9][..]] {
        let before = fs::read(noted(&folder, &sequences[..sequences.len() - 1])).expect("bytes");
        let path = noted(&folder, sequences);
        let after = fs::read(&path).expect("bytes");
        let changed: Vec<_> = (0..after.len())
            .filter(|at| before[*at] != after[*at])
            .collect();
        let first = changed[0];
        let last = changed[changed.len() - 1];
        for torn in first + 1..=last {
            let bytes = [&after[..torn], &before[torn..]].concat();
            fs::write(&path, bytes).expect("written");
            let least = sequences[sequences.len() - 2];
            assert!(
                read(&path).is_some_and(|found| found >= least),
                "torn at {torn}"
            );
        }
    }
}

#[test]
fn a_slot_of_rubbish_is_tolerated_and_two_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    for shared in [0, 4096] {
        let path = noted(&folder, &[7, 8]);
        let mut bytes = fs::read(&path).expect("bytes");
        bytes[shared..shared + 4096].fill(0xaa);
        fs::write(&path, bytes).expect("written");
        assert!(matches!(read(&path), Some(7 | 8)));
    }
    let path = noted(&folder, &[7, 8]);
    fs::write(&path, [0xaa; 8192]).expect("written");
    assert_eq!(read(&path), None);
    fs::write(&path, b"").expect("written");
    assert_eq!(read(&path), None);
}

#[test]
fn a_file_that_is_not_there_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(
        Watermark::open(&folder.path().join("watermark")),
        Ok(WatermarkFile::Missing)
    ));
}
