//! The guide for those who move from envoyproxy/ratelimit: its commands are run in a shell, one after the other, on the files
//! that it shows, and what they print is compared but for times.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tidegate_testkit_server::HttpClient;

use super::examples::blocks;
use super::page;
use crate::envoy_ratelimit::{MINUTE, within_a_window};
use crate::server::{PROGRAM, ProgramFolder, Server};

const GUIDE: &str = "docs/guides/from-envoy-ratelimit.md";
/// What a reader's machine has free.
const PORTS: [(&str, &str); 3] = [("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")];
const TOKEN: &str = "sixteen-letters.";

/// A reader with the files of the guide, and the server that was started last.
struct Mover {
    folder: ProgramFolder,
    server: Option<Server>,
}

impl Mover {
    fn new(guide: &str) -> Self {
        let folder = ProgramFolder::new();
        fs::create_dir(folder.path("bin")).unwrap();
        symlink(PROGRAM, folder.path("bin/tidegate")).unwrap();
        fs::create_dir_all(folder.path("data/ratelimit/config")).unwrap();
        fs::create_dir(folder.path("certs")).unwrap();
        folder.write_certificates("ca.pem", "localhost");
        for (from, to) in [
            ("cert.pem", "tls.crt"),
            ("key.pem", "tls.key"),
            ("ca.pem", "ca.crt"),
        ] {
            fs::rename(folder.path(from), folder.path("certs").join(to)).unwrap();
        }
        let blocks = blocks(guide).into_iter();
        let mut variables = blocks.clone().filter(|(language, _)| *language == "ini");
        for name in ["ratelimit.env", "gateway.env"] {
            let text = variables.next().unwrap().1.join("\n");
            folder.write(name, &text.replace("/certs/", &folder.file("certs/")));
        }
        let mut yaml = blocks.map(|(_, lines)| lines);
        let limits = yaml.find(|lines| lines.first() == Some(&"domain: ratelimit"));
        folder.write(
            "data/ratelimit/config/config.yaml",
            &limits.unwrap().join("\n"),
        );
        Self {
            folder,
            server: None,
        }
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = self.folder.command("sh");
        shell.args(["-c", command]);
        let path = format!("{}:/usr/bin:/bin", self.folder.file("bin"));
        shell.env("PATH", path);
        shell
    }

    /// What a command prints.
    fn run(&mut self, command: &str) -> String {
        if command.contains("tidegate serve") {
            return self.serve(command, &[]);
        }
        let mut command = command.to_owned();
        if let Some(server) = &self.server {
            let (http, debug) = (server.address.port(), server.debug.unwrap().port());
            for (port, actual) in [(8080, http), (6070, debug)] {
                command = command.replace(&format!(":{port}/"), &format!(":{actual}/"));
            }
            if command.starts_with("tidegate explain") {
                command = format!("{command} --server http://127.0.0.1:{http} --token {TOKEN}");
            }
        }
        let output = self.shell(&command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{command}: {said}");
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.replace(&self.folder.file("certs/"), "/certs/")
    }

    /// Starts a server by a command, on free ports. The ports of the guide are those without these variables.
    fn serve(&mut self, command: &str, variables: &[(&str, &str)]) -> String {
        self.server = None;
        let command = command.replace("tidegate serve", "exec tidegate serve");
        let mut shell = self.shell(
            &command
                .replace("env ", "export ")
                .replace(" exec ", "; exec "),
        );
        shell.envs(PORTS).envs(variables.iter().copied());
        let server = Server::listening(shell, 3).unwrap_or_else(|run| panic!("{}", run.whole()));
        let printed = [
            ("http", server.address, 8080),
            ("grpc", server.grpc.unwrap(), 8081),
        ];
        let printed = printed
            .into_iter()
            .chain([("debug", server.debug.unwrap(), 6070)]);
        let line = |(name, mut address, port): (_, std::net::SocketAddr, _)| {
            address.set_port(port);
            format!("listening {name}={address}\n")
        };
        let printed = printed.map(line).collect();
        self.server = Some(server);
        printed
    }
}

/// The words of each line, without what differs from run to run.
fn lasting(printed: &str) -> Vec<Vec<String>> {
    let word = |word: &str| match word.split_once("\"durationUntilReset\":\"") {
        Some((before, rest)) => before.to_owned() + rest.split_once('"').unwrap().1,
        None => word.to_owned(),
    };
    let lines = printed.trim_end().lines();
    lines
        .map(|line| line.split_whitespace().map(word).collect())
        .collect()
}

#[test]
fn a_deployment_moves_as_the_guide_shows() {
    let guide = page(GUIDE);
    within_a_window(MINUTE, || {
        let mut mover = Mover::new(&guide);
        let mut followed = 0;
        let consoles = blocks(&guide).into_iter();
        let consoles = consoles.filter(|(language, _)| *language == "console");
        for part in consoles.map(|(_, lines)| lines.join("\n")) {
            for part in part.split("$ ").skip(1) {
                // The second `$ ` of a line begins no command.
                let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
                if command.contains("/stats") {
                    let mut http = HttpClient::to(mover.server.as_ref().unwrap().address);
                    http.ask("POST /json", ONE_MORE).with_status(429);
                }
                if command.starts_with("tidegate explain") {
                    let serve = "env $(cat ratelimit.env) RUNTIME_ROOT=data REDIS_URL= tidegate serve --as envoy-ratelimit";
                    mover.serve(serve, &[("TIDEGATE_TOKEN", TOKEN)]);
                }
                let came = mover.run(command);
                // What has times is not printed.
                if !printed.is_empty() {
                    assert_eq!(lasting(&came), lasting(printed), "{command}");
                }
                followed += 1;
            }
        }
        assert!(followed >= 9, "only {followed} were found");
    });
}

/// The call of the guide, once more in the same minute.
const ONE_MORE: &str =
    r#"{"domain":"ratelimit","descriptors":[{"entries":[{"key":"PATH","value":"/productpage"}]}]}"#;
