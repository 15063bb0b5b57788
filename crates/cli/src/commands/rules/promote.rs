//! `tidegate rules promote`: takes a rule that is tried to its next step.

use clap::Args;
use serde_json::{Value, json};
use tidegate::document::write_yaml;
use tidegate::rules::RuleSettings;

use super::diff::diff_text;
use super::remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, counted, plain};

#[derive(Debug, Args)]
pub(super) struct PromoteArgs {
    /// The rule's id
    id: String,

    /// Only show what would change, and what limit and candidate denied in the last 24 hours
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &PromoteArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let id = args.id.as_str();
    let Some(mut rule) = remote::find(client, id)? else {
        remote::note_missing(id, json)?;
        return Ok(Answer::No);
    };
    remote::drop_computed(&mut rule);
    let body = if args.dry_run {
        json!({"dry_run": true})
    } else {
        json!({})
    };
    let reply = client.post(&format!("/v1/rules/{id}/promote"), &body)?;
    if reply.status == 409 {
        let read = remote::understood(&rule, &RuleSettings::default());
        match read.map(|rule| rule.promoted()) {
            Some(None) => return nothing(id, json),
            Some(Some(promoted)) => show_lines(&promoted, json)?,
            None => {}
        }
    }
    let reply = reply.accept(&[200, 404, 422])?;
    match reply.status {
        404 => {
            remote::note_missing(id, json)?;
            return Ok(Answer::No);
        }
        422 => return nothing(id, json),
        _ => {}
    }
    if !args.dry_run {
        output::print_either(json, &reply.body, || format!("promoted {id}\n"))?;
        return Ok(Answer::Yes);
    }
    let (mut body, day) = (reply.body.clone(), LastDay::of(client, id)?);
    if !json {
        reply.part("text")?;
    }
    if let (Some(body), Some(day)) = (body.as_object_mut(), &day) {
        body.insert("last_24_hours".to_owned(), day.to_json());
    }
    output::print_either(json, &body, || {
        let is_rolled_out = rule.get("rollout").is_some();
        let day = day.map(|day| day.text(is_rolled_out)).unwrap_or_default();
        diff_text(&body) + &day
    })?;
    Ok(Answer::Yes)
}

/// Reports that a rule has no next step.
fn nothing(id: &str, json: bool) -> anyhow::Result<Answer> {
    let message = format!(
        "there is nothing to promote in rule `{}`: it has no `candidate`, no `rollout` and no `mode: shadow`",
        plain(id)
    );
    if json {
        output::note(&format!("{:#}\n", json!({ "error": message })))?;
    } else {
        output::note(&format!("{message}\n"))?;
    }
    Ok(Answer::No)
}

/// Prints a rule as it has to be written in the file that rules come from.
pub(super) fn show_lines(rule: &Value, json: bool) -> anyhow::Result<()> {
    let lines = json!({ "rules": [rule] });
    output::print_either(json, &lines, || write_yaml(&lines))?;
    Ok(())
}

/// What a rule did in the last 24 hours, as far as the server knows.
struct LastDay {
    allowed: u64,
    denied: u64,
    candidate_denied: u64,
}

impl LastDay {
    /// None if the server keeps no activity.
    fn of(client: &ApiClient, id: &str) -> anyhow::Result<Option<Self>> {
        let reply = client.get("/v1/activity?window=24h&limit=1000")?;
        let reply = reply.accept(&[200, 404])?;
        let rules = reply.body.get("rules").and_then(Value::as_array);
        let mut rules = rules.into_iter().flatten();
        let rule = rules.find(|rule| rule.get("rule").and_then(Value::as_str) == Some(id));
        let sum = |name: &str| {
            let counts = rule
                .and_then(|rule| rule.get(name))
                .and_then(Value::as_array);
            let counts = counts.into_iter().flatten().filter_map(Value::as_u64);
            counts.fold(0, u64::saturating_add)
        };
        Ok((reply.status == 200).then(|| Self {
            allowed: sum("allowed"),
            denied: sum("denied").saturating_add(sum("shadow_denied")),
            candidate_denied: sum("candidate_denied"),
        }))
    }

    fn to_json(&self) -> Value {
        json!({"allowed": self.allowed, "denied": self.denied, "candidate_denied": self.candidate_denied})
    }

    fn text(&self, is_rolled_out: bool) -> String {
        // For keys in the rollout it was the candidate that decided.
        let by = if is_rolled_out {
            "by what decided"
        } else {
            "by the limit"
        };
        let requests = self.allowed.saturating_add(self.denied);
        let requests = usize::try_from(requests).unwrap_or(usize::MAX);
        format!(
            "in the last 24 hours, of {}: denied {by} {}, by the candidate {}\n",
            counted(requests, "request"),
            self.denied,
            self.candidate_denied
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_is_one_line() {
        let day = LastDay {
            allowed: 40,
            denied: 2,
            candidate_denied: 9,
        };
        assert_eq!(
            day.text(false),
            "in the last 24 hours, of 42 requests: denied by the limit 2, by the candidate 9\n"
        );
        assert!(day.text(true).contains("denied by what decided 2,"));
    }
}
