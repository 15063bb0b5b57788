//! `POST /v1/check` of a server that trusts timestamps.

use serde_json::{Map, Value, json};

use super::Ask;
use super::scenario::{NOW, Scenario, Step};
use super::seen::{Seen, Times};
use crate::Server;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

pub(super) struct Http {
    client: HttpClient,
    _server: Server,
    _place: TestFolder,
}

impl Http {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.json", &scenario.rules_file());
        let server = folder.serve(&["--rules", "rules.json", "--trust-timestamps"]);
        Self {
            client: server.client(),
            _server: server,
            _place: folder,
        }
    }
}

impl Ask for Http {
    fn times(&self) -> Times {
        Times::Exact
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let attributes = step.known();
        let attributes: Map<String, Value> = attributes
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let seconds = NOW.as_micros() / 1_000_000;
        let mut check = json!({"attributes": attributes, "timestamp": seconds});
        if let Some(cost) = step.cost {
            check["cost"] = json!(cost);
        }
        let reply = self.client.ask("POST /v1/check", &check.to_string());
        if reply.status == 400 {
            return Seen::refused();
        }
        let mut body = reply.json();
        let allowed = body["allowed"] == true;
        assert_eq!(reply.status, if allowed { 200 } else { 429 }, "{reply:?}");
        let mut take = |key: &str| Some(body[key].take());
        Seen {
            allowed,
            is_refused: false,
            rule: take("rule"),
            limit: take("limit"),
            remaining: take("remaining"),
            retry_after: take("retry_after"),
            reason: take("reason"),
            missing: take("missing"),
            headers: Some(reply.headers.into_iter().collect()),
        }
    }
}
