//! Where the limits come from: a folder, or a management server.

use std::time::Duration;

use tidegate::document::Node;

use super::go;
use super::reader::{MapOfSetting, Reader, map_of, span};
use super::table::NoteLevel;

pub(super) fn read(reader: &mut Reader<'_>) {
    reader.pass_on_boolean("merge_domains", "MERGE_DOMAIN_CONFIG");
    reader.pass_on_boolean("ignore_dot_files", "RUNTIME_IGNOREDOTFILES");
    match reader.text_or_default("CONFIG_TYPE").as_str() {
        "FILE" => folder(reader),
        "GRPC_XDS_SOTW" => management_server(reader),
        other => {
            let problem = format!("`{other}` is unknown; expected `FILE` or `GRPC_XDS_SOTW`");
            reader.refuse("CONFIG_TYPE", problem);
        }
    }
}

/// All files below a folder.
fn folder(reader: &mut Reader<'_>) {
    let parts = [
        "RUNTIME_ROOT",
        "RUNTIME_SUBDIRECTORY",
        "RUNTIME_APPDIRECTORY",
    ];
    let mut folder = String::new();
    for part in parts.map(|name| reader.text_or_default(name)) {
        // Joined as Go does: a part that begins with a slash does not replace those before it.
        let part = part.trim_end_matches('/');
        let part = if folder.is_empty() {
            part
        } else {
            part.trim_start_matches('/')
        };
        if !folder.is_empty() && !part.is_empty() {
            folder.push('/');
        }
        folder.push_str(part);
    }
    let named = parts.into_iter().find(|name| reader.is_set(name));
    let named = named.unwrap_or("RUNTIME_ROOT");
    reader.set("rules", Node::setting(named, &folder), &parts);
}

/// The shortest pause between attempts that `xds.backoff` may have.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// The variables whose texts are passed on.
const TEXTS: [(&str, &str); 2] = [
    ("server", "CONFIG_GRPC_XDS_SERVER_URL"),
    ("node", "CONFIG_GRPC_XDS_NODE_ID"),
];

/// The files and the name of TLS.
const OF_TLS: [(&str, &str); 4] = [
    ("cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
    ("key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
    ("ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
    ("server_name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
];

fn management_server(reader: &mut Reader<'_>) {
    let mut xds = MapOfSetting::of("CONFIG_GRPC_XDS_SERVER_URL");
    for (key, name) in TEXTS {
        xds.put_text(key, name, &reader.text_or_default(name));
    }
    let name = "CONFIG_GRPC_XDS_NODE_METADATA";
    if let Some(pairs) = reader.text(name).map(|text| metadata(&text)) {
        match pairs {
            Ok(pairs) => xds.put("metadata", map_of(name, pairs).into_node()),
            Err(problem) => reader.refuse(name, problem),
        }
    }
    let name = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
    let headers = go::map(&reader.text_or_default(name)).unwrap_or_default();
    if !headers.is_empty() {
        xds.put("headers", map_of(name, headers).into_node());
    }
    if reader.is_true("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
        xds.put_text("tls", "CONFIG_GRPC_XDS_SERVER_USE_TLS", "true");
        for (key, name) in OF_TLS {
            if let Some(value) = reader.text(name) {
                xds.put_text(key, name, &value);
            }
        }
    }
    let mut backoff = MapOfSetting::of("XDS_CLIENT_BACKOFF_MAX_INTERVAL");
    for (key, name) in [
        ("initial", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
        ("max", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
    ] {
        // The default of the first is not taken over: a new attempt after a second is early enough for a server.
        let duration = reader.duration(name).filter(|_| reader.is_set(name));
        if let Some(duration) = duration {
            let pause = duration.max(LEAST_PAUSE);
            if pause > duration {
                let text = format!(
                    "`{name}` is too short, so the pause is {}: a server that is away is not asked all the time",
                    span(pause)
                );
                reader.note(NoteLevel::Warn, text);
            }
            backoff.put_text(key, name, &span(pause));
        }
    }
    let name = "XDS_CLIENT_BACKOFF_JITTER";
    if !reader.is_true(name) {
        backoff.put_text("jitter", name, "false");
    }
    if !backoff.is_empty() {
        xds.put("backoff", backoff.into_node());
    }
    let name = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";
    let bytes = go::whole(&reader.text_or_default(name)).unwrap_or_default();
    // Zero is unset. The length of a message has 32 bits.
    if bytes > 0 {
        let bytes = bytes.min(u32::MAX.into());
        xds.put_text("max_message", name, &format!("{bytes}B"));
    }
    let variables: Vec<&str> = TEXTS
        .map(|(_, name)| name)
        .into_iter()
        .chain(["CONFIG_TYPE"])
        .collect();
    reader.set("xds", xds.into_node(), &variables);
}

/// Pairs of the form `k=v,k2=v2`.
fn metadata(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(|pair| {
        let pair = pair.trim();
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("`{pair}` is no pair; write `key=value,key2=value2`"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}
