//! What is known of the management server, for probes, metrics and people.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::Timestamp;
use tidegate_listen::Labels;
use tidegate_xds::XdsError;

use super::super::report::age;
use super::super::{RuleBook, now};
use crate::telemetry::{counter, gauge};

/// Where the rules in force come from.
#[derive(Debug, Clone)]
pub(crate) struct XdsStatus {
    /// The address of the management server.
    pub(crate) server: String,
    /// The id of this node.
    pub(crate) node: String,
    /// Whether a stream is open.
    pub(crate) is_connected: bool,
    /// Why none is, once that is known.
    pub(crate) failure: Option<String>,
    /// The version that the server gave the rules in force.
    pub(crate) server_version: Option<String>,
    /// When they were received.
    pub(crate) received: Option<Timestamp>,
    /// Whether they are the last good ones of an earlier run.
    pub(crate) is_kept: bool,
}

impl RuleBook {
    /// The state of the management server that the rules come from, if they come from one.
    pub(crate) fn xds_status(&self) -> Option<XdsStatus> {
        let xds = self.xds()?;
        let state = xds.state.lock();
        Some(XdsStatus {
            server: xds.server.clone(),
            node: xds.node.clone(),
            is_connected: state.is_connected,
            failure: state.failure.clone().filter(|_| !state.is_connected),
            server_version: state.server_version.clone(),
            received: state.received,
            is_kept: state.is_kept,
        })
    }

    /// Notes that a stream was opened.
    pub(crate) fn opened_stream(&self) {
        if let Some(xds) = self.xds() {
            let mut state = xds.state.lock();
            state.streams += 1;
            state.is_connected = true;
        }
    }

    /// Notes that there is no stream. Returns that with what decisions go by, for logs.
    pub(crate) fn lost_stream(&self, error: &XdsError) -> String {
        let Some(xds) = self.xds() else {
            return String::new();
        };
        let mut state = xds.state.lock();
        state.is_connected = false;
        state.failure = Some(error.to_string());
        drop(state);
        self.warning().unwrap_or_default()
    }

    /// What is wrong with the management server, and what decisions go by meanwhile.
    pub(crate) fn warning(&self) -> Option<String> {
        let xds = self.xds()?;
        let state = xds.state.lock();
        let failure = state.failure.as_ref().filter(|_| !state.is_connected)?;
        let age = state.received.map(|received| age(now().since(received)));
        let then = match age {
            Some(age) if state.is_kept => {
                format!("the last good rules are in force, received {age} ago")
            }
            Some(_) => "the rules in force stay".to_owned(),
            None => "no rules are known".to_owned(),
        };
        let server = &xds.server;
        Some(format!(
            "the management server `{server}` does not provide rules: {failure}; {then}"
        ))
    }

    /// Whether the rules in force may be older than those of their source.
    pub(crate) fn is_stale(&self) -> bool {
        let is_kept = |xds: &super::XdsRules| xds.state.lock().is_kept;
        self.problem().is_some() || self.xds().is_some_and(is_kept)
    }

    pub(in crate::rulebook) fn register_xds(&self, registry: &mut Registry) {
        let Some(xds) = self.xds() else {
            return;
        };
        let state = xds.state.lock();
        registry.register(
            "xds_connected",
            "Whether a stream of the management server is open",
            gauge(u64::from(state.is_connected)),
        );
        registry.register(
            "xds_streams",
            "Streams that were opened",
            counter(state.streams),
        );
        let updates = Family::<Labels<1>, Counter>::default();
        for (result, count) in [
            ("accepted", state.accepted),
            ("unchanged", state.unchanged),
            ("refused", state.refused),
        ] {
            updates
                .get_or_create(&[("result", result.to_owned())])
                .inc_by(count);
        }
        registry.register(
            "xds_updates",
            "Responses of the management server, by result",
            updates,
        );
        let received = state.received.map_or(0, |at| at.as_micros() / 1_000_000);
        registry.register(
            "xds_last_update_seconds",
            "Unix time at which the rules in force were last received",
            gauge(received),
        );
    }
}
