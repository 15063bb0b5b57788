//! The targets of `tidegate bench`: one command for each protocol.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use tidegate_load::{
    Endpoint, GrpcTarget, HttpTarget, LoadCommand, LoadTls, MessageField, RespTarget, Target,
};
use ureq::http::{Method, Uri};

use crate::arguments::ServerArgs;
use crate::client::{ApiClient, identity};
use crate::commands::attributes::{AttributeArgs, attribute};

/// The attribute of a request for which none was given.
const DEFAULT_ATTRIBUTE: (&str, &str) = ("user_id", "user_{key}");

#[derive(Debug, Subcommand)]
pub(super) enum BenchTarget {
    /// Ask `POST /v1/check` of the server
    Http(HttpBench),
    /// Ask `ShouldRateLimit`, as Envoy does, or call any other method
    Grpc(GrpcBench),
    /// Send `CL.THROTTLE`, `TG.CHECK` if attributes are given, or any other command
    Resp(RespBench),
    /// Send requests to any URL, such as one behind the gateway
    Url(UrlBench),
}

#[derive(Debug, Args)]
pub(super) struct HttpBench {
    /// An attribute of each request; `{key}` in it is the number of the key. Default: `user_id=user_{key}`
    #[arg(long = "attr", short, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(super) struct GrpcBench {
    /// The address of the gRPC front end
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    address: String,

    /// The domain of each call
    #[arg(long, default_value = "bench")]
    domain: String,

    /// An entry of the descriptor; `{key}` in it is the number of the key. Default: `user_id=user_{key}`
    #[arg(long = "attr", short, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,

    /// Call this method instead, such as one behind the middleware
    #[arg(
        long,
        value_name = "/PACKAGE.SERVICE/METHOD",
        conflicts_with_all = ["attributes", "domain"]
    )]
    method: Option<String>,

    /// A field of the message of `--method`: NUMBER=TEXT, in which `{key}` is replaced, or NUMBER:=INTEGER
    #[arg(long = "field", value_name = "FIELD", requires = "method")]
    fields: Vec<MessageField>,
}

#[derive(Debug, Args)]
pub(super) struct RespBench {
    /// The address of the RESP front end
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380")]
    address: String,

    /// Send `TG.CHECK` with this attribute; `{key}` in it is the number of the key
    #[arg(long = "attr", short, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,

    /// The limit of `CL.THROTTLE`: `max_burst`, count and period in seconds
    #[arg(
        long,
        value_names = ["MAX_BURST", "COUNT", "PERIOD"],
        num_args = 3,
        default_values_t = [15, 30, 60],
        conflicts_with = "attributes"
    )]
    limit: Vec<u64>,

    /// Send this command instead, such as `INCR k{key}`; its words are separated by spaces
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["attributes", "limit"])]
    command: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct UrlBench {
    /// The URL, `http` or `https`; `{key}` in it is the number of the key
    url: String,

    /// The method of each request
    #[arg(long, default_value = "GET")]
    method: Method,

    /// A header of each request, in which `{key}` is replaced too
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// The body of each request, in which `{key}` is replaced too
    #[arg(long, default_value = "")]
    body: String,
}

impl BenchTarget {
    pub(super) fn build(&self, server: &ServerArgs) -> anyhow::Result<Target> {
        let tls = || tls(server);
        let token = server.token.as_deref().filter(|token| !token.is_empty());
        Ok(match self {
            Self::Http(bench) => {
                let client = ApiClient::new(server)?;
                let url = format!("{}/v1/check", &client.checks);
                let mut target = http(&url, Method::POST, tls()?)?
                    .header("content-type", "application/json")?
                    .body(&check(&bench.attributes)?);
                if let Some(token) = client.token() {
                    target = target.header("authorization", token)?;
                }
                Target::Http(target)
            }
            Self::Url(bench) => {
                let mut target = http(&bench.url, bench.method.clone(), tls()?)?.body(&bench.body);
                for (name, value) in &bench.headers {
                    target = target.header(name, value)?;
                }
                Target::Http(target)
            }
            Self::Grpc(bench) => {
                let endpoint = Endpoint::of_address(&bench.address)?;
                Target::Grpc(if let Some(method) = &bench.method {
                    GrpcTarget::of_method(endpoint, method, bench.fields.clone(), token)?
                } else {
                    let entries = or_default(&bench.attributes);
                    GrpcTarget::new(endpoint, &bench.domain, &entries, token)?
                })
            }
            Self::Resp(bench) => {
                let endpoint = Endpoint::of_address(&bench.address)?;
                Target::Resp(RespTarget::new(endpoint, &bench.command()?, token))
            }
        })
    }
}

impl RespBench {
    fn command(&self) -> anyhow::Result<LoadCommand> {
        if let Some(command) = &self.command {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                bail!("the command is empty; write its words with spaces, such as `INCR k{{key}}`");
            }
            return Ok(LoadCommand::Any(words));
        }
        if !self.attributes.is_empty() {
            return Ok(LoadCommand::Check(self.attributes.clone()));
        }
        let [max_burst, count, period] = self.limit[..] else {
            bail!("a limit has three numbers: MAX_BURST COUNT PERIOD");
        };
        Ok(LoadCommand::Throttle {
            key: DEFAULT_ATTRIBUTE.1.to_owned(),
            max_burst,
            count,
            period,
        })
    }
}

fn http(url: &str, method: Method, tls: LoadTls) -> anyhow::Result<HttpTarget> {
    // Braces are not allowed in a URL. The address may not depend on the key, so any key will do for it.
    let sample = url.replace("{key}", "0");
    let parsed: Uri = sample
        .parse()
        .with_context(|| format!("`{url}` is not a URL"))?;
    let endpoint = Endpoint::of_url(&parsed, tls)?;
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(after_scheme..).and_then(|rest| rest.find('/'));
    let path = path.map_or("/", |at| &url[after_scheme + at..]);
    Ok(HttpTarget::new(endpoint, method, path)?)
}

fn or_default(attributes: &[(String, String)]) -> Vec<(String, String)> {
    if attributes.is_empty() {
        let (name, value) = DEFAULT_ATTRIBUTE;
        return vec![(name.to_owned(), value.to_owned())];
    }
    attributes.to_vec()
}

/// The body of a check.
fn check(attributes: &[(String, String)]) -> anyhow::Result<String> {
    let attributes = or_default(attributes);
    let attributes = AttributeArgs { attributes }.to_json()?;
    Ok(json!({ "attributes": attributes }).to_string())
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
        _ => Err("write it as NAME: VALUE, for example `X-Api-Key: k{key}`".to_owned()),
    }
}

fn tls(server: &ServerArgs) -> anyhow::Result<LoadTls> {
    Ok(LoadTls {
        roots: server.ca_file.as_deref().map(roots).transpose()?,
        identity: identity(server)?.map(|identity| (identity.chain, identity.key)),
    })
}

fn roots(file: &Path) -> anyhow::Result<RootCertStore> {
    let shown = file.display();
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file);
    for certificate in certificates.with_context(|| format!("cannot read `{shown}`"))? {
        let certificate = certificate.with_context(|| format!("`{shown}` is not a PEM file"))?;
        roots.add(certificate)?;
    }
    if roots.is_empty() {
        bail!("there is no certificate in `{shown}`; it must have `BEGIN CERTIFICATE` in it");
    }
    Ok(roots)
}
