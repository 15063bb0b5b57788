//! Asks the server again and again, in a thread of its own, so that the keyboard never waits for the network.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::activity::{ServerActivity, TopKeys};
use super::{ActivityWindow, KeySort, RuleSort};
use crate::client::{ApiClient, Refused};

/// How often the server is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// Answers may take up to one part in this many of the time, for servers with many rules.
const PARTS: u32 = 5;

/// What is to be shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) window: ActivityWindow,
    pub(super) sort: RuleSort,
    pub(super) keys: KeySort,
    /// The rule whose keys are shown; the first one if there is none.
    pub(super) rule: Option<String>,
}

/// What the server answered.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub(super) activity: ServerActivity,
    /// The rule whose keys these are.
    pub(super) rule: Option<String>,
    /// `None` if there is no such rule any more.
    pub(super) keys: Option<TopKeys>,
    answers: (Value, Value),
}

impl Fetched {
    /// The answers themselves.
    pub(super) fn to_json(&self) -> Value {
        let (activity, keys) = &self.answers;
        json!({"activity": activity, "rule": self.rule, "keys": keys})
    }

    #[cfg(test)]
    pub(super) fn of(activity: &Value, rule: &str, keys: &Value) -> Self {
        Self {
            activity: ServerActivity::of(activity),
            rule: Some(rule.to_owned()),
            keys: Some(TopKeys::of(keys)),
            answers: (activity.clone(), keys.clone()),
        }
    }
}

/// Asks the server once.
pub(super) fn fetch(client: &ApiClient, wanted: &Wanted) -> anyhow::Result<Fetched> {
    let path = format!("/v1/activity?window={}", wanted.window.name());
    let reply = client.get(&path)?.accept(&[200])?;
    reply.part("total")?;
    let activity = ServerActivity::of(&reply.body);
    let first = || {
        let sorted = activity.sorted(wanted.sort);
        sorted.first().map(|first| first.rule.clone())
    };
    let rule = wanted.rule.clone().or_else(first);
    let keys = match &rule {
        Some(rule) => keys_of(client, rule, wanted)?,
        None => None,
    };
    Ok(Fetched {
        rule,
        keys: keys.as_ref().map(TopKeys::of),
        answers: (reply.body, keys.unwrap_or_default()),
        activity,
    })
}

/// The top keys of a rule; `None` if there is no such rule.
fn keys_of(client: &ApiClient, rule: &str, wanted: &Wanted) -> anyhow::Result<Option<Value>> {
    let id = utf8_percent_encode(rule, NON_ALPHANUMERIC);
    // What an id consists of stays as it is.
    let id = id.to_string().replace("%2D", "-").replace("%5F", "_");
    let id = id.replace("%2E", ".");
    let (sort, window) = (wanted.keys.name(), wanted.window.of_keys());
    let path = format!("/v1/rules/{id}/keys?sort={sort}&window={window}");
    let reply = client.get(&path)?.accept(&[200, 404])?;
    Ok((reply.status == 200).then_some(reply.body))
}

/// News for the screen.
pub(super) enum Update {
    Data(Box<Fetched>),
    /// The server could not be asked, and why.
    Lost(String),
    /// The process is asked to end.
    Stop,
}

/// What is wanted, and how to wake the thread when that changes.
#[derive(Clone)]
pub(super) struct Order(Arc<(parking_lot::Mutex<Wanted>, parking_lot::Condvar)>);

impl Order {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self(Arc::new((
            parking_lot::Mutex::new(wanted),
            parking_lot::Condvar::new(),
        )))
    }

    /// Asks for something else, immediately.
    pub(super) fn change(&self, wanted: &Wanted) {
        let (order, changed) = &*self.0;
        *order.lock() = wanted.clone();
        changed.notify_one();
    }

    /// Waits until something else is wanted than before, but no longer than `pause`.
    fn wait(&self, before: &Wanted, pause: Duration) {
        let (order, changed) = &*self.0;
        let mut order = order.lock();
        changed.wait_while_for(&mut order, |wanted| *wanted == *before, pause);
    }

    fn wanted(&self) -> Wanted {
        self.0.0.lock().clone()
    }
}

/// Asks until the receiver is gone.
pub(super) fn keep_asking(client: &ApiClient, order: &Order, updates: &Sender<Update>) {
    loop {
        let (wanted, start) = (order.wanted(), Instant::now());
        let update = match fetch(client, &wanted) {
            Ok(fetched) => Update::Data(Box::new(fetched)),
            Err(error) => Update::Lost(match error.downcast_ref::<Refused>() {
                Some(refused) => refused.message.clone(),
                None => format!("{error:#}"),
            }),
        };
        if updates.send(update).is_err() {
            return;
        }
        let took = start.elapsed();
        let pause = PERIOD.saturating_sub(took).max(took * (PARTS - 1));
        order.wait(&wanted, pause);
    }
}
