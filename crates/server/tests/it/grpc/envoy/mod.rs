//! A real Envoy in front of an application, set up as the guide says.

mod addends;
mod application;
mod proxy;
mod quotas;
mod requests;

pub(crate) use application::Application;
use proxy::Envoy;
use tidegate_testkit::ReservedPort;

use crate::Server;
use tidegate_testkit_server::TestFolder;

/// What the guides print.
const GUIDES: &str = concat!(
    include_str!("../../../../../../docs/guides/envoy.md"),
    include_str!("../../../../../../docs/guides/from-envoy-ratelimit.md"),
);

/// The block of the guides that begins with this line.
fn printed(first: &str) -> String {
    let blocks = GUIDES.split("```yaml\n").skip(1);
    let mut texts = blocks.filter_map(|block| block.split("```").next());
    let found = texts.find(|text| text.starts_with(first));
    found.unwrap().to_owned()
}

/// A server with these rules, an application, and Envoy between them.
struct Front {
    folder: TestFolder,
    server: Server,
    envoy: Envoy,
    _application: Application,
}

impl Front {
    /// Envoy's configuration is that of the guide, changed by `change`.
    fn new(rules: &str, change: impl Fn(String) -> String) -> Self {
        Self::serving(rules, &[], change)
    }

    /// The server shares its state in a Redis that is not there.
    fn without_redis(rules: &str) -> Self {
        let port = ReservedPort::new();
        let redis = format!("redis://127.0.0.1:{}", port.number());
        Self::serving(rules, &["--redis", &redis], |config| config)
    }

    /// The server has these settings, too.
    fn with_settings(rules: &str, settings: &str, change: impl Fn(String) -> String) -> Self {
        let folder = TestFolder::new();
        folder.write("tidegate.yaml", settings);
        Self::serving_in(folder, rules, &["--config", "tidegate.yaml"], change)
    }

    fn serving(rules: &str, arguments: &[&str], change: impl Fn(String) -> String) -> Self {
        Self::serving_in(TestFolder::new(), rules, arguments, change)
    }

    fn serving_in(
        folder: TestFolder,
        rules: &str,
        arguments: &[&str],
        change: impl Fn(String) -> String,
    ) -> Self {
        folder.write("rules.yaml", rules);
        let common = ["--rules", "rules.yaml", "--grpc", "127.0.0.1:0"];
        let server = folder.serve(&[&common, arguments].concat());
        let application = Application::start();
        let grpc = server.grpc.unwrap();
        let config = change(printed("static_resources:"))
            .replace(
                "port_value: 9000",
                &format!("port_value: {}", application.port()),
            )
            .replace("port_value: 8081", &format!("port_value: {}", grpc.port()))
            // On a busy machine an answer may take longer, and Envoy would let the request pass.
            .replace("timeout: 0.1s", "timeout: 5s");
        let envoy = Envoy::start(&folder, &config);
        Self {
            folder,
            server,
            envoy,
            _application: application,
        }
    }

    /// What is left of a rule for these attributes.
    fn left(&self, attributes: &str) -> u64 {
        let body = format!(r#"{{"attributes": {attributes}, "cost": 0}}"#);
        let reply = self.server.ask("POST /v1/check", &body);
        reply.json()["remaining"].as_u64().unwrap()
    }
}
