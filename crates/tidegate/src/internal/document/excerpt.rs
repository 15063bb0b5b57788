//! A line of the source with a caret under the position of a problem.

/// How many characters of a long line are shown.
const SHOWN: usize = 100;
/// The most characters that are shown in front of the position.
const BEFORE: usize = 60;

/// The line with its number, and carets under `width` characters from `column`, counted from one.
pub(super) fn with_caret(text: &str, line: usize, column: usize, width: usize) -> String {
    let Some(content) = text.lines().nth(line.saturating_sub(1)) else {
        return String::new();
    };
    let column = column.saturating_sub(1);
    let skipped = column.saturating_sub(BEFORE);
    // Control characters would move the caret, or the reader's terminal.
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let shown: String = content
        .chars()
        .skip(skipped)
        .take(SHOWN)
        .map(plain)
        .collect();
    let mark = if skipped > 0 { "…" } else { "" };
    let rest = shown.chars().count().saturating_sub(column - skipped);
    let carets = "^".repeat(width.min(rest).max(1));
    let number = line.to_string();
    let gutter = " ".repeat(number.len());
    let indent = " ".repeat(column - skipped + mark.chars().count());
    format!("{gutter} |\n{number} | {mark}{shown}\n{gutter} | {indent}{carets}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_under_what_is_meant() {
        let text = "rules:\n  - id: x\n    limit: 1/fortnight\n";
        let excerpt = with_caret(text, 3, 12, 11);
        let expected = "  |\n3 |     limit: 1/fortnight\n  |            ^^^^^^^^^^^\n";
        assert_eq!(excerpt, expected);
    }

    #[test]
    fn places_beyond_the_text_do_no_harm() {
        assert_eq!(with_caret("a", 9, 1, 1), "");
        assert_eq!(with_caret("a", 1, 9, 5), "  |\n1 | a\n  |         ^\n");
        assert_eq!(with_caret("a", 0, 0, 0), "  |\n0 | a\n  | ^\n");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = "x".repeat(500);
        let excerpt = with_caret(&line, 1, 400, 3);
        let lines: Vec<_> = excerpt.lines().collect();
        assert_eq!(lines[1].chars().count(), "1 | …".chars().count() + SHOWN);
        assert_eq!(lines[2].trim_start_matches([' ', '|']), "^^^");
    }
}
