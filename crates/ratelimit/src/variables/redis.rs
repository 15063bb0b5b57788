//! Where counters are: the URL of Redis with its passwords and certificates, or the memory of the server.

use tidegate::document::Node;

use super::reader::Reader;
use super::table::NoteLevel;

/// Where envoyproxy/ratelimit looks for Redis without `REDIS_URL`.
const SOCKET: &str = "/var/run/nutcracker/ratelimit.sock";

const NO_MEMCACHED: &str = "counters in memcached are not exact; set BACKEND_TYPE=redis and REDIS_URL, or unset both for counters in memory";

/// The longest namespace.
const LONGEST: usize = 32;

pub(super) fn read(reader: &mut Reader<'_>) {
    match reader.text_or_default("BACKEND_TYPE").as_str() {
        "redis" => {}
        "memcache" => return reader.refuse("BACKEND_TYPE", NO_MEMCACHED),
        other => {
            let problem = format!("`{other}` is unknown; expected `redis`");
            return reader.refuse("BACKEND_TYPE", problem);
        }
    }
    let Some(url) = url(reader) else {
        return;
    };
    let is_tls = url.starts_with("rediss");
    let is_sentinel = url.contains("+sentinel://");
    reader.set(
        "redis",
        Node::setting("REDIS_URL", &url),
        &["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TLS"],
    );
    log_in(
        reader,
        "REDIS_AUTH",
        "redis_user",
        "TIDEGATE_REDIS_PASSWORD",
    );
    if is_sentinel {
        log_in(
            reader,
            "REDIS_SENTINEL_AUTH",
            "redis_sentinel_user",
            "TIDEGATE_REDIS_SENTINEL_PASSWORD",
        );
    }
    if is_tls {
        reader.pass_on("redis_cert", "REDIS_TLS_CLIENT_CERT");
        reader.pass_on("redis_key", "REDIS_TLS_CLIENT_KEY");
        reader.pass_on("redis_ca", "REDIS_TLS_CACERT");
        let name = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION";
        if reader.is_true(name) {
            reader.set("redis_name_check", Node::setting(name, "false"), &[name]);
        }
    }
    namespace(reader);
}

/// The URL, if there is a Redis.
fn url(reader: &mut Reader<'_>) -> Option<String> {
    let Some(given) = reader.text("REDIS_URL") else {
        if reader.exists(SOCKET) {
            return Some(format!("unix://{SOCKET}"));
        }
        let text = format!(
            "`REDIS_URL` is not set and there is no socket `{SOCKET}`: counters are in memory, and servers do not share them"
        );
        reader.note(NoteLevel::Warn, text);
        return None;
    };
    let form = reader.text_or_default("REDIS_TYPE").to_lowercase();
    let url = match form.as_str() {
        "single" => one_server(reader, &given),
        "sentinel" => sentinels(reader, &given),
        "cluster" => Ok(format!(
            "{}+cluster://{}",
            scheme(reader),
            addresses(&given)
        )),
        _ => {
            let problem =
                format!("`{form}` is unknown; expected `SINGLE`, `SENTINEL` or `CLUSTER`");
            reader.refuse("REDIS_TYPE", problem);
            return None;
        }
    };
    match url {
        Ok(url) => Some(url),
        Err(problem) => {
            reader.refuse("REDIS_URL", problem);
            None
        }
    }
}

fn scheme(reader: &Reader<'_>) -> &'static str {
    if reader.is_true("REDIS_TLS") {
        "rediss"
    } else {
        "redis"
    }
}

/// `host:port`, a URL, or the path of a socket.
fn one_server(reader: &Reader<'_>, given: &str) -> Result<String, String> {
    if given.starts_with('/') {
        return Ok(format!("unix://{}", escaped(given)));
    }
    if given.starts_with("rediss://") {
        return Ok(given.to_owned());
    }
    if reader.text("REDIS_SOCKET_TYPE").as_deref() == Some("unix") && !given.contains(':') {
        return Err(format!(
            "`{given}` is not the absolute path of a socket; write one, or set REDIS_SOCKET_TYPE=tcp"
        ));
    }
    let rest = given.strip_prefix("redis://").unwrap_or(given);
    Ok(format!("{}://{rest}", scheme(reader)))
}

/// `master,host:port,…`.
fn sentinels(reader: &Reader<'_>, given: &str) -> Result<String, String> {
    let Some((master, sentinels)) = given.split_once(',') else {
        return Err("for REDIS_TYPE=SENTINEL write `master,host:port,host:port`".to_owned());
    };
    let (sentinels, master) = (addresses(sentinels), escaped(master.trim()));
    Ok(format!(
        "{}+sentinel://{sentinels}/{master}",
        scheme(reader)
    ))
}

/// Addresses that are separated by commas, without schemes and white space.
fn addresses(list: &str) -> String {
    let addresses = list
        .split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty());
    let bare = |address: &str| {
        let rest = address
            .strip_prefix("redis://")
            .or_else(|| address.strip_prefix("rediss://"));
        rest.unwrap_or(address).to_owned()
    };
    addresses.map(bare).collect::<Vec<_>>().join(",")
}

/// A path or a name in a URL: what would end it there is percent-encoded.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '%' => escaped.push_str("%25"),
            '?' => escaped.push_str("%3F"),
            '#' => escaped.push_str("%23"),
            '@' => escaped.push_str("%40"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// `password` or `user:password`.
fn log_in(
    reader: &mut Reader<'_>,
    name: &'static str,
    user_key: &'static str,
    secret: &'static str,
) {
    let Some(given) = reader.text(name) else {
        return;
    };
    let (user, password) = match given.split_once(':') {
        Some((user, password)) => (user, password),
        None => ("", given.as_str()),
    };
    if !user.is_empty() {
        reader.set(user_key, Node::setting(name, user), &[name]);
    }
    reader.secrets.push((secret, password.to_owned()));
}

/// The prefix of keys as a namespace.
fn namespace(reader: &mut Reader<'_>) {
    let name = "CACHE_KEY_PREFIX";
    let Some(prefix) = reader.text(name) else {
        return;
    };
    let letters = prefix.chars().map(|letter| {
        let is_fit = letter.is_ascii_alphanumeric() || letter == '-';
        if is_fit { letter } else { '-' }
    });
    let namespace: String = letters.take(LONGEST).collect();
    if namespace != prefix {
        let text = format!(
            "`{name}` becomes the namespace `{namespace}`, which has letters, digits and `-` only"
        );
        reader.note(NoteLevel::Warn, text);
    }
    reader.set("namespace", Node::setting(name, &namespace), &[name]);
}
