//! As Kubernetes starts it where a policy is strict: as the user 65534, on a root file system that cannot be written, without a
//! volume.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tidegate_server::grpc_messages::rate_limit::LimitCode;
use tidegate_testkit::redis::RedisServer;

use super::budgets::{BACKEND, DOMAIN, budgets};
use super::called::one;
use super::deployed::Deployed;
use super::policy::Selector::Distinct;
use super::policy::{PolicyListener, route, rule};
use super::{HOUR, within_a_window};
use crate::server::{PROGRAM, ProgramFolder};

/// Mounts the program in the folder, makes every file system read-only, and goes on as another user without capabilities. What
/// can still be written is a mistake of the test.
const CONFINED: &str = r#"
mount --bind "$1" "$0"
for at in $(cut -d' ' -f2 /proc/self/mounts); do mount -o remount,bind,ro "$at" 2>/dev/null; done
exec setpriv $2 --bounding-set=-all --inh-caps=-all --no-new-privs \
    sh -c 'touch ./x /tmp/x /dev/shm/x 2>/dev/null && exit 9; exec "$0"' "$0"
"#;

fn confined(folder: &ProgramFolder) -> Command {
    fs::set_permissions(folder.path("."), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path("bin")).unwrap();
    let program = folder.path("bin/ratelimit");
    fs::write(&program, "").unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let mut command = folder.command("unshare");
    command.args(["--mount", "--propagation", "private"]);
    // Others cannot become that user.
    let user = if is_root {
        "--reuid=65534 --regid=65534 --clear-groups"
    } else {
        command.arg("--map-root-user");
        ""
    };
    command.args(["sh", "-c", CONFINED]);
    command.arg(program).arg(PROGRAM).arg(user);
    command
}

#[test]
fn it_follows_a_management_server_as_any_user_and_without_a_place_to_write() {
    within_a_window(HOUR, || play(None));
}

#[test]
fn it_counts_in_redis_as_any_user_and_without_a_place_to_write() {
    within_a_window(HOUR, || play(Some(&RedisServer::start())));
}

/// A limit of requests, and a budget of tokens.
fn play(redis: Option<&RedisServer>) {
    let listener = PolicyListener {
        name: "confined",
        routes: vec![route("/", &[rule(&[Distinct("x-user-id")], 3)])],
    };
    let limits = [listener.limits(), budgets(&[("model", 20)])].concat();
    let deployed = Deployed::start_as(redis.map(RedisServer::address), &limits, confined);
    let log = deployed
        .server
        .log
        .wait_for("nothing is kept across restarts");
    assert!(!log.contains("ERROR"), "{log}");
    let pid = deployed.server.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    if rustix::process::geteuid().is_root() {
        assert!(status.contains("\nUid:\t65534\t65534"), "{status}");
    }
    assert!(status.contains("\nCapEff:\t0000000000000000"), "{status}");
    let mut caller = deployed.caller();
    let domain = &limits[0];
    let first = domain.descriptors[0].key.as_str();
    let entries = [(first, first), ("rule-0-match-0", "one")];
    for expected in [
        LimitCode::Ok,
        LimitCode::Ok,
        LimitCode::Ok,
        LimitCode::OverLimit,
    ] {
        let answer = caller.call(one(&domain.domain, &entries, None)).unwrap();
        assert_eq!(answer.overall_code(), expected);
    }
    let entries = [("backend_name", BACKEND), ("model_name_override", "model")];
    for (cost, expected) in [
        (None, LimitCode::Ok),
        (Some(30), LimitCode::OverLimit),
        (None, LimitCode::OverLimit),
    ] {
        let answer = caller.call(one(DOMAIN, &entries, cost)).unwrap();
        assert_eq!(answer.overall_code(), expected, "{cost:?}");
    }
}
