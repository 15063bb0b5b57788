//! `map` and `geo`: which tests lead to which value.

use ipnet::IpNet;

use super::{KeyCase, KeyPiece, KeyResolver, simplified};
use crate::model::{LookupEntry, LookupTable, LookupTest};
use crate::report::ImportFindingKind;
use crate::request_test::{LooksFor, RequestFact, RequestTest};

/// The requests for which a table has a value.
struct TableCase<'t> {
    tests: Vec<RequestTest>,
    value: &'t str,
}

impl KeyResolver<'_> {
    /// The cases of a variable that a table defines.
    pub(super) fn looked_up(
        &mut self,
        name: &str,
        table: &LookupTable,
        depth: usize,
    ) -> Result<Vec<KeyCase>, String> {
        let named = |reason: &str| format!("the variable `${name}` cannot be followed: {reason}");
        if let Some(reason) = &table.unsupported {
            return Err(named(reason));
        }
        let mut cases = Vec::new();
        for source in self.text(&table.source, depth + 1)? {
            let found = match (source.pieces.as_slice(), source.constant()) {
                ([KeyPiece::Fact(fact)], _) => self.by_request(table, fact),
                (_, Some(constant)) => by_constant(table, &constant),
                _ => Err("it looks up more than one part of the request".to_owned()),
            };
            for case in found.map_err(|reason| named(&reason))? {
                for value in self.text(case.value, depth + 1)? {
                    let value = value.with_tests(&source.tests);
                    cases.push(value.with_tests(&case.tests));
                }
            }
        }
        simplified(cases)
    }

    /// The cases of a table that looks up a part of the request.
    fn by_request<'t>(
        &mut self,
        table: &'t LookupTable,
        fact: &RequestFact,
    ) -> Result<Vec<TableCase<'t>>, String> {
        let is_network = |entry: &LookupEntry| matches!(entry.test, LookupTest::Network(_));
        if table.entries.iter().any(is_network) {
            if *fact != RequestFact::Address {
                return Err("`geo` looks up something other than the address".to_owned());
            }
            return by_network(table);
        }
        let is_text = |entry: &LookupEntry| matches!(&entry.test, LookupTest::Text(text) if text.chars().any(char::is_alphabetic));
        if fact.is_optional() && table.entries.iter().any(is_text) {
            self.remark(
                ImportFindingKind::Note,
                "`map` compares texts in any case; rules compare values as they are written",
            );
        }
        by_text(table, fact)
    }
}

/// A test of a fact, in the form in which the fact is compared.
pub(super) fn test(fact: &RequestFact, looks_for: LooksFor) -> RequestTest {
    let looks_for = match (fact, looks_for) {
        (RequestFact::Method, LooksFor::Texts(texts)) => {
            LooksFor::Texts(texts.iter().map(|text| text.to_ascii_uppercase()).collect())
        }
        (RequestFact::Host, LooksFor::Texts(texts)) => {
            LooksFor::Texts(texts.iter().map(|text| text.to_ascii_lowercase()).collect())
        }
        (_, looks_for) => looks_for,
    };
    // An attribute that is empty is missing.
    if looks_for == LooksFor::Texts(vec![String::new()]) {
        return RequestTest {
            fact: fact.clone(),
            looks_for: LooksFor::Any,
            is_negated: true,
        };
    }
    RequestTest {
        fact: fact.clone(),
        looks_for,
        is_negated: false,
    }
}

/// The value of a table for a text that is known already.
fn by_constant<'t>(table: &'t LookupTable, constant: &str) -> Result<Vec<TableCase<'t>>, String> {
    let mut value = table.default.as_str();
    for entry in &table.entries {
        match &entry.test {
            LookupTest::Text(text) if text.eq_ignore_ascii_case(constant) => {
                value = &entry.value;
                break;
            }
            LookupTest::Text(_) => {}
            LookupTest::Regex(_) | LookupTest::Network(_) => {
                return Err("it looks up another variable by a pattern".to_owned());
            }
        }
    }
    let tests = Vec::new();
    Ok(vec![TableCase { tests, value }])
}

/// The values of a table, each once, in their order, without the default.
fn values(table: &LookupTable) -> Vec<&str> {
    let mut values: Vec<&str> = Vec::new();
    for entry in &table.entries {
        let value = entry.value.as_str();
        if value != table.default && !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn by_text<'t>(table: &'t LookupTable, fact: &RequestFact) -> Result<Vec<TableCase<'t>>, String> {
    let mut cases = Vec::new();
    let mut others = Vec::new();
    for value in values(table) {
        let tests = tests_of(table, fact, value)?;
        others.extend(tests.iter().cloned().map(RequestTest::negated));
        for test in tests {
            // What is tried before, and has another value.
            let mut tests = before(table, fact, value)?;
            tests.insert(0, test);
            cases.push(TableCase { tests, value });
        }
    }
    // An entry with the value of the default wins against later patterns, which the negations do not say.
    let first_kept = table
        .entries
        .iter()
        .position(|entry| entry.value == table.default);
    let is_other = |entry: &LookupEntry| {
        entry.value != table.default && matches!(entry.test, LookupTest::Regex(_))
    };
    if let Some(first) = first_kept
        && table.entries.iter().skip(first).any(is_other)
    {
        return Err("a line with the value of `default` precedes a pattern".to_owned());
    }
    cases.push(TableCase {
        tests: others,
        value: &table.default,
    });
    Ok(cases)
}

/// The tests that lead to a value, each of them alone.
fn tests_of(
    table: &LookupTable,
    fact: &RequestFact,
    value: &str,
) -> Result<Vec<RequestTest>, String> {
    let entries = table.entries.iter().filter(|entry| entry.value == value);
    joined_tests(entries, fact)
}

/// The negations of the entries before the last one of this value, of those with other values. Texts exclude each
/// other.
fn before(
    table: &LookupTable,
    fact: &RequestFact,
    value: &str,
) -> Result<Vec<RequestTest>, String> {
    let is_pattern = |entry: &LookupEntry| matches!(entry.test, LookupTest::Regex(_));
    let last = table
        .entries
        .iter()
        .rposition(|entry| entry.value == value && is_pattern(entry));
    let earlier = table.entries.iter().take(last.unwrap_or(0));
    let tests = joined_tests(earlier.filter(|entry| entry.value != value), fact)?;
    Ok(tests.into_iter().map(RequestTest::negated).collect())
}

/// One test for all texts, one for all patterns, and one for a missing attribute.
fn joined_tests<'e>(
    entries: impl Iterator<Item = &'e LookupEntry>,
    fact: &RequestFact,
) -> Result<Vec<RequestTest>, String> {
    let (mut texts, mut patterns, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match &entry.test {
            LookupTest::Text(text) if text.is_empty() => {
                if !fact.is_optional() {
                    return Err("it looks for an empty text".to_owned());
                }
                all.push(test(fact, LooksFor::Texts(vec![String::new()])));
            }
            LookupTest::Text(text) => texts.push(text.clone()),
            LookupTest::Regex(pattern) => patterns.push(pattern.clone()),
            LookupTest::Network(_) => return Err("it has networks".to_owned()),
        }
    }
    if !texts.is_empty() {
        let looks_for = if *fact == RequestFact::Address {
            let networks = texts.iter().map(|text| crate::nginx::network(text));
            let networks: Option<Vec<IpNet>> = networks.collect();
            LooksFor::Networks(networks.ok_or("it compares addresses with texts")?)
        } else {
            LooksFor::Texts(texts)
        };
        all.push(test(fact, looks_for));
    }
    match patterns.as_slice() {
        [] => {}
        [only] => all.push(test(fact, LooksFor::Pattern(only.clone()))),
        several => {
            let each = several.iter().map(|pattern| format!("(?:{pattern})"));
            let pattern = each.collect::<Vec<_>>().join("|");
            all.push(test(fact, LooksFor::Pattern(pattern)));
        }
    }
    Ok(all)
}

/// The cases of a table of networks, of which the longest prefix decides.
fn by_network(table: &LookupTable) -> Result<Vec<TableCase<'_>>, String> {
    let networks: Vec<(IpNet, &str)> = table
        .entries
        .iter()
        .filter_map(|entry| match entry.test {
            LookupTest::Network(network) => Some((network, entry.value.as_str())),
            LookupTest::Text(_) | LookupTest::Regex(_) => None,
        })
        .collect();
    let of = |value: &str, is_wanted: bool| -> Vec<IpNet> {
        let chosen = networks.iter().filter(|(_, v)| (*v == value) == is_wanted);
        chosen.map(|(network, _)| *network).collect()
    };
    let within = |inner: &[IpNet], outer: &[IpNet]| -> Vec<IpNet> {
        let is_in = |network: &&IpNet| outer.iter().any(|outer| outer.contains(*network));
        inner.iter().filter(is_in).copied().collect()
    };
    let test = |networks: Vec<IpNet>, is_negated: bool| RequestTest {
        fact: RequestFact::Address,
        looks_for: LooksFor::Networks(networks),
        is_negated,
    };
    // Networks of a value, less those of others in them.
    let inside = |networks: Vec<IpNet>, value: &str| -> Result<Vec<RequestTest>, String> {
        let holes = within(&of(value, false), &networks);
        if !within(&networks, &holes).is_empty() {
            return Err("its networks are nested more than twice".to_owned());
        }
        let mut tests = vec![test(networks, false)];
        if !holes.is_empty() {
            tests.push(test(holes, true));
        }
        Ok(tests)
    };
    let mut cases = Vec::new();
    for value in values(table) {
        let tests = inside(of(value, true), value)?;
        cases.push(TableCase { tests, value });
    }
    let default = table.default.as_str();
    let others = of(default, false);
    let nested = within(&of(default, true), &others);
    if !nested.is_empty() {
        let tests = inside(nested, default)?;
        cases.push(TableCase {
            tests,
            value: default,
        });
    }
    let tests = if others.is_empty() {
        Vec::new()
    } else {
        vec![test(others, true)]
    };
    cases.push(TableCase {
        tests,
        value: default,
    });
    Ok(cases)
}
