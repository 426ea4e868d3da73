use std::fs;

use bytes::Bytes;
use gridhook::dead_letter::sink::{Error, Sink, check_segment};

const NAME: &str = "letters/SUB/2020/8/13/17/a.json";

fn run<T>(work: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(work)
}

#[test]
fn a_file_is_where_its_name_says_and_the_folder_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("not/there/yet");
    run(async {
        let sink = Sink::local(&root).expect("a folder");
        sink.put(NAME, Bytes::from_static(b"[1]")).await.expect("written");
    });
    assert_eq!(fs::read(root.join(NAME)).expect("a file"), b"[1]");
}

#[test]
fn a_repeat_overwrites_and_takes_away_what_a_kill_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    run(async {
        let sink = Sink::local(folder.path()).expect("a folder");
        sink.put(NAME, Bytes::from_static(b"[1, 2, 3]")).await.expect("written");
        for number in [1, 2] {
            fs::write(path.with_file_name(format!("a.json#{number}")), b"[1, ").expect("written");
        }
        sink.put(NAME, Bytes::from_static(b"[4]")).await.expect("written");
    });
    assert_eq!(fs::read(&path).expect("a file"), b"[4]");
    let files = fs::read_dir(path.parent().expect("a folder")).expect("a folder").count();
    assert_eq!(files, 1);
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    run(async {
        let sink = Sink::local(&root).expect("a folder");
        for name in ["../a.json", "a/../../b.json", "/a.json", "a//b.json", "a/./b.json", "a/\0.json", "a\\b.json", ""]
        {
            let refused = sink.put(name, Bytes::from_static(b"[]")).await;
            assert!(matches!(refused, Err(Error::Name(_))), "{name:?}: {refused:?}");
        }
    });
    assert_eq!(fs::read_dir(&root).expect("a folder").count(), 0);
}

#[test]
fn odd_names_are_kept_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    for container in ["$web", "a b", "100%", "a%2Fb", "a?b#c", "straße", "..a"] {
        check_segment(container).expect("it is one part of a path");
        let name = format!("{container}/a.json");
        run(async {
            let sink = Sink::local(folder.path()).expect("a folder");
            sink.put(&name, Bytes::from_static(b"[]")).await.expect("written");
        });
        assert!(folder.path().join(&name).is_file(), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, b"").expect("written");
    let refused = Sink::local(&file.join("root"));
    assert!(matches!(refused, Err(Error::Root { .. })), "{refused:?}");
}
