//! `gridhook listen`: a test webhook that prints each event and can simulate a failing endpoint.
//!
//! Validation handshakes always succeed, because a subscription must exist before its endpoint can
//! fail. Events are not stored; redirect the output for that.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::Server,
    http::{Method, StatusCode, header},
    web,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::{
    format::{count_with_noun, text_or_dash},
    output::{CommandError, OutputArgs},
    print::{self, PipeState},
    value::{ValueError, parse_address, parse_duration, parse_seconds, whole_number},
};
use gridhook_clock::Clock;

#[derive(Clone, Debug, clap::Args)]
pub struct Listen {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090", value_parser = parse_address)]
    listen: SocketAddr,
    /// Port to listen on at 127.0.0.1; 0 chooses a free port
    #[arg(long, value_parser = whole_number::<u16>(0..=65_535), conflicts_with = "listen")]
    port: Option<u16>,
    /// Respond to events with this status [default: 200, or 503 with --fail-first]
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<StatusCode>,
    /// Delay before each response
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    delay: Duration,
    /// Fail the first N requests, then respond 200
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0..))]
    fail_first: Option<u64>,
    /// Add a Retry-After header to every failure, in whole seconds, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    retry_after: Option<u64>,
    /// Print a count once per second instead of each event
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why the webhook cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}")]
pub struct ListenError {
    address: SocketAddr,
    error: io::Error,
}

impl CommandError for ListenError {}

/// 64 MiB, above the size of every request of Event Grid.
const BODY_BYTES_MAX: usize = 64 << 20;

struct ListenEndpoint {
    flags: Listen,
    clock: Clock,
    requests: AtomicU64,
    events: AtomicU64,
    /// The number of events at the last report.
    reported: AtomicU64,
    /// Notified when standard output is closed.
    closed: Notify,
}

impl Listen {
    /// Listens until a signal arrives or standard output is closed, for example by `| head`.
    pub async fn run(self, clock: Clock) -> Result<(), ListenError> {
        let address = self.listen_address();
        let listen_error = |error| ListenError { address, error };
        let endpoint = web::Data::new(ListenEndpoint {
            flags: self,
            clock,
            requests: 0.into(),
            events: 0.into(),
            reported: 0.into(),
            closed: Notify::new(),
        });
        let server = ListenEndpoint::bind_server(endpoint.clone()).map_err(listen_error)?;
        if endpoint.flags.quiet {
            actix_rt::spawn(print_counts(endpoint.clone()));
        }
        tokio::select! {
            ended = server => ended.map_err(listen_error)?,
            () = endpoint.closed.notified() => return Ok(()),
        }
        if endpoint.flags.quiet {
            endpoint.report_received();
        }
        Ok(())
    }

    fn listen_address(&self) -> SocketAddr {
        self.port
            .map_or(self.listen, |port| (Ipv4Addr::LOCALHOST, port).into())
    }

    /// The response status of a request, by its number from 0.
    fn response_status(&self, number: u64) -> StatusCode {
        match self.fail_first {
            Some(first) if number < first => self.status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            Some(_) => StatusCode::OK,
            None => self.status.unwrap_or(StatusCode::OK),
        }
    }
}

impl ListenEndpoint {
    fn bind_server(this: web::Data<Self>) -> io::Result<Server> {
        let address = this.flags.listen_address();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(this.clone())
                .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
                .default_service(web::to(receive_request))
        });
        // One worker keeps the order of the printed lines.
        let server = server.workers(1).shutdown_timeout(1).bind(address)?;
        for address in server.addrs() {
            print::print_note(&format!("listening on http://{address}/"));
        }
        Ok(server.run())
    }

    /// Prints the number of events since the last report, if there are any.
    fn report_received(&self) {
        let [events, requests] =
            [&self.events, &self.requests].map(|counter| counter.load(Ordering::Relaxed));
        let new = events - self.reported.swap(events, Ordering::Relaxed);
        if new == 0 {
            return;
        }
        let time = self.clock.wall_time();
        let new = count_with_noun(new, "event");
        let requests = count_with_noun(requests, "request");
        self.print_line(&format!("{time} {new} ({events} in total, in {requests})"));
    }

    /// Prints a line. Ends the program if standard output is closed.
    fn print_line(&self, line: &str) {
        match print::print_lines(line) {
            Ok(PipeState::Open) => {}
            Ok(PipeState::Closed) => self.closed.notify_one(),
            Err(error) => {
                print::print_note(&format!("gridhook: {}", print::format_error(&error.into())));
                self.closed.notify_one();
            }
        }
    }

    fn print_events(&self, request: &HttpRequest, status: StatusCode, events: &[&RawValue]) {
        let time = self.clock.wall_time();
        let value = |name| request.headers().get(name)?.to_str().ok();
        let count = value("aeg-delivery-count").unwrap_or("-");
        let subscription = value("aeg-subscription-name").unwrap_or("-");
        for event in events {
            let line = ReceivedLine {
                time: time.to_string(),
                status: status.as_u16(),
                subscription,
                delivery_count: count.parse().ok(),
                event,
            };
            let text = || format_received(&line, count);
            let json = || print::json_line(&line);
            self.print_line(&self.flags.output.format_line(json, text));
        }
    }
}

fn format_received(line: &ReceivedLine<'_>, count: &str) -> String {
    let ReceivedLine { time, status, .. } = line;
    let event: ReceivedEvent = serde_json::from_str(line.event.get()).unwrap_or_default();
    let [event_type, subject, id, count] =
        [&event.event_type, &event.subject, &event.id, count].map(text_or_dash);
    format!("{time} {status} {event_type} subject={subject} id={id} delivery-count={count}")
}

/// A line of JSON. The event is as it was received, with its own digits and order of keys.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReceivedLine<'a> {
    time: String,
    status: u16,
    subscription: &'a str,
    delivery_count: Option<u32>,
    event: &'a RawValue,
}

/// The printed properties of an event, in either schema.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReceivedEvent {
    id: String,
    #[serde(rename = "eventType", alias = "type")]
    event_type: String,
    subject: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValidationEvent {
    data: ValidationData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValidationData {
    validation_code: String,
}

async fn receive_request(
    request: HttpRequest,
    body: web::Bytes,
    endpoint: web::Data<ListenEndpoint>,
) -> HttpResponse {
    if request.method() == Method::OPTIONS {
        return confirm_handshake(&request);
    }
    if request.method() != Method::POST {
        return HttpResponse::MethodNotAllowed()
            .insert_header((header::ALLOW, "OPTIONS, POST"))
            .finish();
    }
    match request
        .headers()
        .get("aeg-event-type")
        .map(header::HeaderValue::as_bytes)
    {
        Some(b"SubscriptionValidation") => return validate_endpoint(&body),
        Some(b"SubscriptionDeletion") => {
            let name = request
                .headers()
                .get("aeg-subscription-name")
                .map_or("-".to_owned(), header_text);
            print::print_note(&format!("subscription {name} was deleted"));
            return HttpResponse::Ok().finish();
        }
        Some(_) | None => {}
    }
    let Ok(events) = parse_events(&body) else {
        return HttpResponse::BadRequest().body("the body is not JSON");
    };

    let ListenEndpoint {
        flags,
        requests,
        events: event_count,
        ..
    } = &**endpoint;
    let status = flags.response_status(requests.fetch_add(1, Ordering::Relaxed));
    event_count.fetch_add(events.len() as u64, Ordering::Relaxed);
    if !flags.delay.is_zero() {
        actix_rt::time::sleep(flags.delay).await;
    }
    if !flags.quiet {
        endpoint.print_events(&request, status, &events);
    }
    let mut response = HttpResponse::build(status);
    if let Some(seconds) = flags.retry_after.filter(|_| !status.is_success()) {
        response.insert_header((header::RETRY_AFTER, seconds));
    }
    response.finish()
}

/// The validation handshake of CloudEvents: allows every origin.
fn confirm_handshake(request: &HttpRequest) -> HttpResponse {
    let origin = request.headers().get("WebHook-Request-Origin");
    print::print_note(&format!(
        "validation handshake: allowed origin {}",
        origin.map_or("-".into(), header_text)
    ));
    let mut response = HttpResponse::Ok();
    if let Some(origin) = origin {
        response.insert_header(("WebHook-Allowed-Origin", origin.clone()));
    }
    response
        .insert_header(("WebHook-Allowed-Rate", "*"))
        .insert_header((header::ALLOW, "OPTIONS, POST"))
        .finish()
}

fn header_text(value: &header::HeaderValue) -> String {
    text_or_dash(&String::from_utf8_lossy(value.as_bytes()))
}

/// The validation handshake of the Event Grid schema: returns the code.
fn validate_endpoint(body: &[u8]) -> HttpResponse {
    match validation_code(body) {
        Ok(code) => {
            print::print_note(&format!(
                "validation handshake: returned code {}",
                text_or_dash(&code)
            ));
            HttpResponse::Ok().json(serde_json::json!({ "validationResponse": code }))
        }
        Err(error) => HttpResponse::BadRequest().body(format!("not a validation event: {error}")),
    }
}

/// The validation code in a validation event.
pub(super) fn validation_code(body: &[u8]) -> serde_json::Result<String> {
    let [
        ValidationEvent {
            data: ValidationData { validation_code },
        },
    ] = serde_json::from_slice(body)?;
    Ok(validation_code)
}

/// The events of a body: an array or a single event.
fn parse_events(body: &[u8]) -> serde_json::Result<Vec<&RawValue>> {
    match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body),
        Some(_) | None => Ok(vec![serde_json::from_slice(body)?]),
    }
}

/// Prints the count once per second.
async fn print_counts(endpoint: web::Data<ListenEndpoint>) {
    let mut ticks = actix_rt::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        endpoint.report_received();
    }
}

fn parse_status(text: &str) -> Result<StatusCode, ValueError> {
    let read = text.parse().ok().filter(|code| (200..=599).contains(code));
    let code = read.and_then(|code| StatusCode::from_u16(code).ok());
    code.ok_or(ValueError::Status)
}
