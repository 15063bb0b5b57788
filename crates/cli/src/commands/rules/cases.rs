//! A file of cases for `rules test`: requests at given times, and what their decisions must be.

use tidegate::document::{Entry, Fields, Key, Kind, Node, Place, Problems, Source, Spot, Value};
use tidegate::rules::read_time;
use tidegate::{Attributes, Costs, MAX_COST, Micros, Reason, Timestamp};

use super::expectation::{Expectation, ExpectedValue};

/// The time of the first case, if it has none: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_seconds(1_767_225_600);
/// How often a request may be repeated.
const MAX_REPEAT: u64 = 1_000_000;

const FILE: [Key; 2] = [
    Key::new("cases", Kind::Free, "requests, in the order of their times"),
    Key::new(
        "rules",
        Kind::Free,
        "the rules, if no file is given for them",
    ),
];

const CASE: [Key; 7] = [
    Key::new("name", Kind::Text(""), "text for people"),
    Key::new("at", Kind::Free, "when the request arrives"),
    Key::new("attributes", Kind::Free, "what is known of the request"),
    Key::new("cost", Kind::Whole(0, MAX_COST), "how much it costs").or("1"),
    Key::new("costs", Kind::Free, "how much it costs, by unit"),
    Key::new("repeat", Kind::Whole(1, MAX_REPEAT), "how often it is made").or("1"),
    Key::new("expect", Kind::Free, "what the decision must be"),
];

const EXPECT: [Key; 5] = [
    Key::new("allowed", Kind::Flag, "whether it is allowed"),
    Key::new("rule", Kind::Text(""), "the rule that decides"),
    Key::new("reason", Kind::Text(""), "why it is denied"),
    Key::new("remaining", Kind::Whole(0, u64::MAX), "what is left"),
    Key::new("retry_after", Kind::Free, "when it would be allowed"),
];

/// The cases of a file, and its rules if it has any.
#[derive(Debug)]
pub(super) struct CaseFile {
    pub(super) cases: Vec<RuleCase>,
    /// A document with the rules alone.
    pub(super) rules: Option<Node>,
}

/// A request, and what its decision must be.
#[derive(Debug)]
pub(super) struct RuleCase {
    pub(super) name: String,
    /// With its cost and its time.
    pub(super) request: Attributes<'static>,
    pub(super) repeat: u64,
    pub(super) expected: Vec<Expectation>,
}

impl CaseFile {
    /// Reads a file. Nothing if there is a problem.
    pub(super) fn read(source: &Source, problems: &mut Problems) -> Option<Self> {
        let node = source.read(problems)?;
        let fields = Fields::new(&node, Spot::document(), &FILE, problems)?;
        let rules = fields.key("rules").cloned().map(rules_alone);
        let listed = fields.take("cases");
        fields.done(problems);
        let Some((spot, list)) = listed else {
            let message =
                "the key `cases` is missing; write `cases:` and below it a list of requests";
            return Spot::document().refused(&node, message, problems);
        };
        let Value::List(list) = &list.value else {
            let message = format!("this must be a list of cases, not {}", list.kind());
            return spot.refused(list, message, problems);
        };
        let mut cases = Vec::new();
        let mut now = START;
        for (index, item) in list.iter().enumerate() {
            cases.extend(case(item, spot.item(index), &mut now, problems));
        }
        (!problems.has_errors()).then_some(Self { cases, rules })
    }
}

/// A document that has only its rules.
fn rules_alone(rules: Entry) -> Node {
    Node {
        place: rules.key_place.clone(),
        value: Value::Map(vec![rules]),
    }
}

fn case(node: &Node, spot: Spot, now: &mut Timestamp, problems: &mut Problems) -> Option<RuleCase> {
    let fields = Fields::new(node, spot, &CASE, problems)?;
    let name = fields.text("name", problems).unwrap_or_default().to_owned();
    if let Some((spot, at)) = fields.take("at")
        && let Some(at) = time(at, &spot, *now, problems)
    {
        *now = at;
    }
    let mut request = Attributes::new().at(*now);
    if let Some((spot, attributes)) = fields.take("attributes") {
        for entry in spot.entries(attributes, problems) {
            let spot = spot.field(&entry.key);
            let Some(text) = spot.text(&entry.value, problems) else {
                continue;
            };
            if let Err(error) = request.insert(entry.key.clone(), text.to_owned()) {
                problems.error(&entry.value.place, &spot, error.to_string());
            }
        }
    }
    if let Some(cost) = fields.integer("cost", problems) {
        request.set_cost(cost);
    }
    if let Some((spot, node)) = fields.take("costs")
        && let Some(costs) = read_costs(node, &spot, problems)
    {
        if fields.key("cost").is_some() {
            let message = "write `cost` or `costs`, not both";
            problems.error(&node.place, &spot, message);
        }
        request.set_cost(costs);
    }
    let repeat = fields.integer("repeat", problems).unwrap_or(1);
    let expected = fields.take("expect");
    if expected.is_none() {
        let message = "the key `expect` is missing; write for example `expect: {allowed: true}`";
        fields.spot().refused::<()>(node, message, problems);
    }
    let expected = expected.and_then(|(spot, node)| read_expected(node, spot, problems));
    fields.done(problems);
    Some(RuleCase {
        name,
        request,
        repeat,
        expected: expected?,
    })
}

/// Costs by unit.
fn read_costs(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Costs> {
    let mut costs = Vec::new();
    for entry in spot.entries(node, problems) {
        let spot = spot.field(&entry.key);
        let cost = spot.integer(&entry.value, 0, MAX_COST, problems)?;
        costs.push((entry.key.as_str(), cost));
    }
    match Costs::by_unit(costs) {
        Ok(costs) => Some(costs),
        Err(error) => spot.refused(node, error.to_string(), problems),
    }
}

/// A time as rules write it, Unix seconds, or `+10s` after the case before.
fn time(node: &Node, spot: &Spot, before: Timestamp, problems: &mut Problems) -> Option<Timestamp> {
    let text = node.text().unwrap_or_default();
    let at = if let Some(span) = text.strip_prefix('+') {
        span.parse::<Micros>()
            .map(|span| before + span)
            .map_err(|error| error.to_string())
    } else if let Some(micros) = seconds(text) {
        Ok(Timestamp::from_micros(micros))
    } else {
        read_time(text).map_err(|message| {
            format!(
                "{message}, Unix seconds such as `1767225600.5`, or `+10s` after the case before"
            )
        })
    };
    match at {
        Ok(at) if at < before => {
            let message = "this is before the time of the case before; put the cases in the order of their times";
            spot.refused(node, message, problems)
        }
        Ok(at) => Some(at),
        Err(message) => spot.refused(node, message, problems),
    }
}

/// Seconds with up to six decimals, in microseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 6 {
        return None;
    }
    let micros: u64 = format!("{decimals:0<6}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    let micros = whole.checked_mul(1_000_000)?.checked_add(micros)?;
    // A time that cannot be represented is not a time.
    (Timestamp::from_micros(micros).as_micros() == micros).then_some(micros)
}

/// The values that a decision must have.
fn read_expected(node: &Node, spot: Spot, problems: &mut Problems) -> Option<Vec<Expectation>> {
    let fields = Fields::new(node, spot, &EXPECT, problems)?;
    let mut expected = Vec::new();
    for key in EXPECT.map(|row| row.name) {
        let Some(entry) = fields.key(key) else {
            continue;
        };
        let spot = fields.spot().field(key);
        let value = match (&entry.value.value, key) {
            (Value::Null, "allowed") => {
                spot.refused(&entry.value, "write `true` or `false`", problems)
            }
            (Value::Null, _) => Some(ExpectedValue::None),
            _ => value(key, &entry.value, &spot, problems),
        };
        let line = match entry.key_place {
            Place::Text { line, .. } => line,
            Place::Setting(_) | Place::Nowhere => 0,
        };
        expected.extend(value.map(|value| Expectation { key, value, line }));
    }
    if fields.done(problems) && expected.is_empty() && !problems.has_errors() {
        let message = "nothing is expected; write for example `allowed: true`";
        return fields.spot().refused(node, message, problems);
    }
    Some(expected)
}

fn value(key: &str, node: &Node, spot: &Spot, problems: &mut Problems) -> Option<ExpectedValue> {
    match key {
        "allowed" => spot.boolean(node, problems).map(ExpectedValue::Flag),
        "remaining" => {
            let number = spot.integer(node, 0, u64::MAX, problems);
            number.map(ExpectedValue::Number)
        }
        "reason" => {
            let words = Reason::ALL.map(|reason| (reason.name(), reason.name()));
            let reason = spot.one_of(node, &words, problems);
            reason.map(|reason| ExpectedValue::Text(reason.to_owned()))
        }
        "retry_after" => {
            let text = node.text().unwrap_or_default();
            let span = seconds(text).map(Micros::new).or_else(|| text.parse().ok());
            let message = "this must be seconds such as `12` or `0.5`, a duration such as `500ms`, or `null` if waiting does not help";
            let span = span.or_else(|| spot.refused(node, message, problems));
            span.map(ExpectedValue::Span)
        }
        _ => {
            let text = spot.text(node, problems);
            text.map(|text| ExpectedValue::Text(text.to_owned()))
        }
    }
}
