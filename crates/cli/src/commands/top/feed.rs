//! Asks the server again and again, in a thread of its own, so that the keyboard never waits for the network.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tidegate::{Clock as _, SystemClock};

use super::activity::{ShownActivity, ShownKeys};
use super::{ActivityWindow, Choice as _, KeyOrder, RuleOrder};
use crate::client::{ApiClient, Refused};

/// How often the server is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// Answers may take up to one part in this many of the time, for servers with many rules.
const PARTS: u32 = 5;

/// The characters that are escaped in a path; ids of rules have none.
const IN_PATH: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The question to the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TopQuestion {
    pub(super) window: ActivityWindow,
    pub(super) sort: RuleOrder,
    pub(super) keys: KeyOrder,
    /// The rule whose keys are shown; the first one if there is none.
    pub(super) rule: Option<String>,
}

/// The server's answer.
#[derive(Debug, Clone)]
pub(super) struct TopAnswer {
    pub(super) activity: ShownActivity,
    /// The rule of these keys.
    pub(super) rule: Option<String>,
    /// `None` if there is no such rule any more.
    pub(super) keys: Option<ShownKeys>,
    answers: (Value, Value),
}

impl TopAnswer {
    /// The answers themselves.
    pub(super) fn to_json(&self) -> Value {
        let (activity, keys) = &self.answers;
        json!({"activity": activity, "rule": self.rule, "keys": keys})
    }

    #[cfg(test)]
    pub(super) fn from_json(activity: &Value, rule: &str, keys: &Value) -> Self {
        Self {
            activity: ShownActivity::from_json(activity),
            rule: Some(rule.to_owned()),
            keys: Some(ShownKeys::from_json(keys)),
            answers: (activity.clone(), keys.clone()),
        }
    }
}

/// Asks the server once.
pub(super) fn fetch(client: &ApiClient, wanted: &TopQuestion) -> anyhow::Result<TopAnswer> {
    let path = format!("/v1/activity?window={}", wanted.window.name());
    let reply = client.get(&path)?.accept(&[200])?;
    reply.part("total")?;
    let activity = ShownActivity::from_json(&reply.body);
    let first = || {
        let sorted = activity.sorted(wanted.sort);
        sorted.first().map(|first| first.rule.clone())
    };
    let rule = wanted.rule.clone().or_else(first);
    let keys = match &rule {
        Some(rule) => keys_of(client, rule, wanted)?,
        None => None,
    };
    Ok(TopAnswer {
        rule,
        keys: keys.as_ref().map(ShownKeys::from_json),
        answers: (reply.body, keys.unwrap_or_default()),
        activity,
    })
}

/// The top keys of a rule; `None` if there is no such rule.
fn keys_of(client: &ApiClient, rule: &str, wanted: &TopQuestion) -> anyhow::Result<Option<Value>> {
    let id = utf8_percent_encode(rule, &IN_PATH);
    let (sort, window) = (wanted.keys.name(), wanted.window.of_keys());
    let path = format!("/v1/rules/{id}/keys?sort={sort}&window={window}");
    let reply = client.get(&path)?.accept(&[200, 404])?;
    Ok((reply.status == 200).then_some(reply.body))
}

/// News for the screen.
pub(super) enum TopNews {
    Data(Box<TopAnswer>),
    /// The server could not be asked, and why.
    Lost(String),
    /// The process is asked to end.
    Stop,
}

/// What is wanted, and how to wake the thread when that changes.
#[derive(Clone)]
pub(super) struct SharedQuestion(Arc<(parking_lot::Mutex<TopQuestion>, parking_lot::Condvar)>);

impl SharedQuestion {
    pub(super) fn new(wanted: TopQuestion) -> Self {
        Self(Arc::new((
            parking_lot::Mutex::new(wanted),
            parking_lot::Condvar::new(),
        )))
    }

    /// Asks for something else, immediately.
    pub(super) fn change(&self, wanted: &TopQuestion) {
        let (question, changed) = &*self.0;
        *question.lock() = wanted.clone();
        changed.notify_one();
    }

    /// Waits until something else is wanted than before, but no longer than `pause`.
    fn wait(&self, before: &TopQuestion, pause: Duration) {
        let (question, changed) = &*self.0;
        let mut question = question.lock();
        changed.wait_while_for(&mut question, |wanted| *wanted == *before, pause);
    }

    fn get(&self) -> TopQuestion {
        self.0.0.lock().clone()
    }
}

/// Asks until the receiver is gone.
pub(super) fn keep_asking(
    client: &ApiClient,
    question: &SharedQuestion,
    updates: &Sender<TopNews>,
) {
    loop {
        let (wanted, start) = (question.get(), SystemClock.now());
        let update = match fetch(client, &wanted) {
            Ok(fetched) => TopNews::Data(Box::new(fetched)),
            Err(error) => TopNews::Lost(match error.downcast_ref::<Refused>() {
                Some(refused) => refused.message.clone(),
                None => format!("{error:#}"),
            }),
        };
        if updates.send(update).is_err() {
            return;
        }
        let took = Duration::from(SystemClock.now().since(start));
        let pause = PERIOD.saturating_sub(took).max(took * (PARTS - 1));
        question.wait(&wanted, pause);
    }
}
