//! `/clock`: the time of the server, and the operator's confirmation that the machine's clock is
//! right.

use actix_web::{HttpResponse, web};

use super::Control;
use gridhook_api::clock::ClockView;
use gridhook_engine::control::audit::record_intent;

/// `GET /clock`.
pub(super) async fn get_clock(control: web::Data<Control>) -> HttpResponse {
    let time = control.clock.now();
    let wall = control.clock.wall_time();
    let ahead = wall.seconds_ahead_of(time);
    HttpResponse::Ok().json(ClockView {
        time: time.to_string(),
        wall_clock: wall.to_string(),
        wall_clock_ahead_seconds: ahead,
        expiry_paused: control.clock.expiry_is_paused(),
    })
}

/// `POST /clock`: confirms the machine's clock.
pub(super) async fn confirm_clock(control: web::Data<Control>) -> HttpResponse {
    record_intent().await;
    control.clock.confirm_wall();
    tracing::info!("clock confirmed by an operator");
    get_clock(control).await
}
