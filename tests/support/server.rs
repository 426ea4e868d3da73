//! The real binary on a folder of its own. Tests that measure run alone, the others beside each
//! other (see `turn`).

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use gridhook::clock::Clock;
use serde_json::{Value, json};

use super::{
    http::{Client, Response},
    process,
    turn::Turn,
};

/// The scope that all topics of the tests are in.
pub(crate) const SCOPE: &str =
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics";

/// The interval in which a condition is checked.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest time of a start, which takes a second on an idle machine.
const START_MAX: Duration = Duration::from_secs(120);

/// The length of the end of a log that is shown when a test fails.
const SHOWN_BYTES: usize = 8 * 1024;

/// Waits until `is_met` returns true; fails after `timeout`.
pub(crate) fn wait_for(condition: &str, timeout: Duration, mut is_met: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now().after(timeout);
    while !is_met() {
        assert!(clock.now() < end, "waited {timeout:?} for {condition}");
        thread::sleep(PAUSE);
    }
}

/// The properties of an event subscription to create.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionSpec {
    properties: Value,
}

impl SubscriptionSpec {
    /// Everything, to this address, each event alone.
    pub(crate) fn new(url: &str) -> Self {
        let webhook = json!({"endpointType": "WebHook", "properties": {"endpointUrl": url}});
        Self {
            properties: json!({"destination": webhook}),
        }
    }

    /// Delivers in this schema.
    pub(crate) fn schema(mut self, schema: &str) -> Self {
        self.properties["eventDeliverySchema"] = schema.into();
        self
    }

    /// Sets a property of the webhook.
    pub(crate) fn webhook(mut self, name: &str, value: Value) -> Self {
        self.properties["destination"]["properties"][name] = value;
        self
    }

    /// Sets the maximum of events of a request.
    pub(crate) fn batch(mut self, events: u32) -> Self {
        let webhook = &mut self.properties["destination"]["properties"];
        webhook["maxEventsPerBatch"] = events.into();
        webhook["preferredBatchSizeInKilobytes"] = 1024.into();
        self
    }

    /// Sets the maximum of attempts.
    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.properties["retryPolicy"] = json!({"maxDeliveryAttempts": attempts});
        self
    }

    /// Dead letters are written to this container.
    pub(crate) fn dead_letters(self, container: &str) -> Self {
        self.dead_letters_at(&json!({"resourceId": "/r", "blobContainerName": container}))
    }

    /// Dead letters are written to this destination.
    pub(crate) fn dead_letters_at(mut self, properties: &Value) -> Self {
        self.properties["deadLetterDestination"] =
            json!({"endpointType": "StorageBlob", "properties": properties});
        self
    }

    /// Sets further properties of the webhook and of the subscription.
    pub(crate) fn also(mut self, webhook: &Value, subscription: &Value) -> Self {
        let merge = |into: &mut Value, what: &Value| {
            for (key, value) in what.as_object().expect("an object") {
                into[key] = value.clone();
            }
        };
        merge(&mut self.properties["destination"]["properties"], webhook);
        merge(&mut self.properties, subscription);
        self
    }

    /// Includes only these event types.
    pub(crate) fn types(mut self, types: &[&str]) -> Self {
        self.properties["filter"]["includedEventTypes"] = json!(types);
        self
    }

    /// The properties as a body has them.
    pub(crate) fn properties(&self) -> Value {
        self.properties.clone()
    }

    /// Includes only subjects with this prefix.
    pub(crate) fn prefix(mut self, prefix: &str) -> Self {
        self.properties["filter"]["subjectBeginsWith"] = prefix.into();
        self
    }
}

/// A server process with a folder of its own.
pub(crate) struct Server {
    child: Option<Child>,
    folder: tempfile::TempDir,
    data_dir: PathBuf,
    settings: Vec<(String, String)>,
    /// The program that runs the binary, if there is one.
    under: Vec<String>,
    at: SocketAddr,
    tls: Option<Arc<rustls::ClientConfig>>,
    runs: usize,
    _turn: Option<Turn>,
}

impl Server {
    /// Starts a server with these settings over the defaults: names of environment variables
    /// without `GRIDHOOK_`.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::prepare(settings, None, None);
        server.restart();
        server
    }

    /// A server whose data is in a folder of the test, not started yet.
    pub(crate) fn with_data_dir(data_dir: &Path, settings: &[(&str, &str)]) -> Self {
        Self::prepare(settings, None, Some(data_dir))
    }

    /// Calls the server over https. Called before the first start.
    pub(crate) fn use_tls(&mut self, tls: Arc<rustls::ClientConfig>) {
        self.tls = Some(tls);
    }

    /// Keeps the data in a folder of the test. Called before the first start.
    pub(crate) fn keep_data_in(&mut self, data_dir: &Path) {
        data_dir.clone_into(&mut self.data_dir);
    }

    /// Runs the server below this command from the next start on.
    pub(crate) fn run_under(&mut self, command: &[&str]) {
        self.under = command.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Makes servers of one test that run at the same time, with these settings, not started yet.
    /// With a client of TLS they are called over https.
    pub(crate) fn several(
        settings: &[Vec<(&str, &str)>],
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> Vec<Self> {
        // The first one holds it for all.
        let mut turn = Some(Turn::take());
        settings
            .iter()
            .map(|settings| Self::prepare_in(turn.take(), settings, tls.cloned(), None))
            .collect()
    }

    fn prepare(
        settings: &[(&str, &str)],
        tls: Option<Arc<rustls::ClientConfig>>,
        data_dir: Option<&Path>,
    ) -> Self {
        Self::prepare_in(Some(Turn::take()), settings, tls, data_dir)
    }

    fn prepare_in(
        turn: Option<Turn>,
        settings: &[(&str, &str)],
        tls: Option<Arc<rustls::ClientConfig>>,
        data_dir: Option<&Path>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data_dir = data_dir.map_or_else(|| folder.path().join("data"), Path::to_owned);
        let editions = folder.path().join("editions");
        fs::create_dir(&editions).expect("a folder of editions");
        fs::write(editions.join("test.toml"), super::edition::milliseconds()).expect("an edition");
        fs::write(
            editions.join("namespaces.toml"),
            super::edition::namespaces(),
        )
        .expect("an edition");
        fs::write(editions.join("patient.toml"), super::edition::patient()).expect("an edition");
        // Azure's rates are a sixth of what the tests send; tests of rates set them.
        let unbounded = [
            ("PUBLISH__EVENTS_PER_SECOND", "0"),
            ("PUBLISH__BYTES_PER_SECOND", "0"),
        ];
        let settings = unbounded.iter().chain(settings);
        let mut settings: Vec<(String, String)> = settings
            .map(|(key, value)| (format!("GRIDHOOK_{key}"), (*value).to_owned()))
            .collect();
        settings.push((
            "GRIDHOOK_POLICY__EDITIONS_DIR".to_owned(),
            editions.display().to_string(),
        ));
        settings.push(("GRIDHOOK_POLICY__EDITION".to_owned(), "test".to_owned()));
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            child: None,
            folder,
            data_dir,
            settings,
            under: Vec::new(),
            at,
            tls,
            runs: 0,
            _turn: turn,
        }
    }

    /// A server that speaks https, with a certificate that `tls` trusts for 127.0.0.1.
    pub(crate) fn start_tls(settings: &[(&str, &str)], tls: Arc<rustls::ClientConfig>) -> Self {
        let mut server = Self::prepare(settings, Some(tls), None);
        server.restart();
        server
    }

    /// Gives the server this setting from the next start on.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.settings
            .push((format!("GRIDHOOK_{key}"), value.to_owned()));
    }

    /// A new client, whose connection nothing else uses.
    pub(crate) fn client(&self) -> Client {
        Client::with_tls(self.at, self.tls.clone())
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data_dir.clone()
    }

    /// The address at which the server listens at present.
    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    /// The process id of the server.
    pub(crate) fn id(&self) -> u32 {
        let child = self.child.as_ref().expect("a server that runs").id();
        if self.under.is_empty() {
            return child;
        }
        let lock = fs::read_to_string(self.data_dir().join("lock")).expect("who holds the folder");
        lock.trim().parse().expect("the number of a process")
    }

    /// Starts the server on its folder, on another port. Returns how long it took until it was
    /// ready.
    pub(crate) fn restart(&mut self) -> Duration {
        let clock = Clock::system();
        let started = clock.now();
        self.try_restart().unwrap_or_else(|(status, reported)| {
            panic!("the server ended at its start: {status}: {reported}")
        });
        wait_for("the server to be ready", START_MAX, || {
            self.client()
                .ask("GET", "/readyz", &[], b"")
                .is_ok_and(|response| response.status == 200)
        });
        clock.now().since(started)
    }

    /// Starts the server without waiting for it.
    pub(crate) fn begin(&mut self) {
        self.spawn();
    }

    /// Sends the server a signal, by its name in the shell.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args([
                "-c",
                &format!("kill -{name} \"$0\""),
                &self.id().to_string(),
            ])
            .status();
        assert!(sent.expect("a shell").success(), "a signal is sent");
    }

    /// Starts the server and kills it after this time.
    pub(crate) fn restart_and_kill(&mut self, after: Duration) {
        self.spawn();
        thread::sleep(after);
        self.kill_9();
    }

    fn spawn(&mut self) {
        assert!(self.child.is_none(), "the server runs already");
        self.runs += 1;
        let log = |stream| File::create(self.log(stream)).expect("a log");
        let mut command = command(&self.under, &self.data_dir(), &self.settings);
        let child = command.stdout(log("out")).stderr(log("err")).spawn();
        self.child = Some(child.expect("the binary starts"));
    }

    /// Starts it and returns when it listens, ready or not, or when it has ended: its status and
    /// output.
    pub(crate) fn try_restart(&mut self) -> Result<(), (ExitStatus, String)> {
        self.spawn();
        self.await_listening()
    }

    /// Returns when the server, which was started, listens or has ended, as [`Self::try_restart`].
    pub(crate) fn await_listening(&mut self) -> Result<(), (ExitStatus, String)> {
        let mut address = None;
        let mut ended = None;
        wait_for("the server to listen", START_MAX, || {
            ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().expect("a child is waited for"));
            let out = fs::read_to_string(self.log("out")).unwrap_or_default();
            // The line may be there in part.
            let listening =
                |line: &'_ str| line.contains("listens on http") && line.ends_with('\n');
            let line = out
                .split_inclusive('\n')
                .find(|line| listening(line))
                .and_then(|line| line.split("://").nth(1));
            address = line.and_then(|line| line.trim().parse().ok());
            address.is_some() || ended.is_some()
        });
        if let Some(status) = ended {
            self.child = None;
            return Err((status, self.log_tail()));
        }
        self.at = address.expect("it was waited for");
        Ok(())
    }

    /// Whether the server was started and its end was not seen.
    pub(crate) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Kills the server with SIGKILL, as a power cut ends a process.
    pub(crate) fn kill_9(&mut self) {
        if !self.under.is_empty() {
            self.signal("KILL");
            self.child
                .take()
                .expect("a server that runs")
                .wait()
                .expect("a child is waited for");
            return;
        }
        let mut child = self.child.take().expect("a server that runs");
        child.kill().expect("a process that can be killed");
        child.wait().expect("a child is waited for");
    }

    /// Sends SIGTERM, and waits for an end with success. Returns how long that took.
    pub(crate) fn terminate(&mut self) -> Duration {
        let clock = Clock::system();
        let asked = clock.now();
        self.signal("TERM");
        let code = self.wait(Duration::from_secs(90));
        assert_eq!(code, Some(0), "it ends well");
        assert!(
            !self.logs().contains("the store is still in use"),
            "somebody keeps the store open: {}",
            self.logs()
        );
        clock.now().since(asked)
    }

    /// Waits until the server has ended. Returns its exit status.
    pub(crate) fn wait(&mut self, most: Duration) -> Option<i32> {
        let child = self.child.as_mut().expect("a server that runs");
        let mut ended: Option<ExitStatus> = None;
        wait_for("the server to end", most, || {
            ended = child.try_wait().expect("a child is waited for");
            ended.is_some()
        });
        self.child = None;
        ended.and_then(|status| status.code())
    }

    /// Runs `fsck` on its folder.
    pub(crate) fn fsck(&self) -> (ExitStatus, String) {
        fsck(&self.data_dir())
    }

    /// Runs a command against the server, with its own token.
    pub(crate) fn say(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let (server, token) = (
            format!("http://{}", self.at),
            self.data_dir().join("admin-token"),
        );
        say(&[
            arguments,
            &[
                "--server",
                &server,
                "--token-file",
                token.to_str().expect("text"),
            ],
        ]
        .concat())
    }

    /// Asserts that its store is sound. The server must have ended.
    pub(crate) fn assert_sound(&self) {
        assert!(self.child.is_none(), "the server has ended");
        let (status, reported) = self.fsck();
        assert!(
            status.success() && reported.contains("the store is sound"),
            "fsck ended with {status}:\n{reported}"
        );
    }

    /// Resident memory of the server, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        process::resident(self.id())
    }

    /// The peak of the resident memory, in bytes.
    pub(crate) fn most_resident(&self) -> u64 {
        process::most_resident(self.id())
    }

    /// Processor time of the server since its start.
    pub(crate) fn processor(&self) -> Duration {
        process::processor(self.id())
    }

    // --- control plane ---

    /// Sends a request to the control plane with the admin token.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &Value) -> Response {
        self.admin_with_headers(method, path, &[], body)
    }

    /// Asks the control plane with further headers, such as preconditions.
    pub(crate) fn admin_with_headers(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response {
        let token =
            fs::read_to_string(self.data_dir().join("admin-token")).expect("an admin token");
        let authorization = format!("Bearer {}", token.trim());
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.client()
            .ask(
                method,
                path,
                &[&[("authorization", authorization.as_str())], headers].concat(),
                body.as_bytes(),
            )
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a request that must succeed.
    pub(crate) fn command(&self, method: &str, path: &str, body: &Value) -> Response {
        let response = self.admin(method, path, body);
        assert!(
            (200..300).contains(&response.status),
            "{method} {path}: {} {}",
            response.status,
            response.text()
        );
        response
    }

    /// Makes a topic, and returns a key of it.
    pub(crate) fn topic(&self, name: &str, schema: &str) -> String {
        self.topic_of(name, &json!({"inputSchema": schema}))
    }

    /// Creates a topic with these properties, and returns one of its keys.
    pub(crate) fn topic_of(&self, name: &str, properties: &Value) -> String {
        self.command(
            "PUT",
            &format!("{SCOPE}/{name}"),
            &json!({"properties": properties}),
        );
        let keys = self
            .command("POST", &format!("{SCOPE}/{name}/listKeys"), &Value::Null)
            .json();
        keys["key1"].as_str().expect("a key").to_owned()
    }

    /// Makes an event subscription, or changes it.
    pub(crate) fn subscribe(&self, topic: &str, name: &str, spec: &SubscriptionSpec) {
        self.command(
            "PUT",
            &subscription(topic, name),
            &json!({"properties": spec.properties}),
        );
    }

    /// Asks for an event subscription, which may be refused.
    pub(crate) fn put_subscription(
        &self,
        topic: &str,
        name: &str,
        spec: &SubscriptionSpec,
    ) -> Response {
        self.admin(
            "PUT",
            &subscription(topic, name),
            &json!({"properties": spec.properties}),
        )
    }

    /// Sends a change of an event subscription, which may be refused.
    pub(crate) fn patch(&self, topic: &str, name: &str, change: &Value) -> Response {
        self.admin("PATCH", &subscription(topic, name), change)
    }

    /// The response to a GET of an event subscription.
    pub(crate) fn get_subscription(&self, topic: &str, name: &str) -> Response {
        self.admin("GET", &subscription(topic, name), &Value::Null)
    }

    /// Requests an address of the server without a token.
    pub(crate) fn request_without_token(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response {
        self.client()
            .ask(method, path, headers, b"")
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn unsubscribe(&self, topic: &str, name: &str) {
        self.command("DELETE", &subscription(topic, name), &Value::Null);
    }

    /// Gives an operator's command to an event subscription.
    pub(crate) fn post_verb(&self, topic: &str, name: &str, verb: &str) {
        self.command(
            "POST",
            &format!("{}/{verb}", subscription(topic, name)),
            &Value::Null,
        );
    }

    /// Sends a request that may no longer be valid, and returns its status.
    pub(crate) fn post_verb_status(&self, topic: &str, name: &str, verb: &str) -> u16 {
        self.admin(
            "POST",
            &format!("{}/{verb}", subscription(topic, name)),
            &Value::Null,
        )
        .status
    }

    pub(crate) fn status(&self, topic: &str, name: &str) -> Value {
        self.command(
            "GET",
            &format!("{}/status", subscription(topic, name)),
            &Value::Null,
        )
        .json()
    }

    pub(crate) fn topic_status(&self, topic: &str) -> Value {
        self.command("GET", &format!("{SCOPE}/{topic}/status"), &Value::Null)
            .json()
    }

    pub(crate) fn counter(&self, topic: &str, name: &str, counter: &str) -> u64 {
        let status = self.status(topic, name);
        status["counters"][counter]
            .as_u64()
            .unwrap_or_else(|| panic!("{counter}: {status}"))
    }

    /// Publishes a body of the Event Grid schema.
    pub(crate) fn publish(&self, topic: &str, key: &str, body: &[u8]) {
        let response =
            self.client()
                .ask("POST", &events_path(topic), &[("aeg-sas-key", key)], body);
        let response = response.expect("a publisher is answered");
        assert_eq!(response.status, 200, "{}", response.text());
    }

    // --- logs ---

    /// The output of all runs of the server.
    pub(crate) fn logs(&self) -> String {
        let read =
            |name: String| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        (1..=self.runs)
            .map(|run| read(format!("{run}.out")) + &read(format!("{run}.err")))
            .collect()
    }

    fn log(&self, stream: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{stream}", self.runs))
    }

    /// The output since the last start, or the end of that.
    fn log_tail(&self) -> String {
        let read = |stream| fs::read_to_string(self.log(stream)).unwrap_or_default();
        let all = read("out") + &read("err");
        let from = all.len().saturating_sub(SHOWN_BYTES);
        let from = (from..=all.len())
            .find(|at| all.is_char_boundary(*at))
            .unwrap_or(0);
        all[from..].to_owned()
    }

    /// Starts a second server on the same folder, which must end, and returns its output.
    pub(crate) fn start_second(&self) -> (ExitStatus, String) {
        let output = command(&[], &self.data_dir(), &self.settings)
            .output()
            .expect("the binary starts");
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status, printed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "--- the end of the output of server {}\n{}",
                self.runs,
                self.log_tail()
            );
        }
        if !self.under.is_empty()
            && self
                .child
                .as_mut()
                .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        {
            self.kill_9();
        }
        if let Some(mut child) = self.child.take() {
            // The process may have ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The exit status and the output of a command.
pub(crate) fn say(arguments: &[&str]) -> (ExitStatus, String) {
    let output = bare(&[], arguments).output().expect("the binary starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status, printed)
}

/// The path that events are published to.
pub(crate) fn events_path(topic: &str) -> String {
    format!("/topics/{topic}/api/events")
}

/// The path of an event subscription.
pub(crate) fn subscription(topic: &str, name: &str) -> String {
    format!("{SCOPE}/{topic}/eventSubscriptions/{name}")
}

/// Runs a command on a running server, as its operator would: what it printed, or why not.
pub(crate) fn operator(server: &Server, arguments: &[&str]) -> Result<String, String> {
    operator_with(server, &server.data_dir().join("admin-token"), arguments)
}

/// Runs an operator's command with the token in this file.
pub(crate) fn operator_with(
    server: &Server,
    token: &Path,
    arguments: &[&str],
) -> Result<String, String> {
    let output = gridhook(arguments, Path::new("--server"))
        .arg(format!("http://{}", server.address()))
        .arg("--token-file")
        .arg(token)
        .output()
        .expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Runs `fsck` on a folder.
pub(crate) fn fsck(data_dir: &Path) -> (ExitStatus, String) {
    fsck_with(data_dir, &[])
}

/// Runs `fsck` on a data folder with more flags.
pub(crate) fn fsck_with(data_dir: &Path, flags: &[&str]) -> (ExitStatus, String) {
    let data_dir = data_dir.to_str().expect("text");
    say(&[&["fsck", "--data-dir", data_dir], flags].concat())
}

fn command(under: &[String], data_dir: &Path, settings: &[(String, String)]) -> Command {
    let mut command = gridhook_under(
        under,
        &["serve", "--listen", "127.0.0.1:0", "--data-dir"],
        data_dir,
    );
    command.envs(settings.iter().cloned());
    command
}

fn gridhook(arguments: &[&str], data_dir: &Path) -> Command {
    gridhook_under(&[], arguments, data_dir)
}

fn gridhook_under(under: &[String], arguments: &[&str], data_dir: &Path) -> Command {
    let mut command = bare(under, arguments);
    command.arg(data_dir);
    command
}

fn bare(under: &[String], arguments: &[&str]) -> Command {
    // A bench can measure another build.
    let binary = std::env::var_os("GRIDHOOK_BINARY")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_gridhook").into());
    let mut command = match under.split_first() {
        Some((program, more)) => {
            let mut command = Command::new(program);
            command.args(more).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command.args(arguments);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}
