//! The options of commands that read logs, and what they make of them.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use tidegate::document::Source;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tidegate::{InvalidCredentials, Micros};
use tidegate_identity::{AttributeSource, Identity};
use tidegate_rehearse::{
    ClientNames, FieldMap, FormatName, InputSettings, LineTemplate, LogInput, OpenLog, TimeFormat,
    read_instant, read_zone,
};
use tidegate_server::{Config, Overrides};

use crate::commands::attributes::attribute;
use crate::commands::rules::file;
use crate::output;

/// The variable with the secret of digests.
const KEY_SECRET: &str = "TIDEGATE_KEY_SECRET";

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct LogArgs {
    /// Logs, plain or compressed with gzip or zstd; `-` is stdin, which is read if none is named
    #[arg(value_name = "LOG")]
    pub(super) logs: Vec<String>,

    /// Identify clients by the settings in this file, as the gateway does, and take the rule file that it names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The format of the lines, such as `combined` or `caddy`; `auto` finds it out for each file
    #[arg(long, value_name = "NAME", default_value = "auto")]
    format: String,

    /// The format of the lines as nginx or Envoy is given it: `$remote_addr … "$request" $msec`
    #[arg(long, value_name = "TEXT")]
    log_format: Option<String>,

    /// Take an attribute, `time`, `duration` or `cost` from the first of these that is present: `$variable`, a JSON
    /// path, a column, or `@attribute`; may be given several times
    #[arg(long, value_name = "NAME=SOURCE,…")]
    map: Vec<String>,

    /// Give every request an attribute, such as `tier=free`; may be given several times
    #[arg(long = "attr", short, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,

    /// The zone of times without one: `UTC`, `+02:00`, or a name of the time zone database
    #[arg(
        long,
        value_name = "ZONE",
        default_value = "UTC",
        allow_hyphen_values = true
    )]
    timezone: String,

    /// How times are written: `unix`, `unix-ms`, `unix-us`, `unix-ns`, `rfc3339`, `clf` or a pattern of strptime
    #[arg(long, value_name = "FORMAT")]
    time_format: Option<String>,

    /// By how much lines of a file may be out of order
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    reorder: Micros,

    /// Spread requests of the same second over it, for logs with whole seconds
    #[arg(long)]
    spread: bool,

    /// Leave out requests before this time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Leave out requests at this time and later
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// End with an error at the first line that is malformed or late
    #[arg(long)]
    strict: bool,

    /// Show all values of clients as digests
    #[arg(long)]
    anonymous: bool,

    /// Write no progress and no warnings to stderr
    #[arg(long)]
    pub(super) quiet: bool,
}

/// What the options say, once files and variables were read.
pub(super) struct LogSetup {
    pub(super) input: InputSettings,
    pub(super) names: ClientNames,
    pub(super) invalid_credentials: InvalidCredentials,
    /// The rule file that `--config` names.
    pub(super) rule_file: Option<PathBuf>,
}

impl LogArgs {
    /// What the options say.
    pub(super) fn setup(&self) -> anyhow::Result<LogSetup> {
        let config = self.config.as_deref().map(load).transpose()?;
        let zone = read_zone(&self.timezone).ok_or_else(|| {
            anyhow!("--timezone: `{}` is not a zone; write `UTC`, `+02:00` or a name such as `Europe/Berlin`", self.timezone)
        })?;
        let map = FieldMap::read_all(self.map.iter().map(String::as_str)).context("--map")?;
        let template = self
            .log_format
            .as_deref()
            .map(LineTemplate::read_text)
            .transpose();
        let template = template.context("--log-format")?;
        if let Some(template) = &template
            && !map.has("time")
        {
            template.check_time().context("--log-format")?;
        }
        let instant = |flag: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => read_instant(text, &zone).map(Some).ok_or_else(|| {
                anyhow!(
                    "--{flag}: `{text}` is not a time; write `2026-11-15T19:13:20Z` or Unix seconds"
                )
            }),
        };
        let (since, until) = (
            instant("since", &self.since)?,
            instant("until", &self.until)?,
        );
        let input = InputSettings {
            format: self.format_name()?,
            template,
            map,
            constants: self.attributes.clone(),
            time_format: self.time_format()?,
            reorder: self.reorder,
            spread: self.spread,
            since,
            until,
            strict: self.strict,
            identity: config.as_ref().map(identity).transpose()?,
            zone,
        };
        let (digest, is_secret_given) = digest(config.as_ref())?;
        let names = ClientNames {
            digest,
            is_secret_given,
            settings: config
                .as_ref()
                .map_or_else(RuleSettings::default, |config| config.rule_settings.clone()),
            anonymous: self.anonymous,
            secret_sources: Vec::new(),
        };
        Ok(LogSetup {
            input,
            names,
            invalid_credentials: config
                .as_ref()
                .map_or_else(InvalidCredentials::default, |config| {
                    config.invalid_credentials
                }),
            rule_file: config.and_then(|config| Some(config.rules?.path)),
        })
    }

    fn format_name(&self) -> anyhow::Result<Option<FormatName>> {
        if self.format == "auto" {
            return Ok(None);
        }
        if self.log_format.is_some() {
            bail!("--format and --log-format both say what the lines are; leave one out");
        }
        let format = FormatName::from_name(&self.format).ok_or_else(|| {
            let names: Vec<String> = FormatName::NAMED
                .iter()
                .map(|format| format!("`{}`", format.name()))
                .collect();
            anyhow!(
                "--format: `{}` is not a format; expected one of `auto`, {}",
                self.format,
                names.join(", ")
            )
        })?;
        Ok(Some(format))
    }

    fn time_format(&self) -> anyhow::Result<Option<TimeFormat>> {
        let Some(name) = &self.time_format else {
            return Ok(None);
        };
        let format = TimeFormat::from_name(name).ok_or_else(|| {
            anyhow!(
                "--time-format: `{name}` is not a format; expected one of `unix`, `unix-ms`, `unix-us`, `unix-ns`, `rfc3339`, `clf`, or a pattern such as `%Y-%m-%d %H:%M:%S`"
            )
        })?;
        Ok(Some(format))
    }

    /// The logs. Stdin can be read more than once only if it was kept in a file.
    pub(super) fn inputs(&self, is_read_twice: bool) -> anyhow::Result<Vec<LogInput>> {
        let stdin = ["-".to_owned()];
        let logs = if self.logs.is_empty() {
            if io::stdin().is_terminal() {
                bail!(
                    "no log is named, and stdin is a terminal; name a file, or pipe a log to this command"
                );
            }
            &stdin[..]
        } else {
            &self.logs[..]
        };
        if logs.iter().filter(|log| *log == "-").count() > 1 {
            bail!("stdin is named twice; it can be read once");
        }
        logs.iter().map(|log| input(log, is_read_twice)).collect()
    }
}

/// A log with this name.
fn input(name: &str, is_read_twice: bool) -> anyhow::Result<LogInput> {
    if name != "-" {
        let path = PathBuf::from(name);
        let size = std::fs::metadata(&path)
            .ok()
            .filter(std::fs::Metadata::is_file);
        let open: OpenLog = Arc::new(move || {
            let file = File::open(&path)?;
            if file.metadata()?.is_dir() {
                return Err(io::Error::other("it is a folder"));
            }
            Ok(Box::new(file))
        });
        return Ok(LogInput {
            name: name.to_owned(),
            size: size.map(|metadata| metadata.len()),
            open,
        });
    }
    let open: OpenLog = if is_read_twice {
        let mut kept = tempfile::tempfile().context("cannot keep stdin in a temporary file")?;
        io::copy(&mut io::stdin().lock(), &mut kept).context("cannot read stdin")?;
        let kept = Mutex::new(kept);
        Arc::new(move || {
            let mut kept = kept.lock().map_err(|_| io::Error::other("it is in use"))?;
            kept.rewind()?;
            // Its readers share a position, and one reads after the other.
            Ok(Box::new(kept.try_clone()?) as Box<dyn Read + Send>)
        })
    } else {
        Arc::new(|| Ok(Box::new(io::stdin())))
    };
    Ok(LogInput {
        name: name.to_owned(),
        size: None,
        open,
    })
}

/// The settings of the server in a file, with those of the environment.
fn load(file: &Path) -> anyhow::Result<Config> {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let config = Config::load(&Overrides {
        environment: &environment,
        variables: variables.collect(),
        flags: vec![("config", file.display().to_string())],
    });
    config.map_err(|problems| anyhow!("{}", problems.to_string().trim_end()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment of settings is read as for the server"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Who clients are, as at the gateway. Tokens in logs are not verified, so that what they claim is missing.
fn identity(config: &Config) -> anyhow::Result<Arc<Identity>> {
    let mut settings = config.identify.clone();
    settings.jwt = None;
    for (_, sources) in &mut settings.attributes {
        sources.retain(|source| !matches!(source, AttributeSource::Jwt(_)));
    }
    let identity = Identity::open(&settings, config.trusted_proxies.clone())?;
    Ok(Arc::new(identity))
}

/// Digests under the configured secret, or one of this run, and whether it is the configured one.
fn digest(config: Option<&Config>) -> anyhow::Result<(ValueDigest, bool)> {
    if let Some(secret) = config.and_then(|config| config.key_secret.as_ref()) {
        return Ok((ValueDigest::new(secret.bytes()), true));
    }
    if let Some(secret) = environment(KEY_SECRET).filter(|secret| !secret.is_empty()) {
        return Ok((ValueDigest::new(secret.as_bytes()), true));
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("no random bytes")?;
    Ok((ValueDigest::new(&secret), false))
}

/// The rules of a file, and its text. Problems go to stderr.
pub(super) fn rules(
    name: &str,
    settings: &RuleSettings,
    quiet: bool,
) -> anyhow::Result<(RuleSet, Source)> {
    let source = file::source(name)?;
    let rules = RuleSet::read(&source, settings).map_err(|problems| {
        // If stderr is closed, the problems cannot be shown.
        let _ = output::note(&file::rendered(&problems, &source));
        anyhow!(file::summary(&source.name, None, &problems))
    })?;
    if !quiet {
        output::note(&file::rendered(rules.warnings(), &source))?;
    }
    Ok((rules, source))
}
