//! What becomes of a management server, in place of envoyproxy/ratelimit: what decides, what `/healthcheck` and `/stats` say, and
//! what is logged.

use std::path::Path;

use tidegate_server::grpc_messages::rate_limit_config::ConfiguredDomain;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE, TestFolder};
use tidegate_testkit_xds::{
    ManagementServer, ScriptedResponse, ServedOver, ServedStream, TestAuthority, encoded,
};

use super::get;
use crate::Server;
use crate::xds::{assert_accepted, at, first_stream, users};

const FORCED: (&str, &str) = ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true");
const WITH_DOMAINS: (&str, &str) = ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true");

/// A server that follows this address, with variables of envoyproxy/ratelimit.
fn serve(folder: &TestFolder, address: &str, variables: &[(&str, &str)]) -> Server {
    let flags = [
        "--as",
        "envoy-ratelimit",
        "--grpc",
        "127.0.0.1:0",
        "--debug",
        "127.0.0.1:0",
    ];
    let own = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", address),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "20ms"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "40ms"),
        ("XDS_CLIENT_BACKOFF_JITTER", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
    ];
    folder.serve_with(&flags, &[&own[..], variables].concat())
}

/// The answer to a call of a user, as a status of `/json`.
fn ask(server: &Server) -> u16 {
    let call = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}"#;
    HttpClient::to(server.address)
        .ask("POST /json", call)
        .status
}

fn health(server: &Server) -> u16 {
    get(server, "/healthcheck").0
}

/// How many loads succeeded and failed, as the debug port shows it.
fn loads(server: &Server) -> (u64, u64) {
    let page = HttpClient::to(server.debug.unwrap()).ask("GET /stats", "");
    let count = |name: &str| {
        let name = format!("ratelimit.service.config_load_{name}: ");
        let mut lines = page.body.lines();
        let found = lines.find_map(|line| line.strip_prefix(&name));
        found
            .unwrap_or_else(|| panic!("{}", page.body))
            .parse()
            .unwrap()
    };
    (count("success"), count("error"))
}

fn wait_for_file(file: &Path) {
    wait_until("the rules are kept", PATIENCE, || {
        file.exists().then_some(())
    });
}

/// A server that has been sent one limit of one request.
struct Loaded {
    server: Server,
    stream: ServedStream,
    management: ManagementServer,
    folder: TestFolder,
}

impl Loaded {
    fn start(variables: &[(&str, &str)]) -> Self {
        let (folder, management) = (TestFolder::new(), ManagementServer::start());
        let server = serve(&folder, &management.address().to_string(), variables);
        let stream = first_stream(&management);
        assert_accepted(&stream, "1", &[users("edge", 1)]);
        assert_eq!((loads(&server), health(&server)), ((1, 0), 200));
        Self {
            server,
            stream,
            management,
            folder,
        }
    }

    /// Decisions go by the limit that was loaded, of which nothing is used.
    fn assert_unchanged(&self) {
        assert_eq!((ask(&self.server), ask(&self.server)), (200, 429));
        assert_eq!(health(&self.server), 200);
    }
}

#[test]
fn away_at_the_start_the_last_good_rules_make_it_healthy_and_are_no_load() {
    let loaded = Loaded::start(&[]);
    wait_for_file(&loaded.folder.path("data/xds-last-good"));
    let address = loaded.management.address().to_string();
    drop((loaded.stream, loaded.management));
    loaded.server.kill();
    let server = serve(&loaded.folder, &address, &[WITH_DOMAINS]);
    server.log.wait_for("the last good rules are in force");
    assert_eq!((health(&server), loads(&server)), (200, (0, 0)));
    assert_eq!((ask(&server), ask(&server)), (200, 429));
}

#[test]
fn away_at_the_start_without_rules_it_is_healthy_if_that_is_forced() {
    for (variables, expected) in [
        (&[][..], 500),
        (&[FORCED], 200),
        (&[FORCED, WITH_DOMAINS], 500),
    ] {
        let (folder, management) = (TestFolder::new(), ManagementServer::start());
        let address = management.address();
        drop(management);
        let server = serve(&folder, &address.to_string(), variables);
        let log = server.log.wait_for("no rules are known");
        assert!(log.contains("WARN"), "{log}");
        assert_eq!(health(&server), expected, "{variables:?}");
        assert_eq!((ask(&server), loads(&server)), (400, (0, 0)));
        let management = at(address);
        assert_accepted(&first_stream(&management), "1", &[users("edge", 1)]);
        assert_eq!((health(&server), loads(&server)), (200, (1, 0)));
    }
}

#[test]
fn away_later_it_stays_healthy() {
    let mut loaded = Loaded::start(&[]);
    let address = loaded.management.address();
    drop((loaded.stream, loaded.management));
    loaded.server.log.wait_for("the rules in force stay");
    assert_eq!(health(&loaded.server), 200);
    loaded.management = at(address);
    loaded.stream = first_stream(&loaded.management);
    loaded.assert_unchanged();
    assert_eq!(loads(&loaded.server), (1, 0));
    // What is equal is a load.
    assert_accepted(&loaded.stream, "1", &[users("edge", 1)]);
    assert_eq!(loads(&loaded.server), (2, 0));
}

#[test]
fn a_certificate_that_is_refused_at_the_start_and_later_is_an_error() {
    let folder = TestFolder::new();
    let authority = TestAuthority::new(&folder.path(""), "servers");
    TestAuthority::new(&folder.path(""), "others");
    let files = authority.issue("server", "localhost");
    let management = ManagementServer::with_tls(files.clone(), None);
    let port = management.address().port();
    let ca = folder.file("ca.pem");
    let trust = |name: &str| {
        let text = std::fs::read_to_string(folder.path(name)).unwrap();
        folder.write("ca.pem", &text);
    };
    let variables = [
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &*ca),
    ];
    trust("others.pem");
    let server = serve(&folder, &format!("localhost:{port}"), &variables);
    let log = server.log.wait_for("UnknownIssuer");
    assert!(log.contains("ERROR") && log.contains("ca.pem"), "{log}");
    assert_eq!((health(&server), ask(&server)), (500, 400));

    trust("servers.pem");
    let stream = first_stream(&management);
    assert_accepted(&stream, "1", &[users("edge", 1)]);
    assert_eq!((health(&server), loads(&server)), (200, (1, 0)));

    // Refused again while rules are in force: they stay.
    trust("others.pem");
    drop((stream, management));
    let (certificate, key) = files;
    let over = ServedOver::Tls {
        certificate,
        key,
        clients: None,
    };
    let _management = ManagementServer::serve(([127, 0, 0, 1], port).into(), over);
    server.log.wait_for_times("UnknownIssuer", 2);
    assert_eq!((health(&server), loads(&server)), (200, (1, 0)));
    assert_eq!((ask(&server), ask(&server)), (200, 429));
}

#[test]
fn responses_that_cannot_be_used_count_as_errors_and_change_nothing() {
    let small = [("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1024")];
    let loaded = Loaded::start(&small);
    let (server, stream) = (&loaded.server, &loaded.stream);
    let refused = stream.publish("2", encoded(&[users("", 1)]));
    assert!(refused.error_detail.is_some());
    let log = server.log.wait_for("was refused");
    assert!(
        log.contains("ERROR") && log.contains("field `domain`"),
        "{log}"
    );
    assert_eq!((health(server), loads(server)), (200, (1, 1)));

    let large: Vec<ConfiguredDomain> = (0..100).map(|at| users(&format!("d{at}"), 1)).collect();
    stream.respond(&ScriptedResponse::new("3", encoded(&large)));
    let log = server.log.wait_for("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES");
    assert!(log.contains("ERROR"), "{log}");
    let _again = first_stream(&loaded.management);
    assert_eq!(loads(server), (1, 2));
    loaded.assert_unchanged();
}

#[test]
fn after_an_empty_response_all_is_allowed_and_it_may_be_unhealthy() {
    for (variables, expected) in [(&[][..], 200), (&[WITH_DOMAINS], 500)] {
        let loaded = Loaded::start(variables);
        assert_accepted(&loaded.stream, "2", &[]);
        let server = &loaded.server;
        assert_eq!((ask(server), ask(server)), (200, 200));
        let log = server.log.wait_for("every request is allowed");
        assert!(log.contains("WARN") && log.contains("count=1"), "{log}");
        assert_eq!((health(server), loads(server)), (expected, (2, 0)));
    }
}
