//! Shares limiters between threads, in a program without an asynchronous runtime.
//!
//! Run it with `cargo run -p tidegate --example threads`.

use std::thread;

use tidegate::{Limit, LimitError, Limiter};

fn main() -> Result<(), LimitError> {
    // Clones share their counters. At most two reports are made at the same time.
    let requests = Limiter::new("100/minute")?;
    let reports = Limiter::builder_for(vec![Limit::concurrent(2)?]).build()?;

    let admitted: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    (0..50)
                        .filter(|_| requests.check("api").is_allowed())
                        .count()
                })
            })
            .collect();
        let counts = workers.into_iter().map(|worker| worker.join().unwrap_or(0));
        counts.sum()
    });
    println!("8 threads asked 400 times, {admitted} requests were admitted");
    assert_eq!(admitted, 100);

    let first = reports.check("reports");
    let second = reports.check("reports");
    assert!(first.is_allowed() && second.is_allowed());
    assert!(reports.check("reports").is_denied());
    // A permit is held until it is released. One that is never released ends after a minute.
    if let Some(permit) = first.permit() {
        reports.release(permit);
    }
    assert!(reports.check("reports").is_allowed());
    println!("a third report had to wait for the first");
    Ok(())
}
