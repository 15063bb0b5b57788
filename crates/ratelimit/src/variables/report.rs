//! What became of the variables that are set: for `tidegate settings`, and for the log at the start.

use std::fmt::Write as _;

use tidegate::document::{Node, Value};

use super::ReadVariables;
use super::reader::{Reader, VariableSetting};
use super::sinks::is_of_named_mogrifier;
use super::table::{Effect, KnownVariable, NoteLevel, VARIABLES, ValueKind};
use crate::mode::EnvoyRatelimit;

/// What became of a variable that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableFate {
    /// Its name.
    pub name: String,
    /// Its value; a secret one is hidden.
    pub value: String,
    /// The settings that it made or is a part of, as `key: value`, or why it has no effect.
    pub became: Vec<String>,
    /// Whether it has an effect.
    pub has_effect: bool,
}

/// Something to be logged at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableNote {
    /// How loudly.
    pub level: NoteLevel,
    /// The text. Secrets are hidden.
    pub text: String,
}

/// Why a mogrifier has no effect.
const UNNAMED: &str = "no effect: `USE_DOG_STATSD_MOGRIFIERS` does not name it";

/// In place of a secret.
const HIDDEN: &str = "…";

pub(super) fn finish(mut reader: Reader<'_>, mode: EnvoyRatelimit) -> ReadVariables {
    let set = VARIABLES.iter().filter_map(|variable| {
        let value = reader.text(variable.name)?;
        Some(fate(variable, &value, &reader))
    });
    let mogrifiers = reader.mogrifiers().into_iter();
    let mogrifiers = mogrifiers.map(|name| fate_of_mogrifier(name, &reader));
    let fates: Vec<VariableFate> = set.chain(mogrifiers).collect();
    note_without_effect(&mut reader, &fates);
    let Reader {
        settings,
        secrets,
        notes,
        ..
    } = reader;
    ReadVariables {
        settings,
        secrets,
        mode,
        fates,
        notes,
    }
}

fn fate(variable: &KnownVariable, value: &str, reader: &Reader<'_>) -> VariableFate {
    let (became, has_effect) = match variable.effect {
        Effect::Mode(what) => (vec![what.to_owned()], true),
        Effect::Nothing(_, why) => (vec![format!("no effect: {why}")], false),
        Effect::Settings(keys) => made(keys, reader),
    };
    VariableFate {
        name: variable.name.to_owned(),
        value: shown(variable.value, value),
        became,
        has_effect,
    }
}

/// The settings among these that were made, and whether any was.
fn made(keys: &[&str], reader: &Reader<'_>) -> (Vec<String>, bool) {
    let settings = reader.settings.iter();
    let settings = settings.filter(|made| keys.contains(&made.key));
    let secrets = reader.secrets.iter();
    let secrets = secrets.filter(|(name, _)| keys.contains(name));
    let secrets = secrets.map(|(name, _)| format!("{name}: {HIDDEN}"));
    let made: Vec<String> = settings
        .map(VariableSetting::shown)
        .chain(secrets)
        .collect();
    if made.is_empty() {
        return (vec!["no effect with the other variables".to_owned()], false);
    }
    (made, true)
}

/// A mogrifier has an effect if it is named, and names are sent to `DogStatsD`.
fn fate_of_mogrifier(name: String, reader: &Reader<'_>) -> VariableFate {
    let (became, has_effect) = if !is_of_named_mogrifier(reader, &name) {
        (vec![UNNAMED.to_owned()], false)
    } else if reader.is_true("USE_DOG_STATSD") {
        made(&["statsd"], reader)
    } else {
        made(&[], reader)
    };
    VariableFate {
        value: reader.text(&name).unwrap_or_default(),
        name,
        became,
        has_effect,
    }
}

/// Says once, by name, which variables have no effect: those whose loss changes nothing in one line.
fn note_without_effect(reader: &mut Reader<'_>, fates: &[VariableFate]) {
    let lost = fates.iter().filter(|fate| !fate.has_effect);
    let mut reasons: Vec<(NoteLevel, String, Vec<&str>)> = Vec::new();
    for fate in lost {
        let level = match KnownVariable::named(&fate.name).map(|variable| variable.effect) {
            Some(Effect::Nothing(level, _)) => level,
            None => NoteLevel::Warn,
            Some(_) => NoteLevel::Info,
        };
        let why = fate.became.join(", ");
        match reasons.iter_mut().find(|(_, known, _)| *known == why) {
            Some((_, _, names)) => names.push(&fate.name),
            None => reasons.push((level, why, vec![&fate.name])),
        }
    }
    let line = |(_, why, names): &(NoteLevel, String, Vec<&str>)| {
        format!("`{}`: {why}", names.join("`, `"))
    };
    for reason in reasons
        .iter()
        .filter(|(level, ..)| *level == NoteLevel::Warn)
    {
        reader.note(NoteLevel::Warn, line(reason));
    }
    let quiet = reasons
        .iter()
        .filter(|(level, ..)| *level == NoteLevel::Info);
    let quiet: Vec<String> = quiet.map(line).collect();
    if !quiet.is_empty() {
        reader.note(NoteLevel::Info, quiet.join("; "));
    }
}

impl VariableSetting {
    /// It as `key: value`, without secrets.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        write_node(&self.value, self.key == "redis", &mut text);
        format!("{}: {text}", self.key)
    }
}

fn write_node(node: &Node, is_url: bool, text: &mut String) {
    // Writing to a String cannot fail.
    let _ = match &node.value {
        Value::Null => write!(text, "null"),
        Value::Scalar(scalar) if is_url => write!(text, "{}", without_password(&scalar.text)),
        Value::Scalar(scalar) => write!(text, "{}", scalar.text),
        Value::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_node(item, false, text);
            }
            write!(text, "]")
        }
        Value::Map(entries) => {
            text.push('{');
            for (index, entry) in entries.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                let _ = write!(text, "{}: ", entry.key);
                // Headers may have tokens.
                if entry.key == "headers" {
                    text.push_str(HIDDEN);
                } else {
                    write_node(&entry.value, false, text);
                }
            }
            write!(text, "}}")
        }
    };
}

/// The value of a variable as it may be shown.
fn shown(kind: ValueKind, value: &str) -> String {
    match kind {
        ValueKind::Secret => HIDDEN.to_owned(),
        ValueKind::Url => without_password(value),
        // The headers of a stream may have tokens.
        ValueKind::Map => value
            .split(',')
            .map(|pair| {
                pair.split_once(':')
                    .map_or(HIDDEN.to_owned(), |(key, _)| format!("{key}:{HIDDEN}"))
            })
            .collect::<Vec<_>>()
            .join(","),
        _ => value.to_owned(),
    }
}

/// A URL, or a list of addresses, without users and passwords: all before the last `@` of the authority may be one.
pub fn without_password(url: &str) -> String {
    let Some((before, host)) = url.rsplit_once('@') else {
        return url.to_owned();
    };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    format!("{scheme}{HIDDEN}@{host}")
}
