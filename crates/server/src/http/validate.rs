//! `POST /v1/rules/{id}/validate`: the problems of a rule's text, with their positions. Nothing changes.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::document::{self, Place, Problem, Problems, Severity, Source, write_yaml};
use tidegate::rules::Rule;
use tidegate::{Clock as _, SystemClock};

use super::call::ApiCall;
use super::query::parameters;
use super::rules::{answered, drop_computed, name_if_nameless};
use super::{body, json};
use crate::admin::Admin;
use crate::problem::{ApiReply, HttpProblem};
use crate::rulebook::ChangeError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    text: String,
}

pub(super) async fn validate(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let (admin, [id, _]) = (&call.api.admin, call.names);
    Rule::check_id(&id)
        .map_err(|problem| HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, problem))?;
    let body = call.body.read(&admin.decider.bodies).await?;
    // The body counts as held until its turn has come.
    let reading = admin.read_document(move |admin| {
        let RuleText { text } = body::parse(&body)?;
        drop(body);
        Ok::<_, HttpProblem>(answer(admin, &id, &text))
    });
    let answer = reading.await.ok_or(ChangeError::Interrupted)??;
    Ok(json(StatusCode::OK, answer))
}

fn answer(admin: &Admin, id: &str, text: &str) -> String {
    let (rule, mut problems) = read(admin, id, text);
    problems.sort();
    let listed: Vec<Value> = problems.iter().map(written).collect();
    let rule = rule.as_ref();
    let answer = json!({
        "valid": rule.is_some(),
        "problems": listed,
        "rule": rule.map(answered),
        "yaml": rule.map(|rule| write_yaml(rule.written())),
        "promises": rule.map(Rule::promises),
    });
    answer.to_string()
}

/// The rule of a text, if it is valid, and everything to be said about it.
fn read(admin: &Admin, id: &str, text: &str) -> (Option<Rule>, Problems) {
    let mut problems = Problems::new();
    let Some(mut node) = Source::new("rule", text).read(&mut problems) else {
        return (None, problems);
    };
    drop_computed(&mut node);
    name_if_nameless(&mut node, id);
    let settings = admin.book.settings().at(SystemClock.now());
    match Rule::from_node(&node, &settings) {
        Err(found) => (None, found),
        Ok(rule) if rule.id() == id => {
            let warnings = rule.warnings().clone();
            (Some(rule), warnings)
        }
        Ok(rule) => {
            let message = format!(
                "the rule is `{id}`, and its text names `{}`; a rule keeps its id",
                rule.id()
            );
            let spot = document::Spot::document().field("id");
            let place = node.get("id").map_or(&Place::Nowhere, |id| &id.place);
            problems.error(place, &spot, message);
            (None, problems)
        }
    }
}

fn written(problem: &Problem) -> Value {
    let (line, column) = match problem.place {
        Place::Text { line, column, .. } => (Some(line), Some(column)),
        Place::Setting(_) | Place::Nowhere => (None, None),
    };
    let field = problem.field.strip_prefix("rules[0]");
    let field = field.unwrap_or(&problem.field).trim_start_matches('.');
    json!({
        "severity": match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "line": line,
        "column": column,
        "field": field,
        "message": problem.message,
    })
}
