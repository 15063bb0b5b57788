//! Temporary overrides through the API: list, add and remove.

use std::sync::Arc;

use http::StatusCode;
use http::header::LOCATION;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use tidegate::rules::{Rule, TemporaryOverride, read_time};
use tidegate::{Clock as _, Micros, SystemClock, Timestamp};

use super::call::ApiCall;
use super::number::whole;
use super::query::parameters;
use super::question::read_timestamp;
use super::rules::{no_such_rule, with_header};
use super::{body, json};
use crate::admin::Admin;
use crate::meant;
use crate::overrides::{ChangedBy, KeptOverride, MeantKey, OverrideChange, OverrideError};
use crate::problem::{ApiReply, HttpProblem};
use crate::seconds::date_time;

/// How far ahead an override may end.
const FARTHEST: Micros = Micros::DAY.times(30);

/// The longest reason, in characters.
const LONGEST_REASON: usize = 200;

/// The longest limit, in bytes.
const LONGEST_LIMIT: usize = 500;

/// A temporary override as a caller sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOverride<'b> {
    key: String,
    #[serde(deserialize_with = "limit")]
    limit: String,
    #[serde(default, borrow, deserialize_with = "raw")]
    expires_at: Option<&'b RawValue>,
    #[serde(default, rename = "for", deserialize_with = "text")]
    lasts: Option<String>,
    #[serde(default, deserialize_with = "text")]
    reason: Option<String>,
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    whole(from, "limit")
}

/// A limit as text, or the number of a concurrency limit.
fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "`limit` must be text such as \"100/minute\", or a whole number for concurrency"
    )]
    enum LimitText {
        Text(String),
        Number(#[serde(deserialize_with = "number")] u64),
    }
    Ok(match LimitText::deserialize(from)? {
        LimitText::Text(text) => text,
        LimitText::Number(number) => number.to_string(),
    })
}

/// A value that may be left out and not be `null`.
fn raw<'de: 'b, 'b, D: Deserializer<'de>>(from: D) -> Result<Option<&'b RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// A text that may be left out and not be `null`.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

impl NewOverride<'_> {
    /// When it ends, by the server's clock.
    fn end(&self, now: Timestamp) -> Result<Timestamp, HttpProblem> {
        let end = match (self.expires_at, &self.lasts) {
            (Some(time), None) => read_end(time.get())?,
            (None, Some(lasts)) => {
                let lasts: Micros = lasts.parse().map_err(|_| {
                    unusable(format!(
                        "`for` must be a duration such as `2h` or `30m`, not `{lasts}`"
                    ))
                })?;
                now + lasts
            }
            (None, None) => {
                return Err(unusable(
                    "a temporary override needs an end; give `for`, such as `2h`, or `expires_at`",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(unusable("give `for` or `expires_at`, not both"));
            }
        };
        if end <= now {
            return Err(unusable(format!(
                "the override would have ended already: it is {} by the server's clock; give a later end",
                date_time(now)
            )));
        }
        if end > now + FARTHEST {
            return Err(unusable(
                "a temporary override may last 30 days at the most; give an earlier end, or add `overrides` to the rule",
            ));
        }
        Ok(end)
    }

    /// Why it is given, if that is said.
    fn reason(&self) -> Result<Option<String>, HttpProblem> {
        let reason = self.reason.as_deref().map(str::trim).unwrap_or_default();
        if reason.chars().count() > LONGEST_REASON {
            return Err(unusable(format!(
                "`reason` may have at most {LONGEST_REASON} characters"
            )));
        }
        Ok((!reason.is_empty()).then(|| reason.to_owned()))
    }
}

/// A time as rules write it, or Unix seconds.
fn read_end(json: &str) -> Result<Timestamp, HttpProblem> {
    let wrong = |message| unusable(format!("`expires_at`: {message}"));
    match serde_json::from_str::<String>(json) {
        Ok(text) => read_time(&text).map_err(wrong),
        Err(_) => read_timestamp(json).ok_or_else(|| {
            wrong("write a time such as `2027-01-01T00:00:00Z`, or Unix seconds".to_owned())
        }),
    }
}

fn unusable(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// The overrides of all rules.
pub(super) fn list(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    listed(call, None)
}

/// The overrides of one rule.
pub(super) fn list_of_rule(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    listed(call, Some(&call.names[0]))
}

fn listed(call: &ApiCall, id: Option<&str>) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    let found = admin.overrides.list(id, SystemClock.now());
    // Overrides of a deleted rule are still listed.
    if let Some(id) = id.filter(|_| found.is_empty()) {
        super::need_rules(&admin.decider)?;
        admin.gate.rules().get(id).ok_or_else(|| no_such_rule(id))?;
    }
    let found: Vec<_> = found.iter().map(written).collect();
    let body = json!({ "overrides": found });
    Ok(json(StatusCode::OK, body.to_string().into_bytes()))
}

fn written(one: &KeptOverride) -> serde_json::Value {
    let mut written = json!({
        "rule": one.rule,
        "key": one.grant.key.text(),
        "limit": one.grant.limit,
        "expires_at": date_time(one.grant.expires_at),
        "reason": one.reason,
        "by": one.by,
        "at": date_time(one.at),
    });
    if let Some(digest) = one.grant.key.digest() {
        written["digest"] = json!(digest);
    }
    written
}

pub(super) async fn put(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let (admin, caller, [id, _]) = (&call.api.admin, call.caller, &call.names);
    let body = call.body.read(&admin.decider.bodies).await?;
    let new: NewOverride<'_> = body::parse(&body)?;
    super::need_rules(&admin.decider)?;
    let rules = admin.gate.rules();
    let rule = rules.get(id).ok_or_else(|| no_such_rule(id))?;
    let now = SystemClock.now();
    let one = KeptOverride {
        rule: id.clone(),
        grant: granted(admin, &rule, &new, now).await?,
        reason: new.reason()?,
        by: caller.name.clone(),
        at: now,
    };
    let reply = json(StatusCode::CREATED, written(&one).to_string().into_bytes());
    let key = one.grant.key.text();
    let named = MeantKey {
        written: new.key,
        read: Some(one.grant.key.clone()),
    };
    let location = format!(
        "/v1/rules/{id}/overrides/{}",
        utf8_percent_encode(&key, NON_ALPHANUMERIC)
    );
    let new = Box::new(one);
    change(admin, &caller.name, now, OverrideChange::Put { new, named }).await?;
    Ok(with_header(reply, LOCATION, &location))
}

/// The key and the grant of a new override, if its rule can have it.
async fn granted(
    admin: &Arc<Admin>,
    rule: &Rule,
    new: &NewOverride<'_>,
    now: Timestamp,
) -> Result<TemporaryOverride, HttpProblem> {
    let key = meant::override_key(admin, rule, &new.key).await?;
    let limit = new.limit.trim();
    let in_limit = |message: String| unusable(format!("`limit`: {message}"));
    if limit.len() > LONGEST_LIMIT {
        return Err(in_limit(format!(
            "it may have at most {LONGEST_LIMIT} bytes"
        )));
    }
    rule.override_grant(limit).map_err(in_limit)?;
    Ok(TemporaryOverride {
        key,
        limit: limit.to_owned(),
        expires_at: new.end(now)?,
    })
}

pub(super) async fn delete(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let (admin, caller, [id, key]) = (&call.api.admin, &call.caller, &call.names);
    super::need_rules(&admin.decider)?;
    let written = percent_decode_str(key).decode_utf8().map_err(|_| {
        HttpProblem::bad_request("the key in the path must be percent-encoded UTF-8")
    })?;
    let rules = admin.gate.rules();
    let rule = rules.get(id);
    let now = SystemClock.now();
    if admin.overrides.list(Some(id), now).is_empty() {
        rule.ok_or_else(|| no_such_rule(id))?;
    }
    let read = |rule: &Rule| {
        let settings = admin.book.settings();
        rule.override_key(&written, settings, &admin.digest).ok()
    };
    let named = MeantKey {
        read: rule.and_then(|rule| read(&rule)),
        written: written.into_owned(),
    };
    let removal = OverrideChange::Remove {
        rule: id.clone(),
        named,
    };
    change(admin, &caller.name, now, removal).await?;
    Ok(super::no_content())
}

/// Makes the change, and finishes it even if the caller disconnects.
async fn change(
    admin: &Arc<Admin>,
    by: &str,
    at: Timestamp,
    change: OverrideChange,
) -> Result<(), HttpProblem> {
    let admin = Arc::clone(admin);
    let changed = ChangedBy {
        by: by.to_owned(),
        at,
        version: admin.book.version(),
    };
    let changing = tokio::spawn(async move {
        let changing = admin.overrides.change(&admin.gate, &change, &changed);
        changing.await
    });
    match changing.await {
        Ok(changed) => changed.map_err(|error: OverrideError| error.into()),
        Err(_) => Err(HttpProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the change was interrupted because the server is shutting down; list the overrides before you repeat it",
        )),
    }
}
