//! Writes JSON as YAML that our reader reads back unchanged. Text is quoted only if a YAML reader could otherwise
//! read it as something else.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::internal::printable::is_printable;

/// The longest line for a list of plain values.
const MAX_LINE: usize = 88;
/// A longer key must be marked with `?`.
const MAX_KEY: usize = 1_000;

/// A JSON value as a YAML document that [`Source`](super::Source) reads back unchanged.
pub fn write_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, &mut text),
        Value::Array(list) if !list.is_empty() && one_line(list, 0).is_none() => {
            write_list(list, 0, &mut text);
        }
        _ => write_after(value, 0, &mut text),
    }
    text
}

fn write_map(map: &Map<String, Value>, indent: usize, text: &mut String) {
    for (place, (key, value)) in map.iter().enumerate() {
        // The first key of a map in a list is on the line of the dash.
        if place > 0 || text.is_empty() || text.ends_with('\n') {
            push_indent(indent, text);
        }
        let key = quoted(key);
        if key.len() > MAX_KEY {
            text.push_str("? ");
            text.push_str(&key);
            text.push('\n');
            push_indent(indent, text);
        } else {
            text.push_str(&key);
        }
        text.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                write_map(inner, indent + 2, text);
            }
            Value::Array(list)
                if !list.is_empty() && one_line(list, key.len() + indent).is_none() =>
            {
                text.push('\n');
                write_list(list, indent + 2, text);
            }
            _ => {
                text.push(' ');
                write_after(value, indent + 2, text);
            }
        }
    }
}

fn write_list(list: &[Value], indent: usize, text: &mut String) {
    for item in list {
        push_indent(indent, text);
        text.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(map, indent + 2, text),
            Value::Array(inner) if !inner.is_empty() && one_line(inner, indent).is_none() => {
                // A list in a list begins on its own line.
                text.pop();
                text.push('\n');
                write_list(inner, indent + 2, text);
            }
            _ => write_after(item, indent + 2, text),
        }
    }
}

/// Writes a value that begins on the current line.
fn write_after(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::String(content) if is_block(content) => write_block(content, indent, text),
        Value::Array(list) => {
            text.push_str(&one_line(list, 0).unwrap_or_else(|| "[]".to_owned()));
        }
        Value::Object(_) => text.push_str("{}"),
        scalar => text.push_str(&inline(scalar)),
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

/// A list of plain values in brackets, if it fits on a line with `used` characters.
fn one_line(list: &[Value], used: usize) -> Option<String> {
    let is_short = |item: &Value| !item.is_array() && !item.is_object();
    if !list.iter().all(is_short) {
        return None;
    }
    let items: Vec<String> = list.iter().map(inline).collect();
    let text = format!("[{}]", items.join(", "));
    let is_multi_line = |item: &Value| item.as_str().is_some_and(|text| text.contains('\n'));
    let fits = list.len() <= 1 || text.chars().count() + used <= MAX_LINE;
    (fits && !list.iter().any(is_multi_line)).then_some(text)
}

fn inline(scalar: &Value) -> String {
    match scalar {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// Text of several lines, as a block.
fn is_block(text: &str) -> bool {
    let is_calm = |c: char| c == '\n' || is_printable(c);
    text.contains('\n')
        && !text.starts_with([' ', '\n'])
        && !text.ends_with("\n\n")
        && !text.trim_end_matches('\n').ends_with(' ')
        && text.chars().all(is_calm)
        // Readers differ on lines that are only spaces.
        && text.lines().all(|line| line.is_empty() || !line.trim().is_empty())
}

fn write_block(content: &str, indent: usize, text: &mut String) {
    text.push_str(if content.ends_with('\n') {
        "|\n"
    } else {
        "|-\n"
    });
    for line in content.lines() {
        if !line.is_empty() {
            // A document that is a single text is indented too.
            push_indent(indent.max(2), text);
            text.push_str(line);
        }
        text.push('\n');
    }
}

fn push_indent(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn quoted(text: &str) -> String {
    if !text.chars().all(is_printable) {
        return escaped(text);
    }
    if is_plain(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Whether text without quotes is read as itself, in brackets too.
fn is_plain(text: &str) -> bool {
    let begins_well = |c: char| !"-?:,[]{}#&*!|>'\"%@`= ".contains(c);
    text.chars().next().is_some_and(begins_well)
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains([',', '[', ']', '{', '}'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text != "<<"
        && !is_word(text)
        && !is_number(text)
}

/// Words with a special meaning in some version of YAML.
fn is_word(text: &str) -> bool {
    let words = [
        "null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan",
    ];
    words.contains(&text.to_ascii_lowercase().as_str())
}

/// Numbers in some version of YAML; `1:30` is one in YAML 1.1.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let digits = text.replace('_', "");
    let is_based = ["0x", "0o", "0b"]
        .iter()
        .any(|base| digits.starts_with(base));
    let is_sexagesimal = text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, ':' | '.' | '_'))
        && text.contains(':');
    begins && (digits.parse::<f64>().is_ok() || is_based || is_sexagesimal || text == ".inf")
}

fn escaped(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_printable(c) => quoted.push(c),
            c => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
