//! `POST /v1/feedback`: results of requests that were decided over HTTP, for adaptive limits.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate::gate::Feedback;
use tidegate::{Ended, Micros};

use super::body;
use super::call::ApiCall;
use crate::problem::{ApiReply, HttpProblem};

/// How many reports one call may have.
const MAX_REPORTS: usize = 1_000;
/// The longest latency, in seconds.
const MAX_LATENCY: f64 = 3_600.0;

/// A body: one report, or a list of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'b> {
    #[serde(default, borrow)]
    feedback: Option<Vec<&'b RawValue>>,
    #[serde(default, borrow)]
    rule: Option<Cow<'b, str>>,
    #[serde(default)]
    latency: Option<f64>,
    #[serde(default)]
    dropped: Option<bool>,
}

/// The result of one request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Report<'b> {
    #[serde(borrow)]
    rule: Cow<'b, str>,
    #[serde(default)]
    latency: Option<f64>,
    #[serde(default)]
    dropped: Option<bool>,
}

/// Every report is read and checked before the first counts.
pub(super) async fn feedback(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let decider = &call.api.decider;
    super::need_rules(decider)?;
    let body = call.body.read(&decider.bodies).await?;
    let (reports, is_list) = read(&body)?;
    let mut ended = Vec::with_capacity(reports.len());
    for (index, report) in reports.iter().enumerate() {
        let rule = report.rule.as_ref();
        match report.ended() {
            Ok(ended_so) => ended.push(Feedback {
                rule,
                ended: ended_so,
            }),
            Err(problem) => return Err(in_list(problem, is_list, index)),
        }
    }
    decider.gate.feedback(&ended).map_err(|error| {
        let index = error.index();
        in_list(HttpProblem::from(error), is_list, index)
    })?;
    Ok(super::no_content())
}

/// The reports of a body, and whether they are a list.
fn read(body: &[u8]) -> Result<(Vec<Report<'_>>, bool), HttpProblem> {
    let Body {
        feedback,
        rule,
        latency,
        dropped,
    } = body::parse(body)?;
    let Some(list) = feedback else {
        let rule = rule.ok_or_else(|| {
            HttpProblem::bad_request(
                "`rule` is missing; send for example {\"rule\": \"upstream\", \"latency\": 0.12}, or a list of such as `feedback`",
            )
        })?;
        let report = Report {
            rule,
            latency,
            dropped,
        };
        return Ok((vec![report], false));
    };
    if rule.is_some() || latency.is_some() || dropped.is_some() {
        return Err(HttpProblem::bad_request(
            "a body has one report or the list `feedback`, not both; put the report into the list",
        ));
    }
    if list.len() > MAX_REPORTS {
        return Err(HttpProblem::bad_request(format!(
            "`feedback` may have at most {MAX_REPORTS} reports, this has {}; split it",
            list.len()
        )));
    }
    let reports: Result<Vec<Report<'_>>, HttpProblem> = list
        .into_iter()
        .enumerate()
        .map(|(index, report)| body::parse_part(report, || format!("feedback[{index}]")))
        .collect();
    Ok((reports?, true))
}

impl Report<'_> {
    fn ended(&self) -> Result<Ended, HttpProblem> {
        if let Some(latency) = self.latency
            && !(0.0..=MAX_LATENCY).contains(&latency)
        {
            return Err(HttpProblem::bad_request(format!(
                "`latency` must be seconds from 0 to {MAX_LATENCY}, not {latency}"
            )));
        }
        match (self.dropped, self.latency) {
            (Some(true), _) => Ok(Ended::Dropped),
            (_, Some(latency)) => Ok(Ended::Answered(micros(latency))),
            (_, None) => Err(HttpProblem::bad_request(
                "`latency` is missing; give the seconds until the answer, or `\"dropped\": true`",
            )),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "in range, as checked above"
)]
fn micros(seconds: f64) -> Micros {
    Micros::new((seconds * 1_000_000.0).round() as u64)
}

/// The problem, with the index of its report.
fn in_list(problem: HttpProblem, is_list: bool, index: usize) -> HttpProblem {
    if is_list {
        problem.in_part(&format!("feedback[{index}]"))
    } else {
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_by_hand() {
        let answered = |micros| Ok(Ended::Answered(Micros::new(micros)));
        #[rustfmt::skip]
        let table = [
            (r#"{"rule": "a", "latency": 0.25}"#,                     answered(250_000)),
            (r#"{"rule": "a", "latency": 0}"#,                        answered(0)),
            (r#"{"rule": "a", "latency": -0.0}"#,                     answered(0)),
            (r#"{"rule": "a", "latency": 3600}"#,                     answered(3_600_000_000)),
            (r#"{"rule": "a", "latency": 1e-6, "dropped": false}"#,   answered(1)),
            (r#"{"rule": "a", "dropped": true}"#,                     Ok(Ended::Dropped)),
            (r#"{"rule": "a", "latency": 5, "dropped": true}"#,       Ok(Ended::Dropped)),
            (r#"{"feedback": [{"rule": "a", "latency": 2}]}"#,        answered(2_000_000)),
            (r#"{"rule": "a", "latency": 3600.1}"#,                   Err("seconds from 0 to 3600")),
            (r#"{"rule": "a", "latency": -0.1}"#,                     Err("seconds from 0 to 3600")),
            (r#"{"rule": "a", "latency": -1, "dropped": true}"#,      Err("seconds from 0 to 3600")),
            (r#"{"rule": "a"}"#,                                      Err("`latency` is missing")),
            (r#"{"rule": "a", "dropped": false}"#,                    Err("`latency` is missing")),
            (r#"{"latency": 1}"#,                                     Err("`rule` is missing")),
            ("{}",                                                  Err("`rule` is missing")),
            (r#"{"rule": 1, "latency": 1}"#,                          Err("expected a string")),
            (r#"{"rule": "a", "latency": "1"}"#,                      Err("expected f64")),
            (r#"{"rule": "a", "latency": 1, "dropped": 1}"#,          Err("expected a boolean")),
            (r#"{"rule": "a", "latncy": 1}"#,                         Err("unknown field `latncy`")),
            (r#"{"rule": "a", "feedback": []}"#,                      Err("not both")),
            (r#"{"feedback": [["a", 1]]}"#,                           Err("feedback[0] must be a JSON object")),
            (r#"{"feedback": [{"rule": "a", "latency": 1}, {}]}"#,    Err("feedback[1] is invalid: missing field `rule`")),
            (r#"[null, "a", 1, false]"#,                              Err("must be a JSON object")),
            (r#"{"feedback": {}}"#,                                   Err("expected a sequence")),
        ];
        for (body, expected) in table {
            let read = read(body.as_bytes()).and_then(|(reports, _)| reports[0].ended());
            match (read, expected) {
                (Ok(ended), Ok(wanted)) => assert_eq!(ended, wanted, "{body}"),
                (Err(problem), Err(wanted)) => {
                    let problem = format!("{problem:?}");
                    let wanted = format!("{wanted:?}");
                    assert!(
                        problem.contains(wanted.trim_matches('"')),
                        "{body}: {problem}"
                    );
                }
                (read, _) => panic!("{body}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_list_has_a_thousand_reports_at_the_most() {
        let body = |count: usize| {
            let reports = vec![r#"{"rule":"a","latency":1}"#; count];
            format!(r#"{{"feedback":[{}]}}"#, reports.join(","))
        };
        assert_eq!(
            read(body(MAX_REPORTS).as_bytes()).unwrap().0.len(),
            MAX_REPORTS
        );
        assert_eq!(read(br#"{"feedback":[]}"#).unwrap().0.len(), 0);
        let problem = read(body(MAX_REPORTS + 1).as_bytes()).err().unwrap();
        assert!(format!("{problem:?}").contains("split it"));
    }
}
