//! `tidegate serve`: its flags, and the server's life. The environment and the file are read by the
//! server's configuration.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use tidegate_server::{
    Config, Handle, Listeners, Outside, Service, raise_descriptor_limit, start_logs,
};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Read settings from this YAML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// Take the rules from this file, and follow its changes
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<String>,
    /// Where HTTP listens [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Where gRPC listens, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR|off")]
    pub(crate) grpc: Option<String>,
    /// Where the Redis protocol listens [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub(crate) resp: Option<String>,
    /// Where the gateway listens [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<String>,
    /// The server that the gateway stands before, such as `http://127.0.0.1:3000`
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// Share state and rules in this Redis or Valkey
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// Where rules and what a restart needs are kept [default: tidegate-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Decide at the time that a request names, for replays and tests
    #[arg(long)]
    pub(crate) trust_timestamps: bool,
    /// How log lines look: `text` or `json`
    #[arg(long, value_name = "text|json")]
    pub(crate) log_format: Option<String>,
    /// What is logged: `error`, `warn`, `info`, `debug` or `trace`
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

impl ServeArgs {
    /// The flags that were given, by the key of their setting.
    fn flags(&self) -> Vec<(&'static str, String)> {
        let trust_timestamps = self.trust_timestamps.then(|| "true".to_owned());
        let flags = [
            ("config", &self.config),
            ("rules", &self.rules),
            ("http", &self.http),
            ("grpc", &self.grpc),
            ("resp", &self.resp),
            ("gateway", &self.gateway),
            ("upstream", &self.upstream),
            ("redis", &self.redis),
            ("data_dir", &self.data_dir),
            ("trust_timestamps", &trust_timestamps),
            ("log_format", &self.log_format),
            ("log_level", &self.log_level),
        ];
        let given = |(key, value): (&'static str, &Option<String>)| Some((key, value.clone()?));
        flags.into_iter().filter_map(given).collect()
    }
}

/// Serves until it is told to end. 0 after a shutdown in good order, 2 if it could not start.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            let text = text.trim_end();
            // Problems of a file say by themselves that they are errors.
            if text.starts_with("error: ") || text.starts_with("warning: ") {
                anstream::eprintln!("{text}");
            } else {
                anstream::eprintln!("error: {text}");
            }
            ExitCode::from(2)
        }
    }
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where the environment is read"
    )]
    let environment = |name: &str| {
        // What is not text is not ignored: a token that cannot be read must not open the door.
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    };
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let config = Config::load(&Outside {
        environment: &environment,
        variables: variables.collect(),
        flags: args.flags(),
    })?;
    start_logs(&config.log);
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let service = Service::open(&config).await?;
        let listeners = Listeners::bind(&config).await?;
        let handle = Handle::new();
        // Before anyone knows that it listens: who does may send a signal at once.
        listen_for_signals(&handle)?;
        service.announce(&listeners);
        announce(&listeners);
        service.run(listeners, handle).await;
        anyhow::Ok(())
    })?;
    // A thread that still waits for a disk must not hold the end up.
    runtime.shutdown_background();
    Ok(())
}

/// Tells on stdout where each front end is asked, for people and for scripts that chose port 0. Who has
/// read enough may close it: that is no reason not to serve.
fn announce(listeners: &Listeners) {
    let mut stdout = std::io::stdout().lock();
    for (front_end, address) in listeners.addresses() {
        let told = writeln!(stdout, "listening {front_end}={address}");
        if told.and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
}

/// SIGTERM and SIGINT end the server in good order, a second one at once; SIGHUP reloads.
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
