//! The clock: it never goes back, it approaches the wall clock, and it reports steps of the wall
//! clock.

use std::{thread, time::Duration};

use parking_lot::Mutex;

use gridhook::{
    clock::{
        Beginning, Clock, ClockJump, ClockLimits, ClockRecord, ClockStep, Follower, MachineBoot,
        OwnerClock, Skew, UnconfirmedJump, begin_reading,
    },
    event::Timestamp,
};
use proptest::prelude::*;

const NOON: Timestamp = Timestamp(1_700_000_000_000_000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_correct_wall_clock_is_followed_exactly() {
    let mut follower = Follower::new(NOON);
    for second in 1..100 {
        assert_eq!(
            follower.read_time(seconds(second), NOON.after(seconds(second))),
            NOON.after(seconds(second))
        );
    }
    assert_eq!(follower.last_step(), None);
}

#[test]
fn an_hour_added_to_the_wall_clock_is_reported_and_followed_in_twenty() {
    let mut follower = Follower::new(NOON);
    let ahead = |elapsed| NOON.after(elapsed + seconds(3_600));
    assert_eq!(
        follower.read_time(seconds(1), ahead(seconds(1))),
        NOON.after(Duration::from_millis(1_050))
    );
    let step = ClockStep {
        wall: ahead(seconds(1)),
        expected: NOON.after(seconds(1)),
    };
    assert_eq!(follower.last_step(), Some(step));
    let ten_hours = seconds(36_000);
    assert_eq!(
        follower.read_time(ten_hours, ahead(ten_hours)),
        NOON.after(ten_hours + seconds(1_800))
    );
    let day = seconds(86_400);
    assert_eq!(follower.read_time(day, ahead(day)), ahead(day));
}

#[test]
fn a_wall_clock_that_is_set_back_slows_the_clock_and_never_turns_it() {
    let mut follower = Follower::new(NOON);
    let behind = |elapsed: Duration| NOON.before(seconds(3_600)).after(elapsed);
    assert_eq!(
        follower.read_time(seconds(20), behind(seconds(20))),
        NOON.after(seconds(19))
    );
    assert_eq!(
        follower.read_time(seconds(20), behind(seconds(20))),
        NOON.after(seconds(19))
    );
    assert!(follower.last_step().is_some());
}

#[test]
fn a_small_adjustment_is_followed_without_a_word() {
    let mut follower = Follower::new(NOON);
    let adjusted = NOON.after(seconds(60) + Duration::from_millis(40));
    assert_eq!(follower.read_time(seconds(60), adjusted), adjusted);
    assert_eq!(follower.last_step(), None);
}

proptest! {
    #[test]
    fn time_never_goes_back(readings in prop::collection::vec((0_u64..10_000_000, any::<u64>()), 1..50)) {
        let mut follower = Follower::new(NOON);
        let mut elapsed = Duration::ZERO;
        let mut last = NOON;
        for (passed, wall) in readings {
            elapsed += Duration::from_micros(passed);
            let reported = follower.read_time(elapsed, Timestamp(wall));
            prop_assert!(last <= reported);
            prop_assert!(reported <= NOON.after(elapsed + elapsed / Follower::SLEW));
            last = reported;
        }
    }
}

#[test]
fn the_clock_of_the_machine_is_the_same_for_every_thread() {
    let clock = Clock::system();
    let clones: Vec<_> = (0..4).map(|_| clock.clone()).collect();
    let before = clock.now();
    let threads = clones
        .into_iter()
        .map(|clock| std::thread::spawn(move || clock.now()));
    for thread in threads.collect::<Vec<_>>() {
        let reported = thread.join().expect("a thread that reads the clock");
        assert!(before <= reported && reported <= clock.now());
    }
    assert_eq!(clock.take_step(), None);
}

#[test]
fn time_never_goes_back_for_any_reader_whatever_the_wall_clock_does() {
    let skew = Skew::default();
    let clock = Clock::with_skew(skew.clone());
    let last = Mutex::new(clock.now());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let mut last = last.lock();
                    let reported = clock.now();
                    assert!(*last <= reported, "{reported} after {last}");
                    *last = reported;
                }
            });
        }
        for turn in 0..200 {
            if turn % 2 == 0 {
                skew.set_ahead(seconds(60))
            } else {
                skew.set_behind(seconds(60))
            }
            thread::yield_now();
        }
    });
}

#[test]
fn a_manual_clock_moves_by_hand_only() {
    let (clock, hand) = Clock::new_manual(NOON);
    assert_eq!(clock.now(), NOON);
    hand.advance(seconds(10));
    assert_eq!(clock.now(), NOON.after(seconds(10)));
    hand.set(NOON.after(seconds(60)));
    assert_eq!(clock.clone().now(), NOON.after(seconds(60)));
}

const LIMITS: ClockLimits = ClockLimits {
    jump_max: Duration::from_secs(3_600),
    expiry_pause_max: Duration::from_secs(12 * 3_600),
};

fn machine(boot: &str, up: u64) -> MachineBoot {
    MachineBoot {
        boot: Some(boot.to_owned()),
        up: seconds(up),
    }
}

fn past(boot: &str, up: u64, unconfirmed: Option<UnconfirmedJump>) -> ClockRecord {
    ClockRecord {
        reported: NOON,
        machine: machine(boot, up),
        unconfirmed,
    }
}

#[test]
fn a_pause_of_expiry_is_stored_under_the_name_that_older_versions_read() {
    let first = UnconfirmedJump {
        before: NOON,
        machine: machine("a", 1),
        rest: Duration::from_secs(60),
    };
    let stored = serde_json::to_value(past("a", 1, Some(first))).expect("JSON");
    assert_eq!(stored["held"]["rest"]["secs"], 60, "{stored}");
}

#[test]
fn a_first_process_believes_the_wall_clock() {
    let beginning = begin_reading(None, NOON, &machine("a", 5), LIMITS);
    assert_eq!(
        beginning,
        Beginning {
            reported: NOON,
            jump: None,
            unconfirmed: None
        }
    );
}

#[test]
fn a_jump_of_the_clock_is_not_taken_for_a_pause() {
    let day = 86_400;
    let past = past("a", 100, None);
    // The server was off for a day, and the wall clock advanced by a day.
    let beginning = begin_reading(
        Some(&past),
        NOON.after(seconds(day)),
        &machine("a", 100 + day),
        LIMITS,
    );
    assert_eq!(
        beginning,
        Beginning {
            reported: NOON.after(seconds(day)),
            jump: None,
            unconfirmed: None
        }
    );
    // The server was off for a second, and the wall clock advanced by a day.
    let beginning = begin_reading(
        Some(&past),
        NOON.after(seconds(day)),
        &machine("a", 101),
        LIMITS,
    );
    assert_eq!(beginning.reported, NOON.after(seconds(day)));
    assert_eq!(beginning.jump, Some(ClockJump::Ahead(seconds(day - 1))));
    assert_eq!(
        beginning.unconfirmed.expect("unconfirmed").rest,
        LIMITS.expiry_pause_max
    );
    // The server was off for a day, and the wall clock advanced by a second.
    let beginning = begin_reading(
        Some(&past),
        NOON.after(seconds(1)),
        &machine("a", 100 + day),
        LIMITS,
    );
    assert_eq!(beginning.reported, NOON.after(seconds(day)));
    assert_eq!(beginning.jump, Some(ClockJump::Behind(seconds(day - 1))));
}

#[test]
fn after_another_start_of_the_machine_the_clock_never_begins_earlier_and_a_long_pause_is_doubted() {
    let past = past("a", 100, None);
    let at = |wall| begin_reading(Some(&past), wall, &machine("b", 3), LIMITS);
    assert_eq!(
        at(NOON.before(seconds(60))),
        Beginning {
            reported: NOON,
            jump: None,
            unconfirmed: None
        }
    );
    assert_eq!(
        at(NOON.before(seconds(7_200))).jump,
        Some(ClockJump::Behind(seconds(7_200)))
    );
    assert_eq!(at(NOON.before(seconds(7_200))).reported, NOON);
    assert_eq!(
        at(NOON.after(seconds(3_600))),
        Beginning {
            reported: NOON.after(seconds(3_600)),
            jump: None,
            unconfirmed: None
        }
    );
    assert_eq!(
        at(NOON.after(seconds(3_601))).jump,
        Some(ClockJump::Ahead(seconds(3_601)))
    );
}

#[test]
fn a_clock_goes_on_from_that_of_another_machine_and_expiry_stays_paused() {
    let day = seconds(86_400);
    let at = |past: &ClockRecord, wall| begin_reading(Some(past), wall, &machine("b", 3), LIMITS);
    let confirmed = ClockRecord::on_other_machine(NOON, false, LIMITS);
    assert_eq!(at(&confirmed, NOON.after(seconds(5))).unconfirmed, None);
    let behind = at(&confirmed, NOON.before(day));
    assert_eq!((behind.reported, behind.unconfirmed), (NOON, None));
    let ahead = at(&confirmed, NOON.after(day));
    assert_eq!(ahead.jump, Some(ClockJump::Ahead(day)));
    assert!(ahead.unconfirmed.is_some());
    // It is not known which of the two wall clocks is right.
    let unconfirmed = ClockRecord::on_other_machine(NOON, true, LIMITS);
    for wall in [NOON.before(day), NOON.after(seconds(5)), NOON.after(day)] {
        let next = at(&unconfirmed, wall);
        assert!(
            next.reported >= NOON && next.unconfirmed.is_some(),
            "{next:?}"
        );
    }
}

#[test]
fn a_node_continues_the_clock_of_the_last_owner_and_its_own_file_if_it_was_that_itself() {
    let saved = past("a", 100, None);
    let owner = |is_here| {
        Some(OwnerClock {
            time: NOON.before(seconds(18_000)),
            expiry_is_paused: true,
            is_here,
        })
    };
    assert_eq!(
        ClockRecord::latest_record(Some(saved.clone()), None, LIMITS),
        Some(saved.clone()),
        "no owner is known"
    );
    assert_eq!(
        ClockRecord::latest_record(Some(saved.clone()), owner(true), LIMITS),
        Some(saved.clone())
    );
    // The clock of this node may have been wrong, and an operator has confirmed that of a later
    // owner.
    let of_owner = Some(ClockRecord::on_other_machine(
        NOON.before(seconds(18_000)),
        true,
        LIMITS,
    ));
    assert_eq!(
        ClockRecord::latest_record(Some(saved), owner(false), LIMITS),
        of_owner
    );
    assert_eq!(
        ClockRecord::latest_record(None, owner(true), LIMITS),
        of_owner,
        "the file was lost"
    );
}

#[test]
fn a_pause_goes_on_until_the_wall_clock_is_back_and_remembers_the_first_jump() {
    let days = seconds(3 * 86_400);
    let first = begin_reading(
        Some(&past("a", 100, None)),
        NOON.after(days),
        &machine("a", 101),
        LIMITS,
    )
    .unconfirmed
    .expect("unconfirmed");
    let mut past = ClockRecord {
        reported: NOON.after(days),
        machine: machine("a", 200),
        unconfirmed: Some(first.clone()),
    };
    // A restart of the server alone changes nothing.
    let again = begin_reading(
        Some(&past),
        NOON.after(days + seconds(5)),
        &machine("a", 205),
        LIMITS,
    );
    assert_eq!(
        (again.jump, again.unconfirmed.as_ref()),
        (None, Some(&first))
    );
    // After a second jump the pause lasts for the full time again, and returning from the first
    // jump ends it.
    let further = begin_reading(
        Some(&past),
        NOON.after(days + days),
        &machine("a", 205),
        LIMITS,
    );
    assert!(matches!(further.jump, Some(ClockJump::Ahead(_))));
    assert_eq!(
        further.unconfirmed,
        Some(UnconfirmedJump {
            rest: LIMITS.expiry_pause_max,
            ..first.clone()
        })
    );
    past.unconfirmed = further.unconfirmed;
    let back = begin_reading(
        Some(&past),
        NOON.after(seconds(110)),
        &machine("a", 210),
        LIMITS,
    );
    assert_eq!(
        back,
        Beginning {
            reported: NOON.after(seconds(110)),
            jump: Some(ClockJump::Undone),
            unconfirmed: None
        }
    );
}

#[test]
fn a_clock_pauses_expiry_after_a_jump_until_it_is_confirmed_or_the_time_is_over() {
    let past = ClockRecord {
        reported: Timestamp::default(),
        machine: machine("a", 0),
        unconfirmed: None,
    };
    let (clock, jump) = Clock::resume_after(Skew::default(), Some(&past), Some("b"), LIMITS);
    assert!(matches!(jump, Some(ClockJump::Ahead(_))) && clock.expiry_is_paused());
    assert!(
        clock
            .to_record(Some("b"))
            .expect("a clock of the machine")
            .unconfirmed
            .is_some()
    );
    clock.confirm_wall();
    assert!(!clock.expiry_is_paused());
    assert!(
        clock
            .to_record(Some("b"))
            .expect("a clock of the machine")
            .unconfirmed
            .is_none()
    );

    let short = ClockLimits {
        expiry_pause_max: Duration::ZERO,
        ..LIMITS
    };
    let skew = Skew::default();
    let (clock, _) = Clock::resume_after(skew.clone(), Some(&past), Some("b"), short);
    skew.set_ahead(seconds(7_200));
    assert!(
        clock.expiry_is_paused(),
        "a clock that is known to be wrong confirms nothing"
    );
    skew.set_ahead(Duration::ZERO);
    assert!(!clock.expiry_is_paused(), "the time is over");
}

#[test]
fn a_confirmed_clock_that_is_ahead_is_followed_at_once_and_one_that_is_behind_by_the_next_clock() {
    let skew = Skew::default();
    let clock = Clock::with_skew(skew.clone());
    skew.set_ahead(seconds(7_200));
    assert!(
        clock.wall_time().seconds_ahead_of(clock.now()) > 7_000.0,
        "time does not jump by itself"
    );
    clock.confirm_wall();
    let confirmed = clock.now();
    assert!(clock.wall_time().seconds_ahead_of(confirmed).abs() < 1.0);

    let past = clock.to_record(Some("b")).expect("a clock of the machine");
    assert!(!clock.is_set_back() && past.reported >= confirmed);

    skew.set_behind(seconds(30));
    clock.confirm_wall();
    assert!(clock.is_set_back(), "it is two hours ahead of that");
    skew.set_ahead(seconds(7_200 - 30));
    clock.confirm_wall();
    assert!(!clock.is_set_back(), "time approaches it");

    skew.set_ahead(Duration::ZERO);
    assert!(
        !clock.is_set_back(),
        "an earlier confirmation is of its clock"
    );
    clock.confirm_wall();
    assert!(clock.is_set_back());
    assert!(clock.now() >= confirmed, "time never goes back");
    let past = clock.to_record(Some("b")).expect("a clock of the machine");
    assert!(clock.wall_time().seconds_ahead_of(past.reported).abs() < 1.0);
}

#[test]
fn a_past_time_is_converted_to_the_wall_clock_of_now() {
    let skew = Skew::default();
    let clock = Clock::with_skew(skew.clone());
    let began = clock.now();
    skew.set_ahead(seconds(7_200));
    let ahead = clock.to_wall(began).seconds_ahead_of(began);
    assert!((7_000.0..7_400.0).contains(&ahead), "{ahead}");
}
