//! Five concurrent callers of one budget, each of which runs `tidegate reserve` and `tidegate settle`. The case is in the
//! testkit.

use serde_json::Value;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{BudgetFrontEnd, five_callers};

use crate::server::{ProgramFolder, ProgramRun, Server};

const RULES: &str = "rules:
- {id: user, per: [user_id], missing: deny, unit: tokens, limit: 100/day, algorithm: fixed_window}
- {id: team, per: [team], missing: deny, unit: tokens, limit: 100/day, algorithm: fixed_window}
";

/// For each server its URL, and a folder that the commands for it run in.
struct Commands(Vec<(ProgramFolder, String)>);

impl Commands {
    /// Runs a command for the server that a caller asks.
    fn run(&self, caller: usize, arguments: &[&str]) -> (ProgramRun, Value) {
        let (folder, url) = &self.0[caller % self.0.len()];
        let run = folder.run(&[arguments, &["--server", url, "--json"]].concat());
        let body = serde_json::from_str(&run.stdout);
        let body = body.unwrap_or_else(|error| panic!("{error}: {run:?}"));
        (run, body)
    }
}

impl BudgetFrontEnd for Commands {
    type Open = (usize, String);

    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<Self::Open> {
        let (user, team) = (format!("user_id={key}"), format!("team={key}"));
        let cost = estimate.to_string();
        let arguments = ["reserve", "-a", &user, "-a", &team, "--cost", &cost];
        let (run, body) = self.run(caller, &arguments);
        match run.code {
            Some(0) => Some((caller, body["reservation"].as_str().unwrap().to_owned())),
            Some(1) => {
                assert_eq!(body["reservation"], Value::Null, "{run:?}");
                None
            }
            _ => panic!("{run:?}"),
        }
    }

    fn settle(&self, (caller, id): Self::Open, cost: u64) -> u64 {
        let (run, body) = self.run(caller + 1, &["settle", &id, &cost.to_string()]);
        assert_eq!(run.code, Some(0), "{run:?}");
        body["overrun"].as_u64().unwrap()
    }
}

/// Plays the case with so many servers.
#[track_caller]
fn play(count: usize, arguments: &[&str], environment: &[(&str, &str)]) {
    let arguments = [&["--rules", "rules.yaml"], arguments].concat();
    let servers = (0..count).map(|_| {
        let folder = ProgramFolder::new();
        folder.write("rules.yaml", RULES);
        let server = folder.serve_with(&arguments, environment);
        ((folder, server.url()), server)
    });
    let (commands, _servers): (_, Vec<Server>) = servers.unzip();
    five_callers(&Commands(commands), "commands");
}

#[test]
fn five_callers_share_a_budget_by_commands_in_memory() {
    play(1, &[], &[]);
}

#[test]
fn five_callers_share_a_budget_by_commands_over_redis() {
    let redis = RedisServer::start();
    // Many tests run at once, and this is not about how fast Redis is.
    let calm = [("TIDEGATE_REDIS_DEADLINE", "5s")];
    play(2, &["--redis", &redis.url()], &calm);
}
