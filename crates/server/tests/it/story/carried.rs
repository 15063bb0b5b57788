//! Front ends that carry the request itself, or what a proxy says of it: the program's gateway and its
//! forward-auth. They answer by status, headers and the problem of one that is denied.

use serde_json::Value as Json;

use super::Ask;
use super::scenario::{PEER, Scenario, Step};
use super::seen::{Seen, Times};
use crate::Server;
use crate::grpc::envoy::Application;
use tidegate_testkit_server::TestFolder;
use tidegate_testkit_server::{ClientReply, HttpClient};

/// `/v1/authorize`, asked by a proxy that is trusted.
pub(super) struct Authorize {
    client: HttpClient,
    _server: Server,
    _place: TestFolder,
}

/// The gateway, before an application that says yes to everything.
pub(super) struct Gateway {
    client: HttpClient,
    _server: Server,
    _place: TestFolder,
    _application: Application,
}

impl Authorize {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.json", &scenario.rules_file());
        folder.write("tidegate.yaml", "trusted_proxies: [127.0.0.0/8]\n");
        let server = folder.serve(&["--rules", "rules.json", "--config", "tidegate.yaml"]);
        Self {
            client: server.client(),
            _server: server,
            _place: folder,
        }
    }
}

impl Gateway {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.json", &scenario.rules_file());
        let application = Application::start();
        let upstream = format!("http://127.0.0.1:{}", application.port());
        let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &upstream];
        let server = folder.serve(&[&["--rules", "rules.json"], &gateway[..]].concat());
        Self {
            client: HttpClient::to(server.gateway.unwrap()),
            _server: server,
            _place: folder,
            _application: application,
        }
    }
}

impl Ask for Authorize {
    fn says_cost(&self) -> bool {
        false
    }

    fn times(&self) -> Times {
        Times::Flowing
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let mut headers: Vec<(&str, &str)> = step.headers().collect();
        headers.push(("x-forwarded-for", PEER));
        let said = [
            ("x-forwarded-method", "method"),
            ("x-forwarded-uri", "path"),
        ];
        let said = said.map(|(header, name)| Some((header, step.get(name)?)));
        headers.extend(said.into_iter().flatten());
        headers.push(("x-forwarded-host", step.host()));
        seen(self.client.ask_with("GET /v1/authorize", &headers, ""))
    }
}

impl Ask for Gateway {
    fn says_cost(&self) -> bool {
        false
    }

    fn times(&self) -> Times {
        Times::Flowing
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let mut headers: Vec<(&str, &str)> = step.headers().collect();
        headers.push(("host", step.host()));
        let (method, path) = (step.get("method").unwrap(), step.get("path").unwrap());
        let reply = self
            .client
            .ask_with(&format!("{method} {path}"), &headers, "");
        if reply.status == 200 {
            assert_eq!(reply.body, "0123456789", "the page of the application");
        }
        seen(reply)
    }
}

fn seen(reply: ClientReply) -> Seen {
    if reply.status == 400 && reply.json()["reason"].is_null() {
        return Seen::refused();
    }
    let allowed = reply.status == 200;
    let mut seen = Seen {
        allowed,
        ..Seen::default()
    };
    if !allowed {
        let problem: Json = reply.json();
        let expected = status_of(&problem);
        assert_eq!(reply.status, expected, "{reply:?}");
        // Where one limit of a rule is violated, it is named after the rule.
        seen.rule = Some(problem["violated-policies"][0].clone());
        seen.reason = Some(problem["reason"].clone());
        seen.missing = Some(problem["missing"].clone());
    }
    seen.headers = Some(reply.headers.into_iter().collect());
    seen
}

/// The status that a denied client gets.
pub(super) fn status_of(problem: &Json) -> u16 {
    match problem["reason"].as_str() {
        Some("missing_attribute") => 400,
        Some("blocked") => 403,
        _ => 429,
    }
}
