//! `/clock`: the time of the server, and the operator's confirmation that the machine's clock is right.

use actix_web::{HttpResponse, http::Method, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::Control;

/// The clocks of the server and the machine.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Clock)]
pub(super) struct ClockView {
    /// Time of the server's clock, by which events age.
    time: String,
    /// Time of the machine's clock.
    wall_clock: String,
    /// Seconds by which the machine's clock is ahead of the server's; negative if it is behind.
    wall_clock_ahead_seconds: f64,
    /// Whether expiry is held, because the machine's clock jumped or the server was off for long.
    expiry_held: bool,
}

/// `GET /clock`, and `POST /clock`, which confirms the machine's clock.
pub(super) async fn answer(method: Method, control: web::Data<Control>) -> HttpResponse {
    if method == Method::POST {
        control.clock.confirm();
        tracing::info!("clock confirmed by an operator");
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
