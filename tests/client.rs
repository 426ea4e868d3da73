//! Resource names and tables of the commands.

use gridhook::cli::{client::ResourceName, output::TextTable};

const SCOPE: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid";

#[test]
fn a_resource_has_a_short_and_a_full_name() {
    let whole = "/subscriptions/a/resourceGroups/b/providers/Microsoft.EventGrid/topics/orders";
    let table = [
        ("orders", format!("{SCOPE}/topics/orders")),
        ("topics/orders", format!("{SCOPE}/topics/orders")),
        ("domains/shop", format!("{SCOPE}/domains/shop")),
        (
            "domains/shop/topics/eu",
            format!("{SCOPE}/domains/shop/topics/eu"),
        ),
        (
            "namespaces/shop/topics/eu",
            format!("{SCOPE}/namespaces/shop/topics/eu"),
        ),
        (whole, whole.to_owned()),
        ("a name?", format!("{SCOPE}/topics/a%20name%3F")),
    ];
    for (named, path) in table {
        let resource: ResourceName = named.parse().expect("a resource");
        assert_eq!(resource.path(""), path, "{named}");
        assert_eq!(
            resource.subscription_path("b/c", "/status"),
            format!("{path}/eventSubscriptions/b%2Fc/status")
        );
    }
}

#[test]
fn a_wrong_resource_name_lists_the_allowed_forms() {
    for named in ["", "/", "a/b", "domains/shop/eu", "subscriptions/a"] {
        let error = named.parse::<ResourceName>().expect_err(named);
        assert!(
            error.to_string().contains("domains/NAME/topics/NAME"),
            "{error}"
        );
    }
}

#[test]
fn a_table_has_columns_as_wide_as_their_widest_cell() {
    let mut table = TextTable::new(["NAME", "N", ""]);
    table.add_row(["a".to_owned(), "10000".to_owned(), "x".to_owned()]);
    table.add_row(["größer".to_owned(), "2".to_owned(), String::new()]);
    assert_eq!(table.to_string(), "NAME    N\na       10000  x\ngrößer  2");
}
