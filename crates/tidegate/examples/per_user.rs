//! Limits each user on their own: 5 requests a minute and 2 a second, whichever is hit first.
//!
//! Run it with `cargo run -p tidegate --example per_user`.

use tidegate::Limiter;

fn main() -> Result<(), tidegate::LimitError> {
    let limiter = Limiter::new("5/minute; 2/second")?;

    for round in 1..=4 {
        for user in ["ada", "grace"] {
            let decision = limiter.check(user);
            if decision.is_allowed() {
                println!(
                    "round {round}, {user}: allowed, {} left",
                    decision.remaining()
                );
            } else {
                println!(
                    "round {round}, {user}: denied, try again in {:?}",
                    decision.retry_after()
                );
            }
        }
    }

    // One who used nothing has everything.
    assert_eq!(limiter.peek("linus").remaining(), 2);
    Ok(())
}
