//! The scenarios through a real Envoy, with the filters and actions that Envoy Gateway generates: TLS to the service with a
//! certificate of its own, one filter for each domain, and headers of draft 03 that Envoy writes.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{ClientReply, HttpClient, PATIENCE, RecordingUpstream};

use super::budgets::{self, BACKEND, DOMAIN};
use super::called::assert_series;
use super::deployed::Deployed;
use super::policy::{PolicyListener, RouteRule};
use super::scenarios::{Expected, Scenario, all};
use super::{HOUR, within_a_window};
use crate::proxies::proxy::Proxy;

/// What Envoy is configured with for one domain.
struct Filter {
    domain: String,
    has_headers: bool,
}

/// A virtual host for `NAME.test`, and the actions on its routes by domain.
struct Host {
    name: String,
    routes: Vec<(String, Vec<(String, String)>)>,
}

impl Host {
    /// That of a listener of Envoy Gateway.
    fn of(listener: &PolicyListener) -> Self {
        let routes = listener.routes.iter().enumerate();
        let routes = routes.map(|(at, route)| {
            let rules = listener.rules(at);
            let actions = rules.iter().flat_map(|rule| {
                let limits = rate_limits(rule).into_iter();
                limits.map(|limit| (rule.domain.clone(), limit))
            });
            (route.prefix.to_owned(), actions.collect())
        });
        Self {
            name: listener.name.to_owned(),
            routes: routes.collect(),
        }
    }

    fn yaml(&self) -> String {
        let name = &self.name;
        let mut text = format!("  - name: {name}\n    domains: [\"{name}.test\"]\n    routes:\n");
        for (prefix, limits) in &self.routes {
            let _ = write!(
                text,
                "    - match: {{path_separated_prefix: \"{prefix}\"}}\n      route: {{cluster: app}}\n      typed_per_filter_config:\n"
            );
            if prefix == "/" {
                text = text.replace("path_separated_prefix: \"/\"", "prefix: \"/\"");
            }
            let mut domains: Vec<&str> = limits.iter().map(|(domain, _)| domain.as_str()).collect();
            domains.sort_unstable();
            domains.dedup();
            for domain in domains {
                let _ = write!(
                    text,
                    "        \"envoy.filters.http.ratelimit/{domain}\":\n          \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute\n          rate_limits:\n"
                );
                for (_, limit) in limits.iter().filter(|(of, _)| of == domain) {
                    let _ = writeln!(text, "          - {limit}");
                }
            }
        }
        text
    }
}

/// The items of `rate_limits` for a rule: one for the request, and one for what its response costs.
fn rate_limits(rule: &RouteRule<'_>) -> Vec<String> {
    let actions = rule.actions();
    let cost = |cost: u32| format!("hits_addend: {{number: {cost}}}");
    let limit = match rule.rule.brought {
        Some(_) => {
            ", limit: {dynamic_metadata: {metadata_key: {key: quotas, path: [{key: limit}]}}}"
        }
        None => "",
    };
    match rule.rule.costs {
        Some((request, response)) => vec![
            format!("{{actions: {actions}, {}}}", cost(request)),
            format!(
                "{{actions: {actions}, apply_on_stream_done: true, {}}}",
                cost(response)
            ),
        ],
        None => vec![format!("{{actions: {actions}{limit}}}")],
    }
}

/// Envoy in front of a service, asking a server.
struct Front {
    envoy: Proxy,
    _upstream: RecordingUpstream,
}

impl Front {
    fn start(deployed: &Deployed, filters: &[Filter], hosts: &[Host]) -> Self {
        let upstream = RecordingUpstream::start();
        let text = config(deployed, upstream.address, filters, hosts);
        let start = |address: SocketAddr| {
            let file = deployed.folder.path("envoy.yaml");
            fs::write(&file, text.replace("LISTENER", &socket(address))).unwrap();
            let mut command = Command::new(program());
            command
                .args([
                    "--disable-hot-restart",
                    "--concurrency",
                    "1",
                    "-l",
                    "warning",
                    "-c",
                ])
                .arg(file);
            command
        };
        Self {
            envoy: Proxy::start_until(&deployed.folder, start, |reply| reply.status == 404),
            _upstream: upstream,
        }
    }

    fn ask(&self, host: &str, call: &str, headers: &[(&'static str, &'static str)]) -> ClientReply {
        let host = format!("{host}.test");
        let headers = [headers, &[("host", host.as_str())]].concat();
        HttpClient::to(self.envoy.address).ask_with(call, &headers, "")
    }
}

fn program() -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/tools/envoy/envoy");
    assert!(
        installed.exists(),
        "`envoy` is missing: install it with `scripts/install envoy`"
    );
    installed
}

fn socket(address: SocketAddr) -> String {
    format!(
        "{{socket_address: {{address: 127.0.0.1, port_value: {}}}}}",
        address.port()
    )
}

fn config(deployed: &Deployed, upstream: SocketAddr, filters: &[Filter], hosts: &[Host]) -> String {
    let mut all = String::new();
    for Filter {
        domain,
        has_headers,
    } in filters
    {
        let headers = if *has_headers {
            "DRAFT_VERSION_03"
        } else {
            "OFF"
        };
        let _ = write!(
            all,
            "- name: \"envoy.filters.http.ratelimit/{domain}\"
  typed_config:
    \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    domain: \"{domain}\"
    enable_x_ratelimit_headers: \"{headers}\"
    failure_mode_deny: true
    timeout: 5s
    rate_limit_service:
      transport_api_version: V3
      grpc_service: {{envoy_grpc: {{cluster_name: ratelimit_cluster}}}}
"
        );
    }
    let hosts: String = hosts.iter().map(Host::yaml).collect();
    let indented = |text: &str, by: usize| text.replace('\n', &format!("\n{}", " ".repeat(by)));
    let secure = if deployed.is_secure() {
        CLIENT_TLS.replace("/certs/", &deployed.folder.file("certs/"))
    } else {
        String::new()
    };
    ENVOY
        .replace("FILTERS", indented(&all, 10).trim_end())
        .replace("HOSTS", indented(&hosts, 12).trim_end())
        .replace("CLIENT_TLS", secure.trim_end())
        .replace("UPSTREAM", &socket(upstream))
        .replace("SERVICE", &socket(deployed.server.grpc.unwrap()))
}

const CLIENT_TLS: &str = r#"transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificates:
          - {certificate_chain: {filename: /certs/envoy.crt}, private_key: {filename: /certs/envoy.key}}
          validation_context: {trusted_ca: {filename: /certs/ca.crt}}
"#;

const ENVOY: &str = r#"static_resources:
  listeners:
  - name: all
    address: LISTENER
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: all
          use_remote_address: true
          route_config:
            virtual_hosts:
            HOSTS
          http_filters:
          - name: envoy.filters.http.set_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata:
              - metadata_namespace: quotas
                value: {limit: {requests_per_unit: 2, unit: HOUR}}
          FILTERS
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: app
    type: STATIC
    load_assignment:
      cluster_name: app
      endpoints: [{lb_endpoints: [{endpoint: {address: UPSTREAM}}]}]
  - name: ratelimit_cluster
    type: STATIC
    connect_timeout: 10s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: ratelimit_cluster
      endpoints: [{lb_endpoints: [{endpoint: {address: SERVICE}}]}]
    CLIENT_TLS
"#;

#[test]
fn each_scenario_of_envoy_gateway_holds_through_envoy() {
    play_all(None);
}

#[test]
fn each_scenario_of_envoy_gateway_holds_through_envoy_over_redis() {
    play_all(Some(&RedisServer::start()));
}

fn play_all(redis: Option<&RedisServer>) {
    within_a_window(HOUR, || {
        if let Some(redis) = redis {
            let _: String = redis.query(&["FLUSHALL"]);
        }
        let scenarios = all();
        let listeners = scenarios.iter().flat_map(|scenario| &scenario.listeners);
        let domains: Vec<_> = listeners.clone().flat_map(PolicyListener::limits).collect();
        let deployed = Deployed::start(redis.map(RedisServer::address), &domains);
        let filters = scenarios.iter().flat_map(filters).collect::<Vec<_>>();
        let hosts: Vec<_> = listeners.map(Host::of).collect();
        let front = Front::start(&deployed, &filters, &hosts);
        for scenario in &scenarios {
            let charged = play(scenario, &front, &deployed);
            if charged == 0 {
                assert_series(scenario, &deployed);
            }
        }
    });
}

fn filters(scenario: &Scenario) -> Vec<Filter> {
    let domains = scenario.listeners.iter().flat_map(PolicyListener::limits);
    let filter = |domain: String| Filter {
        domain,
        has_headers: scenario.has_headers,
    };
    domains.map(|limits| filter(limits.domain)).collect()
}

/// Plays a scenario. How much was charged for responses, which the service has counted by then.
fn play(scenario: &Scenario, front: &Front, deployed: &Deployed) -> u32 {
    let mut charged = 0;
    for step in &scenario.steps {
        let listener = &scenario.listeners[step.listener];
        let asked = step.asked;
        for time in (0..step.times).rev() {
            let call = format!("{} {}", asked.method, asked.target);
            let reply = front.ask(listener.name, &call, asked.headers);
            let said = format!("{}: {call}: {:?}: {reply:?}", scenario.name, step.last);
            let header = |name: &str| reply.header(name).filter(|_| scenario.has_headers);
            match step.last {
                Expected::Denied => {
                    assert_eq!(reply.status, 429, "{said}");
                    assert_eq!(reply.header("x-envoy-ratelimited"), Some("true"), "{said}");
                }
                Expected::Free => {
                    assert_eq!(
                        (reply.status, reply.header("x-ratelimit-limit")),
                        (200, None),
                        "{said}"
                    );
                }
                Expected::Allowed { limit, left } => {
                    assert_eq!(reply.status, 200, "{said}");
                    let limit = format!("{limit}, {limit};w=3600");
                    let left = (left + time).to_string();
                    let expected = scenario
                        .has_headers
                        .then_some((limit.as_str(), left.as_str()));
                    let found = header("x-ratelimit-limit").zip(header("x-ratelimit-remaining"));
                    assert_eq!(found, expected, "{said}");
                    let reset = header("x-ratelimit-reset").map(|text| text.parse().unwrap());
                    assert!(
                        reset.is_none_or(|reset| (1..=3600).contains(&reset)),
                        "{said}"
                    );
                }
            }
            if !scenario.has_headers {
                assert_eq!(reply.header("x-ratelimit-limit"), None, "{said}");
            }
            assert!(
                reply
                    .headers
                    .iter()
                    .all(|(name, _)| !name.starts_with("x-tidegate")),
                "{said}"
            );
            // Envoy charges what a response costs after it was sent, also if it is its own.
            let rules = listener.rules(listener.route_of(&asked));
            let costs = rules.iter().filter_map(|rule| rule.rule.costs);
            charged += costs.map(|(_, response)| response).sum::<u32>();
            if let Some(series) = scenario.series.iter().find(|_| charged > 0) {
                let name = "ratelimit_service_rate_limit_total_hits";
                wait_until("the response is charged", PATIENCE, || {
                    let hits = deployed.series(name, &rules[0].domain, series.1);
                    (hits == Some(f64::from(charged))).then_some(())
                });
            }
        }
    }
    charged
}

/// The budgets of the AI Gateway: a request counts as one, and its response as its tokens.
#[test]
fn a_budget_of_tokens_holds_through_envoy() {
    play_budget(None);
}

#[test]
fn a_budget_of_tokens_holds_through_envoy_over_redis() {
    play_budget(Some(&RedisServer::start()));
}

fn play_budget(redis: Option<&RedisServer>) {
    within_a_window(HOUR, || {
        if let Some(redis) = redis {
            let _: String = redis.query(&["FLUSHALL"]);
        }
        let redis = redis.map(RedisServer::address);
        let deployed = Deployed::start_for_models(redis, &budgets::budgets(&[("model", 10)]));
        let entry = |key: &str, value: &str| {
            format!("{{generic_key: {{descriptor_key: {key}, descriptor_value: {value}}}}}")
        };
        let actions = format!(
            "[{}, {}]",
            entry("backend_name", BACKEND),
            entry("model_name_override", "model")
        );
        let limits = [
            format!("{{actions: {actions}}}"),
            format!(
                "{{actions: {actions}, apply_on_stream_done: true, hits_addend: {{number: 20}}}}"
            ),
        ];
        let limits = limits.map(|limit| (DOMAIN.to_owned(), limit));
        let host = Host {
            name: "models".to_owned(),
            routes: vec![("/".to_owned(), limits.to_vec())],
        };
        let filter = Filter {
            domain: DOMAIN.to_owned(),
            has_headers: true,
        };
        let front = Front::start(&deployed, &[filter], &[host]);
        let first = front.ask("models", "GET /v1/chat/completions", &[]);
        assert_eq!(
            first.header("x-ratelimit-remaining"),
            Some("9"),
            "{first:?}"
        );
        let stat = format!(
            "ratelimit.service.rate_limit.{DOMAIN}.backend_name_{BACKEND}.model_name_override_model.total_hits: 21\n"
        );
        wait_until("the tokens are charged", PATIENCE, || {
            deployed.debug("/stats").contains(&stat).then_some(())
        });
        let denied = front.ask("models", "GET /v1/chat/completions", &[]);
        assert_eq!(denied.status, 429, "{denied:?}");
    });
}
