//! `TG.CHECK` of a server that speaks the protocol of Redis. It has no headers, and goes by its clock.

use serde_json::{Value as Json, json};

use super::Ask;
use super::scenario::{Scenario, Step};
use super::seen::{Seen, Times};
use crate::Server;
use crate::resp::{Client, Value};
use tidegate_testkit_server::TestFolder;

pub(super) struct Resp {
    client: Client,
    _server: Server,
    _place: TestFolder,
}

impl Resp {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.json", &scenario.rules_file());
        let server = folder.serve(&["--resp", "127.0.0.1:0", "--rules", "rules.json"]);
        Self {
            client: Client::to(&server),
            _server: server,
            _place: folder,
        }
    }
}

impl Ask for Resp {
    fn times(&self) -> Times {
        Times::Flowing
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let mut words = vec!["TG.CHECK".to_owned()];
        for (name, value) in step.known() {
            words.extend([name.to_owned(), value.to_owned()]);
        }
        if let Some(cost) = step.cost {
            words.extend(["COST".to_owned(), cost.to_string()]);
        }
        let reply = match self.client.ask_words(&words) {
            Value::Array(reply) => reply,
            Value::Error(_) => return Seen::refused(),
            other => panic!("`{}` is answered by {other:?}", words.join(" ")),
        };
        let reply = |key: &str| {
            let folder = reply.iter().position(|value| *value == Value::text(key));
            Some(plain(&reply[folder.unwrap() + 1]))
        };
        Seen {
            allowed: reply("allowed") == Some(json!(1)),
            is_refused: false,
            rule: reply("rule"),
            limit: reply("limit"),
            remaining: reply("remaining"),
            // Seconds are text, because the second version has whole numbers only.
            retry_after: reply("retry_after").map(|wait| match wait.as_str() {
                Some(text) => json!(text.parse::<f64>().unwrap()),
                None => wait,
            }),
            reason: reply("reason"),
            missing: None,
            headers: None,
        }
    }
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Integer(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Null => Json::Null,
        other => panic!("not one value: {other:?}"),
    }
}
