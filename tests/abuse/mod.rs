//! Strangers, slow peers, floods and silent neighbours of the whole server: each loses its own
//! connection or waits, and affects no other.
//!
//! Each bound has its counterpart: with the bound set absurdly high the same look finds that it is
//! missing.

mod attacks;
mod callers;
mod connections;
mod failed_auth;
mod frozen;
mod headers;
mod hostile;
mod listed;
mod neighbours;
mod overload;
mod peers;
mod private;
mod quotas;
mod raw;
mod secrets;
mod slow;
mod terminal;
mod uses;

use std::time::Duration;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

/// Prints a table, aligned.
fn print(title: &str, rows: &[[String; 2]]) {
    let width = rows
        .iter()
        .map(|[left, _]| left.chars().count())
        .max()
        .unwrap_or(0);
    println!("{title}");
    for [left, right] in rows {
        println!("  {left:width$}  {right}");
    }
}
