//! The services behind a listener, and the state that they share.

use std::sync::Arc;

use actix_web::web;

use crate::{control_copy::FollowedControl, front::ConfigureServices, node::WriteStall};
use gridhook_admin as admin;
use gridhook_admin::{ChaosMode, ClusterContext, Control, ListenerRole, admin_token, health};
use gridhook_config::Config;
use gridhook_dashboard as dashboard;
use gridhook_publish as publish;
use gridhook_publish::http::Publisher;
use gridhook_pull as pull;

/// The state that all workers share.
pub(crate) struct ListenerContext {
    pub(crate) control: web::Data<Control>,
    pub(crate) publisher: web::Data<Publisher>,
    pub(crate) followed: Option<FollowedControl>,
    pub(crate) tokens: web::Data<pull::LockTokenSealer>,
    pub(crate) health: web::Data<health::ServerHealth>,
    pub(crate) token: admin_token::AdminToken,
    pub(crate) cluster: Option<web::Data<ClusterContext>>,
    /// Set for the owner of a cluster's store.
    pub(crate) stall: Option<WriteStall>,
}

#[derive(Clone)]
pub(super) struct ListenerShared {
    publisher: web::Data<Publisher>,
    followed: Option<web::Data<FollowedControl>>,
    tokens: web::Data<pull::LockTokenSealer>,
    polls: web::Data<pull::NodePolls>,
    health: web::Data<health::ServerHealth>,
    control: web::Data<Control>,
    cluster: Option<web::Data<ClusterContext>>,
    stall: Option<WriteStall>,
    pub(super) token: web::Data<admin_token::AdminToken>,
    chaos: ChaosMode,
    pub(super) has_dashboard: bool,
}

impl ListenerShared {
    pub(super) fn new(config: &Config, context: ListenerContext) -> Self {
        let ListenerContext {
            control,
            publisher,
            followed,
            tokens,
            health,
            token,
            cluster,
            stall,
        } = context;
        Self {
            publisher,
            followed: followed.map(web::Data::new),
            tokens,
            polls: web::Data::new(pull::NodePolls::default()),
            health,
            control,
            cluster,
            stall,
            token: web::Data::new(token),
            has_dashboard: config.server.dashboard,
            chaos: if config.chaos.enabled {
                ChaosMode::Enabled
            } else {
                ChaosMode::Disabled
            },
        }
    }
}

pub(super) fn listener_services(shared: &ListenerShared, role: ListenerRole) -> ConfigureServices {
    let shared = shared.clone();
    Arc::new(move |cfg| {
        let ListenerShared {
            publisher,
            followed,
            tokens,
            polls,
            health,
            control,
            cluster,
            stall,
            token,
            chaos,
            has_dashboard,
        } = shared.clone();
        cfg.app_data(publisher).app_data(tokens).app_data(polls);
        if let Some(followed) = followed {
            cfg.app_data(followed);
        }
        if let Some(stall) = stall {
            cfg.app_data(stall);
        }
        if let Some(cluster) = cluster {
            cfg.app_data(cluster);
        }
        if role != ListenerRole::Operators {
            publish::http::configure(cfg);
            pull::http::configure(cfg);
        }
        admin::configure(cfg, control, token, health, chaos, role);
        if has_dashboard && role != ListenerRole::Publishers {
            dashboard::configure(cfg);
        }
        cfg.default_service(web::to(publish::http::not_found));
    })
}
