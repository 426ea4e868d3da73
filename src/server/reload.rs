//! Reloads settings and the files that they name on SIGHUP.
//!
//! Applied at once: the server's certificate, client certificates, authorities, the admin token, the
//! issuer's keys, `log.filter`, and access to metrics. Other changes need a restart, and the log names them.
//! Invalid settings change nothing. SIGUSR1 and SIGUSR2 are ignored, because their default action
//! would end the process.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::web;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{issuer, settings, tls::ReloadableCertificate};
use gridhook_admin::{Control, StandbyAccess, admin_token};
use gridhook_config as config;
use gridhook_config::{Config, Secret, SettingSources};
use gridhook_deliver::{ClientCertificates, TlsTrust};
use gridhook_telemetry::LogFilter;

/// The settings that are applied at once.
const APPLIED: [&str; 4] = [
    "log.filter",
    "metrics.public",
    "metrics.token",
    "server.admin_token",
];

/// Reads the applied settings again for a run that follows another one in this process, so that it
/// does not return to those of the first. The log filter outlives the runs.
pub(super) fn refresh(config: &mut Config, sources: &SettingSources) {
    match Config::load(sources) {
        Ok(fresh) => {
            config.metrics.public = fresh.metrics.public;
            config.metrics.token = fresh.metrics.token;
            config.server.admin_token = fresh.server.admin_token;
        }
        Err(error) => {
            tracing::error!(%error, "the settings cannot be used; those of the last start apply")
        }
    }
}

/// Reloads on each SIGHUP what a standby serves itself, for as long as it does.
pub(super) async fn refresh_standby(
    access: Weak<StandbyAccess>,
    data_dir: PathBuf,
    sources: SettingSources,
    log: LogFilter,
    mut hangup: Signal,
) {
    while hangup.recv().await.is_some() {
        let Some(access) = access.upgrade() else {
            return;
        };
        let fresh = match Config::load(&sources) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::error!(%error, "the new settings cannot be used; nothing is changed");
                continue;
            }
        };
        let log_filter = set_log_filter(&log, &fresh);
        let admin_token = reload_admin_token(&access.token, &fresh, &data_dir);
        let metrics = match settings::metrics_access(&fresh) {
            Ok(readers) => {
                access.set_metrics_access(readers);
                "applied".to_owned()
            }
            Err(error) => format!("kept: {error}"),
        };
        tracing::info!(
            admin_token,
            metrics,
            log_filter,
            "reloaded the access to what the node serves itself"
        );
    }
}

/// Sets the filter, and returns it or why it is kept.
fn set_log_filter(log: &LogFilter, fresh: &Config) -> String {
    match log.set_filter(&fresh.log.filter) {
        Ok(()) => fresh.log.filter.clone(),
        Err(error) => error.to_string(),
    }
}

/// Replaces the token, and describes the result.
fn reload_admin_token(token: &admin_token::AdminToken, fresh: &Config, data_dir: &Path) -> String {
    let setting = fresh.server.admin_token.as_ref().map(Secret::expose);
    let fresh_token = match admin_token::load_or_create(setting, data_dir) {
        Ok(fresh_token) => fresh_token,
        Err(error) => return format!("kept: {error}"),
    };
    super::startup::share_token(&fresh_token);
    let is_new = token.replace_with(&fresh_token);
    if is_new { "new" } else { "unchanged" }.to_owned()
}

/// The handlers of signals that do not end the server.
pub(super) struct ReloadSignals {
    hangup: Signal,
    // Holding the handlers keeps the signals from ending the process.
    _ignored: [Signal; 2],
}

impl ReloadSignals {
    pub(super) fn install() -> io::Result<Self> {
        let ignored_signals = [
            signal(SignalKind::user_defined1())?,
            signal(SignalKind::user_defined2())?,
        ];
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            _ignored: ignored_signals,
        })
    }
}

/// The parts of the server that a reload changes.
pub(super) struct Reload {
    pub(super) sources: SettingSources,
    pub(super) log: LogFilter,
    pub(super) token: admin_token::AdminToken,
    pub(super) control: web::Data<Control>,
    pub(super) certificate: Option<Arc<ReloadableCertificate>>,
    pub(super) identities: ClientCertificates,
    pub(super) trust: TlsTrust,
    pub(super) keys: Option<Rc<issuer::KeySetSource>>,
}

impl Reload {
    /// Reloads on each SIGHUP, and checks the files of TLS at each `server.tls_reload`.
    pub(super) async fn run(self: Rc<Self>, mut signals: ReloadSignals, config: Config) {
        let mut running = config::effective_settings(&self.sources).unwrap_or_default();
        self.control
            .set_settings(settings::changed_settings(&running));
        let folder = config.delivery.client_certificates_dir.clone();
        actix_rt::spawn(Rc::clone(&self).watch_files(folder, config.server.tls_reload));
        while signals.hangup.recv().await.is_some() {
            let (fresh, now) = match Config::load(&self.sources)
                .and_then(|fresh| Ok((fresh, config::effective_settings(&self.sources)?)))
            {
                Ok(loaded) => loaded,
                Err(error) => {
                    tracing::error!(%error, "the new settings cannot be used; nothing is changed");
                    continue;
                }
            };
            self.apply_changes(&config, &fresh).await;
            let values = |settings: &[config::Setting]| -> BTreeMap<String, String> {
                settings
                    .iter()
                    .map(|setting| (setting.key.clone(), setting.value.clone()))
                    .collect()
            };
            let before = values(&running);
            let after = values(&now);
            let keys = before
                .keys()
                .chain(after.keys().filter(|key| !before.contains_key(*key)));
            let waiting: Vec<&str> = keys
                .filter(|key| {
                    before.get(*key) != after.get(*key) && !APPLIED.contains(&key.as_str())
                })
                .map(String::as_str)
                .collect();
            if !waiting.is_empty() {
                tracing::warn!(
                    settings = waiting.join(", "),
                    "some changed settings need a restart"
                );
            }
            // A setting that needs a restart is reported again by the next reload; an applied one
            // is not.
            running.retain(|setting| !APPLIED.contains(&setting.key.as_str()));
            running.extend(
                now.into_iter()
                    .filter(|setting| APPLIED.contains(&setting.key.as_str())),
            );
            running.sort_by(|a, b| a.key.cmp(&b.key));
            self.control
                .set_settings(settings::changed_settings(&running));
        }
    }

    async fn apply_changes(&self, config: &Config, fresh: &Config) {
        let log_filter = set_log_filter(&self.log, fresh);
        let admin_token = reload_admin_token(&self.token, fresh, &config.server.data_dir);
        let metrics = match settings::metrics_access(fresh) {
            Ok(readers) => {
                self.control.set_metrics_access(readers);
                "applied".to_owned()
            }
            Err(error) => format!("kept: {error}"),
        };
        let certificate = match self.certificate.clone() {
            Some(shown) => tokio::task::spawn_blocking(move || shown.reload_files())
                .await
                .unwrap_or("not readable"),
            None => "none",
        };
        let client_certificates = match &config.delivery.client_certificates_dir {
            Some(folder) => self.reload_client_certificates(folder).await,
            None => "none".to_owned(),
        };
        let authorities = self.reload_authorities().await;
        let issuer_keys = match &self.keys {
            Some(keys) => keys
                .read()
                .await
                .map_or_else(|error| format!("kept: {error}"), |count| count.to_string()),
            None => "none".to_owned(),
        };
        tracing::info!(
            certificate,
            client_certificates,
            authorities,
            admin_token,
            issuer_keys,
            metrics,
            log_filter,
            "reloaded"
        );
    }

    /// Checks the authorities and the folder of client certificates.
    async fn watch_files(self: Rc<Self>, folder: Option<PathBuf>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            self.reload_authorities().await;
            if let Some(folder) = &folder {
                self.reload_client_certificates(folder).await;
            }
        }
    }

    async fn reload_authorities(&self) -> &'static str {
        let authorities = Arc::clone(self.trust.authorities());
        let reload = tokio::task::spawn_blocking(move || authorities.reload());
        reload.await.unwrap_or("not readable")
    }

    /// Reloads the client certificates and describes the result.
    async fn reload_client_certificates(&self, folder: &Path) -> String {
        let identities = self.identities.clone();
        let trust = self.trust.clone();
        let path = folder.to_owned();
        let outcome = tokio::task::spawn_blocking(move || identities.reload(&path, &trust)).await;
        let Ok(reloaded) = outcome else {
            return "not readable".to_owned();
        };
        match reloaded {
            Err(error) => {
                tracing::error!(%error, "client certificates cannot be read; the last ones stay in \
                    use");
                "not readable".to_owned()
            }
            Ok(reloaded) => {
                for error in &reloaded.failed {
                    tracing::error!(%error, "a client certificate cannot be used; its last version \
                        stays in use");
                }
                if reloaded.fresh.is_empty() && reloaded.gone.is_empty() {
                    return "unchanged".to_owned();
                }
                let fresh = reloaded.fresh.join(", ");
                let gone = reloaded.gone.join(", ");
                tracing::info!(fresh, gone, "client certificates replaced");
                format!("new: {fresh}; gone: {gone}")
            }
        }
    }
}
