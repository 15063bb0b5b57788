//! The key of a zone as attributes and conditions: follows variables through `map`, `geo`, `set` and `if`.

mod tables;
mod variables;

use crate::model::{Assignment, LimitModel};
use crate::report::ImportFindingKind;
use crate::request_test::{LooksFor, RequestFact, RequestTest};

/// How many cases a key may have.
const MAX_CASES: usize = 64;
/// How many tests a case may have.
const MAX_TESTS: usize = 64;
/// How deep variables may refer to each other.
const MAX_DEPTH: usize = 12;

/// The key of the requests for which all tests hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyCase {
    pub(crate) tests: Vec<RequestTest>,
    pub(crate) pieces: Vec<KeyPiece>,
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyPiece {
    Fact(RequestFact),
    /// The first name of the server.
    ServerName,
    Constant(String),
}

impl KeyCase {
    /// The key as text, if it is the same for all requests.
    fn constant(&self) -> Option<String> {
        let text = |piece: &KeyPiece| match piece {
            KeyPiece::Constant(text) => Some(text.clone()),
            KeyPiece::Fact(_) | KeyPiece::ServerName => None,
        };
        self.pieces.iter().map(text).collect()
    }

    /// Whether requests have no key, and so no limit.
    pub(crate) fn is_empty(&self) -> bool {
        self.constant().is_some_and(|text| text.is_empty())
    }

    fn with_tests(mut self, tests: &[RequestTest]) -> Self {
        for test in tests {
            if !self.tests.contains(test) {
                self.tests.push(test.clone());
            }
        }
        self
    }

    fn is_possible(&self) -> bool {
        let tests = &self.tests;
        !tests
            .iter()
            .any(|test| tests.iter().any(|other| test.excludes(other)))
    }
}

/// What is to be known about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRemark {
    pub(crate) kind: ImportFindingKind,
    pub(crate) message: String,
}

/// Follows the variables of one level.
pub(crate) struct KeyResolver<'m> {
    pub(crate) model: &'m LimitModel,
    pub(crate) assignments: &'m [Assignment],
    pub(crate) remarks: Vec<KeyRemark>,
    /// Attributes that the setting `identify` must provide, as lines of YAML.
    pub(crate) identify: Vec<String>,
}

/// Requests for which a condition holds, and those for which it does not; each as lists of tests that all hold.
struct Split {
    holds: Vec<Vec<RequestTest>>,
    fails: Vec<Vec<RequestTest>>,
}

impl KeyResolver<'_> {
    /// The cases of a key, without those that have no key. The error says what cannot be followed.
    pub(crate) fn cases(&mut self, key: &str) -> Result<Vec<KeyCase>, String> {
        let mut cases = self.text(key, 0)?;
        cases.retain(|case| !case.is_empty());
        Ok(cases)
    }

    fn remark(&mut self, kind: ImportFindingKind, message: impl Into<String>) {
        let message = message.into();
        let remark = KeyRemark { kind, message };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// A text with variables.
    fn text(&mut self, text: &str, depth: usize) -> Result<Vec<KeyCase>, String> {
        if depth > MAX_DEPTH {
            return Err("its variables refer to each other too deeply".to_owned());
        }
        let mut cases = vec![KeyCase::default()];
        for piece in variables::pieces(text) {
            let more = match piece {
                variables::TextPiece::Plain(text) => vec![KeyCase {
                    tests: Vec::new(),
                    pieces: vec![KeyPiece::Constant(text)],
                }],
                variables::TextPiece::Variable(name) => self.variable(&name, depth + 1)?,
            };
            cases = product(&cases, &more)?;
        }
        simplified(cases)
    }

    fn variable(&mut self, name: &str, depth: usize) -> Result<Vec<KeyCase>, String> {
        if self.assignments.iter().any(|set| set.name == name) {
            return self.assigned(name, depth);
        }
        if let Some(table) = self.model.lookups.get(name) {
            return self.looked_up(name, table, depth);
        }
        let piece = self.known_variable(name)?;
        Ok(vec![KeyCase {
            tests: Vec::new(),
            pieces: vec![piece],
        }])
    }

    /// The values that `set` gives to a variable, the last one that is executed.
    fn assigned(&mut self, name: &str, depth: usize) -> Result<Vec<KeyCase>, String> {
        let mut cases = vec![KeyCase::default()];
        let assignments = self.assignments;
        for (index, set) in assignments.iter().enumerate() {
            if set.name != name {
                continue;
            }
            // A variable may be set to a text with its own earlier value.
            let before = KeyResolver {
                model: self.model,
                assignments: &assignments[..index],
                remarks: Vec::new(),
                identify: Vec::new(),
            };
            let values = self.through(before, |resolver| resolver.text(&set.value, depth + 1))?;
            let Some(condition) = &set.condition else {
                cases = values;
                continue;
            };
            let split = self.condition(condition, depth + 1)?;
            let mut chosen = Vec::new();
            for (tests, from) in [(&split.holds, &values), (&split.fails, &cases)] {
                for tests in tests {
                    chosen.extend(from.iter().map(|case| case.clone().with_tests(tests)));
                }
            }
            cases = simplified(chosen)?;
        }
        Ok(cases)
    }

    /// Runs another resolver, and takes over what it remarks.
    fn through<T>(
        &mut self,
        mut other: KeyResolver<'_>,
        run: impl FnOnce(&mut KeyResolver<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let result = run(&mut other);
        for remark in other.remarks {
            self.remark(remark.kind, remark.message);
        }
        self.identify.extend(other.identify);
        result
    }

    /// The condition of an `if`.
    fn condition(&mut self, words: &[String], depth: usize) -> Result<Split, String> {
        let whole = words.join(" ");
        let refused = || format!("the condition `if {whole}` cannot be followed");
        let inner = whole
            .strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'));
        let inner = inner.ok_or_else(refused)?.trim();
        let (subject, test) = inner.split_once(' ').unwrap_or((inner, ""));
        let (sign, value) = test.split_once(' ').unwrap_or((test, ""));
        let name = subject.strip_prefix('$').ok_or_else(refused)?;
        let is_negated = sign.starts_with('!');
        let looks_for = match sign.trim_start_matches('!') {
            "" if sign.is_empty() => LooksFor::Any,
            "=" => LooksFor::Texts(vec![value.to_owned()]),
            "~" => LooksFor::Pattern(value.to_owned()),
            "~*" => LooksFor::Pattern(format!("(?i){value}")),
            _ => return Err(refused()),
        };
        let mut split = Split {
            holds: Vec::new(),
            fails: Vec::new(),
        };
        for case in self.variable(name, depth)? {
            let (mut holds, mut fails) = match (case.pieces.as_slice(), case.constant()) {
                ([KeyPiece::Fact(fact)], _) => {
                    let test = tables::test(fact, looks_for.clone());
                    (vec![vec![test.clone()]], vec![vec![test.negated()]])
                }
                (_, Some(constant)) => {
                    let holds = match &looks_for {
                        LooksFor::Any => !constant.is_empty() && constant != "0",
                        LooksFor::Texts(texts) => texts.contains(&constant),
                        LooksFor::Pattern(_) | LooksFor::Networks(_) => return Err(refused()),
                    };
                    if holds {
                        (vec![Vec::new()], Vec::new())
                    } else {
                        (Vec::new(), vec![Vec::new()])
                    }
                }
                _ => return Err(refused()),
            };
            for tests in holds.iter_mut().chain(&mut fails) {
                tests.extend(case.tests.iter().cloned());
            }
            split.holds.extend(holds);
            split.fails.extend(fails);
        }
        if is_negated {
            std::mem::swap(&mut split.holds, &mut split.fails);
        }
        Ok(split)
    }
}

/// Each of these with each of those.
fn product(first: &[KeyCase], second: &[KeyCase]) -> Result<Vec<KeyCase>, String> {
    if first.len() * second.len() > MAX_CASES * MAX_CASES {
        return Err(too_many());
    }
    let mut cases = Vec::new();
    for this in first {
        for that in second {
            let mut case = this.clone().with_tests(&that.tests);
            case.pieces.extend(that.pieces.iter().cloned());
            cases.push(case);
        }
    }
    simplified(cases)
}

fn too_many() -> String {
    "its variables have too many combinations".to_owned()
}

/// Without cases that no request has, and with cases joined that differ only in one test and its negation.
fn simplified(mut cases: Vec<KeyCase>) -> Result<Vec<KeyCase>, String> {
    cases.retain(KeyCase::is_possible);
    if cases.len() > MAX_CASES * 4 {
        return Err(too_many());
    }
    while let Some((first, second, joined)) = joinable(&cases) {
        cases.remove(second);
        if let Some(case) = cases.get_mut(first) {
            *case = joined;
        }
    }
    let is_large = |case: &KeyCase| case.tests.len() > MAX_TESTS;
    if cases.len() > MAX_CASES || cases.iter().any(is_large) {
        return Err(too_many());
    }
    Ok(cases)
}

fn joinable(cases: &[KeyCase]) -> Option<(usize, usize, KeyCase)> {
    for (first, a) in cases.iter().enumerate() {
        for (second, b) in cases.iter().enumerate().skip(first + 1) {
            if a.pieces == b.pieces
                && let Some(joined) = joined(a, b)
            {
                return Some((first, second, joined));
            }
        }
    }
    None
}

fn joined(a: &KeyCase, b: &KeyCase) -> Option<KeyCase> {
    let only = |of: &KeyCase, other: &KeyCase| -> Vec<RequestTest> {
        let tests = of.tests.iter();
        tests
            .filter(|test| !other.tests.contains(test))
            .cloned()
            .collect()
    };
    let (only_a, only_b) = (only(a, b), only(b, a));
    match (only_a.as_slice(), only_b.as_slice()) {
        // One of them is about all requests of the other.
        ([], _) => Some(a.clone()),
        (_, []) => Some(b.clone()),
        ([this], [that]) if this.excludes(that) => {
            let mut case = a.clone();
            case.tests.retain(|test| test != this);
            Some(case)
        }
        _ => None,
    }
}
