//! The program in the place of envoyproxy/ratelimit: started by that name, under another user, without anything that it
//! can write to, with the variables of those who deploy it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use rustix::process::Signal;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::HttpClient;

use crate::server::{ProgramFolder, Server};

const LIMITS: &str = "domain: web
descriptors: [{key: PATH, value: /productpage, rate_limit: {unit: day, requests_per_unit: 1}}]
";
const CALL: &str =
    r#"{"domain":"web","descriptors":[{"entries":[{"key":"PATH","value":"/productpage"}]}]}"#;

/// Free ports of this machine, and no stats.
const PORTS: [(&str, &str); 8] = [
    ("HOST", "127.0.0.1"),
    ("PORT", "0"),
    ("GRPC_HOST", "127.0.0.1"),
    ("GRPC_PORT", "0"),
    ("DEBUG_HOST", "127.0.0.1"),
    ("DEBUG_PORT", "0"),
    ("USE_STATSD", "false"),
    ("LOG_LEVEL", "info"),
];

/// Below it, the folder that envoyproxy/ratelimit reads, with one file.
fn write_limits(folder: &ProgramFolder, limits: &str) {
    let config = folder.path("ratelimit/config");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.yaml"), limits).unwrap();
    fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A server by the name of envoyproxy/ratelimit, with these arguments and variables besides [`PORTS`].
fn serve(folder: &ProgramFolder, arguments: &[&str], variables: &[(&str, &str)]) -> Server {
    start(folder.command("bin/ratelimit"), arguments, variables)
}

fn start(mut command: Command, arguments: &[&str], variables: &[(&str, &str)]) -> Server {
    command
        .args(arguments)
        .envs(PORTS)
        .envs(variables.iter().copied());
    Server::start(command).unwrap_or_else(|run| panic!("{}", run.whole()))
}

fn link(folder: &ProgramFolder) {
    fs::create_dir_all(folder.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tidegate"), folder.path("bin/ratelimit")).unwrap();
}

fn get(server: &Server, path: &str) -> (u16, String) {
    let reply = HttpClient::to(server.address).ask(&format!("GET {path}"), "");
    (reply.status, reply.body)
}

fn ask(server: &Server) -> u16 {
    HttpClient::to(server.address)
        .ask("POST /json", CALL)
        .status
}

#[test]
fn by_its_name_it_reads_a_folder_and_ignores_foreign_arguments() {
    let folder = ProgramFolder::new();
    link(&folder);
    write_limits(&folder, LIMITS);
    let root = folder.file(".");
    let variables = [
        ("RUNTIME_ROOT", root.as_str()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
    ];
    let foreign = "--quotaRateLimitServiceAddr=ai-gateway-controller:18002";
    let server = serve(&folder, &[foreign], &variables);
    assert_eq!(get(&server, "/healthcheck"), (200, "OK".to_owned()));
    assert_eq!((ask(&server), ask(&server)), (200, 429));
    let page = HttpClient::to(server.debug.unwrap()).ask("GET /rlconfig", "");
    assert_eq!(
        page.body,
        "web.PATH_/productpage: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false\n"
    );
    let log = server.log.text();
    let warned = log.lines().filter(|line| line.contains(foreign));
    let warned: Vec<&str> = warned.collect();
    assert_eq!(warned.len(), 1, "{log}");
    assert!(warned[0].contains("WARN"), "{log}");
    assert!(log.contains("`RUNTIME_WATCH_ROOT`"), "{log}");
    assert_eq!(server.token, None);
}

#[test]
fn a_hangup_reloads_and_a_terminate_ends_it_in_good_order() {
    let folder = ProgramFolder::new();
    link(&folder);
    write_limits(&folder, LIMITS);
    let root = folder.file(".");
    let variables = [
        ("RUNTIME_ROOT", root.as_str()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ];
    let server = serve(&folder, &[], &variables);
    assert_eq!((ask(&server), ask(&server)), (200, 429));
    write_limits(&folder, &LIMITS.replace("_unit: 1", "_unit: 3"));
    server.signal(Signal::HUP);
    let mut debug = HttpClient::to(server.debug.unwrap());
    while !debug
        .ask("GET /rlconfig", "")
        .body
        .contains("requests_per_unit=3")
    {
        std::thread::yield_now();
    }
    assert_eq!(ask(&server), 200);
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// The variables that Envoy Gateway sets, with a management server that is away.
fn of_envoy_gateway<'a>(certs: &'a [String; 3], redis: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "127.0.0.1:1"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certs[0]),
        ("GRPC_SERVER_TLS_KEY", &certs[1]),
        ("GRPC_SERVER_TLS_CA_CERT", &certs[2]),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &certs[0]),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &certs[1]),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &certs[2]),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", redis),
    ]
}

fn certificates(folder: &ProgramFolder) -> [String; 3] {
    folder.write_certificates("ca.pem", "localhost");
    fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.file(name))
}

#[test]
fn with_the_variables_of_envoy_gateway_it_is_alive_before_the_first_configuration() {
    let folder = ProgramFolder::new();
    link(&folder);
    let certs = certificates(&folder);
    let redis = RedisServer::start();
    let address = format!("127.0.0.1:{}", redis.port());
    let variables = of_envoy_gateway(&certs, &address);
    let server = serve(&folder, &[], &variables);
    assert_eq!(get(&server, "/healthcheck"), (200, "OK".to_owned()));
    assert_eq!(get(&server, "/readyz").0, 404);
    let reply = HttpClient::to(server.address).ask("POST /json", CALL);
    assert_eq!((reply.status, reply.body.as_str()), (400, "Bad Request\n"));
    let without = variables
        .iter()
        .filter(|(name, _)| !name.starts_with("FORCE_START"));
    let without: Vec<_> = without.copied().collect();
    let server = serve(&folder, &[], &without);
    assert_eq!(get(&server, "/healthcheck"), (500, String::new()));
}

/// As root: user 65534, all file systems of the process read-only. Otherwise this user's own rights have to do.
#[test]
fn it_needs_no_user_of_its_own_and_nothing_to_write_to() {
    let folder = ProgramFolder::new();
    link(&folder);
    write_limits(&folder, LIMITS);
    let program = folder.file("bin/ratelimit");
    let root = folder.file(".");
    let variables = [
        ("RUNTIME_ROOT", root.as_str()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ];
    let server = if rustix::process::geteuid().is_root() {
        let other = "exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all";
        let read_only = "mount --make-rprivate / && mount -o remount,ro,bind /";
        let may_mount = Command::new("unshare").args(["--mount", "true"]).status();
        let command = if may_mount.is_ok_and(|status| status.success()) {
            let mut command = folder.command("unshare");
            let script = format!(r#"{read_only} && {other} "$0""#);
            command.args(["--mount", "sh", "-c", &script, &program]);
            command
        } else {
            let mut command = folder.command("sh");
            command.args(["-c", &format!(r#"{other} "$0""#), &program]);
            command
        };
        start(command, &[], &variables)
    } else {
        fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o555)).unwrap();
        serve(&folder, &[], &variables)
    };
    assert_eq!((ask(&server), ask(&server)), (200, 429));
    assert!(!folder.path("tidegate-data").exists());
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_server_that_would_not_start_says_all_problems_by_their_variables() {
    let folder = ProgramFolder::new();
    link(&folder);
    let mut command = folder.command("bin/ratelimit");
    command.envs([
        ("BACKEND_TYPE", "memcache"),
        ("PORT", "http"),
        ("CONFIG_TYPE", "S3"),
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for expected in [
        "error: PORT: `http` is not a port",
        "error: CONFIG_TYPE: `S3` is unknown",
        "error: BACKEND_TYPE: counters in memcached are not exact; set BACKEND_TYPE=redis and REDIS_URL, or unset both for counters in memory",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let run = folder.run_with(
        &["settings", "--as", "envoy-ratelimit"],
        &[("PORT", "http")],
    );
    assert_eq!(run.code, Some(2), "{}", run.whole());
    assert!(run.stderr.starts_with("error: PORT: "), "{}", run.stderr);
}

/// `settings` refuses what `serve` refuses, and warns of what it starts with.
#[test]
fn settings_fail_where_a_start_does() {
    let folder = ProgramFolder::new();
    folder.write("wrong.yaml", "domain: ''\n");
    let wrong = folder.file("wrong.yaml");
    let absent = folder.file("absent");
    #[rustfmt::skip]
    let table = [
        // in place   variable                  value           code  said
        (true,        "TIDEGATE_OVERLAY",       &*absent,       0,    "warning: cannot read the overlay"),
        (true,        "TIDEGATE_RULES",         &*wrong,        0,    "wrong.yaml:1:9"),
        (true,        "TIDEGATE_CLIENTS_FILE",  &*absent,       2,    "cannot read"),
        (true,        "TIDEGATE_ADMIN",         "127.0.0.1:0",  2,    "TIDEGATE_TOKEN"),
        (false,       "TIDEGATE_OVERLAY",       &*absent,       2,    "cannot read the overlay"),
        (false,       "TIDEGATE_RULES",         &*wrong,        2,    "wrong.yaml:1:9"),
        (true,        "PORT",                   "0x1F90",       0,    "http: 0.0.0.0:8080"),
    ];
    for (is_in_place, name, value, code, expected) in table {
        let flags: &[&str] = if is_in_place {
            &["--as", "envoy-ratelimit"]
        } else {
            &[]
        };
        let run = |command| folder.run_with(&[&[command], flags].concat(), &[(name, value)]);
        let settings = run("settings");
        let whole = settings.whole();
        assert_eq!(settings.code, Some(code), "{name}={value}\n{whole}");
        assert!(whole.contains(expected), "{name}={value}\n{whole}");
        if code == 2 {
            let served = run("serve");
            assert_eq!(served.code, Some(2), "{name}={value}\n{}", served.whole());
        }
    }
}

#[test]
fn settings_are_shown_without_secrets() {
    let folder = ProgramFolder::new();
    let variables = [
        ("PORT", "9080"),
        ("REDIS_URL", "redis://:hunter2@127.0.0.1:6379"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_POOL_SIZE", "5"),
        ("TIDEGATE_TOKEN", "hunter2-hunter2-hunter2"),
        ("TIDEGATE_REDIS_DEADLINE", "20ms"),
    ];
    let run = folder.run_with(&["settings", "--as", "envoy-ratelimit"], &variables);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    assert!(!run.whole().contains("hunter2"), "{}", run.stdout);
    for expected in [
        "http: 0.0.0.0:9080",
        "redis: redis://…@127.0.0.1:6379",
        "no effect: a decision waits `TIDEGATE_REDIS_DEADLINE` (15 ms)",
        "redis_deadline: 20ms",
    ] {
        assert!(run.stdout.contains(expected), "{expected}\n{}", run.stdout);
    }
}

#[test]
fn lines_of_json_have_the_keys_of_envoyproxy_ratelimit() {
    let folder = ProgramFolder::new();
    link(&folder);
    write_limits(&folder, LIMITS);
    let root = folder.file(".");
    let variables = [
        ("RUNTIME_ROOT", root.as_str()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("LOG_FORMAT", "json"),
    ];
    let server = serve(&folder, &["foreign"], &variables);
    let log = server.log.text();
    let line = log.lines().find(|line| line.contains("foreign")).unwrap();
    let start = r#"{"@timestamp":""#;
    assert!(line.starts_with(start), "{line}");
    assert!(
        line.contains(r#"","@message":"arguments have no effect"#),
        "{line}"
    );
    assert!(line.contains(r#","level":"warning","#), "{line}");
}
