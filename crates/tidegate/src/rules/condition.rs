//! Conditions in CEL: `attributes["region"] == "eu" && cost > 1`.
//!
//! Bounded in size and depth before they are parsed, so that neither parsing nor evaluating one can
//! exhaust a thread's stack or take long, whatever a rule says.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::Parser;
use cel::{Context, Env, Value};

use crate::attributes::Attributes;

/// The longest condition, in bytes.
const MAX_LENGTH: usize = 1_024;
/// How deep brackets may be nested, and how many operators with one operand or three there may be.
const MAX_NESTING: usize = 16;
/// How deep the parsed expression may be.
const MAX_DEPTH: usize = 40;
/// How many macros that loop (`all`, `exists`, `map`, `filter`) there may be, one inside another.
const MAX_LOOPS: usize = 1;

const EXAMPLE: &str = "write for example `attributes[\"region\"] == \"eu\" && cost > 1`";

/// A condition on the attributes and the cost of a request.
#[derive(Debug)]
pub struct Condition {
    text: String,
    expression: IdedExpr,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// That a condition could not be evaluated for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionFailed;

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        check_text(text)?;
        let expression = Parser::new().parse(text).map_err(|errors| {
            let first = errors.errors.first();
            let message = first.map_or("it cannot be read", |error| error.msg.as_str());
            let message = message.lines().next().unwrap_or_default();
            let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
            // What the parser would have accepted are its own words, and many.
            let message = message.split(" expecting {").next().unwrap_or_default();
            let message = message.replace("mismatched input '<EOF>'", "it ends too early");
            format!("this is not a CEL condition: {message}; {EXAMPLE}")
        })?;
        let of_loops = check_shape(&expression)?;
        for name in expression.references().variables() {
            if !matches!(name, "attributes" | "cost") && !of_loops.contains(&name) {
                return Err(format!(
                    "a condition knows `attributes` and `cost`, not `{name}`; write for example `attributes[\"{name}\"] == \"x\"`"
                ));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            expression,
        })
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for a request.
    pub(crate) fn holds(&self, attributes: &Attributes<'_>) -> Result<bool, ConditionFailed> {
        let mut context = Context::with_env(environment());
        let map: HashMap<String, String> = attributes
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        context.add_variable_from_value("attributes", map);
        let cost = i64::try_from(attributes.cost()).unwrap_or(i64::MAX);
        context.add_variable_from_value("cost", cost);
        match Value::resolve(&self.expression, &context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) | Err(_) => Err(ConditionFailed),
        }
    }
}

fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    Arc::clone(ENVIRONMENT.get_or_init(|| Arc::new(Env::stdlib())))
}

/// Looks at the text alone: a parser that recurses must not meet what is nested too deeply.
fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!(
            "there is no condition; remove the key, or {EXAMPLE}"
        ));
    }
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "a condition may have {MAX_LENGTH} bytes at the most, this has {}",
            text.len()
        ));
    }
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0);
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '!' | '-' | '?') => operators += 1,
            _ => {}
        }
    }
    if deepest > MAX_NESTING {
        return Err(format!(
            "brackets may be nested {MAX_NESTING} deep at the most, here it is {deepest}"
        ));
    }
    if operators > MAX_NESTING {
        return Err(format!(
            "there may be {MAX_NESTING} of `!`, `-` and `?` at the most, here are {operators}"
        ));
    }
    Ok(())
}

/// Walks the expression without recursion: how deep it is, and how many loops are inside each other.
/// The variables that loops bring with them.
fn check_shape(root: &IdedExpr) -> Result<Vec<&str>, String> {
    let mut of_loops = Vec::new();
    let mut open = vec![(root, 1_usize, 0_usize)];
    while let Some((node, depth, loops)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(format!(
                "this has more than {MAX_DEPTH} operations in each other; split it over several rules"
            ));
        }
        if loops > MAX_LOOPS {
            return Err(
                "a loop (`all`, `exists`, `map`, `filter`) inside another is not allowed".into(),
            );
        }
        let mut visit = |child, loops| open.push((child, depth + 1, loops));
        match &node.expr {
            Expr::Call(call) => {
                for child in call.args.iter().chain(call.target.as_deref()) {
                    visit(child, loops);
                }
            }
            Expr::Comprehension(inner) => {
                of_loops.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
                of_loops.extend(inner.iter_var2.as_deref());
                visit(&inner.iter_range, loops);
                for child in [
                    &inner.accu_init,
                    &inner.loop_cond,
                    &inner.loop_step,
                    &inner.result,
                ] {
                    visit(child, loops + 1);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|child| visit(child, loops)),
            Expr::Select(select) => visit(&select.operand, loops),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        visit(&entry.key, loops);
                        visit(&entry.value, loops);
                    }
                }
            }
            Expr::Struct(_) => return Err("a condition cannot make a struct".into()),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }
    Ok(of_loops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Result<bool, ConditionFailed> {
        let mut attributes = Attributes::new();
        attributes.insert("region", "eu").unwrap();
        attributes.insert("bytes", "12").unwrap();
        Condition::parse(text)
            .unwrap()
            .holds(&attributes.with_cost(3))
    }

    #[test]
    fn conditions_by_hand() {
        #[rustfmt::skip]
        let table = [
            (r#"attributes["region"] == "eu""#,                     Ok(true)),
            (r#"attributes["region"] == "eu" && cost > 1"#,         Ok(true)),
            (r"cost > 3",                                           Ok(false)),
            (r"attributes.region == 'us'",                          Ok(false)),
            (r"'plan' in attributes",                               Ok(false)),
            (r"has(attributes.region)",                             Ok(true)),
            (r"int(attributes['bytes']) > 10",                      Ok(true)),
            (r"attributes.region.startsWith('e')",                  Ok(true)),
            (r"attributes.region.matches('^e.$')",                  Ok(true)),
            (r"attributes.exists(name, name == 'bytes')",           Ok(true)),
            (r"attributes['none'] == 'x'",                          Err(ConditionFailed)),
            (r"attributes['none'] == 'x' || cost == 3",             Ok(true)),
            (r"cost",                                               Err(ConditionFailed)),
            (r"cost / 0 == 1",                                      Err(ConditionFailed)),
            (r"int(attributes.region) > 1",                         Err(ConditionFailed)),
        ];
        for (text, expected) in table {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_could_exhaust_us_is_refused() {
        let refused = [
            format!("{}1{} == 1", "(".repeat(17), ")".repeat(17)),
            "(".repeat(1_000),
            "!".repeat(1_000),
            "-".repeat(900),
            format!("{} == 1", vec!["1"; 200].join("+")),
            format!("attributes{} == 1", ".a".repeat(400)),
            format!("cost == 1{}", " ? 1 : 2".repeat(100)),
            "a".repeat(2_000),
            "[1].all(a, [1].all(b, [1].all(c, a == b)))".into(),
            "user == 'x'".into(),
            "attributes[".into(),
            "\u{0}".into(),
            String::new(),
        ];
        for text in refused {
            assert!(Condition::parse(&text).is_err(), "{text}");
        }
        let deepest = format!("{}cost{} == 1", "(".repeat(16), ")".repeat(16));
        assert!(Condition::parse(&deepest).is_ok());
        assert_eq!(holds(&deepest), Ok(false));
    }
}
