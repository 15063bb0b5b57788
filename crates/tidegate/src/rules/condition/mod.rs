//! Conditions in CEL: `"region" in attributes && attributes["region"] == "eu"`.
//!
//! Bounded in size and depth before they are parsed, so that neither parsing nor evaluating one can
//! exhaust a thread's stack or take long, whatever a rule says.

mod names;
mod regexes;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{Expr, IdedExpr, LiteralValue};
use cel::parser::Parser;
use cel::{Context, Env, Value};
use tidegate_core::CostUnit;

use super::facts::{ConditionFailed, Reading};
use super::work::ConditionWork;
use names::ConditionRead;
use regexes::Patterns;
use work::push_children;

/// The longest condition, in bytes.
const MAX_LENGTH: usize = 1_024;
/// How deep brackets may be nested, and how many operators with one operand or three there may be.
const MAX_NESTING: usize = 16;
/// How deep the parsed expression may be.
const MAX_DEPTH: usize = 40;
/// The functions that a condition may call.
const FUNCTIONS: [&str; 10] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
];

const EXAMPLE: &str =
    "write for example `\"region\" in attributes && attributes[\"region\"] == \"eu\"`";

/// A condition on the attributes and the cost of a request.
#[derive(Debug, Clone)]
pub struct Condition {
    text: String,
    expression: IdedExpr,
    /// How much work it is.
    work: ConditionWork,
    /// Keeps the patterns of `matches` ready for as long as the condition is there.
    _patterns: Arc<Patterns>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The values of a request that conditions read.
pub(in crate::rules) type Evaluation = Context<'static, 'static>;

impl Reading<'_, '_> {
    fn context(&self) -> &Evaluation {
        self.context.get_or_init(|| {
            let mut context = Context::with_env(environment());
            let mut map: HashMap<String, String> = self
                .attributes
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            if let Some(path) = self.path {
                map.insert("path".to_owned(), path.to_owned());
            }
            context.add_variable_from_value("attributes", map);
            if let Some(cost) = self.costs.plain() {
                context.add_variable_from_value("cost", whole(cost));
            }
            // The standard library has no function of this name unless it is built with one.
            let _ = context.add_function("matches", regexes::matches);
            context
        })
    }
}

impl Condition {
    pub(in crate::rules) fn parse(text: &str) -> Result<Self, String> {
        check_text(text)?;
        // Made now, and not for the first request.
        environment();
        let expression = Parser::new().parse(text).map_err(|errors| {
            let first = errors.errors.first();
            let message = first.map_or("it cannot be read", |error| error.msg.as_str());
            let message = message.lines().next().unwrap_or_default();
            let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
            // The list of tokens that the parser would accept is long and in its own terms.
            let message = message.split(" expecting {").next().unwrap_or_default();
            let message = message.replace("mismatched input '<EOF>'", "it ends too early");
            let message = if message.contains("token recognition error at: '= '") {
                "a single `=` compares nothing, write `==`".to_owned()
            } else {
                message
            };
            format!("this is not a CEL condition: {message}; {EXAMPLE}")
        })?;
        let shape = Shape::measure(&expression)?;
        check_names(&expression, &shape)?;
        if !says_yes_or_no(&expression) {
            return Err(format!("a condition must say yes or no; {EXAMPLE}"));
        }
        Ok(Self {
            text: text.to_owned(),
            _patterns: Arc::new(Patterns::compile(&shape.patterns)?),
            work: ConditionWork::measure(&expression),
            expression,
        })
    }

    /// The attributes that it reads; none if that cannot be said, and if it reads the cost.
    pub(in crate::rules) fn names(&self) -> Option<Vec<&str>> {
        names::names_in(&self.expression)
    }

    /// How much work it is.
    pub(in crate::rules) fn work(&self) -> &ConditionWork {
        &self.work
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it reads this attribute: by its name, or because it may read any.
    pub(in crate::rules) fn reads(&self, attribute: &str) -> bool {
        names::reads_in(&self.expression).any(|read| match read {
            ConditionRead::Name(name) => name == attribute,
            ConditionRead::Any => true,
            ConditionRead::Other => false,
        })
    }

    /// The names of the attributes that it reads, `None` where it may read any.
    pub(in crate::rules) fn reads_by_name(&self) -> impl Iterator<Item = Option<&str>> {
        names::reads_in(&self.expression).filter_map(|read| match read {
            ConditionRead::Name(name) => Some(Some(name)),
            ConditionRead::Any => Some(None),
            ConditionRead::Other => None,
        })
    }

    /// Whether it holds for a request in this reading, and its cost in `unit`.
    pub(in crate::rules) fn holds(
        &self,
        reading: &Reading<'_, '_>,
        unit: &CostUnit,
    ) -> Result<bool, ConditionFailed> {
        let context = reading.context();
        let answer = if reading.costs.plain().is_some() {
            Value::resolve(&self.expression, context)
        } else {
            let mut of_unit = context.new_inner_scope();
            of_unit.add_variable_from_value("cost", whole(reading.costs.of(unit)));
            Value::resolve(&self.expression, &of_unit)
        };
        match answer {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) | Err(_) => Err(ConditionFailed),
        }
    }
}

/// A cost as conditions have it.
fn whole(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(i64::MAX)
}

fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    Arc::clone(ENVIRONMENT.get_or_init(|| Arc::new(Env::stdlib())))
}

/// Variables and functions that are not there would fail for every request, in silence.
fn check_names(expression: &IdedExpr, shape: &Shape<'_>) -> Result<(), String> {
    let references = expression.references();
    for name in references.variables() {
        if !matches!(name, "attributes" | "cost") && !shape.of_loops.contains(&name) {
            return Err(format!(
                "a condition knows `attributes` and `cost`, not `{name}`; write for example `attributes[\"{name}\"] == \"x\"`"
            ));
        }
    }
    for name in references.functions() {
        // Operators have names that cannot be written.
        let is_written = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_written && !FUNCTIONS.contains(&name) {
            let known: Vec<String> = FUNCTIONS.iter().map(|name| format!("`{name}`")).collect();
            return Err(format!(
                "there is no function `{name}`{}; known are {}",
                crate::internal::document::suggestion(name, &FUNCTIONS),
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// Whether an expression is of a kind that can be true or false.
fn says_yes_or_no(root: &IdedExpr) -> bool {
    match &root.expr {
        Expr::Call(call) => !matches!(
            call.func_name.as_str(),
            "_+_"
                | "_-_"
                | "_*_"
                | "_/_"
                | "_%_"
                | "-_"
                | "size"
                | "int"
                | "uint"
                | "double"
                | "string"
        ),
        Expr::Comprehension(_) => true,
        Expr::Select(select) => select.test,
        Expr::Literal(literal) => matches!(literal, LiteralValue::Boolean(_)),
        Expr::Ident(_) | Expr::List(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
            false
        }
    }
}

/// Checks only the text: the parser recurses, and must not get an expression that is nested too deeply.
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

/// The properties of an expression that are bounded.
#[derive(Default)]
struct Shape<'e> {
    /// The variables that loops bring with them.
    of_loops: Vec<&'e str>,
    /// The patterns of `matches`.
    patterns: Vec<&'e str>,
    loops: usize,
}

impl<'e> Shape<'e> {
    /// Walks the expression without recursion.
    fn measure(root: &'e IdedExpr) -> Result<Self, String> {
        let mut shape = Self::default();
        let mut open = vec![(root, 1_usize)];
        while let Some((node, depth)) = open.pop() {
            if depth > MAX_DEPTH {
                return Err(format!(
                    "this has more than {MAX_DEPTH} operations in each other; split it over several rules"
                ));
            }
            match &node.expr {
                Expr::Call(call) if call.func_name == "matches" => {
                    shape.patterns.push(pattern_of(call.args.last())?);
                }
                Expr::Comprehension(inner) => {
                    shape.loops += 1;
                    if shape.loops > 1 {
                        return Err("there may be one loop (`all`, `exists`) in a condition; split it over several rules".into());
                    }
                    if matches!(inner.accu_init.expr, Expr::List(_) | Expr::Map(_)) {
                        return Err("`map` and `filter` make lists, which a condition has no use for; write `all` or `exists`".into());
                    }
                    shape
                        .of_loops
                        .extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
                    shape.of_loops.extend(inner.iter_var2.as_deref());
                }
                Expr::Struct(_) => return Err("a condition cannot make a struct".into()),
                _ => {}
            }
            let mut below = Vec::new();
            push_children(node, &mut below);
            open.extend(below.into_iter().map(|child| (child, depth + 1)));
        }
        Ok(shape)
    }
}

/// The pattern of a call of `matches`, which must be written out: it is made ready before any request.
fn pattern_of(argument: Option<&IdedExpr>) -> Result<&str, String> {
    match argument.map(|argument| &argument.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) => Ok(pattern.inner()),
        _ => Err("`matches` needs its pattern written out as text, for example `attributes.path.matches('^/v[0-9]+/')`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;
    use crate::credentials::InvalidCredentials;
    use crate::rules::facts::Facts;
    use tidegate_core::Costs;

    fn holds(text: &str) -> Result<bool, ConditionFailed> {
        let mut attributes = Attributes::new();
        attributes.insert("region", "eu").unwrap();
        attributes.insert("bytes", "12").unwrap();
        let attributes = attributes.with_cost(3);
        holds_for(&Condition::parse(text).unwrap(), &attributes, "requests")
    }

    fn holds_for(
        condition: &Condition,
        attributes: &Attributes<'_>,
        unit: &str,
    ) -> Result<bool, ConditionFailed> {
        let facts = Facts::of(attributes, attributes.costs(), InvalidCredentials::Deny);
        condition.holds(&facts.normal, &CostUnit::new(unit).unwrap())
    }

    #[test]
    fn the_cost_is_that_of_the_rule_s_own_unit() {
        let costs = Costs::by_unit([("tokens", 60), ("money", 2)]).unwrap();
        let attributes = Attributes::new().with_cost(costs);
        for (unit, cost) in [("tokens", 60), ("money", 2), ("requests", 1), ("bytes", 0)] {
            let condition = Condition::parse(&format!("cost == {cost}")).unwrap();
            assert_eq!(holds_for(&condition, &attributes, unit), Ok(true), "{unit}");
        }
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
            (r"cost / 0 == 1",                                      Err(ConditionFailed)),
            (r"int(attributes.region) > 1",                         Err(ConditionFailed)),
        ];
        for (text, expected) in table {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    /// A rule is skipped where its condition cannot be evaluated, and people copy the example.
    #[test]
    fn the_example_can_be_evaluated_without_its_attribute() {
        let row = crate::rules::keys::MATCH
            .iter()
            .find(|row| row.name == "when");
        let condition = Condition::parse(row.unwrap().example).unwrap();
        let facts = |attributes: &Attributes<'_>| holds_for(&condition, attributes, "requests");
        assert_eq!(facts(&Attributes::new().with_cost(3)), Ok(false));
        let mut attributes = Attributes::new();
        attributes.insert("region", "eu").unwrap();
        assert_eq!(facts(&attributes.with_cost(3)), Ok(true));
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
            format!("['x']{}.size() > 0", ".map(a, a + a)".repeat(20)),
            "attributes.map(a, a + a).size() > 0".into(),
            "attributes.filter(a, a == 'x').size() > 0".into(),
            "[1].all(a, a > 0) && [1].all(a, a > 0)".into(),
            "attributes.region.matches('(')".into(),
            "attributes.region.matches(attributes.re)".into(),
            r"attributes.region.matches('\\w{500}')".into(),
            "attributes.path.beginsWith('/a')".into(),
            "cost".into(),
            "cost + 1".into(),
            "'x'".into(),
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
