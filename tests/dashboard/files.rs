//! The files of the page: the table matches the folder, and how the server serves them.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use gridhook::dashboard::{
    SECURITY_HEADERS,
    assets::{FILES, VENDORED},
    served_content,
};
use sha2::{Digest, Sha256};

use crate::support::{http::Client, server::Server};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard/page")
}

/// The files below `folder`, by their path in there.
fn files_below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_str().expect("text"));
        if entry.path().is_dir() {
            files_below(&entry.path(), &format!("{name}/"), found);
        } else {
            found.insert(name);
        }
    }
}

#[test]
fn the_table_has_every_file_of_the_folder_in_order() {
    let mut below = BTreeSet::new();
    files_below(&folder(), "", &mut below);
    let listed: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(
        listed,
        below.into_iter().collect::<Vec<_>>(),
        "FILES and src/dashboard/page"
    );
}

#[test]
fn third_party_files_are_as_their_makers_published_them_and_may_be_used() {
    let rules: toml::Table = include_str!("../../.deny.toml")
        .parse()
        .expect("the rules are TOML");
    let allowed = rules["licenses"]["allow"].as_array().expect("a list");
    let texts = FILES
        .iter()
        .find(|(path, _)| *path == "vendor/LICENSES.txt");
    let texts = texts
        .map(|(_, content)| String::from_utf8_lossy(content))
        .unwrap_or_default();
    let below = FILES
        .iter()
        .map(|(path, _)| *path)
        .filter(|path| path.starts_with("vendor/"));
    let below: Vec<_> = below
        .filter(|path| *path != "vendor/LICENSES.txt")
        .collect();
    assert_eq!(
        VENDORED.iter().map(|file| file.path).collect::<Vec<_>>(),
        below,
        "VENDORED and vendor/"
    );
    for file in VENDORED {
        let (_, content) = FILES
            .iter()
            .find(|(path, _)| *path == file.path)
            .expect("it was compared");
        assert_eq!(
            format!("{:x}", Sha256::digest(content)),
            file.sha256,
            "{}",
            file.path
        );
        assert!(
            allowed
                .iter()
                .any(|licence| licence.as_str() == Some(file.licence)),
            "{file:?}"
        );
        let heading = format!("{} {}", file.name, file.version);
        assert!(
            texts.contains(&heading),
            "vendor/LICENSES.txt has no licence of {heading}"
        );
    }
}

#[test]
fn the_page_is_served_with_its_headers_compressed_and_from_caches() {
    let server = Server::start(&[]);
    for path in FILES.iter().map(|(path, _)| *path).chain([""]) {
        let (of, content) = FILES
            .iter()
            .find(|(of, _)| *of == path || path.is_empty() && *of == "index.html")
            .expect("it");
        let content = served_content(of, content);
        let way = format!("/ui/{path}");
        let plain = server.request_without_token("GET", &way, &[]);
        assert_eq!(
            (plain.status, plain.body.as_slice()),
            (200, &*content),
            "{way}"
        );
        assert_eq!(plain.header("content-encoding"), None, "{way}");
        assert_eq!(
            (plain.header("cache-control"), plain.header("vary")),
            (Some("no-cache"), Some("Accept-Encoding"))
        );
        let kind = match path.rsplit('.').next().expect("a part") {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "html" | "" => "text/html; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "json" => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(plain.header("content-type"), Some(kind), "{way}");
        let small = server.request_without_token(
            "GET",
            &way,
            &[("accept-encoding", "br;q=1.0, gzip;q=0.8")],
        );
        if small.header("content-encoding") == Some("gzip") {
            let mut text = Vec::new();
            GzDecoder::new(small.body.as_slice())
                .read_to_end(&mut text)
                .expect("gzip");
            assert!(
                text == *content && small.body.len() < content.len(),
                "{way}"
            );
        } else {
            assert!(
                small.body == *content && content.len() < 1_000,
                "{way} is not compressed"
            );
        }
        let refused = server.request_without_token("GET", &way, &[("accept-encoding", "gzip;q=0")]);
        assert_eq!(refused.header("content-encoding"), None, "{way}");
        let tag = plain.header("etag").expect("a tag").to_owned();
        assert_eq!(small.header("etag"), Some(tag.as_str()));
        let known = server.request_without_token(
            "GET",
            &way,
            &[("if-none-match", &format!("\"other\", {tag}"))],
        );
        assert_eq!((known.status, known.body.len()), (304, 0), "{way}");
        assert_eq!(
            server
                .request_without_token("GET", &way, &[("if-none-match", "\"other\"")])
                .status,
            200,
            "{way}"
        );
        for response in [plain, small, known] {
            for (name, value) in SECURITY_HEADERS {
                assert_eq!(response.header(name), Some(value), "{way}: {name}");
            }
        }
    }
    for (way, status) in [
        ("/ui/none.js", 404),
        ("/ui/../Cargo.toml", 404),
        ("/ui/%2e%2e/index.html", 404),
    ] {
        let response = server.request_without_token("GET", way, &[]);
        assert_eq!(response.status, status, "{way}");
    }
    assert_eq!(
        server
            .request_without_token("GET", "/ui/none.js", &[])
            .header("x-content-type-options"),
        Some("nosniff")
    );
    let wrong = server.request_without_token("POST", "/ui/", &[]);
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, Some("GET, HEAD"))
    );
    for way in ["/", "/ui"] {
        let response = server.request_without_token("GET", way, &[]);
        // Relative: the browser is below the path prefix of a proxy, maybe.
        assert_eq!(
            (response.status, response.header("location")),
            (307, Some("ui/")),
            "{way}"
        );
    }
}

/// A line without the comments in it that begin with `@type`.
fn without_types(line: &str) -> String {
    let mut line = line.to_owned();
    while let Some(start) = line.find("/** @type ") {
        let end = line[start..].find("*/").expect("the end of a type") + start + 2;
        let end = if line[end..].starts_with(' ') {
            end + 1
        } else {
            end
        };
        line.replace_range(start..end, "");
    }
    line
}

#[test]
fn a_script_is_served_without_its_comments_and_types_and_with_all_else() {
    let mut removed = 0;
    for (path, content) in FILES {
        let source = String::from_utf8_lossy(content);
        let shown = served_content(path, content);
        let shown = String::from_utf8_lossy(&shown);
        let mut left = shown.lines();
        let mut next = left.next();
        for line in source.lines() {
            let code = if path.starts_with("js/") {
                without_types(line.trim_start())
            } else {
                line.to_owned()
            };
            removed += line.trim_start().len() - code.trim_start().len();
            let is_next = next == Some(&code);
            if is_next {
                next = left.next();
            } else {
                let is_comment = ["//", "/*", "* ", "*/"]
                    .iter()
                    .any(|begin| format!("{} ", line.trim()).starts_with(begin));
                assert!(
                    is_comment && path.starts_with("js/"),
                    "{path}: {line:?} is not served"
                );
                removed += line.len();
            }
        }
        assert_eq!(next, None, "{path} has more than its source");
    }
    assert!(removed > 5_000, "{removed} bytes of comments");
}

#[test]
fn the_page_is_at_the_operators_address_only_and_can_be_removed() {
    let mut server = Server::start(&[("SERVER__ADMIN_LISTEN", "127.0.0.1:0")]);
    let said = server.logs();
    let after = |text: &str| {
        said.split(text)
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .expect("an address")
            .to_owned()
    };
    let operators = after("the control plane is at ");
    assert_eq!(after("the dashboard is at "), format!("{operators}/ui/"));
    let at = operators
        .trim_start_matches("http://")
        .parse()
        .expect("an address");
    let ask = |way: &str| {
        Client::with_tls(at, None)
            .ask("GET", way, &[], b"")
            .expect("a response")
            .status
    };
    assert_eq!((ask("/"), ask("/ui/"), ask("/ui/session")), (307, 200, 401));
    for way in ["/", "/ui", "/ui/", "/ui/session"] {
        assert_eq!(
            server.request_without_token("GET", way, &[]).status,
            404,
            "{way} of the publishers' address"
        );
    }
    server.terminate();
    server.restart();
    assert_eq!(
        server.logs().matches("the dashboard is at ").count(),
        1,
        "only the first start prints the address"
    );

    let server = Server::start(&[("SERVER__DASHBOARD", "false")]);
    assert!(!server.logs().contains("the dashboard is at "));
    for way in ["/", "/ui", "/ui/"] {
        assert_eq!(
            server.request_without_token("GET", way, &[]).status,
            404,
            "{way}"
        );
    }
    assert_eq!(
        server
            .admin("POST", "/ui/session", &serde_json::Value::Null)
            .status,
        404
    );
}

#[test]
fn every_chapter_of_the_manual_is_served_and_listed() {
    let (_, help) = FILES
        .iter()
        .find(|(path, _)| *path == "js/views/help.js")
        .expect("the view");
    let help = String::from_utf8_lossy(help);
    let server = Server::start(&[]);
    for chapter in gridhook::manual::CHAPTERS {
        assert!(
            help.contains(&format!("'{}'", chapter.name)),
            "js/views/help.js lists {}",
            chapter.name
        );
        let response =
            server.request_without_token("GET", &format!("/ui/manual/{}.md", chapter.name), &[]);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, chapter.markdown),
            "{}",
            chapter.name
        );
    }
}
