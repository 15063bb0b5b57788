//! Does work of callers that takes much memory one at a time, also if they hang up.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The turn that each work waits for.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Does the work in its turn. A caller that leaves while it waits loses its turn; work that has begun keeps it
    /// to its end. None if the server ends meanwhile.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let working = tokio::spawn(async move {
            let done = work.await;
            drop(turn);
            done
        });
        working.await.ok()
    }

    /// The same for work on a thread that may block.
    pub(crate) async fn take_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let working = async { tokio::task::spawn_blocking(work).await };
        self.take(working).await?.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_that_has_begun_keeps_its_turn_when_its_caller_hangs_up() {
        let turns = Arc::new(Turns::new());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                let work = move || {
                    let _ = begun.send(());
                    let _ = may_end.recv();
                };
                turns.take_blocking(work).await
            }
        });
        has_begun.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());

        let waiting = turns.take_blocking(|| ());
        let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(waited.is_err(), "the first is still at work");
        end.send(()).unwrap();
        assert_eq!(turns.take_blocking(|| 2).await, Some(2));
    }
}
