//! `tidegate serve`: its flags, which are settings, and the life cycle of the server. `Config` reads the
//! environment and the file.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tidegate::document::Key;
use tidegate_server::config::{EnvoyRatelimit, SETTINGS, Setting};
use tidegate_server::{
    Config, Handle, Listeners, Overrides, Service, raise_descriptor_limit, start_logs,
};
use tokio::signal::unix::{SignalKind, signal};

/// The given flags, by the key of their setting.
#[derive(Debug)]
pub(crate) struct ServeArgs(Vec<(&'static str, String)>);

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().filter_map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| {
            let key = setting.key.name;
            let value = match setting.flag()? {
                (_, "") => matches.get_flag(key).then(|| "true".to_owned()),
                _ => matches.get_one::<String>(key).cloned(),
            };
            Some((key, value?))
        };
        Ok(Self(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of a setting, if it has one.
fn argument(setting: &'static Setting) -> Option<Arg> {
    let (flag, value) = setting.flag()?;
    let Key {
        name,
        about,
        default,
        ..
    } = setting.key;
    let (first, rest) = about.split_at_checked(1)?;
    let default = match default {
        "" | "false" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let help = format!("{}{rest}{default}", first.to_uppercase());
    let argument = Arg::new(name).long(flag).help(help);
    Some(match value {
        "" => argument.action(ArgAction::SetTrue),
        value => argument.value_name(value),
    })
}

impl ServeArgs {
    /// Does something with the settings that flags and the environment give.
    pub(crate) fn with_overrides<T>(&self, act: impl FnOnce(&Overrides<'_>) -> T) -> T {
        #[expect(
            clippy::disallowed_methods,
            reason = "the environment is read only here"
        )]
        let environment = |name: &str| {
            // A value that is not UTF-8 is kept: an unreadable token must not leave the server open.
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        };
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        act(&Overrides {
            environment: &environment,
            variables: variables.collect(),
            flags: self.0.clone(),
        })
    }
}

/// The arguments of a program that was started as envoyproxy/ratelimit, by the last part of its own name.
pub(crate) fn arguments_of_envoy_ratelimit(words: &[OsString]) -> Option<&[OsString]> {
    let (program, arguments) = words.split_first()?;
    let name = Path::new(program).file_name()?;
    (name == EnvoyRatelimit::PROGRAM).then_some(arguments)
}

/// Serves in place of envoyproxy/ratelimit, which has no arguments.
pub(crate) fn run_as_envoy_ratelimit(ignored: &[OsString]) -> ExitCode {
    let args = ServeArgs(vec![("as", EnvoyRatelimit::NAME.to_owned())]);
    exit_code(serve(&args, ignored))
}

/// Serves until a signal. Returns 0 after a graceful shutdown, 2 if the server could not start.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    exit_code(serve(args, &[]))
}

fn exit_code(served: anyhow::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            let text = text.trim_end();
            // Problems of a file already have the `error:` prefix.
            if text.starts_with("error: ") || text.starts_with("warning: ") {
                anstream::eprintln!("{text}");
            } else {
                anstream::eprintln!("error: {text}");
            }
            ExitCode::from(2)
        }
    }
}

fn serve(args: &ServeArgs, ignored: &[OsString]) -> anyhow::Result<()> {
    let config = args.with_overrides(Config::load)?;
    start_logs(&config.log);
    if !ignored.is_empty() {
        let ignored: Vec<_> = ignored.iter().map(|word| word.to_string_lossy()).collect();
        tracing::warn!(
            arguments = ignored.join(" "),
            "arguments have no effect in place of envoyproxy/ratelimit, which is configured by variables"
        );
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let service = Service::open(&config).await?;
        let listeners = Listeners::bind(&config).await?;
        let handle = Handle::new();
        // Installed before the addresses are printed: a script may send a signal right after reading them.
        listen_for_signals(&handle)?;
        service.announce(&listeners);
        announce(&listeners);
        service.run(listeners, handle).await;
        anyhow::Ok(())
    })?;
    // A thread that still waits for a disk must not delay the exit.
    runtime.shutdown_background();
    Ok(())
}

/// Prints the address of each front end to stdout, for people and for scripts that chose port 0. A closed
/// stdout does not stop the server.
fn announce(listeners: &Listeners) {
    let mut stdout = std::io::stdout().lock();
    for (front_end, address) in listeners.addresses() {
        let written = writeln!(stdout, "listening {front_end}={address}");
        if written.and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
    if let Some(path) = listeners.grpc_socket() {
        let written = writeln!(stdout, "listening grpc=unix://{}", path.display());
        let _ = written.and_then(|()| stdout.flush());
    }
}

/// SIGTERM and SIGINT shut the server down gracefully, a second one immediately; SIGHUP reloads.
fn listen_for_signals(handle: &Handle) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let handle = handle.clone();
    tokio::spawn(async move {
        let mut is_ending = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {
                    handle.reload();
                    continue;
                }
            }
            if is_ending {
                std::process::exit(1);
            }
            is_ending = true;
            handle.shut_down();
        }
    });
    Ok(())
}
