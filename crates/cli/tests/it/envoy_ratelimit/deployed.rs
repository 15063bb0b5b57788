//! A server that is started by the name `ratelimit` with the variables of Envoy Gateway, its management server, and calls.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::Command;

use http::uri::PathAndQuery;
use tidegate_server::grpc_messages::rate_limit::{RateLimitRequest, RateLimitResponse};
use tidegate_server::grpc_messages::rate_limit_config::ConfiguredDomain;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_xds::{ManagementServer, ServedStream, TestAuthority, encoded};
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::server::{PROGRAM, ProgramFolder, Server};

/// Where the variables below say that certificates are.
const CERTIFICATES: &str = "/certs/";

/// What Envoy Gateway sets, but for addresses. Nothing is at the path of the mapping.
const ENVOY_GATEWAY: [(&str, &str); 21] = [
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", ":0"),
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
];

/// Free ports in place of those of envoyproxy/ratelimit.
const FREE_PORTS: [(&str, &str); 3] = [("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")];

/// What its AI Gateway sets, but for addresses.
const AI_GATEWAY: [(&str, &str); 7] = [
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ai-gateway-ratelimit"),
];

/// A server that has the configuration of its management server.
pub(super) struct Deployed {
    pub(super) server: Server,
    pub(super) folder: ProgramFolder,
    is_secure: bool,
    _stream: ServedStream,
    _management: ManagementServer,
}

impl Deployed {
    /// A server of Envoy Gateway with counters in memory, or in a Redis, that has been sent these domains.
    pub(super) fn start(redis: Option<SocketAddr>, domains: &[ConfiguredDomain]) -> Self {
        let by_name = |folder: &ProgramFolder| folder.command(&folder.file("ratelimit"));
        Self::start_as(redis, domains, by_name)
    }

    /// The same, by a command.
    pub(super) fn start_as(
        redis: Option<SocketAddr>,
        domains: &[ConfiguredDomain],
        command: impl FnOnce(&ProgramFolder) -> Command,
    ) -> Self {
        let folder = folder();
        let management = management_with_tls(&folder);
        let variables = [&ENVOY_GATEWAY[..], &FREE_PORTS].concat();
        let command = command(&folder);
        Self::follow(folder, management, command, variables, redis, domains)
    }

    /// A server of the AI Gateway, in plain text, with the argument that its deployment passes.
    pub(super) fn start_for_models(
        redis: Option<SocketAddr>,
        domains: &[ConfiguredDomain],
    ) -> Self {
        let folder = folder();
        let variables = [&AI_GATEWAY[..], &FREE_PORTS].concat();
        let mut command = folder.command(&folder.file("ratelimit"));
        command.arg("--quotaRateLimitServiceAddr=envoy-ai-gateway-ratelimit");
        let management = ManagementServer::start();
        Self::follow(folder, management, command, variables, redis, domains)
    }

    fn follow(
        folder: ProgramFolder,
        management: ManagementServer,
        command: Command,
        variables: Vec<(&str, &str)>,
        redis: Option<SocketAddr>,
        domains: &[ConfiguredDomain],
    ) -> Self {
        let has = |name: &str| variables.iter().any(|(known, _)| *known == name);
        let (is_secure, has_prometheus) = (has("GRPC_SERVER_USE_TLS"), has("USE_PROMETHEUS"));
        let named = variables
            .iter()
            .find(|(name, _)| *name == "CONFIG_GRPC_XDS_NODE_ID");
        let node = named.unwrap().1.to_owned();
        let address = format!("localhost:{}", management.address().port());
        let redis = redis.map(|address| address.to_string());
        let mut variables: Vec<(&str, &str)> = variables;
        variables.push(("CONFIG_GRPC_XDS_SERVER_URL", &address));
        // A machine that is busy with other tests must not make a server go on without Redis.
        let calm = |url| [("REDIS_URL", url), ("TIDEGATE_REDIS_DEADLINE", "5s")];
        variables.extend(redis.as_deref().into_iter().flat_map(calm));
        let server = start(
            &folder,
            command,
            &variables,
            3 + usize::from(has_prometheus),
        );
        let stream = management.stream();
        let first = stream.request().unwrap();
        assert_eq!(first.node.unwrap().id, node);
        assert_eq!((first.version_info, first.response_nonce), <_>::default());
        let accepted = stream.publish("1", encoded(domains));
        assert_eq!(accepted.error_detail, None);
        Self {
            server,
            folder,
            is_secure,
            _stream: stream,
            _management: management,
        }
    }

    /// Whether calls need TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.is_secure
    }

    pub(super) fn caller(&self) -> Caller {
        let port = self.server.grpc.unwrap().port();
        if !self.is_secure {
            return Caller::in_plain_text(&self.server);
        }
        let read = |name: &str| fs::read(self.folder.path(&format!("certs/{name}"))).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("envoy.crt"), read("envoy.key")));
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
        Caller::new(&endpoint.tls_config(tls).unwrap())
    }

    /// What a page of the debug port says.
    pub(super) fn debug(&self, path: &str) -> String {
        let mut client = HttpClient::to(local(self.server.debug.unwrap()));
        client.ask(&format!("GET {path}"), "").with_status(200).body
    }

    /// The value of a series of Prometheus, as a query selects it by the label `key2`.
    pub(super) fn series(&self, name: &str, domain: &str, key2: &str) -> Option<f64> {
        let mut client = HttpClient::to(local(self.server.prometheus.unwrap()));
        let page = client.ask("GET /metrics", "").with_status(200).body;
        let labels = [format!("domain=\"{domain}\""), format!("key2=\"{key2}\"")];
        let mut lines = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, rest) = series.split_once('{')?;
            let is_meant = found == name && labels.iter().all(|label| rest.contains(label));
            is_meant.then(|| value.parse().unwrap())
        });
        lines.next()
    }
}

/// A folder with the program under the name `ratelimit`, in which other users may read.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    symlink(PROGRAM, folder.path("ratelimit")).unwrap();
    folder
}

/// A management server with TLS that requires certificates of clients, and the files of all certificates.
fn management_with_tls(folder: &ProgramFolder) -> ManagementServer {
    let certificates = folder.path("certs");
    fs::create_dir(&certificates).unwrap();
    let authority = TestAuthority::new(&certificates, "ca");
    fs::rename(folder.path("certs/ca.pem"), folder.path("certs/ca.crt")).unwrap();
    authority.issue("tls", "localhost");
    authority.issue("envoy", "envoy");
    let own = authority.issue("envoy-gateway", "localhost");
    ManagementServer::with_tls(own, Some(&folder.path("certs/ca.crt")))
}

/// Starts the program with these variables, until it says that it listens on so many ports.
fn start(
    folder: &ProgramFolder,
    mut command: Command,
    variables: &[(&str, &str)],
    ports: usize,
) -> Server {
    let own = folder.file("certs/");
    let place = |value: &str| value.replace(CERTIFICATES, &own);
    let variables = variables.iter().map(|(name, value)| (name, place(value)));
    command.envs(variables);
    Server::listening(command, ports).unwrap_or_else(|run| panic!("{}", run.whole()))
}

/// A server of which no management server is known, by the name `ratelimit`.
pub(super) fn start_with_files(variables: &[(&str, &str)], folder: &ProgramFolder) -> Server {
    symlink(PROGRAM, folder.path("ratelimit")).unwrap();
    let variables = [variables, &FREE_PORTS].concat();
    start(
        folder,
        folder.command(&folder.file("ratelimit")),
        &variables,
        3,
    )
}

/// The address by which a client of this machine reaches one that may be all of them.
pub(super) fn local(address: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], address.port()))
}

/// A client that waits for each answer.
pub(super) struct Caller {
    runtime: Runtime,
    grpc: Grpc<Channel>,
}

impl Caller {
    pub(super) fn in_plain_text(server: &Server) -> Self {
        let address = local(server.grpc.unwrap());
        Self::new(&Endpoint::from_shared(format!("http://{address}")).unwrap())
    }

    fn new(endpoint: &Endpoint) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self {
            runtime,
            grpc: Grpc::new(channel),
        }
    }

    pub(super) fn call(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let grpc = &mut self.grpc;
        self.runtime.block_on(async {
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(Request::new(request), path, codec).await?;
            Ok(answer.into_inner())
        })
    }
}
