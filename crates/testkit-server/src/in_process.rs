//! A server on threads of the test's own process.

use std::fs;
use std::ops::Deref;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_server::{Config, Handle, Listeners, Service};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::{Dispatch, dispatcher};

use crate::{ServerLog, TestServer};

/// Longer than tasks take to notice that their runtime has ended.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// A server in this process. Dropped, it ends without a farewell.
#[derive(Debug)]
pub struct InProcessServer {
    server: TestServer,
    handle: Handle,
    /// Dropped to end the server immediately.
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Deref for InProcessServer {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl InProcessServer {
    /// A server with these settings.
    pub fn run(config: Config) -> Self {
        let token = config.data_dir.join("admin-token");
        let log = Arc::new(ServerLog::default());
        let dispatch = log.dispatch(&config.log.level);
        let handle = Handle::new();
        let (kill, killed) = oneshot::channel();
        let (sender, addresses) = mpsc::channel();
        let (steered, logged) = (handle.clone(), Arc::clone(&log));
        let thread = thread::spawn(move || {
            log_to(&dispatch);
            let mut runtime = Builder::new_multi_thread();
            runtime.worker_threads(2).enable_all();
            let runtime = runtime.on_thread_start(move || log_to(&dispatch)).build();
            let runtime = runtime.unwrap();
            runtime.block_on(async {
                let service = Service::open(&config).await;
                let service = service.unwrap_or_else(|error| panic!("{error}"));
                let listeners = Listeners::bind(&config).await.unwrap();
                service.announce(&listeners);
                sender.send(listeners.addresses()).unwrap();
                tokio::select! {
                    () = service.run(listeners, steered) => {}
                    _ = killed => {}
                }
            });
            runtime.shutdown_timeout(SHUTDOWN);
            logged.end();
        });
        let Ok(addresses) = addresses.recv() else {
            panic!("it did not start:\n{}", log.text());
        };
        let token = fs::read_to_string(token).ok();
        let token = token.map(|token| token.trim_end().to_owned());
        Self {
            server: TestServer::new(addresses, token, log),
            handle,
            kill: Some(kill),
            thread: Some(thread),
        }
    }

    /// Reads rules, certificates and tokens again, as the program does on SIGHUP.
    pub fn reload(&self) {
        self.handle.reload();
    }

    /// Begins to end in good order, as the program does on SIGTERM.
    pub fn shut_down(&self) {
        self.handle.shut_down();
    }

    /// Ends in good order, and returns the log.
    pub fn stop(mut self) -> String {
        self.shut_down();
        let log = self.log.whole();
        self.join();
        log
    }

    /// Ends without a farewell.
    pub fn kill(self) {
        drop(self);
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let has_panicked = thread.join().is_err();
            assert!(!has_panicked || thread::panicking(), "the server panicked");
        }
    }
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        self.kill.take();
        self.join();
    }
}

/// Sends what this thread logs from now on to a log of its own.
fn log_to(dispatch: &Dispatch) {
    // Until the thread ends.
    std::mem::forget(dispatcher::set_default(dispatch));
}
