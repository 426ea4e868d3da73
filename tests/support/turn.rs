//! Decides which tests with a server run at the same time: those that measure time, rates or
//! processor time run alone, all others beside each other.

use std::thread;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The beginnings of the names of tests that measure, a line each. A test that only waits for
/// something needs no line. Where all tests run, `.ci/test` runs these last, so that no test waits
/// for them.
const MEASURE: &str = include_str!("alone.txt");

static TURNS: RwLock<()> = RwLock::new(());

/// The turn of a server, which lasts as long as this is held. A test has one turn at a time.
#[expect(dead_code, reason = "the guards are held, not read")]
pub(crate) enum Turn {
    Beside(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Waits for the turn of the test that runs in this thread, which has the test's name.
    pub(crate) fn take() -> Self {
        if measures(thread::current().name().unwrap_or_default()) {
            Self::Alone(TURNS.write())
        } else {
            Self::Beside(TURNS.read())
        }
    }
}

fn measures(test: &str) -> bool {
    MEASURE.lines().any(|name| test.starts_with(name))
}

#[test]
fn a_test_that_measures_is_known_by_its_name() {
    assert!(measures("server::recovery::an_endpoint_that_comes_back"));
    assert!(!measures("server::tail::lines") && !measures("main"));
}

#[test]
fn every_line_names_tests_that_are_there() {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for name in MEASURE.lines() {
        let (module, function) = name.rsplit_once("::").expect("a module and a function");
        let path = tests.join(module.replace("::", "/")).with_extension("rs");
        let source =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(source.contains(&format!("fn {function}")), "{name}");
    }
}
