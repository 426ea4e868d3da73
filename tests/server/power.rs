//! The power goes while a server is under load: its block device is cloned in one instant, and what
//! is found on the clone is compared with what had been acknowledged by then. The device is real as
//! far as a kernel can tell: ext4 on a loop device, with everything that was not synced still in
//! the page cache above it.
//!
//! A kill alone proves nothing of this kind: what was written and not synced survives it.

use std::{collections::BTreeSet, ops::ControlFlow, thread, time::Duration};

use bytes::Bytes;
use gridhook::{
    event::chunk::Chunk,
    repair::fsck,
    storage::record_decoders,
    store::{
        Family, Store, keys,
        rocks::{RocksOptions, RocksStore},
    },
};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    disk::{Device, Mount, has_strace},
    load::{Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

/// All syncs succeed and do nothing, as on a disk that ignores syncs.
const LYING: [&str; 9] = [
    "strace",
    "-f",
    "-qqq",
    "--seccomp-bpf",
    "-o",
    "/dev/null",
    "-e",
    "signal=none",
    "-einject=fsync,fdatasync,sync_file_range,msync,syncfs:retval=0",
];

/// Small buffers: the cuts fall into flushes and compactions.
const SMALL: [(&str, &str); 2] = [
    ("JOURNAL__WRITE_BUFFER_BYTES", "1 MiB"),
    ("JOURNAL__MAX_TOTAL_WAL_BYTES", "1 MiB"),
];

/// The state after a power cut.
#[derive(Debug)]
enum Found {
    /// The store was not opened.
    Refused(String),
    /// The number of acknowledged events that are missing.
    Missing(usize),
}

/// A server under load on a device.
struct ServerOnDevice {
    // Ends before its disk goes.
    server: Server,
    device: Device,
    sink: Sink,
    load: Load,
}

impl ServerOnDevice {
    /// One subscription takes everything, and one is held, so that the log keeps everything.
    fn start(under: &[&str]) -> Option<Self> {
        let device = Device::new(768)?;
        let mut server = Server::with_data_dir(&device.path().join("data"), &SMALL);
        server.run_under(under);
        server.restart();
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        server.subscribe(
            "orders",
            "taker",
            &SubscriptionSpec::new(&sink.url("/taker")).batch(20),
        );
        server.subscribe(
            "orders",
            "keeper",
            &SubscriptionSpec::new(&sink.url("/keeper")).batch(500),
        );
        server.post_verb("orders", "keeper", "hold");
        let pause = Duration::from_millis(5);
        let rate = Rate {
            topic: "orders".to_owned(),
            key,
            publishers: 3,
            events_per_request: 5,
            pause,
        };
        let load = Load::start(server.address(), &rate);
        wait_for("publishers to be served", LONG, || {
            load.acknowledged() > 200
        });
        Some(Self {
            server,
            device,
            sink,
            load,
        })
    }

    /// Cuts the power so often; after each cut: how much had been acknowledged, and what was found.
    fn cut(&self, cuts: usize) -> Vec<(usize, Found)> {
        let mut jitter = fastrand::Rng::with_seed(11);
        let mut found = Vec::new();
        for _ in 0..cuts {
            thread::sleep(Duration::from_millis(jitter.u64(20..400)));
            let acknowledged = self.load.so_far();
            let Some(clone) = self.device.cut() else {
                break;
            };
            found.push((acknowledged.len(), look(&clone, &acknowledged)));
        }
        found
    }
}

/// Reads the store as a server that starts on the clone would.
fn look(clone: &Mount, acknowledged: &[String]) -> Found {
    let store = match RocksStore::open(&clone.path().join("data"), &RocksOptions::default()) {
        Ok(store) => store,
        Err(error) => return Found::Refused(error.to_string()),
    };
    let mut ids = BTreeSet::new();
    let range = keys::family_range(Family::Log);
    let read = &mut |key: &[u8], value: &[u8]| {
        let (_, first) = keys::parse_log(key).expect("a key of the log");
        let chunk = Chunk::decode(first, Bytes::copy_from_slice(value)).expect("a chunk");
        ids.extend(
            chunk
                .decode_events()
                .expect("its events")
                .iter()
                .map(|event| event.id().into_owned()),
        );
        ControlFlow::Continue(())
    };
    if let Err(error) = store.scan(Family::Log, &range.start, &range.end, read) {
        return Found::Refused(error.to_string());
    }
    let report = fsck::check_store(&store, record_decoders(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("a store that can be read");
    assert!(report.findings.is_empty(), "{report}");
    store.close().expect("closed");
    Found::Missing(acknowledged.iter().filter(|id| !ids.contains(*id)).count())
}

#[test]
fn acknowledged_events_survive_power_cuts_under_load() {
    let Some(scene) = ServerOnDevice::start(&[]) else {
        return;
    };
    let found = scene.cut(many(8, 200));
    let most = found
        .iter()
        .map(|(acknowledged, _)| *acknowledged)
        .max()
        .unwrap_or_default();
    println!(
        "{} power cuts, up to {most} events acknowledged before one",
        found.len()
    );
    for (acknowledged, found) in &found {
        assert!(
            matches!(found, Found::Missing(0)),
            "{acknowledged} acknowledged: {found:?}"
        );
    }
    // Behind the last one a real server begins, and delivers all of it.
    let ServerOnDevice {
        mut server,
        device,
        sink,
        load,
    } = scene;
    let acknowledged = load.so_far();
    let Some(clone) = device.cut() else { return };
    server.kill_9();
    load.stop();
    drop(server);
    let mut server = Server::with_data_dir(&clone.path().join("data"), &SMALL);
    server.restart();
    server.post_verb("orders", "keeper", "resume");
    for name in ["taker", "keeper"] {
        wait_until_settled(&server, "orders", name);
        let repeated = assert_arrived(&sink, &format!("/{name}"), &acknowledged).len();
        println!(
            "{name} behind the last cut: {} acknowledged, all arrived, {repeated} repeated",
            acknowledged.len()
        );
    }
    server.terminate();
    server.assert_sound();
}

#[test]
fn on_a_disk_that_lies_about_syncs_the_same_cuts_find_losses() {
    if !has_strace() {
        return;
    }
    let Some(scene) = ServerOnDevice::start(&LYING) else {
        return;
    };
    let found = scene.cut(many(4, 20));
    scene.load.stop();
    let refused = found
        .iter()
        .filter(|(_, found)| matches!(found, Found::Refused(_)))
        .count();
    let lost = found
        .iter()
        .filter(|(_, found)| matches!(found, Found::Missing(1..)))
        .count();
    println!(
        "{} power cuts on a disk that lies: {lost} with losses, {refused} refused",
        found.len()
    );
    for (acknowledged, found) in &found {
        match found {
            Found::Missing(missing) => {
                println!("  {missing} of {acknowledged} acknowledged events are missing")
            }
            Found::Refused(why) => println!("  {why}"),
        }
    }
    assert!(lost + refused > 0, "the test would not detect a loss");
}
