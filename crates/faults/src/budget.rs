//! Callers that reserve from one budget and settle or cancel what they hold, at any of the servers, and a ledger of what
//! they must hold and have used by the answers that they got.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::Value;

use crate::exchange::ask;
use crate::fleet::Fleet;
use crate::ground::Ground;

/// What all callers together may hold and use in a day.
pub(crate) const BUDGET: u64 = 2_000;
/// How long a reservation lasts unless it is settled.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// A caller no longer counts on a reservation that ends within this time.
const MARGIN: f64 = 0.4;
const CALLERS: u64 = 16;
const PAUSE: Duration = Duration::from_millis(5);
const ATTRIBUTES: &str = r#"{"user_id":"u","team":"t"}"#;
const RULES: &str = "rules:
  - {id: user, per: [user_id], unit: tokens, limit: 2000/day, algorithm: fixed_window, unsettled: give_back, on_store_failure: deny}
  - {id: team, per: [team], unit: tokens, limit: 2000/day, algorithm: fixed_window, unsettled: give_back, on_store_failure: deny}
";

/// What the callers hold and have used, as far as they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// Estimates of open reservations.
    pub(crate) open: u64,
    /// Costs of settled ones, each up to its estimate.
    pub(crate) settled: u64,
    /// The most that both were together.
    pub(crate) most: u64,
    /// What is charged for the settled ones, by the answers.
    pub(crate) charged: u64,
    /// Costs that may be charged or not: no answer came before the reservation ended.
    pub(crate) uncertain: u64,
    pub(crate) reserved: u32,
    pub(crate) denied: u32,
    pub(crate) ended: u32,
    /// Calls that were repeated because there was no answer, or 503.
    pub(crate) repeated: u32,
    /// Reservations that are not there although they should not have ended.
    pub(crate) forgotten: u32,
    /// Answers that no call should get.
    pub(crate) unexpected: Vec<String>,
}

impl Ledger {
    fn hold(&mut self, estimate: u64) {
        self.open += estimate;
        self.reserved += 1;
        self.most = self.most.max(self.open + self.settled);
    }

    fn settle(&mut self, estimate: u64, actual: u64) {
        self.open -= estimate;
        self.settled += actual.min(estimate);
    }
}

/// Two servers with a budget, and callers.
#[derive(Debug)]
pub(crate) struct BudgetLoad {
    stop: Arc<AtomicBool>,
    ledger: Arc<Mutex<Ledger>>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct BudgetCaller {
    servers: Vec<(SocketAddr, String)>,
    number: usize,
    seed: u64,
    stop: Arc<AtomicBool>,
    ledger: Arc<Mutex<Ledger>>,
}

/// Two servers with this Redis, started.
pub(crate) fn servers(ground: &Ground, redis: &str) -> anyhow::Result<Fleet> {
    let mut fleet = Fleet::new(ground, 2, Some(redis))?;
    for server in &fleet.servers {
        fs::write(server.file("rules.yaml"), RULES)?;
    }
    fleet.start()?;
    Ok(fleet)
}

/// What is left of the budget, by the server that answers.
pub(crate) fn remaining(fleet: &Fleet) -> anyhow::Result<u64> {
    let body = format!(r#"{{"attributes":{ATTRIBUTES},"cost":0}}"#);
    let (_, body) = fleet.servers[0].call("POST /v1/check", &body)?;
    let answer: Value = serde_json::from_str(&body)?;
    let limits = answer["limits"].as_array().context("limits")?;
    let left = limits
        .iter()
        .filter_map(|limit| limit["remaining"].as_u64());
    left.min().context("a limit")
}

impl BudgetLoad {
    pub(crate) fn start(fleet: &Fleet) -> anyhow::Result<Self> {
        let (stop, ledger) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut servers = Vec::new();
        for server in &fleet.servers {
            let token = fs::read_to_string(server.data().join("admin-token"))?;
            servers.push((server.address(), token.trim().to_owned()));
        }
        let callers = (0..CALLERS).map(|number| {
            let caller = BudgetCaller {
                servers: servers.clone(),
                number: usize::try_from(number).unwrap_or(0),
                seed: number + 1,
                stop: Arc::clone(&stop),
                ledger: Arc::clone(&ledger),
            };
            std::thread::spawn(move || caller.run())
        });
        Ok(Self {
            callers: callers.collect(),
            stop,
            ledger,
        })
    }

    /// Ends it when every caller has settled what it holds, or given it up.
    pub(crate) fn stop(self) -> Ledger {
        self.stop.store(true, Ordering::SeqCst);
        let panics = self
            .callers
            .into_iter()
            .filter_map(|caller| caller.join().err());
        let panics = panics.count();
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if panics > 0 {
            ledger.unexpected.push(format!("{panics} callers panicked"));
        }
        ledger.clone()
    }
}

impl BudgetCaller {
    fn run(mut self) {
        while !self.stop.load(Ordering::SeqCst) {
            let estimate = 1 + self.random(400);
            let Some((id, ends)) = self.reserve(estimate) else {
                continue;
            };
            self.write(|ledger| ledger.hold(estimate));
            std::thread::sleep(Duration::from_millis(self.random(8)));
            // Mostly nothing, so that the budget lasts; sometimes more than was estimated.
            let actual = match self.random(400) {
                0 => estimate + 1,
                1..=3 => self.random(3),
                _ => 0,
            };
            self.write(|ledger| ledger.settle(estimate, actual));
            self.settle(&id, (estimate, actual), ends);
        }
    }

    fn write(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The same numbers in every run.
    fn random(&mut self, end: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % end
    }

    /// Asks one server after the other.
    fn call(&mut self, call: &str, body: &str) -> anyhow::Result<(u16, Value)> {
        self.number += 1;
        let (address, token) = &self.servers[self.number % self.servers.len()];
        let (status, body) = ask(*address, call, Some(token), body)?;
        Ok((status, serde_json::from_str(&body).unwrap_or_default()))
    }

    /// The id of a reservation, and when it ends; none if it was denied or there was no answer.
    fn reserve(&mut self, estimate: u64) -> Option<(String, f64)> {
        let ttl = TTL.as_secs();
        let body = format!(r#"{{"attributes":{ATTRIBUTES},"cost":{estimate},"ttl":{ttl}}}"#);
        match self.call("POST /v1/reserve", &body) {
            Ok((200, answer)) => {
                let id = answer["reservation"].as_str()?.to_owned();
                return Some((id, answer["expires_at"].as_f64()?));
            }
            Ok((429, _)) => self.write(|ledger| ledger.denied += 1),
            // What it may have charged goes back when it ends.
            Ok((503, _)) | Err(_) => self.write(|ledger| ledger.repeated += 1),
            Ok((status, answer)) => {
                let problem = format!("reserve: {status} {answer}");
                self.write(|ledger| ledger.unexpected.push(problem));
            }
        }
        std::thread::sleep(PAUSE);
        None
    }

    /// Settles or cancels until that is answered, or the reservation has ended.
    fn settle(&mut self, id: &str, (estimate, actual): (u64, u64), ends: f64) {
        let (call, body) = if actual == 0 {
            (format!("DELETE /v1/reservations/{id}"), String::new())
        } else {
            let call = format!("POST /v1/reservations/{id}/settle");
            (call, format!(r#"{{"cost":{actual}}}"#))
        };
        let counted = actual.min(estimate);
        let mut is_counted = true;
        loop {
            // Others may take what it held from its end on.
            if is_counted && seconds() > ends - MARGIN {
                is_counted = false;
                self.write(|ledger| ledger.settled -= counted);
            }
            match self.call(&call, &body) {
                Ok((200, answer)) => {
                    let part = &answer["limits"][0];
                    let number = |name: &str| part[name].as_u64().unwrap_or(0);
                    let charged = number("reserved") + number("overrun") - number("given_back");
                    self.write(|ledger| {
                        ledger.ended += 1;
                        ledger.charged += charged;
                        if !is_counted {
                            ledger.settled += counted;
                        }
                    });
                    return;
                }
                Ok((404, _)) if !is_counted => {
                    return self.write(|ledger| ledger.uncertain += actual);
                }
                Ok((404, _)) => {
                    return self.write(|ledger| {
                        ledger.settled -= counted;
                        ledger.forgotten += 1;
                    });
                }
                Ok((503, _)) | Err(_) => {
                    self.write(|ledger| ledger.repeated += 1);
                    if seconds() > ends + 60.0 {
                        return self.write(|ledger| ledger.uncertain += actual);
                    }
                    std::thread::sleep(PAUSE);
                }
                Ok((status, answer)) => {
                    let problem = format!("{call}: {status} {answer}");
                    return self.write(|ledger| ledger.unexpected.push(problem));
                }
            }
        }
    }
}

/// The time of the machine, which the store reads too.
#[expect(
    clippy::disallowed_methods,
    reason = "reservations end by the clock of the machine"
)]
fn seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
