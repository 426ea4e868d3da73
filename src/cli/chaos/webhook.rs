//! The webhook of a run: accepts and records all events.

use std::{io, net::SocketAddr, sync::Arc};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, web};
use parking_lot::Mutex;

use super::ledger::DeliveryLedger;
use crate::listen;

/// 64 MiB, above the size of every delivery request.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The shared ledger of a run.
pub(super) type SharedLedger = Arc<Mutex<DeliveryLedger>>;

/// Runs `act` on the locked ledger.
pub(super) fn with_ledger<T>(
    ledger: &SharedLedger,
    act: impl FnOnce(&mut DeliveryLedger) -> T,
) -> T {
    act(&mut ledger.lock())
}

/// Starts the webhook. Returns its address and its handle.
pub(super) fn start_webhook(
    address: SocketAddr,
    ledger: &SharedLedger,
) -> io::Result<(SocketAddr, ServerHandle)> {
    let ledger = web::Data::new(Arc::clone(ledger));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(ledger.clone())
            .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
            .route("/{subscription}", web::post().to(receive_events))
    });
    let server = server
        .workers(1)
        .disable_signals()
        .shutdown_timeout(1)
        .bind(address)?;
    let bound = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let handle = server.handle();
    // The handle stops it.
    actix_rt::spawn(server);
    Ok((bound, handle))
}

async fn receive_events(
    request: HttpRequest,
    subscription: web::Path<usize>,
    body: web::Bytes,
    ledger: web::Data<SharedLedger>,
) -> HttpResponse {
    match request
        .headers()
        .get("aeg-event-type")
        .map(|kind| kind.as_bytes())
    {
        Some(b"SubscriptionValidation") => match listen::validation_code(&body) {
            Ok(code) => HttpResponse::Ok().json(serde_json::json!({ "validationResponse": code })),
            Err(error) => {
                HttpResponse::BadRequest().body(format!("not a validation event: {error}"))
            }
        },
        Some(b"SubscriptionDeletion") => HttpResponse::Ok().finish(),
        Some(_) | None => {
            with_ledger(&ledger, |ledger| {
                ledger.record_arrivals(*subscription, &body)
            });
            HttpResponse::Ok().finish()
        }
    }
}
