//! `POST /simulate`: runs an edition of the delivery policy against endpoint models, in virtual
//! time.
//!
//! A simulation may compute for seconds, so it runs in slices, and ends with its request.

use std::{fmt::Display, ops::RangeInclusive, sync::Arc, time::Duration};

use actix_web::{HttpRequest, web};

use super::{
    Control,
    arm::read_json,
    model::{CheckResult, InvalidRequest},
    permissions::Permissions,
};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::editions::SimulationRequest;
use gridhook_compute::{ComputeError, Meter};
use gridhook_simulate::{EndpointModel, Simulation, SimulationPlan, SimulationReport};

/// Maximum number of event subscriptions.
const SUBSCRIPTIONS_MAX: u32 = 1_000;

/// Maximum number of deliveries: event subscriptions times events.
const DELIVERIES_MAX: f64 = 200_000.0;

/// Maximum simulated days. Events live one day at most, so that a longer simulation only repeats
/// itself.
const DAYS_MAX: f64 = 30.0;

/// Maximum events in a request, as in Event Grid.
const BATCH_MAX: u32 = 5_000;

/// 16 MiB for the pending deliveries and the log of a simulation of this size.
const SIMULATION_BYTES: usize = 16 * 1024 * 1024;

/// `POST /simulate`.
pub(super) async fn run(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> AdminResult {
    let Permissions { caller, .. } = Permissions::from_request(&request)?;
    let body: SimulationRequest = read_json(payload).await?;
    let plan = build_plan(&control, &body)?;
    let report = control
        .compute_for(&caller, |meter| simulate_plan(plan, meter))
        .await??;
    respond_json(&report)
}

async fn simulate_plan(
    plan: SimulationPlan,
    meter: Meter,
) -> Result<SimulationReport, ComputeError> {
    meter.reserve_bytes(SIMULATION_BYTES)?;
    let mut simulation = Simulation::new(plan);
    while simulation.run_next_part().is_some() {
        meter.pause_if_used_up().await?;
    }
    Ok(simulation.finish())
}

fn build_plan(control: &Control, body: &SimulationRequest) -> CheckResult<SimulationPlan> {
    let name = body.edition.as_ref().unwrap_or(&control.editions.default);
    let tables = &control.edition_tables;
    let edition = tables.by_name.get(name).ok_or_else(|| {
        let known: Vec<_> = tables.by_name.keys().map(String::as_str).collect();
        let expected = format!("one of {}", known.join(", "));
        InvalidRequest::unexpected("edition", name, expected)
    })?;
    let days = check_range("days", body.days.unwrap_or(2.0), 0.001..=DAYS_MAX)?;
    let subscriptions = body.subscriptions.unwrap_or(100);
    check_range("subscriptions", subscriptions, 1..=SUBSCRIPTIONS_MAX)?;
    let most = DELIVERIES_MAX / (f64::from(subscriptions) * days * 86_400.0);
    let rate = check_range("rate", body.rate.unwrap_or(0.01), 0.000_001..=most)?;
    let share = |text: &String| {
        EndpointModel::parse_share(text, rate)
            .map_err(|error| InvalidRequest::new("models", error.to_string()))
    };
    let shares = match body.models.as_slice() {
        [] => EndpointModel::practical_mix(rate).to_vec(),
        models => models.iter().map(share).collect::<Result<_, _>>()?,
    };
    let least = SimulationPlan::subscriptions_min(&shares);
    if least > SUBSCRIPTIONS_MAX {
        let problem = format!(
            "need {least} event subscriptions for their shares; expected at most {SUBSCRIPTIONS_MAX}"
        );
        return refuse_value("models", problem);
    }
    Ok(SimulationPlan {
        edition: Arc::clone(edition),
        subscriptions: check_range("subscriptions", subscriptions, least..=SUBSCRIPTIONS_MAX)?,
        shares,
        span: Duration::from_secs_f64(days * 86_400.0),
        rate,
        seed: body.seed.unwrap_or(1),
        batch: check_range("batch", body.batch.unwrap_or(1), 1..=BATCH_MAX)?,
        concurrency: tables.concurrency,
        response_timeout: tables.response_timeout,
        outcome_delay: tables.outcome_delay,
        dead_letter: body.dead_letter.unwrap_or(true),
    })
}

fn check_range<T: PartialOrd + Display>(
    target: &str,
    value: T,
    allowed: RangeInclusive<T>,
) -> CheckResult<T> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let problem = format!(
        "is {value}; expected a number from {} to {}",
        allowed.start(),
        allowed.end()
    );
    refuse_value(target, problem)
}
