//! The administrative half of the server: the state behind the HTTP API, the console and the metrics.

use std::sync::Arc;

use tidegate::Gate;
use tidegate::gate::Observer;
use tidegate::rules::{FrontEnd, RuleSet, ValueDigest};
use tidegate_gateway::{Gateway, RequestScreen};
use tidegate_identity::Identity;
use tidegate_listen::clock::Stopwatch;
use tokio::sync::Semaphore;

use crate::activity::ServerActivity;
use crate::body_memory::BodyMemory;
use crate::certificate_files::CertificateFiles;
use crate::config::Config;
use crate::data_dir::LockedDir;
use crate::decider::{Decider, DeciderParts};
use crate::kept_counters::{self, KeptCounters};
use crate::otlp::OtlpCounts;
use crate::overrides::OverrideBook;
use crate::ratelimit_stats::ServerStats;
use crate::record::Recorder;
use crate::rulebook::RuleBook;
use crate::store::ServerStore;
use crate::telemetry::{DecisionObserver, ExchangeSinks, LoggedKeys, Metrics};
use crate::turns::Turns;

/// The most streams of activity at a time.
pub(crate) const MOST_STREAMS: usize = 32;

/// What is opened before a server can be made.
pub(crate) struct Opened {
    pub(crate) store: ServerStore,
    pub(crate) book: Arc<RuleBook>,
    pub(crate) rules: RuleSet,
    /// Shows values of secret attributes.
    pub(crate) digest: Arc<ValueDigest>,
    /// Records decisions, if they are recorded.
    pub(crate) record: Option<Arc<Recorder>>,
    pub(crate) identity: Arc<Identity>,
    /// The gateway, if there is one.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// The data directory, if there is one.
    pub(crate) data: Option<Arc<LockedDir>>,
    /// Snapshots of the in-memory store, if they are on.
    pub(crate) counters: Option<KeptCounters>,
    /// The files with certificates that are followed.
    pub(crate) certificates: Vec<CertificateFiles>,
    /// The access log and the tracer, if there are any.
    pub(crate) sinks: ExchangeSinks,
    /// What is counted about telemetry that is sent over OTLP, if it is.
    pub(crate) otlp: Option<OtlpCounts>,
    /// The memory of request bodies, which the gateway shares.
    pub(crate) bodies: BodyMemory,
}

/// Reads and changes the server, and reports about it.
pub(crate) struct Admin {
    pub(crate) decider: Arc<Decider>,
    /// The store of the decider.
    pub(crate) store: ServerStore,
    /// The gate of the decider.
    pub(crate) gate: Arc<Gate>,
    pub(crate) book: Arc<RuleBook>,
    /// The temporary overrides of rules.
    pub(crate) overrides: OverrideBook,
    /// Live activity, if it is on.
    pub(crate) activity: Option<Arc<ServerActivity>>,
    /// Records decisions, if they are recorded.
    pub(crate) record: Option<Arc<Recorder>>,
    /// Streams of activity that may still be opened.
    pub(crate) streams: Arc<Semaphore>,
    /// Documents of callers are read, and versions of the rules compared, one at a time.
    pub(crate) turns: Turns,
    /// Shows values of secret attributes.
    pub(crate) digest: Arc<ValueDigest>,
    /// Whether the console is served.
    pub(crate) has_console: bool,
    /// The data directory, if there is one.
    pub(crate) data: Option<Arc<LockedDir>>,
    /// Snapshots of the in-memory store, if they are on.
    pub(crate) counters: Option<KeptCounters>,
    /// The front ends that are on.
    pub(crate) front_ends: Vec<FrontEnd>,
    /// The gateway, if there is one.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// Reads raw requests as the gateway does, also if there is none.
    pub(crate) screen: RequestScreen,
    /// The files with certificates that are followed.
    pub(crate) certificates: Arc<[CertificateFiles]>,
    pub(crate) metrics: Arc<Metrics>,
    /// The access log and the tracer, if there are any.
    pub(crate) sinks: ExchangeSinks,
    /// What is counted about telemetry that is sent over OTLP, if it is.
    pub(crate) otlp: Option<OtlpCounts>,
    /// When it started, to measure its uptime.
    pub(crate) started: Stopwatch,
}

impl Admin {
    pub(crate) fn new(config: &Config, opened: Opened) -> Self {
        let Opened {
            store,
            book,
            rules,
            digest,
            record,
            identity,
            gateway,
            data,
            counters,
            certificates,
            sinks,
            otlp,
            bodies,
        } = opened;
        let metrics = Arc::new(Metrics::new());
        let stats = ServerStats::open(config, &book, &store).map(Arc::new);
        let activity = ServerActivity::new(config, &digest, data.as_ref()).map(Arc::new);
        let keys = LoggedKeys {
            digest: Arc::clone(&digest),
            settings: config.rule_settings.clone(),
        };
        let observer = DecisionObserver::new(Arc::clone(&metrics), keys, activity.clone());
        let observer = observer.with_exchanges(sinks.is_any());
        let observer = observer.with_stats(stats.as_ref().map(|stats| stats.counters()));
        let observer = Arc::new(observer.with_record(record.clone()));
        let gate = Gate::new(store.to_gate(), rules)
            .with_instances(config.instances)
            .with_local_counters(kept_counters::builder(config))
            .with_invalid_credentials(config.invalid_credentials)
            .with_digest(Arc::clone(&digest))
            .with_observer(Arc::clone(&observer) as Arc<dyn Observer>);
        let overrides = OverrideBook::open(data.as_ref(), store.redis(), config.history);
        overrides.begin(&gate);
        let gate = Arc::new(gate);
        let screen = RequestScreen {
            identity: Arc::clone(&identity),
            encoded_slashes: config.encoded_slashes,
            underscore_headers: config.underscore_headers,
        };
        let known_in = Arc::clone(&book);
        let parts = DeciderParts {
            store: store.clone(),
            gate: Arc::clone(&gate),
            observer,
            identity,
            rules_known: Arc::new(move || known_in.need_rules()),
            bodies,
            stats,
        };
        Self {
            decider: Arc::new(Decider::new(config, parts)),
            store,
            gate,
            book,
            overrides,
            activity,
            record,
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            turns: Turns::new(),
            digest,
            has_console: config.console,
            data,
            counters,
            front_ends: front_ends(config),
            gateway,
            screen,
            certificates: certificates.into(),
            metrics,
            sinks,
            otlp,
            started: Stopwatch::start(),
        }
    }

    /// The value of an attribute as answers show it: that of a secret attribute as a digest.
    pub(crate) fn shown(&self, attribute: &str, value: &str) -> String {
        if self.book.settings().is_secret(attribute) {
            return self.digest.shown(value);
        }
        value.to_owned()
    }

    /// Problems that do not prevent decisions.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.store.warnings();
        warnings.extend(self.book.warning());
        warnings.extend(self.counters.as_ref().and_then(KeptCounters::warning));
        warnings.extend(self.record.as_deref().and_then(Recorder::warning));
        warnings.extend(self.decider.identity.warnings());
        let certificates = self.certificates.iter();
        warnings.extend(certificates.filter_map(CertificateFiles::warning));
        warnings.extend(self.decider.untrusted_proxies.warnings());
        warnings
    }

    /// Reads the document of a caller in its [turn](Turns), on a thread that may block, because it can be large.
    /// None if the server ends meanwhile.
    pub(crate) async fn read_document<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let admin = Arc::clone(self);
        self.turns.take_blocking(move || read(&admin)).await
    }
}

/// The front ends that a configuration turns on.
fn front_ends(config: &Config) -> Vec<FrontEnd> {
    FrontEnd::ALL
        .into_iter()
        .filter(|front_end| match front_end {
            FrontEnd::Http | FrontEnd::Authorize => true,
            FrontEnd::Grpc => config.has_grpc(),
            FrontEnd::Resp => config.resp.is_some(),
            FrontEnd::Gateway => config.gateway.is_some(),
            _ => false,
        })
        .collect()
}
