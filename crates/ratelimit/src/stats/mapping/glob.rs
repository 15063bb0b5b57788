//! Patterns of names in which `*` is one part between dots.

/// A pattern: what each part must be, none if it may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(Vec<Option<String>>);

impl Glob {
    /// Parses a pattern such as `ratelimit.service.*.total_hits`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let part = |part: &str| match part {
            "*" => Ok(None),
            part if !part.is_empty() && part.chars().all(is_plain) => Ok(Some(part.to_owned())),
            _ => Err(format!(
                "`{text}` is not a pattern: parts between dots have letters, digits, `_` and `-`, or are `*`; for others write `match_type: regex`"
            )),
        };
        text.split('.')
            .map(part)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The parts that a `*` stands for, if the pattern matches.
    pub(super) fn captures<'p>(&self, parts: &[&'p str]) -> Option<Vec<&'p str>> {
        if parts.len() != self.0.len() {
            return None;
        }
        let mut captured = Vec::new();
        // From the end: most patterns begin alike.
        for (wanted, part) in self.0.iter().zip(parts).rev() {
            match wanted {
                Some(wanted) if wanted != part => return None,
                Some(_) => {}
                None => captured.push(*part),
            }
        }
        captured.reverse();
        Some(captured)
    }
}

/// A template with what was captured in place of `$1` and `${1}`. A reference to anything else is nothing, as with
/// regular expressions; `$$` is a dollar.
pub(super) fn expanded(template: &str, captured: &[&str]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, end) = braced.unwrap_or_else(|| {
            after.split_at(after.find(|c| !is_of_name(c)).unwrap_or(after.len()))
        });
        rest = end;
        if name.is_empty() && braced.is_none() {
            text.push('$');
            continue;
        }
        let number = name
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(1));
        let part = number.and_then(|index| captured.get(index));
        text.push_str(part.copied().unwrap_or_default());
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("a.b",         "a.b",              Some(vec![])),
            ("a.*",         "a.b",              Some(vec!["b"])),
            ("a.*",         "a.b.c",            None),
            ("a.*",         "a",                None),
            ("*.b.*",       "x.b.y",            Some(vec!["x", "y"])),
            ("*",           "",                 Some(vec![""])),
            ("a.*.c",       "a..c",             Some(vec![""])),
            ("a.*.c",       "a.ns/gw:x/*.c",    Some(vec!["ns/gw:x/*"])),
            ("a-b.*",       "a-b.c",            Some(vec!["c"])),
        ];
        for (pattern, name, expected) in table {
            let glob = Glob::parse(pattern).unwrap();
            let parts: Vec<&str> = name.split('.').collect();
            assert_eq!(glob.captures(&parts), expected, "{pattern} {name}");
        }
        for pattern in ["", "a*.b", "a..b", "a.b.", "a.(.*)", "a b"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn templates_by_hand() {
        let captured = ["x", "y"];
        #[rustfmt::skip]
        let table = [
            ("plain",       "plain"),
            ("$1",          "x"),
            ("${1}_$2",     "x_y"),
            ("$1_total",    ""),
            ("$1-$2",       "x-y"),
            ("$1$2",        "xy"),
            ("$0$3${9}",    ""),
            ("$",           "$"),
            ("a$.b",        "a$.b"),
            ("$$1",         "$1"),
            ("${1",         "${1"),
            ("ü$2ü",        "üyü"),
        ];
        for (template, expected) in table {
            assert_eq!(expanded(template, &captured), expected, "{template}");
        }
    }

    proptest::proptest! {
        #[test]
        fn references_are_those_of_regular_expressions(template in "[$a1{}_-]{0,12}") {
            let regex = regex::Regex::new("^(x)-(y)$").unwrap();
            let captures = regex.captures("x-y").unwrap();
            let mut expected = String::new();
            captures.expand(&template, &mut expected);
            // `$0` is the whole for these; stars have no whole.
            proptest::prop_assume!(!template.contains('0'));
            proptest::prop_assert_eq!(expanded(&template, &["x", "y"]), expected);
        }
    }
}
