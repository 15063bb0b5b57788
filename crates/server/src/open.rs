//! Opens what a server needs: settings that are files, the store, the data directory, the rules, certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{Consistency, Rule, RuleSet};
use tidegate::store::RemoteStore as _;
use tidegate::{Clock as _, SystemClock};
use tidegate_gateway::{Gateway, GatewaySettings};
use tidegate_identity::{Identity, KeptFiles};
use tidegate_listen::clock::Stopwatch;
use tidegate_listen::stall::BodyRate;
use tidegate_listen::{ConnectionAge, ListenSettings, Threads};
use tidegate_ratelimit::variables::{NoteLevel, VariableNote};
use tidegate_tower::UsageSettings;
use tidegate_xds::XdsSettings;
use tokio::sync::Mutex;

use crate::admin::{Admin, Opened};
use crate::admin_token;
use crate::body_memory::BodyMemory;
use crate::certificate_files::{self, CertificateUsers, ServedTls};
use crate::config::Config;
use crate::data_dir::{DataDir, DataDirError, LockedDir, running};
use crate::digest_secret;
use crate::file_descriptors::FileDescriptors;
use crate::http::ServedCalls;
use crate::identity_warnings::identity_warnings;
use crate::kept_counters::{self, KeptCounters};
use crate::kept_instances;
use crate::otlp::Exporter;
use crate::prices::KeptPrices;
use crate::ratelimit_stats::StatOutputs;
use crate::record::Recorder;
use crate::recorded;
use crate::rulebook::{self, LastGoodStores, LoadError, OpenError, RuleBook};
use crate::run_error::RunError;
use crate::shared_rules;
use crate::store::ServerStore;
use crate::telemetry::current_usage;
use crate::token_files;
use crate::watch::FileWatch;

/// How long a start waits for Redis, so that a server does not begin without a Redis that is up.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);

/// How much longer for a Redis that neither answers nor refuses: this machine may be busy.
const SLOW_FIRST_CONNECTION: Duration = Duration::from_secs(2);

/// A server whose rules and files are open, ready to run.
pub struct Service {
    pub(crate) admin: Arc<Admin>,
    /// Settings of connections that all front ends share.
    pub(crate) settings: ListenSettings,
    /// What is called on the HTTP port.
    pub(crate) calls_on_http: ServedCalls,
    pub(crate) tls: ServedTls,
    /// Whether calls over HTTP need a client certificate.
    pub(crate) needs_certificate: bool,
    /// For front ends whose connections stay on one thread, if any is on.
    pub(crate) threads: Option<Threads>,
    pub(crate) descriptors: FileDescriptors,
    pub(crate) watches: Watches,
    /// When the keys of tokens are fetched again.
    pub(crate) next_fetch: Duration,
    pub(crate) grpc_max_age: Option<ConnectionAge>,
    pub(crate) drain_delay: Duration,
    pub(crate) exporter: Option<Arc<Mutex<Exporter>>>,
    pub(crate) stats: StatOutputs,
}

/// What is followed: files, and the management server.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) rules: Option<FileWatch>,
    pub(crate) xds: Option<XdsSettings>,
    pub(crate) overlay: Option<(PathBuf, FileWatch)>,
    pub(crate) clients: Vec<FileWatch>,
    pub(crate) prices: Option<KeptPrices>,
    pub(crate) tokens: Vec<(PathBuf, FileWatch)>,
}

impl Service {
    /// Opens the store, the rules and the certificate. Logs warnings. Waits for disks, and briefly for Redis.
    pub async fn open(config: &Config) -> Result<Self, RunError> {
        log_notes(config);
        start_clocks();
        warn_if_open(config);
        let tls = ServedTls::load(config)?;
        let descriptors = FileDescriptors::share_out(config);
        let has_threads = config.has_grpc() || config.gateway.is_some() || config.resp.is_some();
        let threads = has_threads.then(Threads::start).transpose();
        let threads = threads.map_err(RunError::Threads)?;
        // The watch starts before the first read, so that no change is missed.
        let rules_watch = watch_rules(config);
        let overlay_watch = config.overlay.clone().map(watched);
        let data = open_data(config).map_err(OpenError::from)?;
        let (store, counters) = open_store(config, data.as_ref()).await;
        let (book, rules) = open_rules(config, &store, data.as_ref()).await?;
        let client_watches = config.identify.files().map(FileWatch::new).collect();
        let identity = Identity::open(&config.identify, config.trusted_proxies.clone())?;
        let identity = Arc::new(identity);
        let prices = KeptPrices::open(config)?;
        let bodies = BodyMemory::of(config.body_memory);
        let gateway = match gateway_settings(config, &descriptors, &prices, &bodies) {
            Some(settings) => Some(Arc::new(Gateway::new(&settings, Arc::clone(&identity))?)),
            None => None,
        };
        let next_fetch = identity
            .first_fetch(kept_files(data.as_ref()).as_ref())
            .await;
        let recorded = recorded::open(config)?;
        let book = Arc::new(book);
        let digest = Arc::new(digest_secret::open(config, data.as_deref()));
        let versions = Arc::clone(&book);
        let record = Recorder::start(config, &digest, move || versions.version());
        let record = record.map_err(RunError::Threads)?.map(Arc::new);
        let users = CertificateUsers {
            tls: &tls,
            gateway: gateway.as_ref(),
            identity: &identity,
            store: &store,
        };
        let certificates = certificate_files::watch(config, &users);
        let opened = Opened {
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
            sinks: recorded.sinks,
            otlp: recorded.counts,
            bodies,
        };
        let admin = Admin::new(config, opened);
        admin_token::open(&admin)?;
        let access = &admin.decider.access;
        let watches = Watches {
            rules: rules_watch,
            xds: config.xds.clone(),
            overlay: overlay_watch,
            clients: client_watches,
            prices: Some(prices),
            tokens: token_files::watch(access),
        };
        token_files::reload(access, |_| true);
        if admin.book.is_shared() {
            shared_rules::follow(&admin).await;
        }
        admin.overrides.follow(&admin.gate).await;
        log_rules(&admin);
        for warning in identity_warnings(config, &admin.gate.rules()) {
            tracing::warn!("{warning}");
        }
        let settings = ListenSettings {
            tls: tls.others.clone(),
            max_connections: config.max_connections,
            drain_timeout: config.drain_timeout.into(),
            // If a proxy disconnects while its client waits for a delay, its charge is given back.
            half_close: false,
            ..ListenSettings::default()
        };
        Ok(Self {
            admin: Arc::new(admin),
            settings,
            calls_on_http: ServedCalls::on_http(config),
            tls,
            needs_certificate: config.http_tls_client_ca.is_some(),
            threads,
            descriptors,
            watches,
            next_fetch,
            grpc_max_age: config.grpc_settings.max_age,
            drain_delay: config.drain_delay.into(),
            exporter: recorded.exporter,
            stats: StatOutputs::of(&config.stats),
        })
    }
}

/// Logs what was noticed while the settings were read.
fn log_notes(config: &Config) {
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    for VariableNote { level, text } in &config.variable_notes {
        match level {
            NoteLevel::Warn => tracing::warn!("{text}"),
            NoteLevel::Info => tracing::info!("{text}"),
        }
    }
}

/// Reads the files that a server would start with: an error is one that it would not start with. Returns problems with
/// which it would.
pub fn check_files(config: &Config) -> Result<Vec<String>, RunError> {
    ServedTls::load(config)?;
    let overlay = opened_overlay(config).map_err(OpenError::from)?;
    let rules = match &config.rules {
        Some(rules) => rulebook::check(rules, &config.rule_settings).map_err(OpenError::from)?,
        None => None,
    };
    Identity::open(&config.identify, config.trusted_proxies.clone())?;
    KeptPrices::open(config)?;
    let problems = [overlay, rules].into_iter().flatten();
    Ok(problems.map(|problem| problem.to_string()).collect())
}

/// Puts the overlay of the file in force, if it is valid. A server in place of envoyproxy/ratelimit starts without one that
/// is not; what is wrong with it is returned.
fn opened_overlay(config: &Config) -> Result<Option<LoadError>, LoadError> {
    let Some(path) = &config.overlay else {
        return Ok(None);
    };
    match rulebook::overlay::load(path) {
        Ok(overlay) => {
            config.rule_settings.overlay.replace(overlay);
            Ok(None)
        }
        Err(error) if config.envoy_ratelimit.is_some() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

fn watch_rules(config: &Config) -> Option<FileWatch> {
    let rules = config.rules.as_ref()?;
    Some(FileWatch::of_rules(rules))
}

/// A file, and its watch.
fn watched(path: PathBuf) -> (PathBuf, FileWatch) {
    let watch = FileWatch::new(&path);
    (path, watch)
}

/// Warns about addresses that other machines reach without a token.
fn warn_if_open(config: &Config) {
    let addresses = [Some(config.http), config.admin, config.grpc, config.resp];
    let addresses = addresses.into_iter().flatten();
    // In place of envoyproxy/ratelimit, they have only what it has, to which its clients have no tokens.
    let is_open = config.tokens.is_empty() && config.envoy_ratelimit.is_none();
    for address in addresses.filter(|address| !address.ip().is_loopback()) {
        if is_open {
            tracing::warn!(
                "{address} is reachable from other machines and no tokens are set: any client can use up the limits of others; set TIDEGATE_TOKEN or `tokens`"
            );
        }
    }
}

/// The data directory, for fetched keys.
pub(crate) fn kept_files(data: Option<&Arc<LockedDir>>) -> Option<Arc<dyn KeptFiles>> {
    data.map(|data| Arc::clone(data) as Arc<dyn KeptFiles>)
}

/// The settings of the gateway, if there is one.
fn gateway_settings(
    config: &Config,
    descriptors: &FileDescriptors,
    prices: &KeptPrices,
    bodies: &BodyMemory,
) -> Option<GatewaySettings> {
    let gateway = config.gateway.as_ref()?;
    Some(GatewaySettings {
        usage: UsageSettings {
            estimate: gateway.usage.estimate.clone(),
            body_limit: gateway.usage.body_limit,
            body_memory: Arc::clone(&bodies.clients),
            denied_body: gateway.usage.denied_body,
            notes: Some(Arc::new(current_usage)),
            prices: prices.lookup(),
        },
        routes: gateway.routes.clone(),
        upstream_ca: gateway.upstream_ca.clone(),
        health: gateway.health.clone(),
        body_rate: gateway.body_min_rate.map(|bytes_per_second| BodyRate {
            bytes_per_second,
            window: gateway.body_rate_window,
        }),
        max_connections: descriptors.upstream,
        max_connections_per_client: descriptors.upstream_per_client,
        max_background_requests: gateway.max_background_requests,
        ipv6_prefix: config.rule_settings.ipv6_prefix,
        encoded_slashes: config.encoded_slashes,
        underscore_headers: config.underscore_headers,
        is_tls: gateway.tls.is_some() || config.tls.is_some(),
    })
}

/// Reads the clocks that decisions read. The first reading calibrates them, which takes longer than a
/// decision may.
fn start_clocks() {
    let _ = (SystemClock.now(), Stopwatch::start());
}

/// The store, and the snapshots of an in-memory store. A Redis store opens whether Redis answers or not, and
/// reconnects by itself.
async fn open_store(
    config: &Config,
    data: Option<&Arc<LockedDir>>,
) -> (ServerStore, Option<KeptCounters>) {
    let Some(settings) = &config.redis else {
        let (store, counters) = kept_counters::open(config, data);
        return (ServerStore::Memory(Arc::new(store)), counters);
    };
    let known_instances = data.map(|data| kept_instances::load(data, SystemClock.now()));
    let mut settings = settings.clone();
    settings.known_instances = known_instances.unwrap_or_default();
    let (opened, store) = ServerStore::open_redis(&settings);
    let mut connected = store.connected(FIRST_CONNECTION).await;
    if connected.is_err() && store.is_slow() {
        connected = store.connected(SLOW_FIRST_CONNECTION).await;
    }
    match connected {
        Ok(()) => tracing::info!(
            redis = %settings.url,
            namespace = settings.namespace.as_ref().map(tracing::field::display),
            "state is shared in Redis"
        ),
        Err(problem) => tracing::warn!(
            redis = %settings.url,
            problem,
            servers = store.instances().unwrap_or(1).max(config.instances),
            "Redis does not answer; until it does, each rule follows its `on_store_failure`"
        ),
    }
    (opened, None)
}

/// The data directory. A server whose rules come from elsewhere can run without it; with a read-only directory
/// it serves the rules in it.
fn open_data(config: &Config) -> Result<Option<Arc<LockedDir>>, DataDirError> {
    let path = &config.data_dir;
    match LockedDir::open(path) {
        Ok(directory) => {
            // A killed server may have left one.
            let _ = running::withdraw(&directory);
            Ok(Some(Arc::new(directory)))
        }
        Err(error)
            if config.rules.is_some()
                || config.xds.is_some()
                || config.envoy_ratelimit.is_some() =>
        {
            tracing::warn!("nothing is kept across restarts: {error}");
            Ok(None)
        }
        Err(error @ DataDirError::Denied { .. }) => match LockedDir::open_to_read(path) {
            Ok(directory) => Ok(Some(Arc::new(directory))),
            Err(in_use @ DataDirError::InUse { .. }) => Err(in_use),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// The versions of the rules in the data directory. Without a version, the directory must be writable.
fn open_versions(config: &Config, data: Option<&Arc<LockedDir>>) -> Result<DataDir, DataDirError> {
    let versions = match data {
        Some(directory) => DataDir::within(Arc::clone(directory))?,
        None => DataDir::open(&config.data_dir)?,
    };
    let versions = versions.keep(config.history);
    for warning in versions.warnings() {
        tracing::warn!("{warning}");
    }
    if !versions.is_writable() {
        let error = DataDirError::read_only(&config.data_dir);
        if versions.current().is_none() && config.redis.is_none() {
            return Err(error);
        }
        tracing::warn!("the rules can be read but not changed: {error}");
    }
    Ok(versions)
}

async fn open_rules(
    config: &Config,
    store: &ServerStore,
    data: Option<&Arc<LockedDir>>,
) -> Result<(RuleBook, RuleSet), OpenError> {
    let settings = config.rule_settings.clone();
    let overlay_problem = opened_overlay(config)?;
    let (book, rules, problems) = if let Some(rules) = &config.rules {
        let (book, rules, problems) = RuleBook::of_file(rules.clone(), settings)?;
        match last_good_files(&book, store, data).await {
            Some(rules) => (book, rules.clone(), rules.warnings().clone()),
            None => (book, rules, problems),
        }
    } else if let Some(xds) = &config.xds {
        let last_good = last_good_stores(store, data).load(&xds.node).await;
        RuleBook::of_xds(xds, last_good, settings)
    } else {
        let data_dir = open_versions(config, data)?;
        match store {
            ServerStore::Redis(store, _) => {
                RuleBook::of_redis(store, data_dir, config.history, settings)
            }
            ServerStore::Memory(_) => {
                RuleBook::of_data_dir(data_dir, config.data_dir.clone(), settings)?
            }
        }
    };
    if let Some(problem) = overlay_problem {
        tracing::error!("no overlay is in force: {problem}");
        book.note_overlay_problem(problem.brief());
    }
    book.log_warnings(&problems);
    let leased = |rule: &&Arc<Rule>| rule.sync() == Consistency::Leased && config.redis.is_none();
    for rule in rules.iter().filter(leased) {
        tracing::warn!(
            rule = rule.id(),
            "`sync: leased` has no effect with the in-memory store"
        );
    }
    Ok((book, rules))
}

/// The last good rules of files that cannot be used at the start.
async fn last_good_files(
    book: &RuleBook,
    store: &ServerStore,
    data: Option<&Arc<LockedDir>>,
) -> Option<RuleSet> {
    let node = book.lacks_last_good()?;
    let last_good = last_good_stores(store, data).load(&node).await?;
    book.go_on_with(&last_good)
}

/// Where the last good rules of a management server, or of files, are kept.
pub(crate) fn last_good_stores(
    store: &ServerStore,
    data: Option<&Arc<LockedDir>>,
) -> LastGoodStores {
    LastGoodStores {
        data: data.cloned(),
        redis: store.redis().cloned(),
    }
}

fn log_rules(admin: &Admin) {
    let rules = admin.gate.rules();
    if let Some(xds) = admin.book.xds_status() {
        tracing::info!(
            server = xds.server,
            node = xds.node,
            rules = rules.len(),
            kept = xds.is_kept,
            "the rules come from a management server"
        );
        return;
    }
    if !admin.book.has_rules() {
        tracing::error!("{}", admin.book.not_loaded());
        return;
    }
    // Already logged for a Redis without rules.
    if rules.is_empty() && !(admin.book.is_shared() && admin.book.version() == 0) {
        tracing::warn!("{}", admin.book.no_rules());
    }
    tracing::info!(
        rules = rules.len(),
        version = admin.book.version(),
        "the rules are in force"
    );
}
