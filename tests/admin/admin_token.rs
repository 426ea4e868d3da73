//! The admin token and the file it is kept in.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use gridhook::admin::admin_token::{AdminToken, TokenOrigin, load_or_create, token_path};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder can be made")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("it can be written");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode can be set");
}

#[test]
fn a_token_is_made_at_the_first_start_and_used_again() {
    let folder = folder();
    let made = load_or_create(None, folder.path()).expect("it is made");
    assert_eq!(made.origin(), TokenOrigin::Generated);
    let path = token_path(folder.path());
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(&path).expect("it is text");
    assert_eq!(
        text.trim().len(),
        43,
        "32 bytes in base64url without padding"
    );
    assert!(made.matches(text.trim()));
    let kept = load_or_create(Some(""), folder.path()).expect("it is read");
    assert_eq!(kept.origin(), TokenOrigin::Stored);
    assert!(kept.matches(text.trim()));
    assert_eq!(
        fs::read_dir(folder.path()).expect("a folder").count(),
        1,
        "nothing else is left there"
    );
}

#[test]
fn two_servers_have_two_tokens() {
    let one = folder();
    let other = folder();
    load_or_create(None, one.path()).expect("it is made");
    let other = load_or_create(None, other.path()).expect("it is made");
    assert!(
        !other.matches(
            fs::read_to_string(token_path(one.path()))
                .expect("it is text")
                .trim()
        )
    );
}

#[test]
fn a_configured_token_goes_first_and_leaves_no_file() {
    let folder = folder();
    let token = load_or_create(Some("swordfish"), folder.path()).expect("it is taken");
    assert_eq!(token.origin(), TokenOrigin::Configured);
    assert!(token.matches("swordfish"));
    for other in ["swordfisH", "swordfis", "swordfish ", ""] {
        assert!(!token.matches(other), "{other:?}");
    }
    assert!(!token_path(folder.path()).exists());
}

#[test]
fn a_token_is_never_shown() {
    let token = load_or_create(Some("swordfish"), Path::new("/nowhere")).expect("it is taken");
    assert_eq!(
        format!("{token:?}"),
        "AdminToken { text: \"[hidden]\", origin: Configured }"
    );
}

#[test]
fn a_token_that_no_header_can_carry_is_refused() {
    for text in ["two words", "tab\t", "größe", "\u{7}"] {
        let error = load_or_create(Some(text), Path::new("/nowhere")).expect_err("it is refused");
        assert!(
            error.to_string().contains("expected visible ASCII"),
            "{error}"
        );
    }
    let folder = folder();
    write(&token_path(folder.path()), " \n", 0o600);
    let error = load_or_create(None, folder.path()).expect_err("an empty file is no token");
    assert!(
        error
            .to_string()
            .contains("admin-token: the admin token is empty"),
        "{error}"
    );
    let error = AdminToken::from_setting("metrics.token", "two words").expect_err("a space");
    assert!(
        error.to_string().starts_with("metrics.token is "),
        "{error}"
    );
}

#[test]
fn a_file_that_others_can_read_is_narrowed() {
    let folder = folder();
    let path = token_path(folder.path());
    write(&path, "swordfish\n", 0o644);
    assert!(
        load_or_create(None, folder.path())
            .expect("it is read")
            .matches("swordfish")
    );
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let folder = folder();
    let path = token_path(folder.path());
    for wrong in [0o620, 0o602, 0o666] {
        write(&path, "swordfish\n", wrong);
        let error = load_or_create(None, folder.path())
            .expect_err("it is refused")
            .to_string();
        assert!(
            error.contains(&format!("others may write it (mode {wrong:04o})")),
            "{error}"
        );
        assert!(!error.contains("swordfish"), "{error}");
        assert_eq!(mode(&path), wrong, "it is left as it was");
    }
}

#[test]
fn a_draft_that_a_crash_left_behind_does_no_harm() {
    let folder = folder();
    write(&folder.path().join("admin-token.new"), "half", 0o600);
    assert_eq!(
        load_or_create(None, folder.path())
            .expect("it is made")
            .origin(),
        TokenOrigin::Generated
    );
    assert!(!folder.path().join("admin-token.new").exists());
}
