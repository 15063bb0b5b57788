//! `limit_req` of nginx, which has no other time than the real one: a few seconds for each scenario.
//!
//! Requests follow each other on one connection, so a decision is made between the sending of a request and its
//! answer; it counts for the time at which the request was sent.

use std::io;
use std::time::{Duration, Instant};

use tidegate_core::{Algorithm, Micros};
use tidegate_testkit::accuracy::{ArrivalPattern, DecidedArrival, Judge};
use tidegate_testkit::nginx::NginxProcess;
use tidegate_testkit::timeline::START;

use crate::row::{Contender, row, skipped};
use crate::scenario::Scenario;

const NAME: &str = "nginx, limit_req nodelay";
const ALGORITHM: Algorithm = Algorithm::LeakyBucket { shape: false };
const WINDOWS: u64 = 4;

pub fn run(program: &str) {
    let is_tried = |scenario: &Scenario| {
        let pattern = scenario.plan.pattern;
        let is_slow = pattern == ArrivalPattern::Poisson { percent: 50 };
        pattern != ArrivalPattern::ZipfKeys && !is_slow
    };
    for mut scenario in Scenario::all().into_iter().filter(is_tried) {
        scenario.plan.windows = WINDOWS;
        if let Err(error) = run_one(&scenario, program) {
            let why = error.to_string();
            println!("{}", skipped(&scenario, NAME, ALGORITHM, &why));
        }
    }
}

fn run_one(scenario: &Scenario, program: &str) -> io::Result<()> {
    let nginx = NginxProcess::start(program, &config(scenario.plan.count));
    let mut connection = nginx.connect()?;
    let limit = scenario.limit(ALGORITHM);
    let mut judge = Judge::new(&limit).expect("a rate with a window");
    let started = Instant::now();
    for arrival in scenario.arrivals() {
        let due = Duration::from(arrival.at.since(START));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let sent = Micros::from(started.elapsed());
        let allowed = match connection.ask("GET /", &[])?.status {
            200 => true,
            429 => false,
            other => return Err(io::Error::other(format!("it answered `{other}`"))),
        };
        judge.take(DecidedArrival {
            at: START + sent,
            key: arrival.key,
            allowed,
            delay: Micros::ZERO,
        });
    }
    let contender = Contender {
        name: NAME,
        store: "",
        instances: 1,
        is_virtual: false,
    };
    println!("{}", row(scenario, &contender, &limit, &judge.finish(), None));
    Ok(())
}

/// One limit, for all requests.
fn config(count: u64) -> String {
    let burst = count - 1;
    format!(
        "limit_req_zone $binary_remote_addr zone=one:1m rate={count}r/s;
  limit_req_status 429; limit_req_log_level info;
  server {{
    listen 127.0.0.1:PORT; root FOLDER; keepalive_requests 1000000;
    location / {{ limit_req zone=one burst={burst} nodelay; }}
  }}"
    )
}
