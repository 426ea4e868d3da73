//! The webhook that the topic's subscriptions deliver to: it takes everything, and notes it.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, web};

use super::ledger::DeliveryAccount;
use crate::cli::listen;

/// 64 MiB: more than any request that is asked for has.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The account that all of the run share.
pub(super) type Account = Arc<Mutex<DeliveryAccount>>;

/// With the account open.
pub(super) fn with<T>(account: &Account, act: impl FnOnce(&mut DeliveryAccount) -> T) -> T {
    act(&mut account.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Listens from now on; says where, and how it is stopped.
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
    // It ends when its handle says so.
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
            Err(error) => HttpResponse::BadRequest().body(format!("no validation event: {error}")),
        },
        Some(b"SubscriptionDeletion") => HttpResponse::Ok().finish(),
        Some(_) | None => {
            with(&account, |ledger| ledger.arrived(*subscription, &body));
            HttpResponse::Ok().finish()
        }
    }
}
