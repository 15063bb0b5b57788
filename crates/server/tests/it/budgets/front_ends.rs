//! How each front end reserves and settles.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::json;
use tidegate::gate::ReservationGuard;
use tidegate::{Attributes, Costs, Gate};
use tidegate_testkit::BudgetFrontEnd;
use tidegate_testkit_server::PATIENCE;
use tokio::runtime::Runtime;

use super::stores::{BudgetServers, team_of};
use crate::resp::{Client, Value};

/// `POST /v1/reserve`, settled at another server than it was made at.
pub(super) struct Http<'s>(pub(super) &'s BudgetServers);

/// `TG.RESERVE`, the same.
pub(super) struct Resp<'s>(pub(super) &'s BudgetServers);

/// Calls of a language model through the gateway.
pub(super) struct Models<'s>(&'s BudgetServers);

/// Guards of the library.
pub(super) struct Guards<'g>(&'g [(Gate, &'g Runtime)]);

/// A stored reservation.
pub(super) struct StoredId {
    id: String,
    caller: usize,
}

impl BudgetFrontEnd for Http<'_> {
    type Open = StoredId;

    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<StoredId> {
        let attributes = json!({"user_id": key, "team": team_of(key)});
        let body = json!({"attributes": attributes, "costs": {"tokens": estimate}}).to_string();
        let reply = self.0.of(caller).ask("POST /v1/reserve", &body);
        assert!([200, 429].contains(&reply.status), "{reply:?}");
        let answer = reply.json();
        assert_eq!(answer["degraded"], false, "{answer}");
        let id = answer["reservation"].as_str()?.to_owned();
        Some(StoredId { id, caller })
    }

    fn settle(&self, open: StoredId, cost: u64) -> u64 {
        let call = format!("POST /v1/reservations/{}/settle", open.id);
        let body = json!({"costs": {"tokens": cost}}).to_string();
        let server = self.0.of(open.caller + 1);
        let settled = server.ask(&call, &body).with_status(200).json();
        settled["overrun"]["tokens"].as_u64().unwrap()
    }
}

/// The value of a field of a reply.
fn field(reply: &Value, name: &str) -> Value {
    let Value::Array(items) = reply else {
        panic!("{reply:?}");
    };
    let mut pairs = items.chunks(2);
    let found = pairs.find(|pair| pair[0] == Value::text(name)).unwrap();
    found[1].clone()
}

impl BudgetFrontEnd for Resp<'_> {
    type Open = StoredId;

    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<StoredId> {
        let team = team_of(key);
        let line = format!("TG.RESERVE user_id {key} team {team} COST {estimate} TTL 60");
        let reply = Client::to(self.0.of(caller)).ask(&line);
        let is_allowed = field(&reply, "allowed") == Value::Integer(1);
        match field(&reply, "reservation") {
            Value::Text(id) if is_allowed => Some(StoredId { id, caller }),
            Value::Null if !is_allowed => None,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&self, open: StoredId, cost: u64) -> u64 {
        let mut client = Client::to(self.0.of(open.caller + 1));
        let reply = client.ask(&format!("TG.SETTLE {} {cost}", open.id));
        match field(&reply, "overrun") {
            Value::Integer(overrun) => u64::try_from(overrun).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

impl<'g> Guards<'g> {
    pub(super) fn of(gates: &'g [(Gate, &'g Runtime)]) -> Self {
        Self(gates)
    }
}

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

impl<'g> BudgetFrontEnd for Guards<'g> {
    type Open = (ReservationGuard<'g>, &'g Runtime);

    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<Self::Open> {
        let (gate, runtime) = &self.0[caller % self.0.len()];
        let team = team_of(key);
        let mut attributes = Attributes::new();
        attributes.set("user_id", key).unwrap();
        attributes.set("team", &team).unwrap();
        let reserving = gate.reserve(&attributes, tokens(estimate));
        let guard = runtime.block_on(reserving).unwrap();
        assert!(!guard.decision().is_degraded());
        guard.decision().is_allowed().then_some((guard, *runtime))
    }

    fn settle(&self, (guard, runtime): Self::Open, cost: u64) -> u64 {
        let settlement = runtime.block_on(guard.settle(tokens(cost))).unwrap();
        let overrun = settlement.overrun();
        overrun.units().iter().map(|(_, cost)| cost).sum()
    }
}

impl<'s> Models<'s> {
    pub(super) fn before(servers: &'s BudgetServers) -> Self {
        Self(servers)
    }

    /// What a server has reported as overrun of the user's rule.
    fn overrun(&self, caller: usize) -> u64 {
        let page = self.0.of(caller).ask("GET /metrics", "").body;
        let line = "tidegate_budget_units_total{rule=\"user\",kind=\"overrun\"}";
        let value = page.lines().find_map(|found| found.strip_prefix(line));
        value.unwrap().trim().parse().unwrap()
    }
}

/// A call whose answer has begun.
pub(super) struct BegunAnswer {
    call: String,
    caller: usize,
    answer: BufReader<TcpStream>,
}

impl BudgetFrontEnd for Models<'_> {
    type Open = BegunAnswer;

    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<BegunAnswer> {
        let call = format!("{key}-{caller}-{estimate}");
        // 20 bytes are 5 tokens.
        let body = format!("{:<19}}}", format!("{{\"max_tokens\":{}", estimate - 5));
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-user: {key}\r\nx-team: {}\r\nx-call: {call}\r\ncontent-length: 20\r\n\r\n{body}",
            team_of(key)
        );
        let mut stream = TcpStream::connect(self.0.of(caller).gateway.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        match line.split(' ').nth(1) {
            Some("200") => Some(BegunAnswer {
                call,
                caller,
                answer,
            }),
            Some("429") => None,
            _ => panic!("{line}"),
        }
    }

    fn settle(&self, mut open: BegunAnswer, cost: u64) -> u64 {
        let before = self.overrun(open.caller);
        self.0.model.end(&open.call, cost);
        // The end of the answer passes on when the cost is settled.
        let mut line = String::new();
        while !line.ends_with("[DONE]\n") {
            line.clear();
            assert_ne!(open.answer.read_line(&mut line).unwrap(), 0);
        }
        self.overrun(open.caller) - before
    }
}
