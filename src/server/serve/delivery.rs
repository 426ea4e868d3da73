//! The fourth phase of a start: the actors that deliver run, and publishers could be served.

use std::{rc::Rc, sync::Arc};

use actix_web::web;

use super::{bound::Bound, recovered::Recovered};
use crate::{
    Arbiters, Launch, ServerError, ShardCore,
    certificates::{self, ShownCertificates},
    control_copy::FollowedControl,
    dead_letter_routing::{self, DeadLetterService},
    issuer::{self, KeySetSource, TokenAccess},
    node::Ownership,
    service_notifier::{self, ServiceNotifier},
    settings, startup,
    system_topic::{self, SystemTopic},
};
use gridhook_admin::ChaosTargets;
use gridhook_dead_letter::DeadLetterStores;
use gridhook_engine::{
    control::registry::StartQueue,
    supervision::{Lifeline, actor_factory},
};
use gridhook_publish::{
    auth::{bearer::TokenIssuer, failed_auth::FailedAuthLimiter},
    http::Publisher,
};
use gridhook_telemetry::trace::{TraceExporter, Tracer};

/// The actors that deliver, and what publishers call.
pub(crate) struct Delivery {
    pub(crate) certificates: ShownCertificates,
    pub(crate) system_topic: Option<Arc<SystemTopic>>,
    pub(super) stores: DeadLetterStores,
    /// The actors of dead-letter stores run as long as this is held.
    pub(super) _lifeline: Lifeline,
    pub(crate) tracer: Tracer,
    pub(super) exporter: Option<TraceExporter>,
    pub(super) failed_auth: Arc<FailedAuthLimiter>,
    /// The issuer of operators' access tokens.
    pub(super) operators: Option<TokenIssuer>,
    pub(super) keys: Option<Rc<KeySetSource>>,
    pub(super) arbiters: Arbiters,
    pub(super) notifier: Rc<ServiceNotifier>,
    pub(crate) publisher: web::Data<Publisher>,
    /// Set for the core of a shard that follows the control plane.
    pub(super) followed: Option<FollowedControl>,
}

impl Delivery {
    pub(super) async fn start(
        launch: &Launch,
        recovered: &Recovered,
        bound: &Bound,
        starts: StartQueue,
        targets: &mut ChaosTargets,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<Self, ServerError> {
        let Recovered {
            parts,
            client,
            token,
            ..
        } = recovered;
        let Bound {
            address, health, ..
        } = bound;
        let node_certificates = ownership
            .map(|ownership| &*ownership.node.process.certificates)
            .unwrap_or_default();
        let certificates = certificates::certificates_of_owner(
            &parts.config,
            address,
            node_certificates,
            &client.identities,
        );
        let others = launch.core.as_ref().map(|core| core.others.clone());
        let has_control = launch.core.as_ref().is_some_and(ShardCore::has_control);
        let system_topic = if has_control {
            None
        } else {
            system_topic::start(parts, Arc::clone(&certificates), others.as_ref())
        };
        let fence = ownership.map(|ownership| ownership.tenure.file_fence());
        let DeadLetterService {
            stores,
            routing,
            handles,
            lifeline,
        } = dead_letter_routing::start_dead_letters(parts, system_topic.as_ref(), fence.as_ref())?;
        targets.dead_letters = handles;
        let (tracer, exporter) = startup::start_tracing(parts, address)?;
        let failed_auth = Arc::new(settings::failed_auth_limiter(&parts.config));
        let TokenAccess {
            gate,
            operators,
            keys,
        } = issuer::build_gates(
            &parts.config,
            &address.public_url,
            token,
            parts.registry.tokens(),
            &client.trust,
            Arc::clone(&failed_auth),
        )
        .map_err(|error| ServerError::Issuer(error.to_string()))?;
        let context = startup::build_subscription_context(
            parts,
            client,
            targets,
            &tracer,
            routing,
            stores.clone(),
        );
        let arbiters = Arbiters::start(launch.delivery_threads, &launch.threads);
        let notifier = service_notifier::start_service_notifier(launch);
        let followed = match launch.core.as_ref().filter(|core| !core.has_control()) {
            Some(shard) => Some(shard.follow_control(Arc::clone(&parts.registry)).await),
            None => {
                if let Some(ownership) = ownership.filter(|_| has_control) {
                    parts
                        .registry
                        .note_cluster(&ownership.node.process.cluster_id)
                        .await?;
                }
                startup::start_validation(parts, client.clone(), address);
                startup::start_expiry(parts).await;
                None
            }
        };
        startup::start_filter_version_sweep(parts);
        actix_rt::spawn(actor_factory::run(starts, arbiters.actor_hosts(context)));
        let publisher = startup::build_publisher(parts, gate, tracer.clone());
        startup::attach_topics(parts, client, &publisher, others);
        startup::attach_journal(health, &parts.journal);
        Ok(Self {
            certificates,
            system_topic,
            stores,
            _lifeline: lifeline,
            tracer,
            exporter,
            failed_auth,
            operators,
            keys,
            arbiters,
            notifier,
            publisher,
            followed,
        })
    }
}
