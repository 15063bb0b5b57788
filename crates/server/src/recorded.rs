//! Opens the access log and the tracer, and sends telemetry over OTLP in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::admin::Admin;
use crate::config::Config;
use crate::metrics_page::metrics_page;
use crate::otlp::{self, Exporter, OtlpCounts};
use crate::run_error::RunError;
use crate::telemetry::{AccessLog, ExchangeSinks};

/// How often traces are sent.
const TRACES_EVERY: Duration = Duration::from_secs(1);
/// How many times traces are sent for each time that metrics are.
const METRICS_EVERY: u32 = 15;
/// How long the last telemetry may take at shutdown.
const FAREWELL: Duration = Duration::from_secs(2);

/// The access log, the tracer and the exporter.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) sinks: ExchangeSinks,
    pub(crate) counts: Option<OtlpCounts>,
    /// Shared by the task that sends, and by the shutdown.
    pub(crate) exporter: Option<Arc<Mutex<Exporter>>>,
}

/// Opens the configured ones.
pub(crate) fn open(config: &Config) -> Result<Recorded, RunError> {
    let mut recorded = Recorded::default();
    if let Some(settings) = &config.access_log {
        let log = AccessLog::open(settings).map_err(|source| RunError::AccessLog {
            target: settings.target.clone(),
            source,
        })?;
        recorded.sinks.log = Some(Arc::new(log));
    }
    if let Some(settings) = &config.otlp {
        let (tracer, counts, exporter) = otlp::open(settings).map_err(RunError::Otlp)?;
        recorded.sinks.tracer = Some(tracer);
        recorded.counts = Some(counts);
        recorded.exporter = Some(Arc::new(Mutex::new(exporter)));
    }
    Ok(recorded)
}

/// Sends telemetry until the server ends.
pub(crate) async fn keep_sending(admin: Arc<Admin>, exporter: Option<Arc<Mutex<Exporter>>>) {
    let Some(exporter) = exporter else { return };
    let mut turn = 0;
    loop {
        tokio::time::sleep(TRACES_EVERY).await;
        let mut exporter = exporter.lock().await;
        exporter.send_traces().await;
        if turn % METRICS_EVERY == 0 {
            exporter.send_metrics(&metrics_page(&admin).await).await;
        }
        turn = (turn + 1) % METRICS_EVERY;
    }
}

/// Flushes everything at shutdown, the recording too.
pub(crate) async fn finish(admin: &Admin, exporter: Option<Arc<Mutex<Exporter>>>) {
    if let Some(log) = admin.sinks.log.clone() {
        let _ = tokio::task::spawn_blocking(move || log.flush(FAREWELL)).await;
    }
    if let Some(record) = admin.record.clone() {
        let _ = tokio::task::spawn_blocking(move || record.finish(FAREWELL)).await;
    }
    let Some(exporter) = exporter else { return };
    let sending = async {
        let mut exporter = exporter.lock().await;
        exporter.send_traces().await;
        exporter.send_metrics(&metrics_page(admin).await).await;
    };
    if tokio::time::timeout(FAREWELL, sending).await.is_err() {
        tracing::warn!("not all telemetry could be sent");
    }
}
