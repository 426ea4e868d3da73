//! The clock: it never goes back, it draws towards the wall clock, and it tells when that was set.

use std::{sync::Mutex, thread, time::Duration};

use gridhook::{
    clock::{Clock, Follower, Skew, Step},
    event::Timestamp,
};
use proptest::prelude::*;

const NOON: Timestamp = Timestamp(1_700_000_000_000_000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_wall_clock_that_runs_true_is_told_as_it_is() {
    let mut follower = Follower::new(NOON);
    for second in 1..100 {
        assert_eq!(follower.observe(seconds(second), NOON.after(seconds(second))), NOON.after(seconds(second)));
    }
    assert_eq!(follower.step(), None);
}

#[test]
fn an_hour_added_to_the_wall_clock_is_told_and_followed_in_twenty() {
    let mut follower = Follower::new(NOON);
    let ahead = |elapsed| NOON.after(elapsed + seconds(3_600));
    assert_eq!(follower.observe(seconds(1), ahead(seconds(1))), NOON.after(Duration::from_millis(1_050)));
    let step = Step { wall: ahead(seconds(1)), expected: NOON.after(seconds(1)) };
    assert_eq!(follower.step(), Some(step));
    let ten_hours = seconds(36_000);
    assert_eq!(follower.observe(ten_hours, ahead(ten_hours)), NOON.after(ten_hours + seconds(1_800)));
    let day = seconds(86_400);
    assert_eq!(follower.observe(day, ahead(day)), ahead(day));
}

#[test]
fn a_wall_clock_that_is_set_back_slows_the_clock_and_never_turns_it() {
    let mut follower = Follower::new(NOON);
    let behind = |elapsed: Duration| NOON.before(seconds(3_600)).after(elapsed);
    assert_eq!(follower.observe(seconds(20), behind(seconds(20))), NOON.after(seconds(19)));
    assert_eq!(follower.observe(seconds(20), behind(seconds(20))), NOON.after(seconds(19)));
    assert!(follower.step().is_some());
}

#[test]
fn a_small_adjustment_is_followed_without_a_word() {
    let mut follower = Follower::new(NOON);
    let adjusted = NOON.after(seconds(60) + Duration::from_millis(40));
    assert_eq!(follower.observe(seconds(60), adjusted), adjusted);
    assert_eq!(follower.step(), None);
}

proptest! {
    #[test]
    fn time_never_goes_back(readings in prop::collection::vec((0_u64..10_000_000, any::<u64>()), 1..50)) {
        let (mut follower, mut elapsed, mut last) = (Follower::new(NOON), Duration::ZERO, NOON);
        for (passed, wall) in readings {
            elapsed += Duration::from_micros(passed);
            let told = follower.observe(elapsed, Timestamp(wall));
            prop_assert!(last <= told);
            prop_assert!(told <= NOON.after(elapsed + elapsed / Follower::SLEW));
            last = told;
        }
    }
}

#[test]
fn the_clock_of_the_machine_tells_the_same_to_every_thread() {
    let clock = Clock::system();
    let clones: Vec<_> = (0..4).map(|_| clock.clone()).collect();
    let before = clock.now();
    let threads = clones.into_iter().map(|clock| std::thread::spawn(move || clock.now()));
    for thread in threads.collect::<Vec<_>>() {
        let told = thread.join().expect("a thread that reads the clock");
        assert!(before <= told && told <= clock.now());
    }
    assert_eq!(clock.take_step(), None);
}

#[test]
fn a_later_answer_is_no_earlier_time_whoever_asks_and_whatever_the_wall_clock_does() {
    let skew = Skew::default();
    let clock = Clock::skewed(skew.clone());
    let last = Mutex::new(clock.now());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let mut last = last.lock().expect("nobody has failed");
                    let told = clock.now();
                    assert!(*last <= told, "{told} after {last}");
                    *last = told;
                }
            });
        }
        for turn in 0..200 {
            if turn % 2 == 0 {
                skew.ahead(seconds(60))
            } else {
                skew.behind(seconds(60))
            }
            thread::yield_now();
        }
    });
}

#[test]
fn a_manual_clock_moves_by_hand_only() {
    let (clock, hand) = Clock::manual(NOON);
    assert_eq!(clock.now(), NOON);
    hand.advance(seconds(10));
    assert_eq!(clock.now(), NOON.after(seconds(10)));
    hand.set(NOON.after(seconds(60)));
    assert_eq!(clock.clone().now(), NOON.after(seconds(60)));
}
