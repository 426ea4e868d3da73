//! Which tests with a server run at the same time: those that measure time, rates or processor time run alone, all others
//! beside each other.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    thread,
};

/// The beginnings of the names of tests that measure. A test that only waits for something needs no line.
const MEASURE: [&str; 14] = [
    "abuse::neighbours::",
    "abuse::overload::",
    "abuse::slow::",
    "abuse::failed_auth::",
    "server::backlog::",
    "server::chaos::",
    "server::fan_out::",
    "server::faults::",
    "server::late::",
    "server::memory::",
    "server::pull::thousands_that_wait_cost_little",
    "server::recovery::",
    "server::replay_beside::",
    "server::stop::",
];

/// The tests that run now. A test that runs alone waits until no other runs and lets others in while it waits: the longest
/// test would otherwise stop all of them.
static RUNNING: Mutex<Running> = Mutex::new(Running { beside: 0, alone: false });

static ENDED: Condvar = Condvar::new();

struct Running {
    beside: usize,
    alone: bool,
}

/// A server's turn: it runs as long as this is held. A test has one server at a time.
pub(crate) struct Turn {
    alone: bool,
}

impl Turn {
    /// Waits for the turn of the test that runs in this thread, which has the test's name.
    pub(crate) fn take() -> Self {
        let alone = measures(thread::current().name().unwrap_or_default());
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = ENDED
            .wait_while(running, |running| running.alone || (alone && running.beside > 0))
            .unwrap_or_else(PoisonError::into_inner);
        if alone {
            running.alone = true;
        } else {
            running.beside += 1;
        }
        Self { alone }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.alone {
            running.alone = false;
        } else {
            running.beside -= 1;
        }
        ENDED.notify_all();
    }
}

fn measures(test: &str) -> bool {
    MEASURE.iter().any(|name| test.starts_with(name))
}

#[test]
fn a_test_that_measures_is_known_by_its_name() {
    assert!(measures("server::recovery::an_endpoint_that_comes_back"));
    assert!(!measures("server::tail::lines") && !measures("main"));
}

#[test]
fn every_line_names_tests_that_are_there() {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for name in MEASURE {
        let (module, function) = name.rsplit_once("::").expect("a module and a function");
        let path = tests.join(module.replace("::", "/")).with_extension("rs");
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(source.contains(&format!("fn {function}")), "{name}");
    }
}
