//! The dashboard: a page in the operators' browser that uses the operators' API.
//!
//! - [`assets`]: the files of the page; its sources are in `page/`;
//! - [`session`]: the cookie and the header of signed-in browsers;
//! - [`shorten_json`]: responses of the API that the page has already are not sent again, and
//!   others are compressed.
//!
//! The files, and the chapters of the manual beside them, are public: they have no data of the
//! server. They are served with a content security policy that allows nothing but the page's own
//! scripts, styles and requests.

pub mod assets;
mod json_response;
pub mod session;

use std::{borrow::Cow, future::ready, io::Write, sync::LazyLock};

use actix_web::{
    HttpRequest, HttpResponse, guard,
    http::header::{
        self, AcceptEncoding, CacheControl, CacheDirective, ContentEncoding, ETag, Encoding,
        EntityTag, Header, IfNoneMatch,
    },
    middleware::DefaultHeaders,
    web::{self, Bytes},
};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

pub use self::json_response::shorten_json;
use self::{assets::FILES, session::ServesPage};
use gridhook_manual::{CHAPTERS, Chapter};

/// The path of the page on the operators' listener.
pub const PATH: &str = "/ui/";

/// The file that `/ui/` serves.
const INDEX: &str = "index.html";

/// The response headers of every file.
pub const SECURITY_HEADERS: [(&str, &str); 5] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
];

struct ServedFile {
    path: Cow<'static, str>,
    content_type: &'static str,
    tag: EntityTag,
    content: Bytes,
    /// The content compressed with gzip, if that is smaller.
    gzip: Option<Bytes>,
}

/// The files, hashed and compressed at the first request.
static SERVED: LazyLock<Vec<ServedFile>> = LazyLock::new(|| {
    let files = FILES
        .iter()
        .map(|(path, content)| ServedFile::new(Cow::Borrowed(path), served_content(path, content)));
    files
        .chain(CHAPTERS.iter().map(ServedFile::from_chapter))
        .collect()
});

impl ServedFile {
    fn from_chapter(chapter: &Chapter) -> Self {
        Self::new(
            Cow::Owned(format!("manual/{}.md", chapter.name)),
            Cow::Borrowed(chapter.markdown.as_bytes()),
        )
    }

    fn new(path: Cow<'static, str>, content: Cow<'static, [u8]>) -> Self {
        let digest = format!("{:x}", Sha256::digest(&content));
        let gzip =
            compress(&content, Compression::best()).filter(|gzip| gzip.len() < content.len());
        Self {
            content_type: content_type(&path),
            path,
            // Weak, because both encodings have it.
            tag: EntityTag::new_weak(digest[..32].to_owned()),
            content: match content {
                Cow::Borrowed(content) => Bytes::from_static(content),
                Cow::Owned(content) => Bytes::from(content),
            },
            gzip: gzip.map(Bytes::from),
        }
    }

    fn build_response(&self, request: &HttpRequest) -> HttpResponse {
        let is_known = match IfNoneMatch::parse(request) {
            Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|tag| tag.weak_eq(&self.tag)),
            Ok(IfNoneMatch::Any) | Err(_) => false,
        };
        let mut response = if is_known {
            HttpResponse::NotModified()
        } else {
            HttpResponse::Ok()
        };
        response.insert_header(ETag(self.tag.clone()));
        // Each use of a file is checked, because its name stays the same in the next version of the
        // server.
        response.insert_header(CacheControl(vec![CacheDirective::NoCache]));
        response.insert_header((header::VARY, "Accept-Encoding"));
        if is_known {
            return response.finish();
        }
        response.insert_header((header::CONTENT_TYPE, self.content_type));
        match &self.gzip {
            Some(gzip) if accepts_gzip(request) => response
                .insert_header(ContentEncoding::Gzip)
                .body(gzip.clone()),
            Some(_) | None => response.body(self.content.clone()),
        }
    }
}

/// A file as it is served: a script of the page without indentation, without the comments that have
/// lines of their own and without the types of expressions, which would be more than eight per cent
/// of the transfer. `content` is the file in the source.
pub fn served_content(path: &str, content: &'static [u8]) -> Cow<'static, [u8]> {
    let script = std::str::from_utf8(content)
        .ok()
        .filter(|_| path.starts_with("js/"));
    let Some(script) = script else {
        return Cow::Borrowed(content);
    };
    let mut is_comment = false;
    let lines = script.lines().filter(|line| {
        let line = line.trim();
        // Code may follow the type of an expression.
        is_comment |= line.starts_with("/*") && (line.ends_with("*/") || !line.contains("*/"));
        let is_kept = !is_comment && !line.starts_with("//");
        is_comment &= !line.ends_with("*/");
        is_kept
    });
    let lines = lines.map(|line| without_types(line.trim_start()) + "\n");
    Cow::Owned(lines.collect::<String>().into_bytes())
}

/// A line of a script without the types of its expressions.
fn without_types(line: &str) -> String {
    let mut parts = line.split("/** @type ");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once("*/").unwrap_or_default();
        code.push_str(rest.strip_prefix(' ').unwrap_or(rest));
    }
    code
}

fn compress(content: &[u8], level: Compression) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}

fn accepts_gzip(request: &HttpRequest) -> bool {
    let accept_encoding = AcceptEncoding::parse(request).ok();
    let chosen = accept_encoding
        .and_then(|accepted| accepted.negotiate([Encoding::gzip(), Encoding::identity()].iter()));
    chosen == Some(Encoding::gzip())
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "text/plain; charset=utf-8",
    }
}

/// Adds the page to the operators' listener: the files below `/ui/`, and a redirect from `/` and
/// `/ui`.
pub fn configure(cfg: &mut web::ServiceConfig) {
    cfg.app_data(ServesPage);
    let read = || web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    // Relative, so that the page works below a proxy's path prefix.
    for (path, to) in [("/", "ui/"), ("/ui", "ui/")] {
        let redirect = move || ready(redirect_to(to));
        cfg.service(
            web::resource(path)
                .route(read().to(redirect))
                .default_service(web::to(refuse_method))
                .wrap(security_headers()),
        );
    }
    cfg.service(
        web::resource(format!("{PATH}{{path:.*}}"))
            .route(read().to(serve_file))
            .default_service(web::to(refuse_method))
            .wrap(security_headers()),
    );
}

fn redirect_to(location: &'static str) -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((header::LOCATION, location))
        .finish()
}

fn security_headers() -> DefaultHeaders {
    SECURITY_HEADERS
        .into_iter()
        .fold(DefaultHeaders::new(), |headers, header| headers.add(header))
}

async fn refuse_method() -> HttpResponse {
    HttpResponse::MethodNotAllowed()
        .insert_header((header::ALLOW, "GET, HEAD"))
        .finish()
}

async fn serve_file(request: HttpRequest, path: web::Path<String>) -> HttpResponse {
    let path = if path.is_empty() {
        INDEX
    } else {
        path.as_str()
    };
    match SERVED.iter().find(|file| file.path == path) {
        Some(file) => file.build_response(&request),
        None => HttpResponse::NotFound()
            .content_type("text/plain; charset=utf-8")
            .body("no such file"),
    }
}
