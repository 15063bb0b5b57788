//! A management server as a program, for tests that are not written in Rust: it sends each configuration that it reads to
//! all clients, and the last one to those that come later.
//!
//! It prints `listening ADDRESS`. Each line of its input is a configuration, `{"version": "1", "domains": […]}`, with
//! descriptors as files have them. It ends with its input. An argument is the address to listen at.

#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a server that cannot do what the test wants has failed the test"
)]

use std::io::{BufRead as _, stdin};
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidegate_codec::grpc::proto::rate_limit::Unit;
use tidegate_codec::grpc::proto::rate_limit_config::{
    ConfiguredDescriptor, ConfiguredDomain, ConfiguredLimit,
};
use tidegate_testkit_xds::{
    ManagementServer, ScriptedResponse, ServedOver, ServedStream, domain, encoded, per,
};

/// How often it looks for new clients.
const EVERY: Duration = Duration::from_millis(20);

fn main() {
    let address = std::env::args().nth(1);
    let address = address.map_or(SocketAddr::from(([127, 0, 0, 1], 0)), |address| {
        address.parse().unwrap()
    });
    let management = ManagementServer::serve(address, ServedOver::Tcp);
    println!("listening {}", management.address());

    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in stdin().lock().lines() {
            sender.send(line.unwrap()).unwrap();
        }
    });
    let mut last = None;
    let mut streams: Vec<ServedStream> = Vec::new();
    loop {
        match lines.recv_timeout(EVERY) {
            Ok(line) => {
                let response = response(&line);
                for stream in &streams {
                    stream.respond(&response);
                }
                last = Some(response);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(stream) = management.opened() {
            if let Some(response) = &last {
                stream.respond(response);
            }
            streams.push(stream);
        }
    }
}

fn response(line: &str) -> ScriptedResponse {
    let configuration: Value = serde_json::from_str(line).unwrap();
    let domains: Vec<_> = list(&configuration["domains"]).map(read_domain).collect();
    ScriptedResponse::new(&text(&configuration["version"]), encoded(&domains))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read_domain(value: &Value) -> ConfiguredDomain {
    let descriptors = list(&value["descriptors"]).map(read_descriptor);
    domain(&text(&value["domain"]), descriptors)
}

fn read_descriptor(value: &Value) -> ConfiguredDescriptor {
    ConfiguredDescriptor {
        key: text(&value["key"]),
        value: text(&value["value"]),
        rate_limit: value.get("rate_limit").map(read_limit),
        descriptors: list(&value["descriptors"]).map(read_descriptor).collect(),
        shadow_mode: value["shadow_mode"] == true,
        quota_mode: value["quota_mode"] == true,
        ..ConfiguredDescriptor::default()
    }
}

/// A limit. Without a unit it is one that clients refuse.
fn read_limit(value: &Value) -> ConfiguredLimit {
    let unit = match value["unit"].as_str().unwrap_or_default() {
        "second" => Unit::Second,
        "minute" => Unit::Minute,
        "hour" => Unit::Hour,
        "day" => Unit::Day,
        _ => Unit::Unknown,
    };
    let requests = value["requests_per_unit"].as_u64().unwrap_or_default();
    per(requests.try_into().unwrap(), unit)
}
