//! `POST /v1/explain`: why a request would be allowed or denied. Nothing is charged.

use std::io::Write as _;

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tidegate::gate::{ExplainedRule, Explanation};
use tidegate::headers::HeaderSettings;

use super::call::ApiCall;
use super::question::CheckRequest;
use super::{answer, body};
use crate::problem::{ApiReply, HttpProblem};

pub(super) async fn explain(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    super::need_rules(&admin.decider)?;
    let body = call.body.read(&admin.decider.bodies).await?;
    let question: CheckRequest<'_> = body::parse(&body)?;
    let attributes = question.attributes(admin.decider.trust_timestamps)?;
    let show = |name: &str, value: &str| cut(&admin.shown(name, value));
    let explanation = admin.gate.explain(&attributes, &show).await;
    Ok(super::json(
        StatusCode::OK,
        written(&explanation, admin.decider.headers),
    ))
}

/// The most bytes of an answer.
const MOST: usize = 1 << 20;

/// The most bytes of the limits of its decision.
const MOST_LIMITS: usize = MOST / 4;

/// The most characters of a value.
const LONGEST: usize = 128;

/// The most characters of a header.
const LONGEST_HEADER: usize = 16 << 10;

/// A value, shortened if it is long.
fn cut(value: &str) -> String {
    cut_at(LONGEST, value)
}

fn cut_at(longest: usize, value: &str) -> String {
    match value.char_indices().nth(longest) {
        None => value.to_owned(),
        Some(_) => value.chars().take(longest - 1).chain(['…']).collect(),
    }
}

fn written(explanation: &Explanation, settings: HeaderSettings) -> Vec<u8> {
    let mut rest = Vec::with_capacity(1_024);
    write_rest(&mut rest, explanation, settings);
    let mut out = Vec::with_capacity(512 + explanation.rules().len() * 256);
    out.extend_from_slice(br#"{"rules":["#);
    let mut omitted = explanation.omitted();
    for (index, rule) in explanation.rules().iter().enumerate() {
        let before = out.len();
        if index > 0 {
            out.push(b',');
        }
        write_rule(&mut out, explanation, rule);
        if out.len() + rest.len() + 64 > MOST {
            out.truncate(before);
            omitted += explanation.rules().len() - index;
            break;
        }
    }
    out.push(b']');
    if omitted > 0 {
        let _ = write!(out, r#","omitted":{omitted}"#);
    }
    out.append(&mut rest);
    out
}

/// Writes all but the rules.
fn write_rest(out: &mut Vec<u8>, explanation: &Explanation, settings: HeaderSettings) {
    out.extend_from_slice(br#","decision":"#);
    let decision = explanation.decision();
    answer::write_within(out, decision, MOST_LIMITS);
    let mut headers = HeaderMap::new();
    tidegate_tower::insert_headers(&mut headers, decision, settings);
    let headers = headers.iter().map(|(name, value)| {
        let value = cut_at(LONGEST_HEADER, &String::from_utf8_lossy(value.as_bytes()));
        (name.as_str().to_owned(), Value::String(value))
    });
    let _ = write!(
        out,
        r#","headers":{}}}"#,
        Value::Object(headers.collect::<Map<_, _>>())
    );
}

fn write_rule(out: &mut Vec<u8>, explanation: &Explanation, explained: &ExplainedRule) {
    let failed = explained.failed.as_ref().map(|failed| {
        json!({
            "condition": failed.condition,
            "expected": cut(&failed.expected),
            "actual": failed.actual.as_deref().map(cut),
        })
    });
    let grant = explained
        .grant
        .as_ref()
        .map(|grant| json!({"from": grant.source.name(), "value": cut(&grant.text)}));
    let key = explained.key.as_ref().map(|key| {
        let values = key
            .iter()
            .map(|(name, value)| (name.clone(), json!(cut(value))));
        Value::Object(values.collect())
    });
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        r#"{{"rule":"{}","applies":{},"failed":{},"grant":{},"key":{},"limits":["#,
        explained.rule.id(),
        explained.applies(),
        json!(failed),
        json!(grant),
        json!(key),
    );
    for (index, limit) in explanation.limits_of(&explained.rule).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        answer::write_explained_limit(out, &limit);
    }
    out.extend_from_slice(b"]}");
}
