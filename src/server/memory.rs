//! What the start took and the server does not need goes back to the system.
//!
//! The allocator keeps what is free for a second, as it may be asked for again, and looks at that when somebody frees a
//! whole page of it. A server that nobody asks for anything frees none, and would keep for ever what its start took.

use std::{hint::black_box, time::Duration};

/// Longer than the allocator keeps what is free, and seldom enough to cost nothing.
const EVERY: Duration = Duration::from_secs(2);

/// So large a piece is a page of its own.
const PIECE: usize = 1 << 20;

/// Frees such a page, again and again.
pub(super) async fn give_back() {
    loop {
        tokio::time::sleep(EVERY).await;
        drop(black_box(Vec::<u8>::with_capacity(PIECE)));
    }
}
