//! A manifest of kind `Ingress`: its annotations, hosts and paths.

use tidegate::document::{Node, Value};

use super::line_of;
use crate::nginx;
use crate::report::ConfigLine;

/// The prefixes of annotations, the current one and the one of early versions.
const PREFIXES: [&str; 2] = ["nginx.ingress.kubernetes.io/", "ingress.kubernetes.io/"];

/// What is used of a manifest.
pub(super) struct IngressManifest {
    /// Namespace and name.
    pub(super) name: String,
    annotations: Vec<(String, ConfigLine, String)>,
    pub(super) paths: Vec<IngressPath>,
    /// Whether its paths are regular expressions.
    pub(super) is_regex: bool,
    pub(super) is_canary: bool,
    /// Statuses that snippets set: of requests, of connections.
    set_statuses: (Option<u16>, Option<u16>),
    /// Directives about limits in snippets.
    pub(super) snippets: Vec<(ConfigLine, String)>,
}

/// A path of a host.
pub(super) struct IngressPath {
    /// The host; empty for all.
    pub(super) host: String,
    pub(super) path: String,
    /// The `pathType`.
    pub(super) kind: String,
    pub(super) at: ConfigLine,
}

/// The text of a key of a map, or an empty one.
fn text_of<'n>(node: Option<&'n Node>, key: &str) -> &'n str {
    let value = node.and_then(|node| node.get(key));
    value.and_then(Node::text).unwrap_or_default()
}

/// The items of a list of a map.
fn items<'n>(node: Option<&'n Node>, key: &str) -> &'n [Node] {
    match node.and_then(|node| node.get(key)).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

impl IngressManifest {
    pub(super) fn read(node: &Node, file: usize) -> Self {
        let metadata = node.get("metadata");
        let (namespace, name) = (text_of(metadata, "namespace"), text_of(metadata, "name"));
        let name = match (namespace, name) {
            ("", "") => "ingress".to_owned(),
            ("" | "default", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}-{name}"),
        };
        let mut manifest = Self {
            name,
            annotations: Vec::new(),
            paths: Vec::new(),
            is_regex: false,
            is_canary: false,
            set_statuses: (None, None),
            snippets: Vec::new(),
        };
        let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
        for entry in annotations.map(Node::entries).unwrap_or_default() {
            let mut prefixes = PREFIXES.iter();
            if let Some(name) = prefixes.find_map(|prefix| entry.key.strip_prefix(prefix)) {
                let value = entry.value.text().unwrap_or_default().trim().to_owned();
                let at = line_of(&entry.key_place, file);
                manifest.annotations.push((name.to_owned(), at, value));
            }
        }
        manifest.is_regex =
            manifest.is_true("use-regex") || manifest.annotation("rewrite-target").is_some();
        manifest.is_canary = manifest.is_true("canary");
        manifest.read_snippets();
        manifest.read_paths(node.get("spec"), file);
        manifest
    }

    fn read_paths(&mut self, spec: Option<&Node>, file: usize) {
        for rule in items(spec, "rules") {
            let host = text_of(Some(rule), "host").to_ascii_lowercase();
            let paths = items(rule.get("http"), "paths");
            for path in paths {
                let text = text_of(Some(path), "path");
                self.paths.push(IngressPath {
                    host: host.clone(),
                    path: if text.is_empty() { "/" } else { text }.to_owned(),
                    kind: text_of(Some(path), "pathType").to_owned(),
                    at: line_of(&path.place, file),
                });
            }
        }
        let backend =
            spec.and_then(|spec| spec.get("defaultBackend").or_else(|| spec.get("backend")));
        if let Some(backend) = backend {
            self.paths.push(IngressPath {
                host: String::new(),
                path: "/".to_owned(),
                kind: "Prefix".to_owned(),
                at: line_of(&backend.place, file),
            });
        }
    }

    fn read_snippets(&mut self) {
        let snippets: Vec<(ConfigLine, String)> = self
            .annotations
            .iter()
            .filter(|(name, _, _)| name.ends_with("-snippet"))
            .map(|(_, at, value)| (*at, value.clone()))
            .collect();
        for (at, text) in snippets {
            for (name, words) in nginx::directives(&text) {
                let word = words.first().map_or("", String::as_str);
                match name.as_str() {
                    "limit_req_status" => self.set_statuses.0 = word.parse().ok(),
                    "limit_conn_status" => self.set_statuses.1 = word.parse().ok(),
                    "limit_req_log_level" | "limit_conn_log_level" => {}
                    name if name.starts_with("limit_") => {
                        self.snippets
                            .push((at, format!("{name} {}", words.join(" "))));
                    }
                    _ => {}
                }
            }
        }
    }

    fn is_true(&self, name: &str) -> bool {
        self.annotation(name)
            .is_some_and(|(_, value)| value == "true")
    }

    /// Its hosts.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.paths.iter().map(|path| path.host.clone()).collect()
    }

    /// The line and the value of an annotation.
    pub(super) fn annotation(&self, wanted: &str) -> Option<(ConfigLine, &str)> {
        let mut annotations = self.annotations.iter();
        let found = annotations.find(|(name, _, _)| name == wanted);
        found.map(|(_, at, value)| (*at, value.as_str()))
    }

    /// The annotations that begin so.
    pub(super) fn annotations_with<'m>(
        &'m self,
        prefix: &'m str,
    ) -> impl Iterator<Item = (ConfigLine, &'m str)> {
        let annotations = self.annotations.iter();
        let wanted = annotations.filter(move |(name, _, _)| name.starts_with(prefix));
        wanted.map(|(name, at, _)| (*at, name.as_str()))
    }

    /// The statuses of denied requests, which snippets may set.
    pub(super) fn statuses(&self, defaults: (u16, u16)) -> (u16, u16) {
        (
            self.set_statuses.0.unwrap_or(defaults.0),
            self.set_statuses.1.unwrap_or(defaults.1),
        )
    }
}
