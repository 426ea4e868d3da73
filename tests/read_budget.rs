//! The read budget of all subscriptions: its limit, and the order of grants.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gridhook::subscription::{BudgetMember, GrantRequest, ReadBudget};

const MIB: usize = 1 << 20;

/// Number of subscriptions that lag.
const LAGGARDS: usize = 10_000;

/// Requested bytes per read.
const SLICE: usize = MIB / 2;

fn member(budget: &Arc<ReadBudget>) -> BudgetMember {
    budget.add_member(Arc::new(|| {}))
}

/// Reads a part: waits for a grant, keeps its share of what was read, and sends it.
async fn read_and_send(budget: &ReadBudget, member: &BudgetMember) {
    let room = member
        .wait_for_grant(GrantRequest::Share(SLICE))
        .await
        .expect("it is there");
    assert!(budget.used_bytes() <= 64 * MIB);
    // A chunk and a little more.
    let room = room
        .shrink_to(70_000)
        .expect("a chunk is no more than a share");
    tokio::task::yield_now().await;
    member.set_kept_bytes(member.share_bytes().min(SLICE));
    drop(room);
    assert!(budget.used_bytes() <= 64 * MIB);
    tokio::task::yield_now().await;
    member.set_kept_bytes(0);
}

#[actix_web::test]
async fn ten_thousand_lagging_subscriptions_read_in_turns_within_the_budget() {
    let budget = ReadBudget::new(64 * MIB);
    let read: Rc<RefCell<Vec<usize>>> = Rc::new(RefCell::new(vec![0; LAGGARDS]));
    let most = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..LAGGARDS)
        .map(|number| {
            let budget = Arc::clone(&budget);
            let read = Rc::clone(&read);
            let most = Rc::clone(&most);
            actix_rt::spawn(async move {
                let member = member(&budget);
                for part in 1..=3 {
                    read_and_send(&budget, &member).await;
                    most.set(most.get().max(budget.used_bytes()));
                    read.borrow_mut()[number] = part;
                    // Every subscription had a turn before any has its third.
                    assert!(
                        part < 3 || read.borrow().iter().all(|parts| *parts >= 1),
                        "{number} is ahead"
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it has read all");
    }
    assert!(most.get() > 32 * MIB, "the room is used: {}", most.get());
    assert_eq!(budget.used_bytes(), 0, "and given back");
}

#[actix_web::test]
async fn one_with_many_lanes_waits_like_one_with_a_single_lane() {
    let budget = ReadBudget::new(4 * MIB);
    let many = member(&budget);
    let one = member(&budget);
    let order = Rc::new(RefCell::new(Vec::new()));
    // All of the budget is taken. Then there is room for one grant at a time.
    let hold = member(&budget);
    let all = hold
        .wait_for_grant(GrantRequest::Exactly(3 * MIB))
        .await
        .expect("it is there");
    let grant: Vec<_> = (0..10)
        .map(|_| ("many", many.wait_for_grant(GrantRequest::Exactly(2 * MIB))))
        .chain([("one", one.wait_for_grant(GrantRequest::Exactly(2 * MIB)))])
        .collect();
    let tasks: Vec<_> = grant
        .into_iter()
        .map(|(name, grant)| {
            let order = Rc::clone(&order);
            actix_rt::spawn(async move {
                let room = grant.await.expect("it is there");
                order.borrow_mut().push(name);
                drop(room);
            })
        })
        .collect();
    drop(all);
    for task in tasks {
        task.await.expect("it is served");
    }
    let place = order
        .borrow()
        .iter()
        .position(|name| *name == "one")
        .expect("it was served");
    assert!(place <= 1, "{:?}", order.borrow());
}

#[actix_web::test]
async fn kept_events_are_dropped_when_others_wait() {
    let budget = ReadBudget::with_patience(4 * MIB, Duration::from_millis(5));
    let released = Arc::new(AtomicBool::new(false));
    let release = Arc::clone(&released);
    let keeper = budget.add_member(Arc::new(move || release.store(true, Ordering::SeqCst)));
    // Like an endpoint that allows one request per minute.
    keeper.set_kept_bytes(4 * MIB);
    assert!(!keeper.has_room());
    let other = member(&budget);
    let grant = actix_rt::spawn(other.wait_for_grant(GrantRequest::Share(SLICE)));
    while !released.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!grant.is_finished());
    keeper.set_kept_bytes(0);
    assert!(grant.await.expect("it ends").is_some());
}

#[actix_web::test]
async fn a_chunk_larger_than_its_grant_is_read_when_the_budget_allows() {
    let budget = ReadBudget::new(8 * MIB);
    let one = member(&budget);
    let other = member(&budget);
    let room = one
        .wait_for_grant(GrantRequest::Share(SLICE))
        .await
        .expect("it is there");
    let beside = other
        .wait_for_grant(GrantRequest::Exactly(5 * MIB))
        .await
        .expect("it is there");
    assert!(
        room.shrink_to(2 * MIB).is_none(),
        "a larger chunk has no room beside the other"
    );
    let grant = actix_rt::spawn(one.wait_for_grant(GrantRequest::Exactly(2 * MIB)));
    tokio::task::yield_now().await;
    assert!(!grant.is_finished());
    drop(beside);
    let room = grant.await.expect("it ends").expect("it is there");
    assert!(
        room.shrink_to(7 * MIB).is_some(),
        "and what is larger than all grants has them alone"
    );
    // A member that was dropped is skipped.
    let all = one
        .wait_for_grant(GrantRequest::Exactly(6 * MIB))
        .await
        .expect("it is there");
    let waiting = other.wait_for_grant(GrantRequest::Exactly(6 * MIB));
    drop(other);
    assert!(waiting.await.is_none());
    drop(all);
    assert_eq!(budget.used_bytes(), 0);
}
