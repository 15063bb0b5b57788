//! Runs a server until shutdown: its front ends, its background tasks, and the order of the shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_gateway::check_all;
use tidegate_listen::Drain;
use tokio::task::JoinHandle;

use crate::admin::Admin;
use crate::certificate_files;
use crate::chores::{
    follow_clients, follow_rules, keep_counters, keep_history, keep_last_good, publish_activity,
    remove_ended_overrides, return_memory, sample_activity, watch_memory, write_counters,
    write_history,
};
use crate::config::Config;
use crate::data_dir::running;
use crate::followed_xds;
use crate::front_ends::serve_grpc;
use crate::handle::Handle;
use crate::http::answer_others;
use crate::kept_instances;
use crate::listeners::Listeners;
use crate::open::{Service, Watches, kept_files};
use crate::overlay_file;
use crate::prices::KeptPrices;
use crate::ratelimit_stats;
use crate::recorded;
use crate::run_error::RunError;
use crate::shared_rules;
use crate::token_files;

/// How long a shutdown may take to release state in Redis.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs a server until `handle` requests shutdown.
pub async fn run(config: Config, listeners: Listeners, handle: Handle) -> Result<(), RunError> {
    let service = Service::open(&config).await?;
    service.announce(&listeners);
    service.run(listeners, handle).await;
    Ok(())
}

impl Service {
    /// Writes the server's address to the data directory, for commands on this machine. Without it they need a
    /// token.
    pub fn announce(&self, listeners: &Listeners) {
        let Some(directory) = self.admin.data.as_ref().filter(|data| data.is_writable()) else {
            return;
        };
        if let Err(error) = running::announce(directory, &listeners.addresses()) {
            tracing::warn!("commands on this machine cannot find this server: {error}");
        }
    }

    /// Serves until `handle` requests shutdown and the requests in flight have ended.
    pub async fn run(mut self, listeners: Listeners, handle: Handle) {
        let admin = Arc::clone(&self.admin);
        let chores = self.spawn_chores(&handle);
        let drain = Drain::new();
        let (front_ends, grpc_socket) = listeners.into_parts();
        let serving = front_ends.into_iter();
        let serving =
            serving.map(|(front_end, listener)| (front_end.serve)(&self, listener, drain.clone()));
        let ending = async {
            handle.drain.begun().await;
            admin.decider.begin_to_drain();
            tracing::info!("shutting down: finishing requests in flight");
            // By then balancers should have noticed: a client that connects again reaches another server.
            let half = self.drain_delay / 2;
            tokio::time::sleep(half).await;
            drain.announce();
            tokio::time::sleep(half).await;
            drain.begin();
        };
        let serving_socket = async {
            if let Some(socket) = grpc_socket {
                serve_grpc(&self, socket, drain.clone()).await;
            }
        };
        tokio::join!(join_all(serving), serving_socket, ending);
        for chore in chores {
            chore.abort();
        }
        recorded::finish(&admin, self.exporter).await;
        ratelimit_stats::finish(admin.decider.stats.as_deref(), &self.stats.statsd).await;
        leave(&admin).await;
        // Kept until here, so that held permits are released.
        drop(self.threads);
        write_counters(&admin).await;
        write_history(admin.activity.clone(), &admin.gate).await;
        tracing::info!("shut down");
    }

    /// Starts the background tasks.
    fn spawn_chores(&mut self, handle: &Handle) -> Vec<JoinHandle<()>> {
        let admin = &self.admin;
        let Watches {
            rules,
            xds,
            overlay,
            clients,
            prices,
            tokens,
        } = std::mem::take(&mut self.watches);
        let (gate, identity) = (&admin.gate, &admin.decider.identity);
        let maintained = Arc::clone(gate);
        let follow_overlay = overlay.map(|(path, watch)| {
            tokio::spawn(overlay_file::follow(Arc::clone(admin), path, watch))
        });
        let mut chores = vec![
            tokio::spawn(async move { maintained.maintain().await }),
            tokio::spawn(kept_instances::keep(
                admin.data.clone(),
                admin.store.clone(),
            )),
            tokio::spawn(keep_counters(Arc::clone(admin))),
            tokio::spawn(shared_rules::keep_following(Arc::clone(admin))),
            tokio::spawn(followed_xds::keep_following(Arc::clone(admin), xds)),
            tokio::spawn(keep_last_good(Arc::clone(admin))),
            tokio::spawn(remove_ended_overrides(Arc::clone(admin))),
            tokio::spawn(watch_memory(admin.store.clone())),
            tokio::spawn(check_upstreams(Arc::clone(admin))),
            tokio::spawn(return_memory()),
            tokio::spawn(sample_activity(admin.activity.clone(), Arc::clone(gate))),
            tokio::spawn(keep_history(admin.activity.clone(), Arc::clone(gate))),
            tokio::spawn(publish_activity(
                admin.activity.clone(),
                admin.store.clone(),
            )),
            tokio::spawn(answer_others(Arc::clone(admin))),
            tokio::spawn(follow_rules(Arc::clone(admin), rules, handle.clone())),
            tokio::spawn(certificate_files::follow(Arc::clone(&admin.certificates))),
            tokio::spawn(follow_clients(Arc::clone(identity), clients)),
            tokio::spawn(KeptPrices::follow(prices)),
            tokio::spawn(fetch_keys(Arc::clone(admin), self.next_fetch)),
            tokio::spawn(token_files::follow(Arc::clone(&admin.decider), tokens)),
            tokio::spawn(ratelimit_stats::keep_sending(
                admin.decider.stats.clone(),
                Arc::clone(&self.stats.statsd),
            )),
            tokio::spawn(recorded::keep_sending(
                Arc::clone(admin),
                self.exporter.clone(),
            )),
        ];
        chores.extend(follow_overlay);
        chores
    }
}

/// Releases state in Redis for the other servers, and cleans up the data directory.
async fn leave(admin: &Admin) {
    if let Some(store) = admin.store.redis() {
        let leaving = async {
            admin.gate.reconcile().await;
            store.leave().await;
            if let Some(activity) = &admin.activity {
                let _ = store.withdraw_activity(&activity.instance).await;
            }
        };
        if tokio::time::timeout(FAREWELL, leaving).await.is_err() {
            tracing::warn!("not everything could be returned to Redis; the rest expires by itself");
        }
    }
    if let Some(directory) = &admin.data {
        // A file left behind is known to be stale because the lock is free.
        let _ = running::withdraw(directory);
    }
}

async fn fetch_keys(admin: Arc<Admin>, next: Duration) {
    let files = kept_files(admin.data.as_ref());
    let identity = &admin.decider.identity;
    identity.keep_fetching(next, files.as_ref()).await;
}

async fn check_upstreams(admin: Arc<Admin>) {
    if let Some(gateway) = &admin.gateway {
        check_all(Arc::clone(gateway)).await;
    }
}
