//! Calls a downstream API no faster than its terms allow, whatever the number of processes that call it: they
//! share 20 requests a second through Redis.
//!
//! Run it twice at the same time with `cargo run -p tidegate-redis --example pacing`: each gets its part.
#![expect(
    clippy::disallowed_methods,
    reason = "this program's own configuration is the environment"
)]

use std::time::Duration;

use tidegate::Limiter;
use tidegate_redis::{RedisSettings, RedisStore};

const CALLS: u32 = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let store = RedisStore::open(RedisSettings::new(url.parse()?));
    if let Err(problem) = store.connected(Duration::from_secs(2)).await {
        return Err(format!("no Redis at {url}: {problem}; start one, or set REDIS_URL").into());
    }

    // A burst of 1 spaces the calls evenly. No call waits for more than a minute.
    let limiter = Limiter::builder("20/second burst 1")
        .max_wait(Duration::from_mins(1))
        .build_shared("downstream", store)?;

    println!("{CALLS} calls at 20 a second, shared through {url}");
    println!("run this program a second time meanwhile: the two share the rate");
    println!("  redis-cli -u {url} --scan --pattern 'tg:*'   shows the counter");
    for number in 1..=CALLS {
        let _permit = limiter.acquire("api.example.com").await?;
        println!("call {number:>3}");
    }
    Ok(())
}
