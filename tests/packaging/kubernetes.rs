//! The Helm chart and the plain manifests: valid for Kubernetes, and settings that this server
//! reads.

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use expect_test::expect_file;
use gridhook::config::{Config, NatsLogin, NatsTls, SettingSources};
use serde_json::Value;

use super::{output_text, packaged, read};
use crate::support::needs::can_run;

/// The oldest and the newest Kubernetes whose schemas kubernetes-validate has.
const VERSIONS: [&str; 2] = ["1.33.0", "1.37.0"];

/// The values of the plain manifests.
const PLAIN: &str = "adminToken: {existingSecret: gridhook}";

/// Uses every template and every optional part.
const EVERYTHING: &str = r#"
adminToken: {value: secret}
imagePullSecrets: [{name: registry}]
settings:
  delivery: {allow_http: true, allow_networks: [10.0.0.0/8, "fd00::/8"], concurrency: 32}
  journal: {write_buffer_bytes: 67108864}
  telemetry: {sample_share: 0.25}
  server: {workers: 2}
  dead_letter:
    stores: {archive: {url: "s3://bucket/prefix", region: eu-central-1, accounts: [one, two]}}
shutdownTimeoutSeconds: 60
hostNames: [events.example.org]
apply: |
  {"topics": []}
tls: {secretName: certificate}
service: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8], annotations: {a: b}}
adminService: {type: NodePort, annotations: {a: b}}
ingress: {enabled: true, className: nginx, host: hooks.example.com, tlsSecretName: front, annotations: {a: b}}
storage: {size: 100Gi, className: fast, annotations: {a: b}}
podDisruptionBudget: {maxUnavailable: 0}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
serviceAccount: {annotations: {a: b}, automountToken: true}
podAnnotations: {a: b}
podLabels: {a: b}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
extraEnv: [{name: AWS_REGION, value: eu-central-1}]
extraEnvFrom: [{secretRef: {name: s3}}]
extraVolumes: [{name: backups, persistentVolumeClaim: {claimName: backups}}]
extraVolumeMounts: [{name: backups, mountPath: /var/lib/gridhook-backups}]
"#;

/// The values of the plain manifests of a cluster.
const PLAIN_CLUSTER: &str = r#"
adminToken: {existingSecret: gridhook}
cluster: {enabled: true, nats: {urls: ["nats://nats.nats.svc:4222"], secretName: gridhook-nats}}
"#;

/// A cluster with every optional part.
const CLUSTER: &str = r#"
settings: {cluster: {replicas: 5, stream_bytes: 10 GiB}}
cluster:
  enabled: true
  replicas: 5
  name: "123"
  nats:
    urls: ["tls://nats-0.nats:4222", "tls://nats-1.nats:4222"]
    secretName: nats-users
    username: shop
    tlsSecretName: nats-tls
    clientCertificate: true
  tlsSecretName: nodes
tls: {secretName: certificate}
"#;

fn has_tools() -> bool {
    can_run("kubernetes", Command::new("helm").arg("version"))
        && can_run(
            "kubernetes",
            Command::new("kubernetes-validate").arg("--version"),
        )
}

fn helm(command: &str, values: &str, more: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), values).expect("a file of values");
    let mut helm = Command::new("helm");
    helm.arg(command);
    if command == "template" {
        helm.args(["gridhook", "--namespace", "gridhook"]);
    }
    helm.arg(packaged("helm/gridhook"))
        .args(["--kube-version", VERSIONS[1], "--values"])
        .arg(file.path());
    helm.args(more).output().expect("helm")
}

fn render(values: &str, more: &[&str]) -> String {
    let output = helm("template", values, more);
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The Python of kubernetes-validate, which reads YAML.
fn python() -> PathBuf {
    let path = env::var_os("PATH").expect("PATH");
    let tool = env::split_paths(&path)
        .map(|folder| folder.join("kubernetes-validate"))
        .find(|path| path.exists());
    let tool = fs::canonicalize(tool.expect("kubernetes-validate")).expect("a path");
    tool.with_file_name("python")
}

fn documents(yaml: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; print(json.dumps([d for d in \
        yaml.safe_load_all(sys.stdin) if d]))";
    let mut child = Command::new(python())
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(yaml.as_bytes())
        .expect("YAML");
    let output = child.wait_with_output().expect("Python");
    assert!(output.status.success(), "{yaml}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn documents_with_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents
        .iter()
        .filter(|document| document["kind"] == kind)
        .collect()
}

fn only<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let [document] = documents_with_kind(documents, kind)[..] else {
        panic!("{kind}: not exactly one")
    };
    document
}

/// Validates objects of Kubernetes itself; the operator of Prometheus has no schemas there.
fn validate(documents: &[Value]) -> Result<(), String> {
    let own: Vec<_> = documents
        .iter()
        .filter(|document| document["apiVersion"] != "monitoring.coreos.com/v1")
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let files = own.iter().enumerate().map(|(index, document)| {
        let path = folder.path().join(format!("{index}.yaml"));
        fs::write(&path, document.to_string()).expect("a manifest");
        path
    });
    let files: Vec<_> = files.collect();
    for version in VERSIONS {
        let mut tool = Command::new("kubernetes-validate");
        let output = tool
            .args(["--strict", "-k", version])
            .args(&files)
            .output()
            .expect("kubernetes-validate");
        if !output.status.success() {
            return Err(output_text(&output));
        }
    }
    Ok(())
}

fn container(documents: &[Value]) -> &Value {
    &only(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
}

/// The variables of the first pod.
fn variables(documents: &[Value]) -> Vec<(OsString, OsString)> {
    let all = container(documents)["env"].as_array().expect("variables");
    let pod = format!(
        "{}-0",
        only(documents, "StatefulSet")["metadata"]["name"]
            .as_str()
            .expect("a name")
    );
    let of_pod = |variable: &Value| {
        let source = &variable["valueFrom"];
        let value = match (
            variable["value"].as_str(),
            source["fieldRef"]["fieldPath"].as_str(),
        ) {
            (Some(value), _) => value.replace("$(GRIDHOOK_CLUSTER__NODE)", &pod),
            (None, Some("metadata.name")) => pod.clone(),
            _ if source["secretKeyRef"].is_object() => "token-from-a-secret".to_owned(),
            _ => panic!("{variable}"),
        };
        (
            variable["name"].as_str().expect("a name").into(),
            value.into(),
        )
    };
    // Variables of commands in the pod are no settings.
    all.iter()
        .map(of_pod)
        .filter(|(name, _)| name != "GRIDHOOK_SERVER" && name != "GRIDHOOK_TOKEN")
        .collect()
}

fn config(documents: &[Value]) -> Config {
    let sources = SettingSources {
        environment: variables(documents),
        ..SettingSources::default()
    };
    Config::load(&sources).expect("settings that the server reads")
}

#[test]
fn the_chart_is_valid_for_kubernetes_with_defaults_and_with_everything() {
    if !has_tools() {
        return;
    }
    for values in ["", PLAIN, EVERYTHING, PLAIN_CLUSTER, CLUSTER] {
        let output = helm("lint", values, &["--strict"]);
        assert!(output.status.success(), "{}", output_text(&output));
        let documents = documents(&render(values, &[]));
        validate(&documents).unwrap_or_else(|error| panic!("{values}: {error}"));
    }
    let mut wrong = documents(&render(PLAIN, &[]));
    let spec = wrong
        .iter_mut()
        .find(|document| document["kind"] == "StatefulSet")
        .expect("a StatefulSet");
    spec["spec"]["template"]["spec"]["enableServiceLink"] = Value::Bool(false);
    assert!(
        validate(&wrong)
            .expect_err("an unknown field")
            .contains("enableServiceLink")
    );
}

#[test]
fn the_plain_manifests_are_what_the_chart_renders() {
    if !has_tools() {
        return;
    }
    expect_file![packaged("kubernetes/gridhook.yaml")].assert_eq(&render(PLAIN, &[]));
    expect_file![packaged("kubernetes/cluster.yaml")].assert_eq(&render(PLAIN_CLUSTER, &[]));
    let more = [
        "--set",
        "serviceMonitor.enabled=true",
        "--show-only",
        "templates/servicemonitor.yaml",
    ];
    expect_file![packaged("kubernetes/servicemonitor.yaml")].assert_eq(&render(PLAIN, &more));
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = read("helm/gridhook/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        chart.contains(&format!(
            "\nversion: {version}\nappVersion: \"{version}\"\n"
        )),
        "{chart}"
    );
}

#[test]
fn the_pod_is_confined_and_its_parts_fit_together() {
    if !has_tools() {
        return;
    }
    for values in [PLAIN, EVERYTHING] {
        let documents = documents(&render(values, &[]));
        let set = &only(&documents, "StatefulSet")["spec"];
        let pod = &set["template"]["spec"];
        let container = container(&documents);
        assert_eq!(
            (&set["replicas"], &pod["enableServiceLinks"]),
            (&1.into(), &false.into())
        );
        assert!(
            set.get("podManagementPolicy").is_none()
                && pod["affinity"].get("podAntiAffinity").is_none()
        );
        assert_pod_is_confined(pod, container);

        let config = config(&documents);
        let grace = Duration::from_secs(
            pod["terminationGracePeriodSeconds"]
                .as_u64()
                .expect("seconds"),
        );
        assert!(grace > 2 * config.server.shutdown_timeout, "{grace:?}");
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let data = mounts
            .iter()
            .find(|mount| mount["name"] == "data")
            .expect("the volume");
        assert_eq!(
            Path::new(data["mountPath"].as_str().expect("a path")),
            config.server.data_dir
        );
        assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], "data");

        assert_ports_are_those_of_the_settings(container, &config);

        assert_services_select_the_pod(&documents, set);
        let budget = &only(&documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"];
        assert_eq!(budget, &set["selector"]["matchLabels"]);
    }
}

fn assert_pod_is_confined(pod: &Value, container: &Value) {
    let user = &pod["securityContext"];
    assert_eq!(
        (&user["runAsNonRoot"], &user["fsGroup"]),
        (&true.into(), &user["runAsUser"])
    );
    assert_ne!(user["runAsUser"], 0);
    let confined = &container["securityContext"];
    assert_eq!(confined["readOnlyRootFilesystem"], true);
    assert_eq!(
        (
            &confined["allowPrivilegeEscalation"],
            &confined["capabilities"]["drop"][0]
        ),
        (&false.into(), &"ALL".into())
    );
}

/// The number of the container's port with this name.
fn find_port(container: &Value, name: &Value) -> u64 {
    let ports = container["ports"].as_array().expect("ports");
    let port = ports
        .iter()
        .find(|port| &port["name"] == name)
        .unwrap_or_else(|| panic!("no port {name}"));
    port["containerPort"].as_u64().expect("a number")
}

fn assert_ports_are_those_of_the_settings(container: &Value, config: &Config) {
    let listens = [
        config.server.listen,
        config.server.admin_listen.expect("an address of its own"),
    ];
    assert!(listens.iter().all(|address| address.ip().is_unspecified()));
    assert_eq!(
        listens.map(|address| u64::from(address.port())),
        ["publish", "admin"].map(|name| find_port(container, &name.into()))
    );
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        let request = &container[probe]["httpGet"];
        assert_eq!(request["path"], path, "{probe}");
        assert_eq!(
            request["scheme"] == "HTTPS",
            config.server.tls_key.is_some(),
            "{probe}"
        );
        find_port(container, &request["port"]);
    }
}

fn assert_services_select_the_pod(documents: &[Value], set: &Value) {
    let labels = set["template"]["metadata"]["labels"]
        .as_object()
        .expect("labels");
    let services = documents_with_kind(documents, "Service");
    assert!(
        services
            .iter()
            .any(|service| service["metadata"]["name"] == set["serviceName"])
    );
    for service in &services {
        let selector = service["spec"]["selector"].as_object().expect("a selector");
        assert!(
            selector
                .iter()
                .all(|(name, value)| labels.get(name) == Some(value)),
            "{selector:?}"
        );
        for exposed in service["spec"]["ports"].as_array().expect("ports") {
            find_port(container(documents), &exposed["targetPort"]);
        }
    }
}

#[test]
fn the_nodes_of_a_cluster_reach_each_other_and_are_on_machines_of_their_own() {
    if !has_tools() {
        return;
    }
    for (values, replicas) in [(PLAIN_CLUSTER, 3), (CLUSTER, 5)] {
        let documents = documents(&render(values, &[]));
        let set = &only(&documents, "StatefulSet")["spec"];
        let pod = &set["template"]["spec"];
        let container = container(&documents);
        assert_eq!(
            (&set["replicas"], &set["podManagementPolicy"]),
            (&replicas.into(), &"Parallel".into())
        );
        let apart = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [0];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(
            apart["labelSelector"]["matchLabels"],
            set["selector"]["matchLabels"]
        );
        assert_eq!(
            only(&documents, "PodDisruptionBudget")["spec"]["maxUnavailable"],
            1
        );

        let cluster = config(&documents).cluster.expect("a node");
        assert_eq!(cluster.node, "gridhook-0");
        assert!(cluster.listen.ip().is_unspecified());
        let (host, port) = cluster
            .advertise
            .as_deref()
            .and_then(|at| at.split_once(':'))
            .expect("host and port");
        assert_eq!(host, "gridhook-0.gridhook-headless.gridhook.svc");
        let services = documents_with_kind(&documents, "Service");
        let headless = services
            .iter()
            .find(|service| service["metadata"]["name"] == set["serviceName"]);
        let headless = &headless.expect("the Service of the pods")["spec"];
        // A node that is not ready serves the others.
        assert_eq!(
            (
                &headless["clusterIP"],
                &headless["publishNotReadyAddresses"]
            ),
            (&"None".into(), &true.into())
        );
        let ports = headless["ports"].as_array().expect("ports");
        let exposed = ports
            .iter()
            .find(|port| port["name"] == "nodes")
            .expect("the port of the nodes");
        assert_eq!(
            (
                exposed["port"].to_string(),
                cluster.listen.port().to_string()
            ),
            (port.to_owned(), port.to_owned())
        );
        let ports = container["ports"].as_array().expect("ports");
        assert!(
            ports
                .iter()
                .any(|port| port["name"] == "nodes" && port["containerPort"] == exposed["port"])
        );

        // Each file is in a Secret that is mounted.
        let mounted = |file: &Path| {
            let mounts = container["volumeMounts"].as_array().expect("mounts");
            let is_below = |mount: &&Value| {
                Some(file.parent()) == mount["mountPath"].as_str().map(|at| Some(Path::new(at)))
            };
            let name = &mounts
                .iter()
                .find(is_below)
                .unwrap_or_else(|| panic!("{} is not mounted", file.display()))["name"];
            let volume = pod["volumes"]
                .as_array()
                .expect("volumes")
                .iter()
                .find(|volume| &volume["name"] == name);
            volume.expect("a volume")["secret"]["secretName"]
                .as_str()
                .expect("a Secret")
                .to_owned()
        };
        assert_eq!(mounted(&cluster.secret_file), "gridhook");
        let NatsLogin::Password(_, password) = &cluster.login else {
            panic!("{:?}", cluster.login)
        };
        let Some(NatsLogin::Password(_, of_system)) = &cluster.system_login else {
            panic!("no login of the system")
        };
        let users = if replicas == 5 {
            "nats-users"
        } else {
            "gridhook-nats"
        };
        assert_eq!(
            (mounted(password).as_str(), mounted(of_system).as_str()),
            (users, users)
        );
        assert_eq!(cluster.node_tls.is_some(), replicas == 5);
        if let Some(tls) = &cluster.node_tls {
            assert!(
                [
                    &tls.authorities,
                    &tls.identity.certificate,
                    &tls.identity.key
                ]
                .iter()
                .all(|file| mounted(file) == "nodes")
            );
            let NatsTls {
                authorities,
                identity,
            } = &cluster.nats_tls;
            let identity = identity.as_ref().expect("a client certificate");
            let files = [
                authorities.as_ref().expect("authorities"),
                &identity.certificate,
                &identity.key,
            ];
            assert!(files.iter().all(|file| mounted(file) == "nats-tls"));
            assert_eq!(
                (cluster.name.as_str(), cluster.replicas, cluster.urls.len()),
                ("123", 5, 2)
            );
            assert!(only(&documents, "Secret")["stringData"]["cluster-secret"].is_string());
        }
    }
}

#[test]
fn values_become_the_settings_of_the_server() {
    if !has_tools() {
        return;
    }
    let plain = config(&documents(&render(PLAIN, &[])));
    assert_eq!(
        plain.server.public_url.as_ref().map(url::Url::as_str),
        Some("http://gridhook.gridhook.svc/")
    );
    assert_eq!(
        plain.server.host_names,
        [
            "gridhook",
            "gridhook.gridhook",
            "gridhook.gridhook.svc",
            "gridhook.gridhook.svc.cluster.local"
        ]
    );

    let everything = config(&documents(&render(EVERYTHING, &[])));
    assert_eq!(
        everything.server.public_url.as_ref().map(url::Url::as_str),
        Some("https://hooks.example.com/")
    );
    assert_eq!(
        everything.server.host_names[4..],
        ["hooks.example.com", "events.example.org"]
    );
    assert_eq!(
        (
            everything.server.shutdown_timeout,
            everything.server.workers
        ),
        (Duration::from_secs(60), 2)
    );
    assert!(everything.server.tls_key.is_some() && everything.server.apply.is_some());
    assert_eq!(
        (
            everything.delivery.allow_http,
            everything.delivery.allow_networks.len()
        ),
        (true, 2)
    );
    assert_eq!(
        (
            everything.delivery.concurrency,
            everything.journal.write_buffer_bytes
        ),
        (32, 64 << 20)
    );
    assert_eq!(
        everything.dead_letter.stores["archive"].address.to_string(),
        "s3://bucket/prefix"
    );
    assert!(
        everything
            .dead_letter
            .named_stores
            .find_destination("two", "a")
            .is_ok()
    );
}

#[test]
fn prometheus_finds_the_operators_port_and_the_rules_of_the_repository() {
    if !has_tools() {
        return;
    }
    let documents = documents(&render(EVERYTHING, &[]));
    let rules = fs::read_to_string(super::root().join("config/prometheus/gridhook.rules.yml"))
        .expect("rules");
    assert_eq!(
        only(&documents, "PrometheusRule")["spec"],
        self::documents(&rules)[0]
    );

    let monitor = &only(&documents, "ServiceMonitor")["spec"];
    let selector = monitor["selector"]["matchLabels"]
        .as_object()
        .expect("a selector");
    let services = documents_with_kind(&documents, "Service");
    let is_selected = |service: &&&Value| {
        selector
            .iter()
            .all(|(name, value)| &service["metadata"]["labels"][name] == value)
    };
    let [service] = services.iter().filter(is_selected).collect::<Vec<_>>()[..] else {
        panic!("not exactly one")
    };
    assert_eq!(
        service["spec"]["ports"][0]["name"],
        monitor["endpoints"][0]["port"]
    );
    // The rules select job="gridhook".
    let label = monitor["jobLabel"].as_str().expect("a label");
    assert_eq!(service["metadata"]["labels"][label], "gridhook");
    let secret = only(&documents, "Secret");
    let token = &monitor["endpoints"][0]["authorization"]["credentials"];
    assert_eq!(secret["metadata"]["name"], token["name"]);
    assert!(secret["stringData"][token["key"].as_str().expect("a key")].is_string());
}

#[test]
fn values_that_cannot_work_are_refused() {
    if !has_tools() {
        return;
    }
    let refused = |values: &str| {
        let output = helm("template", values, &[]);
        assert!(!output.status.success(), "{values}");
        output_text(&output)
    };
    let error = refused("settings: {server: {data_dir: /data}}");
    assert!(
        error.contains(
            "settings.server.data_dir is set by the chart; use the value storage instead"
        ),
        "{error}"
    );
    let error = refused("settings: {metrics: {token: secret}}");
    assert!(
        error.contains("use the key metrics-token of the Secret instead"),
        "{error}"
    );
    let error = refused("ingress: {enabled: true}");
    assert!(
        error.contains("ingress.host is empty; expected the host name of the ingress"),
        "{error}"
    );
    let error = refused("cluster: {enabled: true}");
    assert!(error.contains("cluster.nats.urls is empty"), "{error}");
    let error = refused(&format!(
        "{PLAIN_CLUSTER}fullnameOverride: {}",
        "a".repeat(30)
    ));
    assert!(
        error.contains("set fullnameOverride to 29 characters or less"),
        "{error}"
    );
    let error = refused(&format!(
        "{PLAIN_CLUSTER}settings: {{cluster: {{node: a}}}}"
    ));
    assert!(
        error.contains(
            "settings.cluster.node is set by the chart; use the values of cluster, with \
             nats.secretName for a login"
        ),
        "{error}"
    );
    // The schema of the values.
    for values in [
        "replicas: 2",
        "cluster: {enabled: true, replicas: 0}",
        "service: {typ: NodePort}",
        "podDisruptionBudget: {maxUnavailable: 2}",
    ] {
        let error = refused(values);
        assert!(
            error.contains("values don't meet the specifications of the schema"),
            "{error}"
        );
    }
}
