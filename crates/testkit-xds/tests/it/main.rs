//! The program, as tests that are not written in Rust start it. Because of this test, a build of the tests builds the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message as _;
use tidegate_codec::grpc::proto::rate_limit::Unit;
use tidegate_codec::grpc::proto::rate_limit_config::ConfiguredDomain;
use tidegate_testkit_xds::RATE_LIMIT_CONFIG;
use tidegate_xds::{RetryTimes, XdsClient, XdsEvent, XdsSettings};

const CONFIGURATION: &str = r#"{"version": "1", "domains": [{"domain": "shop", "descriptors": [{"key": "user", "rate_limit": {"unit": "hour", "requests_per_unit": 3}}]}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_configuration_that_is_read_is_sent_to_a_client_that_comes_later() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-testkit-xds"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    writeln!(input, "{CONFIGURATION}").unwrap();
    let mut listening = String::new();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    output.read_line(&mut listening).unwrap();
    let address = listening.trim().strip_prefix("listening ").unwrap();
    let mut client = XdsClient::new(XdsSettings {
        server: address.parse().unwrap(),
        type_url: RATE_LIMIT_CONFIG,
        node: "envoy-ratelimit".to_owned(),
        metadata: Vec::new(),
        headers: Vec::new(),
        tls: None,
        retry: RetryTimes {
            is_jittered: true,
            initial: Duration::from_millis(20),
            max: Duration::from_millis(40),
        },
        max_message: 1 << 20,
    });
    assert!(matches!(client.next().await, XdsEvent::Opened));
    let XdsEvent::Response(response) = client.next().await else {
        panic!("no response");
    };
    assert_eq!(response.version, "1");
    let domain = ConfiguredDomain::decode(&*response.resources[0]).unwrap();
    let limit = domain.descriptors[0].rate_limit.as_ref().unwrap();
    assert_eq!(
        (&*domain.domain, limit.unit(), limit.requests_per_unit),
        ("shop", Unit::Hour, 3)
    );
    drop(input);
    assert!(program.wait().unwrap().success());
}
