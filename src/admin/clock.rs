//! `/clock`: what time it is for the server, and the operator's word that the wall clock is right.

use actix_web::{HttpResponse, http::Method, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::Control;

/// What time it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Clock)]
pub(super) struct ClockView {
    /// By the clock that counts the ages of events.
    time: String,
    /// By the clock of the machine.
    wall_clock: String,
    /// By how many seconds the clock of the machine is ahead; negative where it is behind.
    wall_clock_ahead_seconds: f64,
    /// Whether nothing is given up for its age, because the clock of the machine was set or the server was off for long.
    expiry_held: bool,
}

/// `GET /clock`, and `POST /clock`, which confirms the wall clock.
pub(super) async fn answer(method: Method, control: web::Data<Control>) -> HttpResponse {
    if method == Method::POST {
        control.clock.confirm();
        tracing::info!("an operator confirmed the wall clock");
    }
    let (time, wall) = (control.clock.now(), control.clock.wall());
    let ahead = wall.since(time).as_secs_f64() - time.since(wall).as_secs_f64();
    HttpResponse::Ok().json(ClockView {
        time: time.to_string(),
        wall_clock: wall.to_string(),
        wall_clock_ahead_seconds: ahead,
        expiry_held: control.clock.holds_expiry(),
    })
}
