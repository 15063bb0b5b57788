//! A server on threads of the test's own process.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_server::config::SETTINGS;
use tidegate_server::{Config, Handle, Listeners, Overrides, Service};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::{Dispatch, dispatcher};

use crate::{ServerLog, TestFolder, TestServer, serve_arguments};

/// Longer than tasks take to notice that their runtime has ended.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// The settings that name a file or a folder.
const PATHS: [&str; 3] = ["config", "rules", "data_dir"];

/// What runs of a server in this process.
#[derive(Debug)]
pub struct InProcess {
    /// Reloads the server, or lets it end.
    pub handle: Handle,
    /// Dropped to end the server without a farewell.
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InProcess {
    pub(crate) fn start(
        folder: &TestFolder,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> TestServer<Self> {
        let variable = |name: &str| {
            let (name, value) = environment.iter().find(|(known, _)| *known == name)?;
            let is_file = name.ends_with("_FILE");
            Some(if is_file {
                folder.file(value)
            } else {
                (*value).to_owned()
            })
        };
        let config = Config::load(&Overrides {
            environment: &variable,
            variables: environment
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            flags: flags(folder, &serve_arguments(arguments)),
        });
        Self::run(config.unwrap_or_else(|error| panic!("{error}")))
    }

    /// A server with these settings.
    pub fn run(config: Config) -> TestServer<Self> {
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
        let running = Self {
            handle,
            kill: Some(kill),
            thread: Some(thread),
        };
        let server = TestServer::new(addresses, log, running);
        let token = std::fs::read_to_string(token).ok();
        TestServer {
            token: token.map(|token| token.trim_end().to_owned()),
            ..server
        }
    }
}

impl TestServer<InProcess> {
    /// Reads rules, certificates and tokens again, as the program does on SIGHUP.
    pub fn reload(&self) {
        self.running.handle.reload();
    }

    /// Ends the server in good order, as the program does on SIGTERM, and returns its log.
    pub fn stop(mut self) -> String {
        self.running.handle.shut_down();
        let log = self.log.whole();
        self.running.join();
        log
    }

    /// Ends the server without a farewell.
    pub fn kill(self) {}
}

impl InProcess {
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let has_panicked = thread.join().is_err();
            assert!(!has_panicked || thread::panicking(), "the server panicked");
        }
    }
}

impl Drop for InProcess {
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

/// The settings that arguments of `tidegate serve` give.
fn flags(folder: &TestFolder, arguments: &[&str]) -> Vec<(&'static str, String)> {
    let mut flags = Vec::new();
    let mut arguments = arguments.iter().skip(1);
    while let Some(argument) = arguments.next() {
        let is_named = |flag: &str| argument.strip_prefix("--") == Some(flag);
        let mut known = SETTINGS
            .iter()
            .filter_map(|setting| Some((setting.key.name, setting.flag()?)));
        let found = known.find(|(_, (flag, _))| is_named(flag));
        let (key, (_, value_name)) = found.unwrap_or_else(|| panic!("no flag is `{argument}`"));
        let value = if value_name.is_empty() {
            "true"
        } else {
            arguments.next().unwrap()
        };
        let is_path = PATHS.contains(&key);
        let value = if is_path {
            folder.file(value)
        } else {
            value.to_owned()
        };
        flags.push((key, value));
    }
    flags
}
