//! The paths of the control plane that are not ARM's: which there are, and how each can be asked. The router and
//! `/openapi.json` are made of it.

use actix_web::http::Method;

use super::{ChaosMode, ListenerRole};

/// A path of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridhookPath {
    /// Does the process live?
    Healthz,
    /// Does it take events?
    Readyz,
    /// The description of all paths.
    Document,
    /// An endpoint gives its word.
    Validate,
    /// Figures of all of it.
    Metrics,
    /// Which actors died, and how soon they were at work again.
    Supervision,
    /// The figures of all event subscriptions.
    Top,
    /// What time it is, and whether the machine's clock is right.
    Clock,
    /// What happens, as it happens.
    Tail,
    /// What is broken on purpose.
    Chaos,
    /// An actor, or the journal, does nothing for a while.
    Stall,
    /// The journal's next writes fail.
    Writes,
    /// Responses of endpoints are lost, late or damaged.
    Responses,
    /// The wall clock is set wrong.
    ChaosClock,
    /// An actor is killed on purpose.
    Kill,
    /// Marks an event as poison: each actor that processes it panics.
    Poison,
    /// An operator signs in to the dashboard.
    Session,
    /// The store is looked at.
    CheckStore,
    /// The store is backed up.
    BackUpStore,
}

impl GridhookPath {
    /// Those that there are.
    pub fn all(chaos: ChaosMode) -> impl Iterator<Item = Self> {
        let all = [
            Self::Healthz,
            Self::Readyz,
            Self::Document,
            Self::Validate,
            Self::CheckStore,
            Self::BackUpStore,
            Self::Metrics,
            Self::Supervision,
            Self::Clock,
            Self::Top,
            Self::Tail,
            Self::Session,
            Self::Chaos,
            Self::Kill,
            Self::Poison,
            Self::Stall,
            Self::Writes,
            Self::Responses,
            Self::ChaosClock,
        ];
        all.into_iter().filter(move |path| chaos == ChaosMode::Enabled || !(path.is_act() || *path == Self::Chaos))
    }

    /// Whether something is broken by asking.
    pub(super) fn is_act(self) -> bool {
        match self {
            Self::Kill | Self::Poison | Self::Stall | Self::Writes | Self::Responses | Self::ChaosClock => true,
            Self::Healthz | Self::Readyz | Self::Document | Self::Validate => false,
            Self::CheckStore | Self::BackUpStore | Self::Metrics | Self::Supervision | Self::Chaos => false,
            Self::Top | Self::Tail | Self::Clock | Self::Session => false,
        }
    }

    /// The path, with a name in braces.
    pub fn template(self) -> &'static str {
        match self {
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Document => "/openapi.json",
            Self::Validate => "/eventsubscriptions/{eventSubscriptionName}/validate",
            Self::CheckStore => "/store/check",
            Self::BackUpStore => "/store/backup",
            Self::Metrics => "/metrics",
            Self::Supervision => "/supervision",
            Self::Top => "/top",
            Self::Clock => "/clock",
            Self::Tail => "/tail",
            Self::Session => "/ui/session",
            Self::Chaos => "/chaos",
            Self::Stall => "/chaos/stall",
            Self::Writes => "/chaos/writes",
            Self::Responses => "/chaos/responses",
            Self::ChaosClock => "/chaos/clock",
            Self::Kill => "/chaos/kill",
            Self::Poison => "/chaos/poison",
        }
    }

    /// Whether it is served there, where the sides have addresses of their own. How the server is may be asked at both.
    pub fn is_at(self, side: ListenerRole) -> bool {
        match (self, side) {
            (_, ListenerRole::Both)
            | (Self::Healthz | Self::Readyz, ListenerRole::Operators | ListenerRole::Others) => true,
            (Self::Validate, side) => side == ListenerRole::Others,
            (_, side) => side == ListenerRole::Operators,
        }
    }

    /// How it can be asked.
    pub fn methods(self) -> &'static [Method] {
        // Load balancers use either method.
        const READ: &[Method] = &[Method::GET, Method::HEAD];
        const ACT: &[Method] = &[Method::POST];
        const ASK: &[Method] = &[Method::GET];
        const SESSION: &[Method] = &[Method::GET, Method::POST, Method::DELETE];
        const SWITCH: &[Method] = &[Method::GET, Method::DELETE];
        // Not HEAD: those who look whether an address is there give nobody's word.
        const WORD: &[Method] = &[Method::GET, Method::POST];
        match self {
            Self::Clock => WORD,
            Self::Session => SESSION,
            Self::Healthz | Self::Readyz | Self::Document => READ,
            Self::Validate => WORD,
            Self::CheckStore | Self::BackUpStore => ACT,
            Self::Metrics | Self::Supervision | Self::Top | Self::Tail => ASK,
            Self::Chaos => SWITCH,
            Self::Kill | Self::Poison | Self::Stall | Self::Writes | Self::Responses | Self::ChaosClock => ACT,
        }
    }
}
