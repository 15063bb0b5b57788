//! Measures a YAML text with its aliases expanded, before the tree is built.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, Span};

/// The size of a value behind an alias in addition to its text: short text takes memory, too.
const VALUE: usize = 16;

/// The measurements of a text.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// Its size in bytes: the text itself, plus the expansions of its aliases, keys included.
    pub(super) size: usize,
    /// The anchors that aliases name, by their document.
    named: HashSet<(usize, usize)>,
    /// The alias that stands for most, and for how much.
    pub(super) largest: Option<(Span, usize)>,
    /// The keys of the first document, if it is a map and `rules`, `domain` or `descriptors` is among them.
    keys: HashSet<&'static str>,
}

/// The keys that show the form of a file.
const KEYS: [&str; 3] = ["rules", "domain", "descriptors"];

/// A list or map that is still open.
struct OpenCollection {
    size: usize,
    anchor: usize,
    is_map: bool,
    /// How many keys and values it has so far.
    items: usize,
}

#[derive(Default)]
struct Measuring {
    expanded: Expanded,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, usize>,
    document: usize,
}

impl Expanded {
    /// Measures a text, up to where it cannot be read or is nested deeper than `most_depth`.
    pub(super) fn measure(text: &str, most_depth: usize) -> Self {
        let mut measuring = Measuring::default();
        measuring.expanded.size = text.len();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            measuring.take(&event, span);
            if measuring.open.len() > most_depth {
                break;
            }
        }
        measuring.expanded
    }

    /// Whether an alias names this anchor of a document.
    pub(super) fn is_named(&self, document: usize, anchor: usize) -> bool {
        self.named.contains(&(document, anchor))
    }

    /// Whether it has the form of envoyproxy/ratelimit.
    pub(super) fn has_descriptors(&self) -> bool {
        !self.keys.is_empty() && !self.keys.contains("rules")
    }
}

impl Measuring {
    fn take(&mut self, event: &Event<'_>, span: Span) {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                self.note_key(text);
                self.add(VALUE + text.len(), *anchor);
            }
            Event::SequenceStart(anchor, _) => self.begin(*anchor, false),
            Event::MappingStart(anchor, _) => self.begin(*anchor, true),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(closed) = self.open.pop() {
                    self.add(closed.size, closed.anchor);
                }
            }
            Event::Alias(anchor) => {
                let size = self.anchors.get(anchor).copied().unwrap_or(0);
                let expanded = &mut self.expanded;
                expanded.named.insert((self.document, *anchor));
                expanded.size = expanded.size.saturating_add(size);
                if expanded.largest.is_none_or(|(_, largest)| size > largest) {
                    expanded.largest = Some((span, size));
                }
                self.add(size, 0);
            }
            Event::DocumentEnd => {
                self.anchors.clear();
                self.document += 1;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
    }

    fn begin(&mut self, anchor: usize, is_map: bool) {
        self.open.push(OpenCollection {
            size: VALUE,
            anchor,
            is_map,
            items: 0,
        });
    }

    /// Adds a finished value to the collection around it.
    fn add(&mut self, size: usize, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, size);
        }
        if let Some(open) = self.open.last_mut() {
            open.size = open.size.saturating_add(size);
            open.items += 1;
        }
    }

    fn note_key(&mut self, text: &str) {
        if let (0, [root]) = (self.document, &self.open[..])
            && root.is_map
            && root.items.is_multiple_of(2)
            && let Some(key) = KEYS.into_iter().find(|key| *key == text)
        {
            self.expanded.keys.insert(key);
        }
    }
}
