//! Which hosts a rule is about, where servers have different limits.

use serde_json::{Map, Value, json};
use tidegate::rules::HostPattern;

use crate::model::VirtualServer;
use crate::request_test::{any_of, quoted};

/// The hosts of some servers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HostRegion {
    pub(crate) hosts: Vec<String>,
    pub(crate) condition: Option<String>,
    pub(crate) except: Vec<Map<String, Value>>,
}

/// The names of servers: as `host` writes them, and those that need a condition.
#[derive(Debug, Default)]
struct HostNames {
    hosts: Vec<String>,
    conditions: Vec<String>,
}

impl HostNames {
    fn of<'s>(servers: impl Iterator<Item = &'s VirtualServer>) -> Self {
        let mut names = Self::default();
        for name in servers.flat_map(|server| &server.names) {
            names.add(name);
        }
        names
    }

    fn add(&mut self, name: &str) {
        let host = r#"attributes["host"]"#;
        if let Some(pattern) = name.strip_prefix('~') {
            self.conditions
                .push(format!("{host}.matches({})", quoted(pattern)));
        } else if let Some(begin) = name.strip_suffix('*').filter(|begin| begin.ends_with('.')) {
            self.conditions
                .push(format!("{host}.startsWith({})", quoted(begin)));
        } else if let Some(domain) = name.strip_prefix('.') {
            self.add(domain);
            self.add(&format!("*.{domain}"));
        } else if name != "_" && HostPattern::parse(name).is_ok() {
            let name = name.to_ascii_lowercase();
            if !self.hosts.contains(&name) {
                self.hosts.push(name);
            }
        }
    }
}

/// Whether a server has exactly one name, which is a name as it stands.
pub(crate) fn has_one_name(server: &VirtualServer) -> bool {
    let names = HostNames::of(std::iter::once(server));
    let is_plain = |name: &String| !name.starts_with('*');
    names.conditions.is_empty() && names.hosts.len() == 1 && names.hosts.iter().all(is_plain)
}

/// The hosts of a server, if they can stand in an exception.
pub(crate) fn plain_names(servers: &[VirtualServer], index: usize) -> Option<Vec<String>> {
    let names = HostNames::of(servers.get(index).into_iter());
    let is_plain = names.conditions.is_empty() && !names.hosts.is_empty();
    (is_plain && index != default_server(servers)).then_some(names.hosts)
}

/// The server of requests for a host that no server names.
fn default_server(servers: &[VirtualServer]) -> usize {
    let marked = servers.iter().position(|server| server.is_default);
    marked.unwrap_or(0)
}

/// The hosts of the servers at these indexes. None if no host distinguishes them from the others.
pub(crate) fn region(servers: &[VirtualServer], chosen: &[usize]) -> Option<HostRegion> {
    if chosen.len() == servers.len() {
        return Some(HostRegion::default());
    }
    let is_chosen = |index: &usize| chosen.contains(index);
    let of = |is_wanted: bool| {
        let indexes = (0..servers.len()).filter(move |index| is_chosen(index) == is_wanted);
        HostNames::of(indexes.filter_map(|index| servers.get(index)))
    };
    if is_chosen(&default_server(servers)) {
        let others = of(false);
        let mut except = Vec::new();
        let mut add = |key: &str, value: Value| {
            let mut item = Map::new();
            item.insert(key.to_owned(), value);
            except.push(item);
        };
        if !others.hosts.is_empty() {
            add("host", json!(others.hosts));
        }
        if !others.conditions.is_empty() {
            add("when", json!(any_of(&others.conditions)));
        }
        return Some(HostRegion {
            except,
            ..HostRegion::default()
        });
    }
    let names = of(true);
    match (names.hosts.is_empty(), names.conditions.is_empty()) {
        (true, true) => None,
        (false, true) => Some(HostRegion {
            hosts: names.hosts,
            ..HostRegion::default()
        }),
        (_, false) => {
            let mut conditions = names.conditions;
            for host in names.hosts {
                let value = r#"attributes["host"]"#;
                conditions.push(match host.strip_prefix('*') {
                    Some(end) => format!("{value}.endsWith({})", quoted(end)),
                    None => format!("{value} == {}", quoted(&host)),
                });
            }
            Some(HostRegion {
                condition: Some(any_of(&conditions)),
                ..HostRegion::default()
            })
        }
    }
}

/// A host that servers of both groups name: they differ in the port alone.
pub(crate) fn shared_name(servers: &[VirtualServer], chosen: &[usize]) -> Option<String> {
    let of = |is_wanted: bool| {
        let indexes = (0..servers.len()).filter(move |index| chosen.contains(index) == is_wanted);
        HostNames::of(indexes.filter_map(|index| servers.get(index)))
    };
    let others = of(false).hosts;
    of(true)
        .hosts
        .into_iter()
        .find(|host| others.contains(host))
}
