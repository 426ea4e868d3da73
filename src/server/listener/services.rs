//! The services behind a listener, and the state that they share.

use actix_web::{dev::Extensions, web};

use crate::{control_copy::FollowedControl, node::WriteStall};
use gridhook_admin as admin;
use gridhook_admin::{ChaosMode, ClusterContext, Control, ListenerRole, admin_token, health};
use gridhook_config::Config;
use gridhook_dashboard as dashboard;
use gridhook_publish as publish;
use gridhook_publish::http::Publisher;
use gridhook_pull as pull;

/// The state that all workers share, of a server or of a shard: the app data of requests.
#[derive(Clone)]
pub(crate) struct ListenerContext {
    pub(crate) control: web::Data<Control>,
    pub(crate) publisher: web::Data<Publisher>,
    pub(crate) followed: Option<web::Data<FollowedControl>>,
    pub(crate) tokens: web::Data<pull::LockTokenSealer>,
    pub(crate) health: web::Data<health::ServerHealth>,
    pub(crate) token: web::Data<admin_token::AdminToken>,
    pub(crate) cluster: Option<web::Data<ClusterContext>>,
    /// Set for the owner of a cluster's store.
    pub(crate) stall: Option<WriteStall>,
}

impl ListenerContext {
    pub(crate) fn add_to(&self, data: &mut impl AppData) {
        let Self {
            control,
            publisher,
            followed,
            tokens,
            health,
            token,
            cluster,
            stall,
        } = self.clone();
        data.add(control);
        data.add(publisher);
        data.add(tokens);
        data.add(health);
        data.add(token);
        if let Some(followed) = followed {
            data.add(followed);
        }
        if let Some(stall) = stall {
            data.add(stall);
        }
        if let Some(cluster) = cluster {
            data.add(cluster);
        }
    }
}

/// The app data of all requests to a listener, or of those to a shard.
pub(crate) trait AppData {
    fn add<T: 'static>(&mut self, data: T);
}

impl AppData for web::ServiceConfig {
    fn add<T: 'static>(&mut self, data: T) {
        self.app_data(data);
    }
}

impl AppData for Extensions {
    fn add<T: 'static>(&mut self, data: T) {
        self.insert(data);
    }
}

/// The routes of listeners, without their app data.
#[derive(Clone, Copy)]
pub(super) struct ListenerRoutes {
    chaos: ChaosMode,
    has_dashboard: bool,
}

impl ListenerRoutes {
    pub(super) fn new(config: &Config) -> Self {
        let chaos = if config.chaos.enabled {
            ChaosMode::Enabled
        } else {
            ChaosMode::Disabled
        };
        Self {
            chaos,
            has_dashboard: config.server.dashboard,
        }
    }

    pub(super) fn configure(self, cfg: &mut web::ServiceConfig, role: ListenerRole) {
        let Self {
            chaos,
            has_dashboard,
        } = self;
        if role != ListenerRole::Operators {
            publish::http::configure(cfg);
            pull::http::configure(cfg);
        }
        admin::configure(cfg, chaos, role);
        if has_dashboard && role != ListenerRole::Publishers {
            dashboard::configure(cfg);
        }
        cfg.default_service(web::to(publish::http::not_found));
    }
}
