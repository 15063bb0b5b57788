//! A gateway on a free port, in the process of the test.

use std::net::SocketAddr;

use tidegate_server::config::GatewayConfig;
use tidegate_testkit::{RawConnection, eventually};
use tidegate_testkit_server::{InProcessServer, TestFolder};

use crate::upstream::Upstream;

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) api: SocketAddr,
    server: InProcessServer,
    _folder: TestFolder,
}

/// No rule at all.
pub(crate) const NO_RULES: &str = "rules: []\n";

impl Gateway {
    /// One in front of a single server.
    pub(crate) fn before(upstream: SocketAddr) -> Self {
        Self::start(&format!("upstream: http://{upstream}\n"), NO_RULES)
    }

    pub(crate) fn start(settings: &str, rules: &str) -> Self {
        Self::start_in(TestFolder::new(), settings, rules)
    }

    pub(crate) fn start_in(folder: TestFolder, settings: &str, rules: &str) -> Self {
        Self::start_with(folder, settings, rules, |_| {})
    }

    /// With a change that no setting makes.
    pub(crate) fn start_with(
        folder: TestFolder,
        settings: &str,
        rules: &str,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Self {
        folder.write("rules.yaml", rules);
        let settings = format!("gateway: 127.0.0.1:0\ndrain_timeout: 1s\n{settings}");
        folder.write("tidegate.yaml", &settings);
        let mut config = folder.config(&["--config", "tidegate.yaml", "--rules", "rules.yaml"]);
        change(config.gateway.as_mut().unwrap());
        let server = InProcessServer::run(config);
        Self {
            address: server.gateway.unwrap(),
            api: server.address,
            server,
            _folder: folder,
        }
    }

    pub(crate) async fn connect(&self) -> RawConnection {
        RawConnection::to(self.address).await
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
    ) -> (RawConnection, RawConnection, String) {
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
        let mut api = RawConnection::to(self.api).await;
        let page = api.get("/metrics").await;
        let line = page.lines().find_map(|found| found.strip_prefix(line))?;
        line.trim().parse().ok()
    }

    /// Waits until a metric has a value.
    pub(crate) async fn metric_is(&self, line: &str, value: u64) {
        let is_so = async || self.metric(line).await == Some(value);
        eventually(&format!("{line} {value}"), is_so).await;
    }

    /// Waits until a server has nothing more to do for it.
    pub(crate) async fn leaves_alone(&self, upstream: &Upstream) {
        let address = upstream.address;
        let line = format!("tidegate_upstream_in_flight{{upstream=\"http://{address}\"}}");
        self.metric_is(&line, 0).await;
    }

    pub(crate) fn begin_to_drain(&self) {
        self.server.shut_down();
    }

    pub(crate) async fn ended(self) {
        // The end waits for clients, which this thread may have to drive.
        let ending = tokio::task::spawn_blocking(|| self.server.stop());
        ending.await.unwrap();
    }
}
