//! Reads `map` and `geo`: tables that give a variable its value.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::syntax::Directive;
use crate::model::{LookupEntry, LookupTable, LookupTest};

/// How many lines of a table are used.
const MAX_ENTRIES: usize = 2_000;

pub(super) fn read(http: &[Directive]) -> BTreeMap<String, LookupTable> {
    let mut tables = BTreeMap::new();
    for directive in http {
        let table = match (directive.name.as_str(), directive.words.as_slice()) {
            ("map", [source, variable]) => Some((variable, map(directive, source))),
            ("geo", [variable]) => Some((variable, geo(directive, "$remote_addr"))),
            ("geo", [source, variable]) => Some((variable, geo(directive, source))),
            _ => None,
        };
        if let Some((variable, table)) = table {
            let name = variable.strip_prefix('$').unwrap_or(variable);
            tables.insert(name.to_owned(), table);
        }
    }
    tables
}

fn empty(directive: &Directive, source: &str) -> LookupTable {
    LookupTable {
        source: source.to_owned(),
        default: String::new(),
        entries: Vec::new(),
        unsupported: (directive.children().len() > MAX_ENTRIES)
            .then(|| format!("it has more than {MAX_ENTRIES} lines")),
        at: directive.at,
    }
}

fn map(directive: &Directive, source: &str) -> LookupTable {
    let mut table = empty(directive, source);
    let mut regexes = Vec::new();
    let mut has_masks = false;
    for line in directive.children().iter().take(MAX_ENTRIES) {
        let (key, value) = (line.name.as_str(), line.word(0).to_owned());
        match key {
            "default" => table.default = value,
            "hostnames" if line.words.is_empty() => has_masks = true,
            "volatile" if line.words.is_empty() => {}
            "include" => table.unsupported = Some("it includes a file".to_owned()),
            _ => {
                let pattern = key.strip_prefix('~');
                let is_regex = pattern.is_some();
                let plain = || LookupTest::Text(key.strip_prefix('\\').unwrap_or(key).to_owned());
                let pattern = pattern.map(|pattern| LookupTest::Regex(regex(pattern)));
                let test = pattern.unwrap_or_else(plain);
                let entry = LookupEntry { test, value };
                if is_regex {
                    regexes.push(entry);
                } else {
                    table.entries.push(entry);
                }
            }
        }
    }
    let is_mask = |entry: &LookupEntry| match &entry.test {
        LookupTest::Text(text) => {
            text.starts_with("*.") || text.starts_with('.') || text.ends_with(".*")
        }
        LookupTest::Regex(_) | LookupTest::Network(_) => false,
    };
    if has_masks && table.entries.iter().any(is_mask) {
        table.unsupported = Some("it has masks of host names".to_owned());
    }
    // Texts are looked up first, then regular expressions are tried in their order.
    table.entries.extend(regexes);
    table
}

/// A pattern as `map` and `location` write it after `~`, with its case in it.
fn regex(pattern: &str) -> String {
    match pattern.strip_prefix('*') {
        Some(pattern) => format!("(?i){pattern}"),
        None => pattern.to_owned(),
    }
}

fn geo(directive: &Directive, source: &str) -> LookupTable {
    let mut table = empty(directive, source);
    for line in directive.children().iter().take(MAX_ENTRIES) {
        let (key, value) = (line.name.as_str(), line.word(0).to_owned());
        match key {
            "default" | "0.0.0.0/0" | "::/0" => table.default = value,
            "ranges" | "delete" | "proxy" | "proxy_recursive" | "include" => {
                table.unsupported = Some(format!("it has `{key}`"));
            }
            _ => match network(key) {
                Some(network) => table.entries.push(LookupEntry {
                    test: LookupTest::Network(network),
                    value,
                }),
                None => table.unsupported = Some(format!("`{key}` is not a network")),
            },
        }
    }
    table
}

/// An address or a network, without bits beyond its prefix.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => IpNet::from(text.parse::<std::net::IpAddr>().ok()?),
    };
    Some(network.trunc())
}
