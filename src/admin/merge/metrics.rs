//! The metrics of several shards of a node as one exposition.
//!
//! Each family is written once, with the series of all shards. They get the label `shard`, except
//! those of the process, which every shard shows: they are taken from the first one. A topic may be
//! spread over shards, and these move between nodes: a sum would fall when one leaves.

use std::{collections::HashMap, fmt::Write as _};

/// The beginnings of the names of families that are of the process.
const OF_PROCESS: [&str; 6] = [
    "process_",
    "gridhook_build_info",
    "gridhook_certificate_",
    "gridhook_cluster_",
    "gridhook_http_",
    "gridhook_metrics_named_limit",
];

/// The last line of OpenMetrics.
const END: &str = "# EOF";

struct Family<'a> {
    head: Vec<&'a str>,
    samples: String,
}

/// The expositions of shards, by their numbers, as one.
pub fn merge_expositions(of_shards: &[(usize, &str)]) -> String {
    let (mut families, mut index): (Vec<Family<'_>>, HashMap<&str, usize>) =
        (Vec::new(), HashMap::new());
    let mut has_end = false;
    for (at, (shard, text)) in of_shards.iter().enumerate() {
        let shard = shard.to_string();
        let mut current = None;
        for line in text.lines() {
            if line == END {
                has_end = true;
            } else if let Some(head) = line.strip_prefix("# ") {
                let name = head.split(' ').nth(1).unwrap_or_default();
                let number = *index.entry(name).or_insert_with(|| {
                    families.push(Family {
                        head: Vec::new(),
                        samples: String::new(),
                    });
                    families.len() - 1
                });
                let family = &mut families[number];
                if !family.head.contains(&line) {
                    family.head.push(line);
                }
                current = Some((
                    number,
                    OF_PROCESS
                        .iter()
                        .any(|of_process| name.starts_with(of_process)),
                ));
            } else if let Some((number, of_process)) = current.filter(|_| !line.is_empty()) {
                let samples = &mut families[number].samples;
                match (of_process, at) {
                    (true, 0) => samples.push_str(line),
                    (true, _) => continue,
                    (false, _) => push_labelled(samples, line, &shard),
                }
                samples.push('\n');
            }
        }
    }
    let mut all = String::new();
    for Family { head, samples } in families {
        head.into_iter().for_each(|line| all.extend([line, "\n"]));
        all.push_str(&samples);
    }
    if has_end {
        all.extend([END, "\n"]);
    }
    all
}

fn push_labelled(to: &mut String, sample: &str, shard: &str) {
    let Some((name, labels)) = sample
        .split_once('{')
        .filter(|(name, _)| !name.contains(' '))
    else {
        let (name, value) = sample.split_once(' ').unwrap_or((sample, ""));
        // Writing to a string does not fail.
        write!(to, "{name}{{shard=\"{shard}\"}} {value}").ok();
        return;
    };
    write!(to, "{name}{{shard=\"{shard}\",{labels}").ok();
}
