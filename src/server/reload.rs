//! What can be changed while the server runs: on SIGHUP the settings are read again, and the files that they name.
//!
//! Taken at once: the server's certificate, client certificates, the admin token, the keys of the issuer, `log.filter`, and
//! who may read metrics. Anything else needs a restart, and the log names what that is. Settings that cannot be used change
//! nothing. SIGUSR1 and SIGUSR2 are ignored: nobody means to end the server by them.

use std::{collections::BTreeMap, io, path::Path, rc::Rc, sync::Arc, time::Duration};

use actix_web::web;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{issuer, settings, tls::ServerCertificate};
use crate::{
    admin::{Control, auth},
    config::{self, Config, Secret, SettingSources},
    deliver::{ClientCertificates, TlsTrust},
    telemetry::LogFilter,
};

/// The settings that are taken at once.
const TAKEN: [&str; 4] = ["log.filter", "metrics.public", "metrics.token", "server.admin_token"];

/// The signals that do not end the server.
pub(super) struct ReloadSignals {
    hangup: Signal,
    // Held so that it is plain what they are for: heard, and nothing follows.
    _ignored: [Signal; 2],
}

impl ReloadSignals {
    pub(super) fn install() -> io::Result<Self> {
        let ignored = [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?];
        Ok(Self { hangup: signal(SignalKind::hangup())?, _ignored: ignored })
    }
}

/// What is reached for it.
pub(super) struct Reload {
    pub(super) sources: SettingSources,
    pub(super) log: LogFilter,
    pub(super) token: auth::AdminToken,
    pub(super) control: web::Data<Control>,
    pub(super) certificate: Option<Arc<ServerCertificate>>,
    pub(super) identities: ClientCertificates,
    pub(super) trust: TlsTrust,
    pub(super) keys: Option<Rc<issuer::KeySetSource>>,
}

impl Reload {
    /// Looks again at each signal, and at the client certificates also as often as at the server's own.
    pub(super) async fn run(self: Rc<Self>, mut signals: ReloadSignals, config: Config) {
        let mut running = config::settings(&self.sources).unwrap_or_default();
        if let Some(folder) = config.delivery.client_certificates_dir.clone() {
            actix_rt::spawn(Rc::clone(&self).watch(folder, config.server.tls_reload));
        }
        while signals.hangup.recv().await.is_some() {
            let (fresh, now) =
                match Config::load(&self.sources).and_then(|fresh| Ok((fresh, config::settings(&self.sources)?))) {
                    Ok(loaded) => loaded,
                    Err(error) => {
                        tracing::error!(%error, "reload: the settings cannot be used; nothing is changed");
                        continue;
                    }
                };
            self.take(&config, &fresh).await;
            let values = |settings: &[config::Setting]| -> BTreeMap<String, String> {
                settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
            };
            let (before, after) = (values(&running), values(&now));
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            let waiting: Vec<&str> = keys
                .filter(|key| before.get(*key) != after.get(*key) && !TAKEN.contains(&key.as_str()))
                .map(String::as_str)
                .collect();
            if !waiting.is_empty() {
                tracing::warn!(settings = waiting.join(", "), "reload: these settings have changed and need a restart");
            }
            // What waits for a restart is told again, what was taken is not.
            running.retain(|setting| !TAKEN.contains(&setting.key.as_str()));
            running.extend(now.into_iter().filter(|setting| TAKEN.contains(&setting.key.as_str())));
        }
    }

    async fn take(&self, config: &Config, fresh: &Config) {
        let log_filter = match self.log.set(&fresh.log.filter) {
            Ok(()) => fresh.log.filter.clone(),
            Err(error) => error.to_string(),
        };
        let configured = fresh.server.admin_token.as_ref().map(Secret::expose);
        let admin_token = match auth::admin_token(configured, &config.server.data_dir) {
            Ok(token) => {
                super::startup::share_token(&token);
                if self.token.replace(&token) { "new" } else { "unchanged" }.to_owned()
            }
            Err(error) => format!("kept: {error}"),
        };
        let metrics = match settings::readers(fresh) {
            Ok(readers) => {
                self.control.let_read_metrics(readers);
                "read again".to_owned()
            }
            Err(error) => format!("kept: {error}"),
        };
        let certificate = match self.certificate.clone() {
            Some(shown) => tokio::task::spawn_blocking(move || shown.look()).await.unwrap_or("not readable"),
            None => "none",
        };
        let client_certificates = match &config.delivery.client_certificates_dir {
            Some(folder) => self.look(folder).await,
            None => "none".to_owned(),
        };
        let issuer_keys = match &self.keys {
            Some(keys) => keys.read().await.map_or_else(|error| format!("kept: {error}"), |count| count.to_string()),
            None => "none".to_owned(),
        };
        tracing::info!(certificate, client_certificates, admin_token, issuer_keys, metrics, log_filter, "reloaded");
    }

    async fn watch(self: Rc<Self>, folder: std::path::PathBuf, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            self.look(&folder).await;
        }
    }

    /// Looks at the client certificates: what was found, in words.
    async fn look(&self, folder: &Path) -> String {
        let (identities, trust, path) = (self.identities.clone(), self.trust.clone(), folder.to_owned());
        let looked = tokio::task::spawn_blocking(move || identities.reload(&path, &trust)).await;
        let Ok(reloaded) = looked else { return "not readable".to_owned() };
        match reloaded {
            Err(error) => {
                tracing::error!(%error, "client certificates cannot be looked at; those from before are shown");
                "not readable".to_owned()
            }
            Ok(reloaded) => {
                for error in &reloaded.failed {
                    tracing::error!(%error, "a client certificate cannot be used; where there was an older one, it is shown");
                }
                if reloaded.fresh.is_empty() && reloaded.gone.is_empty() {
                    return "unchanged".to_owned();
                }
                let (fresh, gone) = (reloaded.fresh.join(", "), reloaded.gone.join(", "));
                tracing::info!(fresh, gone, "client certificates have changed");
                format!("new: {fresh}; gone: {gone}")
            }
        }
    }
}
