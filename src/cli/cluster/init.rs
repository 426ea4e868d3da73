//! `gridhook cluster init`: writes the files of a new cluster, for each machine those that it needs.
//!
//! Nothing is overwritten. Hosts that are named several times are one machine: its servers have
//! ports and folders of their own.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::super::{
    format::join,
    output::{CommandError, OutputArgs},
    value::whole_number,
};

/// The folder of the files on a machine of its own.
const FOLDER: &str = "/etc/gridhook";

/// The ports of the first server on a machine: of NATS for clients, and of the node for publishers.
/// Behind the latter are those for operators and for other nodes.
const NATS_PORT: u16 = 4222;
const NODE_PORT: u16 = 8080;

/// The ports of a node: for publishers, for operators and for other nodes.
const NODE_PORTS: u16 = 3;

/// The distance from the port of NATS for clients to the one for its other servers.
const ROUTE_DISTANCE: u16 = 2000;

/// The flags of `cluster init`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook cluster init --nats 10.0.1.1,10.0.1.2,10.0.1.3 --nodes 10.0.0.1,10.0.0.2,10.0.0.3
  gridhook cluster init --nats 127.0.0.1,127.0.0.1,127.0.0.1 --nodes 127.0.0.1,127.0.0.1 --into try")]
pub struct Init {
    /// Hosts of the NATS servers, separated by commas: 1, 3 or 5, each as HOST or HOST:PORT
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', required = true)]
    nats: Vec<String>,
    /// Hosts of the nodes, separated by commas, each as HOST or HOST:PORT
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    /// Name of the cluster
    #[arg(long, default_value = "gridhook")]
    name: String,
    /// Number of shards, fixed from now on
    #[arg(long, default_value_t = 16, value_parser = whole_number::<u16>(1..=64))]
    shards: u16,
    /// URL of the load balancer [default: that of the first node]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why the files were not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    #[error("--nats has {0} hosts; expected 1, 3 or 5")]
    Servers(usize),
    #[error("{0} is not an address; expected, for example, 10.0.0.1 or 10.0.0.1:{NATS_PORT}")]
    Host(String),
    #[error("{}: {source}; nothing is overwritten", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CommandError for InitError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::File { .. })
    }
}

/// A server of the cluster, and the machine that it is on.
struct Place {
    host: String,
    port: u16,
    /// Whether other servers of the cluster are on the same machine.
    is_shared: bool,
}

impl Place {
    fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }
}

/// A file that was written, and where it belongs.
#[derive(Serialize)]
struct WrittenFile {
    file: String,
    host: String,
}

/// The files of a cluster in a folder.
struct FileSet {
    into: PathBuf,
    written: Vec<WrittenFile>,
}

impl FileSet {
    fn write(&mut self, name: String, text: &str, host: &str) -> Result<(), InitError> {
        write_secret(&self.into.join(&name), text)?;
        self.written.push(WrittenFile {
            file: name,
            host: host.to_owned(),
        });
        Ok(())
    }
}

/// The secrets of a cluster.
struct Secrets {
    nats: String,
    system: String,
    admin: String,
    cluster: String,
}

impl Init {
    /// Writes the files, and returns the text to print.
    pub(super) fn run(self) -> Result<String, InitError> {
        if !matches!(self.nats.len(), 1 | 3 | 5) {
            return Err(InitError::Servers(self.nats.len()));
        }
        let servers = find_places(&self.nats, NATS_PORT, 1)?;
        let nodes = find_places(&self.nodes, NODE_PORT, NODE_PORTS)?;
        fs::create_dir_all(&self.into).map_err(file_error(&self.into))?;
        let into = fs::canonicalize(&self.into).map_err(file_error(&self.into))?;
        let secrets = Secrets {
            nats: make_secret()?,
            system: make_secret()?,
            admin: make_secret()?,
            cluster: make_secret()?,
        };
        let mut files = FileSet {
            into: into.clone(),
            written: Vec::new(),
        };
        for (number, server) in (1..).zip(&servers) {
            let text = nats_config(number, &servers, server, &secrets, &into);
            files.write(format!("nats-{number}.conf"), &text, &server.host)?;
        }
        for (number, node) in (1..).zip(&nodes) {
            let url = self
                .public_url
                .clone()
                .unwrap_or_else(|| own_url(&nodes[0]));
            let text = self.node_config(number, node, (&servers, &url), &secrets, &into);
            files.write(format!("gridhook-{number}.toml"), &text, &node.host)?;
        }
        for (name, secret) in [
            ("cluster-secret", &secrets.cluster),
            ("nats-password", &secrets.nats),
            ("nats-system-password", &secrets.system),
        ] {
            files.write(name.to_owned(), &format!("{secret}\n"), "all nodes")?;
        }
        let text = |written: &Vec<WrittenFile>| format_files(written, &into);
        Ok(self.output.format_value(&files.written, text))
    }

    fn node_config(
        &self,
        number: usize,
        node: &Place,
        (servers, public_url): (&[Place], &str),
        secrets: &Secrets,
        into: &Path,
    ) -> String {
        let urls = servers.iter().map(|server| {
            let address = server.address(server.port);
            format!("\"nats://{address}\"")
        });
        let urls = join(urls, ", ");
        let folder = if node.is_shared {
            into.display().to_string()
        } else {
            FOLDER.to_owned()
        };
        let data_dir = if node.is_shared {
            format!("data_dir = \"{folder}/data-{number}\"\n")
        } else {
            String::new()
        };
        let node_port = node.port + 2;
        let is_address = node.host.parse::<std::net::IpAddr>().is_ok();
        let node_listen = if is_address {
            format!("node_listen = \"{}\"", node.address(node_port))
        } else {
            let advertise = node.address(node_port);
            format!("node_listen = \"0.0.0.0:{node_port}\"\nadvertise = \"{advertise}\"")
        };
        format!(
            "[server]\n{data_dir}listen = \"0.0.0.0:{}\"\nadmin_listen = \"127.0.0.1:{}\"\npublic_url \
             = \"{public_url}\"\nadmin_token = \"{}\"\n\n[cluster]\nengine = \"nats\"\nname = \
             \"{}\"\nnode = \"node-{number}\"\nurls = [{urls}]\nreplicas = {}\nusername = \
             \"gridhook\"\npassword_file = \"{folder}/nats-password\"\nsystem_username = \
             \"system\"\nsystem_password_file = \"{folder}/nats-system-password\"\nsecret_file = \
             \"{folder}/cluster-secret\"\n# For other nodes.\n{node_listen}\n# Fixed from the first \
             start on.\nshards = {}\n",
            node.port,
            node.port + 1,
            secrets.admin,
            self.name,
            servers.len(),
            self.shards
        )
    }
}

/// The URL of a node without a load balancer.
fn own_url(node: &Place) -> String {
    format!("http://{}", node.address(node.port))
}

/// The files, and what an operator does next.
fn format_files(written: &[WrittenFile], into: &Path) -> String {
    let lines = written
        .iter()
        .map(|WrittenFile { file, host }| format!("{file:24}{host}\n"));
    format!(
        "{}\nThe files are in {}. A node reads its own as {FOLDER}/gridhook.toml, and the secrets in \
         {FOLDER}; on one machine all stay here.\n\n1. Start the NATS servers: nats-server -c \
         nats-1.conf\n2. On each node: gridhook cluster check --config gridhook-1.toml\n3. Start \
         each node with an empty data folder: gridhook serve --config gridhook-1.toml\n4. gridhook \
         cluster status, with the admin token of gridhook-1.toml in GRIDHOOK_TOKEN",
        lines.collect::<String>(),
        into.display()
    )
}

fn nats_config(
    number: usize,
    servers: &[Place],
    server: &Place,
    secrets: &Secrets,
    into: &Path,
) -> String {
    let store_dir = if server.is_shared {
        format!("{}/nats-{number}", into.display())
    } else {
        "/var/lib/nats".to_owned()
    };
    let routes = servers.iter().map(|other| {
        let address = other.address(other.port + ROUTE_DISTANCE);
        format!("\"nats://{address}\"")
    });
    let routes = join(routes, ", ");
    let cluster = if servers.len() > 1 {
        format!(
            "cluster {{ name: nats, listen: \"0.0.0.0:{}\", routes: [{routes}] }}\n",
            server.port + ROUTE_DISTANCE
        )
    } else {
        String::new()
    };
    format!(
        "server_name: n{number}\nlisten: \"0.0.0.0:{}\"\nmax_payload: 8MB\njetstream {{ store_dir: \
         \"{store_dir}\", sync_interval: always }}\n{cluster}accounts {{\n  APP {{ jetstream: enabled, \
         users: [{{ user: gridhook, password: \"{}\" }}] }}\n  SYS {{ users: [{{ user: system, \
         password: \"{}\" }}] }}\n}}\nsystem_account: SYS\n",
        server.port, secrets.nats, secrets.system
    )
}

/// The place of each host. Of those on one machine the ports are `distance` apart.
fn find_places(hosts: &[String], first: u16, distance: u16) -> Result<Vec<Place>, InitError> {
    let mut earlier = BTreeMap::<&str, u16>::new();
    let mut places = Vec::new();
    for text in hosts {
        let refuse = || InitError::Host(text.clone());
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| refuse())?)),
            None => (text.as_str(), None),
        };
        if host.is_empty() || host.contains(['"', '/', ' ']) {
            return Err(refuse());
        }
        let number = earlier.entry(host).or_default();
        let port: u16 = port.unwrap_or(first + *number * distance);
        *number += 1;
        places.push(Place {
            host: host.to_owned(),
            port,
            is_shared: false,
        });
    }
    for place in &mut places {
        place.is_shared = earlier[place.host.as_str()] > 1 || place.host == "127.0.0.1";
    }
    Ok(places)
}

fn make_secret() -> Result<String, InitError> {
    let path = Path::new("/dev/urandom");
    let mut random = [0; 32];
    let mut source = fs::File::open(path).map_err(file_error(path))?;
    source.read_exact(&mut random).map_err(file_error(path))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner reads, and that is not there yet.
fn write_secret(path: &Path, text: &str) -> Result<(), InitError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = file.map_err(file_error(path))?;
    file.write_all(text.as_bytes()).map_err(file_error(path))
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> InitError {
    let path = path.to_owned();
    |source| InitError::File { path, source }
}
