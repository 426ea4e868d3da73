//! Text from outside, made safe to print: which characters are escaped, and that JSON stays the
//! same JSON.

use expect_test::expect;
use gridhook::escape;
use proptest::prelude::*;

/// The control characters of Unicode, and those that reorder text or end a line, from its tables.
fn is_listed(c: char) -> bool {
    let ranges = [
        ('\0', '\u{1f}'),
        ('\u{7f}', '\u{9f}'),
        ('\u{61c}', '\u{61c}'),
        ('\u{200e}', '\u{200f}'),
        ('\u{2028}', '\u{202e}'),
        ('\u{2066}', '\u{206f}'),
        ('\u{fff9}', '\u{fffb}'),
    ];
    ranges.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

#[test]
fn every_character_is_shown_as_it_is_or_escaped() {
    for c in '\0'..=char::MAX {
        let one = c.to_string();
        assert_eq!(escape::escape_text(&one) != one, is_listed(c), "{c:?}");
        for escaped in [
            escape::escape_text(&one),
            escape::escape_lines(&one),
            escape::escape_json(&one),
            escape::json_line(&one),
        ] {
            assert!(
                escaped.chars().all(|c| c == '\n' || !is_listed(c)),
                "{c:?}: {escaped:?}"
            );
        }
    }
}

#[test]
fn only_lines_and_json_over_several_lines_keep_newlines() {
    let given = "a\n\tb\u{9b}\u{202e}\u{7f}";
    expect![[r"a\n\tb\u{9b}\u{202e}\u{7f}"]].assert_eq(&escape::escape_text(given));
    assert_eq!(
        escape::escape_lines(given),
        "a\n\\tb\\u{9b}\\u{202e}\\u{7f}"
    );
    assert_eq!(escape::escape_json(given), "a\n b\\u009b\\u202e\\u007f");
    assert_eq!(escape::json_line(given), "a  b\\u009b\\u202e\\u007f");
    assert!(
        matches!(
            escape::escape_text("schön 日本 👩‍🚀"),
            std::borrow::Cow::Borrowed(_)
        ),
        "ordinary text is not copied"
    );
}

proptest! {
    #[test]
    fn json_means_the_same_escaped(value in any::<Vec<(String, String)>>(), more in "[\\x00-\\x9f\u{2028}-\u{202e}]*") {
        let value = serde_json::json!({"pairs": value, more: "x"});
        let pretty = serde_json::to_string_pretty(&value).expect("JSON").replace('\n', "\r\n\t");
        for escaped in [escape::escape_json(&pretty), escape::json_line(&pretty)] {
            let read: serde_json::Value = serde_json::from_str(&escaped).expect("JSON");
            prop_assert_eq!(&read, &value);
        }
        prop_assert!(!escape::json_line(&pretty).contains('\n'));
    }
}
