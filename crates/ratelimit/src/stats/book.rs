//! All stats of a server in the place of envoyproxy/ratelimit: one set of counters for every output.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::rules::{RuleSet, StatPath};

use super::hits::{LIMIT_STATS, LimitCounts, LimitHits, NearLimitRatio};
use super::named::NamedCounters;
use super::times::{CallTimes, Observation, ObserverForm};

/// The first parts of the names of stats.
const LIMIT: &str = "ratelimit.service.rate_limit.";
const SERVICE: &str = "ratelimit.service.";
const POOL: &str = "ratelimit.redis_pool.";

/// A method of gRPC whose calls are counted and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedMethod {
    /// That of the rate limit service.
    ShouldRateLimit,
    /// That of health.
    Check,
}

/// What a stat is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatKind {
    /// It only grows.
    Counter,
    /// It is a number as of now.
    Gauge,
    /// Times of calls.
    Timer,
}

/// What the server counts elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutsideStats {
    /// How often rules were loaded, also unchanged ones.
    pub config_load_success: u64,
    /// How often that failed.
    pub config_load_error: u64,
    /// The connections to Redis, if there is one.
    pub redis_pool: Option<RedisPoolStats>,
}

/// Connections to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedisPoolStats {
    /// How many are open.
    pub active: u64,
    /// How many were opened.
    pub total: u64,
    /// How many have ended.
    pub closed: u64,
}

/// How stats are kept.
#[derive(Debug, Clone, Default)]
pub struct StatForms {
    /// From which share of a limit its use is near it.
    pub near_limit_ratio: NearLimitRatio,
    /// How many names values of requests may make.
    pub names: usize,
    /// How the times of a method are shown, and how many microseconds one unit of that is; by the name of the stat.
    pub observers: Vec<(String, ObserverForm, f64)>,
    /// Whether each time is sent.
    pub are_times_sent: bool,
}

/// The stats of a server.
pub struct RateLimitStats {
    near_limit_ratio: NearLimitRatio,
    named: NamedCounters,
    global_shadow_mode: AtomicU64,
    redis_errors: AtomicU64,
    service_errors: AtomicU64,
    methods: [CallTimes; CountedMethod::ALL.len()],
}

impl std::fmt::Debug for RateLimitStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimitStats").finish_non_exhaustive()
    }
}

impl CountedMethod {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

    fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Check => "Check",
        }
    }

    /// The name of the stat with the times of its calls.
    pub fn timer(self) -> String {
        format!("ratelimit_server.{}.response_time", self.name())
    }
}

impl RateLimitStats {
    /// Stats that have counted nothing.
    pub fn new(forms: &StatForms) -> Self {
        let times = |method: CountedMethod| {
            let name = method.timer();
            let mut observers = forms.observers.iter();
            let form = observers.find(|(timer, ..)| *timer == name);
            let form = form.map(|(_, form, unit)| (form.clone(), *unit));
            CallTimes::new(form, forms.are_times_sent)
        };
        Self {
            near_limit_ratio: forms.near_limit_ratio,
            named: NamedCounters::new(forms.names),
            global_shadow_mode: AtomicU64::new(0),
            redis_errors: AtomicU64::new(0),
            service_errors: AtomicU64::new(0),
            methods: CountedMethod::ALL.map(times),
        }
    }

    /// Takes the names of new rules.
    pub fn rules_changed(&self, rules: &RuleSet) {
        self.named.rules_changed(rules);
    }

    /// Counts what a call does to one limit. Whether its name is the first without room.
    #[inline]
    pub fn add(&self, path: &StatPath<'_>, hits: &LimitHits) -> bool {
        self.named.add(path, &hits.counts(self.near_limit_ratio))
    }

    /// Counts a descriptor of a domain that no rule has. Whether its name is the first without room.
    pub fn add_unknown_domain(&self, domain: &str) -> bool {
        self.named.add_unknown_domain(domain)
    }

    /// Counts a call that is allowed only because every limit of the server is in shadow mode.
    pub fn add_global_shadow(&self) {
        self.global_shadow_mode.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that Redis could not answer.
    pub fn add_redis_error(&self) {
        self.redis_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that failed.
    pub fn add_service_error(&self) {
        self.service_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the time of a call that ended so many `seconds` after the start of the server.
    pub fn add_call(&self, method: CountedMethod, micros: u64, seconds: impl FnOnce() -> u64) {
        self.times(method).note(micros, seconds);
    }

    fn times(&self, method: CountedMethod) -> &CallTimes {
        &self.methods[method as usize]
    }

    /// Whether there was no room for a name that values of requests make.
    pub fn is_full(&self) -> bool {
        self.named.is_full()
    }

    /// Visits every counter and gauge with its name.
    pub fn visit(&self, outside: &OutsideStats, visit: &mut dyn FnMut(&str, StatKind, u64)) {
        for (path, counts) in &self.named.limits() {
            visit_limit(path, counts, visit);
        }
        self.visit_others(outside, visit);
    }

    /// The same, but only of limits that were used.
    pub fn visit_used(&self, outside: &OutsideStats, visit: &mut dyn FnMut(&str, StatKind, u64)) {
        let limits: BTreeMap<Box<str>, LimitCounts> = self.named.limits();
        let used = limits
            .iter()
            .filter(|(_, counts)| **counts != LimitCounts::default());
        for (path, counts) in used {
            visit_limit(path, counts, visit);
        }
        self.visit_others(outside, visit);
    }

    fn visit_others(&self, outside: &OutsideStats, visit: &mut dyn FnMut(&str, StatKind, u64)) {
        let (domains, others) = self.named.unknown_domains();
        for (domain, count) in &domains {
            let name = format!("{LIMIT}{domain}.domain_not_found");
            visit(&name, StatKind::Counter, *count);
        }
        if others > 0 {
            let name = format!("{LIMIT}domain_not_found");
            visit(&name, StatKind::Counter, others);
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, count) in [
            ("config_load_success", outside.config_load_success),
            ("config_load_error", outside.config_load_error),
            ("global_shadow_mode", count(&self.global_shadow_mode)),
            (
                "call.should_rate_limit.redis_error",
                count(&self.redis_errors),
            ),
            (
                "call.should_rate_limit.service_error",
                count(&self.service_errors),
            ),
        ] {
            visit(&format!("{SERVICE}{name}"), StatKind::Counter, count);
        }
        for method in CountedMethod::ALL {
            let name = format!("ratelimit_server.{}.total_requests", method.name());
            visit(&name, StatKind::Counter, self.times(method).count());
        }
        if let Some(pool) = outside.redis_pool {
            for (name, kind, value) in [
                ("cx_active", StatKind::Gauge, pool.active),
                ("cx_total", StatKind::Counter, pool.total),
                ("cx_local_close", StatKind::Counter, pool.closed),
            ] {
                visit(&format!("{POOL}{name}"), kind, value);
            }
        }
    }

    /// What is shown of the times of each method, `seconds` after the start of the server.
    pub fn observations(&self, seconds: u64) -> Vec<(String, Observation)> {
        let observed = CountedMethod::ALL.into_iter().filter_map(|method| {
            let observation = self.times(method).observation(seconds)?;
            Some((method.timer(), observation))
        });
        observed.collect()
    }

    /// The times of each method, in microseconds, since this was last called.
    pub fn take_times(&self) -> Vec<(String, Vec<u32>)> {
        let methods = CountedMethod::ALL.into_iter();
        let times = methods.map(|method| (method.timer(), self.times(method).take_waiting()));
        times.collect()
    }

    /// All stats as text: `NAME: VALUE` in each line, sorted. Timers have the sum of their times in milliseconds.
    pub fn text(&self, outside: &OutsideStats) -> String {
        let mut lines = Vec::new();
        self.visit(outside, &mut |name, _, value| {
            lines.push(format!("{name}: {value}\n"));
        });
        for method in CountedMethod::ALL {
            let millis = self.times(method).micros() / 1_000;
            lines.push(format!("{}: {millis}\n", method.timer()));
        }
        lines.sort_unstable();
        lines.concat()
    }
}

fn visit_limit(path: &str, counts: &LimitCounts, visit: &mut dyn FnMut(&str, StatKind, u64)) {
    let mut name = String::with_capacity(LIMIT.len() + path.len() + 30);
    for (stat, count) in LIMIT_STATS.iter().zip(counts) {
        name.clear();
        // Writing to a String cannot fail.
        let _ = write!(name, "{LIMIT}{path}.{stat}");
        visit(&name, StatKind::Counter, *count);
    }
}

/// A text without what would end a part of a name or a line, as a value of a tag has it.
pub(super) fn without_separators(text: &str) -> Cow<'_, str> {
    let is_reserved = |c: char| matches!(c, '.' | ':' | '|') || c.is_control();
    if text.contains(is_reserved) {
        return Cow::Owned(text.replace(is_reserved, "_"));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use tidegate::rules::{RuleSettings, Source};

    use super::*;

    #[test]
    fn the_text_has_every_stat_sorted() {
        let stats = RateLimitStats::new(&StatForms {
            names: 10,
            ..StatForms::default()
        });
        let rules = "
            domain: infra/gw/http
            descriptors:
              - key: a
                value: a
                descriptors:
                  - {key: masked_remote_address, value: 0.0.0.0/0, rate_limit: {unit: hour, requests_per_unit: 3}}
        ";
        let rules = Source::new("rules", rules);
        stats.rules_changed(&RuleSet::read(&rules, &RuleSettings::default()).unwrap());
        let path = StatPath::Fixed("infra/gw/http.a_a.masked_remote_address_0_0_0_0/0");
        for used in 0..4 {
            let hits = LimitHits {
                limit: 3,
                used,
                hits: 1,
                is_over: used == 3,
                is_remembered: used == 3,
                is_shadow: false,
            };
            stats.add(&path, &hits);
        }
        stats.add_unknown_domain("other");
        stats.add_global_shadow();
        stats.add_redis_error();
        stats.add_service_error();
        stats.add_call(CountedMethod::ShouldRateLimit, 1_500, || 0);
        stats.add_call(CountedMethod::ShouldRateLimit, 1_700, || 0);
        let outside = OutsideStats {
            config_load_success: 2,
            config_load_error: 1,
            redis_pool: Some(RedisPoolStats {
                active: 3,
                total: 5,
                closed: 2,
            }),
        };
        let expected = "\
ratelimit.redis_pool.cx_active: 3
ratelimit.redis_pool.cx_local_close: 2
ratelimit.redis_pool.cx_total: 5
ratelimit.service.call.should_rate_limit.redis_error: 1
ratelimit.service.call.should_rate_limit.service_error: 1
ratelimit.service.config_load_error: 1
ratelimit.service.config_load_success: 2
ratelimit.service.global_shadow_mode: 1
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.near_limit: 1
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.over_limit: 1
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.over_limit_with_local_cache: 1
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.shadow_mode: 0
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.total_hits: 4
ratelimit.service.rate_limit.infra/gw/http.a_a.masked_remote_address_0_0_0_0/0.within_limit: 3
ratelimit.service.rate_limit.other.domain_not_found: 1
ratelimit_server.Check.response_time: 0
ratelimit_server.Check.total_requests: 0
ratelimit_server.ShouldRateLimit.response_time: 3
ratelimit_server.ShouldRateLimit.total_requests: 2
";
        assert_eq!(stats.text(&outside), expected);
        let mut used = 0;
        stats.visit_used(&outside, &mut |name, _, _| {
            used += usize::from(name.starts_with(LIMIT));
        });
        assert_eq!(used, 7);
    }
}
