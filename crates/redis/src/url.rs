//! Parses the URLs of Redis. Messages never show a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26_379;

/// One or more servers and how they belong together.
///
/// `redis://h:p/db`, `rediss://h:p/db` (TLS), `unix:///path`, `redis+sentinel://h1:p1,h2:p2/name/db`,
/// `redis+cluster://h1:p1,h2:p2`; the last two also with `rediss`. The host may be preceded by a user and a
/// password, percent-encoded. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub(crate) topology: Topology,
    pub(crate) is_tls: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
}

/// How the servers belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server, or an address that leads to one.
    One(RedisNode),
    /// A master, by its name at the sentinels.
    Sentinel {
        sentinels: Vec<RedisNode>,
        name: String,
    },
    /// A cluster, with some of its nodes.
    Cluster { seeds: Vec<RedisNode> },
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RedisNode {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why a text is not the URL of a Redis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Unknown scheme.
    #[error(
        "a Redis URL begins with `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`, not `{scheme}`"
    )]
    Scheme {
        /// The scheme that was written.
        scheme: String,
    },
    /// Missing or invalid host.
    #[error("`{host}` is not `host` or `host:port` with a port from 1 to 65535")]
    Host {
        /// The given host.
        host: String,
    },
    /// More than one host where only one is allowed.
    #[error(
        "`redis://` takes one host; for several write `redis+sentinel://…/master-name` or `redis+cluster://…`"
    )]
    ManyHosts,
    /// Missing name of the master.
    #[error(
        "`redis+sentinel://` needs the name of the master after the hosts, such as `/mymaster`"
    )]
    NoMasterName,
    /// The database is not a number.
    #[error("the database `{database}` is not a whole number")]
    Database {
        /// The given text.
        database: String,
    },
    /// A cluster has one database.
    #[error("a cluster has no databases: write nothing after the hosts, not `/{database}`")]
    DatabaseOfCluster {
        /// The given text.
        database: String,
    },
    /// The path of the socket is missing.
    #[error("`unix://` needs the path of a socket, such as `unix:///run/redis.sock`")]
    NoPath,
    /// A user or password is not readable.
    #[error(
        "the user or the password in the URL is not percent-encoded: write `/` as `%2F`, `?` as `%3F`, `@` as `%40`, or use the settings for user and password"
    )]
    Credentials,
    /// Unknown query parameter.
    #[error(
        "`?{query}` means nothing in a Redis URL; TLS files and the like are settings of their own"
    )]
    Query {
        /// The given text.
        query: String,
    },
}

impl FromStr for RedisUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let is_tls = scheme.starts_with("rediss");
        match scheme {
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
            | "rediss+cluster" => {}
            "unix" | "redis+unix" => return unix(rest),
            _ => {
                // The scheme may be missing and a password follow: only the first word is shown.
                let scheme = scheme.split(['@', ':', '/']).next().unwrap_or_default();
                return Err(UrlError::Scheme {
                    scheme: scheme.to_owned(),
                });
            }
        }
        // All before the last `@` may be a password that is not encoded correctly.
        if let Some((before, _)) = rest.rsplit_once('@')
            && before.contains(['/', '?', '#', ','])
        {
            return Err(UrlError::Credentials);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !query.is_empty() {
            return Err(UrlError::Query {
                query: query.to_owned(),
            });
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password, hosts) = credentials(authority)?;
        let is_sentinel = scheme.ends_with("+sentinel");
        let default_port = if is_sentinel {
            DEFAULT_SENTINEL_PORT
        } else {
            DEFAULT_PORT
        };
        let nodes = hosts
            .split(',')
            .map(|host| node(host, default_port))
            .collect::<Result<Vec<_>, _>>()?;
        let (topology, database) = if is_sentinel {
            let (name, database) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(UrlError::NoMasterName);
            }
            let name = decoded(name).ok_or(UrlError::NoMasterName)?;
            let sentinels = nodes;
            (Topology::Sentinel { sentinels, name }, database)
        } else if scheme.ends_with("+cluster") {
            if !path.is_empty() && path != "0" {
                return Err(UrlError::DatabaseOfCluster {
                    database: path.to_owned(),
                });
            }
            (Topology::Cluster { seeds: nodes }, "")
        } else {
            let mut nodes = nodes.into_iter();
            match (nodes.next(), nodes.next()) {
                (Some(node), None) => (Topology::One(node), path),
                _ => return Err(UrlError::ManyHosts),
            }
        };
        Ok(Self {
            topology,
            is_tls,
            user,
            password,
            database: number(database)?,
        })
    }
}

fn unix(rest: &str) -> Result<RedisUrl, UrlError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let database = match query.split_once('=') {
        None if query.is_empty() => "",
        Some(("db", database)) => database,
        _ => {
            return Err(UrlError::Query {
                query: query.to_owned(),
            });
        }
    };
    if !path.starts_with('/') || path.len() < 2 {
        return Err(UrlError::NoPath);
    }
    let path = decoded(path).ok_or(UrlError::NoPath)?;
    Ok(RedisUrl {
        topology: Topology::One(RedisNode::Unix(path.into())),
        is_tls: false,
        user: None,
        password: None,
        database: number(database)?,
    })
}

type Credentials<'a> = (Option<String>, Option<String>, &'a str);

fn credentials(authority: &str) -> Result<Credentials<'_>, UrlError> {
    let Some((credentials, hosts)) = authority.rsplit_once('@') else {
        return Ok((None, None, authority));
    };
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let part = |text: &str| match text {
        "" => Ok(None),
        text => decoded(text).map(Some).ok_or(UrlError::Credentials),
    };
    Ok((part(user)?, part(password)?, hosts))
}

fn node(text: &str, default_port: u16) -> Result<RedisNode, UrlError> {
    // The text after a colon may be a password.
    let shown = match text.split_once(':') {
        Some((host, port)) if port.parse::<u64>().is_err() => format!("{host}:…"),
        _ => text.to_owned(),
    };
    let wrong = || UrlError::Host {
        host: shown.clone(),
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(wrong()),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(is_of_host) {
        return Err(wrong());
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0),
        None => Some(default_port),
    };
    Ok(RedisNode::Tcp {
        host: host.to_owned(),
        port: port.ok_or_else(wrong)?,
    })
}

fn number(database: &str) -> Result<i64, UrlError> {
    if database.is_empty() {
        return Ok(0);
    }
    let number = database.parse::<u16>().map(i64::from);
    number.map_err(|_| UrlError::Database {
        database: database.to_owned(),
    })
}

/// `text` percent-decoded; none if the result is not UTF-8, or a `%` is not followed by two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// Without user and password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redis = if self.is_tls { "rediss" } else { "redis" };
        let joined = |nodes: &[RedisNode]| {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            nodes.join(",")
        };
        match &self.topology {
            Topology::One(RedisNode::Unix(path)) => write!(f, "unix://{}", path.display())?,
            Topology::One(node) => write!(f, "{redis}://{node}")?,
            Topology::Sentinel { sentinels, name } => {
                write!(f, "{redis}+sentinel://{}/{name}", joined(sentinels))?;
            }
            Topology::Cluster { seeds } => write!(f, "{redis}+cluster://{}", joined(seeds))?,
        }
        match (&self.topology, self.database) {
            (_, 0) => Ok(()),
            (Topology::One(RedisNode::Unix(_)), database) => write!(f, "?db={database}"),
            (_, database) => write!(f, "/{database}"),
        }
    }
}

/// As shown.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

impl fmt::Display for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_secrets() {
        #[rustfmt::skip]
        let table = [
            ("redis://localhost",                       "redis://localhost:6379"),
            ("redis://:s3cret@10.0.0.1:7000/3",         "redis://10.0.0.1:7000/3"),
            ("rediss://app:p%40ss@redis.example:6380",  "rediss://redis.example:6380"),
            ("redis://[::1]:6380",                      "redis://[::1]:6380"),
            ("unix:///run/redis.sock",                  "unix:///run/redis.sock"),
            ("unix:///run/redis.sock?db=2",             "unix:///run/redis.sock?db=2"),
            ("redis+sentinel://a,b:1,c/mymaster",       "redis+sentinel://a:26379,b:1,c:26379/mymaster"),
            ("rediss+sentinel://u:p@a/mymaster/2",      "rediss+sentinel://a:26379/mymaster/2"),
            ("redis+cluster://a:1,b:2",                 "redis+cluster://a:1,b:2"),
        ];
        for (text, shown) in table {
            let url: RedisUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"));
        }
        let url: RedisUrl = "rediss://app:p%40ss@h".parse().unwrap();
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref(), url.is_tls),
            (Some("app"), Some("p@ss"), true)
        );
    }

    #[test]
    fn mistakes_are_reported_and_never_repeat_a_password() {
        #[rustfmt::skip]
        let table = [
            ("localhost:6379",              "begins with"),
            ("http://localhost",            "not `http`"),
            ("redis://",                    "is not `host`"),
            ("redis://:s3cret@h:0",         "is not `host`"),
            ("redis://:s3cret@h:99999",     "is not `host`"),
            ("redis://:s3cret@a,b",         "takes one host"),
            ("redis://:s3cret@a/x",         "the database `x`"),
            ("redis://:s3cret@a?x=1",       "means nothing"),
            ("redis+sentinel://:s3cret@a",  "needs the name"),
            ("redis+cluster://:s3cret@a/3", "has no databases"),
            ("redis://:%s3cret@a",          "percent-encoded"),
            ("redis://:s3cret%+f@a",        "percent-encoded"),
            ("redis://:s3cret%ff@a",        "percent-encoded"),
            ("redis://:pa?s3cret@a",        "percent-encoded"),
            ("redis://:pa/s3cret@a",        "percent-encoded"),
            ("redis://user:s3cret",         "is not `host`"),
            ("unix://run/redis.sock",       "needs the path"),
            (":s3cret@localhost",           "begins with"),
        ];
        for (text, part) in table {
            let error = text.parse::<RedisUrl>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
