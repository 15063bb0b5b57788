//! Reads the environment by the table, and collects the settings.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tidegate::document::{Entry, Node, Place, Problems, Spot, Value};

use super::go;
use super::report::VariableNote;
use super::table::{KnownVariable, NoteLevel, VARIABLES, ValueKind};

/// What is around a program: its variables, its files, and the names of machines.
pub struct Environment<'a> {
    /// The value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all variables that are set.
    pub names: &'a [String],
    /// The address of a host, if its name is known.
    pub address: &'a dyn Fn(&str) -> Option<IpAddr>,
    /// Whether a file, a folder or a socket is there.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// A setting that variables make.
#[derive(Debug, Clone)]
pub struct VariableSetting {
    /// The key of the setting.
    pub key: &'static str,
    /// Its value. Problems with it are reported as those of the variable.
    pub value: Node,
    /// Whether none of the variables is set, so that it is the default of envoyproxy/ratelimit.
    pub is_default: bool,
}

/// How the names of variables of mogrifiers begin, which are not in the table.
pub(super) const MOGRIFIER: &str = "DOG_STATSD_MOGRIFIER_";

/// Reads variables one after the other.
pub(super) struct Reader<'a> {
    environment: &'a Environment<'a>,
    problems: &'a mut Problems,
    pub(super) settings: Vec<VariableSetting>,
    pub(super) secrets: Vec<(&'static str, String)>,
    pub(super) notes: Vec<VariableNote>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(environment: &'a Environment<'a>, problems: &'a mut Problems) -> Self {
        Self {
            environment,
            problems,
            settings: Vec::new(),
            secrets: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reports every value that cannot be read, also of variables without effect, as envoyproxy/ratelimit does.
    pub(super) fn check_all(&mut self) {
        for variable in &VARIABLES {
            let Some(value) = self.text(variable.name) else {
                continue;
            };
            if variable.value == ValueKind::Port && is_of_kubernetes(&value) {
                let text = format!(
                    "`{}` is set by Kubernetes for a Service of this name, so the default {} counts",
                    variable.name, variable.default
                );
                self.note(NoteLevel::Warn, text);
            } else if let Err(problem) = check(variable.value, &value) {
                self.refuse(variable.name, problem);
            }
        }
    }

    /// The value of a variable, if it is set and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        debug_assert!(
            KnownVariable::named(name).is_some() || name.starts_with(MOGRIFIER),
            "`{name}` is in the table"
        );
        (self.environment.variable)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// Whether one of these is set.
    pub(super) fn is_any_set(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is_set(name))
    }

    /// The value of a variable, or its default.
    pub(super) fn text_or_default(&self, name: &str) -> String {
        let default = || KnownVariable::named(name).map_or("", |variable| variable.default);
        self.text(name).unwrap_or_else(|| default().to_owned())
    }

    /// Whether a variable says true, by its value or its default. One that cannot be read was reported.
    pub(super) fn is_true(&self, name: &str) -> bool {
        go::boolean(&self.text_or_default(name)) == Ok(true)
    }

    /// The port of a variable; of a value that cannot be used, the default.
    pub(super) fn port(&self, name: &str) -> String {
        if let Ok(port) = go::port(&self.text_or_default(name)) {
            return port.to_string();
        }
        let default = KnownVariable::named(name).map_or("", |variable| variable.default);
        default.to_owned()
    }

    /// A host to listen on: an IP address, or that of its name.
    pub(super) fn host(&mut self, name: &str, host: &str) -> String {
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if bare.unwrap_or(host).parse::<IpAddr>().is_ok() {
            return host.to_owned();
        }
        if let Some(address) = (self.environment.address)(host) {
            return address.to_string();
        }
        self.refuse(name, format!("the host `{host}` is not known; write an IP address of this machine, or `0.0.0.0` for all"));
        "0.0.0.0".to_owned()
    }

    /// The variables of mogrifiers that are set, in the order of their names.
    pub(super) fn mogrifiers(&self) -> Vec<String> {
        let names = self.environment.names.iter();
        let names = names.filter(|name| name.starts_with(MOGRIFIER) && self.is_set(name));
        let mut names: Vec<String> = names.cloned().collect();
        names.sort_unstable();
        names
    }

    /// A duration, by the value or the default; `None` if it cannot be read.
    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        go::duration(&self.text_or_default(name)).ok()
    }

    /// Whether a file, a folder or a socket is there.
    pub(super) fn exists(&self, path: &str) -> bool {
        (self.environment.exists)(Path::new(path))
    }

    /// Reports a value that cannot be used.
    pub(super) fn refuse(&mut self, name: &str, problem: impl Into<String>) {
        let place = Place::Setting(name.to_owned());
        self.problems.error(&place, &Spot::document(), problem);
    }

    pub(super) fn note(&mut self, level: NoteLevel, text: impl Into<String>) {
        let text = text.into();
        self.notes.push(VariableNote { level, text });
    }

    /// Makes a setting of variables, the first of which is named in problems.
    pub(super) fn set(&mut self, key: &'static str, value: Node, variables: &[&str]) {
        let is_default = !self.is_any_set(variables);
        self.settings.push(VariableSetting {
            key,
            value,
            is_default,
        });
    }

    /// Makes a setting of the text of one variable, if that is set.
    pub(super) fn pass_on(&mut self, key: &'static str, name: &'static str) {
        if let Some(value) = self.text(name) {
            self.set(key, Node::setting(name, &value), &[name]);
        }
    }

    /// Makes a setting of a boolean, if it is set.
    pub(super) fn pass_on_boolean(&mut self, key: &'static str, name: &'static str) {
        if self.is_set(name) {
            let value = if self.is_true(name) { "true" } else { "false" };
            self.set(key, Node::setting(name, value), &[name]);
        }
    }
}

/// A map as the value of a setting.
#[derive(Debug)]
pub(super) struct MapOfSetting {
    entries: Vec<Entry>,
    place: Place,
}

impl MapOfSetting {
    /// An empty one, whose problems are those of a variable.
    pub(super) fn of(variable: &str) -> Self {
        Self {
            entries: Vec::new(),
            place: Place::Setting(variable.to_owned()),
        }
    }

    /// Adds a key.
    pub(super) fn put(&mut self, key: &str, value: Node) {
        let key_place = value.place.clone();
        self.entries.push(Entry {
            key: key.to_owned(),
            key_place,
            value,
        });
    }

    /// Adds the text of a variable.
    pub(super) fn put_text(&mut self, key: &str, variable: &str, text: &str) {
        self.put(key, Node::setting(variable, text));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn into_node(self) -> Node {
        Node {
            value: Value::Map(self.entries),
            place: self.place,
        }
    }
}

/// Pairs of texts as a map, in their order.
pub(super) fn map_of(variable: &str, pairs: Vec<(String, String)>) -> MapOfSetting {
    let mut map = MapOfSetting::of(variable);
    for (key, value) in pairs {
        map.put_text(&key, variable, &value);
    }
    map
}

/// A duration in the form of settings, whose smallest unit is the millisecond: parts of one are rounded up.
pub(super) fn span(duration: Duration) -> String {
    let milliseconds = duration.as_nanos().div_ceil(1_000_000);
    if milliseconds.is_multiple_of(1_000) {
        format!("{}s", milliseconds / 1_000)
    } else {
        format!("{milliseconds}ms")
    }
}

/// Whether Kubernetes has set a port, for a Service whose name is that of the variable.
fn is_of_kubernetes(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme))
}

fn check(kind: ValueKind, value: &str) -> Result<(), String> {
    match kind {
        ValueKind::Text | ValueKind::Secret | ValueKind::Url => Ok(()),
        ValueKind::Boolean => go::boolean(value).map(drop),
        ValueKind::Whole => go::whole(value).map(drop),
        ValueKind::Port => go::port(value).map(drop),
        ValueKind::Number => go::number(value).map(drop),
        ValueKind::Duration => go::duration(value).map(drop),
        ValueKind::Map => go::map(value).map(drop),
    }
}
