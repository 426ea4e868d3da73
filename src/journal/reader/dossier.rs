//! All that the store has about one event, for one subscription: whoever explains an event asks for it at once.

use std::ops::ControlFlow;

use super::{Finder, Reads, damaged};
use crate::{
    event::{Event, Lane, Obligor, Seq, Timestamp},
    journal::{
        Error, Promise, keys,
        records::Record,
        store::{Family, Store},
    },
    policy::record::{Cursor, Dead, Owed},
};

/// A dead letter is found by its event only by looking at those that wait: at 10,000 keys, less than 10 ms.
const DEAD_MAX: usize = 10_000;

/// What the store has about an event.
#[derive(Clone, Debug)]
pub struct Dossier {
    /// How far the subscription has come.
    pub cursor: Cursor,
    /// What it owes of the event, by lane.
    pub owed: Vec<(Lane, Owed)>,
    /// Whether the event waits as a dead letter.
    pub is_dead: bool,
    /// Its dead letter and when the file is due, if it is among the first that wait.
    pub dead: Option<(Dead, Timestamp)>,
    /// The event; [`None`] where the store does not have it.
    pub event: Option<Event>,
}

impl Reads {
    /// What the store has about an event. [`Error::Unknown`] where there is no such subscription.
    pub fn dossier(&self, obligor: Obligor, seq: Seq) -> Promise<Dossier> {
        self.ask(move |store| read(store, obligor, seq))
    }
}

fn read(store: &dyn Store, obligor: Obligor, seq: Seq) -> Result<Dossier, Error> {
    let Obligor { partition, subscription } = obligor;
    let cursor = store.get(Family::Cursor, &keys::cursor(obligor))?.ok_or(Error::Unknown)?;
    let cursor = Cursor::decode(&cursor).map_err(damaged)?;
    let lanes = [Lane(0), Lane(u16::MAX)];
    let mut owed = Vec::new();
    let mut bad = None;
    let [from, upper] = lanes.map(|lane| keys::owed(partition, seq, subscription, lane));
    store.scan(Family::Owed, &from, &upper, &mut |key, value| match (keys::parse_owed(key), Owed::decode(value)) {
        (Some((_, _, _, lane)), Ok(record)) => {
            owed.push((lane, record));
            ControlFlow::Continue(())
        }
        (key, record) => {
            bad = Some(damaged(format!("an owed record: {key:?} {record:?}")));
            ControlFlow::Break(())
        }
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    let [from, upper] = lanes.map(|lane| keys::pin(partition, seq, subscription, lane));
    let mut is_dead = false;
    store.scan(Family::Pin, &from, &upper, &mut |_, _| {
        is_dead = true;
        ControlFlow::Break(())
    })?;
    let dead = if is_dead { find_dead(store, obligor, seq)? } else { None };
    Ok(Dossier { cursor, owed, is_dead, dead, event: Finder::new(store, partition).find(seq)? })
}

fn find_dead(store: &dyn Store, obligor: Obligor, wanted: Seq) -> Result<Option<(Dead, Timestamp)>, Error> {
    let mut looked = 0;
    let mut found = None;
    let range = keys::dead_of(obligor);
    store.scan(Family::Dead, &range.start, &range.end, &mut |key, value| {
        if let Some((_, due, seq, _)) = keys::parse_dead(key).filter(|(_, _, seq, _)| *seq == wanted) {
            found =
                Some(Dead::decode(value).map(|dead| (dead, due)).map_err(|error| damaged(format!("{seq:?}: {error}"))));
        }
        looked += 1;
        if found.is_some() || looked == DEAD_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found.transpose()?)
}
