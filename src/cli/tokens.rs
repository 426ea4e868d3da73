//! `gridhook tokens`: manages named tokens.

use clap::Subcommand;
use serde_json::json;

use super::{
    client::{ClientArgs, ClientResult, Precondition, encode_segment},
    format::{self, optional_text},
    output::TextTable,
    prompt,
    time::parse_future,
    value::ValueError,
};
use gridhook_api::token::{Token, TokenBody, TokenList, TokenRole};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook tokens create shop --role publish --scope topics/orders --expires 90d
  gridhook tokens create auditor --role read
  gridhook tokens create shop-team --role operate --scope labels/team=shop
  gridhook tokens create shop-portal --role portal --scope labels/team=shop --expires 8h
  gridhook tokens list
  gridhook tokens revoke shop --yes")]
pub enum Tokens {
    /// Create a token and print it once
    Create {
        /// Name of the token
        name: String,
        /// Roles: publish, consume, portal, read, operate, admin
        #[arg(long, value_name = "ROLE", required = true, value_delimiter = ',', value_parser = parse_role)]
        role: Vec<TokenRole>,
        /// Limit the token to resources, such as topics/orders, domains/shop/topics/* or
        /// labels/team=shop [default: all]
        #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
        scope: Vec<String>,
        /// Time at which the token ends, such as 90d or 2030-01-31 [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse_future)]
        expires: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// List the tokens, with the times of their last uses
    List(ClientArgs),
    /// Revoke a token at once, and end its streams and sessions
    Revoke {
        /// Name of the token
        name: String,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
}

fn parse_role(text: &str) -> Result<TokenRole, ValueError> {
    text.parse().map_err(|_| ValueError::Role)
}

impl Tokens {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A flag cannot be used, or the request failed.
    pub async fn run(self) -> ClientResult {
        match self {
            Self::Create {
                name,
                role,
                scope,
                expires,
                client,
            } => {
                let body = TokenBody {
                    name,
                    roles: role.iter().map(|role| role.name().to_owned()).collect(),
                    scopes: scope,
                    expires,
                };
                client
                    .post_and_format("/tokens", &body, format_new_token)
                    .await
            }
            Self::List(client) => {
                let text = |tokens: &TokenList| format_table(&tokens.value);
                client.get_and_format("/tokens", text).await
            }
            Self::Revoke { name, yes, client } => {
                let server = client.server.build_client()?;
                prompt::ask_confirmation(
                    &format!("Revoke the token {name}? Its holders will be refused at once."),
                    yes,
                )?;
                let path = format!("/tokens/{}", encode_segment(&name));
                server.delete(&path, &Precondition::None).await?;
                Ok(client
                    .output
                    .format_value(&json!({"revoked": name}), |_| format!("revoked {name}")))
            }
        }
    }
}

fn format_new_token(token: &Token) -> String {
    let facts = [
        ("roles", format::join_texts(&token.roles)),
        ("scopes", format_scopes(token)),
        ("expires", optional_text(&token.expires)),
        ("token", optional_text(&token.token)),
        ("link", optional_text(&token.link)),
    ];
    let facts = format::format_facts(7, &facts);
    let name = format::text_or_dash(&token.name);
    format!("created {name}\n{facts}\nstore the token now; it is not shown again")
}

fn format_scopes(token: &Token) -> String {
    if token.scopes.is_empty() {
        "all".to_owned()
    } else {
        format::join_texts(&token.scopes)
    }
}

fn format_table(tokens: &[Token]) -> String {
    let mut table = TextTable::new([
        "NAME",
        "ROLES",
        "SCOPES",
        "EXPIRES",
        "LAST USED",
        "CREATED BY",
    ]);
    for token in tokens {
        table.add_row([
            format::text_or_dash(&token.name),
            format::join_texts(&token.roles),
            format_scopes(token),
            optional_text(&token.expires),
            optional_text(&token.last_used),
            format::text_or_dash(&token.created_by),
        ]);
    }
    table.to_string()
}
