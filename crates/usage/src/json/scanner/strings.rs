//! Keys and strings: read as a whole where they are here and have no escapes, else in pieces that are kept.

use memchr::memchr2;
use smallvec::SmallVec;

use super::{JsonScanner, JsonSink, JsonValue, ScanState};
use crate::json::watched::WatchedPaths;

/// The key or scalar that is being read, as far as it matters.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptText {
    pub(super) bytes: SmallVec<[u8; 32]>,
    /// How many bytes may be kept; 0 if the text does not matter.
    most: usize,
    pub(super) is_cut: bool,
}

impl KeptText {
    pub(super) fn begin(&mut self, most: usize) {
        self.bytes.clear();
        self.most = most;
        self.is_cut = false;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.most - self.bytes.len();
        self.is_cut |= bytes.len() > room;
        if room == 0 {
            return;
        }
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn push_char(&mut self, character: char) {
        self.push(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

impl JsonScanner {
    /// Reads a string that begins here, as a whole if it is here and has no escapes. Returns how much was read.
    pub(super) fn begin_string(
        &mut self,
        rest: &[u8],
        is_key: bool,
        most: usize,
        paths: &WatchedPaths,
        sink: &mut impl JsonSink,
    ) -> usize {
        self.start = self.position;
        let inside = &rest[1..];
        if let Some(length) = memchr2(b'"', b'\\', inside)
            && inside[length] == b'"'
        {
            let text = (length <= most).then(|| &inside[..length]);
            self.end_string(text, is_key, self.position + length + 2, paths, sink);
            return length + 2;
        }
        self.text.begin(most);
        self.state = ScanState::String { is_key };
        1
    }

    /// Reads more of a string, as much as there is; returns how much.
    pub(super) fn string(
        &mut self,
        bytes: &[u8],
        is_key: bool,
        paths: &WatchedPaths,
        sink: &mut impl JsonSink,
    ) -> usize {
        let end = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        if end > 0 {
            self.end_surrogate();
            self.text.push(&bytes[..end]);
        }
        match bytes.get(end) {
            None => return end,
            Some(b'\\') => self.state = ScanState::Escape { is_key },
            Some(_) => {
                self.end_surrogate();
                let text = std::mem::take(&mut self.text.bytes);
                let whole = (!self.text.is_cut).then_some(&text[..]);
                self.end_string(whole, is_key, self.position + end + 1, paths, sink);
                self.text.bytes = text;
            }
        }
        end + 1
    }

    /// After the last quote of a string, which ends in front of `end`. None if it was too long to be kept.
    fn end_string(
        &mut self,
        text: Option<&[u8]>,
        is_key: bool,
        end: usize,
        paths: &WatchedPaths,
        sink: &mut impl JsonSink,
    ) {
        sink.passed_string(self.start + 1..end - 1);
        if is_key {
            let node = self.container();
            self.next = node.and_then(|node| paths.child(node, text?));
            self.state = ScanState::Colon;
            return;
        }
        if let Some(node) = self.next {
            let value = text.map_or(JsonValue::LongString, JsonValue::String);
            sink.found(node, value, self.start..end);
        }
        self.end_value();
    }

    pub(super) fn escape(&mut self, byte: u8, is_key: bool) -> usize {
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.unit = 0;
                self.state = ScanState::Hex { is_key, left: 4 };
                return 1;
            }
            _ => {
                self.state = ScanState::Malformed;
                return 1;
            }
        };
        self.end_surrogate();
        self.text.push_char(character);
        self.state = ScanState::String { is_key };
        1
    }

    pub(super) fn hex(&mut self, byte: u8, is_key: bool, left: u8) -> usize {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.state = ScanState::Malformed;
            return 1;
        };
        // A digit of base 16 fits.
        self.unit = (self.unit << 4) | u16::try_from(digit).unwrap_or_default();
        self.state = ScanState::Hex {
            is_key,
            left: left - 1,
        };
        if left > 1 {
            return 1;
        }
        self.state = ScanState::String { is_key };
        match (self.high.take(), self.unit) {
            (high, 0xD800..=0xDBFF) => {
                self.high = high;
                self.end_surrogate();
                self.high = Some(self.unit);
            }
            (Some(high), low @ 0xDC00..=0xDFFF) => {
                let pair = char::decode_utf16([high, low]).next();
                let character = pair.and_then(Result::ok);
                self.text.push_char(character.unwrap_or('\u{FFFD}'));
            }
            (high, unit) => {
                self.high = high;
                self.end_surrogate();
                let character = char::from_u32(u32::from(unit));
                self.text.push_char(character.unwrap_or('\u{FFFD}'));
            }
        }
        1
    }

    /// The first half of a pair without its second half is a replacement character.
    fn end_surrogate(&mut self) {
        if self.high.take().is_some() {
            self.text.push_char('\u{FFFD}');
        }
    }
}
