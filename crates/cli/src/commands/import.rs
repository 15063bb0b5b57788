//! `tidegate import`: writes the limits of nginx or ingress-nginx as rules, and what differs to stderr.

mod files;

use std::io::Read as _;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tidegate_import::{
    ImportFile, ImportFinding, ImportFindingKind, ImportSettings, ImportedRules, NothingImported,
};

use crate::exit::{self, Answer};
use crate::output::{self, BAD, CAREFUL, plain, plain_lines, styled};
use files::FilesBelow;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    from: ImportFrom,
}

#[derive(Debug, Subcommand)]
enum ImportFrom {
    /// From `limit_req` and `limit_conn` of nginx
    Nginx(NginxArgs),
    /// From the annotations of ingress-nginx
    IngressNginx(IngressArgs),
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// The files to read; `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Write nothing unless the rules mean the same
    #[arg(long)]
    strict: bool,

    /// How many bits of an IPv6 address make a key on the server; nginx counts by 128
    #[arg(long, value_name = "BITS", default_value_t = ImportSettings::default().ipv6_prefix,
          value_parser = clap::value_parser!(u8).range(1..=128))]
    ipv6_prefix: u8,
}

#[derive(Debug, Args)]
struct NginxArgs {
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
struct IngressArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Multiply limits by the number of pods of the controller, each of which counts by itself
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    replicas: Option<u64>,
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<Answer> {
    let (source, replicas) = match &args.from {
        ImportFrom::Nginx(args) => (&args.source, None),
        ImportFrom::IngressNginx(args) => (&args.source, args.replicas),
    };
    let files = source.files.iter().map(|file| read(file));
    let files: Vec<ImportFile> = files.collect::<anyhow::Result<_>>()?;
    let settings = ImportSettings {
        ipv6_prefix: source.ipv6_prefix,
        replicas,
    };
    let imported = match &args.from {
        ImportFrom::Nginx(_) => tidegate_import::import_nginx(&files, &FilesBelow, &settings),
        ImportFrom::IngressNginx(_) => tidegate_import::import_ingress(&files, &settings),
    };
    match imported {
        Ok(imported) => finish(&imported, source.strict),
        Err(NothingImported { message, findings }) => {
            output::note(&listed(&findings))?;
            bail!(plain_lines(&message));
        }
    }
}

fn finish(imported: &ImportedRules, is_strict: bool) -> anyhow::Result<Answer> {
    output::note(&listed(&imported.findings))?;
    let is_same = imported.is_same();
    if is_same || !is_strict {
        output::print(&imported.text)?;
    } else {
        output::note("nothing is written, because of --strict\n")?;
    }
    Ok(if is_same { Answer::Yes } else { Answer::No })
}

/// A line for each finding.
fn listed(findings: &[ImportFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let line = plain(&finding.to_string());
        let (word, rest) = line.split_once(": ").unwrap_or((&line, ""));
        let word = match finding.kind {
            ImportFindingKind::Note => word.to_owned(),
            ImportFindingKind::Difference => styled(CAREFUL.bold(), word),
            ImportFindingKind::LeftOut => styled(BAD.bold(), word),
        };
        text.extend([&word, ": ", rest, "\n"]);
    }
    text
}

/// The largest file that is read.
const MAX_FILE: u64 = 16 << 20;

fn read(name: &str) -> anyhow::Result<ImportFile> {
    let mut bytes = Vec::new();
    let (shown, read) = if name == "-" {
        let read = std::io::stdin()
            .lock()
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes);
        ("<stdin>", read)
    } else {
        let read = std::fs::File::open(name)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
        (name, read)
    };
    read.with_context(|| format!("cannot read `{shown}`"))?;
    if bytes.len() as u64 > MAX_FILE {
        bail!(
            "cannot read `{shown}`: it has more than {} MiB",
            MAX_FILE >> 20
        );
    }
    Ok(ImportFile {
        name: shown.to_owned(),
        // Comments may be in any encoding.
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}
