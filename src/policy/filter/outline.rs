//! Where the members of an event's objects stand: found in one pass over its JSON, however deep a key leads.
//!
//! The JSON is sound, because publishing has read it. Of anything else there is no outline, or one of a part of it.
//! What is in an array is left out: no key leads there.

use std::{cell::Cell, ops::Range};

/// A member of an object, in the order of the text.
#[derive(Debug)]
struct Member {
    /// Where its name stands, in quotes.
    name: Range<usize>,
    value: Range<usize>,
    /// The first member behind those of its value.
    next: usize,
}

/// Where they stand.
#[derive(Debug)]
pub(super) struct Outline<'e> {
    json: &'e str,
    members: Vec<Member>,
    /// How many bytes of JSON were read, for this and for values.
    read: Cell<usize>,
}

impl<'e> Outline<'e> {
    /// Of an object; [`None`] where it is none.
    pub(super) fn of(json: &'e str) -> Option<Self> {
        let text = json.as_bytes();
        let (mut members, mut open) = (Vec::<Member>::new(), Vec::<usize>::new());
        let mut at = blank(text, 0);
        if text.get(at) != Some(&b'{') {
            return None;
        }
        at += 1;
        loop {
            at = blank(text, at);
            match text.get(at)? {
                b',' => at += 1,
                b'"' => {
                    let name = at..string(text, at)?;
                    let colon = blank(text, name.end);
                    let from = blank(text, colon + 1);
                    if text.get(colon) != Some(&b':') {
                        return None;
                    }
                    at = match text.get(from)? {
                        b'{' => {
                            open.push(members.len());
                            from + 1
                        }
                        b'[' => array(text, from)?,
                        b'"' => string(text, from)?,
                        b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                            from + text[from..].iter().position(|byte| b",} \t\r\n".contains(byte))?
                        }
                        _ => return None,
                    };
                    members.push(Member { name, value: from..at, next: members.len() + 1 });
                }
                b'}' => {
                    at += 1;
                    let Some(object) = open.pop() else { break };
                    let next = members.len();
                    let member = members.get_mut(object)?;
                    (member.value.end, member.next) = (at, next);
                }
                _ => return None,
            }
        }
        Some(Self { json, members, read: Cell::new(at) })
    }

    /// All members, in order: for the object that is the whole text.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.members.len()
    }

    /// The members of an object: their names in quotes, their values, and what is in these.
    pub(super) fn members(&self, of: Range<usize>) -> impl Iterator<Item = (&'e str, &'e str, Range<usize>)> {
        let mut at = of.start;
        std::iter::from_fn(move || {
            let Member { name, value, next } = self.members[..of.end].get(at)?;
            let within = at + 1..*next;
            at = *next;
            self.count(name.len());
            Some((&self.json[name.clone()], &self.json[value.clone()], within))
        })
    }

    /// So many bytes more were read.
    pub(super) fn count(&self, bytes: usize) {
        self.read.set(self.read.get() + bytes);
    }

    /// How many bytes of JSON were read.
    pub(super) fn read(&self) -> usize {
        self.read.get()
    }
}

/// The first byte from there on that is not blank.
fn blank(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| b" \t\r\n".contains(byte)).count()
}

/// The end of the string that begins there.
fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The end of the array that begins there.
fn array(text: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => {
                at = string(text, at)?;
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}
