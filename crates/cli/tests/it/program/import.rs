//! `tidegate import`: rules on stdout, differences on stderr, and the exit code says whether there are any.

use std::fs;

use super::support::{CommandRun, tidegate};

const SAME: &str = "limit_req_zone $http_x_api_key zone=keys:10m rate=10r/s;
limit_req_status 429;
server { listen 80; location / { limit_req zone=keys burst=20 nodelay; } }
";
const DIFFERENT: &str = "http {
  include conf.d/*.conf;
  include ../outside.conf;
  limit_conn_zone $binary_remote_addr zone=addr:10m;
  server { listen 80; limit_conn addr 5; limit_req zone=ip; }
}
";
const INCLUDED: &str = "limit_req_zone $binary_remote_addr zone=ip:10m rate=10r/m;\n";
const INGRESS: &str = "kind: Ingress
metadata: {name: shop, annotations: {nginx.ingress.kubernetes.io/limit-rps: '2'}}
spec: {rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix}]}}]}
";

fn import(arguments: &[&str]) -> CommandRun {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("etc");
    fs::create_dir_all(folder.join("conf.d")).unwrap();
    let files = [
        ("same.conf", SAME),
        ("different.conf", DIFFERENT),
        ("conf.d/zones.conf", INCLUDED),
        ("broken.conf", "server {\n listen 80\n}\n"),
        ("ingress.yaml", INGRESS),
        ("../outside.conf", "limit_req zone=secret;"),
    ];
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    tidegate(&folder, &[&["import"], arguments].concat(), SAME)
}

#[test]
fn rules_of_the_same_meaning_end_with_zero() {
    let run = import(&["nginx", "same.conf"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    insta::assert_snapshot!(run.whole());
    let strict = import(&["nginx", "same.conf", "--strict"]);
    assert_eq!((strict.code, strict.stdout), (Some(0), run.stdout));
    let stdin = import(&["nginx", "-"]);
    assert_eq!(stdin.code, Some(0));
    assert!(
        stdin.stdout.contains("# <stdin>:3: limit_req"),
        "{}",
        stdin.stdout
    );
}

#[test]
fn differences_are_listed_and_end_with_one() {
    let run = import(&["nginx", "different.conf"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    insta::assert_snapshot!(run.whole());
    let strict = import(&["nginx", "different.conf", "--strict"]);
    assert_eq!((strict.code, strict.stdout.as_str()), (Some(1), ""));
    assert!(
        strict
            .stderr
            .ends_with("nothing is written, because of --strict\n")
    );
}

#[test]
fn what_is_written_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [
        &["nginx", "same.conf"][..],
        &["nginx", "different.conf"],
        &["ingress-nginx", "ingress.yaml"],
    ] {
        let run = import(arguments);
        let valid = tidegate(directory.path(), &["rules", "validate", "-"], &run.stdout);
        assert_eq!(valid.code, Some(0), "{}{}", run.stdout, valid.stderr);
    }
}

#[test]
fn what_cannot_be_read_ends_with_two() {
    for (arguments, message) in [
        (
            &["nginx", "broken.conf"][..],
            "error: broken.conf:3: unexpected `}`: `listen` has no `;`\n",
        ),
        (&["nginx", "none.conf"], "error: cannot read `none.conf`: "),
        (
            &["nginx", "conf.d/zones.conf"],
            "error: there is no `limit_req` and no `limit_conn` in it\n",
        ),
        (&["ingress-nginx", "same.conf"], "error: "),
    ] {
        let run = import(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(
            run.stderr.contains(message),
            "{arguments:?}: {}",
            run.stderr
        );
    }
}

#[test]
fn replicas_multiply_the_limits_of_an_ingress() {
    let run = import(&[
        "ingress-nginx",
        "ingress.yaml",
        "--replicas",
        "3",
        "--ipv6-prefix",
        "128",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.contains("limit: 6/second burst 33\n"),
        "{}",
        run.stdout
    );
}
