//! Reads events in one pass, and checks their JSON on the way.
//!
//! Invariant: what it accepts is valid JSON. It need not accept all of it: a caller whose scan
//! fails reads the same text with serde_json, which also explains what is wrong.

use super::json::{JsonValue, ObjectMembers};

/// The number of bytes that are compared at once in a long string.
const BLOCK: usize = 64;

/// A string is searched by this many words before it is by blocks.
const WORDS: usize = 4;

/// The most levels: each is a bit of [`Levels`].
const LEVELS: usize = u128::BITS as usize;

/// Reads an array of objects, whose members may be nested `depth_max` levels deep. Fills
/// `new_members` for each, and passes them to `each` with the text of the object. [`None`] at the
/// first error, whatever it is, and where `each` returns [`None`].
pub(super) fn scan_objects<'a, T: ObjectMembers<'a>>(
    text: &'a str,
    depth_max: usize,
    new_members: impl Fn() -> T,
    mut each: impl FnMut(&T, &'a str) -> Option<()>,
) -> Option<()> {
    let mut scan = Scan::new(text, depth_max);
    scan.skip_space();
    scan.expect_byte(b'[')?;
    loop {
        scan.skip_space();
        let start = scan.at;
        let mut members = new_members();
        scan.scan_object(&mut members)?;
        each(&members, &text[start..scan.at])?;
        scan.skip_space();
        match scan.next()? {
            b',' => {}
            b']' => break,
            _ => return None,
        }
    }
    scan.finish()
}

/// Reads the members of one object, which may be nested `depth_max` levels deep. Returns its text;
/// [`None`] at the first error, whatever it is.
pub(super) fn scan_one_object<'a>(
    text: &'a str,
    depth_max: usize,
    members: &mut impl ObjectMembers<'a>,
) -> Option<&'a str> {
    let mut scan = Scan::new(text, depth_max);
    scan.skip_space();
    let start = scan.at;
    scan.scan_object(members)?;
    let object = &text[start..scan.at];
    scan.finish()?;
    Some(object)
}

/// Reads one value, which may be nested `depth_max` levels deep. [`None`] at the first error,
/// whatever it is.
pub(super) fn scan_one_value(text: &str, depth_max: usize) -> Option<JsonValue<'_>> {
    let mut scan = Scan::new(text, depth_max);
    scan.skip_space();
    let value = scan.scan_value()?;
    scan.finish()?;
    Some(value)
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth_max: usize,
}

/// The open objects and arrays around a value: a bit for each, set for an object.
#[derive(Default)]
struct Levels {
    objects: u128,
    depth: usize,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str, depth_max: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            depth_max: depth_max.min(LEVELS),
        }
    }

    /// Ends the scan: nothing but white space may follow.
    fn finish(mut self) -> Option<()> {
        self.skip_space();
        (self.at == self.text.len()).then_some(())
    }

    // Each schema has a copy of these two, as if it were the only one.
    #[inline(always)]
    fn scan_object(&mut self, members: &mut impl ObjectMembers<'a>) -> Option<()> {
        self.expect_byte(b'{')?;
        self.skip_space();
        if self.skip_byte(b'}') {
            return Some(());
        }
        loop {
            self.expect_byte(b'"')?;
            let start = self.at;
            let has_escapes = self.scan_string()?;
            if has_escapes {
                return None;
            }
            let name = &self.text[start..self.at - 1];
            self.skip_colon()?;
            members.put(name, self.scan_value()?).ok()?;
            self.skip_space();
            match self.next()? {
                b',' => self.skip_space(),
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    #[inline(always)]
    fn scan_value(&mut self) -> Option<JsonValue<'a>> {
        let start = self.at;
        let mut levels = Levels::default();
        let mut has_escapes = false;
        loop {
            match self.next()? {
                b'"' => has_escapes |= self.scan_string()?,
                b'{' => {
                    levels.open(true, self.depth_max)?;
                    self.skip_space();
                    if !self.skip_byte(b'}') {
                        self.name()?;
                        continue;
                    }
                    levels.close();
                }
                b'[' => {
                    levels.open(false, self.depth_max)?;
                    self.skip_space();
                    if !self.skip_byte(b']') {
                        continue;
                    }
                    levels.close();
                }
                b't' => self.expect_bytes(b"rue")?,
                b'f' => self.expect_bytes(b"alse")?,
                b'n' => self.expect_bytes(b"ull")?,
                b'-' => {
                    let first = self.next()?;
                    self.scan_number(first)?;
                }
                first => self.scan_number(first)?,
            }
            // The scan is behind a value: a comma or the end of the level follows.
            while levels.depth > 0 {
                self.skip_space();
                match (self.next()?, levels.is_object()) {
                    (b',', is_object) => {
                        self.skip_space();
                        if is_object {
                            self.name()?;
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => levels.close(),
                    _ => return None,
                }
            }
            if levels.depth == 0 {
                return Some(JsonValue {
                    text: &self.text[start..self.at],
                    has_escapes,
                });
            }
        }
    }

    /// A member's name up to its value.
    fn name(&mut self) -> Option<()> {
        self.expect_byte(b'"')?;
        self.scan_string()?;
        self.skip_colon()
    }

    fn skip_colon(&mut self) -> Option<()> {
        self.skip_space();
        self.expect_byte(b':')?;
        self.skip_space();
        Some(())
    }

    /// The rest of a string behind its first quote. Returns whether it has escapes.
    fn scan_string(&mut self) -> Option<bool> {
        let mut has_escapes = false;
        loop {
            self.at += plain_len(self.bytes.get(self.at..)?)?;
            match self.next()? {
                b'"' => return Some(has_escapes),
                b'\\' => has_escapes = true,
                // A control character.
                _ => return None,
            }
            match self.next()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    let digits = self.bytes.get(self.at..)?.first_chunk::<4>()?;
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                    self.at += digits.len();
                }
                _ => return None,
            }
        }
    }

    /// The rest of a number behind its first digit.
    fn scan_number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        if self.skip_byte(b'.') {
            self.require_digits()?;
        }
        if self.skip_byte(b'e') || self.skip_byte(b'E') {
            if !self.skip_byte(b'+') {
                self.skip_byte(b'-');
            }
            self.require_digits()?;
        }
        Some(())
    }

    fn require_digits(&mut self) -> Option<()> {
        self.next()?.is_ascii_digit().then_some(())?;
        self.skip_digits();
        Some(())
    }

    fn skip_digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn skip_byte(&mut self, byte: u8) -> bool {
        let is_next = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_byte(&mut self, byte: u8) -> Option<()> {
        self.skip_byte(byte).then_some(())
    }

    fn expect_bytes(&mut self, rest: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(rest).then_some(())?;
        self.at += rest.len();
        Some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

impl Levels {
    fn open(&mut self, is_object: bool, depth_max: usize) -> Option<()> {
        (self.depth < depth_max).then_some(())?;
        self.objects = self.objects << 1 | u128::from(is_object);
        self.depth += 1;
        Some(())
    }

    fn close(&mut self) {
        self.objects >>= 1;
        self.depth -= 1;
    }

    fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }
}

/// The number of bytes before the first quote, backslash or control character; [`None`] if there is
/// none of them.
#[inline]
fn plain_len(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let mut words = 0;
    while let Some((word, behind)) = rest.split_first_chunk() {
        let special = special_byte_mask(u64::from_le_bytes(*word));
        if special != 0 {
            return Some(bytes.len() - rest.len() + special.trailing_zeros() as usize / 8);
        }
        rest = behind;
        words += 1;
        if words == WORDS {
            // Blocks are compared with vector instructions, but do not tell which byte it is.
            while let Some((block, behind)) = rest.split_first_chunk::<BLOCK>()
                && !has_special(block)
            {
                rest = behind;
            }
        }
    }
    Some(bytes.len() - rest.len() + rest.iter().position(|byte| is_special(*byte))?)
}

fn has_special(block: &[u8; BLOCK]) -> bool {
    block
        .iter()
        .fold(false, |any, byte| any | is_special(*byte))
}

fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < b' '
}

/// The highest bit of the first byte of `word` that is a quote, a backslash or a control character;
/// 0 if none is. Bits of bytes after it mean nothing.
fn special_byte_mask(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, b' ') | equal(b'"') | equal(b'\\')) & HIGH
}
