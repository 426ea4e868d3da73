//! `gridhook man`: a page for the program and one for each of its commands, made of the same words as `--help`.

use std::{fs, io, path::PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use super::Cli;

/// The flags of `man`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example: gridhook man /usr/local/share/man/man1 && man gridhook-serve")]
pub struct Manual {
    /// Where the pages are written; the folder is made
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// What the program's own page says beside its flags, and `gridhook help` on its own: heading, and names with what they are.
pub(super) const SECTIONS: [(&str, &[(&str, &str)]); 6] = [
    (
        "EXIT STATUS",
        &[
            ("0", "All went well."),
            ("1", "It did not: what was asked is not so, was refused, or could not be done. Standard error says why."),
            ("2", "The flags cannot be read."),
            (
                "74",
                "serve: the store failed, and nothing more may be written. The next start has all that was acknowledged.",
            ),
            ("130", "serve: a second signal ended it at once."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("GRIDHOOK_SECTION__KEY", "The setting section.key, over the file: GRIDHOOK_SERVER__LISTEN=0.0.0.0:8080."),
            (
                "GRIDHOOK_SERVER",
                "The server that commands ask, where neither --server nor --context names one. Without it: the context in \
                 use, then the address in GRIDHOOK_SERVER__LISTEN, then http://127.0.0.1:8080.",
            ),
            ("GRIDHOOK_TOKEN", "The operator's token, where --token-file names none."),
            ("GRIDHOOK_KEY", "The access key that publish shows, where --key-file names none."),
            ("NOTIFY_SOCKET, WATCHDOG_USEC", "Where a service manager hears of serve, and how often it wants to."),
        ],
    ),
    (
        "FILES",
        &[
            ("/etc/gridhook/gridhook.toml", "The settings, where the package was installed."),
            ("/usr/share/doc/gridhook/gridhook.toml", "Every setting with its default, and why it is so."),
            ("/var/lib/gridhook", "The store, the admin token and the dead letters, where the package was installed."),
            ("~/.config/gridhook/contexts.toml", "The contexts: servers by name (gridhook context)."),
        ],
    ),
    (
        "NAMES",
        &[
            ("orders", "The topic orders."),
            ("domains/shop", "The domain shop."),
            ("domains/shop/topics/europe", "The topic europe of that domain."),
            ("namespaces/plant", "The namespace plant. It has topics, and no event subscriptions of its own."),
            ("namespaces/plant/topics/heat", "The topic heat of that namespace."),
            (
                "/subscriptions/ID/resourceGroups/NAME/...",
                "A whole resource id: needed outside of the Azure subscription local and its resource group dev.",
            ),
        ],
    ),
    (
        "TIMES",
        &[
            ("2026-01-31T12:00:00Z", "A point in time (RFC 3339)."),
            ("2026-01-31", "The beginning of this day, in UTC."),
            ("90m, 2h, 7d", "So long ago (--from, --to, --starts-from), or from now (--expires)."),
        ],
    ),
    (
        "AZURE CLIENTS",
        &[
            (
                "azure-mgmt-eventgrid",
                "EventGridManagementClient(credential, \"local\", base_url=URL), where the credential returns the admin \
                 token, or a token of the issuer (auth.issuer, auth.admin_role). Other management SDKs take an address \
                 and a credential likewise. Over http, add enforce_https=False to each call.",
            ),
            (
                "az",
                "Serve https, and set auth.issuer and auth.admin_role: az reads the claims of its token, and the admin \
                 token has none. Register the cloud by hand, since az cloud register asks for /metadata/endpoints, which \
                 the server does not have: in ~/.azure/clouds.config, give a section [gridhook] the keys \
                 endpoint_resource_manager, endpoint_management, endpoint_active_directory, \
                 endpoint_active_directory_resource_id and endpoint_active_directory_graph_resource_id, each with the \
                 address of the server. Create one topic with gridhook, so that there is an Azure subscription to list. \
                 Then run: az cloud set -n gridhook; az login --identity; az eventgrid topic list. IDENTITY_ENDPOINT and \
                 IDENTITY_HEADER name the service that gives az its token, REQUESTS_CA_BUNDLE the certificate of the \
                 server.",
            ),
            (
                "terraform",
                "The provider azurerm needs Azure's metadata service and sign-in, and does not work. Use gridhook apply, \
                 which takes templates of Azure Resource Manager too.",
            ),
        ],
    ),
];

impl Manual {
    /// Writes the pages: how many.
    pub fn run(&self) -> io::Result<usize> {
        fs::create_dir_all(&self.folder)?;
        let mut root = Cli::command();
        // From here on each command has the name of its page.
        root.build();
        let mut waiting = vec![root];
        let mut written = 0;
        while let Some(command) = waiting.pop() {
            waiting.extend(command.get_subcommands().filter(|child| !child.is_hide_set()).cloned());
            self.write(command)?;
            written += 1;
        }
        Ok(written)
    }

    fn write(&self, command: Command) -> io::Result<()> {
        let is_root = command.get_name() == "gridhook";
        let man = Man::new(command);
        let mut text = Vec::new();
        man.render(&mut text)?;
        for (heading, entries) in SECTIONS.into_iter().filter(|_| is_root) {
            let mut roff = Roff::new();
            roff.control("SH", [heading]);
            for (term, words) in entries {
                roff.control("TP", []).text([bold(*term)]).text([roman(*words)]);
            }
            roff.to_writer(&mut text)?;
        }
        fs::write(self.folder.join(man.get_filename()), text)
    }
}
