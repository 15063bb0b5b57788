//! The settings of the access log.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;

use http::HeaderName;
use tidegate::document::{Fields, Problems};
use tidegate_gateway::PROXY_TOKEN;

/// The settings of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Where it is written.
    pub target: LineTarget,
    /// The headers of requests that it has.
    pub headers: Vec<HeaderName>,
}

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineTarget {
    /// The standard error of the process.
    Stderr,
    /// A file, to whose end they are added.
    File(PathBuf),
}

impl fmt::Display for LineTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("`stderr`"),
            Self::File(path) => write!(f, "`{}`", path.display()),
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<AccessLogSettings> {
    let target = fields.parsed("access_log", line_target, problems);
    let name = |text: &str| {
        let refused = |_| format!("`{text}` is not the name of a header");
        let name = HeaderName::from_str(text).map_err(refused)?;
        if name == PROXY_TOKEN {
            return Err(format!(
                "`{text}` has a token of this server, which is never logged; leave it out"
            ));
        }
        Ok(name)
    };
    let headers = fields.list("access_log_headers", name, problems);
    let target = target.flatten()?;
    Some(AccessLogSettings { target, headers })
}

fn line_target(text: &str) -> Result<Option<LineTarget>, String> {
    match text {
        "off" => Ok(None),
        "stderr" => Ok(Some(LineTarget::Stderr)),
        "" => Err("write `off`, `stderr` or the path of a file".to_owned()),
        file => Ok(Some(LineTarget::File(PathBuf::from(file)))),
    }
}
