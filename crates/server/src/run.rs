//! Opens what the server needs, and runs it until shutdown.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{Consistency, FrontEnd, Rule, RuleSet};
use tidegate::store::SharedStore as _;
use tidegate::{Clock as _, SystemClock};
use tidegate_gateway::{self as gateway, Gateway, GatewaySettings, Serving, check_all};
use tidegate_identity::{Identity, KeptFiles};
use tidegate_listen::clock::Stopwatch;
use tidegate_listen::stall::BodyRate;
use tidegate_listen::{Drain, ListenSettings, Threads, Tls, client_tls, serve};
use tidegate_redis::RedisStore;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::admin_token;
use crate::chores::{
    follow_clients, follow_rules, keep_counters, publish_activity, remove_ended_overrides,
    return_memory, sample_activity, watch_memory, write_counters,
};
use crate::config::Config;
use crate::data_dir::{DataDir, DataDirError, LockedDir, running};
use crate::file_descriptors::FileDescriptors;
use crate::grpc;
use crate::handle::Handle;
use crate::http::Api;
use crate::identity_warnings::identity_warnings;
use crate::kept_counters::{self, KeptCounters};
use crate::kept_instances;
use crate::listeners::Listeners;
use crate::otlp::Exporter;
use crate::recorded;
use crate::resp;
use crate::rulebook::{NO_RULES, OpenError, RuleBook};
use crate::run_error::RunError;
use crate::server::{Opened, Server};
use crate::shared_rules;
use crate::store::{AnyStore, StoreCalls};
use crate::token_files;
use crate::watch::FileWatch;

/// How long a start waits for Redis, so that a server does not begin without a Redis that is up.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);

/// How much longer for a Redis that neither answers nor refuses: this machine may be busy.
const SLOW_FIRST_CONNECTION: Duration = Duration::from_secs(2);

/// How long a shutdown may take to release state in Redis.
const FAREWELL: Duration = Duration::from_secs(1);

/// A server whose rules and files are open, ready to run.
pub struct Service {
    server: Arc<Server>,
    settings: ListenSettings,
    tls: Option<Tls>,
    /// How gRPC is served; it may require client certificates.
    grpc_tls: Option<Tls>,
    gateway_tls: Option<Tls>,
    /// For front ends whose connections stay on one thread, if any is on.
    threads: Option<Threads>,
    watch: Option<FileWatch>,
    client_watches: Vec<FileWatch>,
    token_watches: Vec<(PathBuf, FileWatch)>,
    /// When the keys of tokens are fetched again.
    next_fetch: Duration,
    drain_delay: Duration,
    descriptors: FileDescriptors,
    exporter: Option<Arc<Mutex<Exporter>>>,
}

/// Runs a server until `handle` requests shutdown.
pub async fn run(config: Config, listeners: Listeners, handle: Handle) -> Result<(), RunError> {
    let service = Service::open(&config).await?;
    service.announce(&listeners);
    service.run(listeners, handle).await;
    Ok(())
}

impl Service {
    /// Opens the store, the rules and the certificate. Logs warnings. Waits for disks, and briefly for Redis.
    pub async fn open(config: &Config) -> Result<Self, RunError> {
        for note in &config.notes {
            tracing::warn!("{note}");
        }
        start_clocks();
        let addresses = [Some(config.http), config.grpc, config.resp];
        let addresses = addresses.into_iter().flatten();
        for address in addresses.filter(|address| !address.ip().is_loopback()) {
            if config.tokens.is_empty() {
                tracing::warn!(
                    "{address} is reachable from other machines and no tokens are set: any client can use up the limits of others; set TIDEGATE_TOKEN or `tokens`"
                );
            }
        }
        let tls = match &config.tls {
            Some(files) => Some(Tls::load(&files.cert, &files.key)?),
            None => None,
        };
        let grpc_tls = match (&tls, &config.tls_client_ca) {
            (Some(tls), Some(authorities)) => Some(tls.with_client_ca(authorities)?),
            _ => tls.clone(),
        };
        let descriptors = FileDescriptors::share_out(config);
        let gateway_tls = match config
            .gateway
            .as_ref()
            .and_then(|gateway| gateway.tls.as_ref())
        {
            Some(files) => Some(Tls::load(&files.cert, &files.key)?),
            None => None,
        };
        let has_threads =
            config.grpc.is_some() || config.gateway.is_some() || config.resp.is_some();
        let threads = has_threads.then(Threads::start).transpose();
        let threads = threads.map_err(RunError::Threads)?;
        // The watch starts before the first read, so that no change is missed.
        let watch = config.rules.as_ref().map(FileWatch::new);
        let data = open_data(config).map_err(OpenError::from)?;
        let (store, counters) = open_store(config, data.as_ref()).await;
        let (book, rules) = open_rules(config, &store, data.as_ref())?;
        let client_watches = config.identify.files().map(FileWatch::new).collect();
        let identity = Identity::open(
            &config.identify,
            config.trusted_proxies.clone(),
            client_tls::trusting,
        )?;
        let identity = Arc::new(identity);
        let gateway = match gateway_settings(config, &descriptors) {
            Some(settings) => Some(Arc::new(Gateway::new(&settings, Arc::clone(&identity))?)),
            None => None,
        };
        let next_fetch = identity
            .first_fetch(kept_files(data.as_ref()).as_ref())
            .await;
        let recorded = recorded::open(config)?;
        let opened = Opened {
            store,
            book,
            rules,
            data,
            sinks: recorded.sinks,
        };
        let mut server = Server::new(config, opened).with_identity(identity);
        server.gateway = gateway;
        server.counters = counters;
        server.otlp = recorded.counts;
        admin_token::open(&server)?;
        let token_watches = token_files::watch(&server.access);
        token_files::reload(&server.access, |_| true);
        let server = Arc::new(server);
        if server.book.is_shared() {
            shared_rules::follow(&server).await;
        }
        server.overrides.follow(&server.gate, false).await;
        log_rules(&server);
        for warning in identity_warnings(config, &server.gate.rules()) {
            tracing::warn!("{warning}");
        }
        let settings = ListenSettings {
            tls: tls.clone(),
            max_connections: config.max_connections,
            drain_timeout: config.drain_timeout.into(),
            // If a proxy disconnects while its client waits for a delay, its charge is given back.
            half_close: false,
            ..ListenSettings::default()
        };
        Ok(Self {
            server,
            settings,
            tls,
            grpc_tls,
            gateway_tls,
            threads,
            watch,
            client_watches,
            token_watches,
            next_fetch,
            drain_delay: config.drain_delay.into(),
            descriptors,
            exporter: recorded.exporter,
        })
    }

    /// Writes the server's address to the data directory, for commands on this machine. Without it they need a
    /// token.
    pub fn announce(&self, listeners: &Listeners) {
        let Some(directory) = self.server.data.as_ref().filter(|data| data.is_writable()) else {
            return;
        };
        if let Err(error) = running::announce(directory, &listeners.addresses()) {
            tracing::warn!("commands on this machine cannot find this server: {error}");
        }
    }

    /// Serves until `handle` requests shutdown and the requests in flight have ended.
    pub async fn run(self, listeners: Listeners, handle: Handle) {
        let server = self.server;
        let tls = self.tls.into_iter().chain(self.gateway_tls.clone());
        let (tls, stopping) = (tls.collect(), handle.clone());
        let mut chores = spawn_chores(&server);
        chores.extend([
            tokio::spawn(follow_rules(Arc::clone(&server), self.watch, tls, stopping)),
            tokio::spawn(follow_clients(Arc::clone(&server), self.client_watches)),
            tokio::spawn(fetch_keys(Arc::clone(&server), self.next_fetch)),
            tokio::spawn(token_files::follow(Arc::clone(&server), self.token_watches)),
            tokio::spawn(recorded::keep_sending(
                Arc::clone(&server),
                self.exporter.clone(),
            )),
        ]);
        let drain = Drain::new();
        let listening = |exchanges| ListenSettings {
            budget: Some(self.descriptors.for_front_end()),
            exchanges,
            ..self.settings.clone()
        };
        let answering = {
            let api = Arc::new(Api::new(Arc::clone(&server)));
            let service = move |request, peer| {
                // Boxed: it is large, and an idle connection need not hold it.
                Box::pin(crate::http::answer(Arc::clone(&api), request, peer))
            };
            let settings = listening(Some(server.exchanges(FrontEnd::Http)));
            serve(listeners.http, service, settings, drain.clone())
        };
        let grpc_settings = ListenSettings {
            tls: self.grpc_tls,
            ..listening(server.grpc_exchanges())
        };
        let answering_grpc = async {
            if let (Some(listener), Some(threads)) = (listeners.grpc, &self.threads) {
                let (server, drain, settings) = (Arc::clone(&server), drain.clone(), grpc_settings);
                grpc::serve(listener, server, threads, settings, drain).await;
            }
        };
        let answering_gateway = {
            let settings = ListenSettings {
                tls: self.gateway_tls.or_else(|| self.settings.tls.clone()),
                budget: Some(self.descriptors.for_gateway()),
                exchanges: Some(server.exchanges(FrontEnd::Gateway)),
                ..self.settings.clone()
            };
            let (server, drain) = (Arc::clone(&server), drain.clone());
            let (gateway, threads) = (server.gateway.clone(), &self.threads);
            async move {
                if let (Some(listener), Some(gateway), Some(threads)) =
                    (listeners.gateway, gateway, threads)
                {
                    let serving = Serving {
                        layer: server.limits(),
                        is_ready: server.ready_check(),
                        threads,
                        settings,
                        drain,
                    };
                    gateway::serve(listener, gateway, serving).await;
                }
            }
        };
        let answering_resp = async {
            if let (Some(listener), Some(threads)) = (listeners.resp, &self.threads) {
                let (server, drain) = (Arc::clone(&server), drain.clone());
                resp::serve(listener, server, threads, listening(None), drain).await;
            }
        };
        let ending = async {
            handle.drain().begun().await;
            server.begin_to_drain();
            tracing::info!("shutting down: finishing requests in flight");
            tokio::time::sleep(self.drain_delay).await;
            drain.begin();
        };
        tokio::join!(
            answering,
            answering_grpc,
            answering_gateway,
            answering_resp,
            ending
        );
        for chore in chores {
            chore.abort();
        }
        recorded::finish(&server, self.exporter).await;
        leave(&server).await;
        // Kept until here, so that held permits are released.
        drop(self.threads);
        write_counters(&server).await;
        tracing::info!("shut down");
    }
}

/// Starts what runs in the background and needs the server alone.
fn spawn_chores(server: &Arc<Server>) -> Vec<JoinHandle<()>> {
    let gate = Arc::clone(&server.gate);
    vec![
        tokio::spawn(async move { gate.maintain().await }),
        tokio::spawn(kept_instances::keep(Arc::clone(server))),
        tokio::spawn(keep_counters(Arc::clone(server))),
        tokio::spawn(shared_rules::keep_following(Arc::clone(server))),
        tokio::spawn(remove_ended_overrides(Arc::clone(server))),
        tokio::spawn(watch_memory(Arc::clone(server))),
        tokio::spawn(check_upstreams(Arc::clone(server))),
        tokio::spawn(return_memory()),
        tokio::spawn(sample_activity(Arc::clone(server))),
        tokio::spawn(publish_activity(Arc::clone(server))),
    ]
}

/// Releases state in Redis for the other servers, and cleans up the data directory.
async fn leave(server: &Server) {
    if let Some(store) = server.gate.store().redis() {
        let leaving = async {
            server.gate.reconcile().await;
            store.leave().await;
            if let Some(activity) = &server.activity {
                let _ = store.withdraw_activity(&activity.instance).await;
            }
        };
        if tokio::time::timeout(FAREWELL, leaving).await.is_err() {
            tracing::warn!("not everything could be returned to Redis; the rest expires by itself");
        }
    }
    if let Some(directory) = &server.data {
        // A file left behind is known to be stale because the lock is free.
        let _ = running::withdraw(directory);
    }
}

async fn fetch_keys(server: Arc<Server>, next: Duration) {
    let files = kept_files(server.data.as_ref());
    server.identity.keep_fetching(next, files.as_ref()).await;
}

/// The data directory, for fetched keys.
fn kept_files(data: Option<&Arc<LockedDir>>) -> Option<Arc<dyn KeptFiles>> {
    data.map(|data| Arc::clone(data) as Arc<dyn KeptFiles>)
}

async fn check_upstreams(server: Arc<Server>) {
    if let Some(gateway) = &server.gateway {
        check_all(Arc::clone(gateway)).await;
    }
}

/// The settings of the gateway, if there is one.
fn gateway_settings(config: &Config, descriptors: &FileDescriptors) -> Option<GatewaySettings> {
    let gateway = config.gateway.as_ref()?;
    Some(GatewaySettings {
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
) -> (AnyStore, Option<KeptCounters>) {
    let Some(settings) = &config.redis else {
        let (store, counters) = kept_counters::open(config, data);
        return (AnyStore::Memory(store), counters);
    };
    let known_instances = data.map(|data| kept_instances::load(data, SystemClock.now()));
    let mut settings = settings.clone();
    settings.known_instances = known_instances.unwrap_or_default();
    let store = RedisStore::open(settings.clone());
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
    (AnyStore::Redis(store, StoreCalls::new()), None)
}

/// The data directory. A server whose rules come from a file can run without it; with a read-only directory
/// it serves the rules in it.
fn open_data(config: &Config) -> Result<Option<Arc<LockedDir>>, DataDirError> {
    let path = &config.data_dir;
    match LockedDir::open(path) {
        Ok(directory) => {
            // A killed server may have left one.
            let _ = running::withdraw(&directory);
            Ok(Some(Arc::new(directory)))
        }
        Err(error) if config.rules.is_some() => {
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

fn open_rules(
    config: &Config,
    store: &AnyStore,
    data: Option<&Arc<LockedDir>>,
) -> Result<(RuleBook, RuleSet), OpenError> {
    let settings = config.rule_settings.clone();
    let (book, rules, problems) = if let Some(file) = &config.rules {
        RuleBook::of_file(file.clone(), settings)?
    } else {
        let data_dir = open_versions(config, data)?;
        match store {
            AnyStore::Redis(store, _) => {
                RuleBook::of_redis(store.clone(), data_dir, config.history, settings)
            }
            AnyStore::Memory(_) => {
                RuleBook::of_data_dir(data_dir, config.data_dir.clone(), settings)?
            }
        }
    };
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

fn log_rules(server: &Server) {
    let rules = server.gate.rules();
    if !server.book.has_rules() {
        tracing::error!("no rules loaded yet; answering 503 until Redis provides them");
        return;
    }
    // Already logged for a Redis without rules.
    if rules.is_empty() && !(server.book.is_shared() && server.book.version() == 0) {
        tracing::warn!("{NO_RULES}");
    }
    tracing::info!(
        rules = rules.len(),
        version = server.book.version(),
        "the rules are in force"
    );
}
