//! The files with certificates, keys and authorities that settings name: read again when one of them changes, and on
//! reload. If they cannot be used, what was read before stays in use. Open connections keep what they have.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_gateway::Gateway;
use tidegate_identity::{Identity, JwtKey};
use tidegate_listen::{Tls, TlsError};
use tokio::time::MissedTickBehavior;

use crate::config::{Config, GrpcSettings, TlsFiles};
use crate::store::ServerStore;
use crate::watch::{FileWatch, PERIOD};

/// How listeners use TLS.
#[derive(Debug)]
pub(crate) struct ServedTls {
    /// Of listeners that are not named here.
    pub(crate) others: Option<Tls>,
    /// Of HTTP, with the admin listener. Its calls may require client certificates.
    pub(crate) http: Option<Tls>,
    /// Of gRPC, whose connections may require client certificates.
    pub(crate) grpc: Option<Tls>,
    pub(crate) gateway: Option<Tls>,
}

impl ServedTls {
    /// Reads the files that a configuration names.
    pub(crate) fn load(config: &Config) -> Result<Self, TlsError> {
        let load = |files: &TlsFiles| Tls::load(&files.cert, &files.key);
        let others = config.tls.as_ref().map(load).transpose()?;
        let http = match (&others, &config.http_tls_client_ca) {
            (Some(tls), Some(authorities)) => Some(tls.asking_for_certificates(authorities)?),
            _ => others.clone(),
        };
        let grpc = match (&others, &config.tls_client_ca) {
            _ if config.grpc_settings.tls.is_some() => Self::of_grpc(&config.grpc_settings)?,
            (Some(tls), Some(authorities)) => Some(tls.requiring_certificates(authorities)?),
            _ => others.clone(),
        };
        let of_gateway = config
            .gateway
            .as_ref()
            .and_then(|gateway| gateway.tls.as_ref());
        Ok(Self {
            gateway: of_gateway.map(load).transpose()?.or_else(|| others.clone()),
            others,
            http,
            grpc,
        })
    }
}

impl ServedTls {
    /// TLS of gRPC alone, with its own certificate.
    fn of_grpc(settings: &GrpcSettings) -> Result<Option<Tls>, TlsError> {
        let Some(files) = &settings.tls else {
            return Ok(None);
        };
        let tls = Tls::load(&files.cert, &files.key)?;
        let tls = match (&settings.client_ca, &settings.client_name) {
            (Some(authorities), Some(name)) => tls.requiring_certificates_for(authorities, name)?,
            (Some(authorities), None) => tls.requiring_certificates(authorities)?,
            (None, _) => tls,
        };
        Ok(Some(tls))
    }
}

/// The users of such files.
pub(crate) struct CertificateUsers<'a> {
    pub(crate) tls: &'a ServedTls,
    pub(crate) gateway: Option<&'a Arc<Gateway>>,
    pub(crate) identity: &'a Arc<Identity>,
    pub(crate) store: &'a ServerStore,
}

/// Files that are read together.
pub(crate) struct CertificateFiles {
    /// The settings that name them.
    settings: &'static [&'static str],
    /// Locked while they are read, so that no earlier contents replace later ones.
    watches: Mutex<Vec<FileWatch>>,
    read: ReadCertificates,
    /// Why they cannot be used, if they cannot.
    problem: Mutex<Option<String>>,
}

/// Reads files, and puts what they have in use if it can be used.
type ReadCertificates = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl CertificateFiles {
    /// Begins to watch files that were read before, and reads them again: they may have changed in between.
    fn new(
        settings: &'static [&'static str],
        files: impl IntoIterator<Item = PathBuf>,
        read: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let watches = files.into_iter().map(FileWatch::new).collect();
        let files = Self {
            settings,
            watches: Mutex::new(watches),
            read: Box::new(read),
            problem: Mutex::default(),
        };
        if let Err(problem) = (files.read)() {
            files.keep(&problem, true);
        }
        files
    }

    /// Reads them because an operator asked for it. Waits for the disk.
    pub(crate) fn reload(&self) {
        let _reading = self.watches.lock();
        self.read_again(true);
    }

    /// Reads them if one has changed. Waits for the disk.
    fn look(&self) {
        let mut watches = self.watches.lock();
        // All are polled: those that are replaced together are read once.
        let changed = watches
            .iter_mut()
            .filter_map(|watch| watch.poll().then_some(()));
        if changed.count() > 0 {
            self.read_again(false);
        }
    }

    fn read_again(&self, is_asked: bool) {
        match (self.read)() {
            Ok(()) => {
                *self.problem.lock() = None;
                tracing::info!(
                    settings = self.settings.join(", "),
                    "the certificates were read again"
                );
            }
            Err(problem) => self.keep(&problem, is_asked),
        }
    }

    /// Keeps what was read before. The same problem is logged once, unless an operator asks.
    fn keep(&self, problem: &str, is_asked: bool) {
        let known = self.problem.lock().replace(problem.to_owned());
        if is_asked || known.as_deref() != Some(problem) {
            tracing::error!(
                settings = self.settings.join(", "),
                "the certificates stay as they were: {problem}"
            );
        }
    }

    /// A warning, if they cannot be used.
    pub(crate) fn warning(&self) -> Option<String> {
        let problem = self.problem.lock();
        let problem = problem.as_ref()?;
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        Some(format!(
            "what {} named before stays in use: {problem}",
            settings.join(", ")
        ))
    }
}

/// The files that a configuration names, and watches them from now on.
pub(crate) fn watch(config: &Config, users: &CertificateUsers<'_>) -> Vec<CertificateFiles> {
    let mut all = Vec::new();
    let gateway = config.gateway.as_ref();
    let gateway_files = gateway.and_then(|gateway| gateway.tls.as_ref());
    let pairs = [
        (
            &["tls_cert", "tls_key"],
            config.tls.as_ref(),
            users.tls.others.clone(),
        ),
        (
            &["gateway_tls_cert", "gateway_tls_key"],
            gateway_files,
            users.tls.gateway.clone(),
        ),
        (
            &["grpc_tls_cert", "grpc_tls_key"],
            config.grpc_settings.tls.as_ref(),
            users.tls.grpc.clone(),
        ),
    ];
    for (settings, files, tls) in pairs {
        if let (Some(files), Some(tls)) = (files, tls) {
            let paths = [files.cert.clone(), files.key.clone()];
            let read = move || tls.reload().map_err(|error| error.to_string());
            all.push(CertificateFiles::new(settings, paths, read));
        }
    }
    let of_clients = [
        (
            &["tls_client_ca"],
            config.tls_client_ca.clone(),
            users.tls.grpc.clone(),
        ),
        (
            &["grpc_tls_client_ca"],
            config.grpc_settings.client_ca.clone(),
            users.tls.grpc.clone(),
        ),
        (
            &["http_tls_client_ca"],
            config.http_tls_client_ca.clone(),
            users.tls.http.clone(),
        ),
    ];
    for (settings, file, tls) in of_clients {
        if let (Some(file), Some(tls)) = (file, tls) {
            let read = move || tls.reload_authorities().map_err(|error| error.to_string());
            all.push(CertificateFiles::new(settings, [file], read));
        }
    }
    let upstream_ca = gateway.and_then(|gateway| gateway.upstream_ca.clone());
    if let (Some(file), Some(gateway)) = (upstream_ca, users.gateway.cloned()) {
        let read = move || {
            gateway
                .reload_authorities()
                .map_err(|error| error.to_string())
        };
        all.push(CertificateFiles::new(&["upstream_ca"], [file], read));
    }
    let key = config.identify.jwt.as_ref().map(|jwt| &jwt.key);
    if let Some(JwtKey::JwksUrl { ca: Some(file), .. }) = key {
        let identity = Arc::clone(users.identity);
        let read = move || {
            identity
                .reload_authorities()
                .map_err(|error| error.to_string())
        };
        all.push(CertificateFiles::new(&["jwks_ca"], [file.clone()], read));
    }
    let of_redis = config.redis_tls.clone();
    if let (Some(store), true) = (users.store.redis().cloned(), of_redis.is_any()) {
        let settings = &["redis_ca", "redis_cert", "redis_key"];
        let paths: Vec<PathBuf> = of_redis.paths().cloned().collect();
        let read = move || {
            store.set_tls(of_redis.read()?);
            Ok(())
        };
        all.push(CertificateFiles::new(settings, paths, read));
    }
    all
}

/// Reads files when they change, for as long as the server runs.
pub(crate) async fn follow(files: Arc<[CertificateFiles]>) {
    let following = (0..files.len()).map(|index| {
        let files = Arc::clone(&files);
        async move {
            let mut times = tokio::time::interval(PERIOD);
            times.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                times.tick().await;
                let files = Arc::clone(&files);
                let _ = tokio::task::spawn_blocking(move || files[index].look()).await;
            }
        }
    });
    futures_util::future::join_all(following).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn files_that_are_replaced_together_are_read_once_and_a_problem_lasts_until_they_are_good() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let put = |version: &str| {
            for path in &paths {
                std::fs::write(path, version).unwrap();
            }
        };
        put("good");
        let reads = Arc::new(AtomicU32::new(0));
        let (counted, read_from) = (Arc::clone(&reads), paths[0].clone());
        let files = CertificateFiles::new(&["a", "b"], paths.clone(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let text = std::fs::read_to_string(&read_from).unwrap();
            (text != "bad").then_some(()).ok_or(text)
        });
        let reads_of_looks = || {
            let before = reads.load(Ordering::Relaxed);
            for _ in 0..6 {
                files.look();
            }
            reads.load(Ordering::Relaxed) - before
        };
        assert_eq!(
            reads.load(Ordering::Relaxed),
            1,
            "once after the watch began"
        );
        assert_eq!(reads_of_looks(), 0);
        assert_eq!(files.warning(), None);

        put("bad");
        assert_eq!(reads_of_looks(), 1);
        let warning = files.warning().unwrap();
        assert_eq!(warning, "what `a`, `b` named before stays in use: bad");
        put("better");
        assert_eq!(reads_of_looks(), 1);
        assert_eq!(files.warning(), None);
        files.reload();
        assert_eq!(reads.load(Ordering::Relaxed), 4);
    }
}
