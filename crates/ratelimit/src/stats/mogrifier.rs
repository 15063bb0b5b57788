//! Rewrites the name of a stat, and takes tags from it, where `DogStatsD` is sent.

use regex::{Captures, Regex};

/// One way to rewrite names.
#[derive(Debug, Clone)]
pub struct Mogrifier {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

impl Mogrifier {
    /// Rewrites what matches this pattern to this name, with these tags. `$1` is what the first group matched.
    pub fn new(pattern: &str, name: &str, tags: &[(String, String)]) -> Result<Self, String> {
        let pattern = Regex::new(pattern)
            .map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))?;
        if name.is_empty() {
            return Err("a mogrifier needs a name, such as `rate_limit.$1`".to_owned());
        }
        if tags
            .iter()
            .any(|(key, value)| key.is_empty() || value.is_empty())
        {
            return Err("a tag of a mogrifier needs a name and a value".to_owned());
        }
        let values = tags.iter().map(|(_, value)| value.as_str());
        for text in values.chain([name]) {
            let groups = pattern.captures_len();
            if let Some(number) = references(text).find(|number| *number >= groups) {
                return Err(format!(
                    "`{text}` has `${number}`, and the pattern has {} groups",
                    groups - 1
                ));
            }
        }
        Ok(Self {
            pattern,
            name: name.to_owned(),
            tags: tags.to_vec(),
        })
    }

    /// The new name and the tags of a stat, if it matches.
    pub(super) fn apply(&self, stat: &str) -> Option<(String, Vec<(String, String)>)> {
        let captures = self.pattern.captures(stat)?;
        let tags = self.tags.iter();
        let tags = tags.map(|(key, value)| (key.clone(), filled(value, &captures)));
        Some((filled(&self.name, &captures), tags.collect()))
    }
}

/// The numbers of the groups that a template names. One that is too large to be a group is the largest number.
fn references(template: &str) -> impl Iterator<Item = usize> {
    template.split('$').skip(1).filter_map(|after| {
        let digits = digits(after);
        (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX))
    })
}

fn filled(template: &str, captures: &Captures<'_>) -> String {
    let mut parts = template.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for after in parts {
        let digits = digits(after);
        if let Ok(number) = digits.parse::<usize>() {
            let group = captures.get(number);
            text.push_str(group.map_or("", |group| group.as_str()));
            text.push_str(&after[digits.len()..]);
        } else {
            text.push('$');
            text.push_str(after);
        }
    }
    text
}

fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn names_by_hand() {
        let stat = "ratelimit.service.rate_limit.web.path_/a.over_limit";
        let pattern = r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$";
        #[rustfmt::skip]
        let table = [
            // name             tag         name that is sent       tag that is sent
            ("rl.$3",           "$1",       "rl.over_limit",        "web"),
            ("$3x",             "a$2b",     "over_limitx",          "apath_/ab"),
            ("$$3",             "$x$",      "$over_limit",          "$x$"),
            ("$1$3",            "$0",       "webover_limit",        stat),
        ];
        for (name, value, sent, sent_tag) in table {
            let mogrifier = Mogrifier::new(pattern, name, &[tag("k", value)]).unwrap();
            let expected = (sent.to_owned(), vec![tag("k", sent_tag)]);
            assert_eq!(mogrifier.apply(stat), Some(expected), "{name}");
            assert_eq!(mogrifier.apply("another"), None);
        }
    }

    #[test]
    fn mistakes_are_found_before_a_stat_is_sent() {
        for (pattern, name, tags, expected) in [
            ("(", "a", vec![], "`(` is not a regular expression"),
            ("a", "", vec![], "needs a name"),
            ("a", "b", vec![tag("k", "")], "needs a name and a value"),
            (
                "(a)",
                "$2",
                vec![],
                "`$2` has `$2`, and the pattern has 1 groups",
            ),
            (
                "(a)",
                "b",
                vec![tag("k", "$99999999999999999999")],
                "the pattern has 1 groups",
            ),
        ] {
            let problem = Mogrifier::new(pattern, name, &tags).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
