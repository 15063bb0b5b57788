//! Threads with a runtime each, one for every core.

use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The runtimes of a gateway. They end when this is dropped, with all that is still in them.
pub(crate) struct Workers {
    runtimes: Vec<(Handle, oneshot::Sender<()>)>,
}

impl Workers {
    /// As many as there are cores.
    pub(crate) fn start() -> std::io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut runtimes = Vec::with_capacity(cores);
        for core in 0..cores {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (end, ended) = oneshot::channel::<()>();
            thread::Builder::new()
                .name(format!("gateway-{core}"))
                .spawn(move || {
                    // An error is the word that this was dropped.
                    let _ = runtime.block_on(ended);
                })?;
            runtimes.push((handle, end));
        }
        Ok(Self { runtimes })
    }

    pub(super) fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.runtimes.iter().map(|(runtime, _)| runtime)
    }
}
