//! The page in a browser: Debian's headless Chromium, driven by Playwright, on the real binary.
//!
//! The scenes are in `browser/`. Each is a program for Node that starts a server and a browser, and
//! ends well or says what was wrong.

use std::{fs::File, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;

use crate::{
    sdk::packages,
    support::{nats::has_nats, needs, server::wait_for, turn::Turn},
};

/// A scene ends itself before, and takes its server and its browser with it. The long form has a
/// tail of an hour.
fn longest() -> Duration {
    Duration::from_secs(needs::many(1_200, 4_500))
}

/// Where Debian's package has the browser.
const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";

fn is_there() -> bool {
    needs::node()
        && needs::can_run(
            "chromium",
            Command::new(CHROMIUM).args(["--no-sandbox", "--version"]),
        )
}

/// Plays a scene to its end.
fn play(scene: &str) {
    play_with(scene, &[]);
}

/// Plays a scene whose servers are nodes of a cluster with several shards.
fn play_with_shards(scene: &str) {
    play_with(scene, &[("GRIDHOOK_SCENE_SHARDS", "3")]);
}

fn play_with(scene: &str, variables: &[(&str, &str)]) {
    let _turn = Turn::take();
    let stage = packages::stage("browser");
    let logs = TempDir::new().expect("a folder");
    let file = |name: &str| File::create(logs.path().join(name)).expect("a log");
    let mut program = Command::new("node");
    program
        .arg(stage.path().join(scene))
        .env("GRIDHOOK_BINARY", env!("CARGO_BIN_EXE_gridhook"))
        .env("GRIDHOOK_CHROMIUM", CHROMIUM)
        .env(
            "GRIDHOOK_SCENE_SECONDS",
            (longest().as_secs() - 30).to_string(),
        )
        .env(
            "GRIDHOOK_GALLERY",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/dashboard-views"),
        )
        .envs(variables.iter().copied())
        .env(
            "GRIDHOOK_PAGE",
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/dashboard/page"),
        )
        .env("GRIDHOOK_SCENES", packages::sources("browser"));
    let mut child = program
        .stdout(file("out"))
        .stderr(file("err"))
        .spawn()
        .expect("the scene begins");
    let mut ended = None;
    wait_for("the scene to end", longest(), || {
        ended = child.try_wait().expect("a child is waited for");
        ended.is_some()
    });
    let read = |name: &str| std::fs::read_to_string(logs.path().join(name)).unwrap_or_default();
    assert!(
        ended.is_some_and(|status| status.success()),
        "{scene}:\n{}{}",
        read("out"),
        read("err")
    );
    print!("{}", read("out"));
}

#[test]
fn every_view_is_whole_empty_full_and_while_the_server_is_gone() {
    if is_there() {
        play("views.mjs");
    }
}

#[test]
fn no_view_violates_wcag_2_2_aa_light_dark_or_at_320_pixels() {
    if is_there() {
        play("axe.mjs");
    }
}

#[test]
fn conditions_failures_waits_and_an_absent_server_are_shown_as_they_are() {
    if is_there() {
        play("honest.mjs");
    }
}

#[test]
fn text_of_others_stays_text() {
    if is_there() {
        play("hostile.mjs");
    }
}

#[test]
fn the_nodes_of_a_cluster_are_seen_moved_drained_and_forgotten() {
    if is_there() && has_nats() {
        play("cluster.mjs");
    }
}

#[test]
fn operators_and_holders_of_links_reach_their_ends_on_a_node_with_several_shards() {
    if is_there() && has_nats() {
        play_with_shards("journeys.mjs");
        play_with_shards("portal.mjs");
    }
}

#[test]
fn seven_tabs_share_a_tail() {
    if is_there() {
        play("tabs.mjs");
    }
}

#[test]
fn a_tail_that_stays_open_does_not_grow() {
    if is_there() {
        play("tail.mjs");
    }
}

#[test]
fn operators_reach_their_ends_by_mouse_and_by_keyboard_alone() {
    if is_there() {
        play("journeys.mjs");
    }
}

#[test]
fn the_holder_of_a_portal_link_sees_edits_tests_and_redrives_and_no_more() {
    if is_there() {
        play("portal.mjs");
    }
}

#[test]
fn tokens_links_and_sessions_are_managed_and_what_is_typed_survives_the_end_of_a_session() {
    if is_there() {
        play("access.mjs");
    }
}

#[test]
fn charts_have_one_cursor_zoom_by_dragging_and_are_a_table_too() {
    if is_there() {
        play("charts.mjs");
    }
}

#[test]
fn the_form_of_an_event_subscription_has_every_subject_and_loses_nothing() {
    if is_there() {
        play("forms.mjs");
    }
}

#[test]
fn frequent_jobs_take_few_clicks() {
    if is_there() {
        play("clicks.mjs");
    }
}

#[test]
fn every_view_is_pictured_light_and_dark_wide_and_on_a_phone() {
    if is_there() {
        play("gallery.mjs");
    }
}

#[test]
fn ten_thousand_subscriptions_are_listed_within_the_budgets() {
    if is_there() {
        play("many.mjs");
    }
}

#[test]
fn the_code_of_the_page_is_formatted() {
    if needs::node() {
        play("format.mjs");
    }
}

#[test]
fn the_page_uses_the_fields_that_the_api_has() {
    if is_there() {
        play("types.mjs");
    }
}

#[test]
fn the_pictures_are_made_and_small() {
    if is_there() {
        play("screenshots.mjs");
    }
}

#[test]
fn the_checks_find_seeded_bugs() {
    if is_there() {
        play("seeds.mjs");
    }
}

#[test]
fn heads_totals_and_one_format_of_times_are_read_on_a_phone_too_and_back_leads_to_the_place() {
    if is_there() {
        play("reading.mjs");
    }
}

#[test]
fn payloads_are_exact_addresses_last_and_waits_are_kept() {
    if is_there() {
        play("details.mjs");
    }
}
