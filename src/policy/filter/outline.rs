//! The positions of the members of an event's objects, found in one pass over its JSON at any
//! depth.
//!
//! The JSON is valid, because publishing has parsed it. For invalid JSON the outline is missing or
//! partial. Arrays are not included, because no key leads into them.

use std::{cell::Cell, ops::Range};

/// A member of an object, in the order of the text.
#[derive(Debug)]
struct Member {
    /// The range of its name, with quotes.
    name: Range<usize>,
    value: Range<usize>,
    /// The index of the next member after those of its value.
    next: usize,
}

#[derive(Debug)]
pub(super) struct Outline<'e> {
    json: &'e str,
    members: Vec<Member>,
    /// Bytes of JSON that were read, for the outline and for values.
    read: Cell<usize>,
}

impl<'e> Outline<'e> {
    /// The outline of an object; [`None`] for other values.
    pub(super) fn from_object(json: &'e str) -> Option<Self> {
        let text = json.as_bytes();
        let mut members = Vec::<Member>::new();
        let mut open = Vec::<usize>::new();
        let mut at = skip_whitespace(text, 0);
        if text.get(at) != Some(&b'{') {
            return None;
        }
        at += 1;
        loop {
            at = skip_whitespace(text, at);
            match text.get(at)? {
                b',' => at += 1,
                b'"' => {
                    let name = at..string_end(text, at)?;
                    let colon = skip_whitespace(text, name.end);
                    let from = skip_whitespace(text, colon + 1);
                    if text.get(colon) != Some(&b':') {
                        return None;
                    }
                    at = match text.get(from)? {
                        b'{' => {
                            open.push(members.len());
                            from + 1
                        }
                        b'[' => array_end(text, from)?,
                        b'"' => string_end(text, from)?,
                        b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                            from + text[from..]
                                .iter()
                                .position(|byte| b",} \t\r\n".contains(byte))?
                        }
                        _ => return None,
                    };
                    members.push(Member {
                        name,
                        value: from..at,
                        next: members.len() + 1,
                    });
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
        Some(Self {
            json,
            members,
            read: Cell::new(at),
        })
    }

    pub(super) fn all_members(&self) -> Range<usize> {
        0..self.members.len()
    }

    /// The members of an object: names with quotes, values, and the members of the values.
    pub(super) fn iter_members(
        &self,
        of: Range<usize>,
    ) -> impl Iterator<Item = (&'e str, &'e str, Range<usize>)> {
        let mut at = of.start;
        std::iter::from_fn(move || {
            let Member { name, value, next } = self.members[..of.end].get(at)?;
            let within = at + 1..*next;
            at = *next;
            self.count_read(name.len());
            Some((&self.json[name.clone()], &self.json[value.clone()], within))
        })
    }

    /// Counts bytes that were read.
    pub(super) fn count_read(&self, bytes: usize) {
        self.read.set(self.read.get() + bytes);
    }

    /// Bytes of JSON that were read.
    pub(super) fn read(&self) -> usize {
        self.read.get()
    }
}

/// The next byte that is not whitespace.
fn skip_whitespace(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| b" \t\r\n".contains(byte))
        .count()
}

/// The end of the string that starts here.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The end of the array that starts here.
fn array_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
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
