//! The report as one page for a browser: no resource from elsewhere, readable without script.

mod chart;
mod masked;
mod page;
mod sections;

pub(crate) use masked::rename_overrides;
pub use page::{HtmlTerms, to_html};

use std::fmt::Write as _;

use serde_json::Value;

use super::words::{grouped, key_text, share};

/// Text that is never markup. Characters that control a terminal or the direction of text are written out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if tidegate::printable::is_printable(c) => out.push(c),
            // Writing to a String cannot fail.
            c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A key as markup.
fn key(key: &Value) -> String {
    escaped(&key_text(key))
}

/// A table with these headings. Cells are markup already. What is wider than the screen is scrolled, also with keys.
fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>".to_owned();
    for heading in headings {
        out.push_str(&format!("<th scope=\"col\">{heading}</th>"));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let is_number =
                column > 0 && cell.starts_with(|c: char| c.is_ascii_digit() || c == '–');
            let class = if is_number { " class=\"n\"" } else { "" };
            out.push_str(&format!("<td{class}>{cell}</td>"));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}
