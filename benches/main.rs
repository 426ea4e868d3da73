//! `cargo bench --bench gridhook -- [NAME…]`: see `harness`. Ends with 1 where a budget is missed
//! by more than noise.
#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures real processes and sockets by the real clock"
)]

mod harness;
/// What a bench needs of what tests are made of.
#[path = "../tests/support"]
#[expect(dead_code, reason = "tests need more of it")]
mod support {
    pub(crate) mod azurite;
    pub(crate) mod certificates;
    pub(crate) mod debian;
    pub(crate) mod disk;
    pub(crate) mod edition;
    pub(crate) mod http;
    pub(crate) mod kafka;
    pub(crate) mod nats;
    pub(crate) mod needs;
    pub(crate) mod port;
    pub(crate) mod process;
    pub(crate) mod server;
    mod turn;
}

/// The services that events are delivered to.
#[path = "../tests/sdk"]
#[expect(dead_code, reason = "tests need more of it")]
mod sdk {
    pub(crate) mod packages;
}

use std::process::{Command, ExitCode};

use harness::{BENCHES, Bench, Scale, Verdict, is_floor};

/// The floors are measured with what the server has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn again() -> Command {
    Command::new(std::env::current_exe().expect("this program"))
}

fn main() -> ExitCode {
    if is_floor() {
        return ExitCode::SUCCESS;
    }
    // Cargo adds `--bench`.
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let known = BENCHES.map(|(name, _)| name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!(
            "there is no bench {unknown:?}; there are {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    let scale = std::env::var("BENCH_SCALE").unwrap_or_else(|_| "full".to_owned());
    let scale = match Scale::named(&scale) {
        Ok(scale) => scale,
        Err(error) => {
            eprintln!("BENCH_SCALE: {error}");
            return ExitCode::from(2);
        }
    };
    let bench = Bench { scale, again };
    let asked = BENCHES
        .into_iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|asked| asked == name));
    let verdicts: Vec<Verdict> = asked.flat_map(|(name, run)| bench.run(name, run)).collect();
    let missed = verdicts
        .iter()
        .filter(|verdict| **verdict == Verdict::Missed)
        .count();
    println!("\n{missed} of {} budgets missed", verdicts.len());
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
