//! Terminal output: colour on a terminal, plain text in a pipe, aligned columns.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use serde_json::Value;
use tidegate::printable::{escaped, is_printable};
pub(crate) use tidegate_rehearse::grouped;

/// The style of success and added lines.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// The style of errors and removed lines.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// The style of warnings.
pub(crate) const CAREFUL: Style = AnsiColor::Yellow.on_default();
/// The style of the header of a diff hunk.
pub(crate) const PLACE: Style = AnsiColor::Cyan.on_default();
/// The style of headings.
pub(crate) const HEADING: Style = Style::new().bold();

/// Writes the answer to stdout. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    whole(AutoStream::auto(io::stdout().lock()), text)
}

/// Writes a part of an endless answer to stdout. False if the reader is gone.
pub(crate) fn print_while_open(text: &str) -> io::Result<bool> {
    let mut stdout = AutoStream::auto(io::stdout().lock());
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes JSON to stdout.
pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    print(&json_text(value))
}

/// Prints `value` where JSON is asked for, and `text` elsewhere.
pub(crate) fn print_either(
    json: bool,
    value: &Value,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    print(&if json { json_text(value) } else { text() })
}

/// JSON in lines. Characters that could control or reorder a terminal are escaped.
pub(crate) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for c in format!("{value:#}\n").chars() {
        if c == '\n' || is_printable(c) {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

/// Writes a note, which is not part of the answer, to stderr.
pub(crate) fn note(text: &str) -> io::Result<()> {
    whole(AutoStream::auto(io::stderr().lock()), text)
}

/// Writes an error to stderr. Problems of settings begin with that word already.
pub(crate) fn error(message: &str) -> io::Result<()> {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    note(&format!("{}: {message}\n", styled(BAD.bold(), "error")))
}

fn whole(mut stream: impl Write, text: &str) -> io::Result<()> {
    let written = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Untrusted text that cannot steer the terminal and stays in its line. A tab or a carriage return is a space.
pub(crate) fn plain(text: &str) -> String {
    escaped(&text.replace(['\t', '\r'], " ")).into_owned()
}

/// Text of several lines, each of them [plain].
pub(crate) fn plain_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(plain).collect();
    lines.join("\n")
}

/// `1 rule`, `2 rules`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// A value of JSON in a cell of a table.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Rows below headings, each column as wide as its widest cell.
pub(crate) struct TextTable {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with a cell for each heading.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        let one_line = |cell: String| plain(&cell.replace('\n', " "));
        self.rows.push(cells.into_iter().map(one_line).collect());
    }

    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max();
            let heading = self.headings.get(column).map_or(0, |text| text.len());
            longest.unwrap_or(0).max(heading)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let headings = self.headings.iter().map(|text| text.to_uppercase());
        let headings: Vec<String> = headings.collect();
        let mut lines = vec![styled(HEADING, &line(&headings, &widths))];
        lines.extend(self.rows.iter().map(|row| line(row, &widths)));
        lines.join("\n") + "\n"
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths);
    let padded: Vec<_> = cells
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    padded.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = TextTable::new(&["id", "limit"]);
        table.row(vec!["per-user".into(), "1/s".into()]);
        table.row(vec!["ü\u{1b}[1m".into(), "100/minute\nburst 2".into()]);
        let text = anstream::adapter::strip_str(&table.render()).to_string();
        let expected = "ID          LIMIT\nper-user    1/s\nü\\u{1b}[1m  100/minute burst 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        let text = "a\u{1b}[31m\r\nb\u{9b}";
        assert_eq!(plain(text), "a\\u{1b}[31m \\u{a}b\\u{9b}");
        assert_eq!(plain_lines(text), "a\\u{1b}[31m \nb\\u{9b}");
        let value = serde_json::json!({"a": "ü\u{202e}\u{9b}\n\u{e0041}"});
        let json = json_text(&value);
        assert_eq!(
            json,
            "{\n  \"a\": \"ü\\u202e\\u009b\\n\\udb40\\udc41\"\n}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
    }
}
