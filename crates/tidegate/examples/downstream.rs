//! Calls a downstream API no faster than its terms allow: 20 requests a second, one at a time.
//!
//! Run it with `cargo run -p tidegate --example downstream`.

use std::time::Duration;

use tidegate::Limiter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A burst of 1 spaces the calls evenly. No call waits for more than two seconds.
    let limiter = Limiter::builder("20/second burst 1")
        .max_wait(Duration::from_secs(2))
        .build()?;

    let calls = (1..=30).map(|number| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            match limiter.acquire("api.example.com").await {
                Ok(_permit) => call(number).await,
                Err(error) => println!("call {number:>2} given up: {error}"),
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await?;
    }
    Ok(())
}

/// Stands for the request to the API.
async fn call(number: u32) {
    tokio::time::sleep(Duration::from_millis(3)).await;
    println!("call {number:>2} done");
}
