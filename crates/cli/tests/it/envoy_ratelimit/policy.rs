//! Policies in the terms of Envoy Gateway, and what it makes of them: limits for the service, and actions for Envoy. What Envoy
//! sends for a request by these actions is here, too.

use tidegate_server::grpc_messages::rate_limit::Unit;
use tidegate_server::grpc_messages::rate_limit_config::{ConfiguredDescriptor, ConfiguredDomain};
use tidegate_testkit_xds::{descriptor, domain, per};

/// The namespace of everything.
const NAMESPACE: &str = "gateway-conformance-infra";

/// Which requests a rule is about.
#[derive(Clone, Copy)]
pub(super) enum Selector {
    /// A header with this value.
    Header(&'static str, &'static str),
    /// A header with another value, or none.
    NoHeader(&'static str, &'static str),
    /// A header: each value has its own counter.
    Distinct(&'static str),
    /// One of several methods.
    Methods(&'static [&'static str]),
    /// A path, and what is below it.
    Path(&'static str),
    /// A parameter of the query with this value.
    Query(&'static str, &'static str),
    /// All addresses of IPv4, with one counter.
    AnyAddress,
    /// All addresses of IPv4: each has its own counter.
    EachAddress,
    /// Addresses outside a network.
    Outside(&'static str),
}

use Selector::{
    AnyAddress, Distinct, EachAddress, Header, Methods, NoHeader, Outside, Path, Query,
};

/// A request of a client.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) target: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
}

impl Asked {
    fn header(&self, name: &str) -> Option<&'static str> {
        let mut found = self.headers.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| *value)
    }

    fn path(&self) -> &'static str {
        self.target.split('?').next().unwrap()
    }

    fn is_below(&self, prefix: &str) -> bool {
        let rest = self.path().strip_prefix(prefix.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A limit per hour on the requests that all selectors are about.
#[derive(Clone)]
pub(super) struct PolicyRule {
    selectors: Vec<Selector>,
    pub(super) requests: u32,
    is_shared: bool,
    is_shadow: bool,
    /// The values of a distinct header that have a limit of their own.
    overrides: Vec<(&'static str, u32)>,
    /// What a request costs before it is forwarded, and when its response has ended.
    pub(super) costs: Option<(u32, u32)>,
    /// A limit that comes with the request.
    pub(super) brought: Option<u32>,
}

pub(super) fn rule(selectors: &[Selector], requests: u32) -> PolicyRule {
    PolicyRule {
        selectors: selectors.to_vec(),
        requests,
        is_shared: false,
        is_shadow: false,
        overrides: Vec::new(),
        costs: None,
        brought: None,
    }
}

impl PolicyRule {
    pub(super) fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    pub(super) fn in_shadow(self) -> Self {
        Self {
            is_shadow: true,
            ..self
        }
    }

    pub(super) fn overriding(self, overrides: &[(&'static str, u32)]) -> Self {
        Self {
            overrides: overrides.to_vec(),
            ..self
        }
    }

    pub(super) fn costing(self, request: u32, response: u32) -> Self {
        Self {
            costs: Some((request, response)),
            ..self
        }
    }

    pub(super) fn bringing(self, limit: u32) -> Self {
        Self {
            brought: Some(limit),
            ..self
        }
    }

    /// The entries of each request: their keys, the values in the limits (none for each its own), how Envoy makes them.
    fn entries(&self, number: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        let name = |end: &str| format!("rule-{number}-{end}");
        let mut matched = 0;
        for selector in &self.selectors {
            let key = match selector {
                Header(..) | NoHeader(..) | Distinct(_) | Query(..) => {
                    matched += 1;
                    name(&format!("match-{}", matched - 1))
                }
                Methods(_) => name("method"),
                Path(_) => name("path"),
                AnyAddress | EachAddress | Outside(_) => "masked_remote_address".to_owned(),
            };
            entries.push(Entry::new(*selector, key));
            if matches!(selector, EachAddress) {
                entries.push(Entry {
                    key: "remote_address".to_owned(),
                    value: String::new(),
                    action: "{remote_address: {}}".to_owned(),
                    selector: None,
                });
            }
        }
        if entries.is_empty() {
            entries.push(Entry::generic(&name("match--1")));
        }
        entries
    }

    /// The limits of this rule, below those of its route.
    fn limits(&self, number: usize) -> Vec<ConfiguredDescriptor> {
        let chain = |requests: u32, first: Option<&str>| {
            let mut below = Vec::new();
            for (at, entry) in self.entries(number).iter().enumerate().rev() {
                let value = first.filter(|_| at == 0).unwrap_or(&entry.value);
                let mut made = descriptor(&entry.key, value, below.drain(..));
                if made.descriptors.is_empty() {
                    made.rate_limit = Some(per(requests, Unit::Hour));
                    made.shadow_mode = self.is_shadow;
                }
                below = vec![made];
            }
            below.remove(0)
        };
        let overrides = self.overrides.iter();
        let overrides = overrides.map(|(value, requests)| chain(*requests, Some(value)));
        overrides.chain([chain(self.requests, None)]).collect()
    }
}

/// An entry of a descriptor.
struct Entry {
    key: String,
    value: String,
    action: String,
    selector: Option<Selector>,
}

impl Entry {
    /// What is in every request.
    fn generic(name: &str) -> Self {
        Self {
            key: name.to_owned(),
            value: name.to_owned(),
            action: format!(
                "{{generic_key: {{descriptor_key: \"{name}\", descriptor_value: \"{name}\"}}}}"
            ),
            selector: None,
        }
    }

    fn new(selector: Selector, key: String) -> Self {
        let named = format!("descriptor_key: {key}, descriptor_value: {key}");
        let header = |name: &str, is_expected: bool, matcher: String| {
            format!(
                "{{header_value_match: {{{named}, expect_match: {is_expected}, headers: [{{name: \"{name}\", string_match: {{{matcher}}}}}]}}}}"
            )
        };
        let exact = |value: &str| format!("exact: {value}");
        let regex = |text: String| format!("safe_regex: {{regex: '{text}'}}");
        let mut value = key.clone();
        let action = match selector {
            Header(name, value) => header(name, true, exact(value)),
            NoHeader(name, value) => header(name, false, exact(value)),
            Methods(all) => header(":method", true, regex(all.join("|"))),
            Path(prefix) => header(":path", true, regex(format!("{prefix}([/?].*)?"))),
            Query(name, value) => format!(
                "{{query_parameter_value_match: {{{named}, expect_match: true, query_parameters: [{{name: {name}, string_match: {{{}}}}}]}}}}",
                exact(value)
            ),
            Distinct(name) => {
                value.clear();
                format!("{{request_headers: {{header_name: {name}, descriptor_key: {key}}}}}")
            }
            AnyAddress | EachAddress => {
                "0.0.0.0/0".clone_into(&mut value);
                "{masked_remote_address: {v4_prefix_mask_len: 0}}".to_owned()
            }
            Outside(network) => {
                value = format!("invert:{network}");
                let (address, length) = network.split_once('/').unwrap();
                format!(
                    "{{remote_address_match: {{descriptor_key: masked_remote_address, descriptor_value: \"{value}\", address_matcher: {{invert_match: true, ranges: [{{address_prefix: {address}, prefix_len: {length}}}]}}}}}}"
                )
            }
        };
        Self {
            key,
            value,
            action,
            selector: Some(selector),
        }
    }

    /// The value that Envoy sends for a request of 127.0.0.1, if it has one.
    fn sent(&self, asked: &Asked) -> Option<String> {
        let Some(selector) = self.selector else {
            let is_address = self.value.is_empty();
            let value = if is_address { "127.0.0.1" } else { &self.value };
            return Some(value.to_owned());
        };
        let is_matched = match selector {
            Header(name, value) => asked.header(name) == Some(value),
            NoHeader(name, value) => asked.header(name) != Some(value),
            Distinct(name) => return asked.header(name).map(str::to_owned),
            Methods(all) => all.contains(&asked.method),
            Path(prefix) => asked.is_below(prefix),
            Query(name, value) => {
                let query = asked.target.split_once('?');
                let mut pairs = query.into_iter().flat_map(|(_, query)| query.split('&'));
                pairs.any(|pair| pair == format!("{name}={value}"))
            }
            AnyAddress | EachAddress | Outside(_) => true,
        };
        is_matched.then(|| self.value.clone())
    }
}

/// A route, and the rules of the policy that targets it.
pub(super) struct PolicyRoute {
    pub(super) prefix: &'static str,
    rules: Vec<PolicyRule>,
}

pub(super) fn route(prefix: &'static str, rules: &[PolicyRule]) -> PolicyRoute {
    PolicyRoute {
        prefix,
        rules: rules.to_vec(),
    }
}

/// The routes of a listener.
pub(super) struct PolicyListener {
    /// The name of the gateway and of the policy.
    pub(super) name: &'static str,
    pub(super) routes: Vec<PolicyRoute>,
}

/// A rule as a route has it: where its counters are, and what a request of it has.
pub(super) struct RouteRule<'a> {
    pub(super) domain: String,
    pub(super) rule: &'a PolicyRule,
    entries: Vec<Entry>,
}

impl RouteRule<'_> {
    /// The entries that Envoy sends for a request, unless the rule is not about it.
    pub(super) fn sent(&self, asked: &Asked) -> Option<Vec<(String, String)>> {
        let sent = |entry: &Entry| Some((entry.key.clone(), entry.sent(asked)?));
        self.entries.iter().map(sent).collect()
    }

    pub(super) fn actions(&self) -> String {
        let actions = self.entries.iter().map(|entry| entry.action.as_str());
        format!("[{}]", actions.collect::<Vec<_>>().join(", "))
    }
}

impl PolicyListener {
    /// The domain of rules that are not shared.
    pub(super) fn domain(&self) -> String {
        format!("{NAMESPACE}/{}/http", self.name)
    }

    fn policy(&self) -> String {
        format!("{NAMESPACE}/{}-policy", self.name)
    }

    /// The entry by which a rule of a route is found.
    fn first(&self, route: usize, number: usize, rule: &PolicyRule) -> String {
        if rule.is_shared {
            return format!("{}/rule/{number}", self.policy());
        }
        let name = self.name;
        format!("httproute/{NAMESPACE}/{name}/rule/{route}/match/0/*")
    }

    /// The rules of a route.
    pub(super) fn rules(&self, route: usize) -> Vec<RouteRule<'_>> {
        let rules = self.routes[route].rules.iter().enumerate();
        rules
            .map(|(number, rule)| {
                let domain = if rule.is_shared {
                    self.policy()
                } else {
                    self.domain()
                };
                let first = Entry::generic(&self.first(route, number, rule));
                let entries = [first].into_iter().chain(rule.entries(number)).collect();
                RouteRule {
                    domain,
                    rule,
                    entries,
                }
            })
            .collect()
    }

    /// The route of a request: the first that fits.
    pub(super) fn route_of(&self, asked: &Asked) -> usize {
        let mut routes = self.routes.iter();
        routes
            .position(|route| asked.is_below(route.prefix))
            .unwrap()
    }

    /// The domains that the management server sends.
    pub(super) fn limits(&self) -> Vec<ConfiguredDomain> {
        let mut own: Vec<ConfiguredDescriptor> = Vec::new();
        let mut shared: Vec<ConfiguredDescriptor> = Vec::new();
        for (at, route) in self.routes.iter().enumerate() {
            for (number, rule) in route.rules.iter().enumerate() {
                let first = self.first(at, number, rule);
                let made = if rule.is_shared {
                    &mut shared
                } else {
                    &mut own
                };
                match made.iter_mut().find(|known| known.key == first) {
                    // A policy of several routes has its shared rules once.
                    Some(_) if rule.is_shared => {}
                    Some(known) => known.descriptors.extend(rule.limits(number)),
                    None => made.push(descriptor(&first, &first, rule.limits(number))),
                }
            }
        }
        let domains = [(self.domain(), own), (self.policy(), shared)].into_iter();
        let domains = domains.filter(|(_, descriptors)| !descriptors.is_empty());
        domains
            .map(|(name, descriptors)| domain(&name, descriptors))
            .collect()
    }
}
