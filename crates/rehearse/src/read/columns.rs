//! Columns with commas or tabs, named by the first line.

use std::borrow::Cow;

use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, LineValue};
use super::plain_json::from_fields;
use super::values::LineValues;

pub(super) fn read<'l>(
    line: &'l [u8],
    separator: u8,
    columns: &'l mut Vec<String>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let Some(values) = split(line, separator) else {
        return Err(LineProblem::Malformed("a quoted column has no end"));
    };
    if columns.is_empty() {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let names = split(line, separator).unwrap_or(values).into_iter();
        columns.extend(names.map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned()));
        return Err(LineProblem::Ignored);
    }
    if values.len() != columns.len() {
        return Err(LineProblem::Malformed(
            "it has not as many columns as the first line",
        ));
    }
    let columns: &'l [String] = columns;
    let named = || {
        columns
            .iter()
            .map(String::as_str)
            .zip(values.iter().cloned())
    };
    let fields = named().map(|(name, value)| (Cow::Borrowed(name), value));
    let mut read = from_fields(fields.collect(), terms)?;
    if terms.keeps_values {
        read.values = LineValues::Variables(named().collect());
    }
    Ok(read)
}

/// The values of a line. In quotes a separator is a character like others, and `""` is a quote. Tabs have no quotes.
fn split(line: &[u8], separator: u8) -> Option<Vec<LineValue<'_>>> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        let after = match rest {
            [b'"', inner @ ..] if separator == b',' => {
                let (value, after) = in_quotes(inner)?;
                values.push(value);
                after
            }
            _ => {
                let end = memchr::memchr(separator, rest).unwrap_or(rest.len());
                values.push(Cow::Borrowed(&rest[..end]));
                &rest[end..]
            }
        };
        match after {
            [] => return Some(values),
            [byte, next @ ..] if *byte == separator => rest = next,
            _ => return None,
        }
    }
}

fn in_quotes(text: &[u8]) -> Option<(LineValue<'_>, &[u8])> {
    let mut owned: Option<Vec<u8>> = None;
    let mut start = 0;
    loop {
        let end = start + memchr::memchr(b'"', &text[start..])?;
        let piece = &text[start..end];
        if text.get(end + 1) == Some(&b'"') {
            let value = owned.get_or_insert_default();
            value.extend_from_slice(piece);
            value.push(b'"');
            start = end + 2;
            continue;
        }
        let value = match owned {
            Some(mut value) => {
                value.extend_from_slice(piece);
                Cow::Owned(value)
            }
            None => Cow::Borrowed(piece),
        };
        return Some((value, &text[end + 1..]));
    }
}
