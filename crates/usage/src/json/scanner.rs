//! A scanner of JSON that is fed in pieces of any size.
//!
//! It checks the structure and reports the values at watched paths. It keeps one key or scalar at a time, up to a
//! bound, and one bit for each open container. Text is not checked to be UTF-8, and a number only where it is watched.
//! `strings.rs` reads keys and strings.

mod strings;

use std::ops::Range;

use smallvec::SmallVec;

use super::number::WholeNumber;
use super::watched::{NodeId, ROOT, WatchedPaths};
use strings::KeptText;

/// The most containers that may be open at a time.
const MAX_DEPTH: usize = 512;
/// How much of a watched string is kept. A longer one is reported as [`JsonValue::LongString`].
const MAX_STRING: usize = 256;
/// How much of a watched number is kept.
const MAX_DIGITS: usize = 64;

/// A value at a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonValue<'a> {
    Null,
    Bool(bool),
    Number(WholeNumber),
    /// A string, with its escapes decoded.
    String(&'a [u8]),
    LongString,
    ObjectBegins,
    ArrayBegins,
    ObjectEnds {
        is_empty: bool,
    },
    ArrayEnds {
        is_empty: bool,
    },
}

/// Hears of the values at watched paths, in the order in which they are written.
pub(crate) trait JsonSink {
    /// `span` is where a scalar, or the bracket of a container, is written: bytes since the scanner was made.
    fn found(&mut self, node: NodeId, value: JsonValue<'_>, span: Range<usize>);

    /// A string, watched or not, is written here, between its quotes.
    fn passed_string(&mut self, span: Range<usize>) {
        let _ = span;
    }
}

/// Reads one JSON document.
#[derive(Debug, Clone)]
pub(crate) struct JsonScanner {
    state: ScanState,
    depth: usize,
    /// A bit for each open container: whether it is an object.
    objects: [u64; MAX_DEPTH / 64],
    /// The nodes of the open containers, as deep as they are watched.
    nodes: SmallVec<[NodeId; 8]>,
    /// The node of the value that comes next, if it is watched.
    next: Option<NodeId>,
    /// The key or scalar that is being read, if it matters.
    text: KeptText,
    /// The code unit of an escape that is being read.
    unit: u16,
    /// The first half of a surrogate pair.
    high: Option<u16>,
    /// Whether a container was opened.
    has_begun: bool,
    /// Whether the document was whole at some time.
    has_ended: bool,
    /// How many bytes were read.
    position: usize,
    /// Where the current value begins.
    start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Value,
    /// After `[`.
    ElementOrEnd,
    /// After `{`.
    KeyOrEnd,
    /// After a comma in an object.
    Key,
    Colon,
    /// After a value in a container.
    CommaOrEnd,
    String {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    /// In `\uXXXX`, with this many digits to come.
    Hex {
        is_key: bool,
        left: u8,
    },
    Number,
    /// In a literal of which so much was read.
    Literal(JsonLiteral, usize),
    /// After the document.
    Done,
    Malformed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonLiteral {
    True,
    False,
    Null,
}

impl JsonLiteral {
    fn text(self) -> &'static [u8] {
        match self {
            Self::True => b"true",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }

    fn value(self) -> JsonValue<'static> {
        match self {
            Self::True => JsonValue::Bool(true),
            Self::False => JsonValue::Bool(false),
            Self::Null => JsonValue::Null,
        }
    }
}

impl JsonScanner {
    pub(crate) fn new() -> Self {
        Self {
            state: ScanState::Value,
            depth: 0,
            objects: [0; MAX_DEPTH / 64],
            nodes: SmallVec::new(),
            next: Some(ROOT),
            text: KeptText::default(),
            unit: 0,
            high: None,
            has_begun: false,
            has_ended: false,
            position: 0,
            start: 0,
        }
    }

    /// Begins another document, with the memory of the last one.
    pub(crate) fn reset(&mut self) {
        self.state = ScanState::Value;
        self.depth = 0;
        self.nodes.clear();
        self.next = Some(ROOT);
        self.high = None;
        self.position = 0;
    }

    /// Whether a whole document was read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ScanState::Done
    }

    /// Whether what was read cannot be the beginning of a document, or is nested too deep.
    pub(crate) fn is_malformed(&self) -> bool {
        self.state == ScanState::Malformed
    }

    /// Whether a container was opened.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether a whole document was read, even if something else came after it.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether nothing but white space was read.
    pub(crate) fn is_blank(&self) -> bool {
        self.state == ScanState::Value && self.depth == 0
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], paths: &WatchedPaths, sink: &mut impl JsonSink) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            let taken = match self.state {
                ScanState::String { is_key } => self.string(rest, is_key, paths, sink),
                ScanState::Number => self.number(rest, sink),
                ScanState::Literal(literal, read) => self.literal(byte, literal, read, sink),
                ScanState::Escape { is_key } => self.escape(byte, is_key),
                ScanState::Hex { is_key, left } => self.hex(byte, is_key, left),
                ScanState::Malformed => rest.len(),
                _ => self.between(byte, rest, paths, sink),
            };
            self.position += taken;
            rest = &rest[taken..];
        }
    }

    /// Reads what comes between values, or a value or key as far as it is here. Returns how much.
    fn between(
        &mut self,
        byte: u8,
        rest: &[u8],
        paths: &WatchedPaths,
        sink: &mut impl JsonSink,
    ) -> usize {
        match (self.state, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (ScanState::ElementOrEnd, b']') | (ScanState::KeyOrEnd, b'}') => self.close(true, sink),
            (ScanState::Value | ScanState::ElementOrEnd, _) => {
                return self.begin_value(byte, rest, paths, sink);
            }
            (ScanState::KeyOrEnd | ScanState::Key, b'"') => {
                let most = self.container().map_or(0, |_| paths.longest_key());
                return self.begin_string(rest, true, most, paths, sink);
            }
            (ScanState::Colon, b':') => self.state = ScanState::Value,
            (ScanState::CommaOrEnd, b',') if self.in_object() => self.state = ScanState::Key,
            (ScanState::CommaOrEnd, b',') => {
                self.next = self.container().and_then(|node| paths.element(node));
                self.state = ScanState::Value;
            }
            (ScanState::CommaOrEnd, b'}') if self.in_object() => self.close(false, sink),
            (ScanState::CommaOrEnd, b']') if !self.in_object() => self.close(false, sink),
            _ => self.state = ScanState::Malformed,
        }
        1
    }

    fn begin_value(
        &mut self,
        byte: u8,
        rest: &[u8],
        paths: &WatchedPaths,
        sink: &mut impl JsonSink,
    ) -> usize {
        let is_watched = self.next.is_some();
        let literal = match byte {
            b'{' | b'[' => {
                self.open(byte == b'{', paths, sink);
                return 1;
            }
            b'"' => {
                let most = if is_watched { MAX_STRING } else { 0 };
                return self.begin_string(rest, false, most, paths, sink);
            }
            b'-' | b'0'..=b'9' => {
                self.start = self.position;
                self.text.begin(if is_watched { MAX_DIGITS } else { 0 });
                return self.number(rest, sink);
            }
            b't' => JsonLiteral::True,
            b'f' => JsonLiteral::False,
            b'n' => JsonLiteral::Null,
            _ => {
                self.state = ScanState::Malformed;
                return 1;
            }
        };
        self.start = self.position;
        let text = literal.text();
        if rest.starts_with(text) {
            self.end_literal(literal, self.position + text.len(), sink);
            return text.len();
        }
        self.state = ScanState::Literal(literal, 1);
        1
    }

    fn open(&mut self, is_object: bool, paths: &WatchedPaths, sink: &mut impl JsonSink) {
        if self.depth == MAX_DEPTH {
            self.state = ScanState::Malformed;
            return;
        }
        let bit = 1 << (self.depth % 64);
        let word = &mut self.objects[self.depth / 64];
        *word = if is_object { *word | bit } else { *word & !bit };
        let node = self.next.take();
        if let Some(node) = node {
            // Only a value in a watched container is watched, so its container is the last node.
            self.nodes.push(node);
            let value = if is_object {
                JsonValue::ObjectBegins
            } else {
                JsonValue::ArrayBegins
            };
            sink.found(node, value, self.position..self.position + 1);
        }
        self.depth += 1;
        self.has_begun = true;
        if is_object {
            self.state = ScanState::KeyOrEnd;
        } else {
            self.next = node.and_then(|node| paths.element(node));
            self.state = ScanState::ElementOrEnd;
        }
    }

    fn close(&mut self, is_empty: bool, sink: &mut impl JsonSink) {
        let is_object = self.in_object();
        if let Some(node) = self.container() {
            let value = if is_object {
                JsonValue::ObjectEnds { is_empty }
            } else {
                JsonValue::ArrayEnds { is_empty }
            };
            sink.found(node, value, self.position..self.position + 1);
            self.nodes.pop();
        }
        self.depth -= 1;
        self.end_value();
    }

    fn end_value(&mut self) {
        self.next = None;
        if self.depth == 0 {
            self.state = ScanState::Done;
            self.has_ended = true;
        } else {
            self.state = ScanState::CommaOrEnd;
        }
    }

    /// The node of the innermost container, if it is watched.
    fn container(&self) -> Option<NodeId> {
        (self.nodes.len() == self.depth).then_some(())?;
        self.nodes.last().copied()
    }

    fn in_object(&self) -> bool {
        let Some(top) = self.depth.checked_sub(1) else {
            return false;
        };
        self.objects[top / 64] & (1 << (top % 64)) != 0
    }

    /// Reads as much of a number as there is; returns how much.
    fn number(&mut self, bytes: &[u8], sink: &mut impl JsonSink) -> usize {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let end = bytes.iter().position(|byte| !is_part(byte));
        let end = end.unwrap_or(bytes.len());
        self.text.push(&bytes[..end]);
        if end == bytes.len() {
            self.state = ScanState::Number;
            return end;
        }
        if let Some(node) = self.next {
            let number = if !self.text.is_cut {
                WholeNumber::read(&self.text.bytes)
            } else if self.text.bytes.iter().all(u8::is_ascii_digit) {
                WholeNumber::TooLarge
            } else {
                WholeNumber::Invalid
            };
            let span = self.start..self.position + end;
            sink.found(node, JsonValue::Number(number), span);
        }
        self.end_value();
        end
    }

    fn literal(
        &mut self,
        byte: u8,
        literal: JsonLiteral,
        read: usize,
        sink: &mut impl JsonSink,
    ) -> usize {
        let text = literal.text();
        if text.get(read) != Some(&byte) {
            self.state = ScanState::Malformed;
        } else if read + 1 == text.len() {
            self.end_literal(literal, self.position + 1, sink);
        } else {
            self.state = ScanState::Literal(literal, read + 1);
        }
        1
    }

    /// After a literal, which ends in front of `end`.
    fn end_literal(&mut self, literal: JsonLiteral, end: usize, sink: &mut impl JsonSink) {
        if let Some(node) = self.next {
            sink.found(node, literal.value(), self.start..end);
        }
        self.end_value();
    }
}
