//! Follows the management server that the rules come from, and logs the result.

use std::sync::Arc;
use std::time::Duration;

use tidegate_listen::clock::Stopwatch;
use tidegate_xds::{XdsClient, XdsError, XdsEvent, XdsResponse, XdsSettings};
use tokio::time::{Instant, sleep, sleep_until};

use crate::admin::Admin;
use crate::rulebook::TakenResponse;

/// How long a domain stays that the first response of a stream lacks.
const HOLD: Duration = Duration::from_millis(1_500);

/// How often it is logged that the server is away.
const SAY_EVERY: Duration = Duration::from_mins(10);

/// How many changes a line of the log names.
const NAMED: usize = 10;

/// Follows the management server until dropped. Returns immediately without one.
pub(crate) async fn keep_following(admin: Arc<Admin>, settings: Option<XdsSettings>) {
    if let Some(settings) = settings {
        follow(&admin, settings).await;
    }
}

async fn follow(admin: &Arc<Admin>, settings: XdsSettings) {
    let mut client = XdsClient::new(settings);
    let mut said = FailuresSaid::default();
    let mut held_until: Option<Instant> = None;
    loop {
        let event = tokio::select! {
            event = client.next() => event,
            () = until(held_until) => {
                held_until = None;
                let taken = blocking(admin, |admin| admin.book.let_go(&admin.gate)).await;
                if let Some(taken) = taken.flatten() {
                    log(admin, &taken);
                }
                continue;
            }
        };
        match event {
            XdsEvent::Opened => admin.book.opened_stream(),
            XdsEvent::Response(response) => {
                said = FailuresSaid::default();
                let is_first = response.is_first;
                let Some(taken) = take(admin, response).await else {
                    return;
                };
                match taken {
                    Ok(taken) => {
                        client.accept();
                        // A domain that a later response lacks goes when those of the first do.
                        if is_first {
                            held_until = hold(&taken);
                        }
                        log(admin, &taken);
                    }
                    Err(problem) => {
                        client.refuse(&problem);
                        log_refusal(&problem);
                    }
                }
            }
            XdsEvent::Misfit(problem) => {
                said = FailuresSaid::default();
                admin.book.refuse(&problem);
                log_refusal(&problem);
            }
            XdsEvent::Failed { error, pause } => said.failed(admin, &error, pause),
        }
    }
}

async fn take(admin: &Arc<Admin>, response: XdsResponse) -> Option<Result<TakenResponse, String>> {
    blocking(admin, move |admin| admin.book.take(&admin.gate, &response)).await
}

/// Runs on a thread that may block. None if the server ends meanwhile.
async fn blocking<T: Send + 'static>(
    admin: &Arc<Admin>,
    work: impl FnOnce(&Admin) -> T + Send + 'static,
) -> Option<T> {
    let admin = Arc::clone(admin);
    tokio::task::spawn_blocking(move || work(&admin)).await.ok()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What has been logged of failures since the last response.
#[derive(Default)]
struct FailuresSaid {
    /// When it was said last that there is no stream.
    at: Option<Stopwatch>,
    /// Whether what was said last is that a certificate is refused.
    is_of_certificates: bool,
    /// The last response that could not be read, as text.
    unreadable: Option<String>,
}

impl FailuresSaid {
    fn failed(&mut self, admin: &Admin, error: &XdsError, pause: Duration) {
        if error.is_about_response() {
            let problem = match error {
                XdsError::TooLarge { .. } => {
                    format!("{error}; raise `xds.max_message` (XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES)")
                }
                error => error.to_string(),
            };
            admin.book.lost_stream(error);
            admin.book.refuse(&problem);
            if self.unreadable.as_ref() != Some(&problem) {
                log_refusal(&problem);
                self.unreadable = Some(problem);
            }
            return;
        }
        let text = admin.book.lost_stream(error);
        let is_of_certificates = error.is_about_certificates();
        // An operator has to act on it, which differs from a server that is away.
        let is_new = is_of_certificates && !self.is_of_certificates;
        let said = self.at.as_ref();
        if !is_new && said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            tracing::debug!(%error, ?pause, "the management server does not provide rules");
            return;
        }
        (self.at, self.is_of_certificates) = (Some(Stopwatch::start()), is_of_certificates);
        if is_of_certificates {
            tracing::error!("{text}");
        } else {
            tracing::warn!("{text}");
        }
    }
}

fn log_refusal(problem: &str) {
    tracing::error!(
        "a response of the management server was refused, and the rules stay as they were: {problem}"
    );
}

/// Until when domains stay that a first response lacks, if there are any.
fn hold(taken: &TakenResponse) -> Option<Instant> {
    if taken.held.is_empty() {
        return None;
    }
    tracing::info!(
        domains = listed(&taken.held),
        "the first response of the management server lacks domains that are in force; they stay for 1.5 s"
    );
    Some(sleep(HOLD).deadline())
}

fn log(admin: &Admin, taken: &TakenResponse) {
    let Some(version) = taken.version else {
        tracing::debug!("the management server sent the rules in force again");
        return;
    };
    let rules = admin.gate.rules();
    if !taken.removed.is_empty() {
        tracing::warn!(
            count = taken.removed.len(),
            removed = listed(&taken.removed),
            "the management server no longer has these rules, so they are not in force any more"
        );
    }
    if rules.is_empty() {
        tracing::warn!("the management server has no rules, so every request is allowed");
    }
    tracing::info!(
        version,
        rules = rules.len(),
        changes = listed(&taken.changes),
        "the rules of the management server are in force"
    );
    admin.book.log_warnings(&taken.problems);
}

/// The first of a list, and how many there are beyond those.
fn listed(all: &[String]) -> String {
    let shown = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
