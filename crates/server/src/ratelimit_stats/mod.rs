//! The stats of a server in the place of envoyproxy/ratelimit: counted after each decision over gRPC, shown as text and
//! to Prometheus, and sent to servers of statsd. Names, arithmetic and formats are in `tidegate_ratelimit::stats`.
//!
//! `noting.rs` reads decisions, `statsd.rs` sends.

mod noting;
mod statsd;

pub(crate) use statsd::{finish, keep_sending};

use std::path::Path;
use std::sync::Arc;

use tidegate::document::{Problems, Source};
use tidegate_listen::clock::TickClock;
use tidegate_ratelimit::stats::{OutsideStats, RateLimitStats, StatForms, StatMapping, StatPage};

use crate::config::{Config, PrometheusSettings, StatsSettings};
use crate::rulebook::RuleBook;
use crate::store::ServerStore;
use statsd::{StatsdSenders, senders};

/// Where stats go.
pub(crate) struct StatOutputs {
    /// The path of the page that Prometheus reads.
    pub(crate) path: Arc<str>,
    /// The servers of statsd.
    pub(crate) statsd: StatsdSenders,
}

impl StatOutputs {
    pub(crate) fn of(settings: &StatsSettings) -> Self {
        let path = settings.prometheus.as_ref().map(|it| it.path.as_str());
        Self {
            path: path.unwrap_or_default().into(),
            statsd: senders(&settings.statsd),
        }
    }
}

/// The stats, with what else they show.
pub(crate) struct ServerStats {
    stats: Arc<RateLimitStats>,
    /// What Prometheus reads, if it does.
    page: Option<StatPage>,
    clock: TickClock,
    /// When the server started.
    started: u64,
    book: Arc<RuleBook>,
    store: ServerStore,
}

impl ServerStats {
    /// The stats, if anything shows them.
    pub(crate) fn open(config: &Config, book: &Arc<RuleBook>, store: &ServerStore) -> Option<Self> {
        let settings = &config.stats;
        let is_shown =
            config.debug.is_some() || settings.prometheus.is_some() || !settings.statsd.is_empty();
        if !is_shown {
            return None;
        }
        let page = settings.prometheus.as_ref().map(|prometheus| {
            let mapping = mapping(prometheus);
            StatPage::new(mapping, &prometheus.tags)
        });
        let forms = StatForms {
            near_limit_ratio: settings.near_limit_ratio,
            names: settings.names,
            observers: page.as_ref().map(StatPage::observers).unwrap_or_default(),
            are_times_sent: !settings.statsd.is_empty(),
        };
        let clock = TickClock::new();
        Some(Self {
            stats: Arc::new(RateLimitStats::new(&forms)),
            page,
            started: clock.read(),
            clock,
            book: Arc::clone(book),
            store: store.clone(),
        })
    }

    /// The counters, for what follows the rules.
    pub(crate) fn counters(&self) -> Arc<RateLimitStats> {
        Arc::clone(&self.stats)
    }

    /// All stats, one in a line.
    pub(crate) fn text(&self) -> String {
        self.stats.text(&self.outside())
    }

    /// The stats as Prometheus reads them; nothing if it does not.
    pub(crate) fn series(&self) -> String {
        let page = self.page.as_ref();
        let text = page.map(|page| page.text(&self.stats, &self.outside(), self.seconds()));
        text.unwrap_or_default()
    }

    fn seconds(&self) -> u64 {
        self.clock.since(self.started).as_secs()
    }

    /// What the server counts elsewhere.
    fn outside(&self) -> OutsideStats {
        let (good, failed) = self.book.loads();
        OutsideStats {
            config_load_success: good,
            config_load_error: failed,
            redis_pool: self.store.redis_pool(),
        }
    }

    /// Whether values of requests have made as many names as they may.
    pub(crate) fn is_full(&self) -> bool {
        self.stats.is_full()
    }
}

/// The mapping of the file; the built-in one if there is none, or it cannot be used.
fn mapping(settings: &PrometheusSettings) -> StatMapping {
    let built_in = || StatMapping::built_in(settings.time_unit);
    let Some(file) = &settings.mapping else {
        return built_in();
    };
    match read_mapping(file) {
        Ok(mapping) => mapping,
        Err(problem) => {
            tracing::warn!(
                "the mapping `{}` is not used, and the built-in one is: {problem}",
                file.display()
            );
            built_in()
        }
    }
}

fn read_mapping(file: &Path) -> Result<StatMapping, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let source = Source::new(file.display().to_string(), text);
    let read = StatMapping::read(&source);
    let (mapping, warnings) =
        read.map_err(|problems: Problems| problems.render(&source).trim_end().to_owned())?;
    for warning in warnings {
        tracing::warn!(
            "the mapping `{}`: field `{}`: {}",
            file.display(),
            warning.field,
            warning.message
        );
    }
    Ok(mapping)
}
