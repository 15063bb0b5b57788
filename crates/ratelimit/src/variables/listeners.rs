//! Where is listened: HTTP, gRPC with its TLS, and the debug port.

use tidegate::document::Node;

use super::reader::{Reader, span};

pub(super) fn read(reader: &mut Reader<'_>) {
    for (key, host, port) in [
        ("http", "HOST", "PORT"),
        ("grpc", "GRPC_HOST", "GRPC_PORT"),
        ("debug", "DEBUG_HOST", "DEBUG_PORT"),
    ] {
        let named = if reader.is_set(host) { host } else { port };
        match reader.text("GRPC_UDS") {
            Some(path) if key == "grpc" => {
                let path = Node::setting("GRPC_UDS", &format!("unix://{path}"));
                reader.set(key, path, &["GRPC_UDS"]);
            }
            _ => {
                let listening = reader.host(host, &reader.text_or_default(host));
                let address = address(&listening, &reader.port(port));
                reader.set(key, Node::setting(named, &address), &[host, port]);
            }
        }
    }
    for (key, name) in [
        ("grpc_max_connection_age", "GRPC_MAX_CONNECTION_AGE"),
        (
            "grpc_max_connection_age_grace",
            "GRPC_MAX_CONNECTION_AGE_GRACE",
        ),
    ] {
        if let Some(duration) = reader.duration(name) {
            // Zero is no bound.
            let text = match span(duration) {
                _ if duration.is_zero() => "off".to_owned(),
                text => text,
            };
            reader.set(key, Node::setting(name, &text), &[name]);
        }
    }
    if reader.is_true("GRPC_SERVER_USE_TLS") {
        for (key, name) in [
            ("grpc_tls_cert", "GRPC_SERVER_TLS_CERT"),
            ("grpc_tls_key", "GRPC_SERVER_TLS_KEY"),
        ] {
            if !reader.is_set(name) {
                reader.refuse(
                    name,
                    "TLS needs this file, because `GRPC_SERVER_USE_TLS` is true",
                );
            }
            reader.pass_on(key, name);
        }
        reader.pass_on("grpc_tls_client_ca", "GRPC_CLIENT_TLS_CACERT");
        if reader.is_set("GRPC_CLIENT_TLS_CACERT") {
            reader.pass_on("grpc_tls_client_name", "GRPC_CLIENT_TLS_SAN");
        }
    }
}

/// A host and a port as an address: an IPv6 host in brackets.
pub(super) fn address(host: &str, port: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}
