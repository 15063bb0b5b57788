//! The setting `xds`: the management server that rules come from.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate::Micros;
use tidegate::document::{Fields, Node, Problems, Spot};
use tidegate_codec::grpc::proto::rate_limit_config::TYPE_URL;
use tidegate_xds::{RetryTimes, XdsSettings, XdsTls};

use super::read::{flag, need_both, setting, span};
use super::settings::{RETRY, XDS};
use super::size::bytes_of;

/// The shortest pause: a server that is away must not be asked all the time.
const LEAST_PAUSE: Micros = Micros::new(10_000);

/// The keys that need TLS.
const OF_TLS: [&str; 4] = ["cert", "key", "ca", "server_name"];

/// The management server. Rules come from one source.
pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<XdsSettings> {
    let (spot, node) = fields.take("xds")?;
    if fields.key("rules").is_some() {
        let message = "rules come either from `rules` or from `xds`; leave one of them out";
        problems.error(&node.place, &spot, message);
    }
    let mut fields = Fields::new(node, spot.clone(), &XDS, problems)?;
    if fields.key("server").is_none() {
        let message = "give the `server`, a host and a port, such as `envoy-gateway:18001`";
        problems.error(&node.place, &spot, message);
    }
    let server = fields.parsed("server", str::parse, problems);
    let id = setting(&fields, "node", |id| Ok(id.to_owned()), problems);
    let metadata = texts(&fields, "metadata", problems);
    let headers = texts(&fields, "headers", problems);
    let headers = headers
        .into_iter()
        .filter_map(|(spot, node, name, value)| match header(&name, &value) {
            Ok(header) => Some(header),
            Err(message) => spot.refused(node, message, problems),
        })
        .collect();
    let is_tls = flag(&fields, "tls", problems);
    let tls = if is_tls == Some(true) {
        Some(tls(&fields, problems))
    } else {
        let message = "this is for TLS; write `tls: true`, or leave this out";
        for key in OF_TLS {
            fields.refuse(key, message, problems);
        }
        None
    };
    let retry = match fields.take("backoff") {
        Some((spot, node)) => retry(node, &spot, problems),
        None => Some(RetryTimes::default()),
    };
    let max_message = setting(&fields, "max_message", max_message, problems);
    fields.done(problems);
    let metadata = metadata.into_iter();
    Some(XdsSettings {
        server: server?,
        type_url: TYPE_URL,
        node: id?,
        metadata: metadata.map(|(_, _, key, value)| (key, value)).collect(),
        headers,
        tls,
        retry: retry?,
        max_message: max_message?,
    })
}

/// The entries of a map of texts, each with its spot.
fn texts<'n>(
    fields: &Fields<'n>,
    key: &str,
    problems: &mut Problems,
) -> Vec<(Spot, &'n Node, String, String)> {
    let Some((spot, node)) = fields.take(key) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    for entry in spot.entries(node, problems) {
        let spot = spot.field(&entry.key);
        if let Some(text) = spot.text(&entry.value, problems) {
            texts.push((spot, &entry.value, entry.key.clone(), text.to_owned()));
        }
    }
    texts
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name: HeaderName = name
        .parse()
        .map_err(|_| format!("`{name}` is not the name of a header"))?;
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| "the value of a header is one line of printable text".to_owned())?;
    // Never printed: it may be a credential.
    value.set_sensitive(true);
    Ok((name, value))
}

fn tls(fields: &Fields<'_>, problems: &mut Problems) -> XdsTls {
    need_both(fields, ["cert", "key"], problems);
    // Read for each connection: they may not be there yet.
    let mut path = |key| fields.text(key, problems).map(PathBuf::from);
    let (cert, key, authorities) = (path("cert"), path("key"), path("ca"));
    let server_name = fields.text("server_name", problems);
    XdsTls {
        identity: cert.zip(key),
        authorities,
        server_name: server_name.map(str::to_owned),
    }
}

fn retry(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<RetryTimes> {
    let fields = Fields::new(node, spot.clone(), &RETRY, problems)?;
    let initial = setting(&fields, "initial", pause, problems);
    let max = setting(&fields, "max", pause, problems);
    let is_jittered = flag(&fields, "jitter", problems);
    fields.done(problems);
    Some(RetryTimes {
        initial: initial?,
        max: max?,
        is_jittered: is_jittered?,
    })
}

fn pause(text: &str) -> Result<Duration, String> {
    match span(text)? {
        short if short < LEAST_PAUSE => Err(format!("`{text}` is too short; give at least `10ms`")),
        pause => Ok(pause.into()),
    }
}

fn max_message(text: &str) -> Result<usize, String> {
    let bytes = bytes_of(text).and_then(|bytes| usize::try_from(bytes).ok());
    // The length of a message has 32 bits.
    let bytes = bytes.filter(|bytes| (1..=u32::MAX as usize).contains(bytes));
    bytes.ok_or_else(|| {
        format!(
            "`{text}` is not the size of a message; write for example `64MiB`, at most `4095MiB`"
        )
    })
}
