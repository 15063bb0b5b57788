//! Decides by rules in a program without an asynchronous runtime. This works with counters in memory.
//!
//! Run it with `cargo run -p tidegate --example synchronous`.

use tidegate::rules::{Match, Rule, RuleSet};
use tidegate::{Attributes, Gate, MemoryStore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let login = Rule::builder("login")
        .matching(Match::builder().path("/login").method("POST"))
        .per(["ip"])
        .limit("3/minute")
        .build()?;
    let gate = Gate::new(MemoryStore::new(), RuleSet::from_rules([login])?);

    let mut request = Attributes::new();
    request.insert("path", "/login")?;
    request.insert("method", "POST")?;
    request.insert("ip", "192.0.2.7")?;
    for attempt in 1..=4 {
        // Only a store behind a network has to be waited for: this one answers.
        let decision = gate.try_decide(&request)?;
        match decision.reason() {
            None => println!("attempt {attempt}: {:?} left", decision.remaining()),
            Some(reason) => println!("attempt {attempt}: denied, {}", reason.name()),
        }
    }
    assert!(gate.try_decide(&request)?.is_denied());
    Ok(())
}
