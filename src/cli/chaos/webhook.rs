//! The webhook of a run: accepts and records all events.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, web};

use super::ledger::DeliveryAccount;
use crate::cli::listen;

/// 64 MiB, above the size of every delivery request.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The shared account of a run.
pub(super) type Account = Arc<Mutex<DeliveryAccount>>;

/// Runs `act` on the locked account.
pub(super) fn with<T>(account: &Account, act: impl FnOnce(&mut DeliveryAccount) -> T) -> T {
    act(&mut account.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts the webhook. Returns its address and its handle.
pub(super) fn listen(address: SocketAddr, account: &Account) -> io::Result<(SocketAddr, ServerHandle)> {
    let account = web::Data::new(Arc::clone(account));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(account.clone())
            .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
            .route("/{subscription}", web::post().to(receive))
    });
    let server = server.workers(1).disable_signals().shutdown_timeout(1).bind(address)?;
    let bound = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let handle = server.handle();
    // The handle stops it.
    actix_rt::spawn(server);
    Ok((bound, handle))
}

async fn receive(
    request: HttpRequest,
    subscription: web::Path<usize>,
    body: web::Bytes,
    account: web::Data<Account>,
) -> HttpResponse {
    match request.headers().get("aeg-event-type").map(|kind| kind.as_bytes()) {
        Some(b"SubscriptionValidation") => match listen::validation_code(&body) {
            Ok(code) => HttpResponse::Ok().json(serde_json::json!({ "validationResponse": code })),
            Err(error) => HttpResponse::BadRequest().body(format!("not a validation event: {error}")),
        },
        Some(b"SubscriptionDeletion") => HttpResponse::Ok().finish(),
        Some(_) | None => {
            with(&account, |ledger| ledger.arrived(*subscription, &body));
            HttpResponse::Ok().finish()
        }
    }
}
