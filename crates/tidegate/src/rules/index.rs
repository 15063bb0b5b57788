//! Finds the rules that may apply to a request without asking each of them.
//!
//! Every rule is filed under one of its parts that name something: a path, a network, or the value of
//! an attribute (a method and a host are attributes, too). Of a rule's parts the one is chosen under
//! which the fewest rules would be filed together. A request then looks its own path and values up.
//! `except` only removes candidates, so it is tested afterwards, on those that match.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::matching::HEAD;
use super::networks::Networks;
use super::pattern::{PathPattern, Segment, segments_of};
use super::rule::Rule;
use crate::attributes::Attributes;

type Places = Vec<u32>;

/// Where each rule is filed.
#[derive(Debug, Default)]
pub(super) struct Index {
    paths: PathTree,
    /// By the name of an attribute, then by its value.
    values: HashMap<String, HashMap<String, Places, RandomState>, RandomState>,
    /// By the end of a host, dot included.
    host_suffixes: HashMap<String, Places, RandomState>,
    networks: Networks<Places>,
    /// Rules that say nothing to look up.
    rest: Places,
}

/// One part of a rule under which it can be filed: all of these entries, or it would be missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexPart {
    Path,
    Method,
    Host,
    Ip,
    Attribute(usize),
}

impl Index {
    pub(super) fn new(rules: &[Arc<Rule>]) -> Self {
        let mut uses: HashMap<String, usize> = HashMap::new();
        for rule in rules {
            for part in parts(rule) {
                for name in entries(rule, part) {
                    *uses.entry(name).or_default() += 1;
                }
            }
        }
        let mut index = Self::default();
        for (rule_index, rule) in (0_u32..).zip(rules) {
            let crowd = |part: &IndexPart| {
                let names = entries(rule, *part);
                names.iter().map(|name| uses[name]).max().unwrap_or(0)
            };
            match parts(rule).into_iter().min_by_key(crowd) {
                Some(part) => index.file(rule, part, rule_index),
                None => index.rest.push(rule_index),
            }
        }
        index
    }

    fn file(&mut self, rule: &Rule, part: IndexPart, rule_index: u32) {
        let matches = &rule.matches;
        match part {
            IndexPart::Path => {
                for pattern in &matches.path {
                    self.paths.insert(pattern, rule_index);
                }
            }
            IndexPart::Method => self.file_values("method", &methods(rule), rule_index),
            IndexPart::Host => {
                for host in &matches.host {
                    let (is_suffix, name) = host.parts();
                    if is_suffix {
                        self.host_suffixes
                            .entry(name.to_owned())
                            .or_default()
                            .push(rule_index);
                    } else {
                        self.file_values("host", &[name.to_owned()], rule_index);
                    }
                }
            }
            IndexPart::Ip => {
                for network in matches.ip.iter() {
                    self.networks.value(*network).push(rule_index);
                }
            }
            IndexPart::Attribute(at) => {
                let (name, values) = &matches.attributes[at];
                self.file_values(name, values, rule_index);
            }
        }
    }

    fn file_values(&mut self, name: &str, values: &[String], rule_index: u32) {
        let by_value = self.values.entry(name.to_owned()).or_default();
        for value in values {
            by_value.entry(value.clone()).or_default().push(rule_index);
        }
    }

    pub(super) fn candidates(&self, attributes: &Attributes<'_>) -> SmallVec<[u32; 16]> {
        let mut found: SmallVec<[u32; 16]> = SmallVec::from_slice(&self.rest);
        if !self.paths.is_empty()
            && let Some(path) = attributes.get("path")
        {
            self.paths.collect(path, &mut found);
        }
        for path in &attributes.other_paths {
            self.paths.collect(path, &mut found);
        }
        if !self.values.is_empty() {
            let other_paths = attributes.other_paths.iter();
            let other_paths = other_paths.map(|path| ("path", path.as_str()));
            for (name, value) in attributes.iter().chain(other_paths) {
                let indexes = self.values.get(name).and_then(|values| values.get(value));
                found.extend(indexes.into_iter().flatten().copied());
            }
            // They may have any value.
            for (name, _) in attributes.refused() {
                let by_value = self.values.get(&**name).into_iter();
                found.extend(by_value.flat_map(HashMap::values).flatten().copied());
            }
        }
        if !self.host_suffixes.is_empty()
            && let Some(host) = attributes.get("host")
        {
            for (at, _) in host.match_indices('.') {
                let indexes = self.host_suffixes.get(&host[at..]);
                found.extend(indexes.into_iter().flatten().copied());
            }
        }
        if let Some(ip) = attributes.ip() {
            found.extend(self.networks.covering(ip).flatten().copied());
        }
        // A rule with several entries may have been found by more than one of them.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The parts under which a rule can be filed.
fn parts(rule: &Rule) -> SmallVec<[IndexPart; 4]> {
    let matches = &rule.matches;
    let mut parts = SmallVec::new();
    if !matches.path.is_empty() {
        parts.push(IndexPart::Path);
    }
    parts.extend((0..matches.attributes.len()).map(IndexPart::Attribute));
    if !matches.host.is_empty() {
        parts.push(IndexPart::Host);
    }
    if !matches.ip.is_empty() {
        parts.push(IndexPart::Ip);
    }
    if !matches.method.is_empty() {
        parts.push(IndexPart::Method);
    }
    parts
}

/// The methods that a rule is about.
fn methods(rule: &Rule) -> Vec<String> {
    let matches = &rule.matches;
    let mut methods = matches.method.clone();
    if matches.covers_head && !methods.iter().any(|method| method == HEAD) {
        methods.push(HEAD.to_owned());
    }
    methods
}

/// Names for the entries that filing a rule under a part makes, alike only if they are the same.
fn entries(rule: &Rule, part: IndexPart) -> Vec<String> {
    let matches = &rule.matches;
    match part {
        IndexPart::Path => matches
            .path
            .iter()
            .map(|path| format!("path {path}"))
            .collect(),
        IndexPart::Method => methods(rule)
            .iter()
            .map(|method| format!("method {method}"))
            .collect(),
        IndexPart::Host => matches
            .host
            .iter()
            .map(|host| format!("host {host}"))
            .collect(),
        IndexPart::Ip => matches.ip.iter().map(|net| format!("ip {net}")).collect(),
        IndexPart::Attribute(at) => {
            let (name, values) = &matches.attributes[at];
            let entry = |value: &String| format!("attribute {} {name} {value}", name.len());
            values.iter().map(entry).collect()
        }
    }
}

/// Paths, segment by segment.
#[derive(Debug, Default)]
struct PathTree {
    literal: HashMap<String, PathTree, RandomState>,
    any: Option<Box<PathTree>>,
    /// Rules for exactly this path.
    here: Places,
    /// Rules for this path and all below it.
    below: Places,
}

impl PathTree {
    fn is_empty(&self) -> bool {
        self.literal.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }

    fn insert(&mut self, pattern: &PathPattern, rule_index: u32) {
        let mut tree = self;
        for segment in &pattern.segments {
            tree = match segment {
                Segment::Literal(literal) => tree.literal.entry(literal.clone()).or_default(),
                Segment::Any => tree.any.get_or_insert_default(),
            };
        }
        if pattern.has_rest {
            tree.below.push(rule_index);
        } else {
            tree.here.push(rule_index);
        }
    }

    /// Adds the rules whose pattern fits `path`.
    fn collect(&self, path: &str, found: &mut SmallVec<[u32; 16]>) {
        // The trees that fit the segments so far: one for each choice between a name and `*`.
        let mut trees: SmallVec<[&Self; 4]> = SmallVec::from_slice(&[self]);
        for segment in segments_of(path) {
            let mut next: SmallVec<[&Self; 4]> = SmallVec::new();
            for tree in trees {
                found.extend_from_slice(&tree.below);
                next.extend(tree.literal.get(segment));
                next.extend(tree.any.as_deref());
            }
            if next.is_empty() {
                return;
            }
            trees = next;
        }
        for tree in trees {
            found.extend_from_slice(&tree.below);
            found.extend_from_slice(&tree.here);
        }
    }
}
