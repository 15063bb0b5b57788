//! Reads YAML as a document. Values stay text as written; the reader of the tree gives them types.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::expanded::Expanded;
use super::{Entry, Node, Place, Problems, Scalar, ScalarKind, Source, Spot, Value};

/// How deep maps and lists may be nested.
const MAX_DEPTH: usize = 32;
/// How many values a document may have, those behind aliases counted each time.
const MAX_NODES: usize = 2_000_000;
/// How much text a document may have, in bytes, with its aliases expanded.
pub(crate) const MAX_TEXT: usize = 8 << 20;
/// The same for files of envoyproxy/ratelimit, which are often generated.
const MAX_DESCRIPTORS: usize = 64 << 20;

impl Source {
    /// Reads the text as YAML. None, and a problem, if it is not YAML or too large.
    #[doc(hidden)]
    pub fn read(&self, problems: &mut Problems) -> Option<Node> {
        let mut documents = self.read_within(|_| MAX_TEXT, problems)?;
        only(&documents, problems)?;
        documents.pop()
    }

    /// Reads the text as YAML, of which a file may hold several documents; one at least, if that is empty. Other empty ones
    /// are left out.
    #[doc(hidden)]
    pub fn read_all(&self, problems: &mut Problems) -> Option<Vec<Node>> {
        let most = |expanded: &Expanded| {
            if expanded.has_descriptors() {
                MAX_DESCRIPTORS
            } else {
                MAX_TEXT
            }
        };
        let mut documents = self.read_within(most, problems)?;
        // A `---` at the end, with nothing or a comment after it, begins no document that anyone wrote.
        let mut is_first = true;
        documents.retain(|document| {
            std::mem::take(&mut is_first) || !matches!(document.value, Value::Null)
        });
        Some(documents)
    }

    fn read_within(
        &self,
        most: impl FnOnce(&Expanded) -> usize,
        problems: &mut Problems,
    ) -> Option<Vec<Node>> {
        // Only JSON writes pairs of escapes, and YAML refuses them.
        let text = without_pairs(&self.text);
        match read(&text, most) {
            Ok(documents) => Some(documents),
            Err((place, message)) => {
                problems.error(&place, &Spot::document(), message);
                None
            }
        }
    }
}

/// The document of a text that must not have several.
pub(crate) fn only<'d>(documents: &'d [Node], problems: &mut Problems) -> Option<&'d Node> {
    if let [_, second, ..] = documents {
        let message = "there is more than one document; keep one and remove the `---` between them";
        problems.error(&second.place, &Spot::document(), message);
        return None;
    }
    documents.first()
}

fn read(text: &str, most: impl FnOnce(&Expanded) -> usize) -> Result<Vec<Node>, Failure> {
    let mut builder = Builder::default();
    if text.len() > MAX_DESCRIPTORS {
        builder.expanded.size = text.len();
        return Err(too_large(&builder.expanded, MAX_DESCRIPTORS));
    }
    if text.len() > MAX_TEXT || text.contains('*') {
        builder.expanded = Expanded::measure(text, MAX_DEPTH);
        let most = most(&builder.expanded);
        if builder.expanded.size > most {
            return Err(too_large(&builder.expanded, most));
        }
    }
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => return Err(scan_problem(&error, text)),
        }
    }
    let mut documents = builder.documents;
    if documents.is_empty() {
        documents.push(Node {
            value: Value::Null,
            place: Place::Nowhere,
        });
    }
    Ok(documents)
}

fn too_large(expanded: &Expanded, most: usize) -> Failure {
    let (size, mib) = (expanded.size, most >> 20);
    match expanded.largest {
        Some((span, largest)) => (
            place_of(span),
            format!(
                "the document has {size} bytes of text with its aliases expanded, more than {most} ({mib} MiB); this alias alone stands for {largest}; use fewer aliases"
            ),
        ),
        None => (
            Place::Nowhere,
            format!(
                "the document has {size} bytes of text, more than {most} ({mib} MiB); split it"
            ),
        ),
    }
}

/// Replaces pairs of surrogate escapes in JSON, such as `\ud83c\udf0a`, with the character.
fn without_pairs(text: &str) -> Cow<'_, str> {
    let begins = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if !begins.starts_with('{') || !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        plain.push_str(before);
        let pair = surrogate(escape).zip(escape.get(6..).and_then(surrogate));
        let character = pair.and_then(|(high, low)| {
            char::decode_utf16([high, low])
                .next()
                .and_then(Result::ok)
                .filter(|character| character.len_utf16() == 2)
        });
        let length = if let Some(character) = character {
            plain.push(character);
            12
        } else {
            // The escape with the character that it is about, which may be a backslash.
            let length = escape.chars().take(2).map(char::len_utf8).sum();
            plain.push_str(&escape[..length]);
            length
        };
        rest = &escape[length..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// The number of an escape such as `\ud83c` at the beginning of a text.
fn surrogate(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_number.then(|| u16::from_str_radix(digits, 16).ok())??;
    (0xd800..0xe000).contains(&number).then_some(number)
}

type Failure = (Place, String);

/// A collection that is still open.
struct Open {
    node: Node,
    /// The key that waits for its value, in a map.
    key: Option<(String, Place)>,
    anchor: usize,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    documents: Vec<Node>,
    nodes: usize,
    expanded: Expanded,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Failure> {
        let place = place_of(span);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                // A key is text, also where it would be nothing as a value.
                let style = if self.expects_key() {
                    ScalarStyle::DoubleQuoted
                } else {
                    style
                };
                let value = scalar(text.into_owned(), style);
                self.add(Node { value, place }, anchor)?;
            }
            Event::SequenceStart(anchor, _) => {
                self.begin(Value::List(Vec::new()), place, anchor)?;
            }
            Event::MappingStart(anchor, _) => self.begin(Value::Map(Vec::new()), place, anchor)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.add(open.node, open.anchor)?;
                }
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err((
                        place,
                        "an alias cannot stand inside of what it names".into(),
                    ));
                };
                self.count(values(&node), &place)?;
                self.check_depth(depth(&node), &place)?;
                self.add(node, 0)?;
            }
            // A name does not reach into the next document.
            Event::DocumentEnd => self.anchors.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        let in_map = |open: &Open| matches!(open.node.value, Value::Map(_)) && open.key.is_none();
        self.open.last().is_some_and(in_map)
    }

    fn begin(&mut self, value: Value, place: Place, anchor: usize) -> Result<(), Failure> {
        self.check_depth(1, &place)?;
        self.open.push(Open {
            node: Node { value, place },
            key: None,
            anchor,
        });
        Ok(())
    }

    /// Refuses a document that is nested too deeply, because readers recurse for each level.
    fn check_depth(&self, more: usize, place: &Place) -> Result<(), Failure> {
        if self.open.len() + more > MAX_DEPTH {
            let message = format!("this is nested more than {MAX_DEPTH} levels deep");
            return Err((place.clone(), message));
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, place: &Place) -> Result<(), Failure> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message = format!("the document has more than {MAX_NODES} values");
            return Err((place.clone(), message));
        }
        Ok(())
    }

    /// Puts a finished node into the collection that is open, or makes it the document.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), Failure> {
        self.count(1, &node.place)?;
        // Copies only anchors that are used. The size of each was counted at its alias.
        if anchor > 0 && self.expanded.is_named(self.documents.len(), anchor) {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.node.value {
            Value::List(list) => list.push(node),
            Value::Map(entries) => match open.key.take() {
                Some((key, key_place)) => entries.push(Entry {
                    key,
                    key_place,
                    value: node,
                }),
                None => open.key = Some(key_of(node)?),
            },
            Value::Null | Value::Scalar(_) => {}
        }
        Ok(())
    }
}

fn key_of(node: Node) -> Result<(String, Place), Failure> {
    match node.value {
        Value::Scalar(scalar) => Ok((scalar.text, node.place)),
        Value::Null | Value::List(_) | Value::Map(_) => Err((
            node.place,
            "a key must be text, not a list or a map; is a quote missing?".into(),
        )),
    }
}

fn scalar(text: String, style: ScalarStyle) -> Value {
    let plain = style == ScalarStyle::Plain;
    if plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    let kind = if plain {
        ScalarKind::Plain
    } else {
        ScalarKind::Text
    };
    Value::Scalar(Scalar { text, kind })
}

/// How many values there are below and with this one.
fn values(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(list) => list.iter().map(values).sum(),
        Value::Map(entries) => entries.iter().map(|entry| values(&entry.value)).sum(),
    }
}

/// How many lists and maps are inside of each other.
fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => {
            let depths = entries.iter().map(|entry| depth(&entry.value));
            1 + depths.max().unwrap_or(0)
        }
    }
}

fn place_of(span: Span) -> Place {
    let width = if span.start.line() == span.end.line() {
        span.end.col().saturating_sub(span.start.col())
    } else {
        // A value of several lines is marked to the end of its first line.
        usize::MAX
    };
    at(span.start, width)
}

fn at(mark: Marker, width: usize) -> Place {
    Place::Text {
        line: mark.line(),
        column: mark.col() + 1,
        width,
    }
}

/// The parser's message, with its most likely cause.
fn scan_problem(error: &ScanError, text: &str) -> Failure {
    const ADVICE: [(&str, &str); 10] = [
        ("tab", "indent with spaces instead of tabs"),
        ("quoted scalar", "is a closing quote missing?"),
        (
            "illegal placement of ':'",
            "is a closing bracket missing above?",
        ),
        ("flow", "is a closing bracket or a comma missing?"),
        ("bracket", "is a closing bracket or a comma missing?"),
        (
            "simple key",
            "is there no space after a `:`, in this line or the one above?",
        ),
        (
            "mapping values are not allowed",
            "put a text that has `: ` in it in quotes, or look at the indentation of this line",
        ),
        (
            "anchor",
            "put text that begins with `&`, `*`, `!`, `%` or `@` in quotes",
        ),
        (
            "directive",
            "put text that begins with `&`, `*`, `!`, `%` or `@` in quotes",
        ),
        (
            "tag",
            "put text that begins with `&`, `*`, `!`, `%` or `@` in quotes",
        ),
    ];
    let info = error.info();
    let known = ADVICE.iter().find(|(word, _)| info.contains(word));
    let advice = known.map_or(
        "look at the indentation of this line and the one above, and for a missing `:` or quote",
        |(_, advice)| advice,
    );
    let message = format!("this is not readable as YAML: {info}; {advice}");
    let mut place = at(*error.marker(), 1);
    // The parser points to the text before the tab that ended it.
    if info.contains("tab")
        && let Place::Text { line, column, .. } = &mut place
        && let Some((tabbed, tab)) = first_tab(text, *line)
    {
        (*line, *column) = (tabbed, tab);
    }
    (place, message)
}

/// The line and the column of the first tab in the indentation of this line or one below it.
fn first_tab(text: &str, from: usize) -> Option<(usize, usize)> {
    let lines = (1..).zip(text.lines()).skip(from.saturating_sub(1));
    let tab_of = |line: &str| {
        let content = line.find(|c: char| !matches!(c, ' ' | '\t'));
        line[..content.unwrap_or(line.len())].find('\t')
    };
    let mut tabs = lines.filter_map(|(number, line)| Some((number, tab_of(line)? + 1)));
    tabs.next()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn document(text: &str) -> Result<Node, String> {
        let source = Source::new("test.yaml", text);
        let mut problems = Problems::new();
        let node = source.read(&mut problems);
        node.ok_or_else(|| problems.render(&source))
    }

    #[test]
    fn values_stay_as_they_were_written() {
        let node = document("a: 007\nyes: 1e3\n~: 'x'\nb: [on, \"2\"]\n").unwrap();
        let Value::Map(entries) = node.value else {
            panic!("a map")
        };
        let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["a", "yes", "~", "b"]);
        let Value::Scalar(first) = &entries[0].value.value else {
            panic!("a scalar")
        };
        assert_eq!(
            (first.text.as_str(), first.kind),
            ("007", ScalarKind::Plain)
        );
    }

    #[test]
    fn pairs_of_escapes_are_one_character() {
        #[rustfmt::skip]
        let table = [
            (r#"{"a": "\ud83c\udf0a"}"#,     "{\"a\": \"\u{1f30a}\"}"),
            (r#"{"a": "\\ud83c\udf0a"}"#,    r#"{"a": "\\ud83c\udf0a"}"#),
            (r#"{"a": "\ud83c\u00e9"}"#,     r#"{"a": "\ud83c\u00e9"}"#),
            (r#"{"a": "\udf0a\ud83c"}"#,     r#"{"a": "\udf0a\ud83c"}"#),
            (r#"{"a": "\ud83c\u"}"#,         r#"{"a": "\ud83c\u"}"#),
            (r"{\u\é\",                      r"{\u\é\"),
            (r"a: \ud83c\udf0a",             r"a: \ud83c\udf0a"),
        ];
        for (text, expected) in table {
            assert_eq!(without_pairs(text), expected);
        }
    }

    #[test]
    fn places_are_counted_from_one() {
        let node = document("rules:\n  - id: per-user\n").unwrap();
        let Value::Map(entries) = node.value else {
            panic!("a map")
        };
        let Value::List(list) = &entries[0].value.value else {
            panic!("a list")
        };
        let Value::Map(rule) = &list[0].value else {
            panic!("a map")
        };
        let place = |line, column, width| Place::Text {
            line,
            column,
            width,
        };
        assert_eq!(rule[0].key_place, place(2, 5, 2));
        assert_eq!(rule[0].value.place, place(2, 9, 8));
    }

    #[test]
    fn what_would_blow_up_is_refused() {
        let deep = "[".repeat(100_000);
        assert!(document(&deep).is_err());
        assert!(document(&"[".repeat(33)).unwrap_err().contains("nested"));
        assert!(document("a: &a [*a]\n").is_err());
        // Names that each hold the one before are as deep as they are many.
        let chain = |names: usize| {
            let link = |name: usize| format!("- &n{name} [*n{}]", name - 1);
            let chained: Vec<String> = (1..names).map(link).collect();
            document(&format!("- &n0 []\n{}\n", chained.join("\n")))
        };
        assert!(chain(31).is_ok());
        assert!(chain(32).unwrap_err().contains("nested"));
    }

    /// Nine names, each of ten of the one before.
    fn bomb(leaf: &str, levels: usize) -> String {
        let mut text = format!("a0: &a0 {leaf}\n");
        for level in 1..levels {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
        }
        text
    }

    #[test]
    fn text_behind_aliases_counts_each_time_with_its_keys() {
        let key = "k".repeat(20_000);
        let by_key = |aliases: usize| {
            format!(
                "x: &a {{? \"{key}\" : 1}}\nper: [{}]\n",
                vec!["*a"; aliases].join(", ")
            )
        };
        #[rustfmt::skip]
        let table = [
            (bomb("[x, x, x, x, x, x, x, x, x, x]", 9), Some("more than 8388608 (8 MiB)")),
            (bomb("x", 99),                             Some("more than 8388608 (8 MiB)")),
            (bomb("''", 9),                             Some("more than 8388608 (8 MiB)")),
            (by_key(500),                               Some("this alias alone stands for 20049; use fewer aliases")),
            (by_key(400),                               None),
            (" ".repeat((8 << 20) + 1),                 Some("the document has 8388609 bytes of text, more than 8388608 (8 MiB); split it")),
        ];
        for (text, expected) in table {
            let shown: String = text.chars().take(60).collect();
            match (document(&text), expected) {
                (Err(problem), Some(expected)) => {
                    assert!(problem.contains(expected), "{shown}: {problem}");
                }
                (read, expected) => assert_eq!(read.is_ok(), expected.is_none(), "{shown}"),
            }
        }
        let said = document(&by_key(500)).unwrap_err();
        assert!(
            said.contains("the document has 10046523 bytes of text with its aliases expanded"),
            "{said}"
        );
    }

    #[test]
    fn a_file_of_envoyproxy_may_have_more_text() {
        let read = |text: &str| {
            let mut problems = Problems::new();
            Source::new("x", text).read_all(&mut problems).is_some()
        };
        // So many times 100,000 bytes.
        let long = |aliases: usize| {
            let text = "x".repeat(100_000);
            format!("x: &a {text}\ny: [{}]\n", vec!["*a"; aliases].join(", "))
        };
        assert!(read(&format!("{}domain: a\n", long(90))));
        assert!(read(&format!("{}descriptors: []\n", long(600))));
        assert!(!read(&format!("{}descriptors: []\n", long(700))));
        assert!(!read(&format!("{}rules: []\n", long(90))));
        assert!(!read(&format!("{}rules: []\ndescriptors: []\n", long(90))));
        assert!(!read(&format!("{}a: {{descriptors: []}}\n", long(90))));
        assert!(!read(&" ".repeat((64 << 20) + 1)));
    }

    #[test]
    fn empty_documents_after_the_first_are_left_out() {
        #[rustfmt::skip]
        let table = [
            ("a: 1\n---\n",                 1),
            ("a: 1\n---\n# a comment\n",    1),
            ("a: 1\n---\n---\nb: 2\n",      2),
            ("a: 1\n---\nnull\n...\n",      1),
            ("---\n---\na: 1\n",            2),
            ("",                            1),
        ];
        for (text, expected) in table {
            let mut problems = Problems::new();
            let read = Source::new("f", text).read_all(&mut problems).unwrap();
            assert_eq!(
                (read.len(), problems),
                (expected, Problems::new()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn only_anchors_that_are_named_are_copied() {
        let node = document("a: &a [&b x, &c [y]]\nd: *b\n---\n").unwrap_err();
        assert!(node.contains("more than one document"));
        let mut builder = Builder::default();
        let text = "a: &a [&b x, &c [y]]\nd: *b\n";
        builder.expanded = Expanded::measure(text, MAX_DEPTH);
        let (mut most, mut events) = (0, Parser::new_from_str(text));
        while let Some(Ok((event, span))) = events.next() {
            builder.take(event, span).unwrap();
            most = most.max(builder.anchors.len());
        }
        assert_eq!(most, 1);
    }
}
