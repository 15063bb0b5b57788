//! Runs a future that does not wait for anything but itself.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The output of a future that is polled until it is ready: for stores that never wait, such as the
/// memory store.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}
