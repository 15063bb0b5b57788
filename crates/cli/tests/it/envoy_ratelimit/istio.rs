//! The sample of Istio: a `ConfigMap` that is mounted as a folder, which Kubernetes changes by a link.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tidegate_server::grpc_messages::rate_limit::LimitCode::{Ok, OverLimit};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE};

use super::called::one;
use super::deployed::{Caller, local, start_with_files};
use super::{HOUR, within_a_window};
use crate::server::ProgramFolder;

/// What the sample sets, but for `RUNTIME_ROOT` and the Redis.
pub(super) const ISTIO: [(&str, &str); 8] = [
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("USE_STATSD", "false"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("HOST", "::"),
    ("GRPC_HOST", "::"),
];

/// The limits of the sample, by the hour.
const LIMITS: &str = r#"
domain: ratelimit
descriptors:
  - key: PATH
    value: "/productpage"
    rate_limit:
      unit: hour
      requests_per_unit: 1
  - key: PATH
    value: "api"
    rate_limit:
      unit: hour
      requests_per_unit: 2
  - key: PATH
    rate_limit:
      unit: hour
      requests_per_unit: 100
"#;

/// A folder as Kubernetes mounts a `ConfigMap`.
struct MountedConfigMap<'a> {
    folder: &'a ProgramFolder,
}

impl<'a> MountedConfigMap<'a> {
    fn new(folder: &'a ProgramFolder, limits: &str) -> Self {
        let mounted = Self { folder };
        fs::create_dir_all(mounted.path("")).unwrap();
        mounted.put("..2026_11_18_20_00_00.1", limits);
        symlink("..data/config.yaml", mounted.path("config.yaml")).unwrap();
        mounted
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path(&format!("data/ratelimit/config/{name}"))
    }

    /// Puts limits into a folder of this name, and lets the link lead to it.
    fn put(&self, name: &str, limits: &str) {
        fs::create_dir(self.path(name)).unwrap();
        fs::write(self.path(name).join("config.yaml"), limits).unwrap();
        symlink(name, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }
}

fn ask_in_json(address: SocketAddr, path: &str) -> (u16, Value) {
    let body = json!({"domain": "ratelimit", "descriptors": [{"entries": [{"key": "PATH", "value": path}]}]});
    let reply = HttpClient::to(local(address)).ask("POST /json", &body.to_string());
    (reply.status, reply.json())
}

#[test]
fn the_sample_of_istio_limits_paths_and_follows_its_config_map() {
    within_a_window(HOUR, || {
        let folder = ProgramFolder::new();
        let mounted = MountedConfigMap::new(&folder, LIMITS);
        let root = folder.file("data");
        let variables = [&ISTIO[..], &[("RUNTIME_ROOT", root.as_str())]].concat();
        let server = start_with_files(&variables, &folder);
        assert!(server.grpc.unwrap().ip().is_ipv6());
        let mut caller = Caller::in_plain_text(&server);
        let mut code = |path: &str| {
            let answer = caller.call(one("ratelimit", &[("PATH", path)], None));
            answer.unwrap().overall_code()
        };
        assert_eq!(
            [code("/productpage"), code("/productpage")],
            [Ok, OverLimit]
        );
        assert_eq!([code("api"), code("api"), code("api")], [Ok, Ok, OverLimit]);
        let (status, answer) = ask_in_json(server.address, "/reviews");
        assert_eq!(
            (status, &answer["statuses"][0]["limitRemaining"]),
            (200, &json!(99))
        );
        assert_eq!(ask_in_json(server.address, "/productpage").0, 429);

        let mut debug = HttpClient::to(local(server.debug.unwrap()));
        let mut listed = || debug.ask("GET /rlconfig", "").with_status(200).body;
        let end = "shadow_mode: false, quota_mode: false";
        let expected = format!(
            "ratelimit.PATH: unit=HOUR requests_per_unit=100, {end}\n\
             ratelimit.PATH_/productpage: unit=HOUR requests_per_unit=1, {end}\n\
             ratelimit.PATH_api: unit=HOUR requests_per_unit=2, {end}\n"
        );
        assert_eq!(listed(), expected);

        // What was used stays used.
        let raised = LIMITS.replacen("requests_per_unit: 1", "requests_per_unit: 3", 1);
        mounted.put("..2026_11_18_20_05_00.2", &raised);
        wait_until("the new limits are in force", PATIENCE, || {
            listed()
                .contains("PATH_/productpage: unit=HOUR requests_per_unit=3")
                .then_some(())
        });
        let again = [
            code("/productpage"),
            code("/productpage"),
            code("/productpage"),
        ];
        assert_eq!(again, [Ok, Ok, OverLimit]);
    });
}
