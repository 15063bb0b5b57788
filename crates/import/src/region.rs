//! Which paths of a server have a limit, as rules say it: paths, a condition, exceptions.
//!
//! nginx chooses one location for a request: an exact one, else the longest prefix, unless a regular expression matches.
//! Every rule that matches applies. So a rule excepts the locations that nginx prefers and that lack the limit.

use serde_json::{Map, Value, json};

use crate::model::{LocationTest, VirtualServer};
use crate::report::ConfigLine;
use crate::request_test::{all_of, any_of, quoted};

/// An item of `except`.
pub(crate) type ExceptItem = Map<String, Value>;

/// Paths that have a limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PathRegion {
    /// Patterns of paths; none for all paths.
    pub(crate) paths: Vec<String>,
    pub(crate) condition: Option<String>,
    pub(crate) except: Vec<ExceptItem>,
    /// What a rule cannot say exactly.
    pub(crate) differences: Vec<(ConfigLine, String)>,
}

/// A location, and whether it has the limit.
struct Candidate<'s> {
    test: &'s LocationTest,
    inside: &'s [String],
    has_limit: bool,
    at: ConfigLine,
}

/// The paths of a server for which a limit is in force; none if there are none. `has` says for each location, by its
/// index, whether it is; and for requests in no location.
pub(crate) fn region(
    server: &VirtualServer,
    has: impl Fn(Option<usize>) -> bool,
) -> Option<PathRegion> {
    let rest = LocationTest::Prefix {
        path: String::new(),
        is_final: false,
    };
    let all = server.locations.iter().enumerate();
    let mut candidates: Vec<Candidate<'_>> = all
        .map(|(index, location)| Candidate {
            test: &location.test,
            inside: &location.inside,
            has_limit: has(Some(index)),
            at: location.at,
        })
        .collect();
    let is_whole =
        |candidate: &Candidate<'_>| path_of(candidate.test).is_some_and(|(path, _)| path == "/");
    if !candidates.iter().any(is_whole) {
        candidates.push(Candidate {
            test: &rest,
            inside: &[],
            has_limit: has(None),
            at: server.at,
        });
    }
    let unreachable: Vec<bool> = candidates
        .iter()
        .map(|candidate| is_unreachable(candidate, &candidates))
        .collect();
    let mut unreachable = unreachable.into_iter();
    candidates.retain(|_| !unreachable.next().unwrap_or(false));
    if candidates.iter().all(|candidate| candidate.has_limit) {
        return Some(PathRegion::default());
    }
    if !candidates.iter().any(|candidate| candidate.has_limit) {
        return None;
    }
    Some(RegionBuilder::new(&candidates).build())
}

/// Whether nginx never finds a location, because it looks for the longest prefix at each level: one next to a location
/// around this one is longer.
fn is_unreachable(candidate: &Candidate<'_>, all: &[Candidate<'_>]) -> bool {
    let path = match candidate.test {
        LocationTest::Exact(path)
        | LocationTest::Prefix { path, .. }
        | LocationTest::Segments(path) => path,
        LocationTest::Regex { .. } => return false,
    };
    let is_shadowed = |other: &Candidate<'_>| {
        // Of exact paths, the one of the outermost level is found first.
        matches!(candidate.test, LocationTest::Exact(_))
            && other.test == candidate.test
            && other.inside.len() < candidate.inside.len()
    };
    all.iter().any(|other| {
        let is_in = path_of(other.test).is_some_and(|(prefix, _)| path.starts_with(prefix));
        is_shadowed(other) || (is_in && is_next_to(other, candidate.inside))
    })
}

/// Whether a prefix is next to one of these locations, which are around each other, and below it.
fn is_next_to(prefix: &Candidate<'_>, inside: &[String]) -> bool {
    let Some((path, _)) = path_of(prefix.test) else {
        return false;
    };
    let depth = prefix.inside.len();
    let around = inside.get(depth);
    around.is_some_and(|around| {
        inside.starts_with(prefix.inside) && path != around && path.starts_with(around.as_str())
    })
}

/// The path of a prefix, and whether it is final.
fn path_of(test: &LocationTest) -> Option<(&str, bool)> {
    match test {
        LocationTest::Prefix { path, is_final } => Some((path, *is_final)),
        LocationTest::Segments(path) => Some((path, false)),
        LocationTest::Exact(_) | LocationTest::Regex { .. } => None,
    }
}

/// Whether a path is in a location with a prefix.
fn covers(test: &LocationTest, path: &str) -> bool {
    match test {
        LocationTest::Prefix { path: prefix, .. } => path.starts_with(prefix),
        LocationTest::Segments(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        LocationTest::Exact(_) | LocationTest::Regex { .. } => false,
    }
}

/// A test of the path as a condition.
fn condition(test: &LocationTest) -> String {
    let path = r#"attributes["path"]"#;
    match test {
        LocationTest::Exact(exact) => format!("{path} == {}", quoted(exact)),
        LocationTest::Prefix { path: prefix, .. } => {
            format!("{path}.startsWith({})", quoted(prefix))
        }
        LocationTest::Segments(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            let below = quoted(&format!("{prefix}/"));
            format!("{path} == {} || {path}.startsWith({below})", quoted(prefix))
        }
        LocationTest::Regex { pattern, within } => {
            let matches = format!("{path}.matches({})", quoted(pattern));
            if within.len() > 1 {
                format!("{path}.startsWith({}) && {matches}", quoted(within))
            } else {
                matches
            }
        }
    }
}

fn none_of(tests: &[String]) -> Option<String> {
    (!tests.is_empty()).then(|| format!("!({})", any_of(tests)))
}

struct RegionBuilder<'c, 's> {
    prefixes: Vec<&'c Candidate<'s>>,
    exact: Vec<(&'s str, &'c Candidate<'s>)>,
    regexes: Vec<&'c Candidate<'s>>,
    differences: Vec<(ConfigLine, String)>,
}

impl<'c, 's> RegionBuilder<'c, 's> {
    fn new(candidates: &'c [Candidate<'s>]) -> Self {
        let mut builder = Self {
            prefixes: Vec::new(),
            exact: Vec::new(),
            regexes: Vec::new(),
            differences: Vec::new(),
        };
        for candidate in candidates {
            match candidate.test {
                LocationTest::Exact(path) => builder.exact.push((path, candidate)),
                LocationTest::Prefix { .. } | LocationTest::Segments(_) => {
                    builder.prefixes.push(candidate);
                }
                LocationTest::Regex { .. } => builder.regexes.push(candidate),
            }
        }
        // Those of inner levels are tried first.
        builder
            .regexes
            .sort_by_key(|regex| std::cmp::Reverse(regex.inside.len()));
        builder
    }

    /// The prefixes around a path, the nearest first.
    fn around(&self, path: &str) -> Vec<&'c Candidate<'s>> {
        let mut around: Vec<_> = self
            .prefixes
            .iter()
            .filter(|candidate| covers(candidate.test, path))
            .copied()
            .collect();
        around.sort_by_key(|candidate| {
            std::cmp::Reverse(path_of(candidate.test).map_or(0, |(path, _)| path.len()))
        });
        around
    }

    /// The prefixes around this one, the nearest first.
    fn around_prefix(&self, candidate: &Candidate<'_>) -> Vec<&'c Candidate<'s>> {
        let path = path_of(candidate.test).map_or("", |(path, _)| path);
        let mut around = self.around(path);
        around.retain(|other| path_of(other.test).map_or("", |(path, _)| path) != path);
        around
    }

    /// A prefix as a pattern; none if it is about all paths.
    fn pattern(&mut self, candidate: &Candidate<'_>) -> Option<String> {
        let (path, _) = path_of(candidate.test)?;
        let trimmed = path.trim_end_matches('/');
        if trimmed.is_empty() {
            return None;
        }
        if matches!(candidate.test, LocationTest::Prefix { .. }) && !path.ends_with('/') {
            self.differences.push((
                candidate.at,
                format!("`location {path}` is also about paths such as `{path}x`; the rule is about `{path}` and what is below it"),
            ));
        }
        Some(format!("{trimmed}/**"))
    }

    fn build(mut self) -> PathRegion {
        let (mut tops, mut holes) = (Vec::new(), Vec::new());
        for candidate in self.prefixes.clone() {
            let around = self.around_prefix(candidate);
            let nearest_has = around.first().is_some_and(|nearest| nearest.has_limit);
            let any_has = around.iter().any(|other| other.has_limit);
            if candidate.has_limit && !any_has {
                tops.push(candidate);
            } else if !candidate.has_limit && nearest_has {
                holes.push(candidate);
            }
        }
        let mut region = PathRegion::default();
        let is_whole =
            |top: &&&Candidate<'_>| path_of(top.test).is_some_and(|(path, _)| path.len() <= 1);
        let covers_all = tops.iter().any(|top| is_whole(&top));
        let regexes = self.regexes_beyond(&tops);
        let exact = self.exact_beyond();
        if covers_all {
            // Every path that no exception is about.
        } else if regexes.is_empty() {
            for top in &tops {
                region.paths.extend(self.pattern(top));
            }
            region
                .paths
                .extend(exact.iter().map(|path| (*path).to_owned()));
        } else {
            let mut conditions: Vec<String> = tops.iter().map(|top| condition(top.test)).collect();
            let exact = exact
                .iter()
                .map(|path| LocationTest::Exact((*path).to_owned()));
            conditions.extend(exact.map(|test| condition(&test)));
            conditions.extend(regexes);
            region.condition = Some(any_of(&conditions));
        }
        let is_by_regex = region.condition.is_some();
        self.except_exact(&mut region);
        for hole in &holes {
            let item = self.hole(hole);
            region.except.push(item);
        }
        if is_by_regex || !tops.is_empty() {
            region.except.extend(self.lacking_regexes());
        }
        region.differences = self.differences;
        region
    }

    /// Conditions of the regular expressions that have the limit, except those in a location that has it.
    fn regexes_beyond(&self, tops: &[&Candidate<'_>]) -> Vec<String> {
        let is_beyond = |regex: &&&Candidate<'_>| {
            let around = regex.inside.last();
            !around.is_some_and(|around| tops.iter().any(|top| covers(top.test, around)))
        };
        let with_limit = self.regexes.iter().filter(|regex| regex.has_limit);
        let beyond = with_limit.filter(is_beyond);
        beyond.map(|regex| self.regex_condition(regex)).collect()
    }

    /// Exact paths that have the limit, where no prefix around them has it.
    fn exact_beyond(&self) -> Vec<&'s str> {
        let with_limit = self.exact.iter().filter(|(_, exact)| exact.has_limit);
        let is_beyond = |path: &&str| !self.around(path).iter().any(|around| around.has_limit);
        with_limit
            .map(|(path, _)| *path)
            .filter(is_beyond)
            .collect()
    }

    /// Excepts exact paths without the limit, where a prefix around them or a regular expression has it.
    fn except_exact(&self, region: &mut PathRegion) {
        let is_by_regex = self.regexes.iter().any(|regex| regex.has_limit);
        let lacking = self.exact.iter().filter(|(_, exact)| !exact.has_limit);
        let is_within = |path: &&str| {
            let around = self.around(path);
            is_by_regex || around.first().is_some_and(|nearest| nearest.has_limit)
        };
        let paths: Vec<&str> = lacking.map(|(path, _)| *path).filter(is_within).collect();
        if !paths.is_empty() {
            let mut item = Map::new();
            item.insert("path".to_owned(), json!(paths));
            region.except.push(item);
        }
    }

    /// When nginx chooses the location of a regular expression, if none before it matches: not in prefixes next to the
    /// locations around it, and not in final ones at its own level. Those in which it makes no difference are left out.
    fn regex_condition(&self, regex: &Candidate<'_>) -> String {
        let mut regexes = self.regexes.iter();
        let has_other = regexes.any(|other| other.has_limit != regex.has_limit);
        let is_other = |prefix: &Candidate<'_>| {
            let mut inner = self.prefixes.iter().filter(|inner| {
                path_of(inner.test).is_some_and(|(path, _)| covers(prefix.test, path))
            });
            has_other || inner.any(|inner| inner.has_limit != regex.has_limit)
        };
        let mut excluded = Vec::new();
        for prefix in self.prefixes.iter().filter(|prefix| is_other(prefix)) {
            if is_next_to(prefix, regex.inside) {
                excluded.push(condition(prefix.test));
            }
            let is_final = path_of(prefix.test).is_some_and(|(_, is_final)| is_final);
            if is_final && prefix.inside == regex.inside {
                let mut parts = vec![condition(prefix.test)];
                parts.extend(none_of(&self.open_below(prefix)));
                excluded.push(all_of(&parts));
            }
        }
        let mut parts = vec![condition(regex.test)];
        parts.extend(none_of(&excluded));
        all_of(&parts)
    }

    /// Prefixes that are not final, below a final one at the same level.
    fn open_below(&self, prefix: &Candidate<'_>) -> Vec<String> {
        let is_open_below = |other: &&&Candidate<'_>| {
            let is_below = |(path, is_final): (&str, bool)| {
                !is_final && other.test != prefix.test && covers(prefix.test, path)
            };
            other.inside == prefix.inside && path_of(other.test).is_some_and(is_below)
        };
        let below = self.prefixes.iter().filter(is_open_below);
        below.map(|other| condition(other.test)).collect()
    }

    /// A prefix without the limit in one with it, less the locations in it that have the limit again.
    fn hole(&mut self, hole: &Candidate<'_>) -> ExceptItem {
        let (path, _) = path_of(hole.test).unwrap_or_default();
        let mut again = Vec::new();
        for candidate in &self.prefixes {
            let inner = path_of(candidate.test).map_or("", |(path, _)| path);
            if candidate.has_limit && inner != path && covers(hole.test, inner) {
                again.push(condition(candidate.test));
            }
        }
        for (exact, candidate) in &self.exact {
            if candidate.has_limit && covers(hole.test, exact) {
                again.push(condition(candidate.test));
            }
        }
        let may_match = |regex: &&&Candidate<'_>| {
            let around = regex.inside.last().map_or("", String::as_str);
            let is_near = covers(hole.test, around) || path.starts_with(around);
            is_near && !is_next_to(hole, regex.inside)
        };
        let regexes = self.regexes.iter().filter(|regex| regex.has_limit);
        again.extend(
            regexes
                .filter(may_match)
                .map(|regex| self.regex_condition(regex)),
        );
        let mut item = Map::new();
        if let Some(pattern) = self.pattern(hole) {
            item.insert("path".to_owned(), json!([pattern]));
        }
        if let Some(condition) = none_of(&again) {
            item.insert("when".to_owned(), json!(condition));
        }
        item
    }

    /// Regular expressions whose locations lack the limit, as exceptions.
    fn lacking_regexes(&self) -> Vec<ExceptItem> {
        let exact = self.exact.iter().filter(|(_, exact)| exact.has_limit);
        let mut stops: Vec<String> = exact.map(|(_, exact)| condition(exact.test)).collect();
        let mut items = Vec::new();
        for regex in &self.regexes {
            if regex.has_limit {
                // It is tried first, so those after it do not exempt what it matches.
                stops.push(self.regex_condition(regex));
                continue;
            }
            let mut parts = vec![self.regex_condition(regex)];
            parts.extend(none_of(&stops));
            let mut item = Map::new();
            item.insert("when".to_owned(), json!(all_of(&parts)));
            items.push(item);
        }
        items
    }
}
