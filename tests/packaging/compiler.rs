//! `.ci/c++`, the compiler for RocksDB's build script: it compiles sources in groups and passes
//! everything else on.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use super::{output_text, read, root};

/// The sources of a library; the build script has a `build_version.cc` of its own.
const SOURCES: usize = 40;

/// As many sources of this size as `.ci/c++` puts into a group.
const SOURCE_BYTES: usize = 40_000;
const GROUP: usize = 15;

/// A folder as the build script has it, and a compiler that tells how it is called and what it is
/// given to read.
fn stage() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut list: Vec<String> = (0..SOURCES)
        .map(|number| format!("db/source_{number}.cc"))
        .collect();
    list.insert(20, "util/build_version.cc".to_owned());
    fs::write(path("rocksdb_lib_sources.txt"), list.join("  \n") + "\n\n").expect("a list");
    fs::create_dir_all(path("rocksdb/db")).expect("a folder");
    for number in 0..SOURCES {
        let function = format!("int function_{number}() {{ return {number}; }}\n//");
        let source = format!("{function:-<SOURCE_BYTES$}");
        fs::write(path(&format!("rocksdb/db/source_{number}.cc")), source).expect("a source");
    }
    let compiler =
        "#!/bin/sh\necho \"call: $*\"\n[ \"$CXX_FAILS\" = yes ] && exit 3\nsed 's/^/read: /'\n";
    fs::write(path("compiler"), compiler).expect("a compiler");
    fs::set_permissions(path("compiler"), fs::Permissions::from_mode(0o755)).expect("a program");
    folder
}

fn call(stage: &Path, arguments: &[&str], fails: &str) -> Output {
    Command::new(root().join(".ci/c++"))
        .args(arguments)
        .current_dir(stage)
        .env("GRIDHOOK_CXX", stage.join("compiler"))
        .env("CXX_FAILS", fails)
        .stdin(Stdio::null())
        .output()
        .expect("bash is there")
}

/// The arguments of the compiler, and its input.
fn compiled(stage: &Path, arguments: &[&str]) -> (String, Vec<String>) {
    let output = call(stage, arguments, "no");
    let printed = output_text(&output);
    assert!(output.status.success(), "{printed}");
    let called = printed
        .lines()
        .find_map(|line| line.strip_prefix("call: "))
        .expect("a call")
        .to_owned();
    let read = printed
        .lines()
        .filter_map(|line| line.strip_prefix("read: "))
        .map(str::to_owned)
        .collect();
    (called, read)
}

#[test]
fn every_source_is_compiled_once_in_a_group_whose_others_are_empty() {
    let stage = stage();
    let mut included = Vec::new();
    for number in 0..SOURCES {
        let source = format!("rocksdb/db/source_{number}.cc");
        let (called, read) = compiled(
            stage.path(),
            &["-O2", "-I", "a b", "-c", "-o", "x.o", &source],
        );
        let first = number % GROUP == 0;
        assert_eq!(
            called,
            format!(
                "-O2 -I a b -c -o x.o -x c++ {}",
                if first { "-" } else { "/dev/null" }
            ),
            "{source}"
        );
        assert_eq!(!read.is_empty(), first, "{source}: {read:?}");
        included.extend(read);
    }
    let all: Vec<String> = (0..SOURCES)
        .map(|number| format!("#include \"rocksdb/db/source_{number}.cc\""))
        .collect();
    assert_eq!(included, all);
}

#[test]
fn everything_else_is_handed_on_as_it_is() {
    let stage = stage();
    let calls: [&[&str]; 6] = [
        &["--version"],
        &["-E", "detect_compiler_family.c"],
        &["-c", "build_version.cc"],
        &["-c", "rocksdb/util/build_version.cc"],
        &["-c", "rocksdb/port/not_of_the_list.cc"],
        &["-c", "lz4/lib/lz4.c", "-o", "rocksdb/db/source_0.o"],
    ];
    for arguments in calls {
        assert_eq!(
            compiled(stage.path(), arguments),
            (arguments.join(" "), Vec::new())
        );
    }
    fs::remove_file(stage.path().join("rocksdb_lib_sources.txt")).expect("removed");
    let arguments = ["-c", "rocksdb/db/source_0.cc"];
    assert_eq!(
        compiled(stage.path(), &arguments),
        (arguments.join(" "), Vec::new())
    );
}

#[test]
fn a_compiler_that_fails_is_reported() {
    let stage = stage();
    for source in ["rocksdb/db/source_0.cc", "rocksdb/db/source_1.cc", "lz4.c"] {
        assert_eq!(
            call(stage.path(), &["-c", source], "yes").status.code(),
            Some(3),
            "{source}"
        );
    }
}

/// Sources that gridhook never calls become empty objects, unless all of RocksDB is asked for. Cold
/// ones are a group of their own, which is optimised less.
#[test]
fn sources_that_are_never_called_are_left_out() {
    let stage = stage();
    let names = [
        "db/db_iter.cc",
        "db/repair.cc",
        "options/options.cc",
        "tools/dump/db_dump_tool.cc",
        "util/hash.cc",
    ];
    for name in names {
        let path = stage.path().join("rocksdb").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, "int x;\n").expect("a source");
    }
    fs::write(
        stage.path().join("rocksdb_lib_sources.txt"),
        names.join("\n"),
    )
    .expect("a list");
    let compile = |name: &str| compiled(stage.path(), &["-c", &format!("rocksdb/{name}")]);
    let include = |name: &str| format!("#include \"rocksdb/{name}\"");
    assert_eq!(
        compile(names[0]),
        (
            "-c -x c++ -".to_owned(),
            vec![include(names[0]), include(names[4])]
        )
    );
    assert_eq!(
        compile(names[2]),
        ("-c -O1 -x c++ -".to_owned(), vec![include(names[2])])
    );
    for name in [names[1], names[3], names[4]] {
        assert_eq!(
            compile(name),
            ("-c -x c++ /dev/null".to_owned(), Vec::new()),
            "{name}"
        );
    }

    let output = Command::new(root().join(".ci/c++"))
        .args(["-c", "rocksdb/db/db_iter.cc"])
        .current_dir(stage.path())
        .env("GRIDHOOK_CXX", stage.path().join("compiler"))
        .env("GRIDHOOK_WHOLE_ROCKSDB", "1")
        .output();
    let text = output_text(&output.expect("bash is there"));
    assert!(
        text.contains("read: #include \"rocksdb/db/repair.cc\""),
        "{text}"
    );
}

/// A group hides what a source does to the ones behind it, so that the object of the first must
/// have what all define.
#[test]
fn a_group_that_a_real_compiler_compiles_has_what_its_sources_define() {
    let stage = stage();
    let mut defined = String::new();
    for number in 0..SOURCES {
        let object = format!("{number}.o");
        let source = format!("rocksdb/db/source_{number}.cc");
        let output = Command::new(root().join(".ci/c++"))
            .args(["-I", ".", "-c", "-o", &object, &source])
            .current_dir(stage.path())
            .output()
            .expect("bash is there");
        assert!(output.status.success(), "{}", output_text(&output));
        defined += &output_text(
            &Command::new("nm")
                .arg("-C")
                .arg(stage.path().join(object))
                .output()
                .expect("nm is there"),
        );
    }
    for number in 0..SOURCES {
        assert_eq!(
            defined.matches(&format!(" T function_{number}()")).count(),
            1,
            "function_{number}:\n{defined}"
        );
    }
}

#[test]
fn the_image_is_built_with_it_too() {
    let dockerfile = read("Dockerfile");
    assert!(
        dockerfile.contains("COPY .ci/c++ /usr/local/bin/gridhook-c++\n"),
        "{dockerfile}"
    );
    assert!(
        dockerfile
            .contains("CXX=/usr/local/bin/gridhook-c++ CARGO_TARGET_DIR=/build .ci/optimized "),
        "{dockerfile}"
    );
}
