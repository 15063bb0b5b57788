//! Finds the route of a request, by its host and path.

use std::sync::Arc;

use tidegate::host::normalise;

use crate::settings::RouteConfig;
use crate::upstream::Upstream;

/// All routes, most specific first.
pub(crate) struct Routes(Vec<Arc<Route>>);

/// A route and its servers.
pub(crate) struct Route {
    pub(crate) config: RouteConfig,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
}

impl Routes {
    /// The routes, and every server that they name, without duplicates.
    pub(crate) fn new(configs: &[RouteConfig]) -> (Self, Vec<Arc<Upstream>>) {
        let mut all: Vec<Arc<Upstream>> = Vec::new();
        let mut routes = Vec::with_capacity(configs.len());
        for config in configs {
            let mut upstreams = Vec::with_capacity(config.upstreams.len());
            for url in &config.upstreams {
                let known = all.iter().find(|known| known.url == *url).cloned();
                let upstream = known.unwrap_or_else(|| {
                    let upstream = Arc::new(Upstream::new(url.clone(), all.len()));
                    all.push(Arc::clone(&upstream));
                    upstream
                });
                upstreams.push(upstream);
            }
            routes.push(Arc::new(Route {
                config: config.clone(),
                upstreams,
            }));
        }
        // The longest prefix first; then an exact host, a wildcard, any.
        routes.sort_by_key(|route| {
            let host = match &route.config.host {
                Some(host) if !host.is_wildcard() => (0, 0),
                // A longer name is more specific.
                Some(host) => (1, usize::MAX - host.length()),
                None => (2, 0),
            };
            (usize::MAX - route.config.prefix.len(), host)
        });
        (Self(routes), all)
    }

    /// The index of the route of a request to a host, with or without a port, and a normal path.
    pub(crate) fn find(&self, host: &str, path: &str) -> Option<usize> {
        let host = normalise(host).unwrap_or_default();
        self.0.iter().position(|route| {
            let pattern = route.config.host.as_ref();
            is_below(path, &route.config.prefix)
                && pattern.is_none_or(|pattern| pattern.matches(&host))
        })
    }

    /// Whether any route is for a particular host.
    pub(crate) fn read_host(&self) -> bool {
        self.0.iter().any(|route| route.config.host.is_some())
    }

    /// The route at an index.
    pub(crate) fn get(&self, index: usize) -> Option<&Arc<Route>> {
        self.0.get(index)
    }

    /// Whether every request has the same route.
    pub(crate) fn are_one(&self) -> bool {
        matches!(&self.0[..], [route] if route.config.host.is_none() && route.config.prefix == "/")
    }
}

/// Whether a path is a prefix or below it, in whole segments.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::rules::HostPattern;

    use crate::upstream_url::{UpstreamScheme, UpstreamUrl};

    fn route(host: Option<&str>, prefix: &str, port: u16) -> RouteConfig {
        let upstream = UpstreamUrl {
            scheme: UpstreamScheme::Http,
            authority: format!("h:{port}").parse().unwrap(),
            host: "h".to_owned(),
            port,
        };
        RouteConfig {
            host: host.map(|host| HostPattern::parse(host).unwrap()),
            prefix: prefix.to_owned(),
            ..RouteConfig::to(upstream)
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_then_the_nearest_host() {
        let (routes, upstreams) = Routes::new(&[
            route(None, "/", 1),
            route(Some("*.example.com"), "/", 2),
            route(Some("api.example.com"), "/", 3),
            route(None, "/v1", 4),
            route(Some("*.example.com"), "/v1", 5),
            route(Some("*.eu.example.com"), "/v1", 6),
            route(None, "/v1/users/", 4),
        ]);
        assert_eq!(upstreams.len(), 6);
        assert!(!routes.are_one());
        for (host, path, port) in [
            ("other.org", "/", 1),
            ("other.org:80", "/v10", 1),
            ("example.com", "/", 1),
            ("a.example.com", "/", 2),
            ("API.example.com:8000", "/v2", 3),
            ("api.example.com.", "/v2", 3),
            ("other.org", "/v1", 4),
            ("[::1]:80", "/v1/x", 4),
            ("api.example.com", "/v1/users", 5),
            ("api.example.com", "/v1/users/", 4),
            ("a.eu.example.com", "/v1", 6),
        ] {
            let found = routes.get(routes.find(host, path).unwrap()).unwrap();
            assert_eq!(found.upstreams[0].url.port, port, "{host}{path}");
        }
        let (routes, _) = Routes::new(&[route(Some("a"), "/v1", 1)]);
        assert!(routes.find("a", "/").is_none() && routes.find("b", "/v1").is_none());
        let (routes, _) = Routes::new(&[route(None, "/", 1)]);
        assert!(routes.are_one());
    }
}
