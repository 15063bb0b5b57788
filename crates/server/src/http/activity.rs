//! Live activity: recent counts, and the top keys.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};
use tidegate::Micros;
use tidegate::printable::escaped;
use tidegate_activity::{KeySort, KeyWindow};

use super::call::ApiCall;
use super::query::parameters;
use super::rules;
use crate::activity::{
    ActivityQuestion, AnswerParts, ClientsQuestion, DeniedQuestion, KeysQuestion, OtherInstance,
    ServerActivity, activity_json, clients_json, denied_json, keys_json, now,
};
use crate::admin::Admin;
use crate::data_dir::Row;
use crate::overrides::{HistoryRow, OverrideBook};
use crate::problem::{ApiReply, HttpProblem};

/// `GET /v1/activity`: counts over time.
pub(super) async fn activity(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let activity = need_activity(admin)?;
    let question = activity_question(&call.parts)?;
    let body = current(admin, activity, question).await;
    Ok(super::json(StatusCode::OK, body))
}

/// The counts up to now, as JSON.
pub(super) async fn current(
    admin: &Admin,
    activity: &Arc<ServerActivity>,
    question: ActivityQuestion,
) -> String {
    let history = activity
        .changes
        .of(admin.book.version(), admin.book.history())
        .await;
    // A window begins with a whole minute.
    let from = now().saturating_sub(question.window + 60);
    let changes = changes_since(from, &history, &admin.overrides);
    let others = others(admin, activity, question.is_own).await;
    let (activity, rules) = (Arc::clone(activity), admin.gate.rules());
    // An answer with many rules takes some milliseconds.
    let writing = tokio::task::spawn_blocking(move || {
        activity.sample(&rules);
        let parts = AnswerParts {
            activity: &activity,
            others: &others,
            rules: &rules,
            now: now(),
        };
        activity_json(&parts, &question, &changes)
    });
    writing.await.unwrap_or_default()
}

/// The changes of rules and temporary overrides since a time, the oldest first.
fn changes_since(from: u64, history: &[Row], overrides: &OverrideBook) -> Vec<(u64, Value)> {
    let at = |row: &Row| row.at.as_micros() / 1_000_000;
    let rules = history.iter().filter(|row| at(row) >= from).cloned();
    let mut rows = overrides.with_rows(rules.collect());
    rows.retain(|changed| at(&changed.row) >= from);
    rows.reverse();
    // A clock may have been set back.
    rows.sort_by_key(|changed| changed.row.at);
    let written = |HistoryRow { row, mark }: &HistoryRow| {
        let mut change = json!({"at": at(row), "version": row.version, "by": row.by});
        if let Some(mark) = mark {
            change["override"] = json!(mark);
        }
        (at(row), change)
    };
    rows.iter().map(written).collect()
}

/// The parts of the other instances, unless only this one is asked.
async fn others(admin: &Admin, activity: &ServerActivity, is_own: bool) -> Arc<[OtherInstance]> {
    let redis = admin.store.redis().filter(|_| !is_own);
    activity.others(redis).await
}

/// `GET /v1/rules/{id}/keys`: the keys with the largest counts.
pub(super) async fn keys(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (admin, [id, _]) = (&call.api.admin, call.names);
    let activity = need_activity(admin)?;
    let question = keys_question(&call.parts)?;
    if admin.gate.rules().get(&id).is_none() {
        super::need_rules(&admin.decider)?;
        return Err(rules::no_such_rule(&id));
    }
    let others = others(admin, activity, question.is_own).await;
    let (activity, rules) = (Arc::clone(activity), admin.gate.rules());
    // Many keys take some milliseconds to sort.
    let writing = tokio::task::spawn_blocking(move || {
        let parts = AnswerParts {
            activity: &activity,
            others: &others,
            rules: &rules,
            now: now(),
        };
        keys_json(&parts, &id, &question)
    });
    let body = writing.await.unwrap_or_default();
    Ok(super::json(StatusCode::OK, body))
}

/// `GET /v1/denied`: samples of denied requests.
pub(super) async fn denied(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [rule, key, limit] = parameters(&call.parts, ["rule", "key", "limit"])?;
    let limit = limit_of(limit.as_deref(), 100, 100)?;
    let question = DeniedQuestion { rule, key, limit };
    let admin = &call.api.admin;
    if let Some(id) = &question.rule
        && admin.gate.rules().get(id).is_none()
    {
        super::need_rules(&admin.decider)?;
        return Err(rules::no_such_rule(id));
    }
    answered(admin, move |parts| denied_json(parts, &question)).await
}

/// `GET /v1/clients`: clients of all rules by their values.
pub(super) async fn clients(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [search, limit] = parameters(&call.parts, ["search", "limit"])?;
    let limit = limit_of(limit.as_deref(), 20, 100)?;
    let question = ClientsQuestion { search, limit };
    answered(&call.api.admin, move |parts| clients_json(parts, &question)).await
}

/// An answer for all instances. Writing it may take some milliseconds.
async fn answered(
    admin: &Admin,
    write: impl FnOnce(&AnswerParts<'_>) -> String + Send + 'static,
) -> Result<ApiReply, HttpProblem> {
    let activity = need_activity(admin)?;
    let others = others(admin, activity, false).await;
    let (activity, rules) = (Arc::clone(activity), admin.gate.rules());
    let writing = tokio::task::spawn_blocking(move || {
        write(&AnswerParts {
            activity: &activity,
            others: &others,
            rules: &rules,
            now: now(),
        })
    });
    let body = writing.await.unwrap_or_default();
    Ok(super::json(StatusCode::OK, body))
}

pub(super) fn need_activity(admin: &Admin) -> Result<&Arc<ServerActivity>, HttpProblem> {
    let activity = admin.activity.as_ref();
    activity.ok_or_else(|| {
        HttpProblem::not_found(
            "live activity is off; remove `activity: off` from the settings to have it",
        )
    })
}

/// The window of `GET /v1/activity` if none is asked for, in seconds.
const WINDOW: u64 = 300;

pub(super) fn activity_question(parts: &Parts) -> Result<ActivityQuestion, HttpProblem> {
    let [window, scope, limit] = parameters(parts, ["window", "scope", "limit"])?;
    Ok(ActivityQuestion {
        window: window.map_or(Ok(WINDOW), |window| window_seconds(&window))?,
        is_own: is_own(scope.as_deref())?,
        rules: limit_of(limit.as_deref(), 100, 1_000)?,
    })
}

fn keys_question(parts: &Parts) -> Result<KeysQuestion, HttpProblem> {
    let [sort, window, scope, limit] = parameters(parts, ["sort", "window", "scope", "limit"])?;
    let sorts = [
        ("denied", (KeySort::Denied, false)),
        ("used", (KeySort::Used, false)),
        ("candidate_denied", (KeySort::Denied, true)),
    ];
    let (sort, is_candidate) = one_of("sort", sort.as_deref(), sorts)?;
    let windows = [("1m", KeyWindow::Minute), ("1h", KeyWindow::Hour)];
    Ok(KeysQuestion {
        sort,
        is_candidate,
        window: one_of("window", window.as_deref(), windows)?,
        is_own: is_own(scope.as_deref())?,
        keys: limit_of(limit.as_deref(), 20, 100)?,
    })
}

fn window_seconds(text: &str) -> Result<u64, HttpProblem> {
    let day = 24 * 60 * 60;
    let micros = text.parse::<Micros>().ok();
    let seconds = micros.map(|micros| micros.get() / 1_000_000);
    seconds
        .filter(|seconds| (60..=day).contains(seconds))
        .ok_or_else(|| {
            let text = shown(text);
            HttpProblem::bad_request(format!(
                "`window` must be a time from `1m` to `24h`, not `{text}`"
            ))
        })
}

fn is_own(scope: Option<&str>) -> Result<bool, HttpProblem> {
    one_of("scope", scope, [("all", false), ("instance", true)])
}

/// The value of the word that is given, or of the first one.
fn one_of<T: Copy, const N: usize>(
    name: &str,
    given: Option<&str>,
    words: [(&str, T); N],
) -> Result<T, HttpProblem> {
    let given = given.unwrap_or(words[0].0);
    let found = words.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known = words.map(|(word, _)| word).join("`, `");
        let given = shown(given);
        HttpProblem::bad_request(format!("`{name}` must be one of `{known}`, not `{given}`"))
    })
}

fn limit_of(given: Option<&str>, default: usize, most: usize) -> Result<usize, HttpProblem> {
    let Some(given) = given else {
        return Ok(default);
    };
    let is_number = given.bytes().all(|byte| byte.is_ascii_digit());
    let number = given.parse().ok().filter(|_| is_number);
    number
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| {
            let given = shown(given);
            HttpProblem::bad_request(format!(
                "`limit` must be a whole number from 1 to {most}, not `{given}`"
            ))
        })
}

/// A value of a parameter as errors show it.
fn shown(given: &str) -> String {
    escaped(given).chars().take(64).collect()
}
