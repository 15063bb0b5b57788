//! `POST /v1/explain`: why a request would be allowed or denied. Nothing is charged.

mod offline;

use std::io::Write as _;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tidegate::gate::{ExplainedGrant, ExplainedRule, ExplainedTier, Explanation};
use tidegate::headers::HeaderSettings;
use tidegate::rules::Rule;
use tidegate::{Attributes, CostUnit, Costs};

use super::asked::{AskedCall, ClientCall, unanswered};
use super::call::ApiCall;
use super::explain_question::{ExplainRequest, ExplainedSubject};
use super::{answer, body, raw_request};
use crate::activity::last_json;
use crate::meant::{self, Meant, MeantClient};
use crate::problem::{ApiReply, HttpProblem};
pub use offline::explain_offline;

pub(super) async fn explain(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    super::need_rules(&admin.decider)?;
    let body = call.body.read(&admin.decider.bodies).await?;
    let call = ClientCall {
        admin,
        by: &call.caller.name,
        may_ask: true,
    };
    explain_client(call, &body).await
}

/// Explains what a body asks for.
pub(super) async fn explain_client(
    call: ClientCall<'_>,
    body: &[u8],
) -> Result<ApiReply, HttpProblem> {
    let admin = call.admin;
    let request: ExplainRequest<'_> = body::parse(body)?;
    let (subject, terms) = request.subject(admin.decider.trust_timestamps)?;
    let answer = match subject {
        ExplainedSubject::Attributes(given) => {
            let attributes = match meant::resolve(admin, *given, None).await? {
                Meant::Here(attributes) => terms.of(attributes),
                Meant::Elsewhere(seen) => {
                    let body = String::from_utf8_lossy(body);
                    let reply = call.ask(AskedCall::Explain, &seen, &body).await;
                    return reply.ok_or_else(|| unanswered(&seen));
                }
            };
            written(call, &attributes, None).await
        }
        ExplainedSubject::Request(raw) => {
            let attributes = raw_request::describe(admin, &raw).await?;
            written(call, &terms.of(attributes), None).await
        }
        ExplainedSubject::Client { client, rule } => {
            let client = match meant::find_client(admin, &client, rule.as_deref()).await? {
                Meant::Here(client) => client,
                Meant::Elsewhere(seen) => {
                    let mut body = json!({"client": seen.client});
                    match terms.costs.plain() {
                        Some(cost) => body["cost"] = json!(cost),
                        None => body["costs"] = by_unit(&terms.costs),
                    }
                    if let Some(rule) = &rule {
                        body["rule"] = json!(rule);
                    }
                    if let Some(at) = terms.at {
                        body["timestamp"] =
                            json!(Duration::from_micros(at.as_micros()).as_secs_f64());
                    }
                    let body = body.to_string();
                    if let Some(reply) = call.ask(AskedCall::Explain, &seen, &body).await {
                        return Ok(reply);
                    }
                    let unlisted = meant::find_unlisted(admin, &client, rule.as_deref()).await;
                    unlisted.map_err(|_| unanswered(&seen))?
                }
            };
            let attributes = terms.of(client.attributes());
            written(call, &attributes, Some(&client)).await
        }
    };
    Ok(super::json(StatusCode::OK, answer))
}

fn by_unit(costs: &Costs) -> Value {
    let units = costs.units().iter();
    let entry = |(unit, cost): &(CostUnit, u64)| (unit.to_string(), json!(cost));
    Value::Object(units.map(entry).collect())
}

/// The most bytes of an answer.
const MOST: usize = 1 << 20;

/// The most bytes of the limits of its decision.
const MOST_LIMITS: usize = MOST / 4;

/// The most tiers of a rule that are offered.
const MOST_TIERS: usize = 100;

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

/// The explanation of a request, as JSON; with `client`, of the last one of a client.
async fn written(
    call: ClientCall<'_>,
    attributes: &Attributes<'_>,
    client: Option<&MeantClient>,
) -> Vec<u8> {
    let admin = call.admin;
    let show = |name: &str, value: &str| {
        let shown = match client {
            Some(client) => client.shown(name, value),
            None => Some(admin.shown(name, value)),
        };
        let shown = shown.unwrap_or_else(|| admin.shown_of_client(name, value));
        cut(&call.published(value, shown))
    };
    let explanation = admin.gate.explain(attributes, &show).await;
    let mut members = shown_attributes(attributes, show);
    if let Some(client) = client {
        let last = client.last.as_ref().zip(admin.activity.as_ref());
        let last = last.map(|(last, activity)| {
            let mut written = last_json(last, &activity.instance);
            for kept in &last.attributes {
                let shown = kept.shown.value.to_string();
                written["attributes"][&*kept.shown.attribute] =
                    json!(call.published(kept.value(), shown));
            }
            written
        });
        let _ = write!(members, r#","last":{}"#, json!(last));
    }
    write_answer(&explanation, members, admin.decider.headers)
}

/// The attributes that are explained, as a member of the answer.
fn shown_attributes(attributes: &Attributes<'_>, show: impl Fn(&str, &str) -> String) -> Vec<u8> {
    let shown = attributes.iter();
    let shown = shown.map(|(name, value)| (name.to_owned(), json!(show(name, value))));
    let shown = Value::Object(shown.collect());
    format!(r#","attributes":{shown}"#).into_bytes()
}

/// The answer: the rules, these members, and the rest.
fn write_answer(explanation: &Explanation, members: Vec<u8>, headers: HeaderSettings) -> Vec<u8> {
    let mut rest = members;
    write_rest(&mut rest, explanation, headers);
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
    let grant = explained.grant.as_ref().map(grant_json);
    let key = explained.key.as_ref().map(|key| {
        let values = key
            .iter()
            .map(|(name, value)| (name.clone(), json!(cut(value))));
        Value::Object(values.collect())
    });
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        r#"{{"rule":"{}","applies":{},"failed":{},"grant":{},"key":{},"#,
        explained.rule.id(),
        explained.applies(),
        json!(failed),
        json!(grant),
        json!(key),
    );
    let _ = match &explained.tier {
        None if explained.applies() => write!(out, r#""tier":null,"#),
        Some(ExplainedTier::Unknown(tiers)) => {
            let tiers = tiers.iter().take(MOST_TIERS);
            let tiers = tiers.map(|(name, limit)| (cut(name), json!(cut(limit))));
            let tiers = Value::Object(tiers.collect());
            write!(out, r#""tier":"unknown","tiers":{tiers},"#)
        }
        Some(ExplainedTier::Known(tier)) => write!(out, r#""tier":{},"#, json!(cut(tier))),
        None | Some(_) => Ok(()),
    };
    write_limits(out, explanation, &explained.rule);
    out.extend_from_slice(br#","candidate":"#);
    match &explained.candidate {
        Some(candidate) => {
            let _ = write!(
                out,
                r#"{{"grant":{},"decides":{},"#,
                grant_json(&candidate.grant),
                candidate.decides,
            );
            write_limits(out, explanation, &candidate.rule);
            out.push(b'}');
        }
        None => out.extend_from_slice(b"null"),
    }
    let rollout = explained.rollout;
    let rollout = rollout.map(|(share, is_in)| json!({"percent": share.percent(), "in": is_in}));
    let _ = write!(out, r#","rollout":{}}}"#, json!(rollout));
}

fn grant_json(grant: &ExplainedGrant) -> Value {
    json!({"from": grant.source.name(), "value": cut(&grant.text)})
}

/// The member `limits` of a rule, or of its candidate.
fn write_limits(out: &mut Vec<u8>, explanation: &Explanation, rule: &Rule) {
    out.extend_from_slice(br#""limits":["#);
    for (index, limit) in explanation.limits_of(rule).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        answer::write_explained_limit(out, &limit);
    }
    out.push(b']');
}
