//! Where the stats go: statsd, `DogStatsD`, Prometheus.

use tidegate::document::{Node, Place, Value};

use super::go;
use super::listeners::address;
use super::reader::{MOGRIFIER, MapOfSetting, Reader, map_of, span};

const TAGS: &str = "EXTRA_TAGS";
const MOGRIFIERS: &str = "USE_DOG_STATSD_MOGRIFIERS";

/// The variables that say something of servers of statsd.
const STATSD: [&str; 7] = [
    "USE_STATSD",
    "USE_DOG_STATSD",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATSD_PROTOCOL",
    "STATS_FLUSH_INTERVAL",
    TAGS,
];

pub(super) fn read(reader: &mut Reader<'_>) {
    if reader.is_true("DISABLE_STATS") {
        for key in ["statsd", "prometheus"] {
            reader.set(
                key,
                Node::setting("DISABLE_STATS", "off"),
                &["DISABLE_STATS"],
            );
        }
        return;
    }
    let has_prometheus = reader.is_true("USE_PROMETHEUS");
    if has_prometheus {
        prometheus(reader);
    }
    let is_dog = reader.is_true("USE_DOG_STATSD");
    let is_on = if reader.is_set("USE_STATSD") {
        reader.is_true("USE_STATSD")
    } else {
        !has_prometheus && !is_dog
    };
    let mut servers = Vec::new();
    for is_dog in [is_on.then_some(false), is_dog.then_some(true)] {
        servers.extend(is_dog.map(|is_dog| statsd(reader, is_dog)));
    }
    let is_off = servers.is_empty();
    let node = match servers.len() {
        0 => Node::setting("USE_STATSD", "off"),
        1 => servers.remove(0),
        _ => Node {
            value: Value::List(servers),
            place: Place::Setting("USE_STATSD".to_owned()),
        },
    };
    let variables = if is_off { &STATSD[..1] } else { &STATSD };
    reader.set("statsd", node, variables);
}

fn prometheus(reader: &mut Reader<'_>) {
    let name = "PROMETHEUS_ADDR";
    let given = reader.text_or_default(name);
    let mut prometheus = MapOfSetting::of("USE_PROMETHEUS");
    // Without a host, it is all addresses of both families.
    let listening = match given.rsplit_once(':') {
        Some(("", _)) => format!("[::]{given}"),
        Some((host, port)) => address(&reader.host(name, host), port),
        None => given,
    };
    prometheus.put_text("address", name, &listening);
    let name = "PROMETHEUS_PATH";
    prometheus.put_text("path", name, &reader.text_or_default(name));
    let name = "PROMETHEUS_MAPPER_YAML";
    if let Some(file) = reader.text(name) {
        prometheus.put_text("mapping", name, &file);
    }
    let name = "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS";
    if reader.is_true(name) {
        prometheus.put_text("response_time", name, "milliseconds");
    }
    put_tags(reader, &mut prometheus);
    reader.set("prometheus", prometheus.into_node(), &["USE_PROMETHEUS"]);
}

fn put_tags(reader: &Reader<'_>, sink: &mut MapOfSetting) {
    let tags = go::map(&reader.text_or_default(TAGS)).unwrap_or_default();
    if !tags.is_empty() {
        sink.put("tags", map_of(TAGS, tags).into_node());
    }
}

fn statsd(reader: &mut Reader<'_>, is_dog: bool) -> Node {
    let named = if is_dog {
        "USE_DOG_STATSD"
    } else {
        "USE_STATSD"
    };
    let mut statsd = MapOfSetting::of(named);
    let server = address(
        &reader.text_or_default("STATSD_HOST"),
        &reader.port("STATSD_PORT"),
    );
    statsd.put_text("address", "STATSD_HOST", &server);
    if is_dog {
        statsd.put_text("dialect", named, "dogstatsd");
    } else {
        let name = "STATSD_PROTOCOL";
        let protocol = reader.text_or_default(name);
        statsd.put_text("protocol", name, &protocol.to_lowercase());
    }
    let name = "STATS_FLUSH_INTERVAL";
    if let Some(duration) = reader.duration(name) {
        statsd.put_text("interval", name, &span(duration));
    }
    put_tags(reader, &mut statsd);
    if is_dog {
        put_mogrifiers(reader, &mut statsd);
    }
    statsd.into_node()
}

/// Whether the list names the mogrifier that a variable is of.
pub(super) fn is_of_named_mogrifier(reader: &Reader<'_>, variable: &str) -> bool {
    let names = go::list(&reader.text_or_default(MOGRIFIERS));
    let is_of = |name: &String| {
        let rest = variable.strip_prefix(MOGRIFIER);
        let part = rest.and_then(|rest| rest.strip_prefix(&name.to_uppercase()));
        part.is_some_and(|part| matches!(part, "_PATTERN" | "_NAME" | "_TAGS"))
    };
    names.iter().any(is_of)
}

/// The variables `DOG_STATSD_MOGRIFIER_{NAME}_PATTERN`, `_NAME` and `_TAGS` of each name in the list.
fn put_mogrifiers(reader: &mut Reader<'_>, statsd: &mut MapOfSetting) {
    let list = MOGRIFIERS;
    let mut mogrifiers = Vec::new();
    for name in go::list(&reader.text_or_default(list)) {
        let variable = |part: &str| format!("{MOGRIFIER}{}_{part}", name.to_uppercase());
        let (pattern, new_name, tags) = (variable("PATTERN"), variable("NAME"), variable("TAGS"));
        let mut mogrifier = MapOfSetting::of(&pattern);
        for (key, variable) in [("pattern", &pattern), ("name", &new_name)] {
            match reader.text(variable) {
                Some(text) => mogrifier.put_text(key, variable, &text),
                None if key == "pattern" => {
                    let problem = format!("this is needed, because `{list}` names `{name}`");
                    reader.refuse(variable, problem);
                }
                None => {}
            }
        }
        match go::map(&reader.text(&tags).unwrap_or_default()) {
            Ok(pairs) if pairs.is_empty() => {}
            Ok(pairs) => mogrifier.put("tags", map_of(&tags, pairs).into_node()),
            Err(problem) => reader.refuse(&tags, problem),
        }
        mogrifiers.push(mogrifier.into_node());
    }
    if !mogrifiers.is_empty() {
        let value = Value::List(mogrifiers);
        let place = Place::Setting(list.to_owned());
        statsd.put("mogrifiers", Node { value, place });
    }
}
