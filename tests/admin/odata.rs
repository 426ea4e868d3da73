//! The parser of `$filter`.

use expect_test::expect;
use gridhook::admin::model::odata::NameFilter;

#[test]
fn a_filter_asks_for_names() {
    let names = ["orders", "Orders-2", "bills", "it's"];
    let table = [
        ("contains(name, 'orders')", "orders Orders-2"),
        ("CONTAINS(namE,'ORD') and name ne 'orders-2'", "orders"),
        ("name eq 'BILLS'", "bills"),
        ("name eq 'it''s'", "it's"),
        ("name ne 'bills'", "orders Orders-2 it's"),
        ("not contains(name, 'r')", "bills it's"),
        ("name eq 'bills' or name eq 'orders'", "orders bills"),
        (
            "name eq 'bills' or contains(name, 'o') and name ne 'orders'",
            "Orders-2 bills",
        ),
        (
            "(name eq 'bills' or contains(name, 'o')) and name ne 'orders'",
            "Orders-2 bills",
        ),
        ("not (name eq 'bills' or name eq 'orders')", "Orders-2 it's"),
        ("contains(name, '')", "orders Orders-2 bills it's"),
    ];
    for (filter, wanted) in table {
        let filter_read =
            NameFilter::read(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
        let had: Vec<_> = names
            .into_iter()
            .filter(|name| filter_read.matches_name(name))
            .collect();
        assert_eq!(had.join(" "), wanted, "{filter}");
    }
}

#[test]
fn an_invalid_filter_is_refused_with_what_is_allowed() {
    let many = vec!["name eq 'a'"; 101].join(" or ");
    let deep = format!("{}name eq 'a'{}", "(".repeat(40), ")".repeat(40));
    let filters = [
        "",
        "name",
        "name eq",
        "name eq 1",
        "name gt 'a'",
        "location eq 'westus'",
        "contains(location, 'a')",
        "contains(name 'a')",
        "name eq 'a' name",
        "name eq 'a' and",
        "(name eq 'a'",
        "name eq 'a",
        deep.as_str(),
        many.as_str(),
    ];
    let refusals: Vec<_> = filters
        .iter()
        .map(|filter| NameFilter::read(filter).expect_err(filter).to_string())
        .collect();
    let short = refusals.join("\n").replace(
        "; expected contains(name, 'text'), name eq 'text' or name ne 'text', joined by and, \
         or, not and parentheses",
        "; expected …",
    );
    expect![[r#"
        $filter breaks off; expected …
        $filter cannot be read at "name"; expected …
        $filter breaks off; expected …
        $filter cannot be read at "1"; expected …
        $filter cannot be read at "name"; expected …
        $filter cannot be read at "location"; expected …
        $filter cannot be read at "location"; expected …
        $filter cannot be read at 'a'; expected …
        $filter cannot be read at "name"; expected …
        $filter breaks off; expected …
        $filter breaks off; expected …
        $filter has a text without its closing quote; expected …
        $filter has more than 32 levels
        $filter has more than 100 comparisons"#]]
    .assert_eq(&short);
}
