//! A gateway on a free port, in the process of the test.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_server::config::GatewayConfig;
use tidegate_server::{Config, Handle, Listeners, Overrides, Service};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::upstream::{Connection, Upstream};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(20);

/// Fails where a test would hang.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("in time")
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) api: SocketAddr,
    _folder: TempDir,
    handle: Handle,
    task: JoinHandle<()>,
}

/// No rule at all.
pub(crate) const NO_RULES: &str = "rules: []\n";

impl Gateway {
    /// One in front of a single server.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        Self::start(&format!("upstream: http://{upstream}\n"), NO_RULES).await
    }

    pub(crate) async fn start(settings: &str, rules: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings, rules).await
    }

    pub(crate) async fn start_in(folder: TempDir, settings: &str, rules: &str) -> Self {
        Self::start_with(folder, settings, rules, |_| {}).await
    }

    /// With a change of what no setting changes.
    pub(crate) async fn start_with(
        folder: TempDir,
        settings: &str,
        rules: &str,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Self {
        let (config, rule_file) = (
            folder.path().join("tidegate.yaml"),
            folder.path().join("rules.yaml"),
        );
        std::fs::write(&rule_file, rules).unwrap();
        let yaml = format!(
            "http: 127.0.0.1:0\ngrpc: off\ngateway: 127.0.0.1:0\nrules: {}\ndata_dir: {}\ndrain_timeout: 1s\n{settings}",
            rule_file.display(),
            folder.path().join("data").display()
        );
        std::fs::write(&config, yaml).unwrap();
        let outside = Overrides {
            environment: &|_| None,
            variables: Vec::new(),
            flags: vec![("config", config.display().to_string())],
        };
        let mut config = Config::load(&outside).unwrap_or_else(|error| panic!("{error}"));
        change(config.gateway.as_mut().unwrap());
        let service = Service::open(&config).await.unwrap();
        let listeners = Listeners::bind(&config).await.unwrap();
        let address = listeners.gateway.as_ref().unwrap().local_addr().unwrap();
        let api = listeners.http.local_addr().unwrap();
        let handle = Handle::new();
        let task = tokio::spawn(service.run(listeners, handle.clone()));
        Self {
            address,
            api,
            _folder: folder,
            handle,
            task,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::to(self.address).await
    }

    /// One answer, on a connection of its own.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.send(request).await;
        client.answer().await
    }

    /// A client whose request has come to the server, and the head of it as it came there.
    pub(crate) async fn begin(
        &self,
        upstream: &mut Upstream,
        request: &str,
    ) -> (Client, Connection, String) {
        let mut client = self.connect().await;
        client.send(request).await;
        let mut server = upstream.accept().await;
        let head = server.head().await;
        (client, server, head)
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .await
    }

    /// The value of a metric, by its name and labels.
    pub(crate) async fn metric(&self, line: &str) -> Option<u64> {
        let mut api = Client::to(self.api).await;
        let page = api.get("/metrics").await;
        let line = page.lines().find_map(|found| found.strip_prefix(line))?;
        line.trim().parse().ok()
    }

    /// Waits until a metric has a value.
    pub(crate) async fn metric_is(&self, line: &str, value: u64) {
        within(async {
            while self.metric(line).await != Some(value) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until a server has nothing more to do for it.
    pub(crate) async fn leaves_alone(&self, upstream: &Upstream) {
        let address = upstream.address;
        let line = format!("tidegate_upstream_in_flight{{upstream=\"http://{address}\"}}");
        self.metric_is(&line, 0).await;
    }

    pub(crate) fn begin_to_drain(&self) {
        self.handle.shut_down();
    }

    pub(crate) async fn ended(self) {
        self.handle.shut_down();
        within(self.task).await.unwrap();
    }
}
