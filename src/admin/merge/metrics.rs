//! The metrics of several shards of a node as one exposition.
//!
//! Each family is written once, with the series of all shards. They get the label `shard`, except
//! those of the process, which every shard shows: they are taken from the first one. RocksDB counts
//! for all stores of the process together. A topic may be spread over shards, and these move between
//! nodes: a sum would fall when one leaves.

use std::{collections::HashMap, fmt::Write as _};

/// The beginnings of the names of families that are of the process.
const OF_PROCESS: [&str; 12] = [
    "process_",
    "gridhook_build_info",
    "gridhook_certificate_",
    "gridhook_cluster_",
    "gridhook_http_",
    "gridhook_metrics_named_limit",
    "gridhook_rocksdb_block_cache_hits",
    "gridhook_rocksdb_block_cache_misses",
    "gridhook_rocksdb_compaction_",
    "gridhook_rocksdb_flush_written_",
    "gridhook_rocksdb_stalled_",
    "gridhook_rocksdb_wal_",
];

/// The last line of OpenMetrics.
const END: &str = "# EOF";

#[derive(Default)]
struct Family<'a> {
    is_of_process: bool,
    head: Vec<&'a str>,
    samples: String,
}

#[derive(Default)]
struct Families<'a> {
    families: Vec<Family<'a>>,
    /// The positions of the families, by name.
    positions: HashMap<&'a str, usize>,
}

impl<'a> Families<'a> {
    /// Adds a line such as `# HELP NAME TEXT`. Returns the position of its family.
    fn add_head(&mut self, line: &'a str) -> usize {
        let name = line.split(' ').nth(2).unwrap_or_default();
        let position = *self.positions.entry(name).or_insert_with(|| {
            self.families.push(Family {
                is_of_process: OF_PROCESS.iter().any(|prefix| name.starts_with(prefix)),
                ..Family::default()
            });
            self.families.len() - 1
        });
        let head = &mut self.families[position].head;
        if !head.contains(&line) {
            head.push(line);
        }
        position
    }
}

/// The expositions of shards, by their numbers, as one.
pub fn merge_expositions(of_shards: &[(usize, &str)]) -> String {
    let mut all = Families::default();
    let mut has_end = false;
    for (position, (shard, text)) in of_shards.iter().enumerate() {
        let shard = shard.to_string();
        let mut current = None;
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line == END {
                has_end = true;
            } else if line.starts_with("# ") {
                current = Some(all.add_head(line));
            } else if let Some(current) = current {
                let family = &mut all.families[current];
                if !family.is_of_process {
                    push_labelled(&mut family.samples, line, &shard);
                } else if position == 0 {
                    family.samples.extend([line, "\n"]);
                }
            }
        }
    }
    let mut text = String::new();
    for Family { head, samples, .. } in all.families {
        head.into_iter().for_each(|line| text.extend([line, "\n"]));
        text.push_str(&samples);
    }
    if has_end {
        text.extend([END, "\n"]);
    }
    text
}

/// Adds a sample with the label `shard`.
fn push_labelled(to: &mut String, sample: &str, shard: &str) {
    let Some((name, labels)) = sample
        .split_once('{')
        .filter(|(name, _)| !name.contains(' '))
    else {
        let (name, value) = sample.split_once(' ').unwrap_or((sample, ""));
        // Writing to a string does not fail.
        writeln!(to, "{name}{{shard=\"{shard}\"}} {value}").ok();
        return;
    };
    writeln!(to, "{name}{{shard=\"{shard}\",{labels}").ok();
}
