//! Keeps the memory of the process, with tokens and keys in it, out of core dumps.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Forbids core dumps of this process. The kernel passes a dump to a program such as
/// systemd-coredump whatever the limit of its size is, so the process is also made one that cannot
/// be dumped. Others of its user can then not trace it either.
pub fn forbid_core_dumps() {
    let no_core_dump = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit is always permitted.
    setrlimit(Resource::Core, no_core_dump).ok();
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).ok();
}
